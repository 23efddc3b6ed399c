"""The conditions under which a run answers, derived from its settings: one hash, what differs, and a sentence."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roomscout.base.errors import as_words
from roomscout.data.benchmarks import DEFAULT, benchmark_names, find_benchmark

if TYPE_CHECKING:
    from roomscout.runs.records import RunFacts

OF_MODEL = ("engine", "revision", "adapter_sha256", "dtype", "quantize")  # what the sentence says of a model as well
SHORT = 12  # the digits of a hash that texts have; JSON files have all 64


def hash_of(conditions: Mapping[str, Any]) -> str:
    """The SHA-256 of conditions: of their names and values, sorted by name."""
    text = json.dumps(conditions, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_blind_run_of(facts: "RunFacts", other: "RunFacts") -> bool:
    """Whether `other` is the run of `facts` with grey views: equal questions, answerer and other conditions."""
    return (
        other.is_blind
        and other.questions_sha256 == facts.questions_sha256
        and other.conditions | {"renderer": facts.setting("renderer")} == facts.conditions
        and other.answerer == facts.answerer
        and other.scoring == facts.scoring
    )


def protocol_of(facts: "RunFacts") -> str:
    """The conditions in a sentence for people alone, as name=value: basics, what is not default, and hashes."""
    values = facts.conditions | {name: facts.answerer[name] for name in OF_MODEL if name in facts.answerer}
    # The flags of a run are those of all settings that differ from their defaults.
    flags = [word.removeprefix("--") for word in facts.flags if word.startswith("--")]
    changed = {word.removeprefix("no-").replace("-", "_") for word in flags}
    basics = _basics(facts)
    others = [name for name in values if name not in basics and (name in changed or name not in facts.config)]
    parts = ["BLIND, every view grey"] if facts.is_blind else []
    parts += ["video protocol"] if facts.frames is not None else []
    parts += [f"{name}={_in_words(values[name])}" for name in (*basics, *others) if values.get(name) not in (None, [])]
    official = facts.setting("benchmark") == DEFAULT and (facts.source is None or facts.source.own)
    return ", ".join([*parts, f"{'official ' if official else ''}{_title(facts)} scoring"])


def _basics(facts: "RunFacts") -> list[str]:
    setting = facts.setting
    if facts.frames is not None:
        return ["frames", "image_size", "temperature"]
    mover = "moves"
    if setting("moves_of"):
        mover = "moves_of"
    elif "path" in setting("given"):
        mover = "given"
    steps = [] if setting("moves") == "none" else ["steps"]
    return [mover, *steps, "image_size", "renderer", "temperature", "prompts"]


def _in_words(value: Any) -> str:
    text = as_words(value)
    return text[:SHORT] if re.fullmatch("[0-9a-f]{64}", text) else text


def _title(facts: "RunFacts") -> str:
    """The title of the benchmark; the name of code that the run does not describe, since reading executes none."""
    name = facts.setting("benchmark")
    if facts.benchmark is not None:
        return facts.benchmark.title
    return find_benchmark(name).title if name in benchmark_names() else str(name)
