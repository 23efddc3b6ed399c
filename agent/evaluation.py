"""A whole run: questions and scans in, a run folder with scored answers out."""

import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from agent.backends import Backend, ModelError, OutOfMemory, make_backend
from agent.config import ConfigError, DtypeName, RendererName, RunConfig
from agent.console import Progress, log_to_file
from agent.planning import Plan, plan_lines, plan_run
from agent.run_log import RunLog, RunLogError
from agent.scheduler import Scheduler
from agent.state import QuestionState, Status
from agent.turns import (
    Run,
    complete_question_sequentially,
    failing,
    initialize_question_state,
    run_batched_turn,
)
from agent.world import World
from data.questions import Question, ask_one, fingerprint, load_questions
from data.scans import ScanNotFound, format_scan_table, scan_table, scene_order
from data.scoring import format_summary
from rendering.readers import reader_of
from rendering.renderers import Renderer, make_renderer
from rendering.scene import SceneError

log = logging.getLogger(__name__)

VIEW_THREADS = min(8, os.cpu_count() or 1)
"""Views of a batch that are drawn at the same time."""


class Outcome(NamedTuple):
    """How a run ended: 0 when all questions finished, 1 when some failed (or, with `--check-data`, lack their scan), 3
    when an error that belongs to no question stopped it, 130 when interrupted, both with the run's folder on disk; and
    the result rows so far, by question number."""

    status: int
    rows: list[dict[str, Any]]


def main_vsi_bench_loop(config: RunConfig, folder: Path | None = None) -> Outcome:
    """Answer every question of a run and score it.

    `folder` is the run to go on with, None for a new one. Raises ConfigError, QuestionError, ScanNotFound, RenderError,
    ModelError or RunLogError when the run cannot begin, RunLogError also when its folder can no longer be written.
    """
    questions = questions_of(config.checked())
    if config.plan:
        report_plan(questions, config)
        return Outcome(0, [])
    complete = config.ply is not None or report_scans(questions, config)
    if config.check_data:
        return Outcome(0 if complete else 1, [])
    with ExitStack() as stack:
        if folder is None:
            return begin_run(config, questions, stack)
        return resume_run(config, questions, folder, stack)


def begin_run(config: RunConfig, questions: Sequence[Question], stack: ExitStack) -> Outcome:
    """A new run: its folder is made once the renderer and the model are ready."""
    plan = plan_run(config, questions)
    renderer, backend = tools_of(config, stack)
    config = replace(
        config,
        renderer=cast(RendererName, renderer.name),
        dtype=cast(DtypeName, plan.model.dtype) if plan.model else config.dtype,
    )
    run_log = RunLog.create(config, fingerprint(questions), len(questions))
    stack.callback(run_log.close)
    try:
        run = assembled(config, renderer, backend, run_log, stack)
        return answer_and_score(questions, run, config, plan)
    except KeyboardInterrupt:
        return interrupted(run_log, stack)


def resume_run(config: RunConfig, questions: Sequence[Question], folder: Path, stack: ExitStack) -> Outcome:
    """Go on with a run that was begun earlier; the model is loaded only where there is something left to ask."""
    run_log = RunLog(folder, config)
    stack.callback(run_log.close)
    run_log.require_questions(fingerprint(questions))
    try:
        if config.retry_failed:
            log.info("Taking up %d failed questions again", run_log.reopen_failed())
        if all(run_log.is_done(question.id) for question in questions):
            log.info("Nothing is left to do: all %d questions of %s are finished", len(questions), folder)
            outcome = report(run_log, config)
            if outcome.status:
                log.info("Some of them failed; to take those up again, add --retry-failed")
            return outcome
        plan = plan_run(config, questions)
        renderer, backend = tools_of(config, stack)
        run = assembled(config, renderer, backend, run_log, stack)
        run_log.note_resumption()
        return answer_and_score(questions, run, config, plan)
    except KeyboardInterrupt:
        return interrupted(run_log, stack)


def tools_of(config: RunConfig, stack: ExitStack) -> tuple[Renderer, Backend]:
    """The renderer and the model, ready to work; raises RenderError or ModelError."""
    renderer = make_renderer(config.renderer)
    stack.callback(renderer.close)
    return renderer, backend_of(config)


def assembled(config: RunConfig, renderer: Renderer, backend: Backend, run_log: RunLog, stack: ExitStack) -> Run:
    """All that turns need beside what the stack holds already; let go of in order when it is left."""
    stack.enter_context(log_to_file(run_log.folder / "run.log"))
    world = World(config, renderer)
    stack.callback(world.close)
    pool = stack.enter_context(ThreadPoolExecutor(VIEW_THREADS, thread_name_prefix="view"))
    return Run(world, backend, run_log, pool)


def answer_and_score(questions: Sequence[Question], run: Run, config: RunConfig, plan: Plan) -> Outcome:
    """Take all questions to their end and print the summary; an interrupt is raised again behind the exports.

    An error that nobody foresaw is written down with its traceback, and how to go on is said.
    """
    scheduler = schedule(questions, run.log, config, plan.batch_size)
    log.info("%s", plan.why)
    log.info("Run folder: %s", run.log.folder)
    session = Session(run, scheduler)
    try:
        answer_questions(scheduler, run, len(questions))
    except KeyboardInterrupt:
        with undisturbed():
            run.log.export(session.facts())
        raise
    except RunLogError:
        raise  # nothing more can be written
    except Exception:
        log.exception("Stopped by an error of the program; what is finished is on disk. To go on:")
        log.info("%s", run.log.resume_command)
        run.log.export(session.facts())
        return Outcome(3, run.log.rows)
    return report(run.log, config, session.facts())


class Session:
    """What one process did for a run, from its making on."""

    def __init__(self, run: Run, scheduler: Scheduler):
        self._run, self._scheduler = run, scheduler
        self._started, self._done_before = time.perf_counter(), len(run.log.rows)

    def facts(self) -> dict[str, Any]:
        """Wall seconds, questions finished, batch size and memory in bytes, for summary.json."""
        seconds, finished = time.perf_counter() - self._started, len(self._run.log.rows) - self._done_before
        return {
            "seconds": round(seconds, 3),
            "questions": finished,
            "questions_per_hour": round(3600 * finished / seconds, 1),
            "batch_size": self._scheduler.batch_size,
            "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "peak_device_memory_bytes": self._run.backend.peak_memory_bytes(),
        }


def interrupted(run_log: RunLog, stack: ExitStack) -> Outcome:
    """Let go of all that a run holds, and say how to go on with it."""
    with undisturbed():
        stack.close()
        log.info("Interrupted; what is finished is on disk. To go on:")
        log.info("%s", run_log.resume_command)
        return Outcome(130, run_log.rows)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Until it is left, further interrupts are ignored: schedulers and people often send two."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted, and only it may say what a signal does
        return
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def report(run_log: RunLog, config: RunConfig, session: dict[str, Any] | None = None) -> Outcome:
    """Write the exports, and print the summary of a benchmark, or the score of a single question."""
    summary, rows = run_log.export(session), run_log.rows
    if config.ply is None:
        lines = format_summary(summary)
    else:
        scored = (row for row in rows if row["score"] is not None)
        lines = [f"Score: {row['score']:g} of 1, where {row['ground_truth']} is right" for row in scored]
    for line in lines:
        log.info("%s", line)
    return Outcome(1 if any(row["status"] == Status.FAILED for row in rows) else 0, rows)


def backend_of(config: RunConfig) -> Backend:
    """The model that a configuration asks for, loaded; raises ModelError."""
    return make_backend(
        config.model,
        dtype=config.dtype,
        device=config.device,
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        seed=config.seed,
        attention=config.attention,
        constrained=config.constrained,
        compiled=config.compile,
        kv_reuse=config.kv_reuse,
    )


def questions_of(config: RunConfig) -> list[Question]:
    """The questions of a run in the order of their file; raises QuestionError or ConfigError."""
    if config.ply is not None and config.question is not None:
        try:
            reader_of(config.ply)
        except SceneError as error:
            raise ConfigError(f"--ply {error}") from None
        return [ask_one(config.question, config.ply.stem, config.options, config.question_type, config.ground_truth)]
    return load_questions(
        config.questions,
        datasets=config.datasets,
        question_types=config.question_types,
        scenes=config.scenes,
        ids=config.ids,
        num_questions=config.num_questions,
    )


def report_scans(questions: Sequence[Question], config: RunConfig) -> bool:
    """Print the table of scans per dataset; returns whether every question has its scan."""
    table = scan_table(questions, config.scan_root)
    for line in format_scan_table(table):
        log.info("%s", line)
    return all(row.questions_with_scan == row.questions for row in table)


def report_plan(questions: Sequence[Question], config: RunConfig) -> None:
    """Print what a run will take, whether or not its scans are there yet; raises ModelError."""
    if config.ply is None:
        try:
            report_scans(questions, config)
        except ScanNotFound as error:
            log.info("Scans: none yet (%s)", error)
    for line in plan_lines(config, questions):
        log.info("%s", line)


def schedule(questions: Sequence[Question], run_log: RunLog, config: RunConfig, batch_size: int) -> Scheduler:
    """The questions that have no result yet, those of one scan together; numbered by their place in the list."""
    number = {question.id: position for position, question in enumerate(questions, start=1)}
    owed = [question for question in scene_order(questions) if not run_log.is_done(question.id)]
    states = [QuestionState(number[question.id], question, config.steps) for question in owed]
    return Scheduler(states, batch_size, config.last_batched_turn + 1, config.refill, config.concurrency)


def answer_questions(scheduler: Scheduler, run: Run, total: int) -> None:
    """Take every question of a schedule to its end; `total` counts those that were finished before, too."""
    with Progress(total, run.log.rows) as progress:
        while scheduler.has_work:
            begin(scheduler, run, progress)
            batched_phase(scheduler, run, progress)
            sequential_phase(scheduler, run, progress)


def begin(scheduler: Scheduler, run: Run, progress: Progress) -> None:
    """Give every question that may begin now its scan and its first view, and load the next scans meanwhile."""
    admitted = scheduler.admit()
    for state in admitted:
        initialize_question_state(state, run)
    settle(admitted, run, progress)
    if admitted:
        run.world.load_ahead(state.question for state in scheduler.upcoming())


def batched_phase(scheduler: Scheduler, run: Run, progress: Progress) -> None:
    """The turns that are batched, until none is due; with refill, until no question is left."""
    announced = None
    while batch := scheduler.next_batch():
        turns = sorted({state.turn for state in batch})
        if turns != announced:
            announced = turns
            log.info(
                "BATCHED TURN %s/%d", "-".join(map(str, sorted({turns[0], turns[-1]}))), scheduler.max_batched_turns - 1
            )
        batched_turn(batch, scheduler, run)
        settle(batch, run, progress)
        if scheduler.refill:
            begin(scheduler, run, progress)


def batched_turn(batch: Sequence[QuestionState], scheduler: Scheduler, run: Run) -> None:
    """One turn of a batch, however the model takes it.

    Out of memory halves the batches of its phase for good, and the same turn is due again. Any other error of the model
    is traced to the questions it belongs to by asking them one at a time.
    """
    log.info("Processing %d active questions in batch", len(batch))
    started = time.perf_counter()
    try:
        run_batched_turn(batch, run)
    except OutOfMemory as error:
        if len(batch) == 1:
            batch[0].fail("model", str(error))
            return
        size = scheduler.shrink(batch)
        log.warning("Out of memory with %d questions in a batch: going on with %d (%s)", len(batch), size, error)
    except ModelError as error:
        if len(batch) > 1:
            log.warning("The batch failed (%s): asking its questions one at a time", error)
        for state in batch:
            with failing(state):
                run_batched_turn([state], run)
    else:
        seconds = time.perf_counter() - started
        log.info("Batch generation completed in %.1fs (%.2fs per question)", seconds, seconds / len(batch))


def sequential_phase(scheduler: Scheduler, run: Run, progress: Progress) -> None:
    """The cohort's later turns, a few questions at a time; one by one unless --concurrency says otherwise."""
    announced: set[int] = set()
    while few := scheduler.next_few():
        if not announced:
            log.info("SEQUENTIAL PHASE")
        for state in few:
            if state.number not in announced:
                log.info("[%s] Continuing sequentially from turn %d...", state.label, state.turn)
                announced.add(state.number)
        if len(few) == 1:
            complete_question_sequentially(few[0], run)
        else:
            batched_turn(few, scheduler, run)
        settle(few, run, progress)


def settle(states: Sequence[QuestionState], run: Run, progress: Progress) -> None:
    """Write the results of those questions that have ended, and let go of what they held."""
    for state in states:
        if not state.is_final or run.log.is_done(state.question.id):
            continue
        row = run.log.result(state)
        if state.status is Status.FAILED:
            log.error("[%s] Failed (%s): %s", state.label, row["failed_part"], row["error"])
        else:
            log.info("[%s] Final answer: %s", state.label, state.answer)
        run.backend.release(state.conversation)
        state.close()
        progress.finished(row)
