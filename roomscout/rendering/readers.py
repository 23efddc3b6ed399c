"""Reads a mesh or point cloud from a file; the extension selects the reader."""

import logging
import stat
from collections.abc import Callable
from pathlib import Path

from roomscout.rendering.file_kinds import other_kind
from roomscout.rendering.geometry import Geometry, SceneError
from roomscout.rendering.gltf import read_gltf
from roomscout.rendering.obj import read_obj
from roomscout.rendering.pcd import read_pcd
from roomscout.rendering.ply import read_ply
from roomscout.rendering.tables import FormatError

_log = logging.getLogger(__name__)


def read_geometry(path: Path) -> Geometry:
    """The file's geometry, in the file's axes. Raises SceneError if it cannot be read completely, or MemoryError."""
    reader = reader_of(path)
    try:
        geometry = reader(path)
    except (SceneError, MemoryError):
        raise
    except FormatError as error:
        raise SceneError(f"{path} cannot be read ({error}): {error.fix}") from error
    except PermissionError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # third-party parsers raise arbitrary exceptions on damaged files
        _log.debug("%s cannot be read", path, exc_info=True)
        why = str(error) or type(error).__name__
        raise SceneError(f"{path} cannot be read ({why}): download or export it again") from error
    if not len(geometry.vertices):
        raise SceneError(f"{path} contains no vertices: download or export it again")
    return geometry


def reader_of(path: Path) -> Callable[[Path], Geometry]:
    """The reader for a file. Raises SceneError if the file is missing, empty, unsupported, or not what its name says.

    Reads no more than its beginning.
    """
    try:
        facts = path.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise SceneError(f"{path} is a folder: give the path of the scan file in it")
        if not stat.S_ISREG(facts.st_mode):
            raise SceneError(f"{path} is not a regular file but a pipe or a device: copy the scan into a file")
        if not facts.st_size:
            raise SceneError(f"{path} is empty: download or export it again")
        kind = other_kind(path)
    except (OSError, ValueError) as error:  # ValueError for a path with a NUL
        raise _unreadable(path, error) from error
    if kind is not None:
        raise SceneError(f"{path} is {kind.what}: {kind.fix}")
    if path.suffix.lower() not in READERS:
        raise SceneError(f"{path} is not a supported file type: convert it to one of {', '.join(READERS)}")
    return READERS[path.suffix.lower()]


def _unreadable(path: Path, error: OSError | ValueError) -> SceneError:
    """The error of a file that the system does not read."""
    if isinstance(error, PermissionError):
        return SceneError(f"{path} cannot be read (permission denied): get permission to read it and its folders")
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return SceneError(f"{path} is a link to {path.readlink()}, which does not exist: correct the link")
    if isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
        return SceneError(f"{path} does not exist: check the path")
    return SceneError(f"{path} cannot be read ({error.strerror or error}): check the path and the disk")


READERS: dict[str, Callable[[Path], Geometry]] = {
    ".ply": read_ply,
    ".pcd": read_pcd,
    ".glb": read_gltf,
    ".gltf": read_gltf,
    ".obj": read_obj,
}
