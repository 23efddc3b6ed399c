"""A run in this process: what it has opened, its folder, its figures, and how it ends."""

import logging
import math
import resource
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from roomscout.agent.budget import Budget
from roomscout.agent.console import log_to_file
from roomscout.agent.opening import Opened, open_run
from roomscout.agent.policies import PolicyError
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.spec import QuestionSpec, RecordSpec, RunSpec, WorldSpec
from roomscout.agent.state import QuestionState
from roomscout.agent.turns import VIEW_THREADS, Run
from roomscout.agent.video import VideoQuestion
from roomscout.base.errors import in_words
from roomscout.base.interrupts import ignored_interrupts, interrupts_first, raise_if_interrupted
from roomscout.base.text import RESULT, counted
from roomscout.data.questions import Question, fingerprint
from roomscout.data.scans import ScanNotFound, report_scans, scan_of, scan_sha256, scene_order
from roomscout.data.sources import source_of
from roomscout.models import EngineLost
from roomscout.models.gpus import sampled_gpus
from roomscout.runs import RunError
from roomscout.runs.export import closing_lines
from roomscout.runs.hardware import Session as SessionFacts
from roomscout.runs.journal import Journal, pending_samples
from roomscout.runs.prices import in_money
from roomscout.runs.provenance import current_versions
from roomscout.runs.recorded_benchmarks import record_of
from roomscout.runs.records import SCHEMA, RecordedPrompts, ResultRow, RunFacts, ScanRecord, image_name
from roomscout.runs.writer import RunWriter, new_run_folder, now
from roomscout.scoring.baselines import frequent_guesses

log = logging.getLogger(__name__)

ShowView = Callable[[QuestionState, Path], None]
"""Called with each question that takes a turn, and with the file that its view is going to be saved to."""


class Queue(NamedTuple):
    """The questions of a worker: the `first` ones, and what it may `take` when so many more can begin."""

    first: Sequence[Question]
    take: Callable[[int], Sequence[Question]]


class Outcome(NamedTuple):
    """The outcome of a run: its exit status, and the result rows so far, by question number. Status 0: all finished; 1:
    some failed, or code of scores did; 3: a fatal error, a lost engine or a spent budget; 130: interrupted. After 3 and
    130 the run can be resumed. `error` is that behind status 3, None if the budget is spent."""

    status: int
    rows: list[ResultRow]
    folder: Path | None = None
    error: Exception | None = None


@dataclass
class Session:
    """A run in this process, in a folder or in memory: inside `guarded`, `start` it, take the turns, `finish` it."""

    spec: RunSpec  # what it needs to know
    opened: Opened | None = None  # what it needs open, which outlives it if it is given
    queue: Queue | None = None  # gives its questions, in place of those of `spec`
    journal: Journal | None = None  # in memory, in place of a folder
    show_view: ShowView | None = None  # shows each turn

    def __post_init__(self) -> None:
        self.stack = ExitStack()
        self.log: RunWriter | None = None
        self.run: Run | None = None
        self.outcome = Outcome(130, [])
        self.started_s, self.done_before = 0.0, 0

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside this block, an interrupt or an unexpected error ends the run with what it has, to be resumed. RunError
        is raised, since nothing more can be written, as are errors before the start and all of a run in memory."""
        try:
            with interrupts_first(), self.stack, self._guarded_while_open():
                yield
            raise_if_interrupted()
        except KeyboardInterrupt:
            if self.log is None or self.outcome.folder is None:
                raise
            with ignored_interrupts():  # it came when the run had ended, and what it opened was closed
                self._end_interrupted(self.log)

    @contextmanager
    def _guarded_while_open(self) -> Iterator[None]:
        try:
            with interrupts_first():
                yield
        except RunError:
            raise
        except KeyboardInterrupt:
            if self.log is None:
                raise
            with ignored_interrupts():
                if self.run is not None:
                    self.log.export(self.facts())
                self.stack.close()
                self._end_interrupted(self.log)
        except Exception as error:
            if self.log is None or self.run is None:
                raise
            self.outcome = _stopped(error, self.log, self.facts())

    def _end_interrupted(self, run_log: RunWriter) -> None:
        log.log(RESULT, "Interrupted; finished turns are on disk. To resume:")
        log.log(RESULT, "%s", run_log.resume_command)
        self.outcome = Outcome(130, run_log.rows, run_log.folder)

    def start(self) -> tuple[Run, Scheduler] | None:
        """Open what the run needs, unless it is given, and begin or resume its folder; returns its questions and what
        their turns share, None if no answer is to come. Raises RenderError or ModelError if the run cannot begin,
        RunError if its folder cannot be written."""
        spec = self.spec
        record = spec.record
        if record.folder is not None and self.journal is None:
            command = resume_command(record.resume_words, record.folder, record.resume_flags)
            self.log = opened_again(record.folder, command, record.retry_failed, self.stack)
            require_same_scans(self.log, spec.questions, spec.world)
            if not spec.questions.pending(self.log):
                log.log(RESULT, "Nothing to do: every question of %s is finished", record.folder)
                return None
        opened = self.opened or self.stack.enter_context(closing(open_run(spec)))
        raise_if_interrupted()
        if spec.world.makes_scans and self.opened is None:
            report_scans(spec.questions.here, spec.world.missing(spec.questions.here), "scan")
        journal = self.journal or self._begun_folder()
        work = _work_of(self, opened, journal)
        self.run = work[0]
        self.started_s = time.perf_counter()
        self.done_before = len(journal.rows)
        return work

    def _begun_folder(self) -> RunWriter:
        """The folder of the run, begun or resumed, with a log."""
        record = self.spec.record
        if self.log is None:
            self.log = begin_folder(record, self.spec.questions)
            self.stack.callback(self.log.close)
        else:
            self.log.note_resumption(dict(record.changed), record.revision, record.price)
        self.stack.enter_context(log_to_file(self.log.folder / "run.log"))
        level = logging.DEBUG if self.spec.questions.is_one else logging.INFO
        log.log(level, "Run folder: %s", self.log.folder)
        return self.log

    def sampled(self) -> AbstractContextManager[None]:
        """A block in which the GPUs are sampled; their last samples are recorded at its end, before the exports."""
        if self.log is None:
            return nullcontext()
        return sampled_gpus(self.spec.engine.device, self.spec.gpus, self.log.sample)

    def show(self, state: QuestionState) -> None:
        """Show the view of a question that takes a turn, if views are shown."""
        if self.show_view is not None and self.log is not None:
            self.show_view(state, self.log.folder / str(state.episode) / image_name(state.turn))

    def facts(self) -> SessionFacts:
        """The figures of this process so far."""
        assert self.run is not None, "a session that has started has figures"
        seconds = time.perf_counter() - self.started_s
        finished = len(self.run.log.rows) - self.done_before
        return SessionFacts(
            seconds=round(seconds, 3),
            questions=finished,
            questions_per_hour=round(3600 * finished / seconds, 1),
            batch_size=self.spec.schedule.batch_size,
            peak_memory_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            peak_device_memory_bytes=self.run.policy.peak_memory_bytes(),
        )

    def finish(self) -> None:
        """Write the exports, and log the scores, or how to resume the run with twice the budget if that is spent."""
        run_log = self.log
        if run_log is None:  # in memory
            return
        budget = None if self.run is None else self.run.budget
        if budget is None or not budget.is_spent or not self.spec.questions.pending(run_log):
            facts = None if self.run is None else self.facts()
            self.outcome = report(run_log, facts)
            return
        run_log.export(self.facts())
        left = counted(self.spec.questions.episodes - len(run_log.rows), "answer")
        stopped = "The budget of %g is spent (%s so far): %s not begun or not finished; finished turns are on disk. "
        log.error(stopped + "To resume:", budget.amount, in_money(budget.spent), left)
        record = self.spec.record
        log.log(RESULT, "%s", resume_command(record.resume_words, run_log.folder, record.more_budget))
        self.outcome = Outcome(3, run_log.rows, run_log.folder)


def report(run_log: RunWriter, facts: SessionFacts | None = None) -> Outcome:
    """Write the exports, and log the scores of a run."""
    summary = run_log.export(facts)
    rows = run_log.rows
    for line in closing_lines(run_log.folder, run_log.reader.facts, summary, rows, run_log.reader.benchmark):
        log.log(RESULT, "%s", line)
    status = int(any(row.failed for row in rows) or bool(summary.errors))
    return Outcome(status, rows, run_log.folder)


def opened_again(folder: Path, command: str, retry_failed: bool, stack: ExitStack) -> RunWriter:
    """The folder of a run that this command resumes, which `stack` closes; failed questions may be pending again."""
    run_log = RunWriter(folder, command)
    stack.callback(run_log.close)
    if retry_failed:
        log.info("Retrying %s", counted(run_log.reopen(attrgetter("failed")), "failed question"))
    if incomplete := run_log.reopen(run_log.reader.lacks_images):
        log.warning("Drawing images again that a crash has left incomplete: %s", counted(incomplete, "answer"))
    return run_log


def require_same_scans(run: RunWriter, questions: QuestionSpec, world: WorldSpec) -> None:
    """Raise RunError if a pending question would use another scan than the run has recorded for its scene. Ignores
    scenes that the run has not begun or recorded without a fingerprint, and missing scans."""
    pending = {question.scene for question in questions.here if pending_samples(run, question.id, questions.samples)}
    reader = run.reader
    begun = dict[tuple[str, str], tuple[Question, ScanRecord]]()
    for episode in reader.begun:
        question = questions.asked.questions[episode.number - 1]
        scan = reader.scan(episode) if question.scene in pending and question.scene not in begun else None
        if scan is not None:
            begun[question.scene] = question, scan
    for question, scan in begun.values():
        with suppress(ScanNotFound, OSError):
            path = world.ply or scan_of(question, world.scan_root, world.layouts)
            if scan_sha256(path) != scan.sha256:
                raise RunError(
                    f"{run.folder} has begun {question.scene_name} with the scan {scan.file}, and {path} is a "
                    "different scan now: resume with the former, or start a new run"
                )


def resume_command(words: Sequence[str], folder: Path, flags: Sequence[str]) -> str:
    """The command that resumes a run from any folder, with these flags after its `words`."""
    return shlex.join([*words, str(folder.resolve()), *flags])


def begin_folder(record: RecordSpec, questions: QuestionSpec) -> RunWriter:
    """Create the folder of a new run with its questions and run.json."""
    numbers = (record.part.number, record.part.of) if record.part else None
    folder = new_run_folder(record.log_root, not questions.is_one, numbers, record.name)
    run_log = RunWriter(folder, resume_command(record.resume_words, folder, []))
    prompts = record.prompts
    facts = RunFacts(
        schema=SCHEMA,
        started=now(),
        config=record.settings,
        questions=len(questions.here),
        questions_sha256=fingerprint(questions.here),
        conditions=dict(record.conditions),
        answerer=dict(record.answerer),
        scoring=dict(record.scoring),
        flags=tuple(record.flags),
        **vars(current_versions(record.revision)),
        host=socket.gethostname(),
        part=record.part,
        prompts=RecordedPrompts(prompts.sha256, prompts.templates) if prompts else None,
        probe=record.probe,
        benchmark=record_of(record.settings["benchmark"]),
        source=source_of(questions.asked.source, questions.benchmark),
        price=record.price,
    )
    guesses = None if questions.is_one else frequent_guesses(questions.here, questions.asked, questions.benchmark)
    run_log.begin(facts, questions.asked.questions, guesses)
    return run_log


def _work_of(session: Session, opened: Opened, journal: Journal) -> tuple[Run, Scheduler]:
    """What turns share, and the unfinished episodes, by scan; questions are numbered among those of all parts."""
    spec = session.spec
    queue = session.queue
    rules = spec.rules
    schedule = spec.schedule
    samples = spec.questions.samples
    policy = opened.policy
    assert policy is not None, "the policy of a run decides"
    pool = session.stack.enter_context(ThreadPoolExecutor(VIEW_THREADS, thread_name_prefix="view"))
    budget = None
    if spec.record.price is not None and isinstance(journal, RunWriter):
        amount = math.inf if spec.record.budget is None else spec.record.budget
        budget = Budget(spec.record.price, amount, journal.reader.all_turns())
    probes = bool(rules.probe)
    run = Run(opened.library, policy, journal, pool, schedule.anytime, probes, turn_begins=session.show, budget=budget)
    number = {question.id: position for position, question in enumerate(spec.questions.asked.questions, start=1)}
    moves = (policy if rules.mover is None else rules.mover).moves
    kind = QuestionState if rules.video is None else VideoQuestion

    def states_of(questions: Sequence[Question]) -> list[QuestionState]:
        return [
            kind(number[question.id], question, moves(question, sample, schedule.steps), sample, rules)
            for question in scene_order(questions)
            for sample in pending_samples(journal, question.id, samples)
        ]

    def more_states(most: int) -> list[QuestionState]:
        while queue is not None:
            taken = queue.take(math.ceil(most / samples))
            states = states_of(taken)
            if states or not taken:
                return states
        return []

    more = None if queue is None else more_states
    first = spec.questions.here if queue is None else queue.first
    states = states_of(first)
    policy.expect(states)
    return run, Scheduler(
        states,
        schedule.batch_size,
        schedule.max_batched_turns,
        schedule.refill or policy.concurrent,
        schedule.concurrency,
        policy.lane,
        more,
    )


def _stopped(error: Exception, run_log: RunWriter, facts: SessionFacts) -> Outcome:
    """Log why the run stops, with a traceback that begins in a policy's code, none of a lost engine, and how to resume
    it; export."""
    is_lost = isinstance(error, EngineLost)
    what = in_words(error) if is_lost or isinstance(error, PolicyError) else "Stopped by an unexpected error"
    raised = error.__cause__ if isinstance(error, PolicyError) else error
    if raised is not None and not is_lost:
        ours = ("roomscout.agent.loop", "roomscout.agent.turns", "roomscout.agent.checks", "contextlib")
        frames = raised.__traceback__
        while frames and frames.tb_next and frames.tb_frame.f_globals.get("__name__") in ours:
            frames = frames.tb_next
        log.error("The traceback of the error:", exc_info=(type(raised), raised, frames))
    log.error("%s; finished turns are on disk. To resume:", what)
    log.log(RESULT, "%s", run_log.resume_command)
    run_log.export(facts)
    return Outcome(3, run_log.rows, run_log.folder, error)
