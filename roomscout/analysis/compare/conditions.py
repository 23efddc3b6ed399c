"""The conditions under which a run was answered: scores are comparable only if these are equal."""

from collections.abc import Iterable, Mapping
from typing import Any

from roomscout.base.text import did_you_mean
from roomscout.rendering.registry import views_of
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.settings import ANSWER_SETTINGS, Role, names_of

WHAT_IS_COMPARED = names_of(Role.ANSWERER)
CONDITIONS = tuple(name for name in names_of(Role.SCORING, Role.ANSWER) if name != "prompts")
QUESTIONS, PROTOCOL = "questions", "protocol"
"""What may differ beside single settings: the questions, and all settings of the protocol."""

Conditions = Mapping[str, Any]
Differing = Mapping[str, tuple[Any, Any]]


def known_names(names: Iterable[str]) -> set[str]:
    """The names of --even-if as those of conditions; raises RunError for one that is not a condition of runs."""
    known, found = [*ANSWER_SETTINGS, "judge", QUESTIONS, PROTOCOL], set()
    for name in names:
        wanted = name.lstrip("-").replace("-", "_")
        if wanted not in known:
            fix = did_you_mean(wanted, known, f"it takes {', '.join(known)}")
            raise RunError(f"--even-if {name}: there is no such setting; {fix}")
        found.add(wanted)
    return found


def conditions_of(reader: RunReader) -> Conditions:
    """The settings of a run that could change answers, apart from what is compared and which questions it asks.

    "prompts" is the beginning of the hash of what the model read; None for a policy of code. "judge" is who marked the
    answers in free text, and with which prompts; absent if nobody did.
    """
    facts, marks = reader.facts, reader.marks
    found = {name: facts.setting(name) for name in CONDITIONS}
    judge = {} if marks is None else {"judge": f"{marks.judge} {marks.prompts_sha256}"}
    return found | {"prompts": facts.prompts["sha256"][:12] if facts.prompts else None} | judge


def differing(first: Conditions, second: Conditions) -> Differing:
    """The conditions in which two runs differ, with both values.

    A policy of code reads no prompts, so it differs from no others. Renderers differ if they draw other views.
    """
    pairs = {name: (first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])}
    return {name: values for name, values in pairs.items() if not _alike(name, *values)}


def _alike(name: str, first: Any, second: Any) -> bool:
    if name == "prompts" and None in (first, second):
        return True
    if name == "renderer":
        return views_of(first) == views_of(second)
    return bool(first == second)


def in_words(found: Differing) -> str:
    """What differs, such as "steps (8, 0), renderer (raycast, blind)"."""
    return ", ".join(
        f"{name} ({value_in_words(values[0])}, {value_in_words(values[1])})" for name, values in found.items()
    )


def value_in_words(value: Any) -> str:
    """A setting as text: "none" for None and for an empty list."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
