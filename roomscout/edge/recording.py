"""What a run's folder says of it."""

from pathlib import Path
from typing import Any

from roomscout.agent.spec import QuestionSpec
from roomscout.base.errors import ConfigError
from roomscout.data.parts import Part
from roomscout.data.questions import Question, fingerprint
from roomscout.edge.declaring import Role
from roomscout.edge.settings import ANSWER_SETTINGS, names_of
from roomscout.runs.prices import Price, read_price
from roomscout.runs.records import PartRecord


def of_one(question: Question) -> dict[str, Any]:
    """The settings that ask one question about a scan file."""
    return {
        "question": question.question,
        "options": list(question.options),
        "ground_truth": question.ground_truth,
    }


def part_record(shard: str, questions: QuestionSpec) -> PartRecord:
    """The part of all questions that --shard selects, for run.json."""
    part, whole = Part.parse(shard), questions.asked.questions
    settings = tuple(name for name in (*ANSWER_SETTINGS, *names_of(Role.RECORD)) if name != "shard")
    return PartRecord(part.number, part.of, len(whole), fingerprint(whole), settings)


def price_of(path: Path | None, model: str, recorded: Price | None) -> Price | None:
    """The price of a run's model by --prices; None without it.

    A run that resumes reads the file again, and keeps the price that it has if the file is gone. Raises ConfigError.
    """
    if path is None or (recorded is not None and not path.exists()):
        return recorded
    try:
        return read_price(path, model)
    except ValueError as error:
        raise ConfigError(str(error)) from None
