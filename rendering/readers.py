"""Reads a mesh or a cloud from a file, by the file's extension."""

import json
import logging
import math
import struct
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rendering.geometry import Geometry, SceneError, Texturing, cleaned, coloured, no_faces
from rendering.ply import read_ply
from rendering.textures import NO_PICTURE, Picture, make_picture, merged_texturing, tinted

if TYPE_CHECKING:
    import trimesh

_log = logging.getLogger(__name__)

# The grey of a cloud's points that have no colour beside others that have.
UNKNOWN_GREY = 160
# Extensions of glTF that pack the geometry itself; trimesh would put zeros in its place.
_PACKED = {"KHR_draco_mesh_compression", "EXT_meshopt_compression"}


def read_geometry(path: Path) -> Geometry:
    """What the file holds, in the file's own axes; raises SceneError when it cannot be read whole, and MemoryError."""
    reader = reader_of(path)
    if path.stat().st_size == 0:
        raise SceneError(f"{path} is empty: download or export it again")
    try:
        geometry = reader(path)
    except (SceneError, MemoryError):
        raise
    except Exception as error:  # parsers of several packages: on damaged files they raise anything
        _log.debug("%s cannot be read", path, exc_info=True)
        why = str(error) or type(error).__name__
        raise SceneError(f"{path} cannot be read, {why}: download or export it again") from error
    if not len(geometry.vertices):
        raise SceneError(f"{path} holds no vertices: download or export it again")
    return geometry


def reader_of(path: Path) -> Callable[[Path], Geometry]:
    """What reads such a file, without opening it; raises SceneError where there is no file, or none of a known kind."""
    if path.is_dir():
        raise SceneError(f"{path} is a folder: name the scan file in it")
    if not path.is_file():
        raise SceneError(f"{path} does not exist: check the path")
    if path.suffix.lower() not in READERS:
        raise SceneError(f"{path} is of no known kind: convert it to one of {', '.join(READERS)}")
    return READERS[path.suffix.lower()]


def read_pcd(path: Path) -> Geometry:
    """The cloud of a PCD file, through Open3D; raises ValueError when it is not whole."""
    import open3d as o3d

    # Before Open3D reads the file: without a POINTS line it allocates whatever number it finds in memory.
    header, rows = _pcd_header(path)
    promised = int(header["POINTS"][0])
    cloud = o3d.io.read_point_cloud(str(path), format="pcd")
    sizes = dict(zip(header.get("FIELDS", []), header.get("SIZE", []), strict=False))
    if rows is None and "8" in (sizes.get(axis) for axis in "xyz"):
        raise SceneError(f"{path} holds binary coordinates of 8 bytes, which Open3D reads as 0: save them as float")
    found = len(cloud.points) if rows is None else min(rows, len(cloud.points))
    if found < promised:
        raise ValueError(f"it is cut off or damaged: its header promises {promised} points, {found} can be read")
    if {"r", "g", "b"} <= sizes.keys():
        _log.warning("%s: colours in fields r, g and b are not read; save them as one field rgb", path)
    colours = (np.asarray(cloud.colors) * 255).round().astype(np.uint8) if cloud.has_colors() else None
    return Geometry(np.asarray(cloud.points), no_faces(), colours)


def _pcd_header(path: Path) -> tuple[dict[str, list[str]], int | None]:
    """The lines of a PCD header by their first word, and how many rows an ascii file has: Open3D fills missing rows
    up."""
    header: dict[str, list[str]] = {}
    with path.open("rb") as file:
        for line in file:
            name, *values = line.decode("latin-1").split() or [""]
            header[name] = values
            if name == "DATA" and "POINTS" in header:
                return header, sum(1 for row in file if row.strip()) if values == ["ascii"] else None
    raise ValueError("its header has no POINTS and DATA lines")


def read_with_trimesh(path: Path) -> Geometry:
    """All meshes of a GLB, GLTF or OBJ file, each placed by its transform; clouds where the file has no mesh."""
    from trimesh import PointCloud, Trimesh, load_scene

    if path.suffix.lower() != ".obj" and (packed := _PACKED.intersection(_gltf_extensions(path))):
        raise SceneError(f"{path} is compressed with {', '.join(packed)}: export it again without compression")
    if path.suffix.lower() == ".obj" and _has_byte_colours(path):
        raise SceneError(f"{path} holds vertex colours above 1, and 1 is full in OBJ: divide by 255, export it again")
    scene = load_scene(path, process=False)
    meshes, clouds, lacking = [], [], 0
    looks = _Looks()
    for node in scene.graph.nodes_geometry:
        transform, name = scene.graph[node]
        part = scene.geometry[name]
        if isinstance(part, Trimesh) and len(part.faces):
            mesh = looks.of(part, _placed(part.vertices, transform))
            lacking += mesh.texturing is None and getattr(part.visual, "uv", None) is not None
            meshes.append(coloured(cleaned(mesh, math.inf)))
        elif isinstance(part, PointCloud):
            clouds.append(cleaned(_cloud_part(part, transform), math.inf))
    if lacking:
        _log.warning(NO_PICTURE, path, lacking, len(meshes))
    if not meshes and not clouds:
        raise ValueError("it holds neither a mesh nor a cloud")
    return _merged(meshes or clouds)


def _gltf_extensions(path: Path) -> list[str]:
    """The extensions of glTF that a GLB or glTF file cannot be read without."""
    with path.open("rb") as file:
        if path.suffix.lower() == ".glb":
            file.seek(12)  # behind the file's header, at that of its first chunk: length and kind
            (length,) = struct.unpack("<I4x", file.read(8))
            return json.loads(file.read(length)).get("extensionsRequired", [])
        return json.load(file).get("extensionsRequired", [])


def _has_byte_colours(path: Path) -> bool:
    """Whether an OBJ file's vertices, `v x y z r g b`, have colours above 1, all of which trimesh would make white."""
    with path.open("rb") as file:
        rows = (line.split() for line in file if line.startswith(b"v "))
        coloured = takewhile(lambda row: len(row) == 7, rows)
        return any(float(value) > 1 for row in coloured for value in row[4:])


def _placed(vertices: np.ndarray, transform: np.ndarray) -> np.ndarray:
    return vertices @ transform[:3, :3].T + transform[:3, 3]


def _cloud_part(cloud: "trimesh.PointCloud", transform: np.ndarray) -> Geometry:
    colours = np.asarray(cloud.colors)
    return Geometry(
        _placed(cloud.vertices, transform), no_faces(), colours[:, :3].astype(np.uint8) if len(colours) else None
    )


class _Looks:
    """The colours and pictures of one file's meshes; a picture that several share is decoded once."""

    def __init__(self) -> None:
        self._pictures: dict[tuple[int, bytes], Picture] = {}

    def of(self, mesh: "trimesh.Trimesh", vertices: np.ndarray) -> Geometry:
        """The mesh at these vertices (N, 3). A picture goes before vertex colours, these before a material's colour."""
        faces = np.asarray(mesh.faces, dtype=np.int32)
        visual = mesh.visual
        if visual.kind == "vertex":
            return Geometry(vertices, faces, np.asarray(visual.vertex_colors)[:, :3].astype(np.uint8))
        if visual.kind == "face":
            return Geometry(vertices, faces, face_colours=np.asarray(visual.face_colors)[:, :3].astype(np.uint8))
        if visual.kind != "texture":
            return Geometry(vertices, faces)
        picture = None if visual.uv is None else self._picture(visual.material)
        if picture is None:
            return Geometry(vertices, faces, _plain_colours(mesh))
        texturing = Texturing(
            face_uv=np.asarray(visual.uv, dtype=np.float32)[faces],
            face_image=np.zeros(len(faces), dtype=np.int32),
            images=(picture.pixels,),
        )
        return Geometry(vertices, faces, np.tile(picture.mean, (len(vertices), 1)), texturing=texturing)

    def _picture(self, material: "trimesh.visual.material.Material") -> Picture | None:
        """The material's picture, None where it has none."""
        image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
        if image is None or _is_stand_in(material):
            return None
        factor = _factor(material)
        key = id(image), b"" if factor is None else factor.tobytes()
        if key not in self._pictures:
            self._pictures[key] = make_picture(image, factor)
        return self._pictures[key]


def _plain_colours(mesh: "trimesh.Trimesh") -> np.ndarray | None:
    """(N, 3) uint8: the vertex colours of a mesh that also has a material, else the material's; None without either.

    The vertex colours are taken as sRGB, as scanners write them, in glTF too."""
    from trimesh.visual.color import to_rgba

    material = mesh.visual.material
    # trimesh keeps them in the one place for glTF and in the other for OBJ.
    own = mesh.visual.vertex_attributes.get("color", mesh.vertex_attributes.get("color"))
    if own is not None:
        return tinted(to_rgba(own)[:, :3], _factor(material))
    if _is_stand_in(material) or getattr(material, "baseColorFactor", material) is None:
        return None
    factor = _factor(material)
    colour = material.main_color[:3] if factor is None else tinted(np.full(3, 255, dtype=np.uint8), factor)
    return np.tile(np.asarray(colour, dtype=np.uint8), (len(mesh.vertices), 1))


def _factor(material: "trimesh.visual.material.Material") -> np.ndarray | None:
    """(3,) what a glTF material multiplies its colours with, linear, 0 to 1; None where it says none."""
    factor = getattr(material, "baseColorFactor", None)
    return None if factor is None else np.asarray(factor, dtype=np.float64)[:3] / 255


def _is_stand_in(material: "trimesh.visual.material.Material") -> bool:
    """Whether trimesh made up the material, an image of 2x2 grey pixels, for want of the file's .mtl."""
    from trimesh.visual.material import empty_material

    image = getattr(material, "image", None)
    return image is not None and image == empty_material().image


def _merged(parts: list[Geometry]) -> Geometry:
    """One geometry of several; colours are None if no part has any, and grey for single parts that have none."""
    first = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
    faces = [part.faces + at for part, at in zip(parts, first, strict=True)]
    colours = None
    if any(part.colours is not None for part in parts):
        grey = [np.full((len(part.vertices), 3), UNKNOWN_GREY, dtype=np.uint8) for part in parts]
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
