"""Where a policy believes objects to be: its maps after turns, how right they are, and what that says of a run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError

from roomscout.base.grouping import grouped
from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record, adapter_of, reasons
from roomscout.base.text import counted
from roomscout.data.benchmark import mean
from roomscout.data.boxes import Needed, ObjectBox, category_named
from roomscout.models import Reply
from roomscout.rendering.camera import CameraPose
from roomscout.scoring.scores import EpisodeId, ResultRow

RIGHT_M = 1.0  # an object is rightly placed at most so far from the centre of its box, seen from above
MOST_CHARACTERS = 300  # of what is wrong with a map, which may be long
BELIEF_COLUMNS = ("belief_precision", "belief_recall", "belief_error_m")  # of results.csv: those of the last map

Metres = Annotated[float, Field(strict=True, ge=-1000, le=1000)]


@dataclass(frozen=True)
class Believed:
    """An object and where it is believed to be, from where the camera was and looked at the start."""

    object: Annotated[str, Field(min_length=1, max_length=80)]
    forward_m: Metres
    left_m: Metres

    def place(self, start: CameraPose) -> np.ndarray:
        """(2,) where that is on the floor plan, metres; `start` is the pose of turn 0."""
        place: np.ndarray = (start.position + self.forward_m * start.forward + self.left_m * start.left)[:2]
        return place


@dataclass(frozen=True)
class MapScore:
    """A map against the boxes of its scan, which are numbered from 0 in the order of their file."""

    boxes: int  # how many there are
    seen: tuple[int, ...]  # those whose objects a view up to the turn has shown well
    right: tuple[int, ...]  # those of `seen` that the map places rightly
    error_m: float | None  # the mean distance of those of `seen` that it names to where it has them; None for none
    invented: int  # how many objects it has of categories that are nowhere in the room, or beyond those that exist
    needed_right: bool | None  # whether all objects that the question needs are in `right`; None if it names none


@dataclass(frozen=True)
class Belief:
    """What a policy believes after a turn, asked outside the conversation."""

    objects: tuple[Believed, ...] = ()  # none if the reply could not be read
    error: OmittedIfNone[str | None] = None  # why it could not
    score: OmittedIfNone[MapScore | None] = None  # None where no boxes are known
    reply: Reply = field(default_factory=lambda: Reply(""))  # empty for policies without a model
    batch: tuple[str, ...] = ()  # the questions of the call

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 to 1; 0 without a score, or if nothing is right."""
        score = self.score
        return 2 * len(score.right) / (len(self.objects) + len(score.seen)) if score and score.right else 0.0

    @property
    def in_words(self) -> str:
        """The objects with their places, and how many are right."""
        if self.error is not None:
            return f"no map: {self.error}"
        places = [f"{item.object} ({item.forward_m:.1f}, {item.left_m:.1f})" for item in self.objects]
        said = ", ".join(places) or "nothing"
        if self.score is None:
            return said
        return f"{said}; {len(self.score.right)} right, {len(self.score.seen)} seen so far"


Maps = Mapping[EpisodeId, Sequence[Belief]]
"""The maps of episodes by turn."""


def believed(values: Sequence[object]) -> tuple[Believed, ...]:
    """The objects of a parsed JSON list; raises ValueError unless each has a name and a place within 1000 m."""
    try:
        objects: tuple[Believed, ...] = adapter_of(tuple[Believed, ...]).validate_python(values)
    except ValidationError as error:
        raise ValueError(reasons(error)[:MOST_CHARACTERS]) from None
    return objects


def map_score(
    objects: Sequence[Believed],
    boxes: Sequence[ObjectBox],
    start: CameraPose,
    seen: Sequence[int],
    needed: Sequence[Needed],
) -> MapScore:
    """A map against the boxes of its scan, of which those at the places `seen` were in view; `start` is the pose of
    turn 0, and `needed` what the question needs. In each category, objects and seen boxes are matched so that the sum
    of their distances is the least."""
    existing = Counter[str | None](box.category for box in boxes)
    by_category = grouped((category_named(item.object, boxes), item) for item in objects)
    invented = sum(max(0, len(named) - existing[category]) for category, named in by_category.items())
    away = dict[int, float]()
    for category, named in by_category.items():
        places = [place for place in seen if boxes[place].category == category]
        away |= _matched(named, {place: boxes[place] for place in places}, start)
    right = tuple(place for place in sorted(away) if away[place] <= RIGHT_M)
    placed = [id(boxes[place]) for place in right]
    enough = [sum(id(box) in placed for box in of_kind.boxes) >= of_kind.enough for of_kind in needed]
    return MapScore(
        boxes=len(boxes),
        seen=tuple(seen),
        right=right,
        error_m=_mean(away.values()),
        invented=invented,
        needed_right=all(enough) if enough else None,
    )


def _matched(named: Sequence[Believed], boxes: Mapping[int, ObjectBox], start: CameraPose) -> dict[int, float]:
    """How far each box is from the object that it is matched with, metres, without those that have none."""
    from scipy.optimize import linear_sum_assignment

    if not boxes:
        return {}
    actual = np.array([box.center[:2] for box in boxes.values()])
    places = np.array([item.place(start) for item in named])
    distances = np.linalg.norm(places[:, None] - actual[None], axis=-1)
    rows, columns = linear_sum_assignment(distances)
    numbers = list(boxes)
    return {numbers[column]: round(distances[row, column], 6) for row, column in zip(rows, columns, strict=True)}


@dataclass(frozen=True, kw_only=True)
class MapFigures(Record):
    """How right the maps after a turn are: means over those that have the figure, shares from 0 to 1."""

    turn: int  # from 0
    answers: int = 1  # how many maps these are
    precision: float | None  # of the believed objects, those right; None without objects
    recall: float | None  # of the objects seen so far, those right; None if none was seen
    error_m: float | None  # the mean error of a place, metres; None if no object is named that was seen
    coverage: float | None  # of all objects of the scan, those right
    invented: float | None  # objects that are not in the room
    lost: float | None  # objects that an earlier map had right
    of: OmittedIfEmpty[dict[str, int]] = field(default_factory=dict)  # how many maps have a figure, where not all do


FIGURES = ("precision", "recall", "error_m", "coverage", "invented", "lost")


def figures_by_turn(maps: Sequence[Belief]) -> dict[int, MapFigures]:
    """How right each map of an episode is, by turn, without those that could not be read or have no boxes."""
    figures = {}
    ever = set[int]()
    for turn, belief in enumerate(maps):
        score = belief.score
        if score is None or belief.error is not None:
            continue
        right = len(score.right)
        figures[turn] = MapFigures(
            turn=turn,
            precision=right / len(belief.objects) if belief.objects else None,
            recall=right / len(score.seen) if score.seen else None,
            error_m=score.error_m,
            coverage=right / score.boxes,
            invented=score.invented,
            lost=len(ever.difference(score.right)),
        )
        ever.update(score.right)
    return figures


@dataclass(frozen=True, kw_only=True)
class MapGroup(Record):
    """Answers by whether their last map has what their question needs: how many, and their mean score in percent."""

    answers: int
    percent: float


@dataclass(frozen=True, kw_only=True)
class Beliefs(Record):
    """What the maps of a run say."""

    maps: int  # how many were asked for
    unread: int  # how many could not be read
    unscored: int  # how many could be, of scans without known boxes
    by_turn: tuple[MapFigures, ...]  # turns with scored maps
    right_map: OmittedIfNone[MapGroup | None] = None  # answers whose last map has all needed objects right
    wrong_map: OmittedIfNone[MapGroup | None] = None  # those whose last map does not


def beliefs_of(rows: Iterable[ResultRow], maps: Maps) -> Beliefs:
    """What the maps of a run's answers say."""
    every = [belief for of_episode in maps.values() for belief in of_episode]
    by_turn = grouped(pair for of_episode in maps.values() for pair in figures_by_turn(of_episode).items())
    by_map = grouped(
        (_needed_right(maps[row.episode]), row.score) for row in rows if row.score is not None and not row.failed
    )
    groups = {
        right: MapGroup(answers=len(scores), percent=round(100 * mean(scores), 2)) for right, scores in by_map.items()
    }
    return Beliefs(
        maps=len(every),
        unread=sum(belief.error is not None for belief in every),
        unscored=sum(belief.error is None and belief.score is None for belief in every),
        by_turn=tuple(_at(turn, by_turn[turn]) for turn in sorted(by_turn)),
        right_map=groups.get(True),
        wrong_map=groups.get(False),
    )


def _needed_right(maps: Sequence[Belief]) -> bool | None:
    """Whether the last map that could be read has all needed objects right; None if that is not known."""
    scores = [belief.score for belief in maps if belief.error is None and belief.score is not None]
    return scores[-1].needed_right if scores else None


def _at(turn: int, maps: Sequence[MapFigures]) -> MapFigures:
    known = {name: [value for each in maps if (value := getattr(each, name)) is not None] for name in FIGURES}
    means = {name: _mean(values) for name, values in known.items()}
    of = {name: len(values) for name, values in known.items() if len(values) < len(maps)}
    return MapFigures(turn=turn, answers=len(maps), of=of, **means)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(mean(known), 4) if known else None


def belief_columns(maps: Sequence[Belief]) -> dict[str, Any]:
    """An answer's values of BELIEF_COLUMNS; none without a scored map."""
    figures = figures_by_turn(maps)
    if not figures:
        return {}
    last = figures[max(figures)]
    return dict(zip(BELIEF_COLUMNS, (last.precision, last.recall, last.error_m), strict=True))


def belief_lines(record: Beliefs | None) -> list[str]:
    """What the maps of a run say, as lines of text; none if it did not ask for them."""
    if record is None:
        return []
    lines = []
    for after in record.by_turn:
        known = {name: value for name in FIGURES if (value := getattr(after, name)) is not None}
        fewer = {name: f" (n={number})" for name, number in after.of.items()}
        means = [f"{name.replace('_m', ' (m)')} {value:.2f}{fewer.get(name, '')}" for name, value in known.items()]
        lines.append(f"map after turn {after.turn}: {', '.join(means)} (n={after.answers})")
    for words, group in (("right", record.right_map), ("not right", record.wrong_map)):
        if group is not None:
            where = f"score where the last map has what is asked about {words}"
            lines.append(f"{where}: {group.percent:.1f} % (n={group.answers})")
    maps = counted(record.maps, "map")
    if record.unread:
        lines.append(f"{record.unread} of {maps} could not be read")
    if record.unscored:
        lines.append(f"{record.unscored} of {maps} are not scored: no boxes that fit their scans are known")
    return lines
