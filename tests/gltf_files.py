"""Writes small GLB and glTF files with any feature, for tests."""

import io
import json
import struct
from pathlib import Path

import numpy as np
from PIL import Image
from simple_rooms import BLUE, GREEN, RED

BROWN = (90, 60, 30)
FOUR = {(0.25, 0.75): RED, (0.75, 0.75): GREEN, (0.25, 0.25): BLUE, (0.75, 0.25): BROWN}
"""The colours of the square with `picture`: from the left, from below, in metres."""
CORNERS = np.float32([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
UV = np.float32([[0, 1], [1, 1], [1, 0], [0, 0]])
TRIANGLES = np.uint16([0, 1, 2, 0, 2, 3])
_TYPES = {"i1": 5120, "u1": 5121, "i2": 5122, "u2": 5123, "u4": 5125, "f4": 5126}
_WIDTHS = {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4"}


def picture(mode: str = "RGB", size: int = 32) -> Image.Image:
    """Four squares: red, green, blue and brown."""
    image = Image.new("RGB", (size, size), BROWN)
    half = size // 2
    for colour, corner in ((RED, (0, 0)), (GREEN, (half, 0)), (BLUE, (0, half))):
        image.paste(colour, (*corner, corner[0] + half, corner[1] + half))
    return image.convert(mode)


def image_bytes(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


class Gltf:
    """A file in the making: `tree` is its JSON, `data` its binary chunk."""

    def __init__(self) -> None:
        self.data = b""
        self.tree: dict = {"asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": []}]}
        for kind in ("accessors", "bufferViews", "nodes", "meshes", "materials", "textures", "images", "samplers"):
            self.tree[kind] = []

    def add(self, kind: str, **entry) -> int:
        """The index of a new entry of a list of the JSON."""
        self.tree.setdefault(kind, []).append(entry)
        return len(self.tree[kind]) - 1

    def view(self, data: bytes, **more) -> int:
        self.data += b"\0" * (-len(self.data) % 4)
        self.data += data
        return self.add("bufferViews", buffer=0, byteOffset=len(self.data) - len(data), byteLength=len(data), **more)

    def accessor(self, values, normalized: bool = False, **more) -> int:
        values = np.asarray(values)
        width = 1 if values.ndim == 1 else values.shape[1]
        return self.add(
            "accessors",
            bufferView=self.view(values.tobytes()),
            componentType=_TYPES[values.dtype.str[1:]],
            type=_WIDTHS[width],
            count=len(values),
            **({"normalized": True} if normalized else {}),
            **more,
        )

    def texture(self, data: bytes, extension: str = "", **sampler) -> int:
        image = self.add("images", bufferView=self.view(data), mimeType="image/png")
        entry = {"extensions": {extension: {"source": image}}} if extension else {"source": image}
        if sampler:
            entry["sampler"] = self.add("samplers", **sampler)
        return self.add("textures", **entry)

    def mesh(self, *primitives: dict, **node) -> int:
        """The index of a new node with a mesh."""
        index = self.add("nodes", mesh=self.add("meshes", primitives=list(primitives)), **node)
        self.tree["scenes"][0]["nodes"].append(index)
        return index

    def square(self, **replaced) -> dict:
        """A primitive: a square metre with texture coordinates; `replaced` attributes are those given, None is none."""
        attributes = {
            "POSITION": lambda: self.accessor(CORNERS),
            "TEXCOORD_0": lambda: self.accessor(UV),
        }
        found = {name: make() for name, make in attributes.items() if name not in replaced}
        found |= {name: index for name, index in replaced.items() if index is not None}
        return {"attributes": found, "indices": self.accessor(TRIANGLES)}

    def material(self, texture: int | None = None, info: dict | None = None, **more) -> int:
        model = {} if texture is None else {"baseColorTexture": {"index": texture, **(info or {})}}
        return self.add("materials", pbrMetallicRoughness=model, **more)

    def glb(self, path: Path, padding: bytes = b" ") -> Path:
        self.tree["buffers"] = [{"byteLength": len(self.data)}]
        text = json.dumps(self._without_empty_lists()).encode()
        text += padding * (-len(text) % 4)
        data = self.data + b"\0" * (-len(self.data) % 4)
        chunks = struct.pack("<II", len(text), 0x4E4F534A) + text + struct.pack("<II", len(data), 0x004E4942) + data
        path.write_bytes(b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks)
        return path

    def gltf(self, path: Path, binary: str, uri: str) -> Path:
        """A .gltf file whose buffer is the file `binary`, named as `uri`."""
        (path.parent / binary).write_bytes(self.data)
        self.tree["buffers"] = [{"byteLength": len(self.data), "uri": uri}]
        path.write_bytes(json.dumps(self._without_empty_lists()).encode())
        return path

    def _without_empty_lists(self) -> dict:
        return {key: value for key, value in self.tree.items() if value != []}
