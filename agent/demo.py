"""What --demo runs: the main job on procedural rooms with the embedded model, beside the same model blind."""

import logging
import shutil
from dataclasses import fields, replace
from pathlib import Path

from agent.backends import EXPLORER_SETTINGS
from agent.config import ConfigError, RunConfig
from agent.evaluation import main_vsi_bench_loop, questions_of
from agent.run_log import newest_results
from data.questions import QUESTION_TYPES, VIDEO_ONLY_TYPES
from data.rooms import write_rooms
from data.scoring import aggregate, most_frequent_answer

log = logging.getLogger(__name__)

DEMO_ROOMS = 4
DEMO_SETTINGS = EXPLORER_SETTINGS | {"model": "embedded", "max_batched_turns": "all"}
"""The demo's own defaults; a flag that was given wins over them."""


def run_demo(config: RunConfig) -> int:
    """Ask a model about rooms made on the spot, first blind and then with open eyes, and compare the scores.

    Returns and raises what `main_vsi_bench_loop` does.
    """
    config = demo_config(config)
    if config.plan or config.check_data or config.renderer == "blind":
        return main_vsi_bench_loop(config)
    log.info("BLIND: the same questions with grey views first, to know what seeing is worth")
    status = main_vsi_bench_loop(replace(config, renderer="blind"))
    if status:
        return status
    blind = aggregate(newest_results(config.log_root))["overall"]
    log.info("SEEING: now with open eyes")
    status = main_vsi_bench_loop(config)
    if status != 130:
        frequent = most_frequent_answer(questions_of(config))["overall"]
        log.info(
            "Overall: %.1f %% exploring, %.1f %% blind, %.1f %% with always the most frequent answer",
            aggregate(newest_results(config.log_root))["overall"], blind, frequent,
        )  # fmt: skip
    return status


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
    return replace(config, demo=False, batch=True, questions=rooms / "questions.jsonl", scan_root=rooms, **chosen)


def _write(rooms: Path, seed: int) -> None:
    """Write the rooms, whole or not at all: one question of each type a room, where the room has one to ask."""
    draft = rooms.with_name(rooms.name + ".tmp")
    shutil.rmtree(draft, ignore_errors=True)
    write_rooms(draft, DEMO_ROOMS, seed, per_type={name: 1 for name in QUESTION_TYPES if name not in VIDEO_ONLY_TYPES})
    draft.rename(rooms)
