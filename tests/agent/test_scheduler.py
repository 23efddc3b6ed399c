"""Cohorts, lockstep, refill and shrinking batches."""

from hypothesis import given
from hypothesis import strategies as st

from roomscout.agent.scheduler import Scheduler
from roomscout.agent.state import QuestionState, Status
from roomscout.envs.actions import CameraAction
from roomscout.models import Reply
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.motion import MoveOutcome
from roomscout.runs.records import Turn, TurnSeconds
from tests.conftest import vsi_question

POSE = CameraPose(0, 0, 1.6, 0)
STAY = MoveOutcome(pose=POSE, requested_m=0.0, moved_m=0.0, blocked=False, clipped=False)


def waiting(number: int) -> QuestionState:
    """A question without a scan; only its turns are counted."""
    state = QuestionState(number, vsi_question(str(number), "scannet", "s", "object_counting", "How many?"), steps=8)
    state.status = Status.ACTIVE
    return state


def take_turn(state: QuestionState, last: bool) -> None:
    """Record one turn without a model or a view."""
    action, move = (CameraAction(answer="1", done=True), None) if last else (CameraAction(), STAY)
    seconds = TurnSeconds(0.0, 0.0, 0.0, 0.0)
    state.turns.append(Turn(state.turn, POSE, action, (), None, move, Reply(""), ("x",), seconds))
    state.status = Status.ANSWERED if last else Status.ACTIVE


def schedule(
    lengths: list[int], batch_size: int, max_batched_turns: float, refill: bool = False, concurrency: int | None = 1
) -> list[list[tuple[int, int]]]:
    """Every batch of a run as (question, turn) pairs; question k ends with its turn lengths[k] - 1."""
    states = [waiting(number) for number in range(len(lengths))]
    scheduler, batches = Scheduler(states, batch_size, max_batched_turns, refill, concurrency), []
    while scheduler.has_work:
        scheduler.admit()
        batch = scheduler.next_batch()
        batches.append([(state.number, state.turn) for state in batch])
        for state in batch:
            take_turn(state, last=state.turn + 1 == lengths[state.number])
    return batches


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(LENGTHS, st.integers(1, 5), st.integers(0, 10), st.booleans(), st.integers(1, 4))
def test_every_turn_is_taken_once_and_in_order(
    lengths: list[int], batch_size: int, batched: int, refill: bool, concurrency: int
):
    batched = 99 if refill else batched
    taken = [pair for batch in schedule(lengths, batch_size, batched, refill, concurrency) for pair in batch]
    assert sorted(taken) == [(number, turn) for number, length in enumerate(lengths) for turn in range(length)]
    for number, length in enumerate(lengths):
        assert [turn for other, turn in taken if other == number] == list(range(length))


@given(LENGTHS, st.integers(1, 5), st.integers(0, 10))
def test_a_batch_is_in_lockstep_and_never_too_large(lengths: list[int], batch_size: int, batched: int):
    for batch in schedule(lengths, batch_size, batched):
        assert len(batch) <= batch_size
        assert len({turn for _, turn in batch}) == 1
        assert len(batch) == 1 or batch[0][1] < batched


@given(LENGTHS, st.integers(1, 5))
def test_refill_keeps_the_batch_full_while_questions_wait(lengths: list[int], batch_size: int):
    batches = schedule(lengths, batch_size, 99, refill=True)
    begun = 0
    for batch in batches:
        begun += sum(turn == 0 for _, turn in batch)
        assert len(batch) == batch_size or begun == len(lengths)


@given(LENGTHS, st.integers(1, 5), st.integers(0, 10), st.integers(1, 4))
def test_later_turns_keep_to_the_concurrency(lengths: list[int], batch_size: int, batched: int, few: int):
    later = [batch for batch in schedule(lengths, batch_size, batched, concurrency=few) if batch[0][1] >= batched]
    assert all(len(batch) <= min(few, batch_size) for batch in later)


@given(LENGTHS, st.integers(1, 5), st.integers(0, 10))
def test_by_default_later_turns_run_all_remaining_questions_at_a_time_before_the_last_cohort_begins(
    lengths: list[int], batch_size: int, batched: int
):
    batches, begun = schedule(lengths, batch_size, batched, concurrency=None), 0
    assert all(len(batch) <= batch_size for batch in batches)
    for batch in batches:
        begun += sum(turn == 0 for _, turn in batch)
        if len(lengths) > batch_size and begun + batch_size >= len(lengths):
            assert len(batch) == batch_size or begun == len(lengths)
            continue
        cohort = batch[0][0] // batch_size
        turn = batch[0][1]
        left = [number for number, length in enumerate(lengths) if number // batch_size == cohort and length > turn]
        assert batch == [(number, turn) for number in left]


def test_questions_resumed_at_different_turns_return_to_lockstep():
    states = [waiting(number) for number in range(3)]
    take_turn(states[0], last=False)
    scheduler = Scheduler(states, batch_size=3, max_batched_turns=4)
    scheduler.admit()
    assert [state.number for state in scheduler.next_batch()] == [1, 2]


def test_a_batch_that_did_not_fit_is_retried_in_halves():
    states = [waiting(number) for number in range(5)]
    scheduler = Scheduler(states, batch_size=5, max_batched_turns=4)
    scheduler.admit()
    assert scheduler.shrink(scheduler.next_batch()) == 2
    assert [state.number for state in scheduler.next_batch()] == [0, 1]


@given(LENGTHS, st.integers(1, 8), st.integers(0, 10), st.booleans(), st.sampled_from([None, 8]), st.integers(4, 30))
def test_a_batch_that_ran_out_of_memory_is_never_tried_again_and_short_questions_fill_one(
    lengths: list[int], batch_size: int, batched: int, refill: bool, few: int | None, room: int
):
    """A question takes as much memory as it has turns, and `room` is how much there is."""
    states = [waiting(number) for number in range(len(lengths))]
    scheduler = Scheduler(states, batch_size, 99 if refill else batched, refill, few)
    failed, taken = list[tuple[int, int]](), list[tuple[int, int]]()
    while scheduler.has_work:
        scheduler.admit()
        batch = scheduler.next_batch()
        turn = max(state.turn for state in batch)
        assert not any(len(batch) >= size and turn >= failed_at for failed_at, size in failed)
        if len(batch) > 1 and sum(state.turn + 1 for state in batch) > room:
            failed.append((turn, len(batch)))
            scheduler.shrink(batch)
            continue
        due = [state for state in scheduler.begun if state.turn == turn]
        limits = [max(1, size // 2) for failed_at, size in failed if failed_at <= turn]
        if few and not refill and turn < batched:  # in lockstep to the last cohort
            assert len(batch) == min([batch_size, len(due), *limits])
        taken += [(state.number, state.turn) for state in batch]
        for state in batch:
            take_turn(state, last=state.turn + 1 == lengths[state.number])
    assert sorted(taken) == [(number, turn) for number, length in enumerate(lengths) for turn in range(length)]


def test_the_next_cohort_fills_a_batch_again():
    states = [waiting(number) for number in range(8)]
    scheduler = Scheduler(states, batch_size=4, max_batched_turns=9, concurrency=4)
    sizes = []
    while scheduler.has_work:
        scheduler.admit()
        batch = scheduler.next_batch()
        if len(batch) == 4 and batch[0].turn == 2:
            scheduler.shrink(batch)
            continue
        sizes.append((batch[0].turn, len(batch)))
        for state in batch:
            take_turn(state, last=state.turn == 2)
    assert sizes == [(0, 4), (1, 4), (2, 2), (2, 2)] * 2
