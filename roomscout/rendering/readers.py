"""Reads a mesh or point cloud from a file; the extension selects the reader."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

from roomscout.base.files import FileRefused, not_fetched, require_regular
from roomscout.rendering.geometry import Geometry, SceneError

_log = logging.getLogger(__name__)

_HEAD_BYTES = 4096
_BEGINNINGS = {  # of scans whose text or magic number tells their format
    ".ply": re.compile(rb"ply[\r\n]"),
    ".pcd": re.compile(rb"(#[^\n]*\n)*(VERSION|FIELDS)\s"),
    ".glb": re.compile(rb"glTF"),
}
# gzip, ZIP, bzip2, xz, Zstandard, 7-Zip and RAR.
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!")


def read_geometry(path: Path) -> Geometry:
    """The file's geometry, in the file's axes. Raises SceneError if it cannot be read completely, or MemoryError."""
    reader = reader_of(path)
    try:
        geometry = reader(path)
    except (SceneError, MemoryError):
        raise
    except OSError as error:
        raise SceneError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # what is wrong in a damaged file may raise anything
        _log.debug("%s cannot be read", path, exc_info=True)
        why = str(error) if isinstance(error, ValueError) else f"damaged: {error!r}"
        raise SceneError(f"{path} is not a scan that can be read ({why}): download or export it again") from error
    if not len(geometry.vertices):
        raise SceneError(f"{path} contains no vertices: download or export it again")
    return geometry


def reader_of(path: Path) -> Callable[[Path], Geometry]:
    """The reader for a file, by its beginning and suffix. Raises SceneError if it is none that can be read."""
    try:
        require_regular(path)
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (FileNotFoundError, ValueError):  # ValueError for a path with a NUL
        raise SceneError(f"{path} does not exist: check the path") from None
    except FileRefused as error:
        raise SceneError(f"{path} is {error}: name the file of the scan") from None
    except OSError as error:
        raise SceneError(f"{path} cannot be read: {error.strerror}") from error
    suffix = path.suffix.lower()
    if not head:
        raise SceneError(f"{path} is empty: download or export it again")
    if why := not_fetched(head):
        raise SceneError(f"{path} {why}")
    if head.startswith(_ARCHIVES):
        raise SceneError(f"{path} is an archive: unpack it")
    for ending, beginning in _BEGINNINGS.items():
        if beginning.match(head) and ending != suffix:
            raise SceneError(f"{path} is a {ending} file: rename it to {path.with_suffix(ending).name}")
    if suffix not in READERS:
        raise SceneError(f"{path} is not a scan that can be read: its name must end in {', '.join(READERS)}")
    reader: Callable[[Path], Geometry] = resolve_name(f"roomscout.rendering.{READERS[suffix]}")
    return reader


READERS = {
    ".ply": "ply:read_ply",
    ".pcd": "pcd:read_pcd",
    ".glb": "gltf:read_gltf",
    ".gltf": "gltf:read_gltf",
    ".obj": "obj:read_obj",
}
"""The reader of each suffix, imported when it is used: reports need none."""
