"""Replaces files whole, once the new one is complete, and tells what a download left in place of a file."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LFS_POINTER = b"version https://git-lfs"
"""The first bytes of the pointer that stands in a checkout for a file of Git LFS that was not pulled."""
_WEB_PAGE = re.compile(rb"\s*<(!doctype html|html|\?xml)", re.IGNORECASE)


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
