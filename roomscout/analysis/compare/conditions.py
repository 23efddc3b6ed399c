"""The conditions under which a run was answered: scores are comparable only if these are equal."""

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from roomscout.base.errors import as_words
from roomscout.base.text import did_you_mean
from roomscout.runs import RunError
from roomscout.runs.conditions import SHORT
from roomscout.runs.reader import RunReader

QUESTIONS, PROTOCOL, SCANS = "questions", "protocol", "scans"
"""What may differ beside single settings: the questions, and with them the scans, and all settings."""

Conditions = Mapping[str, Any]
Differing = Mapping[str, tuple[Any, Any]]


def known_names(names: Iterable[str], runs: Iterable[Conditions]) -> set[str]:
    """The names of --even-if as names of the runs' conditions, with the hashes of files; raises RunError."""
    allowed = [*dict.fromkeys(name for conditions in runs for name in conditions), QUESTIONS, PROTOCOL]
    may_differ = set[str]()
    for name in names:
        wanted = name.lstrip("-").replace("-", "_")
        if wanted not in allowed:
            fix = did_you_mean(wanted, allowed, f"it takes {', '.join(allowed)}")
            raise RunError(f"--even-if {name}: there is no such setting; {fix}")
        may_differ |= {wanted, f"{wanted}_sha256"}
    return may_differ


def conditions_of(reader: RunReader) -> Conditions:
    """The conditions of a run, and how its answers are scored, but not which questions it asks. "judge" is who marked
    the answers in free text, and with which prompts, absent if nobody did; "scans" the hash of all scans."""
    conditions = reader.facts.conditions | reader.facts.scoring
    if (marks := reader.marks) is not None:
        conditions["judge"] = f"{marks.judge} {marks.prompts_sha256}"
    summary = reader.summary
    provenance = summary.provenance if summary else None
    if provenance and provenance.scans_sha256:
        conditions[SCANS] = f"{provenance.scans} of {provenance.scans_sha256[:SHORT]}"
    return conditions


def differing(first: Conditions, second: Conditions) -> Differing:
    """The conditions in which two runs differ, with both values; in prompts only if both read some."""
    pairs = {name: (first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])}
    return {name: values for name, values in pairs.items() if not _alike(name, *values)}


def refused_in(first: Conditions, second: Conditions, may_differ: Container[str]) -> Differing:
    """The conditions in which two runs differ and may not: "protocol" in `may_differ` allows all."""
    differs = {} if PROTOCOL in may_differ else differing(first, second)
    return {name: values for name, values in differs.items() if name not in may_differ}


def _alike(name: str, first: Any, second: Any) -> bool:
    if name == "prompts" and None in (first, second):
        return True
    if name == SCANS:  # a run that lacks some of the scans has failed answers for it
        return None in (first, second) or first.split()[0] != second.split()[0] or first == second
    return bool(first == second)


def in_words(differs: Differing) -> str:
    """What differs, such as "steps (8, 0), renderer (raycast, blind)"."""
    return ", ".join(f"{name} ({value_in_words(one)}, {value_in_words(two)})" for name, (one, two) in differs.items())


def value_in_words(value: Any) -> str:
    """A setting as text: "none" for None and for an empty list, a hash by its first digits."""
    text = "none" if value is None or value in ([], ()) else as_words(value)
    return text[:SHORT] if re.fullmatch("[0-9a-f]{40,64}", text) else text
