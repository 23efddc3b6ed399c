"""Reads JSON objects in text as language models write them: JSON, and what is unambiguous beside it."""

import re
from collections.abc import Iterator, Sequence
from enum import Enum

MAX_DEPTH = 200
"""Objects and lists nested deeper than this are not read."""
MAX_INTEGER_DIGITS = 4300
"""Longer integers are infinite, as floats that are too large are: `int()` refuses them by default."""
LONGEST = 200_000
"""Characters at the end of a text that are read; what is before them is ignored."""
MOST_WORK, WORK_PER_BRACE = 1_000_000, 50
"""The most characters that are read in all; each brace that is tried counts as some. An ordinary text is read about
once; a hostile one could be read again from each of its braces."""
SHOWN_CHARACTERS = 40

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
_END = re.compile(r"(?:\s++|```|</[\w:]++>)*+\Z")
"""The end of the text, where a code fence and tags may close."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\n": ""} | {each: each for each in "\"'/\\“”„‘’"}
_LITERALS = {"true": True, "false": False, "null": None, "none": None}


class _Expected(Enum):
    """What may come next; the value says it in an error."""

    KEY = "a key or a closing brace"
    COLON = "a colon"
    VALUE = "a value"
    ITEM = "a value or a closing bracket"
    COMMA = "a comma or a closing bracket"


class _Outcome(Enum):
    COMPLETE = "complete"
    INVALID = "invalid"
    TOO_DEEP = "nested too deep"
    CUT_OFF = "cut off"


def last_object(text: str, keys: Sequence[str]) -> dict[str, object]:
    """The last JSON object in a text that has one of `keys`; what is around it and objects without `keys` are ignored.

    Beside JSON, these are read: trailing commas; comments (//, /* */, #); single and typographic quotes; line breaks
    and unknown escapes in strings; keys and single words without quotes; True, False, None; +90, .5, 5. and 05; the
    minus sign U+2212; full-width colons and commas. Closing brackets may be missing at the end of the text if the
    object has the last of `keys` and does not end in a number or word, which could be cut off. Nothing else is
    repaired.

    Objects in lists count, and objects in objects without any of `keys`. An object is tried at each brace outside the
    objects before it. What is nested in a failed one is tried alone, unless an object that is not closed has one of
    `keys`. An object that the text cuts off hides all that is in it. Work is limited, whatever the text.

    Raises ValueError with "no complete JSON object" and the reason if there is none.
    """
    text = text[-LONGEST:]
    last, why, why_at = None, "no complete JSON object", -1
    position, work, skipped = 0, 0, set[int]()
    while opening := _OPENING.search(text, position):
        start, position = opening.start(), opening.start() + 1
        if start in skipped:
            continue
        attempt = _Attempt(text, start)
        outcome = attempt.read()
        work += attempt.work
        if work > MOST_WORK:
            raise ValueError("no complete JSON object, only too many braces")
        if outcome is _Outcome.COMPLETE:
            found, position = with_any(attempt.value, keys), attempt.position
            if found is not None:
                last = found
            elif position > why_at:
                why, why_at = f"no JSON object with one of the keys {', '.join(keys)}", position
        elif outcome is _Outcome.INVALID:
            if attempt.position > why_at:
                why, why_at = f"no complete JSON object ({attempt.error})", attempt.position
            skipped.update(attempt.open_objects(), attempt.closed if attempt.has_any(keys) else ())
        else:
            if outcome is _Outcome.CUT_OFF:
                found = with_any(attempt.closed_at_end(), keys)
                if found is not None and keys[-1] in found:
                    return found
            why = f"no complete JSON object, only one that is {outcome.value}"
            break
    if last is None:
        raise ValueError(why)
    return last


def object_spans(text: str, keys: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The start and the end of each complete object in a text that has one of `keys`, read as by `last_object`."""
    position, work = max(0, len(text) - LONGEST), 0
    while (opening := _OPENING.search(text, position)) and work < MOST_WORK:
        attempt = _Attempt(text, opening.start())
        position = opening.start() + 1
        if attempt.read() is _Outcome.COMPLETE and with_any(attempt.value, keys) is not None:
            position = attempt.position
            yield opening.start(), position
        work += attempt.work


def with_any(value: object, keys: Sequence[str]) -> dict[str, object] | None:
    """The last object that has one of `keys` among `value` and what is in objects and lists without; None if none has.

    `keys` nested in an object that has one of them belong to that object.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if any(key in each for key in keys):
                return each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return None


class _Attempt:
    """Reads one object, from its opening brace to its end, to the end of the text, or to what is not JSON.

    `position` is the index behind what was read, `value` the object as far as its members were read, and `closed` has
    the starts of the complete objects in it.
    """

    def __init__(self, text: str, start: int) -> None:
        self.position = start
        self.value: dict[str, object] = {}
        self.closed: list[int] = []
        self._text, self._start = text, start
        self._open: list[tuple[int, dict[str, object] | list[object]]] = []
        self._keys: list[str] = []  # those that wait for their values
        self._expected = _Expected.VALUE
        self._last: re.Match[str] | None = None
        self._looked_to = start

    def read(self) -> _Outcome:
        """Read as far as possible."""
        while True:
            self.position = _BLANK.match(self._text, self.position).end()  # type: ignore[union-attr]
            token = _TOKEN.match(self._text, self.position)
            if token is None:
                return self._why_no_token()
            if not self._take(token):
                return _Outcome.INVALID
            self.position, self._last = token.end(), token
            if not self._open:
                return _Outcome.COMPLETE
            if len(self._open) > MAX_DEPTH:
                return _Outcome.TOO_DEEP

    @property
    def work(self) -> int:
        """Characters that were looked at, and those for the brace."""
        return max(self.position, self._looked_to) - self._start + WORK_PER_BRACE

    @property
    def error(self) -> str:
        """What was expected instead of the character at `position`, which ends the quotation."""
        read = self._text[self._start : self.position + 1]
        return f"expected {self._expected.value}: {read if len(read) <= SHOWN_CHARACTERS else '...' + read[-37:]}"

    def open_objects(self) -> list[int]:
        """The starts of the objects that are not closed."""
        return [start for start, container in self._open if isinstance(container, dict)]

    def has_any(self, keys: Sequence[str]) -> bool:
        """Whether an object that is not closed has one of `keys`."""
        found = {key for _, container in self._open if isinstance(container, dict) for key in container}
        return any(key in found or key in self._keys for key in keys)

    def closed_at_end(self) -> dict[str, object] | None:
        """The object closed where the text ends; None if its last value could be cut off."""
        assert self._last is not None
        said, kind = self._last.group(), self._last.lastgroup
        whole = kind not in ("number", "word") or said.lower() in _LITERALS or self._last.end() < len(self._text)
        if self._expected in (_Expected.COLON, _Expected.VALUE) or not whole or not self._at_end():
            return None
        while self._open:
            self._close()
        return self.value

    def _at_end(self) -> bool:
        return _END.match(self._text, self.position) is not None

    def _why_no_token(self) -> _Outcome:
        """How to read on in an object with something at `position` that is not a token."""
        if self._text.startswith(_UNTERMINATED, self.position):
            self._looked_to = len(self._text)
            # In prose, a brace and an apostrophe are more likely than a truncated key.
            begun = self._keys or any(container for _, container in self._open) or self._text[self.position] == '"'
            return _Outcome.CUT_OFF if begun else _Outcome.INVALID
        if self._at_end() or _BEGUN_NUMBER.match(self._text, self.position):
            return _Outcome.CUT_OFF
        return _Outcome.INVALID

    def _take(self, token: re.Match[str]) -> bool:
        """Add a token; False if it is not expected."""
        kind = token.lastgroup
        assert kind is not None
        said = token[kind]
        if kind == "mark":
            return self._take_mark(said)
        if self._expected in (_Expected.VALUE, _Expected.ITEM):
            self._put(_scalar(kind, said))
            return True
        if self._expected is _Expected.KEY and kind != "number":
            self._keys.append(said if kind == "word" else _unescaped(said))
            self._expected = _Expected.COLON
            return True
        return False

    def _take_mark(self, mark: str) -> bool:
        in_object = bool(self._open) and isinstance(self._open[-1][1], dict)
        expected = self._expected
        match mark:
            case "{" | "[" if expected in (_Expected.VALUE, _Expected.ITEM):
                container: dict[str, object] | list[object] = {} if mark == "{" else []
                if not self._open:
                    assert isinstance(container, dict)
                    self.value = container
                self._open.append((self.position, container))
                self._expected = _Expected.KEY if mark == "{" else _Expected.ITEM
            case "}" | "]" if in_object == (mark == "}") and expected not in (_Expected.COLON, _Expected.VALUE):
                self._close()
            case ":" | "：" if expected is _Expected.COLON:
                self._expected = _Expected.VALUE
            case "," | "，" if expected is _Expected.COMMA:
                self._expected = _Expected.KEY if in_object else _Expected.ITEM
            case _:
                return False
        return True

    def _close(self) -> None:
        start, container = self._open.pop()
        if self._open:
            if isinstance(container, dict):
                self.closed.append(start)
            self._put(container)

    def _put(self, value: object) -> None:
        container = self._open[-1][1]
        if isinstance(container, dict):
            container[self._keys.pop()] = value
        else:
            container.append(value)
        self._expected = _Expected.COMMA


def _scalar(kind: str, said: str) -> object:
    """The value of a token of _TOKEN that is not a mark."""
    if kind == "word":
        return _LITERALS.get(said.lower(), said)
    if kind != "number":
        return _unescaped(said)
    number = said.replace("−", "-")
    whole = number.lstrip("+-").isdecimal() and len(number) <= MAX_INTEGER_DIGITS
    return int(number) if whole else float(number)


def _unescaped(raw: str) -> str:
    """A string's characters; unknown escapes stay as they are."""
    if "\\" not in raw:
        return raw
    text = _ESCAPE.sub(lambda found: _character(*found.groups()), raw)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # joins surrogate pairs


def _character(four_digits: str | None, two_digits: str | None, other: str | None) -> str:
    if other is not None:
        return _ESCAPED.get(other, "\\" + other)
    return chr(int(four_digits or two_digits or "", 16))
