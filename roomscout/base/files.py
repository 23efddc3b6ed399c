"""Replaces files whole, finds what a file of others names, and tells what a download left in place of a file."""

import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

LFS_POINTER = b"version https://git-lfs"
"""The first bytes of the pointer that stands in a checkout for a file of Git LFS that was not pulled."""
_WEB_PAGE = re.compile(rb"\s*<(!doctype html|html|\?xml)", re.IGNORECASE)


class FileRefused(OSError):
    """A file that another file names is not opened. The message says what it is, to follow "is"."""


def is_file(path: Path) -> bool:
    """Whether there is a regular file; False also for a name that no file can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def file_name(cell: object, column: str) -> str:
    """The name of a file in a cell of a column, with / for \\ unless such a file exists; empty if it is no text. Raises
    ValueError for a URL, and for what no file can be called: surrogates but those of `on_disk`."""
    name = cell.strip() if isinstance(cell, str) else ""
    if re.match(r"[A-Za-z][\w+.-]+:/", name):
        raise ValueError(f"{column} {name[:80]!r} is a URL: give the name of a file")
    if len(name) > 4096 or re.search("[\0\ud800-\udc7f\udd00-\udfff]", name):
        raise ValueError(f"{column} {name[:80]!r} is not a name that a file can have")
    return name if "\\" not in name or is_file(Path(name)) else name.replace("\\", "/")


def folder_of(source: Path) -> Path:
    """The folder that the names in a file count from; a folder is its own."""
    return source if source.is_dir() else source.parent


def own_folders(source: Path) -> list[Path]:
    """The real paths of the folders in which the files must be that a file or folder names: its own, that of the file
    to which it links, and in a cache of the Hugging Face hub, whose files in snapshots/ are links, blobs/ beside."""
    own = [Path(os.path.realpath(folder_of(path))) for path in (source, Path(os.path.realpath(source)))]
    inside = [folder.parent for folder in (own[0], *own[0].parents)]
    return [*own, *(folder.with_name("blobs") for folder in inside if folder.name == "snapshots")]


def require_own(path: Path, folders: Sequence[Path], whose: str, most_bytes: int) -> None:
    """Raise FileNotFoundError unless there is a file, and FileRefused unless its real path is in one of `own_folders`,
    `whose` in words, and it is a regular file of at most `most_bytes`."""
    try:
        require_inside(path, folders, whose)
        require_regular(path, most_bytes)
    except ValueError:
        raise FileRefused("not a name that a file can have") from None


def require_inside(path: Path, folders: Sequence[Path], whose: str) -> None:
    """Raise FileRefused unless the real path is in one of `own_folders`, `whose` in words."""
    if any(map(Path(os.path.realpath(path)).is_relative_to, folders)):
        return
    named = Path(os.path.realpath(path.parent)) / path.name
    if any(map(named.is_relative_to, folders)):
        raise FileRefused(f"a link to what is outside {whose}")
    raise FileRefused(f"outside {whose}")


def require_regular(path: Path, most_bytes: float = math.inf) -> None:
    """Raise FileNotFoundError unless there is a file, and FileRefused unless it is regular and at most so large."""
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from None
    except OSError as error:
        raise FileRefused(f"not a file that can be opened ({error.strerror})") from None
    if not stat.S_ISREG(facts.st_mode):
        raise FileRefused("a folder, a pipe or a device")
    if facts.st_size > most_bytes:
        raise FileRefused(f"too large, with {facts.st_size:,} bytes, more than {most_bytes:,}")


def not_fetched(head: bytes) -> str:
    """What a download left in place of a file, by its beginning, and what to do; empty if that shows neither."""
    if head.startswith(LFS_POINTER):
        return "is a Git LFS pointer instead of the file: run git lfs pull in its repository"
    if _WEB_PAGE.match(head):
        return "is a web page instead of the file: log in where it is from, and download it again"
    return ""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file beside `path`, which then takes its place; an error leaves what was there. Raises
    OSError. The draft is created exclusively, under a random name, so that it follows no link."""
    draft = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield draft
        draft.replace(path)
    except OSError as error:
        if error.filename in (None, str(draft)):
            error.filename = str(path)
            error.filename2 = None
        raise
    finally:
        with suppress(OSError):  # as where its folder cannot be made
            draft.unlink(missing_ok=True)


def sweep_drafts(folder: Path) -> None:
    """Remove the drafts of `replacing` that a killed process left in a folder, which nobody else writes now."""
    for path in folder.glob(".*.tmp"):
        if re.fullmatch(r"\.[0-9a-f]{16}\.tmp", path.name):
            with suppress(OSError):
                path.unlink()


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file completely, or leave what was there; raises OSError."""
    with replacing(path) as draft:
        draft.write_bytes(content)


def replace_text(path: Path, text: str) -> None:
    """Write a UTF-8 file completely, or leave what was there; raises OSError. Escapes bytes that are not UTF-8."""
    replace_bytes(path, text.encode("utf-8", "backslashreplace"))
