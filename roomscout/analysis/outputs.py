"""Where the verbs that read a run may write, and how."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from roomscout.base.files import replacing
from roomscout.base.text import in_markdown
from roomscout.runs import RunError


def require_outside_runs(out: Path, prefix: str | None = None) -> None:
    """Raise RunError if `out` is a folder, or is in a run folder, whose files stay as they are. A file directly in a
    run folder is allowed if its name begins with `prefix`, the name of what the verb writes there."""
    if out.is_dir():
        raise RunError(f"--out {out} is a folder: name a file in it")
    place = out.parent.resolve()
    for folder in (place, *place.parents):
        if (folder / "run.json").exists() and not (prefix and folder == place and out.name.startswith(prefix)):
            raise RunError(f"--out {out} is in the run folder, which stays as it is: choose a place outside it")


def require_writable(outs: Iterable[Path], suffixes: Sequence[str]) -> None:
    """Raise RunError unless all files end in one of the suffixes, and are outside of runs."""
    for out in outs:
        if out.suffix.lower() not in suffixes:
            raise RunError(f"--out {out}: name a file that ends in {', '.join(suffixes)}")
        require_outside_runs(out.expanduser())


def require_free(out: Path, force: bool) -> None:
    """Raise RunError if `out` is in a run folder, is a folder itself, or exists and `force` is not given."""
    require_outside_runs(out)
    if out.exists() and not force:
        raise RunError(f"{out} exists: choose another --out, or replace it with --force")


@contextmanager
def writing(out: Path) -> Iterator[Path]:
    """Yield a draft that then takes the place of a file; raises RunError if it cannot be written."""
    try:
        with replacing(out) as draft:
            yield draft
    except OSError as error:
        raise RunError(f"{error.filename or out} cannot be written ({error.strerror or error})") from None


def write_text(path: Path, text: str) -> None:
    """Write a file completely, or not at all, and its folder; raises RunError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path.parent} cannot be made ({error.strerror or error})") from None
    with writing(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")


def markdown_text(lines: Iterable[str]) -> str:
    """Lines of Markdown as the text of a file, in which outside text cannot be markup."""
    return "".join(f"{in_markdown(line)}\n" for line in lines)
