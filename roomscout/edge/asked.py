"""Which questions a run asks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roomscout.base.errors import ConfigError
from roomscout.data.benchmark import Benchmark
from roomscout.data.parts import Part, cut
from roomscout.data.questions import Question, Selection, select_questions
from roomscout.edge.sections import FILTERS
from roomscout.edge.settings import Settings
from roomscout.runs.reader import RunReader


def selected(settings: Settings, benchmark: Benchmark) -> Selection:
    """The questions that the settings choose, and all those of their source; raises QuestionError."""
    filters: Any = {name: getattr(settings, name) for name in FILTERS}
    return select_questions(settings.questions, benchmark, **filters)


def questions_again(folder: Path, settings: Settings, benchmark: Benchmark, named: bool = False) -> Sequence[Question]:
    """All questions of the run in `folder`, from its own copy, or from their source if their file was `named` again or
    is another one; raises RunError if that has other questions."""
    reader = RunReader(folder)
    file = reader.facts.config["questions"]
    is_same = settings.questions == (None if file is None else Path(file))
    whole = reader.questions if is_same and not named else selected(settings, benchmark).questions
    reader.require_questions(part_of(whole, settings.shard), whole)
    return whole


def part_of(whole: Sequence[Question], shard: str | None) -> Sequence[Question]:
    """The questions of `whole` to ask: all, or those of --shard; raises ConfigError if there are too few scenes."""
    if shard is None:
        return whole
    part = Part.parse(shard)
    try:
        return cut(whole, part.of)[part.number - 1]
    except ValueError as error:
        raise ConfigError(f"--shard {part}: {error}") from None
