"""What people read on their page: the sentences of a words file, and the researcher's instructions and thanks."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Formatter
from typing import Any
from urllib.parse import quote

from roomscout.agent.play import LANGUAGES
from roomscout.base.errors import SettingError
from roomscout.base.plain_yaml import read_yaml
from roomscout.base.text import listed
from roomscout.data.answers import HALF_WIDTH, NUMBER, AnswerKind, Number
from roomscout.data.question import Question

PLURALS = {"zero", "one", "two", "few", "many", "other"}
"""The plural categories of CLDR: https://www.unicode.org/reports/tr35/tr35-numbers.html#Language_Plural_Rules"""
OPEN: Mapping[str, Any] = {"names": "", "units": []}  # the parts of a words file that may have further keys
SIGNS = {"language": r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", "decimal": "[.,]"}
PERSON = "{person}"


class Unreadable(ValueError):
    """What a person wrote cannot be used. The message is for the person, in the words of the page."""


@dataclass(frozen=True)
class Words:
    """The sentences of one language, by their dotted names, and how it writes numbers."""

    texts: Mapping[str, Any]  # the contents of a words file

    def say(self, name: str, /, **values: str) -> str:
        """A sentence without plural forms, filled in."""
        text: Any = self.texts
        for key in name.split("."):
            text = text[key]
        return str(text.format(**values))

    def plain(self, written: str) -> str:
        """A number as people write it, in this language, as `AnswerKind`s read it: "2,5 Meter" as "2.5 m", "two" as
        "2". Anything else stays as it is. Raises Unreadable for what may be two numbers, such as "1,500"."""
        text = written.translate(HALF_WIDTH | {ord("，"): ",", ord("\u2212"): "-"}).strip().lower()
        found = re.match(r"([+-]?)(\d[\d.,]*|[.,]\d+|[^\W\d_]+)", text)
        if found is None:
            return written
        number = self._digits(found[2], written.strip())
        if number is None:
            return written
        rest = text[found.end() :].strip().rstrip(".")
        spelled = {word.lower(): unit for unit, words in self.texts["units"].items() for word in words}
        return f"{found[1]}{number} {spelled.get(rest, rest)}".strip()

    def _digits(self, word: str, written: str) -> str | None:
        """A word or digits without a sign as a plain number; None if it is neither."""
        if not any(sign.isdigit() for sign in word):
            return next((number for number, words in self.texts["numbers"].items() if word in words), None)
        word = word.rstrip(".,")
        decimal = self.texts["decimal"]
        other = "." if decimal == "," else ","
        if re.fullmatch(rf"[1-9]\d{{0,2}}\{other}\d{{3}}", word):
            fraction = word.replace(other, decimal)
            raise Unreadable(
                self.say("errors.ambiguous", written=written, first=fraction, second=word.replace(other, ""))
            )
        for point, thousands in ((".", ","), (",", ".")):
            if re.fullmatch(rf"[1-9]\d{{0,2}}(\{thousands}\d{{3}})+(\{point}\d+)?", word) and (
                point in word or word.count(thousands) > 1
            ):
                return word.replace(thousands, "").replace(point, ".")
        return word.replace(",", ".") if NUMBER.fullmatch(word.replace(",", ".")) else None

    def number(self, written: object, name: str) -> object:
        """The number that a person wrote into the field of a move, of this name; texts alone are read. Raises
        Unreadable."""
        if not isinstance(written, str):
            return written
        number, _, unit = self.plain(written).partition(" ")
        if NUMBER.fullmatch(number) is None or unit not in ("", *self.texts["units"]):
            raise Unreadable(self.say("errors.field", name=self.texts["names"].get(name, name.replace("_", " "))))
        return float(number)

    def answer(self, written: object, question: Question) -> object:
        """What a person wrote as the answer to a question, a number as a plain one; raises Unreadable for what is
        not a valid answer, or AnswerKindError."""
        is_number = isinstance(question.kind, Number)
        given = self.plain(written) if is_number and isinstance(written, str) else written
        answer = question.parse_answer(given)
        if answer is None:
            raise Unreadable(self._refusal(question, question.kind))
        return answer if is_number else given

    def _refusal(self, question: Question, kind: AnswerKind) -> str:
        if isinstance(kind, Number):
            unit = self.texts["units"].get(kind.unit, [kind.unit])[0]
            name = "count" if kind.unit == "objects" else "number_of" if kind.unit else "number"
            return self.say(f"errors.{name}", unit=unit)
        if kind.name in ("letter", "yes_no", "pose"):
            return self.say("errors.choose")
        if kind.name in ("text", "point"):
            return self.say(f"errors.{'write' if kind.name == 'text' else 'point'}")
        with question.kind_code("form"):
            return self.say("errors.form", form=kind.form(question.letters))


@dataclass(frozen=True)
class Texts:
    """All that people read beside the questions."""

    words: Words  # the sentences of the page
    instructions: str = ""  # what is read first, as HTML
    thanks: str = ""  # what is read at the end, as HTML; may name PERSON

    @classmethod
    def read(cls, words: str, instructions: Path | None, thanks: Path | None, has_names: bool) -> "Texts":
        """The texts in these files; raises SettingError. `has_names` says whether the people have names."""
        end = "" if thanks is None else _markdown(thanks, "thanks")
        named = set(re.findall(r"(?:\{|%7B)(\w+)(?:\}|%7D)", end))
        if unknown := sorted(named - {"person"}):
            raise SettingError(f"{thanks} has the placeholder {{{unknown[0]}}}: it takes {PERSON}", setting="thanks")
        if named and not has_names:
            why = f"{thanks} has the placeholder {PERSON}, and the people have no names"
            raise SettingError(why, setting="thanks")
        first = "" if instructions is None else _markdown(instructions, "instructions")
        return cls(words_of(words), first, end)

    def thanks_to(self, person: str) -> str:
        """The thanks to a person, as HTML; in an address, the name is as addresses need it."""
        return self.thanks.replace(PERSON, escape(person)).replace(quote(PERSON), quote(person))


def words_of(name: str) -> Words:
    """The words of a language in LANGUAGES, or of a file; raises SettingError that says what the file lacks."""
    if name in LANGUAGES:
        return _included(name)
    try:
        texts = read_yaml(Path(name))
    except OSError as error:
        ours = " or ".join(LANGUAGES)
        why = f"{name} cannot be read ({error.strerror or error}): name a YAML file, or {ours}"
        raise SettingError(why, setting="words") from None
    except ValueError as error:
        raise SettingError(f"{name}: {error}", setting="words") from None
    if wrong := list(_differences(texts)):
        raise SettingError(f"{name}: {listed(wrong, 3)}", setting="words")
    return Words(texts)


@cache
def _included(language: str) -> Words:
    with resources.as_file(resources.files("roomscout.agent.play") / "words" / f"{language}.yaml") as path:
        return Words(read_yaml(path))


def _flat(texts: Any, name: str = "") -> dict[str, Any]:
    """The sentences and lists of a part of a words file by their dotted names; plural forms are one sentence."""
    if not isinstance(texts, dict) or PLURALS & texts.keys():
        return {name: texts}
    parts = [_flat(text, f"{name}.{key}".removeprefix(".")) for key, text in texts.items()]
    return {place: text for part in parts for place, text in part.items()}


def _differences(texts: Any) -> Iterator[str]:
    """What is wrong with a words file beside the English one."""
    ours = _flat(_included(LANGUAGES[0]).texts)
    theirs = _flat(texts)
    yield from (f"{name} is missing" for name in ours if name not in theirs)
    for name, text in theirs.items():
        own = ours.get(name, OPEN.get(name.partition(".")[0]))
        if own is None:
            yield f"there is no {name}"
        elif isinstance(own, list):
            if not isinstance(text, list) or not text or not all(isinstance(word, str) for word in text):
                yield f"{name} must be a list of words"
        else:
            yield from _wrong_sentence(own, text, name)


def _wrong_sentence(ours: str | dict[str, str], theirs: Any, name: str) -> Iterator[str]:
    """What is wrong with a sentence, which may have plural forms if ours has."""
    own = ours if isinstance(ours, str) else " ".join(ours.values())
    forms = theirs if isinstance(theirs, dict) and not isinstance(ours, str) else {"other": theirs}
    if "other" not in forms or not forms.keys() <= PLURALS:
        yield f"{name} must have the key other, and may have {', '.join(sorted(PLURALS - {'other'}))}"
        return
    known = {field for _, field, _, _ in Formatter().parse(own) if field}
    for text in forms.values():
        if not isinstance(text, str) or not text.strip():
            yield f"{name} must be a text"
        elif not re.fullmatch(SIGNS.get(name, ".*"), text, re.DOTALL):
            yield f"{name} cannot be {text!r}"
        else:
            yield from _wrong_placeholders(text, known, name)


def _wrong_placeholders(text: str, known: set[str], name: str) -> Iterator[str]:
    takes = ", ".join(f"{{{field}}}" for field in sorted(known)) or "no placeholders"
    try:
        fields = list(Formatter().parse(text))
    except ValueError:
        yield f"{name} has a single brace: write {{{{ or }}}} for a brace, it takes {takes}"
        return
    for _, field, form, conversion in fields:
        if field is not None and (field not in known or form or conversion):
            yield f"{name} has the placeholder {{{field}}}: it takes {takes}"


def _markdown(path: Path, setting: str) -> str:
    """A Markdown file as HTML, without the HTML that it may have; raises SettingError."""
    from markdown_it import MarkdownIt

    try:
        return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} cannot be read as a text file ({error})", setting=setting) from None
