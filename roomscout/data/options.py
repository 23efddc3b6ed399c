"""Options of multiple-choice questions. Questions have them with letters: "A. left", "B. right"."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from roomscout.base.text import json_in
from roomscout.data.scan_frames import is_empty

LETTERED_OPTION = re.compile(r"\s*\(?([A-Z])[.):]\s+(?=\S)")
MOST_OPTIONS = 26
FORMS = 'a list such as ["left", "right"], a mapping such as {"A": "left"}, or left|right'
AS_JSON = "with pandas, column.map(lambda each: json.dumps(list(each))) before to_csv"

# The beginning of an option in one of the ways to number them: not of 1.5 m or 10:30.
_LABEL = re.compile(r"\W*(?:option |choice )?(\w{1,2})\W*?(?:[.):\]>=]|\s[-\u2013\u2014]\s)(?!\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Options:
    """The options of a question with letters. `own_letters` says whether they were written rather than added."""

    lettered: tuple[str, ...] = ()
    own_letters: bool = True

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters in order."""
        return tuple(letter for letter, _ in self.texts)

    @property
    def texts(self) -> Iterator[tuple[str, str]]:
        """Each letter with the text of its option."""
        for option in self.lettered:
            if match := LETTERED_OPTION.match(option):
                yield match[1], option[match.end() :]


def _option_texts(value: object) -> list[str]:
    """The options of a cell or an argument as a list of texts, with the letters of a mapping before them. Takes FORMS,
    also as JSON in a text, and None for no options. Raises ValueError for anything else."""
    if is_empty(value):
        return []
    if isinstance(value, str) and (value.strip()[:1] in ("[", "{") or value == "null"):
        try:
            return _option_texts(json_in(value))
        except ValueError as error:
            raise ValueError(f"options {value[:80]!r} are not JSON ({error}): {AS_JSON}") from None
    if isinstance(value, str) and "|" in value:
        return [part.strip() for part in value.split("|")]
    if isinstance(value, Mapping) and all(re.fullmatch("[A-Z]", str(letter)) for letter in value):
        return [f"{letter}. {text}" for letter, text in value.items() if text is not None]
    if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
        return list(value)
    fix = f"; {AS_JSON}" if isinstance(value, str) else ""
    raise ValueError(f"options {repr(value)[:80]} must be {FORMS}{fix}")


def read_options(value: object) -> Options:
    """The options of a cell or an argument with their own letters or A, B, ...; ValueError with the forms."""
    texts = _option_texts(value)
    if all(map(LETTERED_OPTION.match, texts)):
        return Options(tuple(texts))
    if len(texts) > MOST_OPTIONS:
        raise ValueError(f"at most {MOST_OPTIONS} options are supported, got {len(texts)}")
    letters = [chr(ord("A") + place) for place in range(len(texts))]
    labels = [match[1].upper() if (match := _LABEL.match(text)) else "" for text in texts]
    numbers = ({str(place + first) for place in range(len(texts))} for first in (0, 1))
    labelled = {*labels} in ({*letters}, *numbers)  # in another form, so that they would be shown beside ours
    if labelled or any(map(LETTERED_OPTION.match, texts)) or not all(map(str.strip, texts)):
        raise ValueError(f"options {str(texts)[:80]} must all have a letter as in 'A. left', or none, and a text")
    return Options(tuple(f"{letter}. {text.strip()}" for letter, text in zip(letters, texts, strict=True)), False)


def letter_named(truth: str, options: Options) -> str | None:
    """The letter of the option that a truth names by letter or text; None for none, ValueError if it may be several."""
    letter = truth.upper()
    if options.own_letters and letter in options.letters:
        return letter
    wanted = _plain(truth)
    named = {
        own
        for (own, text), option in zip(options.texts, options.lettered, strict=True)
        if letter == own or wanted in (_plain(text), _plain(option))
    }
    if len(named) > 1:
        raise ValueError(f"either option {' or '.join(sorted(named))}: give the options letters, and write one of them")
    return next(iter(named), None)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")
