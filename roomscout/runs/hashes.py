"""What identifies a run: hashes of its benchmark's rows, its scans, its conditions and scoring, and its version."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from roomscout.base.record import Record
from roomscout.runs.conditions import SHORT as SHORT
from roomscout.runs.conditions import hash_of
from roomscout.runs.records import RunFacts


@dataclass(frozen=True, kw_only=True)
class Provenance(Record):
    """SHA-256 hashes of what a run is made of, and RoomScout's version."""

    benchmark: str  # its name
    benchmark_sha256: str | None  # of all rows of the source of questions; None where it is not known
    questions_sha256: str  # the fingerprint of the run's questions
    scans: int  # how many scans the run has begun with
    scans_sha256: str | None  # of their hashes; None without scans
    conditions_sha256: str  # of the conditions, the scoring and the scans
    version: str | None  # that last ran
    git_revision: str | None  # that last ran

    def __str__(self) -> str:
        hashes = {
            "rows of the benchmark": self.benchmark_sha256,
            "scans": self.scans_sha256,
            "conditions": self.conditions_sha256,
        }
        words = [f"{name} {sha256[:SHORT]}" for name, sha256 in hashes.items() if sha256]
        if self.version:
            words.append(f"RoomScout {self.version}")
        return ", ".join(words)


def hashes_of(facts: RunFacts, scans: Iterable[str]) -> Provenance:
    """What identifies a run, from the SHA-256 of each scan that it has begun with."""
    scans = sorted(set(scans))
    versions = facts.last_versions
    return Provenance(
        benchmark=facts.setting("benchmark") if facts.benchmark is None else facts.benchmark.name,
        benchmark_sha256=facts.source.sha256 if facts.source else None,
        questions_sha256=facts.questions_sha256,
        scans=len(scans),
        scans_sha256=hashlib.sha256("\n".join(scans).encode()).hexdigest() if scans else None,
        conditions_sha256=hash_of(facts.conditions | facts.scoring | {"scans": scans}),
        version=versions.packages.get("roomscout"),
        git_revision=versions.git_revision,
    )
