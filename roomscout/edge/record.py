"""What a run records of itself, with the conditions of its answers, and the words that resume it."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roomscout import SCRIPT
from roomscout.agent.play import LANGUAGES
from roomscout.agent.policies.prompts import Prompts, sha256_of
from roomscout.agent.spec import QuestionSpec, RecordSpec, WorldSpec, with_renderer
from roomscout.agent.state import Rules
from roomscout.data.benchmark import VideoProtocol
from roomscout.data.benchmark_folders import BENCHMARK_YAML
from roomscout.data.benchmarks import benchmark_names
from roomscout.data.questions import fingerprint
from roomscout.edge.basis import Basis
from roomscout.edge.declaring import Role
from roomscout.edge.resuming import changed_since
from roomscout.edge.settings import ANSWER_SETTINGS, VERB_WORDS, Settings, flags_giving, flags_of, names_of
from roomscout.models import NO_EFFECT
from roomscout.models.adapters import adapter_sha256
from roomscout.models.transformers.source import checkpoint_of, hub_revision
from roomscout.runs.conditions import hash_of
from roomscout.runs.prices import Price, read_price
from roomscout.runs.reader import RunReader
from roomscout.runs.records import PartRecord, RecordedPrompts, RunFacts

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
        more_budget=[] if budget is None else flags_of(changes | {"budget": 2 * budget}),
        conditions=conditions_of(values, prompts, basis.video, rules.native),
        scoring=scoring_of(values),
        answerer=answerer_of(values),
        changed=changes,
        part=PartRecord(part.number, part.of, len(whole), fingerprint(whole), OF_PART) if part else None,
        prompts=prompts,
        probe=_probe_of(rules) if prompts else None,
        revision=hub_revision(checkpoint_of(settings.model, settings.revision)) if has_checkpoint else None,
        price=price_of(settings, basis.facts),
        budget=budget,
        retry_failed=basis.request.retry_failed,
    )


def _probe_of(rules: Rules) -> RecordedPrompts | None:
    templates = {"map": rules.probe}
    return RecordedPrompts(sha256_of(templates), templates) if rules.probe else None


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


def price_of(settings: Settings, facts: RunFacts | None) -> Price | None:
    """The price of the model by --prices, whose file may be gone when a run resumes; raises ConfigError."""
    path = settings.prices
    recorded = None if facts is None else facts.price
    if path is None or (recorded is not None and not path.exists()):
        return recorded
    return read_price(path, settings.model)


def conditions_of(
    settings: Mapping[str, Any], prompts: Prompts | None, video: VideoProtocol | None = None, native: bool = False
) -> dict[str, Any]:
    """The settings under which a run answers, as resolved, with prompts (None without a model in a scan) and code by
    their hash. "video_input" says whether frames of a video protocol are shown as images or, if `native`, as one
    video."""
    found = _those_with(Role.ANSWER, settings) | {"prompts": prompts and prompts.sha256}
    found["generation"] = [each for each in settings["generation"] if _has_effect(each, settings)]
    found |= _by_hash("actions", settings["actions"], _code_sha256(settings["actions"]))
    if settings["moves_of"] is not None:
        found |= _by_hash("moves_of", settings["moves_of"], _run_sha256(Path(settings["moves_of"])))
    if video is not None:
        found["video_words"] = hashlib.sha256(json.dumps(asdict(video), sort_keys=True).encode()).hexdigest()
        found["video_input"] = "native" if native else "frames"
    return found


def _has_effect(parameter: str, settings: Mapping[str, Any]) -> bool:
    """Whether a parameter of sampling can change a reply. At temperature 0 only penalties can. A value of NO_EFFECT can
    at a server of others alone, whose own default it replaces."""
    name, _, value = parameter.partition("=")
    neutral = NO_EFFECT.get(name)  # None for the word that stands for those of a checkpoint that is not here
    if settings["temperature"] == 0 and name in ("top_p", "top_k", "min_p"):
        return False
    return neutral is None or settings["engine"] == "openai" or float(value) != neutral


def scoring_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of how answers are scored, with a benchmark that is not of this package by its hash."""
    found = _those_with(Role.SCORING, settings)
    name = settings["benchmark"]
    if name in benchmark_names():
        return found
    return found | _by_hash("benchmark", name, _sha256(Path(name, BENCHMARK_YAML)) or _code_sha256(name))


def answerer_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of what answers, with the weights of an adapter, the code of a policy and what people
    read by their hash."""
    found = _those_with(Role.ANSWERER, settings)
    if settings["instructions"] is not None:
        found |= _by_hash("instructions", str(settings["instructions"]), _sha256(Path(settings["instructions"])))
    if settings["words"] not in LANGUAGES:
        found |= _by_hash("words", settings["words"], _sha256(Path(settings["words"])))
    if code := _code_sha256(settings["policy"] or ""):
        found["policy_sha256"] = code
    if settings["adapter"] is not None:
        found["adapter_sha256"] = adapter_sha256(Path(settings["adapter"]))
    return found


def _those_with(role: Role, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in sorted(names_of(role))}


def _by_hash(name: str, path: str, sha256: str | None) -> dict[str, Any]:
    """A setting as the last part of its path and the hash of what is there, so that its folder does not count."""
    return {name: Path(path).name, f"{name}_sha256": sha256} if sha256 else {}


def _run_sha256(folder: Path) -> str:
    """A hash of what identifies a run, and does not change when it is resumed or its folder is moved."""
    facts = RunReader(folder).facts
    names = ("started", "host", "questions_sha256", "conditions", "answerer")
    return hash_of({name: getattr(facts, name) for name in names})


def _code_sha256(name: str) -> str | None:
    """The hash of the file that `path/to/file.py:NAME` or `module:NAME` names; None for other names."""
    source, _, _ = name.rpartition(":")
    if not source:
        return None
    spec = None if source.endswith(".py") else find_spec(source)
    file = source if spec is None or spec.origin is None else spec.origin
    return _sha256(Path(file))


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
