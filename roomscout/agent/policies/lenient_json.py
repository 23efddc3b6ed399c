"""Reads JSON objects in text as language models write them: JSON, and what is unambiguous beside it."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

MAX_DEPTH = 200  # objects and lists nested deeper than this are not read
MAX_INTEGER_DIGITS = 4300
"""Longer integers are infinite, as floats that are too large are: `int()` refuses them by default."""
LONGEST = 200_000  # characters at the end of a text that are read; what is before them is ignored
MOST_WORK, WORK_PER_BRACE = 1_000_000, 50
"""The most characters that are read in all; each brace that is tried counts as some. An ordinary text is read about
once; a hostile one could be read again from each of its braces."""

_OPENING = re.compile(r"""\{(?=\s*+(?:["'“”„‘’]|[^\W\d]|/[/*]|\#))""")
"""A brace that may begin an object. Most braces in prose do not, and an empty object has no keys."""
_BLANK = re.compile(r"(?:\s++|(?://|\#)[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_TOKEN = re.compile(
    r"""
    (?P<mark>[{}\[\]:,：，])
    | "(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)"
    | '(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)'
    | [“”„](?P<curly>[^“”\\]*+(?:\\.[^“”\\]*+)*+)[“”]
    | [‘’](?P<curly_single>[^‘’\\]*+(?:\\.[^‘’\\]*+)*+)[‘’]
    | (?P<number>[-+−]?(?:(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?|Infinity|NaN))(?![\w.])
    | (?P<word>[^\W\d]\w*+)
    """,
    re.VERBOSE | re.DOTALL,
)
_UNTERMINATED = ('"', "'", "“", "”", "„", "‘", "’", "/*")
_BEGUN_NUMBER = re.compile(r"[-+−.0-9]++(?:[eE][-+]?)?\Z")
_END = re.compile(r"(?:\s++|```|</[\w:]++>)*+\Z")  # the end of the text, where a code fence and tags may close
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\n": ""} | {mark: mark for mark in "\"'/\\“”„‘’"}
_LITERALS = {"true": True, "false": False, "null": None, "none": None}


_CLOSING = {"{": "}", "[": "]"}
_KEY, _COLON, _VALUE = "a key or a closing brace", "a colon", "a value"
_ITEM, _COMMA = "a value or a closing bracket", "a comma or a closing bracket"
"""What may come next, as an error says it."""


class _NotRead(Exception):
    """Why an object is not read to its end: _INVALID, _TOO_DEEP or _CUT_OFF."""


_INVALID, _TOO_DEEP, _CUT_OFF = "invalid", "nested too deep", "cut off"


def last_object(text: str, keys: Sequence[str]) -> dict[str, object]:
    """The last JSON object in a text that has one of `keys`; what is around it and objects without `keys` are ignored.

    Beside JSON, these are read: trailing commas; comments (//, /* */, #); single and typographic quotes; line breaks
    and unknown escapes in strings; keys and single words without quotes; True, False, None; +90, .5, 5. and 05; the
    minus sign U+2212; full-width colons and commas. Closing brackets may be missing at the end of the text if the
    object has the last of `keys` and does not end in a number or word, which could be cut off.

    Objects in lists count, in the text of a call's arguments, and in objects without any of `keys`. An object is tried
    at each brace outside the objects before it. What is nested in a failed one is tried alone, unless an object that is
    not closed has one of `keys`. An object that the text cuts off hides all that is in it. Raises ValueError with the
    reason if none is.
    """
    text = text[-LONGEST:]
    last, why, why_at = None, "no complete JSON object", -1
    position = 0
    work = 0
    skipped = set[int]()
    while opening := _OPENING.search(text, position):
        start = opening.start()
        position = opening.start() + 1
        if start in skipped:
            continue
        reader = _Reader(text, start)
        failed = reader.read()
        work += reader.work
        if work > MOST_WORK:
            raise ValueError("no complete JSON object, only too many braces")
        if failed is None:
            fields = with_any(reader.value, keys)
            position = reader.position
            if fields is not None:
                last = fields
            elif position > why_at:
                why = f"no JSON object with one of the keys {', '.join(keys)}"
                why_at = position
        elif failed == _INVALID:
            if reader.position > why_at:
                why = f"no complete JSON object ({reader.error})"
                why_at = reader.position
            skipped.update(reader.not_to_be_tried(keys))
        else:
            if failed == _CUT_OFF and reader.lacks_only_brackets():
                fields = with_any(reader.value, keys)
                if fields is not None and keys[-1] in fields:
                    return fields
            why = f"no complete JSON object, only one that is {failed}"
            break
    if last is None:
        raise ValueError(why)
    return last


def object_spans(text: str, keys: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The start and the end of each complete object in a text that has one of `keys`, read as by `last_object`."""
    position = max(0, len(text) - LONGEST)
    work = 0
    while (opening := _OPENING.search(text, position)) and work < MOST_WORK:
        reader = _Reader(text, opening.start())
        position = opening.start() + 1
        if reader.read() is None and with_any(reader.value, keys) is not None:
            position = reader.position
            yield opening.start(), position
        work += reader.work


def last_list(text: str, key: str) -> list[object]:
    """The last JSON list in a text of objects that all have a key, read as by `last_object`, or an empty list in a text
    without objects. Raises ValueError, also for a list that the text cuts off."""
    position = max(0, len(text) - LONGEST)
    last: list[object] | None = None
    work = 0
    while (start := text.find("[", position)) >= 0 and work < MOST_WORK:
        reader = _Reader(text, start)
        position = start + 1
        failed = reader.read()
        items = reader.value
        if failed == _CUT_OFF:
            raise ValueError("no complete JSON list of objects, only one that is cut off")
        if failed is None and isinstance(items, list):
            of_objects = all(isinstance(item, dict) and key in item for item in items)
            if of_objects and (items or "{" not in text):
                last = items
                position = reader.position
        work += reader.work
    if last is None:
        raise ValueError("no complete JSON list of objects")
    return last


def with_any(value: object, keys: Sequence[str]) -> dict[str, object] | None:
    """The last object with one of `keys`, among `value` and what is in objects and lists without, or in the text of a
    call's arguments; None if none has."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if any(key in value for key in keys):
                return value
            waiting += value.values()
            arguments = value.get("arguments")
            if isinstance(arguments, str) and "name" in value:
                with suppress(ValueError):
                    waiting.append(last_object(arguments, keys))
        elif isinstance(value, list):
            waiting += value
    return None


class _Reader:
    """Reads one object or list, from its opening bracket to its end, to the end of the text, or to what is not JSON.
    `position` is the index behind what was read, and `value` what was read so far."""

    def __init__(self, text: str, start: int) -> None:
        self.position = start
        self.value: dict[str, object] | list[object] = {} if text[start] == "{" else []
        self._text = text
        self._start = start
        self._looked_to = start
        self._open: list[tuple[int, dict[str, object] | list[object]]] = []
        self._objects: list[int] = []  # where they start, also those that are closed

    def read(self) -> str | None:
        """Read as far as possible; returns why that is not to the end of the object."""
        try:
            opening = self._token(_VALUE, "{[")["mark"]
            self._members(self.value, _CLOSING[opening])
        except _NotRead as error:
            return str(error)
        return None

    @property
    def work(self) -> int:
        """Characters that were looked at, and those for the brace."""
        return max(self.position, self._looked_to) - self._start + WORK_PER_BRACE

    @property
    def error(self) -> str:
        """What was expected instead of the character at `position`, which ends a quotation of at most 40."""
        read = self._text[self._start : self.position + 1]
        return f"expected {self._expected}: {read if len(read) <= 40 else '...' + read[-37:]}"

    def not_to_be_tried(self, keys: Sequence[str]) -> list[int]:
        """Where objects start that are not closed; if one of them has one of `keys`, also all those in them."""
        unclosed = [(start, fields) for start, fields in self._open if isinstance(fields, dict)]
        if any(key in fields for _, fields in unclosed for key in keys):
            return self._objects
        return [start for start, _ in unclosed]

    def lacks_only_brackets(self) -> bool:
        """Whether an object that is cut off is whole but for closing brackets; its last value could be cut off, too."""
        said = self._last.group()
        kind = self._last.lastgroup
        whole = kind not in ("number", "word") or said.lower() in _LITERALS or self._last.end() < len(self._text)
        return self._expected not in (_COLON, _VALUE) and whole and self._at_end()

    def _at_end(self) -> bool:
        return _END.match(self._text, self.position) is not None

    def _members(self, container: dict[str, object] | list[object], closing: str) -> None:
        """Read what is in an object or a list, from behind its opening bracket to behind the closing one."""
        self._open.append((self.position - 1, container))
        if len(self._open) > MAX_DEPTH:
            raise _NotRead(_TOO_DEEP)
        if isinstance(container, dict):
            self._objects.append(self.position - 1)
        while True:
            key = ""
            if isinstance(container, dict):
                token = self._token(_KEY, closing)
                if token["mark"]:
                    break
                key = _unescaped(token[str(token.lastgroup)])
                container[key] = None  # the key counts even if its value cannot be read
                self._token(_COLON, ":：")
                token = self._token(_VALUE, "{[")
            else:
                token = self._token(_ITEM, "{[" + closing)
                if token["mark"] == closing:
                    break
            mark = token["mark"]
            value: Any = {} if mark == "{" else [] if mark else _scalar(token)
            if isinstance(container, dict):
                container[key] = value
            else:
                container.append(value)
            if mark:
                self._members(value, _CLOSING[mark])
            if self._token(_COMMA, ",，" + closing)["mark"] == closing:
                break
        self._open.pop()

    def _token(self, expected: str, marks: str) -> re.Match[str]:
        """The next token, which must be one of `marks`, or a value or key if that is expected."""
        self._expected = expected
        self.position = _BLANK.match(self._text, self.position).end()  # type: ignore[union-attr]
        token = _TOKEN.match(self._text, self.position)
        if token is None:
            if self._text.startswith(_UNTERMINATED, self.position):
                self._looked_to = len(self._text)
                # In prose, a brace and an apostrophe are more likely than a truncated key.
                begun = any(container for _, container in self._open) or self._text[self.position] == '"'
            else:
                begun = self._at_end() or _BEGUN_NUMBER.match(self._text, self.position) is not None
            why = _CUT_OFF if begun else _INVALID
            raise _NotRead(why)
        if mark := token["mark"]:
            right = mark in marks
        else:
            right = expected in (_VALUE, _ITEM) or (expected == _KEY and token.lastgroup != "number")
        if not right:
            raise _NotRead(_INVALID)
        self.position = token.end()
        self._last = token
        return token


def _scalar(token: re.Match[str]) -> object:
    kind = str(token.lastgroup)
    said = token[kind]
    if kind == "word":
        return _LITERALS.get(said.lower(), said)
    if kind != "number":
        return _unescaped(said)
    number = said.replace("−", "-")
    whole = number.lstrip("+-").isdecimal() and len(number) <= MAX_INTEGER_DIGITS
    return int(number) if whole else float(number)


def _unescaped(raw: str) -> str:
    """A string's characters; unknown escapes stay as they are."""

    def character(escape: re.Match[str]) -> str:
        four_digits, two_digits, other = escape.groups()
        if other is not None:
            return _ESCAPED.get(other, "\\" + other)
        return chr(int(four_digits or two_digits, 16))

    text = _ESCAPE.sub(character, raw)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # joins surrogate pairs
