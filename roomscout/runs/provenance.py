"""What a result is made of: hashes of rows, scans, conditions and scoring, and the versions of code and packages."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from roomscout import __version__
from roomscout.base.record import Record
from roomscout.runs.conditions import SHORT, hash_of
from roomscout.runs.records import RunFacts, Versions

PACKAGES = (
    "torch", "torchvision", "transformers", "tokenizers", "xgrammar", "openai", "open3d", "pyrender", "trimesh",
    "numpy", "pillow",
)  # fmt: skip


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


def current_versions(model_revision: str | None = None) -> Versions:
    """The versions that this process runs."""
    return Versions(
        git_revision=git_revision(),
        packages={"roomscout": __version__, **{name: _version(name) for name in PACKAGES}},
        python=platform.python_version(),
        model_revision=model_revision,
    )


def changed_versions(before: Versions, now: Versions) -> list[str]:
    """A phrase for each version that differs; ignores those that are not known of `before`."""
    old = {**before.packages, "git_revision": before.git_revision, "python": before.python}
    new = {**now.packages, "git_revision": now.git_revision, "python": now.python}
    if before.model_revision and now.model_revision:
        old["model_revision"] = before.model_revision
        new["model_revision"] = now.model_revision
    return [f"{name} {new[name]} instead of {old[name]}" for name in new if name in old and new[name] != old[name]]


def git_revision() -> str | None:
    """The commit of this checkout, "+changes" if modified, or the one that pip installed; None if unknown."""
    folder = Path(__file__).resolve().parents[2]
    try:
        if Path(_git(folder, "rev-parse", "--show-toplevel")) != folder:
            return _installed_revision()  # a copy within another repository
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return _installed_revision()


def _installed_revision() -> str | None:
    """The commit that `pip install git+URL` installed, which pip records; PEP 610, "Recording the direct URL"."""
    try:
        origin = metadata.distribution("roomscout").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return json.loads(origin or "{}").get("vcs_info", {}).get("commit_id")


def _version(name: str) -> str | None:
    for package in (name, f"{name}-cpu"):  # as open3d is called without CUDA
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return None


def _git(folder: Path, *arguments: str) -> str:
    # In a container, a checkout often belongs to another user, and git refuses to read it unless told that it may.
    command = ["git", "-c", f"safe.directory={folder}", "-C", str(folder), *arguments]
    done = subprocess.run(command, check=True, capture_output=True)
    return os.fsdecode(done.stdout).strip()  # paths, in the encoding of this machine's paths
