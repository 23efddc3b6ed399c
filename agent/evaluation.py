"""Runs an evaluation: questions and scans in, a run folder with scored answers out."""

import logging
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, cast

from agent.config import API_KEY_ENV, ConfigError, DtypeName, RendererName, RunConfig
from agent.console import Progress, log_to_file
from agent.parts import Part, cut
from agent.planning import Plan, plan_lines, plan_run, plan_without_model, suited
from agent.policies import Policy, PolicyError
from agent.policies.controls import RandomPolicy
from agent.policies.model import ModelPolicy
from agent.policies.named import named_policy, policy_name
from agent.policies.replies import action_format
from agent.records import result_row
from agent.run_folder import (
    begin_folder,
    config_to_resume,
    note_resumption,
    open_folder,
    part_record,
    require_same_scans,
)
from agent.scheduler import Scheduler
from agent.state import QuestionState
from agent.turns import (
    Run,
    complete_question_sequentially,
    failing,
    initialize_question_state,
    run_batched_turn,
)
from data.questions import Question, ask_one, fingerprint, load_questions
from data.scans import ScanNotFound, format_scan_table, scan_table, scene_order
from data.scoring import format_summary
from envs.library import CameraSettings, SceneLibrary
from models import Backend, ModelError, ModelOptions, OutOfMemory, ServerOptions
from models.engines import make_backend
from models.vllm import VLLM_PYTHON, VllmOptions
from rendering.readers import reader_of
from rendering.renderers import Renderer, RendererStart
from rendering.scene import SceneError
from runs import RunError
from runs.journal import Journal, MemoryJournal
from runs.records import ResultRow
from runs.writer import RunWriter

log = logging.getLogger(__name__)

VIEW_THREADS = min(8, os.cpu_count() or 1)
"""The number of views rendered in parallel."""


class Outcome(NamedTuple):
    """The outcome of a run: its exit status, and the result rows so far, by question number.

    Status 0: all questions finished; 1: some failed or, with `--check-data`, have no scan; 3: stopped by an error
    outside any question; 130: interrupted. After 3 and 130 the run can be resumed from its folder.
    """

    status: int
    rows: list[ResultRow]
    folder: Path | None = None
    error: Exception | None = None
    """The error behind status 3."""


def main_vsi_bench_loop(config: RunConfig, folder: Path | None = None, policy: Policy | None = None) -> Outcome:
    """Answer every question of a run and score it.

    `folder` is the run to resume, None for a new one. `policy` replaces the model that `config` names. Raises
    ConfigError, QuestionError, ScanNotFound, RenderError, ModelError or RunError if the run cannot begin, and RunError
    if its folder can no longer be written.
    """
    policy, config = decided_by(policy, config.checked())
    if folder is not None:
        config = config_to_resume(folder, config)
    whole = questions_of(config)
    questions = part_of(whole, config)
    if config.plan:
        report_plan(questions, config)
        return Outcome(0, [])
    complete = config.ply is not None or report_scans(questions, config)
    if config.check_data:
        return Outcome(0 if complete else 1, [])
    with ExitStack() as stack:
        run_log = None
        if folder is not None:
            run_log = open_run(folder, questions, config, whole)
            stack.callback(run_log.close)
            if finished := finished_outcome(run_log, questions, config):
                return finished
        try:
            config, plan, renderer, policy = start_up(config, questions, policy, stack)
            if run_log is None:
                config = resolved(config, renderer, plan)
                run_log = begin_folder(config, fingerprint(questions), len(questions), part_record(config, whole))
                stack.callback(run_log.close)
            else:
                note_resumption(run_log, config)
            stack.enter_context(log_to_file(run_log.folder / "run.log"))
            run = make_run(config, renderer, policy, run_log, stack)
            log.info("%s", plan.why)
            log.info("Run folder: %s", run_log.folder)
            scheduler = schedule(questions, run_log, config, plan.batch_size, policy.concurrent, whole)
            return answer_and_score(scheduler, run, run_log, config, len(questions))
        except KeyboardInterrupt:
            if run_log is None:
                raise
            return interrupted(run_log, stack)


def answer_in_memory(config: RunConfig, questions: Sequence[Question], policy: Policy | None = None) -> MemoryJournal:
    """Answer every question without a run folder; raises the errors of `main_vsi_bench_loop`, and PolicyError."""
    policy, config = decided_by(policy, config.checked())
    if config.ply is None:
        report_scans(questions, config)
    journal = MemoryJournal()
    with ExitStack() as stack:
        config, plan, renderer, policy = start_up(config, questions, policy, stack)
        log.info("%s", plan.why)
        run = make_run(config, renderer, policy, journal, stack)
        scheduler = schedule(questions, journal, config, plan.batch_size, policy.concurrent)
        answer_questions(scheduler, run, len(questions), show_progress=False)
    return journal


def decided_by(policy: Policy | None, config: RunConfig) -> tuple[Policy | None, RunConfig]:
    """The given policy, or the one that --policy names, and the configuration with its name and settings."""
    if policy is None and config.policy is not None:
        policy = named_policy(config.policy, config.seed)
        if config.model not in (RunConfig.model, policy_name(policy)):
            raise ConfigError(f"--policy {config.policy} replaces the model: leave out --model {config.model}")
    if policy is None:
        return None, config
    return policy, replace(config, model=policy_name(policy), **policy.settings)


def start_up(
    config: RunConfig, questions: Sequence[Question], policy: Policy | None, stack: ExitStack
) -> tuple[RunConfig, Plan, Renderer, Policy]:
    """Start a run: returns `config` with the view size resolved, the plan, the renderer and the policy.

    Loads the model that `config` names if `policy` is None. The renderer's process starts and tests itself while this
    one imports PyTorch and transformers for the plan. Open3D is loaded after PyTorch, as CUDA requires (see
    `make_renderer`), and before the weights, which can take minutes.
    """
    start = RendererStart(config.renderer, cuda_device_of(config.device))
    stack.callback(start.close)
    if policy is None:
        config = suited(config)
        plan = plan_run(config, questions)
    else:
        plan = plan_without_model(config, questions)
    renderer = start.renderer()
    stack.callback(renderer.close)
    if policy is None:
        policy = policy_of(config, plan)
        stack.callback(policy.close)
    return config, plan, renderer, policy


def make_run(config: RunConfig, renderer: Renderer, policy: Policy, journal: Journal, stack: ExitStack) -> Run:
    """The objects that all turns of a run share; `stack` closes them."""
    library = library_of(config, renderer)
    stack.callback(library.close)
    pool = stack.enter_context(ThreadPoolExecutor(VIEW_THREADS, thread_name_prefix="view"))
    return Run(library, policy, journal, pool)


def open_run(folder: Path, questions: Sequence[Question], config: RunConfig, whole: Sequence[Question]) -> RunWriter:
    """Open the run to resume; with --retry-failed, requeue its failed questions. Raises RunError."""
    run_log = open_folder(folder, config)
    run_log.require_questions(fingerprint(questions), fingerprint(whole))
    if config.retry_failed:
        log.info("Retrying %d failed questions", run_log.reopen_failed())
    require_same_scans(run_log, questions, whole, config)
    return run_log


def finished_outcome(run_log: RunWriter, questions: Sequence[Question], config: RunConfig) -> Outcome | None:
    """The outcome of a run whose questions are all finished; None if any is pending."""
    if not all(run_log.is_done(question.id) for question in questions):
        return None
    log.info("Nothing to do: all %d questions of %s are finished", len(questions), run_log.folder)
    outcome = report(run_log, config)
    if outcome.status:
        log.info("Some questions failed; to retry them, add --retry-failed")
    return outcome


def resolved(config: RunConfig, renderer: Renderer, plan: Plan) -> RunConfig:
    """The configuration with the renderer and the data type of this run in place of "auto"."""
    dtype = plan.model.dtype if plan.model else config.dtype
    return replace(config, renderer=cast(RendererName, renderer.name), dtype=cast(DtypeName, dtype))


def cuda_device_of(device: str) -> int | None:
    """The CUDA ordinal in a `--device` value: 0 for "auto" and "cuda", None for all other values.

    Does not validate the value or check that the GPU exists; the backend does.
    """
    named = re.fullmatch(r"auto|cuda(?::(\d+))?", device)
    return int(named[1] or 0) if named else None


def library_of(config: RunConfig, renderer: Renderer) -> SceneLibrary:
    """The library of a configuration's scans."""
    view = config.view
    camera = CameraSettings(view.image_size, view.focal, config.camera_height, config.camera_pitch, config.first_view)
    cache_bytes = int(config.scene_cache_gib * 2**30)
    return SceneLibrary(renderer, camera, config.scan_root, config.ply, config.up_axis, cache_bytes)


def policy_of(config: RunConfig, plan: Plan) -> Policy:
    """The policy that `config.model` names: a loaded model or the random baseline; raises ModelError."""
    kind, _, name = config.model.partition(":")
    if kind != "scripted":
        return ModelPolicy(backend_of(config, plan), action_format(config.constrained))
    if name != "random":
        raise ModelError(f"there is no scripted policy {name!r}: use scripted:random")
    return RandomPolicy(config.seed)


def answer_and_score(scheduler: Scheduler, run: Run, run_log: RunWriter, config: RunConfig, total: int) -> Outcome:
    """Answer all questions and print the summary. On an interrupt, exports first, then re-raises.

    Logs an unexpected error with its traceback and the command that resumes the run.
    """
    session = Session(run, scheduler)
    try:
        answer_questions(scheduler, run, total)
    except KeyboardInterrupt:
        with undisturbed():
            run_log.export(session.facts())
        raise
    except RunError:
        raise  # nothing more can be written
    except Exception as error:
        what = str(error) if isinstance(error, PolicyError) else "Stopped by an unexpected error"
        log.exception("%s; finished turns are on disk. To resume:", what)
        log.info("%s", run_log.resume_command)
        run_log.export(session.facts())
        return Outcome(3, run_log.rows, run_log.folder, error)
    return report(run_log, config, session.facts())


class Session:
    """The figures of this process for summary.json, counted from its creation."""

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
            "peak_device_memory_bytes": self._run.policy.peak_memory_bytes(),
        }


def interrupted(run_log: RunWriter, stack: ExitStack) -> Outcome:
    """Release all resources of a run, and log the command that resumes it."""
    with undisturbed():
        stack.close()
        log.info("Interrupted; finished turns are on disk. To resume:")
        log.info("%s", run_log.resume_command)
        return Outcome(130, run_log.rows, run_log.folder)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignores repeated SIGINT and SIGTERM inside this block; people and job schedulers often send two."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted, and only it may set signal handlers
        return
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def report(run_log: RunWriter, config: RunConfig, session: dict[str, Any] | None = None) -> Outcome:
    """Write the exports; print a benchmark's summary or a single question's score."""
    summary, rows = run_log.export(session), run_log.rows
    if config.ply is None:
        lines = format_summary(summary)
    else:
        scored = (row for row in rows if row.score is not None)
        lines = [f"Score: {row.score:g} of 1 (correct answer: {row.ground_truth})" for row in scored]
    for line in lines:
        log.info("%s", line)
    return Outcome(1 if any(row.failed for row in rows) else 0, rows, run_log.folder)


def backend_of(config: RunConfig, plan: Plan) -> Backend:
    """Load the model of a configuration, with the planned memory; raises ModelError."""
    options = ModelOptions(
        dtype=plan.model.dtype if plan.model else config.dtype,
        device=config.device,
        max_new_tokens=config.view.max_new_tokens,
        temperature=config.temperature,
        seed=config.seed,
        attention=config.attention,
        compile=config.compile,
        kv_reuse=config.kv_reuse,
        tiles_per_view=config.tiles_per_view,
        kv_cache_bytes=plan.kv_bytes,
        planned_tokens=plan.conversation.tokens if plan.conversation else 0,
    )
    return make_backend(config.model, options, server_of(config), vllm_of(config))


def server_of(config: RunConfig) -> ServerOptions | None:
    """The servers of --engine openai with the API key from the environment; None for other engines.

    Raises ConfigError if --api-key-env names a variable that is not set.
    """
    if config.engine != "openai":
        return None
    key = os.environ.get(config.api_key_env, "").strip()
    if not key and config.api_key_env != API_KEY_ENV:
        raise ConfigError("--api-key-env names an environment variable that is not set: export it with the API key")
    return ServerOptions(
        config.base_url,
        key=key or None,
        key_env=config.api_key_env,
        timeout_s=config.request_timeout,
        constrained=config.constrained,
    )


def vllm_of(config: RunConfig) -> VllmOptions | None:
    """The options of --engine vllm; None for other engines."""
    if config.engine != "vllm":
        return None
    return VllmOptions(
        images=config.steps + 1,
        python=config.vllm_python or VLLM_PYTHON,
        tensor_parallel_size=config.tensor_parallel_size,
        memory_share=config.gpu_memory_utilization,
        max_model_len=config.max_model_len,
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


def part_of(whole: Sequence[Question], config: RunConfig) -> Sequence[Question]:
    """The questions of `whole` to ask: all, or those of --shard; raises ConfigError if there are too few scenes."""
    if config.shard is None:
        return whole
    part = Part.parse(config.shard)
    try:
        return cut(whole, part.of)[part.number - 1]
    except ValueError as error:
        raise ConfigError(f"--shard {part}: {error}") from None


def report_scans(questions: Sequence[Question], config: RunConfig) -> bool:
    """Print the table of scans per dataset; returns whether every question has a scan."""
    table = scan_table(questions, config.scan_root)
    for line in format_scan_table(table):
        log.info("%s", line)
    return all(row.questions_with_scan == row.questions for row in table)


def report_plan(questions: Sequence[Question], config: RunConfig) -> None:
    """Print the plan of a run, which needs no scans; raises ModelError."""
    if config.ply is None:
        try:
            report_scans(questions, config)
        except ScanNotFound as error:
            log.info("Scans: none yet (%s)", error)
    for line in plan_lines(config, questions):
        log.info("%s", line)


def schedule(
    questions: Sequence[Question],
    journal: Journal,
    config: RunConfig,
    batch_size: int,
    concurrent: bool = False,
    whole: Sequence[Question] | None = None,
) -> Scheduler:
    """A scheduler of the unfinished questions, grouped by scan.

    Questions are numbered by their position in `whole`, by default `questions`.
    """
    number = {question.id: position for position, question in enumerate(whole or questions, start=1)}
    pending = [question for question in scene_order(questions) if not journal.is_done(question.id)]
    states = [QuestionState(number[question.id], question, config.steps) for question in pending]
    few = None if config.concurrency == "auto" else config.concurrency
    return Scheduler(states, batch_size, config.last_batched_turn + 1, config.refill or concurrent, few)


def answer_questions(scheduler: Scheduler, run: Run, total: int, show_progress: bool = True) -> None:
    """Answer all questions of a scheduler. `total` includes those finished earlier."""
    with Progress(total, run.log.rows, show_progress) as progress:
        if run.policy.concurrent:
            answer_independently(scheduler, run, progress)
            return
        announce = Announcer(scheduler)
        while scheduler.has_work:
            begin(scheduler, run, progress)
            while batch := scheduler.next_batch() or scheduler.next_few():
                announce(batch)
                if len(batch) == 1 and batch[0].turn >= scheduler.max_batched_turns:
                    complete_question_sequentially(batch[0], run)
                else:
                    take_turn(batch, scheduler, run)
                settle(batch, run, progress)
                if scheduler.refill:
                    begin(scheduler, run, progress)


def answer_independently(scheduler: Scheduler, run: Run, progress: Progress) -> None:
    """Answer each question on its own thread, at most `batch_size` at a time; the policy's engine batches them."""
    log.info("CONCURRENT: %d questions at a time, each on its own thread", scheduler.batch_size)
    stop, running = Event(), dict[Future[None], QuestionState]()
    with ThreadPoolExecutor(scheduler.batch_size, thread_name_prefix="question") as threads:
        try:
            while scheduler.has_work or running:  # a question may be final before its thread has ended
                for state in begin(scheduler, run, progress):
                    running[threads.submit(complete_question_sequentially, state, run, stop)] = state
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    state = running.pop(done)
                    done.result()
                    settle([state], run, progress)
        finally:
            stop.set()
            if running:  # interrupted or stopped by an error: abandon pending replies
                run.policy.close()


def begin(scheduler: Scheduler, run: Run, progress: Progress) -> list[QuestionState]:
    """Start the questions that may begin now, and preload the next scans. Returns those in progress."""
    admitted = scheduler.admit()
    for state in admitted:
        initialize_question_state(state, run)
    settle(admitted, run, progress)
    if admitted:
        run.library.load_ahead(state.question for state in scheduler.upcoming())
    return [state for state in admitted if not state.is_final]


class Announcer:
    """Logs each batched turn once, and once each question that continues sequentially."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._turns: list[int] = []
        self._continuing: set[int] = set()

    def __call__(self, batch: Sequence[QuestionState]) -> None:
        """Log a batch's turn or phase, if not logged before."""
        turns = sorted({state.turn for state in batch})
        most = self._scheduler.max_batched_turns
        if turns[0] < most:
            if turns != self._turns:
                log.info("BATCHED TURN %s/%d", "-".join(map(str, sorted({turns[0], turns[-1]}))), most - 1)
            self._turns, self._continuing = turns, set()
            return
        if not self._continuing:
            log.info("SEQUENTIAL PHASE: %d at a time", min(self._scheduler.at_a_time, len(self._scheduler.begun)))
        for state in batch:
            if state.number not in self._continuing:
                log.info("[%s] Continuing sequentially from turn %d...", state.label, state.turn)
                self._continuing.add(state.number)


def take_turn(batch: Sequence[QuestionState], scheduler: Scheduler, run: Run) -> None:
    """Take one turn of a batch.

    Running out of memory halves the batch size of this phase permanently; the turn is then still pending. After any
    other ModelError, asks the questions one at a time, so that only those at fault fail.
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
        log.warning("Out of memory with %d questions in a batch: continuing with %d (%s)", len(batch), size, error)
    except ModelError as error:
        if len(batch) > 1:
            log.warning("The batch failed (%s): asking its questions one at a time", error)
        for state in batch:
            with failing(state):
                run_batched_turn([state], run)
    else:
        seconds = time.perf_counter() - started
        log.info("Batch generation completed in %.1fs (%.2fs per question)", seconds, seconds / len(batch))


def settle(states: Sequence[QuestionState], run: Run, progress: Progress) -> None:
    """Write the results of finished questions and release their resources."""
    for state in states:
        if not state.is_final or run.log.is_done(state.question.id):
            continue
        row = result_row(state)
        run.log.result(row)
        if row.failed:
            log.error("[%s] Failed (%s): %s", state.label, row.failed_part, row.error)
        else:
            log.info("[%s] Final answer: %s", state.label, state.answer)
        run.policy.forget(state)
        state.close()
        progress.finished(row)
