"""What the text of questions tells without the room: python -m scripts.text_only, of `rooms`, or with the argument
rooms-twins of those.

A conditional logit for letters and a ridge regression for numbers, which know of each option its letter and words, and
of a question the objects that it names and the shape of its route. They are fitted on half of the rooms and asked about
the other half.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks.vsi_bench import VSI_TYPES
from roomscout.rooms.benchmark import BENCHMARK as ROOMS
from roomscout.rooms.benchmark import CATEGORY_IN, FREQUENT
from roomscout.rooms.frozen import shipped_rows
from roomscout.rooms.questions import RoomQuestion
from roomscout.rooms.split import SHIPPED
from roomscout.rooms.twin_split import SHIPPED as TWINS_SHIPPED
from roomscout.rooms.twins_benchmark import BENCHMARK as TWINS
from roomscout.scoring.pairs import scores_in_pairs

LETTERS = "ABCD"
STEPS = 150
KINDS = {each.name: each.kind for each in VSI_TYPES}
NAMED = {
    "object_abs_distance": r"between the (.+) and the (.+) \(",
    **CATEGORY_IN,
    "object_rel_distance": r"closest to the (.+)\?",
    "object_rel_direction": r"by the (.+?) and facing the (.+?), is the (.+?) to",
    "route_planning": r"beginning at the (.+?) and facing the (.+?)\. .*navigate to the (.+?)\.",
}
Trait = tuple[str | int, ...]


def named(row: RoomQuestion) -> tuple[str, ...]:
    """The objects that a question names in its fixed words; of a route also how many blanks it has, and whether it
    begins with one."""
    pattern = NAMED.get(re.sub("_(easy|medium|hard)$", "", row["question_type"]))
    found = re.search(pattern, row["question"]) if pattern else None
    words = found.groups() if found else ()
    if row["question_type"] == "route_planning":
        blanks, begins = row["question"].count("[please") - 1, "1. [" in row["question"]
        words = (f"{blanks} blanks{', the first step' if begins else ''}", *words)
    return words


def traits(row: RoomQuestion) -> list[list[Trait]]:
    """What the text says of each option."""
    words, found, options = named(row), [], row["options"]
    for letter, text in ((option[0], option[3:]) for option in options):
        own: list[Trait] = [("letter", len(options), letter), ("text", len(options), text)]
        own += [("word", place, word, text) for place, word in enumerate(words)]
        if row["question_type"] == "route_planning":
            turns = text.split(", ")
            own += [("turn", place, turn, words[0]) for place, turn in enumerate(turns)]
            own.append(("turns", len(turns), len(set(turns))))
        found.append(own)
    return found


def number_traits(row: RoomQuestion) -> list[Trait]:
    """What the text of a question with a number says."""
    return [("mean",), *(("word", *each) for each in enumerate(named(row)))]


class TextOnly:
    """A text-only model of one question type, fitted on `rows`, with an L2 penalty of `ridge`."""

    def __init__(self, rows: Sequence[RoomQuestion], ridge: float = 1.0) -> None:
        self.of_letters = bool(rows[0]["options"])
        self._columns: dict[Trait, int] = {}
        fit = self._fit_letters if self.of_letters else self._fit_numbers
        self._weights = fit(rows, ridge)

    def order(self, row: RoomQuestion) -> list[int]:
        """The places of the options, the likeliest first."""
        values = [self._value(own) for own in traits(row)]
        return sorted(range(len(values)), key=lambda place: -values[place])

    def answer(self, row: RoomQuestion) -> str:
        """A letter or a number."""
        if self.of_letters:
            return LETTERS[self.order(row)[0]]
        return f"{np.exp(self._value(number_traits(row))):.4g}"

    def _value(self, own: Iterable[Trait]) -> float:
        return float(sum(self._weights[self._columns[each]] for each in own if each in self._columns))

    def _fit_letters(self, rows: Sequence[RoomQuestion], ridge: float) -> np.ndarray:
        found = [traits(row) for row in rows]
        for trait in (trait for row in found for own in row for trait in own):
            self._columns.setdefault(trait, len(self._columns))
        features = np.zeros((len(rows), len(LETTERS), len(self._columns)), np.float32)
        shown = np.zeros(features.shape[:2], bool)
        for number, row in enumerate(found):
            for place, own in enumerate(row):
                shown[number, place] = True
                features[number, place, [self._columns[trait] for trait in own]] = 1
        right = np.eye(len(LETTERS))[[LETTERS.index(row["ground_truth"]) for row in rows]]
        weights = np.zeros(len(self._columns), np.float32)
        for _ in range(STEPS):
            odds = np.exp(features @ weights) * shown
            error = right - odds / odds.sum(axis=1, keepdims=True)
            gradient = np.tensordot(error.astype(np.float32), features, 2) - ridge * weights
            weights += 2 / len(rows) * gradient
        return weights

    def _fit_numbers(self, rows: Sequence[RoomQuestion], ridge: float) -> np.ndarray:
        found = list(map(number_traits, rows))
        for trait in (trait for row in found for trait in row):
            self._columns.setdefault(trait, len(self._columns))
        features = np.zeros((len(rows), len(self._columns)))
        for number, row in enumerate(found):
            features[number, [self._columns[trait] for trait in row]] = 1
        logs = np.log([float(row["ground_truth"]) for row in rows])
        penalty = ridge * np.diag([0.0, *[1.0] * (len(self._columns) - 1)])
        return np.asarray(np.linalg.solve(features.T @ features + penalty, features.T @ logs))


def scene(row: RoomQuestion) -> tuple[str, str]:
    """The level and the name of a question's room."""
    return row["dataset"], row["scene_name"]


def halves(
    rows: Sequence[RoomQuestion], seed: int, benchmark: Benchmark = ROOMS
) -> list[tuple[list[RoomQuestion], list[RoomQuestion]]]:
    """The rows of one half of the rooms and of the other, and the other way round; twins are in one half."""
    rooms = sorted({benchmark.room_of(*scene(row)) for row in rows})
    first = {rooms[i] for i in np.random.default_rng(seed).permutation(len(rooms))[: len(rooms) // 2]}
    known = [row for row in rows if benchmark.room_of(*scene(row)) in first]
    asked = [row for row in rows if benchmark.room_of(*scene(row)) not in first]
    return [(known, asked), (asked, known)]


def scores_of(
    rows: Sequence[RoomQuestion], answer_to: Callable[[RoomQuestion], str | None], benchmark: Benchmark
) -> list[float]:
    """The official scores of answers, as they count."""
    scores = {row["id"]: KINDS[row["question_type"]].score(answer_to(row), row["ground_truth"]) for row in rows}
    return list(scores_in_pairs(scores, benchmark).values())


def text_only_scores(
    rows: Sequence[RoomQuestion], splits: int = 2, benchmark: Benchmark = ROOMS
) -> dict[str, dict[str, float]]:
    """Of each type in percent: the baseline `frequent`, always the best letter, always the last option, and the
    text-only model on rooms that it was not fitted on."""
    found = {}
    for name in dict.fromkeys(row["question_type"] for row in rows):
        own = [row for row in rows if row["question_type"] == name]
        scores = {
            "frequent": scores_of(own, lambda row: FREQUENT.answer_to(row["question_type"], row["question"]), benchmark)
        }
        if own[0]["options"]:
            each = (scores_of(own, lambda _, letter=letter: letter, benchmark) for letter in LETTERS)
            scores["best letter"] = max(each, key=sum)
            scores["last option"] = scores_of(own, lambda row: row["options"][-1][0], benchmark)
        scores["text only"] = [
            score
            for seed in range(splits)
            for known, asked in halves(own, seed, benchmark)
            for score in scores_of(asked, TextOnly(known).answer, benchmark)
        ]
        found[name] = {what: 100 * float(np.mean(values)) for what, values in scores.items()}
    return found


def main(arguments: Sequence[str]) -> None:
    """Print a Markdown table of all types."""
    benchmark, shipped = (TWINS, TWINS_SHIPPED) if "rooms-twins" in arguments else (ROOMS, SHIPPED)
    columns = ("frequent", "best letter", "last option", "text only")
    lines = [["percent", *columns], ["---"] * 5]
    for name, scores in text_only_scores(shipped_rows(shipped), benchmark=benchmark).items():
        lines.append([name, *(f"{scores[each]:.1f}" if each in scores else "" for each in columns)])
    sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))


if __name__ == "__main__":
    main(sys.argv[1:])
