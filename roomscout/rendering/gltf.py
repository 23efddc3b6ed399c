"""Reads GLB and glTF 2.0 files.

A reader of our own, because trimesh ignores most of what changes a picture (texture transforms, further texture
coordinates, normalised integers, sparse accessors, fans, instances, emission, wrap modes) without saying so.

Specification: Khronos, "glTF 2.0 Specification", and its registry of extensions.
"""

import base64
import logging
import struct
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from roomscout.base.pictures import as_bytes, full_scale
from roomscout.base.text import json_in
from roomscout.rendering.geometry import NO_FACES, Geometry, SceneError, compact
from roomscout.rendering.gltf_materials import MaterialReader
from roomscout.rendering.parts import MeshPart, merged
from roomscout.rendering.textures import file_of

_log = logging.getLogger(__name__)

Entry = dict[str, Any]  # an object of the file's JSON, such as a node or a mesh

_JSON_CHUNK, _BINARY_CHUNK = 0x4E4F534A, 0x004E4942
_COMPONENTS = {5120: "<i1", 5121: "<u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
LEAST_EXPLAINED, VALUES_PER_BYTE = 1_000_000, 20  # else a few bytes that repeat meshes could take all memory
_POINTS, _LINES, _TRIANGLES, _FAN = 0, (1, 2, 3), 4, 6  # the other mode is a strip
_UNMOVED = {"translation": [0, 0, 0], "rotation": [0, 0, 0, 1], "scale": [1, 1, 1]}

# Those that are drawn, and those that add nothing to a picture without light, or are there in plain data, too.
_KNOWN = {
    "KHR_texture_transform", "KHR_mesh_quantization", "EXT_mesh_gpu_instancing", "EXT_texture_webp",
    "EXT_texture_avif", "MSFT_texture_dds", "KHR_materials_unlit", "KHR_node_visibility",
    "KHR_lights_punctual", "KHR_materials_anisotropy", "KHR_materials_clearcoat", "KHR_materials_dispersion",
    "KHR_materials_ior", "KHR_materials_iridescence", "KHR_materials_sheen", "KHR_materials_specular",
    "KHR_materials_volume", "KHR_animation_pointer", "KHR_xmp_json_ld", "EXT_lights_image_based", "EXT_mesh_features",
    "EXT_structural_metadata",
}  # fmt: skip
_DRACO = "KHR_draco_mesh_compression"
_WITH_PLAIN_DATA = {_DRACO, "EXT_meshopt_compression", "KHR_meshopt_compression", "KHR_texture_basisu"}


def read_gltf(path: Path) -> Geometry:
    """All meshes of the default scene with their transforms applied, and its points. Textures, vertex colours and
    factors multiply; vertex colours are taken as sRGB, because that is what scanners write, although the specification
    has them linear. Logs what is not drawn. Raises SceneError, or ValueError if the file is damaged."""
    file = GltfFile(path)
    if required := sorted(set(file.tree.get("extensionsRequired", [])) - _KNOWN):
        raise SceneError(
            f"{path} requires {', '.join(required)}, which is not supported: export it again without, for example "
            "with gltf-transform copy or gltf-transform ktxdecompress"
        )
    if unknown := sorted(set(file.tree.get("extensionsUsed", [])) - _KNOWN - _WITH_PLAIN_DATA):
        _log.warning("%s: ignoring %s, which may change what the scan looks like", path, ", ".join(unknown))
    parts = _Parts(file)
    placed: list[MeshPart] = []
    count = 0
    for mesh, matrix in _placed_meshes(file):
        for part in parts.of_mesh(mesh):
            count += len(part.vertices)
            file.require_explained(count, "vertices")
            placed.append(part.placed(matrix))
    if parts.lines:
        _log.warning("%s: its lines are not drawn (%d primitives)", path, parts.lines)
    return merged(path, placed, f"the attributes {', '.join(sorted(parts.attributes))}")


class GltfFile:
    """The JSON of a file and the data that it refers to, read when first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree, self._binary = _parsed(path)
        self._size = path.stat().st_size
        self._buffers: dict[int, np.ndarray] = {}
        self._accessors: dict[int, np.ndarray] = {}

    def item(self, kind: str, index: int) -> Entry:
        """An entry of one of the lists, such as "meshes"; raises ValueError if there is none."""
        entries = self.tree.get(kind, [])
        if not 0 <= index < len(entries):
            raise ValueError(f"it refers to {index} of its {len(entries)} {kind}")
        return entries[index]

    def resource(self, uri: str) -> bytes:
        """The bytes at a URI: embedded, or a file. Raises FileNotFoundError with the name of a missing file."""
        if uri.startswith("data:"):
            head, _, body = uri.partition(",")
            data = urllib.parse.unquote_to_bytes(body)
            return base64.b64decode(data) if head.endswith(";base64") else data
        data = file_of(self.path, urllib.parse.unquote(uri)).read_bytes()
        self._size += len(data)
        return data

    def require_explained(self, count: int, what: str) -> None:
        """Raise ValueError for more values than the bytes that were read explain, before memory is taken for them."""
        most = LEAST_EXPLAINED + VALUES_PER_BYTE * self._size
        if count > most:
            raise ValueError(f"it has {self._size:,} bytes and asks for more than {most:,} {what}")

    def view(self, index: int) -> np.ndarray:
        """The bytes of a buffer view, (B,) uint8."""
        view = self.item("bufferViews", index)
        start = view.get("byteOffset", 0)
        size = view["byteLength"]
        source = view["buffer"]
        if source not in self._buffers:
            uri = self.item("buffers", source).get("uri")
            data = self._binary if uri is None else self.resource(uri)
            self._buffers[source] = np.frombuffer(data or b"", dtype=np.uint8)
        buffer = self._buffers[source]
        if start < 0 or size < 0 or start + size > len(buffer):
            raise ValueError(f"truncated: {start + size} bytes of buffer {source} are used, which has {len(buffer)}")
        return buffer[start : start + size]

    def accessor(self, index: int) -> np.ndarray:
        """The values of an accessor, (N, components), normalised if it says so."""
        values = self.stored(index)
        if not self.item("accessors", index).get("normalized") or values.dtype.kind == "f":
            return values
        return np.maximum(values.astype(np.float32) / np.float32(np.iinfo(values.dtype).max), np.float32(-1))

    def stored(self, index: int) -> np.ndarray:
        """The numbers of an accessor as they are stored, (N, components)."""
        if index in self._accessors:
            return self._accessors[index]
        accessor = self.item("accessors", index)
        component = accessor["componentType"]
        width = _WIDTHS[accessor["type"]]
        count = accessor["count"]
        if "bufferView" in accessor:
            values = self._rows(accessor, count, component, width)
        else:
            self.require_explained(count, "values")
            values = np.zeros((count, width), dtype=_COMPONENTS[component])
        if sparse := accessor.get("sparse"):
            places = sparse["indices"]
            rows = self._rows(places, sparse["count"], places["componentType"], 1)
            values[rows[:, 0]] = self._rows(sparse["values"], sparse["count"], component, width)
        self._accessors[index] = values
        return values

    def _rows(self, source: Entry, count: int, component: int, width: int) -> np.ndarray:
        """A copy of `count` rows of `width` components in a buffer view, which may interleave several accessors."""
        data = self.view(source["bufferView"])
        dtype = np.dtype(_COMPONENTS[component])
        stride = self.item("bufferViews", source["bufferView"]).get("byteStride") or dtype.itemsize * width
        strides = (stride, dtype.itemsize)
        return np.ndarray((count, width), dtype, data, source.get("byteOffset", 0), strides).copy()


def _parsed(path: Path) -> tuple[Entry, memoryview | None]:
    """The JSON of a file and the binary chunk of a GLB; the content, not the name, says which it is."""
    data = memoryview(path.read_bytes())
    chunks: dict[int, memoryview] = {_JSON_CHUNK: data}
    if data[:4] == b"glTF":
        version, declared = struct.unpack_from("<II", data, 4)
        if version != 2:
            raise ValueError(f"only glTF 2 is supported, and it is of version {version}")
        if len(data) < declared:
            raise ValueError(f"truncated: its header declares {declared} bytes, but it has {len(data)}")
        chunks, offset = {}, 12
        while offset + 8 <= len(data):
            size, kind = struct.unpack_from("<II", data, offset)
            chunks.setdefault(kind, data[offset + 8 : offset + 8 + size])
            offset += 8 + size + -size % 4
    try:
        tree = json_in(bytes(chunks[_JSON_CHUNK]).rstrip(b"\0").decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"its JSON is damaged: {error}") from None
    if not str(tree["asset"]["version"]).startswith("2."):
        raise ValueError(f"only glTF 2 is supported, and it is of version {tree['asset']['version']}")
    return tree, chunks.get(_BINARY_CHUNK)


def _placed_meshes(file: GltfFile) -> Iterator[tuple[int, np.ndarray]]:
    """The meshes of the default scene, each with its (4, 4) transform; an instanced mesh comes several times."""
    nodes = file.tree.get("nodes", [])
    scenes = file.tree.get("scenes", [])
    if not nodes:
        yield from ((mesh, np.eye(4)) for mesh in range(len(file.tree.get("meshes", []))))
        return
    children = {child for node in nodes for child in node.get("children", [])}
    listed = [index for index in range(len(nodes)) if index not in children]
    if scenes:
        chosen = file.tree.get("scene", 0)
        listed = file.item("scenes", chosen).get("nodes", [])
        if len(scenes) > 1:
            _log.warning("%s: drawing only scene %d of its %d scenes", file.path, chosen, len(scenes))
    waiting = [(root, np.eye(4)) for root in reversed(listed)]
    seen: set[int] = set()
    deformed: set[str] = set()
    while waiting:
        index, parent = waiting.pop()
        if index in seen:
            raise ValueError(f"its nodes are not a tree: node {index} has several parents, or is below itself")
        seen.add(index)
        node = file.item("nodes", index)
        extensions = node.get("extensions", {})
        if extensions.get("KHR_node_visibility", {}).get("visible") is False:
            continue
        own = np.array(node["matrix"], dtype=np.float64).reshape(4, 4).T if "matrix" in node else _matrices(node)[0]
        matrix = parent @ own
        waiting += [(child, matrix) for child in reversed(node.get("children", []))]
        if "mesh" not in node:
            continue
        weights = node.get("weights") or file.item("meshes", node["mesh"]).get("weights") or []
        if "skin" in node:
            deformed.add("skin")
        if any(weights):
            deformed.add("morph targets")
        repeated = extensions.get("EXT_mesh_gpu_instancing", {}).get("attributes", {})
        moves = {key.lower(): file.accessor(repeated[key]) for key in repeated if not key.startswith("_")}
        yield from ((node["mesh"], matrix @ instance) for instance in _matrices(moves))
    if deformed:
        what = " and ".join(sorted(deformed))
        _log.warning("%s: ignoring the %s of its meshes: they have the shape that they are stored in", file.path, what)


def _matrices(moves: Mapping[str, Any]) -> np.ndarray:
    """(K, 4, 4) matrices that scale, turn by unit quaternions x, y, z, w and shift, by one or K rows of each."""
    from scipy.spatial.transform import Rotation

    moves = {**_UNMOVED, **moves}
    shift, turn, scale = (np.array(moves[name], dtype=np.float64, ndmin=2) for name in _UNMOVED)
    matrices = np.tile(np.eye(4), (max(len(shift), len(turn), len(scale)), 1, 1))
    matrices[:, :3, :3] = Rotation.from_quat(turn).as_matrix() * scale[:, None, :]
    matrices[:, :3, 3] = shift
    return matrices


class _Parts:
    def __init__(self, file: GltfFile) -> None:
        self._file = file
        self._materials = MaterialReader(file)
        self._meshes: dict[int, list[MeshPart]] = {}
        self.lines = 0
        self.attributes: set[str] = set()

    def of_mesh(self, index: int) -> list[MeshPart]:
        """The parts of a mesh, which are read once."""
        if index not in self._meshes:
            primitives = self._file.item("meshes", index).get("primitives", [])
            self._meshes[index] = [part for part in map(self._part, primitives) if part is not None]
        return self._meshes[index]

    def _part(self, primitive: Entry) -> MeshPart | None:
        attributes = primitive.get("attributes", {})
        mode = primitive.get("mode", _TRIANGLES)
        self.attributes |= attributes.keys()
        if mode in _LINES:
            self.lines += 1
            return None
        if "POSITION" not in attributes:
            return None
        accessor = self._file.item("accessors", attributes["POSITION"])
        extensions = primitive.get("extensions", {})
        if _DRACO in extensions and "bufferView" not in accessor:
            raise ValueError(f"its meshes are compressed with {_DRACO} alone")
        positions = self._file.accessor(attributes["POSITION"])
        positions = positions if positions.dtype.kind == "f" else positions.astype(np.float32)
        order = np.arange(len(positions))
        if "indices" in primitive:
            order = self._file.accessor(primitive["indices"])[:, 0].astype(np.int64)
        if len(order) and order.max() >= len(positions):
            raise ValueError("a face refers to a vertex that does not exist")
        faces = NO_FACES if mode == _POINTS else _triangles(order, mode)
        material = self._materials.material(primitive.get("material"))
        colours, alpha = None, None
        if attributes.get("COLOR_0") is not None:
            values = self._file.stored(attributes["COLOR_0"])
            full = full_scale(values[:, :3]) if values.dtype.kind == "f" else float(np.iinfo(values.dtype).max)
            colours = as_bytes(values[:, :3], full)
            alpha = values[:, 3] / full if values.shape[1] == 4 else None
        uv = None
        if material.slot is not None:
            name = f"TEXCOORD_{material.slot.texcoord}"
            if name in attributes:
                uv = np.nan_to_num(self._file.accessor(attributes[name])[:, :2].astype(np.float32))
            else:
                self._materials.problem(f"a mesh with a texture has no {name}")
        if 0 < faces.size < len(positions):  # many primitives may share the vertices of all
            faces, positions, colours, alpha, uv = compact(faces, positions, colours, alpha, uv)
        mesh = MeshPart(positions, faces, colours, face_uv=material.face_uv(uv, faces))
        return material.part(mesh, alpha)


def _triangles(order: np.ndarray, mode: int) -> np.ndarray:
    """(M, 3) int32 triangles of vertices in `order`: separate, a strip or a fan."""
    if mode == _TRIANGLES:
        return order[: len(order) // 3 * 3].reshape(-1, 3).astype(np.int32)
    if len(order) < 3:
        return NO_FACES
    if mode == _FAN:
        return np.stack([np.full(len(order) - 2, order[0]), order[1:-1], order[2:]], axis=1).astype(np.int32)
    faces = np.stack([order[:-2], order[1:-1], order[2:]], axis=1)
    faces[1::2] = faces[1::2, ::-1]
    return faces.astype(np.int32)
