"""Finds the files that a scan refers to, such as textures."""

import re
import unicodedata
import urllib.parse
from pathlib import Path


def find_file(scan: Path, name: str) -> Path | None:
    """The file called `name` in a scan; None if there is none.

    Names may be of another machine or system: `C:\\Users\\me\\textures\\wall.png` is searched for relative to the scan,
    then as `textures/wall.png` and as `wall.png` beside it. They may be URIs: `my%20wall.png?version=2`. Upper and
    lower case, and how accents are encoded, matter only if several files would fit.
    """
    plain = urllib.parse.unquote(name)
    for form in dict.fromkeys((plain, name, plain.partition("?")[0])):
        whole = scan.parent / form
        if _exists(whole) and whole.is_file():
            return whole
        parts = [part for part in re.split(r"[\\/]+", form) if part not in ("", ".")]
        for first in range(len(parts)):
            if found := _below(scan.parent, parts[first:]):
                return found
    return None


def _below(folder: Path, parts: list[str]) -> Path | None:
    for part in parts:
        if _exists(folder / part):
            folder = folder / part
            continue
        if not folder.is_dir():
            return None
        alike = [entry for entry in folder.iterdir() if _plain(entry.name) == _plain(part)]
        if len(alike) != 1:
            return None
        (folder,) = alike
    return folder if folder.is_file() else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for a file is none
        return False


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
