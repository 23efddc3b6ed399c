"""The conditions of a run's answers, what gives them and how they are scored, derived from its settings."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roomscout.agent.policies.prompts import Prompts
from roomscout.data.benchmark_folders import BENCHMARK_YAML
from roomscout.data.benchmarks import benchmark_names, is_code
from roomscout.data.video_protocol import VideoProtocol
from roomscout.edge.declaring import Role
from roomscout.edge.settings import names_of
from roomscout.models.adapters import adapter_sha256
from roomscout.runs.conditions import hash_of
from roomscout.runs.reader import RunReader


def conditions_of(
    settings: Mapping[str, Any], prompts: Prompts | None, video: VideoProtocol | None = None, native: bool = False
) -> dict[str, Any]:
    """The settings under which a run answers, as resolved, with prompts (None without a model in a scan) and code by
    their hash. "video_input" says whether frames of a video are shown as images or, if `native`, as one video."""
    found = _those_with(Role.ANSWER, settings) | {"prompts": prompts and prompts.sha256}
    found |= _by_hash("actions", settings["actions"], _code_sha256(settings["actions"]))
    if settings["moves_of"] is not None:
        found |= _by_hash("moves_of", settings["moves_of"], _run_sha256(Path(settings["moves_of"])))
    if video is not None:
        found["words"] = hashlib.sha256(json.dumps(asdict(video), sort_keys=True).encode()).hexdigest()
        found["video_input"] = "native" if native else "frames"
    return found


def scoring_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of how answers are scored, with a benchmark that is not of this package by its hash."""
    found = _those_with(Role.SCORING, settings)
    name = settings["benchmark"]
    if name in benchmark_names():
        return found
    sha256 = _code_sha256(name) if is_code(name) else _sha256(Path(name, BENCHMARK_YAML))
    return found | _by_hash("benchmark", name, sha256)


def answerer_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of what answers, with the weights of an adapter, code and what people read by their hash."""
    found = _those_with(Role.ANSWERER, settings)
    if settings["instructions"] is not None:
        found |= _by_hash("instructions", str(settings["instructions"]), _sha256(Path(settings["instructions"])))
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
