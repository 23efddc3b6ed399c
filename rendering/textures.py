"""Texture images: decoding, tinting, and merging the textures of several meshes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from roomscout.rendering.geometry import Geometry, Texturing

# Texture atlases of scans exceed Pillow's default limit, which guards against decompression bombs. Pillow raises at
# twice the limit.
MAX_IMAGE_PIXELS = 16384 * 16384
Image.MAX_IMAGE_PIXELS = MAX_IMAGE_PIXELS

MISSING_TEXTURES = (
    "%s: %d of %d meshes have texture coordinates but no texture, so they use other colours or shading: is an .mtl or "
    f"image file missing, unreadable, or larger than {2 * MAX_IMAGE_PIXELS:,} pixels?"
)
"""Log format; arguments: the file, the number of meshes with a missing texture, the number of meshes."""

_BYTES = np.arange(256) / 255


def srgb(linear: np.ndarray) -> np.ndarray:
    """Encode linear light, 0 to 1, as sRGB, 0 to 1; IEC 61966-2-1."""
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def linear_light(encoded: np.ndarray) -> np.ndarray:
    """Decode sRGB, 0 to 1, to linear light; the inverse of `srgb`."""
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


SRGB_OF_LINEAR = (255 * srgb(_BYTES)).round().astype(np.uint8)
"""(256,) uint8 lookup table from linear light to sRGB."""


def tinted(colours: np.ndarray, factor: np.ndarray | None) -> np.ndarray:
    """Multiply sRGB colours (..., 3) uint8 in linear light by a material's factor (3,), 0 to 1, if it has one.

    glTF 2.0 specification, 3.9.2 "Metallic-Roughness Material": the factor is linear, the texture is encoded.
    """
    if factor is None or (factor == 1).all():
        return colours
    table = (255 * srgb(linear_light(_BYTES)[:, None] * factor)).round().astype(np.uint8)
    return np.stack([table[:, channel][colours[..., channel]] for channel in range(3)], axis=-1)


@dataclass(frozen=True, eq=False)
class Texture:
    """`pixels` (h, w, 3) uint8 RGB."""

    pixels: np.ndarray


def make_texture(image: Image.Image, factor: np.ndarray | None = None) -> Texture:
    """Decode an image and tint it by `factor` (3,), if given."""
    return Texture(tinted(np.asarray(image.convert("RGB")), factor))


def merged_texturing(parts: Sequence[Geometry]) -> Texturing | None:
    """Merge the texturings of all parts; None if no part has one.

    Untextured faces get image index -1. An image shared by several parts is stored once.
    """
    if not any(part.texturing for part in parts):
        return None
    uvs, indices = [], []
    images: list[np.ndarray] = []
    index_by_id: dict[int, int] = {}
    for part in parts:
        if part.texturing is None:
            uvs.append(np.zeros((len(part.faces), 3, 2), dtype=np.float32))
            indices.append(np.full(len(part.faces), -1, dtype=np.int32))
            continue
        for image in part.texturing.images:
            if id(image) not in index_by_id:
                index_by_id[id(image)] = len(images)
                images.append(image)
        # The last entry maps -1, an untextured face, to itself.
        new_index = np.array([*(index_by_id[id(image)] for image in part.texturing.images), -1], dtype=np.int32)
        uvs.append(part.texturing.face_uv)
        indices.append(new_index[part.texturing.face_image])
    return Texturing(np.concatenate(uvs), np.concatenate(indices), tuple(images))
