"""Where a result comes from: the code's git revision and the versions of the packages that made it."""

import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch", "torchvision", "transformers", "tokenizers", "qwen-vl-utils", "xgrammar", "openai", "open3d", "pyrender",
    "trimesh", "numpy", "pillow",
)  # fmt: skip


def current_versions() -> dict[str, Any]:
    """The versions of this process, by run.json's keys."""
    return {"git_revision": git_revision(), "packages": package_versions(), "python": platform.python_version()}


def changed_versions(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Each version in `now` that differs from `before`, in words; what `before` lacks is left out."""
    flat_before, flat_now = ({**facts.get("packages", {}), **facts} for facts in (before, now))
    names = [name for name in flat_now if name != "packages" and name in flat_before]
    return [
        f"{name} {flat_now[name]} (was {flat_before[name]})" for name in names if flat_now[name] != flat_before[name]
    ]


def git_revision() -> str | None:
    """The commit of this checkout, with "+changes" where files differ from it; None where it is none."""
    folder = Path(__file__).resolve().parents[1]
    try:
        if Path(_git(folder, "rev-parse", "--show-toplevel")) != folder:
            return None  # a copy within another repository
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def package_versions() -> dict[str, str | None]:
    """Version by package; None for one that is not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
