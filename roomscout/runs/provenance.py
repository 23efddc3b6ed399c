"""The git revision of the code and the versions of the packages behind a result."""

import json
import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from roomscout import __version__
from roomscout.runs.records import Versions

PACKAGES = (
    "torch", "torchvision", "transformers", "tokenizers", "qwen-vl-utils", "xgrammar", "openai", "open3d", "pyrender",
    "trimesh", "numpy", "pillow",
)  # fmt: skip


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
