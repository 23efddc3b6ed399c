"""Finds JSON objects in text that arrives in pieces, in time linear in its length."""

import json
import re
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple

MAX_DEPTH = 200
"""Objects and lists nested deeper than this are not read. `json` reads as deep as the stack of its caller allows; a
limit well below that makes the result depend on the reply alone."""
MAX_INTEGER_DIGITS = 4300
"""Longer integers are not read: `int()` refuses them by default."""

LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*+")
"""The characters of numbers and literals; any other character ends them."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*+)((?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)")
_BEGUN_NUMBER = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*|(\.[0-9]+)?[eE][+-]?[0-9]*)?)?")
_STRING = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_BLANK = r"[ \t\n\r]*+"
_OPENING = re.compile(rf"""\{{(?={_BLANK}(?:}}|\Z|"{_STRING.pattern}(?:\\|\Z|"{_BLANK}(?::|\Z))))""")
"""A brace that may begin an object. Most braces in prose do not, and skipping them saves most of the time."""
_BEGUN_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{0,3})?")
_ESCAPE_LENGTH = len(r"\u0000")
_BLANKS = " \t\n\r"
_LIST = -1
"""Stands for a list where objects are represented by their start."""


class Outcome(Enum):
    """What follows an opening brace."""

    COMPLETE = auto()
    INVALID = auto()
    HUGE_INTEGER = auto()
    """An object with an integer of more than MAX_INTEGER_DIGITS digits."""
    TOO_DEEP = auto()
    TRUNCATED = auto()
    """An object that is valid up to the end of the text."""


class Scanned(NamedTuple):
    """What was found at an opening brace outside all other objects; indices count from the start of the text.

    `end` is the index behind a complete object, else None. `has_key` says whether a complete object has the scanner's
    key, `read` how many characters had to be read to know the outcome.
    """

    start: int
    end: int | None
    outcome: Outcome
    has_key: bool
    read: int


class ObjectScanner:
    """Scans a text for the outermost JSON objects; an object is what `json` would decode.

    At each opening brace outside a complete object, in order, an object is tried. After a complete object the scan
    continues behind it; after text that is not an object, at the next opening brace, which may be inside the failed
    attempt. An object that is not yet complete holds back everything inside it, and one that is too deep ends the scan.
    Braces without a key and a colon or a closing brace behind them are skipped without an outcome.

    Time is linear although failed attempts are read again: an attempt that fails at some character also decides the
    outcome of each brace that it read as structure. Only braces that it read as part of strings are tried again; these
    attempts take for structure what the first took for strings, so no character is part of more than two attempts.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._length = 0  # of all pieces so far
        self._read = 0
        self._attempt: _Attempt | None = None
        self._chunks: list[str] = []  # the text from the beginning of the attempt on
        self._closed: dict[int, int] = {}  # starts and ends of complete objects in failed attempts
        self._failed: dict[int, Outcome] = {}  # starts of incomplete objects in failed attempts
        self._keyed: set[int] = set()
        self._ended = False

    def scan(self, piece: str, last: bool = False) -> Iterator[Scanned]:
        """Yield each outcome that `piece`, the next piece of the text, decides; `last` says that the text ends with it.

        A scanner may be dropped after any outcome, but takes another piece only after all have been consumed.
        """
        text, pos, offset = piece, 0, self._length
        self._length += len(piece)
        if self._attempt is not None:
            self._chunks.append(piece)
            text, offset = self._attempt.held + piece, offset - len(self._attempt.held)
        while not self._ended:
            if self._attempt is None:
                found = _OPENING.search(text, pos)
                if found is None:
                    self._closed, self._failed, self._keyed = {}, {}, set()
                    return
                pos, start = found.end(), offset + found.start()
                if start in self._failed:
                    yield Scanned(start, None, self._failed[start], False, self._read)
                    continue
                if start in self._closed:
                    pos = self._closed[start] - offset
                    yield Scanned(start, pos + offset, Outcome.COMPLETE, start in self._keyed, self._read)
                    continue
                self._attempt = _Attempt(start, self._key)
            attempt = self._attempt
            outcome = attempt.read(text, pos, offset, last)
            if outcome is None:
                if attempt.start >= offset:
                    self._chunks = [text[attempt.start - offset :]]
                return
            self._read = max(self._read, attempt.read_to)
            if outcome is Outcome.COMPLETE:
                pos = attempt.read_to - offset
                has_key = attempt.start in attempt.keyed
                yield Scanned(attempt.start, attempt.read_to, outcome, has_key, self._read)
            else:
                yield Scanned(attempt.start, None, outcome, False, self._read)
                if attempt.start < offset:
                    text, offset = "".join(self._chunks), attempt.start
                pos = attempt.start + 1 - offset
                self._closed |= attempt.closed
                self._keyed |= attempt.keyed
                self._failed |= dict.fromkeys(attempt.open_objects(), outcome)
                self._ended = outcome in (Outcome.TOO_DEEP, Outcome.TRUNCATED)
            self._attempt = None


class _Attempt:
    """Reads one object behind its opening brace, which is at `start`.

    `read_to` is the index up to which the object was read, including the character that decides its outcome. `closed`
    has the starts and ends of the complete objects inside it so far, `keyed` the starts of objects that have the key,
    and `held` a partial escape that must precede the next piece.
    """

    def __init__(self, start: int, key: str) -> None:
        self.start = start
        self.read_to = start
        self.held = ""
        self.closed: dict[int, int] = {}
        self.keyed: set[int] = set()
        self._key = key
        self._longest_key = _ESCAPE_LENGTH * len(key)
        self._stack = [start]
        self._expected = _FIRST_KEY
        self._rest_of_token: _Step | None = None  # where the text ended inside a token
        self._raw_key = ""
        self._scalar: list[str] = []
        self._offset = 0
        self._outcome: Outcome | None = None

    def read(self, text: str, pos: int, offset: int, last: bool) -> Outcome | None:
        """Continue at text[pos], where text[0] has the index `offset`; returns None while the outcome is open."""
        self._offset, self.held = offset, ""
        if self._rest_of_token is not None:
            pos = self._rest_of_token(self, text, pos)
        while self._outcome is None and pos < len(text):
            char = text[pos]
            step = self._expected.get(char)
            if step is not None:
                pos = step(self, text, pos)
            elif char in _BLANKS:
                pos += 1
            else:
                self._outcome = Outcome.INVALID
        if last and self._outcome is None:
            self._outcome = self._at_end()
        self.read_to = offset + pos + (self._outcome is not Outcome.COMPLETE)
        return self._outcome

    def open_objects(self) -> list[int]:
        """The starts of the objects inside it that are not closed, which fail if it does."""
        return [start for start in self._stack[1:] if start != _LIST]

    def _open_object(self, text: str, pos: int) -> int:
        self._stack.append(self._offset + pos)
        self._expected = _FIRST_KEY
        return self._check_depth(pos)

    def _open_list(self, text: str, pos: int) -> int:
        self._stack.append(_LIST)
        self._expected = _FIRST_ITEM
        return self._check_depth(pos)

    def _check_depth(self, pos: int) -> int:
        if len(self._stack) > MAX_DEPTH:
            self._outcome = Outcome.TOO_DEEP
        return pos + 1

    def _close(self, text: str, pos: int) -> int:
        start = self._stack.pop()
        if not self._stack:
            self._outcome = Outcome.COMPLETE
            return pos + 1
        if start != _LIST:
            self.closed[start] = self._offset + pos + 1
        self._end_value()
        return pos + 1

    def _end_value(self) -> None:
        self._expected = _AFTER_ITEM if self._stack[-1] == _LIST else _AFTER_MEMBER

    def _comma(self, text: str, pos: int) -> int:
        self._expected = _VALUE if self._stack[-1] == _LIST else _KEY
        return pos + 1

    def _colon(self, text: str, pos: int) -> int:
        self._expected = _VALUE
        return pos + 1

    def _begin_key(self, text: str, pos: int) -> int:
        self._raw_key = ""
        return self._read_key(text, pos + 1)

    def _read_key(self, text: str, pos: int) -> int:
        end = self._skip_string(text, pos, _Attempt._read_key)
        if len(self._raw_key) <= self._longest_key:  # a longer one cannot be the key
            self._raw_key += text[pos : min(end - len(self.held), pos + self._longest_key + 1)]
        if self._rest_of_token is not None or self._outcome is not None:
            return end
        if self._is_key(self._raw_key):
            self.keyed.add(self._stack[-1])
        self._expected = _COLON
        return end + 1

    def _is_key(self, raw: str) -> bool:
        """Whether a string's characters between its quotes, or the first of too many, spell the key."""
        return raw == self._key or (
            "\\" in raw and len(raw) <= self._longest_key and json.loads(f'"{raw}"') == self._key
        )

    def _begin_string(self, text: str, pos: int) -> int:
        return self._read_string(text, pos + 1)

    def _read_string(self, text: str, pos: int) -> int:
        end = self._skip_string(text, pos, _Attempt._read_string)
        if self._rest_of_token is not None or self._outcome is not None:
            return end
        self._end_value()
        return end + 1

    def _skip_string(self, text: str, pos: int, rest: "_Step") -> int:
        """The position of the closing quote; or the end of the text, where `rest` will continue; or of an error."""
        matched = _STRING.match(text, pos)
        assert matched is not None
        end, self._rest_of_token = matched.end(), None
        if text.startswith('"', end):
            return end
        escape = _BEGUN_ESCAPE.match(text, end)
        stop = end if escape is None else escape.end()
        if stop == len(text):
            self.held, self._rest_of_token = text[end:], rest
        else:
            self._outcome = Outcome.INVALID
        return stop

    def _begin_scalar(self, text: str, pos: int) -> int:
        self._scalar = []
        return self._read_scalar(text, pos)

    def _read_scalar(self, text: str, pos: int) -> int:
        matched = _SCALAR.match(text, pos)
        assert matched is not None
        self._scalar.append(matched.group())
        if matched.end() == len(text):
            self._rest_of_token = _Attempt._read_scalar
        else:
            self._rest_of_token = None
            self._outcome = _scalar_error("".join(self._scalar))
            self._end_value()
        return matched.end()

    def _at_end(self) -> Outcome:
        if self._rest_of_token is _Attempt._read_scalar:
            scalar = "".join(self._scalar)
            error = _scalar_error(scalar)
            if error is Outcome.HUGE_INTEGER or (error is not None and not _is_begun_scalar(scalar)):
                return error
        return Outcome.TRUNCATED


def _scalar_error(scalar: str) -> Outcome | None:
    """What is wrong with a number or literal, None if nothing is; as `json` does, huge integers are refused first."""
    number = _NUMBER.match(scalar)
    if number is not None and not number[2] and len(number[1]) > MAX_INTEGER_DIGITS:
        return Outcome.HUGE_INTEGER
    if scalar in LITERALS or (number is not None and number.end() == len(scalar)):
        return None
    return Outcome.INVALID


def _is_begun_scalar(scalar: str) -> bool:
    return _BEGUN_NUMBER.fullmatch(scalar) is not None or any(word.startswith(scalar) for word in LITERALS)


_Step = Callable[[_Attempt, str, int], int]
"""Reads a token at a position of the text and returns the position behind it."""
_KEY: dict[str, _Step] = {'"': _Attempt._begin_key}
_FIRST_KEY = _KEY | {"}": _Attempt._close}
_COLON: dict[str, _Step] = {":": _Attempt._colon}
_VALUE: dict[str, _Step] = {
    "{": _Attempt._open_object,
    "[": _Attempt._open_list,
    '"': _Attempt._begin_string,
    **dict.fromkeys("-0123456789tfnNI", _Attempt._begin_scalar),
}
_FIRST_ITEM = _VALUE | {"]": _Attempt._close}
_AFTER_ITEM: dict[str, _Step] = {",": _Attempt._comma, "]": _Attempt._close}
_AFTER_MEMBER: dict[str, _Step] = {",": _Attempt._comma, "}": _Attempt._close}
