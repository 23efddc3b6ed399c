"""Where the verbs that read a run may write, and how."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roomscout.runs import RunError


def require_free(out: Path, run: Path, force: bool) -> None:
    """Raise RunError if `out` is in the run folder, is a folder itself, or exists and `force` is not given."""
    if out.resolve().is_relative_to(run.resolve()):
        raise RunError(f"--out {out} is in the run folder, which stays as it is: choose a file outside it")
    if out.is_dir():
        raise RunError(f"--out {out} is a folder: name a file in it")
    if out.exists() and not force:
        raise RunError(f"{out} exists: choose another --out, or replace it with --force")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside `path` to write, which then takes its place; an error leaves what was there."""
    draft = path.with_name(path.name + ".tmp")
    try:
        yield draft
        draft.replace(path)
    finally:
        with suppress(OSError):  # as where its folder cannot be made
            draft.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a UTF-8 file completely, or leave what was there; raises OSError."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
