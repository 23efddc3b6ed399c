"""What the materials of a glTF file look like without light."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from roomscout.rendering.parts import OPAQUE_ALPHA, Material
from roomscout.rendering.textures import Picture, Pictures, Texture, Wrap, opacity_of, srgb, tinted

if TYPE_CHECKING:
    from roomscout.rendering.gltf import Entry, GltfFile

_WRAPS: dict[int, Wrap] = {10497: "repeat", 33071: "clamp", 33648: "mirror"}
_IMAGE_EXTENSIONS = ("EXT_texture_webp", "EXT_texture_avif", "MSFT_texture_dds", "KHR_texture_basisu")
_BLACK = 8  # texels darker than this emit nothing


@dataclass(frozen=True)
class _Slot:
    """A picture and its place: the set of texture coordinates, their transform (2, 3), and its continuation."""

    picture: Picture
    texcoord: int = 0
    transform: tuple[tuple[float, ...], ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    wrap: tuple[Wrap, Wrap] = ("repeat", "repeat")


@dataclass(frozen=True, eq=False)
class GltfMaterial(Material):
    """A material whose texture, if it has one, is that of a slot."""

    slot: _Slot | None = None

    def face_uv(self, uv: np.ndarray | None, faces: np.ndarray) -> np.ndarray | None:
        """(M, 3, 2) float32 coordinates of the texture, v up, from those of vertices `uv` (N, 2), v down."""
        if uv is None or self.slot is None or not len(faces):
            return None
        transform = np.array(self.slot.transform)
        moved = uv @ transform[:, :2].T + transform[:, 2]
        moved[:, 1] = 1 - moved[:, 1]
        return moved.astype(np.float32)[faces]


class MaterialReader(Pictures):
    """Reads the materials of a file, each once, and shares textures that look the same."""

    def __init__(self, file: "GltfFile") -> None:
        super().__init__(file.path)
        self._file = file
        self._materials: dict[int | None, GltfMaterial] = {None: GltfMaterial(cutoff=None)}
        self._textures: dict[tuple[object, ...], Texture] = {}

    def material(self, index: int | None) -> GltfMaterial:
        """A material by its index; the default material for None."""
        if index not in self._materials:
            assert index is not None
            self._materials[index] = self._read(self._file.item("materials", index))
        return self._materials[index]

    def _read(self, entry: "Entry") -> GltfMaterial:
        model = entry.get("pbrMetallicRoughness", {})
        rgba = np.array(model.get("baseColorFactor", [1, 1, 1, 1]), dtype=np.float64)
        factor = rgba[:3].clip(0, 1)
        alpha = float(rgba[3])
        emission = np.array(entry.get("emissiveFactor", [0, 0, 0]), dtype=np.float64).clip(0, 1)
        base = self._slot(model.get("baseColorTexture"))
        emitting = self._slot(entry.get("emissiveTexture")) if emission.any() else None
        if base and emitting and replace(base, picture=emitting.picture) != emitting:
            self.problem("ignoring an emissive texture whose coordinates are not those of the base texture")
            emitting = None
        # Emission is the least that a surface shows: the sum would be too bright where exporters write both alike.
        glow = np.zeros(3, dtype=np.uint8) if "emissiveTexture" in entry else _encoded(emission)
        constant = np.maximum(_encoded(factor), glow) if "baseColorFactor" in model or glow.any() else None
        if "baseColorTexture" in model and base is None:
            constant = None  # shading shows shapes where a texture cannot be used
            emitting = None
        mode = entry.get("alphaMode", "OPAQUE")
        cutoff = None
        opacity = None
        if mode in ("MASK", "BLEND"):
            cutoff = entry.get("alphaCutoff", 0.5) if mode == "MASK" else OPAQUE_ALPHA
            if base is not None and base.picture.alpha is not None:
                opacity = opacity_of(base.picture.alpha, cutoff / max(alpha, 1e-6), base.wrap)
        slot = base or emitting
        texture = self._texture(base, factor, emitting, emission, glow) if slot else None
        return GltfMaterial(constant, texture, base is not None, alpha, opacity, cutoff, factor, glow, slot)

    def _texture(
        self, base: _Slot | None, factor: np.ndarray, emitting: _Slot | None, emission: np.ndarray, glow: np.ndarray
    ) -> Texture:
        """The base picture times its factor, but nowhere darker than what is emitted."""
        slot = base or emitting
        assert slot is not None
        pictures = (base and id(base.picture), emitting and id(emitting.picture))
        key = (pictures, factor.tobytes(), emission.tobytes(), slot.wrap)
        if key not in self._textures:
            pixels = tinted(base.picture.pixels, factor) if base else None
            if emitting:
                emitted = tinted(emitting.picture.pixels, emission)
                if pixels is None and (emitted.max(axis=2) < _BLACK).mean() > 0.5:  # lamps on a surface of one colour
                    pixels = np.broadcast_to(_encoded(factor), emitted.shape)
                if pixels is not None and pixels.shape != emitted.shape:
                    size = (pixels.shape[1], pixels.shape[0])
                    emitted = np.asarray(Image.fromarray(emitted).resize(size, Image.Resampling.BILINEAR))
                pixels = emitted if pixels is None else np.maximum(pixels, emitted)
            assert pixels is not None
            if glow.any():
                pixels = np.maximum(pixels, glow)
            self._textures[key] = Texture(pixels, slot.wrap)
        return self._textures[key]

    def _slot(self, info: "Entry | None") -> _Slot | None:
        """The picture that a texture info refers to; None if there is none, or it cannot be used, which is logged."""
        if info is None:
            return None
        texture = self._file.item("textures", info["index"])
        picture = self._picture(info["index"], texture)
        if picture is None:
            return None
        sampler = self._file.item("samplers", texture["sampler"]) if "sampler" in texture else {}
        moved = info.get("extensions", {}).get("KHR_texture_transform", {})
        return _Slot(
            picture,
            moved.get("texCoord", info.get("texCoord", 0)),
            _transform(moved),
            (_WRAPS[sampler.get("wrapS", 10497)], _WRAPS[sampler.get("wrapT", 10497)]),
        )

    def _picture(self, index: int, texture: "Entry") -> Picture | None:
        """The first image of a texture that can be decoded."""
        extensions = texture.get("extensions", {})
        sources = [texture.get("source"), *(extensions.get(name, {}).get("source") for name in _IMAGE_EXTENSIONS)]
        images = [image for image in sources if image is not None]
        if not images:
            self.problem(f"texture {index} has no image in a format that can be read")
        return next((picture for picture in map(self._image, images) if picture), None)

    def _image(self, index: int) -> Picture | None:
        image = self._file.item("images", index)

        def read() -> bytes:
            view = image.get("bufferView")
            return self._file.resource(image["uri"]) if view is None else self._file.view(view).tobytes()

        return self.picture(index, image.get("name") or f"image {index}", read)


def _encoded(linear: np.ndarray) -> np.ndarray:
    """(3,) uint8 sRGB of linear light, 0 to 1."""
    return (255 * srgb(linear)).round().astype(np.uint8)


def _transform(extension: "Entry") -> tuple[tuple[float, ...], ...]:
    """The (2, 3) matrix of a KHR_texture_transform, for v down: scales, turns counter-clockwise, then shifts."""
    scale = extension.get("scale", [1, 1])
    shift = extension.get("offset", [0, 0])
    cos = np.cos(extension.get("rotation", 0.0))
    sin = np.sin(extension.get("rotation", 0.0))
    return (
        (float(cos * scale[0]), float(sin * scale[1]), float(shift[0])),
        (float(-sin * scale[0]), float(cos * scale[1]), float(shift[1])),
    )
