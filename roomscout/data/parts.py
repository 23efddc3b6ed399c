"""Divides a run into parts of whole scenes, deterministically."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from roomscout.base.errors import SettingError

if TYPE_CHECKING:
    from roomscout.data.benchmark import Benchmark
    from roomscout.data.questions import Question


class Part(NamedTuple):
    """Part `number`, from 1, of a run divided into `of` parts."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The part that "2/8" names; raises ValueError."""
        match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"takes I/N with I from 1 to N, such as 2/8 (for SLURM arrays: --array=1-8), got {text}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def cut(questions: "Sequence[Question]", of: int, benchmark: "Benchmark") -> "list[list[Question]]":
    """Divide questions into `of` parts; each keeps the order of `questions`. Scenes are never divided, so each scan is
    loaded by one part, nor are pairs. Assigns scenes in descending order of their number of questions, each to the part
    with the fewest so far; ties go to the first scene and the lowest part. Raises ValueError for fewer scenes than
    parts."""
    sizes = Counter(map(benchmark.undivided, questions))
    if len(sizes) < of:
        raise ValueError(
            f"{len(sizes)} scene{'s' * (len(sizes) > 1)} cannot be cut into {of} parts: each part needs at least one"
        )
    loads = [0] * of
    part_of = {}
    for scene in sorted(sizes, key=lambda scene: -sizes[scene]):
        part_of[scene] = loads.index(min(loads))
        loads[part_of[scene]] += sizes[scene]
    return [[each for each in questions if part_of[benchmark.undivided(each)] == part] for part in range(of)]


def part_of(whole: "Sequence[Question]", shard: str | None, benchmark: "Benchmark") -> "Sequence[Question]":
    """The questions of `whole` to ask: all, or those of the part that "2/8" names; SettingError for too few scenes."""
    if shard is None:
        return whole
    part = Part.parse(shard)
    try:
        return cut(whole, part.of, benchmark)[part.number - 1]
    except ValueError as error:
        raise SettingError(str(error), setting="shard", value=shard) from None
