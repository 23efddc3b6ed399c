"""Reads the benchmark.yaml of a benchmark without code: a folder with questions, scans and this file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout.base.plain_yaml import read_yaml
from roomscout.data.answers import KIND_NAMES, AnswerKind, kind_named

BENCHMARK_YAML = "benchmark.yaml"
OVERALLS = ("tasks", "questions")
"""What the overall is a mean over."""


class InvalidYaml(Exception):
    """The file cannot be used. The message names it, the key and what is valid."""


@dataclass(frozen=True)
class DescribedType:
    """A question type; `task` and `advice` may be empty."""

    name: str
    kind: AnswerKind
    task: str
    advice: str


@dataclass(frozen=True)
class DescribedReference:
    """A published overall in percent; `protocol` may be empty."""

    name: str
    percent: float
    source: str
    protocol: str


@dataclass(frozen=True)
class Described:
    """The contents of the file. `size` is the number of all questions, 0 if it is not stated."""

    name: str
    title: str
    types: tuple[DescribedType, ...]
    overall: str
    url: str
    terms: str
    references: tuple[DescribedReference, ...]
    size: int
    datasets: tuple[str, ...]


def read_benchmark_yaml(folder: Path) -> Described:
    """The description of the benchmark in a folder; raises InvalidYaml."""
    path = folder / BENCHMARK_YAML
    try:
        contents = read_yaml(path)
    except FileNotFoundError:
        raise InvalidYaml(f"{folder} has no {BENCHMARK_YAML}, which describes the benchmark") from None
    except (OSError, ValueError) as error:
        raise InvalidYaml(f"{path} cannot be read: {error}") from None
    try:
        return _described(contents, folder)
    except ValueError as error:
        raise InvalidYaml(f"{path}: {error}") from None


def _described(contents: Any, folder: Path) -> Described:
    known = ("name", "title", "types", "overall", "questions_from", "terms", "references", "size", "datasets")
    top = _mapping(contents, "the file", known)
    types = _mapping(top.get("types"), "types")
    if not types:
        raise ValueError("types is empty: name each question type and its answer kind")
    references = top.get("references") or []
    if not isinstance(references, list):
        raise ValueError("references must be a list, each with name, percent and source")
    overall = _text(top, "overall", "the file", "tasks")
    if overall not in OVERALLS:
        raise ValueError(f"overall is {overall!r}; it must be {' or '.join(OVERALLS)}, what it is the mean over")
    size = _text(top, "size", "the file", "0")
    if not size.isdecimal() or (references and not int(size)):
        raise ValueError("size must be the number of all questions, which the references cover, as a whole number")
    name = _text(top, "name", "the file", folder.resolve().name)
    return Described(
        name=name,
        title=_text(top, "title", "the file", name),
        types=tuple(_type(str(each), given) for each, given in types.items()),
        overall=overall,
        url=_text(top, "questions_from", "the file", ""),
        terms=_text(top, "terms", "the file", "no terms stated"),
        references=tuple(_reference(each, f"reference {number}") for number, each in enumerate(references, start=1)),
        size=int(size),
        datasets=_datasets(top.get("datasets")),
    )


def _datasets(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(each, str) and each.strip() for each in given):
        raise ValueError("datasets must be a list of names, such as [old, new]")
    names = [each.strip() for each in given]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"datasets names {twice[0]!r} twice")
    return tuple(names)


def _type(name: str, given: Any) -> DescribedType:
    """A type from its mapping, or from the name of its kind alone."""
    place = f"type {name}"
    fields = _mapping(
        {"answer": given} if isinstance(given, str) else given, place, ("answer", "unit", "task", "advice")
    )
    kind = _text(fields, "answer", place)
    if kind not in KIND_NAMES:
        raise ValueError(f"{place}: answer is {kind!r}; the answer kinds are {', '.join(KIND_NAMES)}")
    try:
        answers = kind_named(kind, _text(fields, "unit", place, ""))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    return DescribedType(name, answers, _text(fields, "task", place, ""), _text(fields, "advice", place, ""))


def _reference(given: Any, place: str) -> DescribedReference:
    fields = _mapping(given, place, ("name", "percent", "source", "protocol"))
    text = _text(fields, "percent", place)
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(f"{place}: percent is {text!r}; it must be a number from 0 to 100")
    name, source = _text(fields, "name", place), _text(fields, "source", place)
    return DescribedReference(name, percent, source, _text(fields, "protocol", place, ""))


def _mapping(value: Any, place: str, known: Collection[str] = ()) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{place} must have keys and values" + (f"; the keys are {', '.join(known)}" if known else ""))
    if known and (unknown := [key for key in value if key not in known]):
        raise ValueError(f"{place} has an unknown key {unknown[0]!r}; the keys are {', '.join(known)}")
    return value


def _text(fields: Mapping[str, Any], key: str, place: str, default: str | None = None) -> str:
    """A value without blanks around it; raises ValueError unless it is text, or is missing and has a default."""
    value = fields.get(key, default)
    if value is None or not isinstance(value, str) or (default is None and not value.strip()):
        wrong = "is missing" if value in (None, "") else "must be one text"
        raise ValueError(f"{place}: {key} {wrong}")
    return value.strip()
