"""Opens image files of others: of known formats, of bounded size, upright, with 8 bits a channel."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from roomscout.base.files import LFS_POINTER

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "TGA", "DDS", "AVIF")
"""The formats that are read, by Pillow's names. To read them starts no other program, as EPS does."""
MOST_PIXELS = 16384 * 16384
"""Texture atlases of scans have that many pixels; Pillow's own limit is lower."""
MOST_PIXELS_PER_BYTE = 64
"""A larger image is nearly all of one colour, and a small file of it would take all memory; 4096 x 4096 always pass."""
Image.MAX_IMAGE_PIXELS = None  # `opened` is stricter
# What images are that Pillow does not read, by their first bytes, and what to do about them.
_NOT_READ = {
    b"\xabKTX 20\xbb\r\n": "it is KTX2: convert the scan with `gltf-transform ktxdecompress`",
    LFS_POINTER: "it is a Git LFS pointer: run git lfs pull",
}


class PictureError(ValueError):
    """An image cannot be used; the message says why, and is part of a sentence."""


def opened(source: Path | bytes, upright: bool = True) -> Image.Image:
    """The image of a file or of its bytes, RGB or RGBA; `upright` as its EXIF orientation says. Ignores colour
    profiles. Raises PictureError, also for a file that cannot be read."""
    try:
        data = source if isinstance(source, bytes) else source.read_bytes()
    except OSError as error:
        raise PictureError(f"it cannot be read: {error.strerror or error}") from None
    try:
        if why := next((why for start, why in _NOT_READ.items() if data.startswith(start)), None):
            raise PictureError(why)
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            most = min(MOST_PIXELS, max(4096 * 4096, MOST_PIXELS_PER_BYTE * len(data)))
            if image.width * image.height > most:
                raise PictureError(f"it has {image.width} x {image.height} pixels, more than {most:,}: save it smaller")
            shown = ImageOps.exif_transpose(image) if upright else image
            if shown.mode == "F" or shown.mode.startswith("I"):
                shown = Image.fromarray(_in_8_bits(np.asarray(shown)))
            return shown.convert("RGBA" if shown.has_transparency_data else "RGB")
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError("it is damaged, or not an image of a known format") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # Pillow's own for broken chunks
        raise PictureError(f"it is damaged: {error}") from None


def _in_8_bits(grey: np.ndarray) -> np.ndarray:
    """(H, W) uint8 of floats up to 1, or of numbers of 8 or 16 bits; Pillow's own conversion clips them to white."""
    highest = float(np.nan_to_num(grey).max(initial=0))
    full = 1 if grey.dtype.kind == "f" and highest <= 1 else 255 if highest <= 255 else 65535
    return (np.nan_to_num(grey.astype(np.float64)) * (255 / full)).clip(0, 255).round().astype(np.uint8)
