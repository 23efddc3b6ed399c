"""Finds the files that a scan refers to, such as textures."""

from pathlib import Path


def find_file(scan: Path, name: str) -> Path | None:
    """The file called `name` in a scan; None if there is none.

    Names may be paths of another machine or system: `C:\\Users\\me\\textures\\wall.png` is searched for relative to the
    scan, then as `textures/wall.png` and as `wall.png` beside it.
    """
    name = name.replace("\\", "/")
    parts = name.split("/")
    places = [scan.parent / name, *(scan.parent.joinpath(*parts[first:]) for first in range(1, len(parts)))]
    return next((place for place in places if place.is_file()), None)
