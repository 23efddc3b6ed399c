"""How a benchmark asks about frames of a video, and how it reads replies, as its official code does both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roomscout.data.answers import AnswerKind, Number, first_word


@dataclass(frozen=True)
class VideoProtocol:
    """The words and the limits of a benchmark's official protocol on frames of a video. A prompt has the opening, the
    question, the options if there are some, and an ending, each on lines of its own."""

    source: str  # where they were read
    opening: str  # the first line of a prompt
    options: str  # the line above the options
    choice_ending: str  # of a question with options
    number_ending: str  # of a question without options
    frames: int  # how many are shown by default
    max_new_tokens: int  # of a reply, by default
    file: str = "{dataset}/{scene}.mp4"  # of a scene's video, below the folder of videos

    def prompt(self, question: str, options: Sequence[str]) -> str:
        """All text that a model reads."""
        if not options:
            return "\n".join([self.opening, question, self.number_ending])
        return "\n".join([self.opening, question, self.options, *options, self.choice_ending])

    def read(self, reply: str, kind: AnswerKind, letters: Sequence[str]) -> str | None:
        """The answer in a reply: its first word without final periods, if that is the letter of an option in either
        case, or a number that `float` takes; None for any other, which scores 0. Other kinds read the whole reply.
        White space around it does not count: thinking-in-space strips each reply (lmms_eval/api/task.py)."""
        word = first_word(reply.strip())
        if kind.takes_options:
            return next((letter for letter in letters if letter.lower() == word.lower()), None)
        if not isinstance(kind, Number):
            return kind.parse(reply.strip(), letters)
        try:
            number = float(word)
        except ValueError:
            return None
        return kind.parse(word, letters) or kind.parse(number, letters) if math.isfinite(number) else None
