"""Finds the best constant answers to the benchmark `rooms` in other rooms that are made by the same rules.

    python -m roomscout.speed.frequent_answers

prints what `FREQUENT` in `roomscout.rooms.benchmark` has, in one process and about 4 minutes.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from roomscout.rooms.benchmark import BENCHMARK, CATEGORY_IN
from roomscout.rooms.levels import LEVELS
from roomscout.rooms.split import balanced, made_room

SEEDS = {"bare": 7_000_000, "furnished": 8_000_000, "cluttered": 9_000_000}
"""Other rooms than those of the benchmark, and than those of the explorer's training, validation and test."""
ROOMS = 100

Answers = dict[str, str]


def frequent_answers(rooms: int) -> tuple[Answers, dict[str, Answers]]:
    """The best constant answers in the first `rooms` rooms of each level: by type, and by type and category.

    Those by type are chosen from questions that are balanced as in the benchmark. Those by category are chosen from all
    candidates of these questions, of which there are three times as many.
    """
    by_type: dict[str, list[str]] = {}
    by_category: dict[str, dict[str, list[str]]] = {name: {} for name in CATEGORY_IN}
    for level, seed in SEEDS.items():
        used = Counter[tuple[str, str]]()
        for place in range(rooms):
            candidates = made_room(level, place, seed)[1]
            for row in balanced(candidates, used):
                by_type.setdefault(row["question_type"], []).append(row["ground_truth"])
            for row in candidates:
                pattern = CATEGORY_IN.get(row["question_type"], "$^")
                if found := re.search(pattern, row["question"]):
                    by_category[row["question_type"]].setdefault(found[1], []).append(row["ground_truth"])
    return (
        {name: best_answer(name, truths) for name, truths in by_type.items()},
        {
            name: {category: best_answer(name, truths) for category, truths in sorted(found.items())}
            for name, found in by_category.items()
        },
    )


def best_answer(question_type: str, truths: Iterable[str]) -> str:
    """The one of these answers that scores most if all questions get it.

    Of letters, the most frequent; of numbers, one that mean relative accuracy favours. On a tie, the middle number or
    the first letter.
    """
    counts, kind = Counter(truths), BENCHMARK.by_name[question_type].kind
    totals = {each: sum(kind.score(each, truth) * count for truth, count in counts.items()) for each in counts}
    best = [each for each, total in totals.items() if total > max(totals.values()) - 1e-9]
    return best[0] if kind.takes_options else sorted(best, key=float)[len(best) // 2]


def main(arguments: Sequence[str]) -> None:
    """Look in --rooms rooms of each level."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rooms", type=int, default=ROOMS, help=f"rooms of each of {', '.join(LEVELS)} (%(default)s)")
    by_type, by_category = frequent_answers(parser.parse_args(arguments).rooms)
    for name, answer in by_type.items():
        print(f'"{name}": "{answer}",')
    for name, answers in by_category.items():
        print(f'"{name}": {answers},')


if __name__ == "__main__":
    main(sys.argv[1:])
