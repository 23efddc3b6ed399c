"""Runs an evaluation: questions and scans in, a run folder with scored answers out."""

import logging
import resource
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from roomscout.agent.builders import (
    asked_of,
    layouts_of,
    part_of,
    require_answers,
    require_judged,
    require_sampling,
    require_scan_root_used,
    with_policy,
)
from roomscout.agent.config import RunConfig
from roomscout.agent.console import counted, lines_kept_for_log
from roomscout.agent.loop import answer_questions
from roomscout.agent.planning import plan_lines
from roomscout.agent.policies import Policy, PolicyError
from roomscout.agent.policies.controlled import prompts_read
from roomscout.agent.policies.prompts import run_prompts
from roomscout.agent.run_folder import (
    begin_or_resume,
    config_to_resume,
    open_folder,
    questions_to_resume,
    require_new_name,
    require_same_scans,
    saved_prompts,
)
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.startup import Started, start
from roomscout.agent.state import QuestionState
from roomscout.agent.turns import POLICY_CALLERS, Run
from roomscout.agent.unfamiliar import log_unfamiliar, unfamiliar_questions
from roomscout.base.interrupts import ignored_interrupts
from roomscout.data.benchmarks import Benchmark, find_benchmark, origin_lines
from roomscout.data.question_files import listed
from roomscout.data.questions import Asked, Question, QuestionError
from roomscout.data.scans import (
    OWN_ROOTS,
    ScanNotFound,
    format_scan_table,
    missing_scans,
    scan_of,
    scan_table,
    scene_order,
)
from roomscout.data.sources import source_of
from roomscout.rendering.scene import SceneError, load_scene
from roomscout.runs import RunError
from roomscout.runs.anytime import anytime_lines
from roomscout.runs.baselines import is_blind
from roomscout.runs.journal import MemoryJournal, pending_samples
from roomscout.runs.reader import image_name
from roomscout.runs.records import ResultRow
from roomscout.runs.writer import RunWriter
from roomscout.scoring.baselines import Guesses, frequent_guesses
from roomscout.scoring.by_dataset import format_by_dataset
from roomscout.scoring.samples import format_samples
from roomscout.scoring.summary import format_summary, part_lines, reference_lines

log = logging.getLogger(__name__)


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


def main_vsi_bench_loop(
    config: RunConfig,
    folder: Path | None = None,
    policy: Policy | None = None,
    asked: Asked | None = None,
    show_progress: bool = True,
    started: Started | None = None,
    show_view: Callable[[QuestionState, Path], None] | None = None,
) -> Outcome:
    """Answer every question of a run and score it.

    `folder` is the run to resume, None for a new one. `policy` replaces the model that `config` names, `asked` the
    questions that it names for a new run. With `show_progress`, a terminal has a bar. `started` has the model and the
    scans of earlier runs, which outlive this one. `show_view` is called with each question that takes a turn, and with
    the file that its view is going to be saved to. Raises ConfigError, QuestionError, ScanNotFound, RenderError,
    ModelError or RunError if the run cannot begin, and RunError if its folder can no longer be written.
    """
    policy, config = with_policy(policy, config.checked())
    require_sampling(policy, config)
    require_answers(policy, config)
    if folder is not None:
        config = config_to_resume(folder, config)
        asked = Asked.all_of(questions_to_resume(folder, config))
    what, benchmark, samples = config.what_to_run, config.questions.benchmark, config.questions.samples
    try:
        asked = asked_of(what, config.questions) if asked is None else asked
    except QuestionError:
        if what.check_data and config.questions.questions is None:
            log_origins(find_benchmark(benchmark))  # what can be prepared meanwhile
        raise
    require_judged(asked.questions, config)
    if folder is None:
        require_scan_root_used(config)
    whole = asked.questions
    questions = part_of(whole, config.cluster.shard)
    if what.plan:
        report_plan(questions, config)
        return Outcome(0, [])
    if what.check_data:
        make_scans(questions, config)
        complete = check_scans(questions, config)
        source = find_benchmark(benchmark)
        if config.questions.questions is not None:  # a file of one's own
            source = replace(source, questions_from=None)
        log_origins(source, list(dict.fromkeys(each.dataset for each in questions)))
        return Outcome(0 if complete else 1, [])
    summed_up = benchmark if what.ply is None else None
    with ExitStack() as stack:
        stack.enter_context(lines_kept_for_log())
        made = what.ply is None and find_benchmark(benchmark).make_scans is not None
        if what.ply is None and not made:
            report_scans(questions, config.views.scan_root, benchmark, required=folder is None, brief=True)
        run_log = None
        if folder is None:
            require_new_name(config)
        else:
            run_log = open_run(folder, questions, config, whole)
            stack.callback(run_log.close)
            if finished := finished_outcome(run_log, questions, samples, summed_up):
                return finished
        try:
            prompts = run_prompts(config) if folder is None else saved_prompts(folder)
            unfamiliar = unfamiliar_questions(policy, config.model, questions)
            started = started or start(config, questions, policy, prompts, stack)
            if made:  # a server that cannot be asked was found above, before minutes of making scans
                make_scans(questions, config)
                report_scans(questions, config.views.scan_root, benchmark, brief=True)
            read = prompts_read(started.policy)
            guesses = guesses_of(questions, asked, config) if run_log is None else None
            rows_of = source_of(asked.source, find_benchmark(benchmark)) if run_log is None else None
            run_log = begin_or_resume(run_log, started.config, questions, whole, read, stack, guesses, rows_of)
            log.log(logging.INFO if summed_up else logging.DEBUG, "Run folder: %s", run_log.folder)
            log_unfamiliar(unfamiliar)
            run = started.run(run_log)
            if show_view is not None:
                run = replace(run, turn_begins=partial(_show, show_view, run_log.folder))
            scheduler = schedule(questions, run, config, started.plan.batch_size, whole)
            session = Session(run, scheduler)
            try:
                answer_questions(scheduler, run, len(questions) * samples, show_progress, find_benchmark(benchmark))
            except KeyboardInterrupt:
                with ignored_interrupts():
                    run_log.export(session.facts())
                raise
            except RunError:
                raise  # nothing more can be written
            except Exception as error:  # noqa: BLE001 (logged with its traceback; the run can be resumed)
                return stopped(error, run_log, session)
            return report(run_log, summed_up, session.facts())
        except KeyboardInterrupt:
            if run_log is None:
                raise
            return interrupted(run_log, stack)


def _show(show_view: Callable[[QuestionState, Path], None], folder: Path, state: QuestionState) -> None:
    """Show the view of the turn that a question takes next, with the file that it is going to be saved to."""
    show_view(state, folder / str(state.episode) / image_name(state.turn))


def guesses_of(questions: Sequence[Question], asked: Asked, config: RunConfig) -> Guesses | None:
    """The most frequent answers for the questions of a new run, its baseline; None for a single question."""
    if config.what_to_run.ply is not None:
        return None
    return frequent_guesses(questions, asked, find_benchmark(config.questions.benchmark))


def answer_in_memory(
    config: RunConfig, questions: Sequence[Question], policy: Policy | None = None, show_progress: bool = True
) -> MemoryJournal:
    """Answer every question without a run folder; raises the errors of `main_vsi_bench_loop`, and PolicyError."""
    policy, config = with_policy(policy, config.checked())
    require_sampling(policy, config)
    require_answers(policy, config)
    whole, questions = questions, part_of(questions, config.cluster.shard)
    benchmark, samples = config.questions.benchmark, config.questions.samples
    made = config.what_to_run.ply is None and find_benchmark(benchmark).make_scans is not None
    if config.what_to_run.ply is None and not made:
        report_scans(questions, config.views.scan_root, benchmark, required=True, brief=True)
    journal = MemoryJournal()
    with ExitStack() as stack:
        started = start(config, questions, policy, run_prompts(config), stack)
        if made:
            make_scans(questions, config)
        run = started.run(journal)
        scheduler = schedule(questions, run, config, started.plan.batch_size, whole)
        answer_questions(scheduler, run, len(questions) * samples, show_progress, find_benchmark(benchmark))
    return journal


def open_run(folder: Path, questions: Sequence[Question], config: RunConfig, whole: Sequence[Question]) -> RunWriter:
    """Open the run to resume; with --retry-failed, requeue its failed questions. Raises RunError."""
    run_log = open_folder(folder, config)
    if config.what_to_run.retry_failed:
        log.info("Retrying %s", counted(run_log.reopen_failed(), "failed question"))
    require_same_scans(run_log, questions, whole, config)
    return run_log


def finished_outcome(
    run_log: RunWriter, questions: Sequence[Question], samples: int, benchmark: str | None
) -> Outcome | None:
    """The outcome of a run whose questions are all finished, as from `report`; None if any is pending."""
    if any(pending_samples(run_log, question.id, samples) for question in questions):
        return None
    log.info("Nothing to do: every question of %s is finished", run_log.folder)
    outcome = report(run_log, benchmark)
    if outcome.status:
        log.info("Some questions failed; to retry them, add --retry-failed")
    return outcome


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
    log.info("%s", run_log.resume_command)
    run_log.export(session.facts())
    return Outcome(3, run_log.rows, run_log.folder, error)


def interrupted(run_log: RunWriter, stack: ExitStack) -> Outcome:
    """Release all resources of a run, and log the command that resumes it."""
    with ignored_interrupts():
        stack.close()
        log.info("Interrupted; finished turns are on disk. To resume:")
        log.info("%s", run_log.resume_command)
        return Outcome(130, run_log.rows, run_log.folder)


def report(run_log: RunWriter, benchmark: str | None, session: dict[str, Any] | None = None) -> Outcome:
    """Write the exports; print a benchmark's summary, or without one a single question's score."""
    summary, rows = run_log.export(session), run_log.rows
    if benchmark is not None:
        record = run_log.benchmark
        lines = [*format_summary(summary, record), *missing_baseline(summary), *format_samples(summary)]
        lines += [*format_by_dataset(summary), *anytime_lines(summary), *reference_lines(summary, record)]
        lines += [*part_lines(run_log.facts.setting, summary, record), *summary.get("warnings", [])]
    else:
        lines = [
            f"Score: {row.score:g} of 1 (correct answer: {row.ground_truth})" for row in rows if row.score is not None
        ]
    scored = [row.score for row in rows if row.score is not None and not row.failed]
    if benchmark is not None and (below := [score for score in scored if score < 1]):
        wrong = below.count(0)
        lines.append(
            f"Wrong: {wrong} of {len(scored)}, partly right: {len(below) - wrong}; to list them: "
            f"roomscout wrong {shlex.quote(str(run_log.folder))}"
        )
    if run_log.facts.setting("engine") == "openai":
        lines += token_lines(summary["cost"])
    for line in [*lines, f"Run folder: {run_log.folder}"]:
        log.info("%s", line)
    return Outcome(1 if any(row.failed for row in rows) else 0, rows, run_log.folder)


def token_lines(cost: dict[str, Any]) -> list[str]:
    """The tokens that a server counted in a run, as a line; none if it counts none."""
    parts = [cost, *([cost["anytime"]] if "anytime" in cost else [])]
    cached, computed, written = (
        sum(part[name] for part in parts) for name in ("reused_tokens", "prefilled_tokens", "generated_tokens")
    )
    if not cached + computed + written:
        return ["Tokens: the server reports none"]
    of_cache = f" ({cached:,} of them cached)" if cached else ""
    return [f"Tokens, as the server counts: {cached + computed:,} read{of_cache}, {written:,} written"]


def missing_baseline(summary: dict[str, Any]) -> list[str]:
    """How to measure the blind baseline of a scored run that has none, as a line."""
    known = "blind" in summary.get("baselines", {})
    if known or is_blind(summary["protocol"]) or summary["asked"]["overall_label"] is None:
        return []
    return ["blind: not known; the same command with --renderer blind measures it, and roomscout report then shows it"]


def make_scans(questions: Sequence[Question], config: RunConfig) -> None:
    """Make the scans of the questions, if their benchmark makes scans; raises QuestionError."""
    maker = find_benchmark(config.questions.benchmark).make_scans
    if maker is not None and config.what_to_run.ply is None:
        maker({question.scene for question in questions})


def report_scans(
    questions: Sequence[Question], scan_root: Path, benchmark: str, required: bool = False, brief: bool = False
) -> bool:
    """Print the table of scans per dataset and the scenes without one; returns whether every scene has a scan.

    With `required`, raises ScanNotFound if no scene has one: the scan root is then likely the wrong folder. With
    `brief`, prints one line instead of the table if every scene has a scan.
    """
    missing = missing_scans(questions, scan_root, layouts_of(benchmark))
    table = scan_table(questions, missing)
    if required and not any(row.scenes_with_scan for row in table):
        raise ScanNotFound(
            f"{scan_root} has no scan of {counted(len(missing), 'scene')} asked about: --scan-root takes the "
            f"folder with the scans. {next(iter(missing.values()))}"
        )
    if brief and not missing:
        scenes = sum(row.scenes for row in table)
        log.info("%s about %s, all with a scan", counted(len(questions), "question"), counted(scenes, "scene"))
        return True
    for line in format_scan_table(table):
        log.info("%s", line)
    if missing:
        log.warning("no scan, so that their questions fail: %s", listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))
    return not missing


def check_scans(questions: Sequence[Question], config: RunConfig) -> bool:
    """Print the table of scans per dataset, and why scans are missing or cannot be used; returns whether all can be.

    Loads each scan, since its unit may not be the metre, but not those of the published datasets and of benchmarks
    with their own scans, whose units are known.
    """
    layouts, views = layouts_of(config.questions.benchmark), config.views
    missing = missing_scans(questions, views.scan_root, layouts)
    known = {*layouts} if OWN_ROOTS not in layouts else {question.dataset for question in questions}
    scenes = {question.scene: question for question in questions if question.scan or question.dataset not in known}
    unusable = {}
    for scene, question in scenes.items():
        if scene not in missing:
            path = scan_of(question, views.scan_root, layouts)
            try:
                load_scene(path, *question.frame.over(views.up_axis, views.scale))
            except SceneError as error:
                unusable[scene] = str(error)
    for line in format_scan_table(scan_table(questions, {**missing, **unusable})):
        log.info("%s", line)
    if missing:
        log.warning("no scan, so that their questions fail: %s", listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))
    for why in unusable.values():
        log.warning("%s", why)
    if unusable:
        log.warning(
            "To give a scan a unit or an up axis of its own, add columns scale and up_axis to the question file"
        )
    return not missing and not unusable


def log_origins(benchmark: Benchmark, datasets: Sequence[str] | None = None) -> None:
    """Print where the questions and the scans of these datasets come from, by default of all that are known."""
    for line in origin_lines(benchmark, list(benchmark.scans_from) if datasets is None else datasets):
        log.info("%s", line)


def report_plan(questions: Sequence[Question], config: RunConfig) -> None:
    """Print the plan of a run, which needs no scans; raises ModelError."""
    if find_benchmark(config.questions.benchmark).make_scans is not None:
        log.info("Scans: made when the run begins, if they are not there")
    elif config.what_to_run.ply is None:
        try:
            report_scans(questions, config.views.scan_root, config.questions.benchmark)
        except ScanNotFound as error:
            log.info("Scans: none yet (%s)", error)
    for line in [*plan_lines(config, questions), *workers_line(config)]:
        log.info("%s", line)


def workers_line(config: RunConfig) -> list[str]:
    """How the plan of one worker relates to a run with --ray, as a line."""
    if not config.cluster.ray:
        return []
    number = config.cluster.replicas
    workers = "its workers" if number == "auto" else counted(number, "worker")
    divisor = "their number" if number == "auto" else f"about {number}"
    return [
        f"With --ray: all of this is for one worker; {workers} share the questions, so divide the times by {divisor}"
    ]


def schedule(
    questions: Sequence[Question], run: Run, config: RunConfig, batch_size: int, whole: Sequence[Question]
) -> Scheduler:
    """A scheduler of the unfinished episodes, grouped by scan; the samples of a question are neighbours.

    Questions are numbered by their position in `whole`, the questions of all parts.
    """
    settings, policy = config.schedule, run.policy
    number = {question.id: position for position, question in enumerate(whole, start=1)}
    states = [
        QuestionState(number[question.id], question, policy.moves(question, sample, settings.steps), sample)
        for question in scene_order(questions)
        for sample in pending_samples(run.log, question.id, config.questions.samples)
    ]
    few = None if settings.concurrency == "auto" else settings.concurrency
    return Scheduler(states, batch_size, settings.last_batched_turn + 1, settings.refill or policy.concurrent, few)
