"""A benchmark with an answer kind of its own: directions on a clock face.

    roomscout eval --benchmark examples/clock_benchmark.py:CLOCK --questions my_questions.jsonl \
      --scan-root my_scans

A row of my_questions.jsonl has VSI-Bench's columns and this type, such as

    {"id": 1, "dataset": "mine", "scene_name": "kitchen", "question_type": "which_hour", "ground_truth": "3",
     "question": "If I am standing by the sink and facing the door, at what hour is the fridge?"}
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from roomscout.data.answers import AnswerKind, plain_text
from roomscout.data.benchmarks import Benchmark, QuestionType
from roomscout.data.options import Options


@dataclass(frozen=True)
class Clock(AnswerKind):
    """An hour from 1 to 12; scores 1 minus the angle between answer and truth over 180 degrees."""

    name = "clock"
    unit = ""
    takes_options = False

    def form(self, letters: Sequence[str]) -> str:
        """An hour, and what the hours mean."""
        return "an hour on a clock face, 1 to 12, where 12 is straight ahead"

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        """ "3", 3 and "3 o'clock" are an hour; "13" and "noon" are not."""
        text = (plain_text(value) or "").removesuffix("o'clock").strip()
        return text if text.isdecimal() and 1 <= int(text) <= 12 else None

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        """Names the hours."""
        return f"the answer {shown} is not an hour from 1 to 12"

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        """The ground truth must be an hour."""
        return None if self.parse(truth, letters) else "not an hour from 1 to 12"

    def read_truth(self, value: object, options: Options) -> str:
        """ "3 o'clock" as 3."""
        truth = super().read_truth(value, options)
        return self.parse(truth, ()) or truth

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        """Any hour."""
        return str(draw.randint(1, 12))

    def in_words(self, answer: str, truth: str | None = None) -> str:
        """ "5 o'clock, 2 hours off", as reports show it."""
        hours = 6 * (1 - self.score(answer, truth or answer))
        return f"{answer} o'clock" + (f", {hours:g} hours off" if truth else "")

    def score(self, answer: str | float | None, truth: str) -> float:
        """1 for the same hour, 0 for the opposite one."""
        if answer is None:
            return 0.0
        apart = abs(int(answer) - int(truth)) % 12
        return 1 - min(apart, 12 - apart) / 6


CLOCK = Benchmark(
    name="clock",
    title="Clock",
    types=(QuestionType("which_hour", Clock(), advice="Turn until you see the object."),),
)
