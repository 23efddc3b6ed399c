"""What a run's folder says of it."""

from pathlib import Path
from typing import Any

from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.spec import QuestionSpec, RecordSpec
from roomscout.base.errors import ConfigError
from roomscout.data.parts import Part
from roomscout.data.questions import Question, fingerprint
from roomscout.data.video_protocol import VideoProtocol
from roomscout.edge.conditions import answerer_of, conditions_of
from roomscout.edge.declaring import Role
from roomscout.edge.resuming import changed_since
from roomscout.edge.settings import ANSWER_SETTINGS, Settings, flags_giving, flags_of, names_of
from roomscout.runs.prices import Price, read_price
from roomscout.runs.reader import RunReader
from roomscout.runs.records import PartRecord


def record_of(
    settings: Settings,
    questions: QuestionSpec,
    prompts: Prompts | None,
    video: VideoProtocol | None,
    revision: str | None,
    folder: Path | None,
) -> RecordSpec:
    """What run.json says of a run with these resolved settings, whose model reads `prompts` or frames of a video, and
    whose checkpoint is of this `revision`."""
    values = settings.as_json | (of_one(questions.here[0]) if questions.is_one else {})
    facts = RunReader(folder).facts if folder is not None else None
    changes = {} if facts is None else changed_since(facts.config, values)
    return RecordSpec(
        folder=folder,
        log_root=settings.log_root,
        name=settings.name,
        settings=values,
        flags=flags_giving(values),
        conditions=conditions_of(settings, prompts, video),
        answerer=answerer_of(settings),
        scoring=settings.with_role(Role.SCORING),
        changed=changes,
        resume_flags=flags_of(changes),
        part=_part_record(settings.shard, questions) if settings.shard is not None else None,
        prompts=prompts,
        revision=revision,
        price=_price_of(settings.prices, settings.model, facts.price if facts is not None else None),
        budget=settings.budget,
        retry_failed=settings.retry_failed,
    )


def of_one(question: Question) -> dict[str, Any]:
    """The settings that ask one question about a scan file."""
    return {
        "question": question.question,
        "options": list(question.options),
        "question_type": question.question_type,
        "ground_truth": question.ground_truth,
    }


def _part_record(shard: str, questions: QuestionSpec) -> PartRecord:
    """The part of all questions that --shard selects, for run.json."""
    part, whole = Part.parse(shard), questions.asked.questions
    settings = tuple(name for name in (*ANSWER_SETTINGS, *names_of(Role.RECORD)) if name != "shard")
    return PartRecord(part.number, part.of, len(whole), fingerprint(whole), settings)


def _price_of(path: Path | None, model: str, recorded: Price | None) -> Price | None:
    """The price of a run's model by --prices; None without it.

    A run that resumes reads the file again, and keeps the price that it has if the file is gone. Raises ConfigError.
    """
    if path is None or (recorded is not None and not path.exists()):
        return recorded
    try:
        return read_price(path, model)
    except ValueError as error:
        raise ConfigError(str(error)) from None
