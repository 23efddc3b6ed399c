"""Demonstrations of many rooms, made in worker processes."""

import logging
import multiprocessing
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from explorer.episodes import room_episodes
from explorer.store import shard_path, write_shard

log = logging.getLogger(__name__)


def demonstrations_in(folder: Path, seed: int, workers: int, indices: Sequence[int]) -> list[Path]:
    """The files of the rooms `indices` of a seed below a folder, in their order; makes those that are missing."""
    paths = {index: shard_path(folder, seed, index) for index in indices}
    if missing := [index for index, path in paths.items() if not path.exists()]:
        with multiprocessing.get_context("spawn").Pool(min(workers, len(missing)), maxtasksperchild=50) as pool:
            made = pool.imap_unordered(partial(_make_shard, folder, seed), missing)
            for number, _ in enumerate(made, start=1):
                if number % 10 == 0 or number == len(missing):
                    log.info("demonstrations of %d of %d rooms", number, len(missing))
    return list(paths.values())


def _make_shard(folder: Path, seed: int, index: int) -> None:
    write_shard(shard_path(folder, seed, index), room_episodes(seed, index))
