"""Counts the most frequent answers of the benchmark `rooms` in other rooms that are made by the same rules.

    python -m roomscout.benchmarks.frequent_answers

prints what `FREQUENT` in `roomscout.data.benchmarks.rooms` has, in one process and about 3 minutes.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from roomscout.data.rooms.levels import LEVELS
from roomscout.data.rooms.split import balanced, made_room

SEEDS = {"bare": 7_000_000, "furnished": 8_000_000, "cluttered": 9_000_000}
"""Other rooms than those of the benchmark, and than those of the explorer's training, validation and test."""
ROOMS = 100


def frequent_answers(rooms: int) -> dict[str, str]:
    """The most frequent answer of each type in the first `rooms` rooms of each level, the first one on a tie."""
    answers: dict[str, Counter[str]] = {}
    for level, seed in SEEDS.items():
        used = Counter[tuple[str, str]]()
        for place in range(rooms):
            for row in balanced(made_room(level, place, seed)[1], used):
                answers.setdefault(row["question_type"], Counter())[row["ground_truth"]] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in answers.items()}


def main(arguments: Sequence[str]) -> None:
    """Count in --rooms rooms of each level."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rooms", type=int, default=ROOMS, help=f"rooms of each of {', '.join(LEVELS)} (%(default)s)")
    for name, answer in frequent_answers(parser.parse_args(arguments).rooms).items():
        print(f'"{name}": "{answer}",')


if __name__ == "__main__":
    main(sys.argv[1:])
