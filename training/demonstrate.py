"""The command `python -m training.demonstrate`: make demonstrations in worker processes, and say how well they do."""

import argparse
import logging
import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from data.scoring import score_answer
from models import Backend, ModelOptions
from models.engines import make_backend
from training.episodes import VIEWS, pupil_episodes, room_episodes
from training.splits import SPLITS
from training.store import read_shard, shard_path, shards_in, write_shard

log = logging.getLogger(__name__)


def make_shard(index: int, folder: Path, seed: int, pupil: str | None = None) -> Path:
    """Room `index`'s demonstrations on disk; a file that is there already is kept."""
    path = shard_path(folder, seed, index)
    if not path.exists():
        write_shard(path, pupil_episodes(seed, index, load_pupil(pupil)) if pupil else room_episodes(seed, index))
    return path


@cache
def load_pupil(checkpoint: str) -> Backend:
    """A checkpoint, once a process."""
    return make_backend(checkpoint, ModelOptions(max_new_tokens=VIEWS.max_new_tokens))


def make_shards(folder: Path, seed: int, indices: Sequence[int], workers: int, pupil: str | None = None) -> None:
    """Make the demonstrations of many rooms in worker processes; goes on where an earlier call stopped."""
    work = partial(make_shard, folder=folder, seed=seed, pupil=pupil)
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=50) as pool:
        for number, path in enumerate(pool.imap_unordered(work, indices), start=1):
            if number % 10 == 0 or number == len(indices):
                log.info("%d of %d rooms, the last is %s", number, len(indices), path.name)


def teacher_scores(folder: Path) -> dict[str, tuple[int, float]]:
    """Number of unhurried demonstrations with sight per question type, and their mean score: what a perfect pupil
    of this teacher reaches."""
    scores: dict[str, list[float]] = {}
    for path in shards_in(folder):
        for episode in read_shard(path):
            if not (episode.blind or episode.by_pupil) and "This is the last turn" not in episode.user[-1]:
                score = score_answer(episode.question_type, episode.answer, episode.ground_truth)
                scores.setdefault(episode.question_type, []).append(score)
    return {name: (len(values), float(np.mean(values))) for name, values in scores.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m training.demonstrate", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the demonstrations")
    parser.add_argument("--rooms", type=int, default=500, help="number of rooms (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="index of the first room (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument("--pupil", help="a checkpoint that replies instead; the teacher corrects one reply of each")
    options = parser.parse_args(arguments)
    held = shards_in(options.out)
    if held and read_shard(held[0])[0].by_pupil != (options.pupil is not None):
        parser.error(f"{options.out} holds {'demonstrations' if options.pupil else 'corrections'}: take another folder")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    indices = range(options.first, options.first + options.rooms)
    make_shards(options.out, SPLITS["training"], indices, options.workers, options.pupil)
    for name, (count, mean) in teacher_scores(options.out).items():
        log.info("%-28s %5d questions, teacher's score %.3f", name, count, mean)
    return 0


if __name__ == "__main__":
    sys.exit(main())
