"""`python -m roomscout.training.demonstrate`: generate demonstrations in worker processes and report their scores."""

import argparse
import logging
import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from roomscout.base.text import log_to_stream
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.models import Backend, ModelOptions
from roomscout.models.engines import make_backend
from roomscout.training.episodes import pupil_episodes, room_episodes
from roomscout.training.notes import VIEWS
from roomscout.training.splits import SPLITS
from roomscout.training.store import read_shard, shard_path, shards_in, write_shard

log = logging.getLogger(__name__)


def make_shard(index: int, folder: Path, seed: int, pupil: str | None = None) -> Path:
    """Write the demonstrations of room `index` unless their file exists; returns its path."""
    path = shard_path(folder, seed, index)
    if not path.exists():
        write_shard(path, pupil_episodes(seed, index, load_pupil(pupil)) if pupil else room_episodes(seed, index))
    return path


@cache
def load_pupil(checkpoint: str) -> Backend:
    """Load a checkpoint once per process."""
    return make_backend(checkpoint, ModelOptions(max_new_tokens=VIEWS.max_new_tokens))


def make_shards(folder: Path, seed: int, indices: Sequence[int], workers: int, pupil: str | None = None) -> None:
    """Generate the demonstrations of many rooms in worker processes; resumes an earlier call."""
    work = partial(make_shard, folder=folder, seed=seed, pupil=pupil)
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=50) as pool:
        for number, path in enumerate(pool.imap_unordered(work, indices), start=1):
            if number % 10 == 0 or number == len(indices):
                log.info("%d of %d rooms done, latest %s", number, len(indices), path.name)


def teacher_scores(folder: Path) -> dict[str, tuple[int, float]]:
    """Number and mean score of demonstrations per question type, without blind and hurried ones: an upper bound for a
    model that imitates the teacher."""
    scores: dict[str, list[float]] = {}
    for path in shards_in(folder):
        for episode in read_shard(path):
            if not (episode.blind or episode.by_pupil or episode.out_of_moves):
                kind = BENCHMARK.by_name[episode.question_type].kind
                score = kind.score(episode.answer, episode.ground_truth)
                scores.setdefault(episode.question_type, []).append(score)
    return {name: (len(values), float(np.mean(values))) for name, values in scores.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m roomscout.training.demonstrate", description=__doc__)
    parser.add_argument("out", type=Path, help="output folder")
    parser.add_argument("--rooms", type=int, default=500, help="number of rooms (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="index of the first room (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="worker processes (%(default)s)")
    parser.add_argument(
        "--pupil", help="checkpoint that replies instead of the teacher, who corrects one reply per conversation"
    )
    options = parser.parse_args(arguments)
    existing = shards_in(options.out)
    if existing and read_shard(existing[0])[0].by_pupil != (options.pupil is not None):
        kind = "demonstrations" if options.pupil else "corrections"
        parser.error(f"{options.out} already contains {kind}: choose another folder")
    log_to_stream(sys.stdout)
    indices = range(options.first, options.first + options.rooms)
    make_shards(options.out, SPLITS["training"], indices, options.workers, options.pupil)
    for name, (count, mean) in teacher_scores(options.out).items():
        log.info("%-28s %5d questions, teacher score %.3f", name, count, mean)
    return 0


if __name__ == "__main__":
    sys.exit(main())
