"""What identifies a run: hashes of its benchmark's rows, of its scans and of its conditions, and its version."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from roomscout.runs.conditions import hash_of
from roomscout.runs.records import RunFacts

SHORT = 12
"""The digits of a hash that texts have; JSON files have all 64."""


def hashes_of(facts: RunFacts, scans: Iterable[str]) -> dict[str, Any]:
    """What summary.json has as `provenance`, from the SHA-256 of each scan that the run has begun with.

    A hash is null if nothing is known to make it of.
    """
    found, versions = sorted(set(scans)), facts.last_versions
    return {
        "benchmark": facts.setting("benchmark") if facts.benchmark is None else facts.benchmark.name,
        "benchmark_sha256": facts.source.sha256 if facts.source else None,
        "questions_sha256": facts.questions_sha256,
        "scans": len(found),
        "scans_sha256": _sha256("\n".join(found)) if found else None,
        "conditions_sha256": hash_of(facts.conditions | {"scans": found}),
        "version": versions["packages"].get("roomscout"),
        "git_revision": versions["git_revision"],
    }


def known_by(provenance: Mapping[str, Any]) -> str:
    """The hashes and the version of `hashes_of` in a line, the hashes cut short; empty for runs without them."""
    named = {"rows of the benchmark": "benchmark_sha256", "scans": "scans_sha256", "conditions": "conditions_sha256"}
    words = [f"{name} {provenance[key][:SHORT]}" for name, key in named.items() if provenance.get(key)]
    return ", ".join([*words, f"RoomScout {provenance['version']}"] if provenance.get("version") else words)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
