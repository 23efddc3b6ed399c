"""What --demo runs: the main job on procedural rooms with the embedded model, nothing downloaded."""

import logging
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from agent.config import ConfigError, RunConfig
from data.questions import QUESTION_TYPES, VIDEO_ONLY_TYPES
from data.rooms import write_rooms

log = logging.getLogger(__name__)

DEMO_ROOMS = 2
DEMO_SETTINGS: dict[str, Any] = {"model": "embedded", "image_size": (320, 224), "focal": 150.0, "max_new_tokens": 48}
"""The demo's own defaults; a flag that was given wins over them."""


def demo_config(config: RunConfig) -> RunConfig:
    """The batch run that a demo is, with its rooms on disk: made once per seed below `config.log_root`, then reused.

    Raises ConfigError where they cannot be written.
    """
    default = {field.name: field.default for field in fields(RunConfig)}
    chosen = {name: value for name, value in DEMO_SETTINGS.items() if getattr(config, name) == default[name]}
    rooms = config.log_root / f"demo_rooms_seed{config.seed}"
    if not rooms.is_dir():
        log.info("Making %d furnished rooms with questions in %s", DEMO_ROOMS, rooms)
        try:
            _write(rooms, config.seed)
        except OSError as error:
            raise ConfigError(
                f"--log-root {config.log_root}: rooms cannot be written there ({error.strerror})"
            ) from None
    if chosen.get("model") == "embedded":
        log.info("The embedded model is untrained: every part of a run is real here, but its answers are noise.")
    return replace(config, demo=False, batch=True, questions=rooms / "questions.jsonl", scan_root=rooms, **chosen)


def _write(rooms: Path, seed: int) -> None:
    """Write the rooms, whole or not at all: one question of each type a room, where the room has one to ask."""
    draft = rooms.with_name(rooms.name + ".tmp")
    shutil.rmtree(draft, ignore_errors=True)
    write_rooms(draft, DEMO_ROOMS, seed, per_type={name: 1 for name in QUESTION_TYPES if name not in VIDEO_ONLY_TYPES})
    draft.rename(rooms)
