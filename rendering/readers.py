"""Reads a mesh or a cloud from a file, by the file's extension."""

import logging
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rendering.geometry import Geometry, SceneError, Texturing, cleaned, coloured, no_faces
from rendering.ply import read_ply

if TYPE_CHECKING:
    import trimesh

_log = logging.getLogger(__name__)

# The grey of a cloud's points that have no colour beside others that have.
UNKNOWN_GREY = 160
# What the parsers of trimesh and PIL raise on damaged files; they have no error of their own.
_DAMAGED = (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error, EOFError, OSError)


def read_geometry(path: Path) -> Geometry:
    """What the file holds, in the file's own axes; raises SceneError when it cannot be read whole."""
    reader = reader_of(path)
    if path.stat().st_size == 0:
        raise SceneError(f"{path} is empty: download or export it again")
    try:
        geometry = reader(path)
    except _DAMAGED as error:
        raise SceneError(f"{path} cannot be read, {error}: download or export it again") from error
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

    cloud = o3d.io.read_point_cloud(str(path), format="pcd")
    promised, rows = _pcd_points(path)
    found = len(cloud.points) if rows is None else min(rows, len(cloud.points))
    if found < promised:
        raise ValueError(f"it is cut off or damaged: its header promises {promised} points, {found} can be read")
    colours = (np.asarray(cloud.colors) * 255).round().astype(np.uint8) if cloud.has_colors() else None
    return Geometry(np.asarray(cloud.points), no_faces(), colours)


def _pcd_points(path: Path) -> tuple[int, int | None]:
    """How many points a PCD header promises, and how many rows an ascii file has: Open3D fills missing rows up."""
    with path.open("rb") as file:
        promised = None
        for line in file:
            match line.split():
                case [b"POINTS", count]:
                    promised = int(count)
                case [b"DATA", encoding] if promised is not None:
                    return promised, sum(1 for row in file if row.strip()) if encoding == b"ascii" else None
    raise ValueError("its header has no POINTS and DATA lines")


def read_with_trimesh(path: Path) -> Geometry:
    """All meshes of a GLB, GLTF or OBJ file, each placed by its transform; clouds where the file has no mesh."""
    from trimesh import PointCloud, Trimesh, load_scene

    scene = load_scene(path, process=False)
    meshes, clouds, lacking = [], [], 0
    for node in scene.graph.nodes_geometry:
        transform, name = scene.graph[node]
        part = scene.geometry[name]
        if isinstance(part, Trimesh) and len(part.faces):
            mesh = _mesh_part(part, transform)
            lacking += mesh.texturing is None and getattr(part.visual, "uv", None) is not None
            meshes.append(coloured(cleaned(mesh, math.inf)))
        elif isinstance(part, PointCloud):
            clouds.append(cleaned(_cloud_part(part, transform), math.inf))
    if lacking:
        _log.warning(
            "%s: %d of %d meshes have places in a picture but no picture, and are drawn in one colour or shaded: is an "
            ".mtl or image file missing, or of a kind that cannot be read?", path, lacking, len(meshes),
        )  # fmt: skip
    if not meshes and not clouds:
        raise ValueError("it holds neither a mesh nor a cloud")
    return _merged(meshes or clouds)


def _placed(vertices: np.ndarray, transform: np.ndarray) -> np.ndarray:
    return vertices @ transform[:3, :3].T + transform[:3, 3]


def _cloud_part(cloud: "trimesh.PointCloud", transform: np.ndarray) -> Geometry:
    colours = np.asarray(cloud.colors)
    return Geometry(
        _placed(cloud.vertices, transform), no_faces(), colours[:, :3].astype(np.uint8) if len(colours) else None
    )


def _mesh_part(mesh: "trimesh.Trimesh", transform: np.ndarray) -> Geometry:
    vertices = _placed(mesh.vertices, transform)
    faces = np.asarray(mesh.faces, dtype=np.int32)
    visual = mesh.visual
    if visual.kind == "vertex":
        return Geometry(vertices, faces, np.asarray(visual.vertex_colors)[:, :3].astype(np.uint8))
    if visual.kind == "face":
        return Geometry(vertices, faces, face_colours=np.asarray(visual.face_colors)[:, :3].astype(np.uint8))
    if visual.kind != "texture":
        return Geometry(vertices, faces)
    image = _base_image(visual.material)
    if image is None or visual.uv is None:
        colour = _base_colour(visual.material)
        if colour is None:
            return Geometry(vertices, faces)
        return Geometry(vertices, faces, np.tile(colour, (len(vertices), 1)))
    texturing = Texturing(
        face_uv=np.asarray(visual.uv, dtype=np.float32)[faces],
        face_image=np.zeros(len(faces), dtype=np.int32),
        images=(image,),
    )
    mean_colour = image.reshape(-1, 3).mean(axis=0).round().astype(np.uint8)
    return Geometry(vertices, faces, np.tile(mean_colour, (len(vertices), 1)), texturing=texturing)


def _base_image(material: "trimesh.visual.material.Material") -> np.ndarray | None:
    """(h, w, 3) uint8 of a material's base colour, its factor multiplied in; None where it has no image."""
    image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
    if image is None or _is_stand_in(material):
        return None
    pixels = np.asarray(image.convert("RGB"))
    factor = getattr(material, "baseColorFactor", None)
    if factor is None:
        return pixels
    return (pixels * (np.asarray(factor, dtype=np.float64)[:3] / 255.0)).round().astype(np.uint8)


def _base_colour(material: "trimesh.visual.material.Material") -> np.ndarray | None:
    """(3,) uint8; None where the file says none, in whose place trimesh has a grey."""
    if _is_stand_in(material) or getattr(material, "baseColorFactor", material) is None:
        return None
    return np.asarray(material.main_color)[:3].astype(np.uint8)


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
        texturing=_merged_texturing(parts),
    )


def _merged_texturing(parts: list[Geometry]) -> Texturing | None:
    """One texturing of all parts' faces, those without a texture marked so; None where no part has one."""
    if not any(part.texturing for part in parts):
        return None
    uvs, indices = [], []
    images: list[np.ndarray] = []
    for part in parts:
        if part.texturing is None:
            uvs.append(np.zeros((len(part.faces), 3, 2), dtype=np.float32))
            indices.append(np.full(len(part.faces), -1, dtype=np.int32))
        else:
            uvs.append(part.texturing.face_uv)
            indices.append(part.texturing.face_image + len(images))
            images.extend(part.texturing.images)
    return Texturing(np.concatenate(uvs), np.concatenate(indices), tuple(images))


READERS: dict[str, Callable[[Path], Geometry]] = {
    ".ply": read_ply,
    ".pcd": read_pcd,
    ".glb": read_with_trimesh,
    ".gltf": read_with_trimesh,
    ".obj": read_with_trimesh,
}
