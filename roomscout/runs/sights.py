"""What was in view in the turns of an answer: the lines of seen.jsonl, and how they split the errors of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roomscout.base.record import Record
from roomscout.base.tables import Table
from roomscout.data.benchmark import mean
from roomscout.runs.records import EpisodeId, ResultRow

SIGHTS = {  # what an answer's views showed of the objects that its question needs
    "never_saw": "an object that the question needs was never in view",
    "saw_little": "all objects that the question needs were in view, but one only at a few pixels",
    "saw": "all objects that the question needs were in view",
    "no_object": "the question names no object with a known box",
}


@dataclass(frozen=True)
class SeenObjects(Record):
    """The objects of one category that a question names."""

    category: str
    needed: int  # all if the question counts them, else one
    pixels: tuple[tuple[int, ...], ...]  # for each object, at how many pixels of each turn's view it was in sight

    @property
    def seen(self) -> int:
        """How many of the objects were in view in some turn."""
        return sum(max(by_turn, default=0) > 0 for by_turn in self.pixels)

    @property
    def most_pixels(self) -> int:
        """The pixels of the best view of each object; of those needed, the least. 0 if one was never in view."""
        return sorted((max(by_turn, default=0) for by_turn in self.pixels), reverse=True)[self.needed - 1]

    @property
    def first_turn(self) -> int | None:
        """The first turn by which all needed objects had been in view; None if they never were."""
        first = [next((turn for turn, count in enumerate(by_turn) if count), None) for by_turn in self.pixels]
        turns = sorted(turn for turn in first if turn is not None)
        return turns[self.needed - 1] if len(turns) >= self.needed else None

    @property
    def in_words(self) -> str:
        """How well the objects were in view, such as "2 of 7 picture never in view"."""
        name = self.category
        most = self.most_pixels
        if self.needed > 1:
            if not most:
                return f"{self.needed - self.seen} of {self.needed} {name} never in view"
            return f"{self.needed} of {self.needed} {name}, each at {most} pixels or more"
        return f"{name} at {most} pixels" if most else f"{name} never in view"

    def at(self, turn: int) -> list[int]:
        """The pixels of each object of the category that the view of a turn shows."""
        return [by_turn[turn] for by_turn in self.pixels if by_turn[turn]]


@dataclass(frozen=True)
class Sight(Record):
    """A line of seen.jsonl: what was in view in an answer."""

    number: int  # of the question, from 1
    sample: int  # of the answer, from 1
    surface: tuple[float, ...]  # the share of the scan's surface seen up to each turn
    boxes: bool  # whether any boxes of its scan are known
    objects: tuple[SeenObjects, ...]  # that the question names, by category
    enough: int  # at how many pixels an object is seen well
    made_of: str  # a hash of the turns, the scan and the boxes

    @property
    def episode(self) -> EpisodeId:
        """Which answer to which question this is about."""
        return EpisodeId(self.number, self.sample)

    @property
    def verdict(self) -> str | None:
        """A key of SIGHTS; None if no boxes of the scan are known."""
        if not self.boxes:
            return None
        least = self.least_pixels
        if least is None:
            return "no_object"
        if not least:
            return "never_saw"
        return "saw_little" if least < self.enough else "saw"

    @property
    def least_pixels(self) -> int | None:
        """The `most_pixels` of the category that was seen worst; None without objects."""
        return min((category.most_pixels for category in self.objects), default=None)

    @property
    def first_turn(self) -> int | None:
        """The first turn by which all objects that the question needs had been in view; None if they never were."""
        turns = [category.first_turn for category in self.objects]
        seen = [turn for turn in turns if turn is not None]
        return max(seen) if seen and len(seen) == len(turns) else None

    @property
    def surface_seen(self) -> float | None:
        """The share of the scan's surface that all views together show."""
        return self.surface[-1] if self.surface else None

    @property
    def in_words(self) -> str:
        """How well each object that the question needs was in view, worst first; empty without objects."""
        worst_first = sorted(self.objects, key=lambda objects: (objects.most_pixels, objects.category))
        return ", ".join(objects.in_words for objects in worst_first)


@dataclass(frozen=True, kw_only=True)
class SightGroup(Record):
    """Answers whose views showed as much: how many score `below_full`, and their mean score in percent."""

    answers: int
    below_full: int
    percent: float

    @classmethod
    def of(cls, scores: Sequence[float]) -> "SightGroup":
        """The group of answers with these scores."""
        below = sum(score < 1 for score in scores)
        return cls(answers=len(scores), below_full=below, percent=round(100 * mean(scores), 2))


@dataclass(frozen=True, kw_only=True)
class SightSplit(Record):
    """How the scores of a run depend on what was in view."""

    enough_pixels: int
    surface_percent: float  # the mean share of the surface that was seen
    types: dict[str, dict[str, SightGroup]]  # by question type, and for "all", then by the keys of SIGHTS that occur


def split(rows: Iterable[ResultRow], sights: Mapping[EpisodeId, Sight]) -> SightSplit | None:
    """How the scores of all but failed questions depend on what was in view, of a pair those of its worse answer; None
    if nothing is known."""
    seen = [(row, sights[row.episode]) for row in rows if row.episode in sights and not row.failed]
    surfaces = [sight.surface_seen for _, sight in seen if sight.surface_seen is not None]
    if not surfaces:
        return None
    by_type: dict[str, dict[str, list[float]]] = {}
    for row, sight in seen:
        if sight.verdict is not None and row.score is not None:
            for name in (row.question_type, "all"):
                by_type.setdefault(name, {verdict: [] for verdict in SIGHTS})[sight.verdict].append(row.score)
    if "all" in by_type:
        by_type["all"] = by_type.pop("all")  # at the end
    return SightSplit(
        enough_pixels=seen[0][1].enough,
        surface_percent=round(100 * mean(surfaces), 2),
        types={
            name: {verdict: SightGroup.of(scores) for verdict, scores in groups.items() if scores}
            for name, groups in by_type.items()
        },
    )


def sight_table(by_sight: SightSplit) -> Table:
    """The answers by what was in view, of these the ones below full score, and their mean, by type; "all" has no mean,
    since types are scored unlike."""
    verdicts = [name for name in SIGHTS if name in by_sight.types["all"]]
    rows = []
    for name, groups in by_sight.types.items():
        of_type = [groups.get(verdict) for verdict in verdicts]
        means = ["" if name == "all" or group is None else f", {group.percent:.1f} %" for group in of_type]
        cells = [
            f"{group.answers} ({group.below_full} below{mean})" if group else "-"
            for group, mean in zip(of_type, means, strict=True)
        ]
        rows.append([name, *cells])
    return Table(["type", *(name.replace("_", " ") for name in verdicts)], rows)


SIGHT_COLUMNS = ("sight", "least_pixels", "first_turn", "surface_seen")  # of results.csv: what was in view


def columns_of(sight: Sight) -> dict[str, Any]:
    """An answer's values of SIGHT_COLUMNS; None for what is not known."""
    values = (sight.verdict, sight.least_pixels, sight.first_turn, sight.surface_seen)
    return dict(zip(SIGHT_COLUMNS, values, strict=True))
