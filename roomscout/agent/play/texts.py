"""What people read on their page: the sentences of a words file, and the researcher's instructions and thanks."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from roomscout.agent.play import LANGUAGES
from roomscout.base.errors import SettingError
from roomscout.base.plain_yaml import read_yaml
from roomscout.base.text import listed
from roomscout.data.answers import HALF_WIDTH, KIND_NAMES, NUMBER, Number, Point
from roomscout.data.question import Question

PLURALS = ("zero", "one", "two", "few", "many")
"""The plural categories of CLDR beside "other": https://www.unicode.org/reports/tr35/tr35-numbers.html#Language_Plural_Rules"""
OPEN: Mapping[str, Any] = {"names": "", "units": []}  # the parts of a words file that may have further keys
SIGNS = {"language": r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-[A-Z]{2}|-\d{3})?", "decimal": "[.,]"}
PERSON = "{person}"
REFUSALS = {"letter": "choose", "yes_no": "choose", "pose": "choose", "text": "write", "point": "point"}
"""The sentences about answers that are not valid, by their kinds."""


class Unreadable(ValueError):
    """What a person wrote cannot be used. The message is for the person, in the words of the page."""


@dataclass(frozen=True)
class Texts:
    """All that people read beside the questions."""

    words: Mapping[str, Any]  # the contents of a words file: sentences, and how a language writes numbers
    instructions: str = ""  # what is read first, as HTML
    thanks: str = ""  # what is read at the end, as HTML; may name PERSON

    @classmethod
    def read(cls, words: str, instructions: Path | None, thanks: Path | None, has_names: bool) -> "Texts":
        """The texts in these files; raises SettingError. `has_names` says whether the people have names."""
        end = "" if thanks is None else _markdown(thanks, "thanks")
        known = ["person"] if has_names else []
        for name in re.findall(r"(?:\{|%7B)(\w+)(?:\}|%7D)", end):
            if name not in known:
                takes = PERSON if has_names else "none, as the people have no names"
                raise SettingError(f"{thanks} has the placeholder {{{name}}}: it takes {takes}", setting="thanks")
        first = "" if instructions is None else _markdown(instructions, "instructions")
        return replace(words_of(words), instructions=first, thanks=end)

    def thanks_to(self, person: str) -> str:
        """The thanks to a person, as HTML; in an address, the name is as addresses need it."""
        return self.thanks.replace(PERSON, escape(person)).replace(quote(PERSON), quote(person, safe=""))

    def say(self, name: str, /, **values: str) -> str:
        """A sentence without plural forms by its dotted name, filled in."""
        text: Any = self.words
        for key in name.split("."):
            text = text[key]
        return str(text.format(**values))

    def plain(self, written: str) -> str:
        """A number as people write it, in this language, as `AnswerKind`s read it: "2,5 Meter" as "2.5 m", "two" as
        "2". Anything else stays as it is. Raises Unreadable for what may be two numbers, such as "1,500"."""
        text = written.translate(HALF_WIDTH | {ord("，"): ",", ord("\u2212"): "-"}).strip().lower()
        found = re.fullmatch(r"([+-]?)([\d.,]+|[^\W\d_]+)\s*(.*?)\.?", text, re.DOTALL)
        number = self._digits(found[2].rstrip(".,")) if found else None
        if found is None or number is None:
            return written
        units = {word.lower(): unit for unit, words in self.words["units"].items() for word in words}
        return f"{found[1]}{number} {units.get(found[3], found[3])}".strip()

    def _digits(self, word: str) -> str | None:
        """A word or digits without a sign as a plain number; None if it is neither."""
        if found := [number for number, words in self.words["numbers"].items() if word in map(str.lower, words)]:
            return found[0]
        decimal = self.words["decimal"]
        with_point = word.replace(",", ".")
        is_decimal = NUMBER.fullmatch(with_point) is not None
        if is_decimal and set(",.") & set(word) <= {decimal}:
            return with_point
        for point, thousands in (".,", ",."):
            if re.fullmatch(rf"[1-9]\d{{0,2}}(\{thousands}\d{{3}})+(\{point}\d+)?", word):
                whole = word.replace(thousands, "").replace(point, ".")
                if is_decimal:
                    first = with_point.replace(".", decimal)
                    raise Unreadable(self.say("errors.ambiguous", written=word, first=first, second=whole))
                return whole
        return with_point if is_decimal else None

    def number(self, written: object, name: str) -> object:
        """The number that a person wrote into the field of a move, of this name; texts alone are read. Raises
        Unreadable."""
        if not isinstance(written, str):
            return written
        unit = "degrees" if "degrees" in name else "m"
        number = Number(unit).parse(self.plain(written), ())
        if number is None:
            raise Unreadable(self.say("errors.field", name=self.words["names"].get(name, name.replace("_", " "))))
        return float(number)

    def answer(self, written: object, question: Question) -> object:
        """What a person wrote as the answer to a question, in plain form if its kind is one of KIND_NAMES; raises
        Unreadable for what is not a valid answer, or AnswerKindError."""
        kind = question.kind
        given = written
        if isinstance(written, str) and isinstance(kind, Number):
            given = self.plain(written)
        if isinstance(written, str) and isinstance(kind, Point):
            given = ", ".join(map(self.plain, re.split(r"\s*;\s*|,?\s+", written.strip(" ()[]"))))
        answer = question.parse_answer(given)
        if answer is not None:
            return answer if kind.name in KIND_NAMES else written
        name = REFUSALS.get(kind.name, "form")
        if isinstance(kind, Number):
            name = {"objects": "count", "": "number"}.get(kind.unit, "number_of")
        with question.kind_code("form"):
            form = kind.form(question.letters)
        unit = self.words["units"].get(kind.unit, [kind.unit])[0]
        raise Unreadable(self.say(f"errors.{name}", unit=unit, form=form))


def words_of(name: str) -> Texts:
    """The words of a language in LANGUAGES, or of a file; raises SettingError that says what the file lacks."""
    if name in LANGUAGES:
        return _included(name)
    try:
        words = read_yaml(Path(name))
    except OSError as error:
        ours = " or ".join(LANGUAGES)
        why = f"{name} cannot be read ({error.strerror or error}): name a YAML file, or {ours}"
        raise SettingError(why, setting="words") from None
    except ValueError as error:
        raise SettingError(f"{name}: {error}", setting="words") from None
    if wrong := list(_differences(_included(LANGUAGES[0]).words, words)):
        raise SettingError(f"{name}: {listed(wrong, 3)}", setting="words")
    return Texts(words)


@cache
def _included(language: str) -> Texts:
    with resources.as_file(resources.files("roomscout.agent.play") / "words" / f"{language}.yaml") as path:
        return Texts(read_yaml(path))


def _differences(ours: Any, theirs: Any, name: str = "") -> Iterator[str]:
    """What is wrong with a part of a words file beside the same part of the English one."""
    has_forms = isinstance(ours, dict) and "other" in ours
    if isinstance(ours, str):
        yield from _wrong_sentence(ours, theirs, name)
    elif has_forms and isinstance(theirs, str):
        yield from _wrong_sentence(ours["other"], theirs, name)
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or not theirs or not all(isinstance(word, str) for word in theirs):
            yield f"{name} must be a list of words"
    elif not isinstance(theirs, dict):
        yield f"{name or 'it'} must have the keys {', '.join(ours)}"
    else:
        known = dict.fromkeys(("other", *PLURALS), ours["other"]) if has_forms else ours
        needed = ["other"] if has_forms else ours
        for key in dict.fromkeys([*needed, *theirs]):
            place = f"{name}.{key}".removeprefix(".")
            own = known.get(key, OPEN.get(name))
            if key not in theirs:
                yield f"{place} is missing"
            elif own is None:
                yield f"there is no {place}"
            else:
                yield from _differences(own, theirs[key], place)


def _wrong_sentence(ours: str, theirs: Any, name: str) -> Iterator[str]:
    known = sorted(set(re.findall(r"\{\w+\}", ours)))
    if not isinstance(theirs, str) or not theirs.strip():
        yield f"{name} must be a text"
    elif not re.fullmatch(SIGNS.get(name, ".*"), theirs, re.DOTALL):
        yield f"{name} cannot be {theirs!r}"
    else:
        found = re.findall(r"\{\w+\}|[{}]", re.sub(r"\{\{|\}\}", "", theirs))
        if unknown := [each for each in found if each not in known]:
            takes = ", ".join(known) or "no placeholders"
            yield f"{name} has {unknown[0]}: it takes {takes}, and {{{{ or }}}} for a brace"


def _markdown(path: Path, setting: str) -> str:
    """A Markdown file as HTML, without the HTML that it may have; raises SettingError."""
    from markdown_it import MarkdownIt

    try:
        return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} cannot be read as a text file ({error})", setting=setting) from None
