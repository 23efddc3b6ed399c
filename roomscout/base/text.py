"""Text from outside (replies, servers, question files, arguments, paths): safe to show, and equal in every locale.

A terminal obeys control characters: they clear it, rename its window or write to its clipboard. A line break forges a
line of a log, and a bidirectional override shows text in another order than it has. Hence the rule for every view of a
run: show outside text as `escaped`. Files of a run that programs read keep the text as it is.
"""

import copy
import io
import json
import logging
import os
import re
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from numbers import Number
from pathlib import Path
from typing import Any, TextIO
from unicodedata import normalize

# C0 and C1 with DEL; line and paragraph separators; bidirectional embeddings, overrides and isolates; surrogates.
_UNSAFE = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE_IN_LINE = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINES = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBERS = re.compile(r"[-+]?[0-9][-+0-9.,eE\s]*")
_IN_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # a row that began with one would be an argument of the row before
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"},
    **{"`": r"\textasciigrave{}", "<": "$<$", ">": "$>$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\to$"},
    **{"−": "$-$", "-": "$-$", "--": "-{}-", "²": "$^2$", "³": "$^3$", "°": r"\textdegree{}", "±": r"$\pm$"},
    **{"×": r"$\times$", "·": r"$\cdot$", "…": r"\dots{}", "µ": r"$\mu$", "≈": r"$\approx$"},
}
_ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
_ACCENTED = "".join(sign for sign in map(chr, range(0xC0, 0x180)) if normalize("NFD", sign)[-1] in _ACCENTS)
_KNOWN_TO_LATEX = f"\x00-\x7f{_ACCENTED}ßæÆœŒøØłŁıåÅ“”‘’–—£§©®¶½¼¾"
_OF_LATEX = re.compile(
    rf"--|(?<= )-(?= )|(?<![\w)\]])-(?=[\d.])|(?!-)[{re.escape(''.join(_IN_LATEX))}]"
    rf"|[^{_KNOWN_TO_LATEX}{re.escape(''.join(_IN_LATEX))}]+"
)
_NOT_INDENTED = re.compile("\n(?=[^ \n])")


def escaped(text: str) -> str:
    r"""Outside text on one line: control characters, line breaks, bidirectional overrides and surrogates as escapes.
    Writes them as Python does, such as \x1b, \n and \u202e. Keeps backslashes, so escaping twice changes nothing."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def escaped_text(text: str) -> str:
    """Outside text of several lines, for a page: keeps its line breaks and tabs, and is otherwise `escaped`."""
    return _UNSAFE_IN_LINES.sub(_escape, text)


def escaped_lines(text: str) -> str:
    """A message of several lines as `escaped_text`, with later lines indented, so that none passes for a message."""
    return _NOT_INDENTED.sub("\n  ", escaped_text(text))


def in_markdown(line: str) -> str:
    """A line of Markdown with outside text as `escaped`, in which nothing is HTML, a link or an image."""
    return escaped(line).replace("&", "&amp;").replace("<", "&lt;").replace("[", "&#91;")


def in_latex(text: str) -> str:
    """Outside text as `escaped`, as LaTeX that shows these characters, with numbers behind a minus sign. What pdfLaTeX
    lacks, such as Chinese, it shows as numbers (U+6A21), and LuaLaTeX and XeLaTeX as it is."""
    return _OF_LATEX.sub(lambda found: _IN_LATEX.get(found[0]) or _of_larger_latex(found[0]), escaped(text))


def _of_larger_latex(text: str) -> str:
    numbers = " ".join(f"U+{ord(sign):04X}" for sign in text)
    return rf"{{\ifdefined\Umathchar {text}\else {numbers}\fi}}"


def json_in(text: str | bytes, **options: Any) -> Any:
    """The value that JSON of others stands for; raises ValueError, also if it is nested too deeply to be read."""
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def capitalized(sentence: str) -> str:
    """A sentence with a capital letter, whose other letters stay."""
    return sentence[:1].upper() + sentence[1:]


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its type if it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def csv_cell(value: Any) -> Any:
    """A value as a cell of a table for spreadsheets: text that would be a formula begins with "'". Numbers stay as they
    are, also as text, and so do positions. Source: https://owasp.org/www-community/attacks/CSV_Injection."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _NUMBERS.fullmatch(value) else value


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


RESULT = (logging.INFO + logging.WARNING) // 2
"""The level of log lines that are results of the command, which `--log-level result` also prints."""


class LogFormatter(logging.Formatter):
    """Formats log records with `escaped` arguments; the format itself and tracebacks may have several lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text. Does not change it: other handlers may format it otherwise."""
        record = copy.copy(record)
        if isinstance(record.args, Mapping):
            record.args = {name: _shown(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_shown, record.args))
        return escaped_lines(super().format(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 (logging's name)
        """The traceback, indented."""
        return textwrap.indent(super().formatException(ei), "  ")


class _Shown:
    """Any value, escaped once it is formatted by %s or %r."""

    def __init__(self, value: object):
        self._value = value

    def __str__(self) -> str:
        return escaped(str(self._value))

    def __repr__(self) -> str:
        return escaped(repr(self._value))


def _shown(value: object) -> object:
    return value if isinstance(value, Number) else _Shown(value)


def replace_unencodable(stream: TextIO) -> None:
    """Make a stream write characters that its encoding lacks as escapes, instead of raising UnicodeEncodeError."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def log_to_stream(stream: TextIO, level: int = logging.INFO, line: str = "%(message)s") -> None:
    """Print a command's log lines to a stream; `line` is their format."""
    replace_unencodable(stream)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter(line))
    logging.basicConfig(level=level, handlers=[handler])


def did_you_mean(word: str, words: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """How to fix a word: the most similar of those that exist, after `prefix`, or `otherwise` if none is similar."""
    near = get_close_matches(word, list(words), n=1)
    return f"did you mean {prefix}{near[0]}?" if near else otherwise


def listed(values: Iterable[str], at_most: int = 20) -> str:
    """The first `at_most` values, `escaped` and joined for a message, and the number of others."""
    values = list(values)
    more = f" and {len(values) - at_most} more" if len(values) > at_most else ""
    return ", ".join(map(escaped, values[:at_most])) + more


def counted(number: int, noun: str) -> str:
    """A number and its noun, such as "1 question" or "1,200 questions"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def either(names: Iterable[str]) -> str:
    """Names as alternatives, such as "ask, eval or demo"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def argument_text(argument: str | Path) -> str:
    """A command's argument or a path as text; bytes that the locale could not decode are decoded as UTF-8. Python reads
    such bytes as surrogates, in an ASCII locale all bytes of "ü". Those that are not UTF-8 either stay."""
    try:
        return str(argument).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # it has other surrogates, so Python did not decode it
        return str(argument)


def on_disk(path: Path) -> Path:
    """The path of a file whose name is `path` in UTF-8, also in a locale whose encoding lacks its characters."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        with suppress(UnicodeEncodeError):  # other surrogates: no file has such a name
            return Path(os.fsdecode(str(path).encode("utf-8", "surrogateescape")))
    return path
