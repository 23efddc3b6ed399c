"""What a run records of itself, and the words that resume it."""

import sys
from pathlib import Path
from typing import Any

from roomscout import SCRIPT
from roomscout.agent.spec import QuestionSpec, RecordSpec, WorldSpec, with_renderer
from roomscout.agent.state import Rules
from roomscout.data.questions import fingerprint
from roomscout.edge.basis import Basis
from roomscout.edge.conditions import answerer_of, conditions_of, scoring_of
from roomscout.edge.declaring import Role
from roomscout.edge.resuming import changed_since
from roomscout.edge.settings import ANSWER_SETTINGS, VERB_WORDS, Settings, flags_giving, flags_of, names_of
from roomscout.models.transformers.source import checkpoint_of, hub_revision
from roomscout.runs.prices import Price, read_price
from roomscout.runs.records import PartRecord, RunFacts

OF_PART = tuple(name for name in (*ANSWER_SETTINGS, *names_of(Role.RECORD)) if name != "shard")
"""Settings that the parts of a run have in common."""


def record_of(basis: Basis, world: WorldSpec, rules: Rules) -> RecordSpec:
    """What run.json says of the run; raises ConfigError for a file of prices."""
    settings = basis.settings
    reads = (basis.policy is None or basis.policy.reads_prompts) and basis.video is None
    prompts = rules.prompts if reads else None
    asked = asked_for(settings, world, basis.questions)
    values = with_renderer(asked, world.renderer)
    changes = {} if basis.facts is None else changed_since(basis.facts.config, values)
    part = settings.part
    whole = basis.questions.asked.questions
    has_checkpoint = (prompts or basis.video) and settings.engine != "openai"
    budget = settings.budget
    return RecordSpec(
        folder=None if basis.request.run is None else basis.request.run.folder,
        log_root=settings.log_root,
        name=settings.name,
        asked=asked,
        renderer=world.renderer,
        flags=flags_giving(asked),
        resume_words=resume_words(),
        resume_flags=flags_of(changes),
        more_budget=[] if budget is None else flags_of({"budget": 2 * budget}),
        conditions=conditions_of(values, prompts, basis.video, rules.native),
        scoring=scoring_of(values),
        answerer=answerer_of(values),
        changed=changes,
        part=PartRecord(part.number, part.of, len(whole), fingerprint(whole), OF_PART) if part else None,
        prompts=prompts,
        revision=hub_revision(checkpoint_of(settings.model, settings.revision)) if has_checkpoint else None,
        price=_price(settings, basis.facts),
        budget=budget,
        retry_failed=basis.request.retry_failed,
    )


def asked_for(settings: Settings, world: WorldSpec, questions: QuestionSpec) -> dict[str, Any]:
    """The settings as JSON values, with what was asked."""
    asked: dict[str, Any] = {"batch": not questions.is_one}
    if questions.is_one:
        question = questions.here[0]
        asked |= {"ply": str(world.ply), "question": question.question, "options": list(question.options)}
        asked["ground_truth"] = question.ground_truth
    return VERB_WORDS | asked | settings.as_json


def resume_words() -> list[str]:
    """The words of a command that resumes a run, before its folder."""
    if Path(sys.argv[0]).name == "roomscout":
        return ["roomscout", "resume"]
    return [*script_words(), "--continue"]


def script_words() -> list[str]:
    """How Python starts the command that takes flags."""
    return [sys.executable, *([str(SCRIPT)] if SCRIPT.exists() else ["-m", "roomscout"])]


def _price(settings: Settings, facts: RunFacts | None) -> Price | None:
    """The price of the model by --prices, whose file may be gone when a run resumes; raises ConfigError."""
    path = settings.prices
    recorded = None if facts is None else facts.price
    if path is None or (recorded is not None and not path.exists()):
        return recorded
    return read_price(path, settings.model)
