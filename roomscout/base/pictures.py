"""Opens image files of others: of known formats, of bounded size, upright, with 8 bits a channel."""

import base64
import io
import re
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from roomscout.base.files import not_fetched

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "TGA", "DDS", "AVIF")
"""The formats that are read, by Pillow's names. To read them starts no other program, as EPS does."""
MOST_PIXELS = 16384 * 16384  # texture atlases of scans have that many pixels; Pillow's own limit is lower
MOST_PIXELS_PER_BYTE = 64
"""A larger image is nearly all of one colour, and a small file of it would take all memory; 4096 x 4096 always pass."""
Image.MAX_IMAGE_PIXELS = MOST_PIXELS  # Pillow itself raises at twice as many
# What images are that Pillow does not read, by their first bytes, and what to do about them.
_NOT_READ = {
    rb"\xabKTX 20\xbb\r\n": "it is KTX2: convert the scan with `gltf-transform ktxdecompress`",
    rb".{4}ftyp(hei[cxms]|hev[cxms]|mif1|msf1)": "it is HEIC: convert it to JPEG or PNG",
    rb"\0\0\0\x0cjP {2}|\xff\x4f\xff\x51": "it is JPEG 2000: convert it to JPEG or PNG",
    rb"(\xef\xbb\xbf)?\s*(<(\?xml|!--|!DOCTYPE svg)((?!<html).){,4000})?<svg\b": "it is SVG: convert it to PNG",
}


class PictureError(ValueError):
    """An image cannot be used; the message says why, and is part of a sentence."""


def opened(data: bytes, upright: bool = True) -> Image.Image:
    """The image in a file's bytes, RGB or RGBA; `upright` as EXIF says, without colour profile. Raises PictureError."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            most = min(MOST_PIXELS, max(4096 * 4096, MOST_PIXELS_PER_BYTE * len(data)))
            if image.width * image.height > most:
                raise PictureError(f"it has {image.width} x {image.height} pixels, more than {most:,}: save it smaller")
            turned = ImageOps.exif_transpose(image) if upright else image
            if turned.mode == "F" or turned.mode.startswith("I"):  # Pillow's own conversion clips 16 bits to white
                grey = np.asarray(turned)
                turned = Image.fromarray(as_bytes(grey, full_scale(grey)))
            mode = "RGBA" if turned.has_transparency_data else "RGB"
            return turned.convert(mode)
    except PictureError:
        raise
    except UnidentifiedImageError:
        kinds = (why for start, why in _NOT_READ.items() if re.match(start, data, re.DOTALL))
        why = next(kinds, "") or re.sub("^is", "it is", not_fetched(data[:1024]))
        raise PictureError(why or "it is damaged, or not an image of a known format") from None
    except Image.DecompressionBombError:
        raise PictureError(f"it has more than {2 * MOST_PIXELS:,} pixels: save it smaller") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # Pillow's own for broken chunks
        raise PictureError(f"it is damaged: {error}") from None


def data_url(image: Image.Image, form: str, quality: int) -> str:
    """An image as a data: URL in a format of Pillow."""
    content = io.BytesIO()
    image.save(content, format=form, quality=quality)
    return f"data:image/{form.lower()};base64,{base64.b64encode(content.getvalue()).decode()}"


def full_scale(values: np.ndarray, depths: Sequence[float] = (65535,)) -> float:
    """Full brightness of colours of any shape: 1 (of floats), 255, or the least of `depths` that holds nearly all. The
    median of the values above 0 decides, so that a few outliers are clipped."""
    bright = values[values > 0].astype(np.float64)
    typical = float(np.median(bright)) if len(bright) else 0.0
    if values.dtype.kind == "f" and typical <= 1:
        return 1.0
    if typical <= 255:
        return 255.0
    highest = np.percentile(bright, 99.0)
    return next((depth for depth in depths if highest <= depth), depths[-1])


def as_bytes(values: np.ndarray, full: float) -> np.ndarray:
    """Colours of any numbers and shape as uint8, where `full` is full brightness; clips what is beyond, NaN is 0."""
    if values.dtype == np.uint8 and full == 255:
        return values
    numbers = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    return (numbers * (255 / full)).clip(0, 255).round().astype(np.uint8)
