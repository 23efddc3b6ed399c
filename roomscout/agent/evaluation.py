"""Runs an evaluation: questions and scans in, a run folder with scored answers out."""

import logging
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from roomscout.agent.budget import Budget
from roomscout.agent.config import RunConfig
from roomscout.agent.console import lines_kept_for_log, log_to_file
from roomscout.agent.loop import answer_questions
from roomscout.agent.policies import Policy, PolicyError
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.prepared import Prepared, prepared
from roomscout.agent.resuming import changed_settings, resume_command
from roomscout.agent.run_folder import (
    begin_folder,
    model_revision,
    require_new_name,
    require_same_scans,
    saved_config,
)
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.startup import Started, start
from roomscout.agent.state import QuestionState
from roomscout.agent.turns import POLICY_CALLERS, Run
from roomscout.agent.watching import VideoState
from roomscout.base.interrupts import ignored_interrupts
from roomscout.base.text import RESULT, counted
from roomscout.base.wording import named
from roomscout.data.questions import Selection
from roomscout.data.scans import scene_order
from roomscout.data.sources import source_of
from roomscout.models.nvml import sampled_gpus
from roomscout.runs import RunError
from roomscout.runs.closing import closing_lines
from roomscout.runs.hardware import Session as SessionFacts
from roomscout.runs.journal import Journal, MemoryJournal, pending_samples
from roomscout.runs.prices import in_money
from roomscout.runs.reader import RunReader, image_name
from roomscout.runs.records import ResultRow
from roomscout.runs.writer import RunWriter
from roomscout.scoring.baselines import frequent_guesses

log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """The outcome of a run: its exit status, and the result rows so far, by question number.

    Status 0: all questions finished; 1: some failed, code of a benchmark's scores failed or, with `--check-data`, some
    have no scan; 3: stopped by an error outside any question, or since its budget is spent; 130: interrupted. After 3
    and 130 the run can be resumed from its folder.
    """

    status: int
    rows: list[ResultRow]
    folder: Path | None = None
    error: Exception | None = None
    """The error behind status 3; None if the budget is spent."""


def main_vsi_bench_loop(
    config: RunConfig,
    folder: Path | None = None,
    policy: Policy | None = None,
    asked: Selection | None = None,
    show_progress: bool = True,
    begin: Callable[[Prepared, ExitStack], Started] | None = None,
    show_view: Callable[[QuestionState, Path], None] | None = None,
) -> Outcome:
    """Answer every question of a run and score it.

    `folder` is the run to resume, None for a new one. `policy` replaces the model that `config` names, `asked` the
    questions that it names for a new run. With `show_progress`, a terminal has a bar. `begin` loads what the run needs,
    or returns the model and the scans of earlier runs, which outlive this one. `show_view` is called with each question
    that takes a turn, and with the file that its view is going to be saved to. Raises ConfigError, QuestionError,
    ScanNotFound, RenderError, ModelError or RunError if the run cannot begin, and RunError if its folder can no longer
    be written.
    """
    asking = prepared(config, policy, asked, folder)
    with ExitStack() as stack:
        stack.enter_context(lines_kept_for_log())
        run_log = open_or_name(asking, stack)
        if run_log is not None and is_finished(asking, run_log):
            return finished_outcome(run_log)
        session = None
        try:
            started = (begin or start)(asking, stack)
            run_log = begin_or_resume(asking, run_log, started.config, started.prompts, stack)
            run = started.run(run_log, partial(_show, show_view, run_log.folder) if show_view else lambda state: None)
            run = replace(run, budget=budget_of(asking, run_log))
            scheduler = schedule(asking, started, run_log)
            session = Session(run, scheduler)
            try:
                shown = show_progress and not asking.config.output.quiet
                device, gpus = started.config.model.device, started.plan.tensor_parallel
                with sampled_gpus(device, gpus, run_log.sample):
                    answer_questions(scheduler, run, asking.episodes, shown, asking.benchmark)
            except RunError:
                raise  # nothing more can be written
            except Exception as error:  # noqa: BLE001 (logged with its traceback; the run can be resumed)
                return stopped(error, run_log, session)
            if run.budget is not None and run.budget.is_spent and not is_finished(asking, run_log):
                return out_of_budget(asking, run.budget, run_log, session)
            return report(run_log, session.facts())
        except KeyboardInterrupt:
            if run_log is None:
                raise
            return interrupted(run_log, session, stack)


def answer_in_memory(
    config: RunConfig, asked: Selection, policy: Policy | None = None, show_progress: bool = True
) -> MemoryJournal:
    """Answer every question without a run folder; raises the errors of `main_vsi_bench_loop`, and PolicyError."""
    asking, journal = prepared(config, policy, asked), MemoryJournal()
    with ExitStack() as stack:
        if not asking.makes_scans:
            asking.report_scans()
        started = start(asking, stack)
        run = started.run(journal)
        scheduler = schedule(asking, started, journal)
        answer_questions(scheduler, run, asking.episodes, show_progress, asking.benchmark)
    return journal


def _show(show_view: Callable[[QuestionState, Path], None], folder: Path, state: QuestionState) -> None:
    """Show the view of the turn that a question takes next, with the file that it is going to be saved to."""
    show_view(state, folder / str(state.episode) / image_name(state.turn))


def open_or_name(asking: Prepared, stack: ExitStack) -> RunWriter | None:
    """Log the scans of a run; open its folder, which `stack` closes, or for a new run require that its name is new.

    With --retry-failed, requeues failed questions. Raises RunError, and ScanNotFound if a new run has no scan.
    """
    if not asking.makes_scans:
        asking.report_scans()
    config = asking.config
    if asking.folder is None:
        require_new_name(config.output, config.cluster.shard)
        return None
    changed = changed_settings(saved_config(asking.folder).as_json, config.as_json)
    run_log = RunWriter(asking.folder, resume_command(asking.folder, changed))
    stack.callback(run_log.close)
    if config.what_to_run.retry_failed:
        log.info("Retrying %s", counted(run_log.reopen_failed(), "failed question"))
    whole, ply = asking.asked.questions, config.what_to_run.ply
    if not config.controls.on_video:
        require_same_scans(run_log, asking.questions, whole, config.questions, config.views.scan_root, ply)
    return run_log


def begin_or_resume(
    asking: Prepared, run_log: RunWriter | None, config: RunConfig, prompts: Prompts | None, stack: ExitStack
) -> RunWriter:
    """Begin a run in a new folder, or note in `run_log` that it is resumed, and log to its run.log from here on.

    `config` is resolved, and `prompts` are those that a model reads. `stack` closes the run.log and the new folder.
    Raises RunError.
    """
    several, whole = config.what_to_run.ply is None, asking.asked.questions
    if run_log is None:
        guesses = frequent_guesses(asking.questions, asking.asked, asking.benchmark) if several else None
        source = source_of(asking.asked.source, asking.benchmark)
        run_log = begin_folder(config, asking.questions, whole, prompts, guesses, source, asking.price)
        stack.callback(run_log.close)
    else:
        changed = changed_settings(saved_config(run_log.folder).as_json, config.as_json)
        run_log.note_resumption(changed, model_revision(config.model, prompts or config.video), asking.price)
    stack.enter_context(log_to_file(run_log.folder / "run.log"))
    log.log(logging.INFO if several else logging.DEBUG, "Run folder: %s", run_log.folder)
    return run_log


def is_finished(asking: Prepared, run_log: RunWriter) -> bool:
    """Whether a run has an answer to every question that is asked."""
    samples = asking.config.questions.samples
    return not any(pending_samples(run_log, question.id, samples) for question in asking.questions)


def finished_outcome(run_log: RunWriter) -> Outcome:
    """The outcome of a run whose questions are all finished, as from `report`."""
    log.log(RESULT, "Nothing to do: every question of %s is finished", run_log.folder)
    outcome = report(run_log)
    if any(row.failed for row in outcome.rows):
        log.log(RESULT, "Some questions failed; to retry them, add %s", named("retry_failed"))
    return outcome


class Session:
    """The figures of this process for summary.json, counted from its creation."""

    def __init__(self, run: Run, scheduler: Scheduler):
        self._run, self._scheduler = run, scheduler
        self._started, self._done_before = time.perf_counter(), len(run.log.rows)

    def facts(self) -> SessionFacts:
        """The figures so far."""
        seconds, finished = time.perf_counter() - self._started, len(self._run.log.rows) - self._done_before
        return SessionFacts(
            seconds=round(seconds, 3),
            questions=finished,
            questions_per_hour=round(3600 * finished / seconds, 1),
            batch_size=self._scheduler.batch_size,
            peak_memory_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            peak_device_memory_bytes=self._run.policy.peak_memory_bytes(),
        )


def stopped(error: Exception, run_log: RunWriter, session: Session) -> Outcome:
    """Log an unexpected error with its traceback and the command that resumes the run, and export.

    Of an error in a policy, the traceback begins in the policy's code.
    """
    what = str(error) if isinstance(error, PolicyError) else "Stopped by an unexpected error"
    raised = error.__cause__ if isinstance(error, PolicyError) else error
    if raised is not None:
        frames = raised.__traceback__
        while frames and frames.tb_next and frames.tb_frame.f_globals.get("__name__") in POLICY_CALLERS:
            frames = frames.tb_next
        log.error("The traceback of the error:", exc_info=(type(raised), raised, frames))
    log.error("%s; finished turns are on disk. To resume:", what)
    log.log(RESULT, "%s", run_log.resume_command)
    run_log.export(session.facts())
    return Outcome(3, run_log.rows, run_log.folder, error)


def budget_of(asking: Prepared, run_log: RunWriter) -> Budget | None:
    """The budget of a run, of which its recorded turns have spent some already; None without --budget."""
    if (amount := asking.config.output.budget) is None or asking.price is None:
        return None
    return Budget(amount, asking.price, RunReader(run_log.folder).all_turns())


def out_of_budget(asking: Prepared, budget: Budget, run_log: RunWriter, session: Session) -> Outcome:
    """Export what a run has whose budget is spent, and log the command that resumes it with twice as much."""
    run_log.export(session.facts())
    left = asking.episodes - len(run_log.rows)
    log.error(
        "%s is spent (%s so far): %s not begun or not finished; finished turns are on disk. To resume:",
        named(budget=budget.amount), in_money(budget.spent), counted(left, "answer"),
    )  # fmt: skip
    changed = changed_settings(saved_config(run_log.folder).as_json, asking.config.as_json)
    log.log(RESULT, "%s", resume_command(run_log.folder, changed | {"budget": 2 * budget.amount}))
    return Outcome(3, run_log.rows, run_log.folder)


def interrupted(run_log: RunWriter, session: Session | None, stack: ExitStack) -> Outcome:
    """Export what a run has, release all its resources, and log the command that resumes it."""
    with ignored_interrupts():
        if session is not None:
            run_log.export(session.facts())
        stack.close()
        log.log(RESULT, "Interrupted; finished turns are on disk. To resume:")
        log.log(RESULT, "%s", run_log.resume_command)
        return Outcome(130, run_log.rows, run_log.folder)


def report(run_log: RunWriter, session: SessionFacts | None = None) -> Outcome:
    """Write the exports, and print the scores of a run."""
    summary, rows = run_log.export(session), run_log.rows
    for line in closing_lines(run_log.folder, run_log.facts, summary, rows, run_log.benchmark):
        log.log(RESULT, "%s", line)
    return Outcome(1 if any(row.failed for row in rows) or summary.errors else 0, rows, run_log.folder)


def schedule(asking: Prepared, started: Started, journal: Journal) -> Scheduler:
    """A scheduler of the unfinished episodes, grouped by scan; the samples of a question are neighbours.

    Questions are numbered by their position among those of all parts.
    """
    settings, policy, rules = asking.config.schedule, started.policy, started.rules
    number = {question.id: position for position, question in enumerate(asking.asked.questions, start=1)}
    moves = (policy if rules.mover is None else rules.mover).moves
    kind = QuestionState if rules.video is None else VideoState
    most = asking.config.most_moves if rules.video else settings.steps
    states = [
        kind(number[question.id], question, moves(question, sample, most), sample, rules)
        for question in scene_order(asking.questions)
        for sample in pending_samples(journal, question.id, asking.config.questions.samples)
    ]
    few, refill = None if settings.concurrency == "auto" else settings.concurrency, settings.refill or policy.concurrent
    if few is None and started.plan.model is not None and not started.plan.model.mixes_turns:
        few = started.plan.batch_size
    policy.expect(states)
    return Scheduler(states, started.plan.batch_size, settings.last_batched_turn + 1, refill, few, policy.lane)
