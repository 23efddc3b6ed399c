"""Carries out a planned run: inside `Session.guarded`, `start`, `answer_questions` and `finish`."""

import logging
import math
import os
import resource
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from roomscout import SCRIPT
from roomscout.agent.console import log_to_file
from roomscout.agent.loop import answer_questions
from roomscout.agent.policies import Policy, PolicyError
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.spec import QuestionSpec, RecordSpec, RunSpec, WorldSpec
from roomscout.agent.state import QuestionState, VideoState
from roomscout.agent.turns import POLICY_CALLERS, VIEW_THREADS, Budget, Run
from roomscout.base.errors import ConfigError
from roomscout.base.interrupts import ignored_interrupts
from roomscout.base.text import RESULT, counted, listed
from roomscout.data.benchmark import Benchmark
from roomscout.data.boxes import BoxError, KnownBoxes
from roomscout.data.questions import Question, fingerprint
from roomscout.data.scans import ScanNotFound, missing_scans, scan_of, scan_sha256, scan_table, scene_order
from roomscout.data.sources import source_of
from roomscout.data.video_frames import VideoNotFound
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import ScanLibrary
from roomscout.envs.object_boxes import known_boxes
from roomscout.models.engines import make_backend
from roomscout.models.gpus import sampled_gpus
from roomscout.models.transformers.backend import SET_BY_LOADING, TransformersBackend
from roomscout.rendering.renderers import Renderer, RendererStart
from roomscout.runs import RunError
from roomscout.runs.closing import closing_lines
from roomscout.runs.hardware import Session as SessionFacts
from roomscout.runs.journal import Journal, MemoryJournal, pending_samples
from roomscout.runs.prices import in_money
from roomscout.runs.provenance import current_versions
from roomscout.runs.reader import RunReader, image_name
from roomscout.runs.records import SCHEMA, RecordedPrompts, ResultRow, RunFacts, ScanRecord
from roomscout.runs.writer import RunWriter, new_run_folder, now
from roomscout.scoring.baselines import frequent_guesses

log = logging.getLogger(__name__)

COMMAND = [str(SCRIPT)] if SCRIPT.exists() else ["-m", "roomscout"]
"""How Python starts the command."""
ShowView = Callable[[QuestionState, Path], None]
"""Called with each question that takes a turn, and with the file that its view is going to be saved to."""
Work = tuple[Scheduler, Run, int, Benchmark]
"""What `answer_questions` takes: whose turns come, what they share, the number of answers, and what scores them."""


class Queue(NamedTuple):
    """The questions of a worker: the `first` ones, and what it may `take` when so many more can begin."""

    first: Sequence[Question]
    take: Callable[[int], Sequence[Question]]


class Outcome(NamedTuple):
    """The outcome of a run: its exit status, and the result rows so far, by question number. Status 0: all finished; 1:
    some failed, or code of scores did, or have no scan with --check-data; 3: a fatal error, or the budget ran out; 130:
    interrupted. After 3 and 130 the run can be resumed."""

    status: int
    rows: list[ResultRow]
    folder: Path | None = None
    error: Exception | None = None
    """The error behind status 3; None if the budget is spent."""


@dataclass(frozen=True)
class Loaded:
    """What several runs may share: the model or policy, the scans, and the renderer's name, None for videos."""

    policy: Policy
    library: ScanLibrary | FilmLibrary
    renderer: str | None


def main_vsi_bench_loop(
    spec: RunSpec,
    show_progress: bool = True,
    show_view: ShowView | None = None,
    loaded: Loaded | None = None,
    queue: Queue | None = None,
) -> Outcome:
    """Answer every question of a run and score it, with a bar on a terminal if `show_progress`. `loaded` outlives this
    run, and with a `queue` its questions are those that it gives. Raises RenderError or ModelError if it cannot begin,
    and RunError if its folder cannot be written."""
    session = Session(spec, show_view)
    with session.guarded():
        if work := start(session, loaded, queue):
            with session.sampled():
                answer_questions(*work, show_progress)
        finish(session)
    return session.outcome


def answer_in_memory(spec: RunSpec, show_progress: bool = True) -> MemoryJournal:
    """Answer every question without a run folder; raises the errors of `main_vsi_bench_loop`, and PolicyError."""
    journal = MemoryJournal()
    with ExitStack() as stack:
        loaded = load(spec, stack)
        answer_questions(*_work_of(spec, loaded, journal, stack), show_progress)
    return journal


class Session:
    """A run in this process: its folder once it has one, what its turns share once it has started, and its outcome."""

    def __init__(self, spec: RunSpec, show_view: ShowView | None = None):
        self.spec = spec
        self.show_view = show_view
        self.stack = ExitStack()
        self.log: RunWriter | None = None
        self.run: Run | None = None
        self.outcome = Outcome(130, [])
        self.started_s, self.done_before = 0.0, 0

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside this block, an interrupt or an unexpected error ends the run with what it has, to be resumed. RunError
        is raised, since nothing more can be written, and so is what comes before the run has started."""
        with self.stack:
            try:
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
                    log.log(RESULT, "Interrupted; finished turns are on disk. To resume:")
                    log.log(RESULT, "%s", self.log.resume_command)
                    self.outcome = Outcome(130, self.log.rows, self.log.folder)
            except Exception as error:
                if self.log is None or self.run is None:
                    raise
                self.outcome = _stopped(error, self.log, self.facts())

    def sampled(self) -> AbstractContextManager[None]:
        """A block in which the GPUs are sampled; their last samples are recorded at its end, before the exports."""
        assert self.log is not None, "a session that has started has a folder"
        return sampled_gpus(self.spec.record.settings["device"], self.spec.gpus, self.log.sample)

    @property
    def is_pending(self) -> bool:
        """Whether an answer is to come."""
        questions = self.spec.questions
        journal = self.log
        return journal is None or any(pending_samples(journal, each.id, questions.samples) for each in questions.here)

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


def start(session: Session, loaded: Loaded | None = None, queue: Queue | None = None) -> Work | None:
    """Load what a run needs, unless it is `loaded`, and begin or resume its folder; returns what is to be answered."""
    spec = session.spec
    record = session.spec.record
    stack = session.stack
    if record.folder is not None:
        session.log = opened_again(record.folder, record.resume_flags, record.retry_failed, stack)
        require_same_scans(session.log, spec.questions, spec.world)
        if not session.is_pending:
            log.log(RESULT, "Nothing to do: every question of %s is finished", record.folder)
            return None
    loaded = loaded or load(spec, stack)
    if session.log is None:
        session.log = begin_folder(record, spec.questions, loaded.renderer)
        stack.callback(session.log.close)
    else:
        session.log.note_resumption(dict(record.changed), record.revision, record.price)
    folder = session.log.folder
    show_view = session.show_view
    budget = None
    stack.enter_context(log_to_file(folder / "run.log"))
    log.log(logging.DEBUG if spec.questions.is_one else logging.INFO, "Run folder: %s", folder)

    def show(state: QuestionState) -> None:
        if show_view is not None:
            show_view(state, folder / str(state.episode) / image_name(state.turn))

    if record.price is not None:
        amount = math.inf if record.budget is None else record.budget
        before = RunReader(folder)
        taken = {episode: before.turns(episode) for episode in before.begun}
        budget = Budget(record.price, amount, taken, {row.episode for row in session.log.rows})
    work = _work_of(spec, loaded, session.log, stack, queue, turn_begins=show, budget=budget)
    session.run = work[1]
    session.started_s = time.perf_counter()
    session.done_before = len(session.log.rows)
    return work


def finish(session: Session) -> None:
    """Write the exports, and print the scores of a run, or how to resume it with twice the budget if that is spent."""
    run_log = session.log
    run = session.run
    assert run_log is not None, "a session that has started has a folder"
    if run is None or run.budget is None or not run.budget.is_spent or not session.is_pending:
        session.outcome = report(run_log, None if run is None else session.facts())
        if run is None and any(row.failed for row in session.outcome.rows):
            log.log(RESULT, "Some questions failed; to retry them, add --retry-failed")
        return
    run_log.export(session.facts())
    amount = run.budget.amount
    spent = in_money(run.budget.spent)
    left = counted(session.spec.questions.episodes - len(run_log.rows), "answer")
    stopped = "--budget %g is spent (%s so far): %s not begun or not finished; finished turns are on disk. To resume:"
    log.error(stopped, amount, spent, left)
    flags = [*session.spec.record.resume_flags, "--budget", str(2 * amount)]
    log.log(RESULT, "%s", resume_command(run_log.folder, flags))
    session.outcome = Outcome(3, run_log.rows, run_log.folder)


def report(run_log: RunWriter, facts: SessionFacts | None = None) -> Outcome:
    """Write the exports, and print the scores of a run."""
    summary = run_log.export(facts)
    rows = run_log.rows
    for line in closing_lines(run_log.folder, run_log.facts, summary, rows, run_log.benchmark):
        log.log(RESULT, "%s", line)
    return Outcome(1 if any(row.failed for row in rows) or summary.errors else 0, rows, run_log.folder)


def load(spec: RunSpec, stack: ExitStack) -> Loaded:
    """Load the policy, the renderer and the scans of a run; `stack` closes them. Open3D is loaded after PyTorch, as
    CUDA requires (see `make_renderer`). Raises RenderError, ModelError or QuestionError."""
    world = spec.world
    engine = spec.engine
    renderer = None
    library: ScanLibrary | FilmLibrary
    if world.films is not None:
        shown = dict[tuple[str, str], str]()  # the hashes of the videos that finished questions were about
        if spec.record.folder is not None:
            reader = RunReader(spec.record.folder)
            firsts = [(row, turn) for row in reader.rows for turn in reader.turns(row.episode)[:1]]
            shown = {(row.dataset, row.scene_name): turn.frames.sha256 for row, turn in firsts if turn.frames}
        library = FilmLibrary(world.films, _cache_bytes(), shown)
    else:
        begun = RendererStart(world.renderer or "auto", world.cuda_device)
        stack.callback(begun.close)
        if engine.policy is None and engine.server is None:
            from roomscout.models.transformers import runner  # noqa: F401
        renderer = begun.renderer()
        stack.callback(renderer.close)
        library = library_of(world, renderer)
    stack.callback(library.close)
    if world.ply is not None and isinstance(library, ScanLibrary):
        library.load_ahead(spec.questions.here)  # while the weights are loaded
    policy = engine.policy
    if policy is None:
        backend = make_backend(engine.name, engine.options, engine.server, engine.vllm)
        policy = ModelPolicy(backend, action_format(engine.constrained), spec.rules.prompts)
        stack.callback(policy.close)
    else:
        stack.enter_context(policy.open())
    if world.makes_scans:
        make_scans(spec.questions, world)
    return Loaded(policy, library, renderer.name if renderer is not None else None)


def taken_over(before: RunSpec, loaded: Loaded, spec: RunSpec) -> Loaded | None:
    """What an earlier run has loaded, for a run with the same scans and the same model, perhaps with another prompt or
    length; None if it takes others."""
    engine = spec.engine
    policy = loaded.policy
    if before.world != spec.world or engine.name != before.engine.name or engine.policy or engine.options is None:
        return None
    backend = policy.backend if isinstance(policy, ModelPolicy) else None
    if not isinstance(backend, TransformersBackend) or before.engine.options is None:
        return None
    loading = (*SET_BY_LOADING, "memory_fraction")
    if any(getattr(engine.options, each) != getattr(before.engine.options, each) for each in loading):
        return None
    prompts = action_format(engine.constrained), spec.rules.prompts
    return replace(loaded, policy=ModelPolicy(backend.with_options(engine.options), *prompts))


def make_scans(questions: QuestionSpec, world: WorldSpec) -> None:
    """Make the scans of a benchmark that makes them, as far as they are not there; raises QuestionError."""
    questions.benchmark.make(questions.here)
    report_scans(questions, world, required=False)


def report_scans(questions: QuestionSpec, world: WorldSpec, required: bool, boxes: bool = False) -> None:
    """Log how many scenes have a scan, or a video; if it is `required`, raises ScanNotFound if none has. With `boxes`,
    also raises ConfigError if it is required and no scan has known boxes of its objects."""
    asked = questions.here
    films = world.films
    if films is not None or world.ply is None:
        missing = films.missing(asked) if films else missing_scans(asked, world.scan_root, world.layouts)
        number = len({question.scene for question in asked})
        if required and len(missing) == number:
            first = next(iter(missing.values()))
            scenes = counted(number, "scene")
            if films is not None:
                raise VideoNotFound(first)
            why = f"{world.scan_root} has no scan of {scenes} asked about: --scan-root takes the folder with the scans"
            raise ScanNotFound(f"{why}. {first}")
        if missing and films is None:
            log_scan_table(asked, missing)
        else:
            found = number - len(missing) if missing else "all"
            what = "video" if films else "scan"
            about = counted(len(asked), "question"), counted(number, "scene")
            log.info("%s about %s, %s with a %s", *about, found, what)
            _warn_of(missing, what)
    if boxes and required:
        _require_boxes(asked, world)


def log_scan_table(
    questions: Sequence[Question], missing: Mapping[tuple[str, str], str], unusable: Mapping[tuple[str, str], str] = {}
) -> None:
    """Log the table of scans per dataset, and the scenes without one with the first reason."""
    for line in scan_table(questions, {**missing, **unusable}):
        log.info("%s", line)
    _warn_of(missing, "scan")


def _warn_of(missing: Mapping[tuple[str, str], str], what: str) -> None:
    if missing:
        log.warning("no %s, so their questions fail: %s", what, listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))


def _require_boxes(questions: Sequence[Question], world: WorldSpec) -> None:
    """Raise ConfigError, which names the first scan, if no scan of these questions has known boxes of its objects."""
    known = KnownBoxes()
    errors = list[BoxError]()
    for question in {question.scene: question for question in questions}.values():
        try:
            known_boxes(known, world.ply or scan_of(question, world.scan_root, world.layouts), question.scene_name)
            return
        except BoxError as error:
            errors.append(error)
        except ScanNotFound:
            continue
    if errors:
        raise ConfigError(str(errors[0]))


def library_of(world: WorldSpec, renderer: Renderer) -> ScanLibrary:
    """The library of a run's scans."""
    return ScanLibrary(
        renderer, world.camera, world.scan_root, world.ply, world.up_axis, _cache_bytes(), world.layouts, world.scale
    )


def opened_again(folder: Path, flags: Sequence[str], retry_failed: bool, stack: ExitStack) -> RunWriter:
    """The folder of a run to resume, which `stack` closes; with `retry_failed`, failed questions are pending again."""
    run_log = RunWriter(folder, resume_command(folder, flags))
    stack.callback(run_log.close)
    if retry_failed:
        log.info("Retrying %s", counted(run_log.reopen_failed(), "failed question"))
    return run_log


def require_same_scans(run: RunWriter, questions: QuestionSpec, world: WorldSpec) -> None:
    """Raise RunError if a pending question would use another scan than the run has recorded for its scene. Ignores
    scenes that the run has not begun or recorded without a fingerprint, and missing scans."""
    pending = {each.scene for each in questions.here if pending_samples(run, each.id, questions.samples)}
    reader = RunReader(run.folder)
    begun = dict[tuple[str, str], tuple[Question, ScanRecord]]()
    for episode in reader.begun:
        question = questions.asked.questions[episode.number - 1]
        if question.scene in pending and question.scene not in begun and (scan := reader.scan(episode)):
            begun[question.scene] = question, scan
    for question, scan in begun.values():
        with suppress(ScanNotFound, OSError):
            path = world.ply or scan_of(question, world.scan_root, world.layouts)
            if scan_sha256(path) != scan.sha256:
                raise RunError(
                    f"{run.folder} has begun {question.scene_name} with the scan {scan.file}, and {path} is a "
                    "different scan now: resume with the former, or start a new run"
                )


def resume_command(folder: Path, flags: Sequence[str]) -> str:
    """The command that resumes a run from any folder, with these flags."""
    is_console_command = Path(sys.argv[0]).name == "roomscout"
    words = ["roomscout", "resume"] if is_console_command else [sys.executable, *COMMAND, "--continue"]
    return shlex.join([*words, str(folder.resolve()), *flags])


def begin_folder(record: RecordSpec, questions: QuestionSpec, renderer: str | None) -> RunWriter:
    """Create the folder of a new run with its questions and run.json, which has the renderer that works here."""
    drawn = {} if renderer is None else {"renderer": renderer}
    numbers = (record.part.number, record.part.of) if record.part else None
    folder = new_run_folder(record.log_root, not questions.is_one, numbers, record.name)
    run_log = RunWriter(folder, resume_command(folder, []))
    prompts = record.prompts
    facts = RunFacts(
        schema=SCHEMA,
        started=now(),
        config={**record.settings, **drawn},
        questions=len(questions.here),
        questions_sha256=fingerprint(questions.here),
        conditions={**record.conditions, **drawn},
        answerer=dict(record.answerer),
        scoring=dict(record.scoring),
        flags=tuple(record.flags),
        **vars(current_versions(record.revision)),
        host=socket.gethostname(),
        part=record.part,
        prompts=RecordedPrompts(prompts.sha256, prompts.templates) if prompts else None,
        source=source_of(questions.asked.source, questions.benchmark),
        price=record.price,
    )
    guesses = frequent_guesses(questions.here, questions.asked, questions.benchmark) if not questions.is_one else None
    run_log.begin(facts, questions.asked.questions, guesses)
    return run_log


def _work_of(
    spec: RunSpec, loaded: Loaded, journal: Journal, stack: ExitStack, queue: Queue | None = None, **more: Any
) -> Work:
    """The unfinished episodes, grouped by scan; questions are numbered by their position among those of all parts."""
    pool = stack.enter_context(ThreadPoolExecutor(VIEW_THREADS, thread_name_prefix="view"))
    run = Run(loaded.library, loaded.policy, journal, pool, spec.schedule.anytime, **more)
    schedule = spec.schedule
    rules = spec.rules
    policy = loaded.policy
    number = {question.id: position for position, question in enumerate(spec.questions.asked.questions, start=1)}
    moves = (policy if rules.mover is None else rules.mover).moves
    kind = QuestionState if rules.video is None else VideoState
    samples = spec.questions.samples

    def states_of(questions: Sequence[Question]) -> list[QuestionState]:
        return [
            kind(number[question.id], question, moves(question, sample, schedule.steps), sample, rules)
            for question in scene_order(questions)
            for sample in pending_samples(journal, question.id, samples)
        ]

    states = states_of(spec.questions.here if queue is None else queue.first)
    policy.expect(states)
    batches = (schedule.batch_size, schedule.max_batched_turns)
    refill = schedule.refill or policy.concurrent

    def more_states(most: int) -> list[QuestionState]:
        while queue is not None and (taken := queue.take(math.ceil(most / samples))):
            if found := states_of(taken):
                return found
        return []

    next_states = None if queue is None else more_states
    scheduler = Scheduler(states, *batches, refill, schedule.concurrency, policy.lane, next_states)
    return scheduler, run, spec.questions.episodes, spec.questions.benchmark


def _cache_bytes() -> int:
    """The memory for scans that no question in progress uses: an eighth of the machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


def _stopped(error: Exception, run_log: RunWriter, facts: SessionFacts) -> Outcome:
    """Log an unexpected error, with a traceback that begins in a policy's code, and how to resume the run; export."""
    what = str(error) if isinstance(error, PolicyError) else "Stopped by an unexpected error"
    raised = error.__cause__ if isinstance(error, PolicyError) else error
    if raised is not None:
        frames = raised.__traceback__
        while frames and frames.tb_next and frames.tb_frame.f_globals.get("__name__") in (*POLICY_CALLERS, __name__):
            frames = frames.tb_next
        log.error("The traceback of the error:", exc_info=(type(raised), raised, frames))
    log.error("%s; finished turns are on disk. To resume:", what)
    log.log(RESULT, "%s", run_log.resume_command)
    run_log.export(facts)
    return Outcome(3, run_log.rows, run_log.folder, error)
