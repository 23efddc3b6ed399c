"""Reads a mesh or point cloud from a file; the extension selects the reader."""

import json
import logging
import math
import stat
import struct
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roomscout.rendering.file_kinds import other_kind
from roomscout.rendering.geometry import Geometry, SceneError, Texturing, cleaned, coloured, no_faces
from roomscout.rendering.pcd import read_pcd
from roomscout.rendering.ply import read_ply
from roomscout.rendering.tables import FormatError
from roomscout.rendering.textures import MISSING_TEXTURES, Texture, make_texture, merged_texturing, tinted

if TYPE_CHECKING:
    import trimesh

_log = logging.getLogger(__name__)

# Grey level of uncoloured parts in a file whose other parts have colours.
UNCOLOURED_GREY = 160
# glTF extensions that compress the geometry itself; trimesh would read it as zeros.
_COMPRESSED = {"KHR_draco_mesh_compression", "EXT_meshopt_compression"}


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


def read_with_trimesh(path: Path) -> Geometry:
    """All meshes of a GLB, GLTF or OBJ file with their transforms applied; its point clouds if it has no mesh."""
    from trimesh import PointCloud, Trimesh, load_scene

    if path.suffix.lower() == ".glb":
        _require_whole_glb(path)
    if path.suffix.lower() != ".obj" and (extensions := _COMPRESSED.intersection(_gltf_extensions(path))):
        raise SceneError(f"{path} is compressed with {', '.join(extensions)}: export it again without compression")
    if path.suffix.lower() == ".obj" and _has_byte_colours(path):
        raise SceneError(f"{path} has vertex colours above 1, the maximum in OBJ: divide by 255 and export it again")
    scene = load_scene(path, process=False)
    meshes, clouds, untextured = [], [], 0
    appearance = _AppearanceReader()
    for node in scene.graph.nodes_geometry:
        transform, name = scene.graph[node]
        part = scene.geometry[name]
        if isinstance(part, Trimesh) and len(part.faces):
            mesh = appearance.geometry(part, _transformed(part.vertices, transform))
            untextured += mesh.texturing is None and getattr(part.visual, "uv", None) is not None
            meshes.append(coloured(cleaned(mesh, math.inf)))
        elif isinstance(part, PointCloud):
            clouds.append(cleaned(_cloud_part(part, transform), math.inf))
    if untextured:
        _log.warning(MISSING_TEXTURES, path, untextured, len(meshes))
    if not meshes and not clouds:
        raise ValueError("it contains neither a mesh nor a point cloud")
    return _merged(meshes or clouds)


def _require_whole_glb(path: Path) -> None:
    """Raise ValueError unless the file has a GLB header and is as long as that says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(12)
    if len(header) < 12 or not header.startswith(b"glTF"):
        raise ValueError("it is not a GLB file")
    declared = int.from_bytes(header[8:], "little")
    if size < declared:
        raise ValueError(f"truncated: its header declares {declared} bytes, but it has {size}")


def _gltf_extensions(path: Path) -> list[str]:
    """The extensions that a GLB or glTF file declares as required."""
    with path.open("rb") as file:
        if path.suffix.lower() == ".glb":
            file.seek(12)  # skip the file header; the first chunk's header is its length and type
            (length,) = struct.unpack("<I4x", file.read(8))
            return json.loads(file.read(length)).get("extensionsRequired", [])
        try:
            return json.load(file).get("extensionsRequired", [])
        except (ValueError, AttributeError):
            raise ValueError("it is not a glTF file, which is JSON") from None


def _has_byte_colours(path: Path) -> bool:
    """Whether vertex colours of an OBJ file (`v x y z r g b`) exceed 1; trimesh would clip them to white."""
    with path.open("rb") as file:
        rows = (line.split() for line in file if line.startswith(b"v "))
        coloured = takewhile(lambda row: len(row) == 7, rows)
        return any(float(value) > 1 for row in coloured for value in row[4:])


def _transformed(vertices: np.ndarray, transform: np.ndarray) -> np.ndarray:
    return vertices @ transform[:3, :3].T + transform[:3, 3]


def _cloud_part(cloud: "trimesh.PointCloud", transform: np.ndarray) -> Geometry:
    colours = np.asarray(cloud.colors)
    return Geometry(
        _transformed(cloud.vertices, transform), no_faces(), colours[:, :3].astype(np.uint8) if len(colours) else None
    )


class _AppearanceReader:
    """Reads the colours and textures of a file's meshes; decodes a shared texture only once."""

    def __init__(self) -> None:
        self._textures: dict[tuple[int, bytes], Texture] = {}

    def geometry(self, mesh: "trimesh.Trimesh", vertices: np.ndarray) -> Geometry:
        """The mesh with `vertices` (N, 3). Textures override vertex colours, which override a material's colour."""
        faces = np.asarray(mesh.faces, dtype=np.int32)
        visual = mesh.visual
        if visual.kind == "vertex":
            return Geometry(vertices, faces, np.asarray(visual.vertex_colors)[:, :3].astype(np.uint8))
        if visual.kind == "face":
            return Geometry(vertices, faces, face_colours=np.asarray(visual.face_colors)[:, :3].astype(np.uint8))
        if visual.kind != "texture":
            return Geometry(vertices, faces)
        texture = None if visual.uv is None else self._texture(visual.material)
        if texture is None:
            return Geometry(vertices, faces, _untextured_colours(mesh))
        texturing = Texturing(
            face_uv=np.asarray(visual.uv, dtype=np.float32)[faces],
            face_image=np.zeros(len(faces), dtype=np.int32),
            images=(texture.pixels,),
        )
        return Geometry(vertices, faces, np.full((len(vertices), 3), 255, dtype=np.uint8), texturing=texturing)

    def _texture(self, material: "trimesh.visual.material.Material") -> Texture | None:
        image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
        if image is None or _is_placeholder(material):
            return None
        factor = _base_colour_factor(material)
        key = id(image), b"" if factor is None else factor.tobytes()
        if key not in self._textures:
            self._textures[key] = make_texture(image, factor)
        return self._textures[key]


def _untextured_colours(mesh: "trimesh.Trimesh") -> np.ndarray | None:
    """(N, 3) uint8 vertex colours of a mesh with a material, else the material's colour; None if it has neither.

    Treats vertex colours as sRGB even in glTF, because that is what scanners write.
    """
    from trimesh.visual.color import to_rgba

    material = mesh.visual.material
    # For glTF, trimesh keeps vertex colours in `visual.vertex_attributes`; for OBJ, in `vertex_attributes`.
    colours = mesh.visual.vertex_attributes.get("color", mesh.vertex_attributes.get("color"))
    if colours is not None:
        return tinted(to_rgba(colours)[:, :3], _base_colour_factor(material))
    if _is_placeholder(material) or getattr(material, "baseColorFactor", material) is None:
        return None
    factor = _base_colour_factor(material)
    colour = material.main_color[:3] if factor is None else tinted(np.full(3, 255, dtype=np.uint8), factor)
    return np.tile(np.asarray(colour, dtype=np.uint8), (len(mesh.vertices), 1))


def _base_colour_factor(material: "trimesh.visual.material.Material") -> np.ndarray | None:
    """(3,) linear factor, 0 to 1, that a glTF material multiplies its colours by; None if it has none."""
    factor = getattr(material, "baseColorFactor", None)
    return None if factor is None else np.asarray(factor, dtype=np.float64)[:3] / 255


def _is_placeholder(material: "trimesh.visual.material.Material") -> bool:
    """Whether this is trimesh's substitute for a missing .mtl file, an image of 2x2 grey pixels."""
    from trimesh.visual.material import empty_material

    image = getattr(material, "image", None)
    return image is not None and image == empty_material().image


def _merged(parts: list[Geometry]) -> Geometry:
    """Concatenate parts. If only some have colours, the others become grey; if none has, colours are None."""
    offsets = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
    faces = [part.faces + offset for part, offset in zip(parts, offsets, strict=True)]
    colours = None
    if any(part.colours is not None for part in parts):
        grey = [np.full((len(part.vertices), 3), UNCOLOURED_GREY, dtype=np.uint8) for part in parts]
        colours = np.concatenate([g if p.colours is None else p.colours for p, g in zip(parts, grey, strict=True)])
    return Geometry(
        vertices=np.concatenate([part.vertices for part in parts]),
        faces=np.concatenate(faces).astype(np.int32),
        colours=colours,
        texturing=merged_texturing(parts),
    )


READERS: dict[str, Callable[[Path], Geometry]] = {
    ".ply": read_ply,
    ".pcd": read_pcd,
    ".glb": read_with_trimesh,
    ".gltf": read_with_trimesh,
    ".obj": read_with_trimesh,
}
