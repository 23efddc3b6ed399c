"""Options of multiple-choice questions, and the ground truths that name one, in the forms in which people write them.

Questions have options with letters: "A. left", "B. right".
"""

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real

LETTER_PREFIX = re.compile(r"\s*\(?([A-Z])[.):]\s+")
LETTERED_OPTION = re.compile(LETTER_PREFIX.pattern + r"\S")
MOST_OPTIONS = 26
EXAMPLE = 'a JSON list such as ["left", "right"], or left|right'

_MARK = r"[.):\]、．：）]"
_NAMED = r"(?:(?:[Oo]ption|OPTION|[Cc]hoice|CHOICE)\s+)?"
_LETTER_LABEL = re.compile(
    rf"\s*(?:\*\*)?{_NAMED}[(\[（<]?([A-Za-z])\s*(?:{_MARK}|>|\*\*|=|\s[-–—]\s)[.:)]?(?:\*\*)?\s*(?=\S)"
)
# Not the beginning of a number, such as 1.5 m or 10:30.
_NUMBER_LABEL = re.compile(rf"\s*[(\[（]?(\d{{1,2}})(?:{_MARK}\s+|{_MARK}(?!\d)|\s-\s+)\s*(?=\S)")
_LETTER_ALONE = re.compile(r"\s*([A-Z])\s+(?=\S)")
_WIDE_LETTERS = {wide: chr(wide - 0xFEE0) for start in (0xFF21, 0xFF41) for wide in range(start, start + 26)}
_TRUTH_LETTER = re.compile(rf"\s*{_NAMED}[(\[（]?\s*([A-Za-z])\s*{_MARK}*\s*")
_TRUTH_NUMBER = re.compile(rf"\s*[(\[（]?\s*(\d{{1,2}})\s*{_MARK}*\s*")
_KEY = re.compile(rf"(?:option|choice|opt)?[\s_-]*[(\[]?([a-z]|\d{{1,2}}){_MARK}?", re.IGNORECASE)
_LABEL_KEYS, _TEXT_KEYS = ("key", "label", "id", "letter", "name"), ("text", "value", "content", "option", "answer")
_EMPTY = ("", "null", "none", "nan", "[]", "{}")

_LITERAL = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# Lists as printed by Python, and by numpy, which omits commas.
_PRINTED_LIST = re.compile(rf"[\[(](?:[\s,]*(?:{_LITERAL}))*[\s,]*[\])]", re.S)


@dataclass(frozen=True)
class Options:
    """The options of a question: `lettered` as questions have them, and as they were `written`.

    `numbered` has the letter of each option that was written with a number. `own_letters` says whether the letters were
    written, rather than added. `counted_from` is the number of the first option, 0 or 1, in ground truths that count
    the options; None if that is not known.
    """

    lettered: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    numbered: Mapping[str, str] = field(default_factory=dict)
    own_letters: bool = True
    counted_from: int | None = None

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters in order."""
        return letters_of(self.lettered)

    @property
    def texts(self) -> Iterator[tuple[str, str]]:
        """Each letter with the text of its option."""
        for option in self.lettered:
            if match := LETTERED_OPTION.match(option):
                yield match[1], option[match.end() - 1 :]


def letters_of(options: Iterable[str]) -> tuple[str, ...]:
    """The letters of lettered options, in order."""
    return tuple(match[1] for option in options if (match := LETTERED_OPTION.match(option)))


def written_options(value: object) -> list[str]:
    """The options of a cell, an argument or a flag as a list of texts, with the labels of a mapping before them.

    Takes None, a list of texts and numbers, a mapping of letters or numbers to texts, lists of labels and texts, and a
    text: JSON, a list printed by Python or numpy, lines, options with | or ; between them, or with letters before them.
    Raises ValueError that says how to write them.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return []
    if isinstance(value, str):
        return _from_text(value.strip())
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if not isinstance(value, list | tuple):
        raise ValueError(f"options are {value!r}; they must be {EXAMPLE}")
    texts = [_entry(each) for each in value]
    if len(texts) == 1 and (several := _separated(texts[0])):
        return several
    return texts


def read_options(written: Sequence[str]) -> Options:
    """Options with letters: those with letters stay as they are, others get A, B, ... instead of what was before them.

    An option written "a)", "(1)" or "A." without a blank loses that; one without any label gets the letter of its
    place. Raises ValueError if only some have a label, or for more than 26.
    """
    written = tuple(written)
    if all(map(LETTERED_OPTION.match, written)):
        return Options(written, written)
    if len(written) > MOST_OPTIONS:
        raise ValueError(f"at most {MOST_OPTIONS} are supported, got {len(written)}")
    if (found := _labels(_LETTER_LABEL, written)) and _are_letters([label for label, _ in found]):
        return Options(tuple(f"{label.upper()}. {text}" for label, text in found), written)
    if (found := _labels(_LETTER_ALONE, written)) and _are_first([label for label, _ in found]):
        texts = [text for _, text in found]
        if len({*texts}) == len(texts):
            return Options(tuple(f"{label}. {text}" for label, text in found), written)
    letters = [chr(ord("A") + place) for place in range(len(written))]
    if found := _labels(_NUMBER_LABEL, written):
        numbers = [int(label) for label, _ in found]
        if numbers in ([*range(len(found))], [*range(1, len(found) + 1)]):
            lettered = tuple(f"{letter}. {text}" for letter, (_, text) in zip(letters, found, strict=True))
            return Options(lettered, written, dict(zip(map(str, numbers), letters, strict=True)))
    _require_all_bare(written, letters)
    lettered = tuple(f"{letter}. {text.strip()}" for letter, text in zip(letters, written, strict=True))
    return Options(lettered, written, own_letters=False)


def letter_of(truth: str, options: Options) -> str | None:
    """The letter that a ground truth names by letter, number, text or place of an option; None if it names none.

    Raises ValueError if it may name several.
    """
    found = _named(truth, options)
    if len(found) > 1:
        raise ValueError(f"either option {' or '.join(sorted(found))}: give the options letters, and write one of them")

    if found:
        return found.pop()
    place = place_in(truth, options)
    if place is None:
        return None
    if options.counted_from is None:
        raise ValueError("the number of an option, counted from 0 or from 1: write its letter")
    place -= options.counted_from
    return options.letters[place] if 0 <= place < len(options.letters) else None


def place_in(truth: str, options: Options) -> int | None:
    """The number of an option, counted from 0 or from 1, that a ground truth seems to be; None if it is none."""
    if not re.fullmatch(r"\d{1,2}", truth.strip()) or _named(truth, options):
        return None
    place = int(truth)
    return place if place <= len(options.letters) else None


def _named(truth: str, options: Options) -> set[str]:
    """The letters of the options that a ground truth names by letter, number or text."""
    truth = truth.translate(_WIDE_LETTERS)
    letter, number = _TRUTH_LETTER.fullmatch(truth), _TRUTH_NUMBER.fullmatch(truth)
    by_letter = {letter[1].upper()} & {*options.letters} if letter else set()
    if by_letter and options.own_letters:
        return by_letter
    if (labelled := _LETTER_LABEL.match(truth)) and options.own_letters:
        label, text = labelled[1].upper(), _plain(truth[labelled.end() :])
        if (label, text) in ((name, _plain(each)) for name, each in options.texts):
            return {label}
    wanted = _plain(truth)
    by_text = {
        name
        for (name, text), as_written in zip(options.texts, options.written, strict=False)
        if wanted in (_plain(text), _plain(as_written), _plain(f"{name}. {text}"))
    }
    by_number = {options.numbered[number[1]]} if number and number[1] in options.numbered else set()
    return by_letter | by_text | by_number


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _labels(pattern: re.Pattern[str], written: Sequence[str]) -> list[tuple[str, str]]:
    """The label of each option and the text after it; empty unless all have one."""
    matches = [pattern.match(option.translate(_WIDE_LETTERS)) for option in written]
    return [
        (match[1], option[match.end() :].strip())
        for match, option in zip(matches, written, strict=True)
        if match is not None and None not in matches
    ]


def _are_letters(labels: Sequence[str]) -> bool:
    """Whether labels are letters of options: small ones could begin a word, unless they are the first."""
    return all(label.isupper() for label in labels) or _are_first(sorted(label.upper() for label in labels))


def _are_first(labels: Sequence[str]) -> bool:
    return [*labels] == [chr(ord("A") + place) for place in range(len(labels))]


def _require_all_bare(written: Sequence[str], letters: Sequence[str]) -> None:
    """Raise ValueError if some options have a label and others have none."""
    labelled = [option for place, option in enumerate(written) if _has_label_of(place, option)]
    for letter, option in zip(letters, written, strict=True):
        if not option.strip():
            raise ValueError(f"option {letter} is empty; write its text, or leave it out")
        if labelled and option not in labelled:
            raise ValueError(
                f"option {option!r} has no letter or no text, unlike {labelled[0]!r}; write it as "
                f"'{letter}. {option.strip()}'"
            )


def _has_label_of(place: int, option: str) -> bool:
    """Whether an option begins with a capital letter and a mark, or with a label of its place."""
    letter, number = _LETTER_LABEL.match(option), _NUMBER_LABEL.match(option)
    by_letter = letter is not None and letter[1].upper() == chr(ord("A") + place)
    return bool(LETTERED_OPTION.match(option)) or by_letter or (number is not None and int(number[1]) == place + 1)


def _entry(value: object) -> str:
    """An element of a list: a text or a number, or a mapping of a label and a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        return f"{float(value):.0f}" if float(value).is_integer() else str(value)
    if isinstance(value, Mapping):
        label = next((value[key] for key in _LABEL_KEYS if value.get(key) is not None), None)
        text = next((value[key] for key in _TEXT_KEYS if value.get(key) is not None), None)
        if len(value) == 1:
            (label, text), *_ = value.items()
        if text is not None and label is not None and (match := _KEY.fullmatch(str(label).strip())):
            return f"{match[1].upper()}. {_entry(text)}"
    raise ValueError(f"option {value!r} is not a text; options must be {EXAMPLE}")


def _from_mapping(value: Mapping[object, object]) -> list[str]:
    """{"A": "left"}, or {"label": ["A"], "text": ["left"]}, as "A. left"."""
    by_name = {str(key): each for key, each in value.items() if each is not None}
    labels, texts = by_name.get("label"), by_name.get("text")
    if isinstance(texts, list):
        if isinstance(labels, list):
            return _from_mapping(dict(zip(map(str, labels), texts, strict=False)))
        return [_entry(each) for each in texts]
    keys = [match[1] if (match := _KEY.fullmatch(key.strip())) else "" for key in by_name]
    if not all(key.isdecimal() for key in keys) and not ("" not in keys and _are_letters(keys)):
        raise ValueError(f'options have the keys {", ".join(by_name)}; they must be letters, as in {{"A": "left"}}')
    options = []
    for label, text in zip(map(str.upper, keys), map(_entry, by_name.values()), strict=True):
        own = LETTERED_OPTION.match(text)
        options.append(text if own and own[1] == label else f"{label}. {text}")
    return options


def _from_text(text: str) -> list[str]:
    if text.lower() in _EMPTY:
        return []
    with suppress(ValueError, RecursionError):
        parsed = json.loads(text)
        if isinstance(parsed, list | dict):
            return written_options(parsed)
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        if _PRINTED_LIST.fullmatch(text):
            return [ast.literal_eval(literal) for literal in re.findall(_LITERAL, text, re.S)]
        if text.startswith(("{", "[")):
            return written_options(ast.literal_eval(text))
    if several := _separated(text):
        return several
    fix = "|".join(part.strip() for part in text.split(",")) if "," in text else "left|right"
    raise ValueError(f"options {text[:80]!r} are not a list; write a JSON list, or | between them, as in {fix[:80]}")


def _separated(text: str) -> list[str]:
    """The options in one text; empty if nothing separates them."""
    for separator in ("\n", "|"):
        parts = [part.strip() for part in text.split(separator) if part.strip()]
        if len(parts) > 1:
            return parts
    starts = _label_starts(text)
    if len(starts) > 1:
        ends = [*starts[1:], len(text)]
        return [text[start:end].strip(" \t,;/") for start, end in zip(starts, ends, strict=True)]
    parts = [part.strip() for part in text.split(";") if part.strip()]
    return parts if len(parts) > 1 else []


def _label_starts(text: str) -> list[int]:
    """Where the labels A, B, ... or 1, 2, ... are in a text that begins with the first of them."""
    for labels in ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", tuple(map(str, range(1, 27)))):
        starts: list[int] = []
        place = 0
        for label in labels:
            found = re.compile(rf"(?<![\w.])[(\[]?{label}{_MARK}(?!\d)").search(text, place)
            if found is None or (not starts and text[: found.start()].strip()):
                break
            starts.append(found.start())
            place = found.end()
        if len(starts) > 1:
            return starts
    return []
