"""Settings that name files, with absolute paths, so that a run can be resumed from any folder."""

from pathlib import Path
from typing import Any

from roomscout.base.text import on_disk
from roomscout.data.benchmarks import benchmark_names
from roomscout.edge.reading import changed
from roomscout.edge.settings import DEFAULTS, Settings
from roomscout.models import EMBEDDED


def located(settings: Settings) -> Settings:
    """Settings that name files by absolute paths, with `~` expanded."""
    found: dict[str, Any] = {
        name: value and _absolute(value) for name, value in vars(settings).items() if isinstance(value, Path)
    }
    found["scan_root"] = scan_root_of(settings.scan_root, settings.questions)
    for name in ("benchmark", "actions", "policy", "model"):
        found[name] = _located(getattr(settings, name))
    folder = _absolute(Path(settings.model))
    is_folder = settings.loads_weights and settings.model != EMBEDDED and folder.is_dir()
    found["model"] = str(folder) if is_folder else settings.model
    if settings.benchmark not in benchmark_names() and _absolute(Path(settings.benchmark)).is_dir():
        found["benchmark"] = str(_absolute(Path(settings.benchmark)))
    return changed(settings, **found)


def scan_root_of(scan_root: Path, questions: Path | None) -> Path:
    """The absolute scan root: the folder of the question file if the default one is not there."""
    root = _absolute(scan_root)
    if questions is not None and scan_root == DEFAULTS["scan_root"] and not root.is_dir():
        return _absolute(questions).parent
    return root


def _located(name: str | None) -> str | None:
    """`path/to/file.py:NAME` with an absolute path; any other name as it is."""
    source, _, attribute = (name or "").rpartition(":")
    return f"{_absolute(Path(source))}:{attribute}" if source.endswith(".py") else name


def _absolute(path: Path) -> Path:
    return on_disk(path.expanduser().absolute())
