"""The questions that a checkpoint was trained on, from an optional file in its folder.

A small model answers any question as if it were one of these. The file makes that known before a run.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from typing import ClassVar

from roomscout.models.checkpoint_files import read_record

TRAINED_QUESTIONS_FILE = "trained_questions.json"
"""The file of TrainedQuestions in a checkpoint folder."""
LONGEST_WORDS = 80
"""Characters of an unknown word or phrase in the place of a known one."""
_NAME = re.compile(r"\{(\w+)\}")
_LETTER = re.compile(r"\s*\(?[A-Z][.):]\s+")


@dataclass(frozen=True)
class Wording:
    """The text of a question and those of its options, none if it takes none. {object} stands for any object."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    question: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainedQuestions:
    """The wordings that a model was trained on, and the words in them that vary.

    `words` has the texts that each name in braces stands for, such as {"object": ("bed", "chair")}. Raises ValueError
    if a wording has a name that is not in `words`.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    wordings: tuple[Wording, ...]
    words: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        for wording in self.wordings:
            for text in (wording.question, *wording.options):
                if unknown := set(_NAME.findall(text)) - self.words.keys():
                    raise ValueError(f"{{{min(unknown)}}} in {text!r} is not one of the words")

    def why_unfamiliar(self, question: str, options: Sequence[str] = ()) -> str | None:
        """Why a question is unlike those of the training, as the end of a sentence about it; None if it is like them.

        Upper case and blanks count. `options` may have letters ("A. left"), which do not count.
        """
        texts = [_LETTER.sub("", option, count=1) for option in options]
        found = [self._unknown(wording, question, texts) for wording in self.wordings]
        unknown = min((each for each in found if each is not None), key=len, default=None)
        if unknown is None:
            near = get_close_matches(question, [wording.question for wording in self.wordings], n=1, cutoff=0.5)
            return "the wording is unknown" + (f', the nearest known is "{near[0]}"' if near else "")
        return ", ".join(dict.fromkeys(unknown)) or None

    def _unknown(self, wording: Wording, question: str, options: Sequence[str]) -> list[str] | None:
        """What is unknown in a question of this wording; None if it is not of this wording."""
        unknown = self._unknown_words(wording.question, question)
        if unknown is None:
            return None
        if bool(options) != bool(wording.options):
            return [*unknown, "it takes no options" if options else f"it needs options: {', '.join(wording.options)}"]
        for option in options:
            found = [self._unknown_words(each, option) for each in wording.options]
            fitting = min((each for each in found if each is not None), key=len, default=None)
            unknown += [f"option {option!r} is unknown"] if fitting is None else fitting
        return unknown

    def _unknown_words(self, wording: str, text: str) -> list[str] | None:
        """The words in `text` that are unknown where `wording` has a name; None if the text is worded differently."""
        if self._strictly[wording].fullmatch(text):
            return []
        match = _loosely(wording).fullmatch(text)
        if match is None:
            return None
        found = zip(_NAME.findall(wording), match.groups(), strict=True)
        return [f"{name} {each!r} is unknown" for name, each in found if each not in self.words[name]]

    @cached_property
    def _strictly(self) -> dict[str, re.Pattern[str]]:
        """A pattern for each text of the wordings, in which each name stands for its known words only."""
        texts: Iterable[str] = (text for each in self.wordings for text in (each.question, *each.options))
        known = {name: f"(?:{'|'.join(map(re.escape, words))})" for name, words in self.words.items()}
        return {text: re.compile(_pattern(text, known)) for text in texts}


def trained_questions_of(model: str) -> TrainedQuestions | None:
    """The questions in the model's checkpoint folder; None if it does not state any, and any may be asked.

    Raises ModelError for a damaged file.
    """
    return read_record(model, TRAINED_QUESTIONS_FILE, TrainedQuestions, without="ask without this check")


@cache
def _loosely(wording: str) -> re.Pattern[str]:
    """A pattern with a group for each name, which stands for any words."""
    anything = f"(.{{1,{LONGEST_WORDS}}}?)"
    return re.compile(_pattern(wording, dict.fromkeys(_NAME.findall(wording), anything)))


def _pattern(wording: str, groups: Mapping[str, str]) -> str:
    parts = _NAME.split(wording)  # text, name, text, name, ..., text
    return "".join(groups[part] if place % 2 else re.escape(part) for place, part in enumerate(parts))
