"""The loop of a run: batched turns, then a few questions at a time; or each question on a thread."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import copy_context
from dataclasses import replace
from threading import Event

from roomscout.agent.checks import DECIDING
from roomscout.agent.opening import Opened
from roomscout.agent.prefetch import Prefetcher
from roomscout.agent.progress import LINE_EVERY_S, Progress
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.session import Outcome, Queue, Session, ShowView
from roomscout.agent.spec import RunSpec
from roomscout.agent.state import QuestionState
from roomscout.agent.turns import (
    Run,
    complete_question_sequentially,
    failing,
    initialize_question_state,
    run_batched_turn,
)
from roomscout.base.interrupts import raise_if_interrupted
from roomscout.base.text import RESULT, counted
from roomscout.data.benchmark import Benchmark
from roomscout.models import OutOfMemory
from roomscout.runs.journal import Journal
from roomscout.runs.records import EpisodeId, ResultRow

log = logging.getLogger(__name__)


Due = tuple[Sequence[QuestionState], Run, AbstractContextManager[None]]
"""A turn that is due: of which questions, what it shares with others, and the block in which it is taken."""


def main_vsi_bench_loop(
    spec: RunSpec,
    show_progress: bool = True,
    show_view: ShowView | None = None,
    opened: Opened | None = None,
    queue: Queue | None = None,
    journal: Journal | None = None,
) -> Outcome:
    """Answer every question of a run and score it, with a bar on a terminal if `show_progress`. `opened` outlives this
    run, with a `queue` its questions are those that it gives, and with a `journal` in memory there is no run folder.
    Raises RenderError or ModelError if it cannot begin, RunError without a writable folder, in memory PolicyError."""
    session = Session(spec, opened, queue, journal, show_view)
    asked = spec.questions
    with session.guarded():
        if work := session.start():
            taking = turns_of(*work, asked.episodes, asked.benchmark, show_progress)
            with session.sampled(), taking as turns:
                for batch, run, guarded in turns:
                    with guarded:
                        run_batched_turn(batch, run)
        session.finish()
    return session.outcome


@contextmanager
def turns_of(
    run: Run, scheduler: Scheduler, total: int, benchmark: Benchmark | None = None, show_progress: bool = True
) -> Iterator[Iterator[Due]]:
    """The turns of all questions of a scheduler, none of a policy that is asked on threads: those are taken at once.
    `total` includes the answers that were finished earlier; `benchmark` scores the bar."""
    most_turns = 1 + max((state.steps for state in scheduler.upcoming()), default=0)
    scored_by = None if run.policy.is_blinded else benchmark
    with (
        Progress(total, run.log.rows, show_progress and total > 1, most_turns, scored_by, run.budget) as progress,
        closing(Prefetcher(run.library, run.log)) as prefetcher,
    ):
        run = replace(run, turn_taken=progress.turn_taken, prefetcher=prefetcher)
        try:
            if run.policy.concurrent:
                answer_independently(scheduler, run, progress)
                yield iter(())
            else:
                prefetcher.prepare(scheduler.upcoming()[:0:-1])  # from the last, while this thread begins the first
                yield _in_turn(scheduler, run, progress)
        finally:
            for state in scheduler.begun:  # the policy may outlive this run, which the budget or an error has ended
                run.policy.forget(state)


def _in_turn(scheduler: Scheduler, run: Run, progress: Progress) -> Iterator[Due]:
    """Yield each turn that is due; settle its questions and begin others once it is taken. A question alone, or alone
    in its turn after the batched ones, is no batch: its error is its own."""
    announce = Announcer(scheduler)
    alone = progress.total == 1  # nothing to batch it with, so no batch is announced
    while scheduler.has_work and not run.is_spent:
        begin(scheduler, run, progress)
        while not run.is_spent and (batch := scheduler.next_batch()):
            if not alone:
                announce(batch)
            if alone or (len(batch) == 1 and batch[0].turn >= scheduler.max_batched_turns):
                yield batch, run, failing(batch[0])
            else:
                yield batch, run, turn_of(batch, scheduler, run)
            settle(batch, run, progress)
            begin(scheduler, run, progress)


def answer_independently(scheduler: Scheduler, run: Run, progress: Progress) -> None:
    """Answer each question on its own thread, at most `batch_size` at a time; the policy's engine batches them."""
    if scheduler.batch_size > 1 and not run.policy.is_blinded:
        log.info("CONCURRENT: %d questions at a time, batched by the engine", scheduler.batch_size)
    stop = Event()
    running = dict[Future[None], QuestionState]()
    with ThreadPoolExecutor(scheduler.batch_size, thread_name_prefix="question") as threads:
        try:
            while running or (scheduler.has_work and not run.is_spent):  # one may be final before its thread ends
                for state in begin(scheduler, run, progress):
                    turns = threads.submit(copy_context().run, complete_question_sequentially, state, run, stop)
                    running[turns] = state
                for done in wait(running, LINE_EVERY_S, FIRST_COMPLETED).done:
                    state = running.pop(done)
                    done.result()
                    settle([state], run, progress)
                progress.tell()
        finally:
            stop.set()
            if running:  # interrupted or stopped by an error: abandon pending replies
                run.policy.close()


def begin(scheduler: Scheduler, run: Run, progress: Progress) -> list[QuestionState]:
    """Start the questions that may begin, none once the budget is spent, and prepare the next; returns those begun."""
    raise_if_interrupted()
    admitted = [] if run.is_spent else scheduler.admit()
    for state in admitted:
        question = state.question
        truth = "unknown" if question.ground_truth is None else question.ground_truth
        form = "[%s] asked in %s %s (%s, id %s): %s" + "\n    %s" * len(question.options) + "\n    ground truth: %s"
        about = (*question.scene, question.question_type, question.id, question.question)
        log.debug(form, state.label, *about, *question.options, truth)
        initialize_question_state(state, run)
    progress.begun()
    settle(admitted, run, progress)
    if admitted and run.prefetcher is not None:
        run.prefetcher.prepare(scheduler.upcoming())
    return [state for state in admitted if not state.is_final]


class Announcer:
    """Logs each batched turn once, and the phase of later turns once for each cohort."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._told: object = None
        self._continuing: set[EpisodeId] = set()

    def __call__(self, batch: Sequence[QuestionState]) -> None:
        """Log a batch's turn or phase, if not logged before."""
        turns = sorted({state.turn for state in batch})
        most = self._scheduler.max_batched_turns
        if turns[0] >= most:
            if not self._continuing:
                log.info("SEQUENTIAL PHASE: %d at a time", len(batch))
            for state in batch:
                if state.episode not in self._continuing:
                    log.debug("[%s] Continuing sequentially from turn %d...", state.label, state.turn)
            self._continuing.update(state.episode for state in batch)
            return
        cohort = self._scheduler.cohort
        if (turns, cohort) != self._told:
            which = f", cohort {cohort[0]} of {cohort[1]}" if cohort else ""
            at = "-".join(map(str, sorted({turns[0], turns[-1]})))
            last = max(most - 1, turns[-1])
            log.info("BATCHED TURN %s/%d%s", at, last, which)
        self._told = (turns, cohort)
        self._continuing = set()


@contextmanager
def turn_of(batch: Sequence[QuestionState], scheduler: Scheduler, run: Run) -> Iterator[None]:
    """Log the size and the time of a batched turn taken inside this block, after the batched turns only to run.log. Out
    of memory halves the batch for conversations of this length; after any other error of DECIDING, the questions are
    asked one at a time, so that only those at fault fail."""
    level = logging.INFO if batch[0].turn < scheduler.max_batched_turns else logging.DEBUG
    turns = {state.episode: state.turn for state in batch}
    log.log(level, "Processing %s in batch", counted(len(batch), "active question"))
    if asking := sum(state.asks for state in batch):
        log.log(level, "Running batch generation for %s...", counted(asking, "question"))
    started = time.perf_counter()
    try:
        yield
    except OutOfMemory as error:
        if len(batch) == 1:
            batch[0].fail("model", str(error))
            return
        size = scheduler.shrink([state for state in batch if state.turn == turns[state.episode]] or batch)
        turn = max(turns.values())
        log.warning(
            "Out of memory with %d questions in a batch: %d at a time from turn %d on (%s)",
            len(batch), size, turn, error,
        )  # fmt: skip
        return
    except DECIDING as error:
        if len(batch) > 1:
            log.warning("The batch failed (%s): asking its questions one at a time", error)
    else:
        seconds = time.perf_counter() - started
        log.log(level, "Batch generation completed in %.1fs (%.2fs per question)", seconds, seconds / len(batch))
        return
    # After the handler, where the error no longer keeps the failed batch's tensors. Some may have taken their turn.
    for state in [state for state in batch if state.turn == turns[state.episode] and not state.is_final]:
        if run.is_spent:
            return
        with failing(state):
            run_batched_turn([state], run)


def log_failure(row: ResultRow) -> None:
    """Log why a question failed."""
    # Scenes without a scan are listed before the run; run.log has their questions too.
    level = logging.DEBUG if row.failed_part == "scan" else logging.ERROR
    log.log(level, "[%s] Failed (%s): %s", row.episode.label, row.failed_part, row.error)


def settle(states: Sequence[QuestionState], run: Run, progress: Progress) -> None:
    """Write the results of finished questions and release their resources."""
    answered = RESULT if progress.total == 1 else logging.INFO
    for state in states:
        if not state.is_final or run.log.is_done(state.question.id, state.sample):
            continue
        row = state.result()
        run.log.result(row)
        if row.failed:
            log_failure(row)
        elif state.answer is None:
            log.log(answered, "[%s] No answer by the last turn", state.label)
        else:
            level = logging.DEBUG if run.policy.is_blinded else answered
            scored = [f"truth {row.truth_in_words}", f"score {row.score:g}"] if row.score is not None else []
            about = ", ".join([row.question_type, *scored, counted(row.turns, "turn")])
            log.log(level, "[%s] Final answer: %s (%s)", state.label, row.answer_in_words, about)
        run.policy.forget(state)
        state.close()
        progress.finished(row)
        if run.policy.concurrent:  # a server, or many at once: what it refuses of all is not about one question
            run.failures.ended(row)
    progress.tell()
