"""Maps against boxes that are known: every figure to the digit."""

import pytest

from roomscout.data.boxes import ObjectBox, category_named, needed_for
from roomscout.models import Reply
from roomscout.rendering.camera import CameraPose
from roomscout.runs.beliefs import (
    Belief,
    Believed,
    MapGroup,
    MapScore,
    belief_columns,
    belief_lines,
    beliefs_of,
    believed,
    figures_by_turn,
    map_score,
)
from roomscout.runs.records import EpisodeId, ResultRow

START = CameraPose(x_m=1.0, y_m=2.0, z_m=1.5, heading_deg=90.0, pitch_deg=-10.0)


def box(category: str, x: float, y: float) -> ObjectBox:
    return ObjectBox(category, (x, y, 0.5), (0.5, 0.5, 1.0))


BOXES = (box("chair", 1.0, 5.0), box("chair", -1.0, 2.0), box("table_lamp", 2.0, 3.0), box("bed", 1.0, 0.0))
TRUE = [Believed("chair", 3.0, 0.0), Believed("Chairs", 0.0, 2.0), Believed("table lamp", 1.0, -1.0)]
"""The first three, ahead, to the left, and ahead to the right of a camera that looks along y."""
ALL = (0, 1, 2, 3)


def score(objects: list[Believed], seen: tuple[int, ...] = ALL, question: str = "") -> MapScore:
    return map_score(objects, BOXES, START, seen, needed_for(question, (), BOXES))


def moved(objects: list[Believed], forward_m: float) -> list[Believed]:
    return [Believed(item.object, item.forward_m + forward_m, item.left_m) for item in objects]


class TestOneMap:
    def test_places_count_from_the_start_and_its_heading(self):
        assert score(TRUE) == MapScore(4, ALL, (0, 1, 2), error_m=0.0, invented=0, needed_right=None)

    def test_an_object_is_right_within_one_metre(self):
        assert score(moved(TRUE, 1.0)).right == (0, 1, 2) and score(moved(TRUE, 1.0)).error_m == 1.0
        assert score(moved(TRUE, 1.01)).right == () and score(moved(TRUE, 1.01)).error_m == 1.01

    def test_objects_of_a_category_are_matched_as_a_whole(self):
        """The nearest box first would leave the second object without a near one."""
        objects = [Believed("chair", 1.4, 1.0), Believed("chair", 0.5, 1.9)]
        by_sum = score(objects)
        assert by_sum.error_m == pytest.approx((1.8867962 + 0.509902) / 2, abs=1e-4) and by_sum.right == (1,)

    def test_only_what_was_seen_can_be_right(self):
        assert score(TRUE, seen=(1,)) == MapScore(4, (1,), (1,), error_m=0.0, invented=0, needed_right=None)
        assert score(TRUE, seen=()).error_m is None

    def test_other_categories_and_too_many_of_one_are_invented(self):
        more = [Believed("sofa", 0.0, 0.0), Believed("chair", 0.0, 0.0), Believed("bed on a chair", 0.0, 0.0)]
        assert score([*TRUE, *more]).invented == 3

    @pytest.mark.parametrize(
        ("question", "right"),
        [
            ("How far is the table lamp from the chair?", True),
            ("How many chairs are there?", True),
            ("Is the bed near?", False),
            ("How large is the room?", None),
        ],
    )
    def test_what_the_question_needs(self, question: str, right: bool | None):
        assert score(TRUE, question=question).needed_right is right

    def test_names_are_read_as_in_questions(self):
        names = ("Table_Lamp", "wooden chair", "BEDS", "bed chair", "chair-bed")
        assert [category_named(name, BOXES) for name in names] == ["table_lamp", "chair", "bed", "chair", "bed"]
        assert [category_named(name, BOXES) for name in ("lamp", "chair or bed", "cha\u0131r", "\u017fofa")] == [
            None
        ] * 4


@pytest.mark.parametrize(
    "values",
    [
        [{"object": "bed", "forward_m": 1}],
        [{"object": "bed", "forward_m": "1", "left_m": 0}],
        [{"object": "bed", "forward_m": True, "left_m": 0}],
        [{"object": "bed", "forward_m": float("nan"), "left_m": 0}],
        [{"object": "bed", "forward_m": 10**400, "left_m": 0}],
        [{"object": "", "forward_m": 1, "left_m": 0}],
        [{"object": "\ud800", "forward_m": 1, "left_m": 0}],
        [{}] * 1000,
    ],
)
def test_what_is_no_map_is_refused(values: list[object]):
    with pytest.raises(ValueError, match=r"^(missing keys: )?0\.") as refused:
        believed(values)
    assert len(str(refused.value)) <= 300


def belief(objects: list[Believed], seen: tuple[int, ...] = ALL, question: str = "") -> Belief:
    return Belief(tuple(objects), score=score(objects, seen, question), batch=("1",))


UNREAD = Belief(error="no list", score=score([]), batch=("1",))


class TestMapsByTurn:
    def test_a_map_has_lost_what_an_earlier_one_had_right(self):
        maps = [belief(TRUE[:1]), UNREAD, belief(TRUE[1:]), belief(TRUE)]
        figures = figures_by_turn(maps)
        assert list(figures) == [0, 2, 3]
        assert [of_map.lost for of_map in figures.values()] == [0, 1, 0]
        assert [of_map.coverage for of_map in figures.values()] == [0.25, 0.5, 0.75]

    def test_shares_without_anything_to_divide_by_are_not_known(self):
        (empty,) = figures_by_turn([belief([], seen=())]).values()
        assert (empty.precision, empty.recall, empty.error_m, empty.coverage) == (None, None, None, 0.0)

    def test_the_columns_are_those_of_the_last_map_that_was_read(self):
        maps = [belief(TRUE), belief([*TRUE[:1], Believed("sofa", 0, 0)], seen=(0, 1)), UNREAD]
        assert belief_columns(maps) == {"belief_precision": 0.5, "belief_recall": 0.5, "belief_error_m": 0.0}
        assert belief_columns([UNREAD]) == {}


def row(number: int, score: float) -> ResultRow:
    return ResultRow(
        number=number, id=str(number), dataset="d", scene_name="s", question_type="object_counting", question="?",
        ground_truth="1", answer="1", score=score, status="answered", failed_part=None, error=None, turns=1,
        parse_errors=0, seconds=0.0,
    )  # fmt: skip


def test_a_run_is_summed_up_by_turn_and_by_whether_the_map_is_right():
    question = "Where is the chair?"
    maps = {
        EpisodeId(1): [belief([], (), question), belief(TRUE, ALL, question)],
        EpisodeId(2): [belief(TRUE[2:], (2, 3), question), UNREAD],
        EpisodeId(3): [Belief((Believed("bed", 0, 0),), reply=Reply("[]"), batch=("3",))],
    }
    found = beliefs_of([row(1, 1.0), row(2, 0.25), row(3, 1.0)], maps)
    assert (found.maps, found.unread, found.unscored) == (5, 1, 1)
    first, second = found.by_turn
    assert (first.answers, first.precision, first.recall, first.coverage) == (2, 1.0, 0.5, 0.125)
    assert (second.answers, second.precision, second.recall, second.coverage) == (1, 1.0, 0.75, 0.75)
    assert found.right_map == MapGroup(answers=1, percent=100.0)
    assert found.wrong_map == MapGroup(answers=1, percent=25.0)
    lines = belief_lines(found)
    shares = "precision 1.00 (n=1), recall 0.50 (n=1), error (m) 0.00 (n=1), coverage 0.12"
    assert lines[0] == f"map after turn 0: {shares}, invented 0.00, lost 0.00 (n=2)"
    assert lines[-2:] == [
        "1 of 5 maps could not be read",
        "1 of 5 maps are not scored: no boxes that fit their scans are known",
    ]
    assert belief_lines(None) == []
