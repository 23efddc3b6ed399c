"""The conditions of a run's answers, derived from its settings."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roomscout.agent.policies.prompts import Prompts
from roomscout.data.video_protocol import VideoProtocol
from roomscout.edge.declaring import Role
from roomscout.edge.settings import names_of
from roomscout.models.adapters import adapter_sha256


def conditions_of(
    settings: Mapping[str, Any], prompts: Prompts | None, video: VideoProtocol | None = None
) -> dict[str, Any]:
    """The settings under which a run answers, as resolved, with the words that a model reads and code by their hash.

    `prompts` are those of a model in a scan, None for a policy without one.
    """
    found = _those_with(Role.ANSWER, settings) | {"prompts": prompts and prompts.sha256}
    if video is not None:
        found["words"] = hashlib.sha256(json.dumps(asdict(video), sort_keys=True).encode()).hexdigest()
    if code := _code_sha256(settings["actions"]):
        found["actions_sha256"] = code
    return found


def answerer_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of what answers, with the weights of an adapter and the code of a policy by their hash."""
    found = _those_with(Role.ANSWERER, settings)
    if settings["adapter"] is not None:
        found["adapter_sha256"] = adapter_sha256(Path(settings["adapter"]))
    if code := _code_sha256(settings["policy"] or ""):
        found["policy_sha256"] = code
    return found


def _those_with(role: Role, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in sorted(names_of(role))}


def _code_sha256(name: str) -> str | None:
    """The hash of the file that `path/to/file.py:NAME` or `module:NAME` names; None for other names."""
    source, _, _ = name.rpartition(":")
    if not source:
        return None
    spec = None if source.endswith(".py") else find_spec(source)
    path = Path(source if spec is None or spec.origin is None else spec.origin)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
