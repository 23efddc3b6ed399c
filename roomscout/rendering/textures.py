"""Texture images: finding, decoding, tinting, transparency, and how they continue outside 0..1."""

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from roomscout.base.files import FileRefused, own_folders, require_own
from roomscout.base.pictures import PictureError, opened

_log = logging.getLogger(__name__)

_CLAMPED_PIXELS = 4096  # an image extended for `clamp` gets at most so many along an axis, or twice those it has
_BLEEDING_PIXELS = 1024  # the opposite border bleeds into half a pixel of an image that repeats; larger ones hide it
_OPACITY_BLOCKS = 2048  # transparency is looked up in at most so many blocks of texels along an axis
_FAR_UV = 64.0  # texture coordinates further outside are moved here
MOST_PROBLEMS = 20  # of a scan that are logged
MOST_BYTES = 2**32  # of a file that a scan names: a GLB has no more, and uncompressed the largest image a quarter
_BYTES = np.arange(256) / 255

Wrap = Literal["repeat", "mirror", "clamp"]  # outside 0..1: OpenGL's REPEAT, MIRRORED_REPEAT and CLAMP_TO_EDGE


def srgb(linear: np.ndarray) -> np.ndarray:
    """Encode linear light, 0 to 1, as sRGB, 0 to 1; IEC 61966-2-1."""
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def tinted(colours: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Multiply sRGB colours (..., 3) uint8 in linear light by a factor (3,), 0 to 1: glTF 2.0 specification, 3.9.2."""
    if (factor == 1).all():
        return colours
    linear = np.where(_BYTES <= 0.04045, _BYTES / 12.92, ((_BYTES + 0.055) / 1.055) ** 2.4)  # the inverse of `srgb`
    table = (255 * srgb(linear[:, None] * factor)).round().astype(np.uint8)
    return np.stack([table[:, channel][colours[..., channel]] for channel in range(3)], axis=-1)


@dataclass(frozen=True, eq=False)
class Picture:
    """A decoded image: `pixels` (h, w, 3) uint8 RGB, and `alpha` (h, w) uint8 or None."""

    pixels: np.ndarray
    alpha: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Texture:
    """`pixels` (h, w, 3) uint8 RGB, and how they continue along u and v."""

    pixels: np.ndarray
    wrap: tuple[Wrap, Wrap] = ("repeat", "repeat")

    def unrolled(self, uv: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An image and texture coordinates that look like this texture at `uv` (M, 3, 2) but repeat: a mirrored image
        beside its mirror image, or a clamped one with a margin of its border as far as `uv` reaches."""
        pixels = self.pixels
        if not len(uv):
            return pixels, uv
        for axis, wrap in enumerate(self.wrap):
            low = float(uv[..., axis].min())
            high = float(uv[..., axis].max())
            size = pixels.shape[1 - axis]
            inside = low >= 0 and high <= 1
            bleeds = size <= _BLEEDING_PIXELS and (low < 0.5 / size or high > 1 - 0.5 / size)
            if wrap == "repeat" or (inside and not bleeds):
                continue
            uv = uv.copy()
            if wrap == "mirror" and not inside:
                mirrored = np.flip(pixels, 1 - axis)
                halves = [pixels, mirrored] if axis == 0 else [mirrored, pixels]  # to the right, or above
                pixels = np.concatenate(halves, axis=1 - axis)
                uv[..., axis] /= 2
                continue
            uv[..., axis] = uv[..., axis].clip(-_FAR_UV, _FAR_UV)
            pixels, margins = _with_margins(pixels, axis, max(-low, 0.0), max(high - 1, 0.0))
            size = pixels.shape[1 - axis] - sum(margins)
            whole = pixels.shape[1 - axis]
            uv[..., axis] = (uv[..., axis] * size + margins[0]) / whole
        return pixels, uv


def _with_margins(pixels: np.ndarray, axis: int, below: float, above: float) -> tuple[np.ndarray, tuple[int, int]]:
    """The image with margins of its border's colours along u or v, `below` and `above` in units of the image, and their
    sizes in pixels. Reduces an image that would become too large."""
    size = pixels.shape[1 - axis]
    below = min(below, _FAR_UV)
    above = min(above, _FAR_UV)
    fitting = int(max(_CLAMPED_PIXELS, 2 * size) / (1 + below + above))
    if fitting < size:
        size = max(fitting, 1)
        shape = (size, pixels.shape[0]) if axis == 0 else (pixels.shape[1], size)
        pixels = np.asarray(Image.fromarray(pixels).resize(shape, Image.Resampling.BOX))
    # One more pixel keeps the opposite border out of the interpolation.
    margins = (int(np.ceil(below * size)) + 1, int(np.ceil(above * size)) + 1)
    padding = ((0, 0), margins, (0, 0)) if axis == 0 else (margins[::-1], (0, 0), (0, 0))
    return np.pad(pixels, padding, mode="edge"), margins


def decoded(data: bytes) -> Picture:
    """Decode an image file. Ignores its orientation, as glTF prescribes. Raises PictureError."""
    pixels = np.asarray(opened(data, upright=False))
    alpha = np.ascontiguousarray(pixels[..., 3]) if pixels.shape[2] == 4 else None
    return Picture(np.ascontiguousarray(pixels[..., :3]), alpha)


def file_of(scan: Path, name: str, beside: Path | None = None) -> Path:
    r"""The file of a scan with this `name`, relative to the file `beside` or to the scan. A path of another machine,
    `C:\Users\me\textures\wall.png`, is searched for as `textures/wall.png` and as `wall.png`. Raises OSError, also for
    what `require_own` refuses: a scan of a stranger could otherwise read any file."""
    parts = name.replace("\\", "/").split("/")
    endings = ["/".join(parts[first:]) for first in range(len(parts)) if parts[-1]]
    folders = dict.fromkeys([(beside or scan).parent, scan.parent])
    own = own_folders(scan)
    why = "missing"
    for path in (folder / ending for folder in folders for ending in endings):
        try:
            require_own(path, own, "the scan's folder", MOST_BYTES)
            return path
        except FileNotFoundError:
            continue
        except FileRefused as error:
            why = str(error)
    raise FileNotFoundError(f"the file {name[:200]} is {why}: put it beside the scan")


class Pictures:
    """The images of a scan, each decoded once, and what is not drawn as the scan says, each logged once."""

    def __init__(self, scan: Path) -> None:
        self.scan = scan
        self._pictures: dict[Hashable, Picture | None] = {}
        self._problems: set[str] = set()

    def problem(self, text: str) -> None:
        """Log once that something is not drawn as the scan says."""
        if text in self._problems or len(self._problems) > MOST_PROBLEMS:
            return
        self._problems.add(text)
        if len(self._problems) > MOST_PROBLEMS:
            text = "there is more that is not drawn as it says"
        _log.warning("%s: %s", self.scan, text)

    def picture(self, key: Hashable, name: str, read: Callable[[], bytes]) -> Picture | None:
        """The image that `read` gives the bytes of, by its key; None if it cannot be used, which is logged."""
        if key not in self._pictures:
            self._pictures[key] = None
            try:
                self._pictures[key] = decoded(read())
            except (OSError, PictureError) as error:
                self.problem(f"drawing without the texture {name[:200]}: {error}")
        return self._pictures[key]


class Opacity:
    """Which texels of an image are opaque, and which faces therefore are."""

    def __init__(self, opaque: np.ndarray, wrap: tuple[Wrap, Wrap]) -> None:
        """`opaque` is (h, w) bool. Counts it in blocks of texels, so that a large atlas takes little memory."""
        self._size = opaque.shape
        self._wrap = wrap
        self._steps = tuple(-(-size // _OPACITY_BLOCKS) for size in opaque.shape)
        rows = np.arange(0, opaque.shape[0], self._steps[0])
        columns = np.arange(0, opaque.shape[1], self._steps[1])
        counts = np.add.reduceat(np.add.reduceat(opaque, rows, axis=0, dtype=np.int32), columns, axis=1)
        # The count in any rectangle of blocks is a sum of four of these sums from the first block.
        self._sums = np.pad(counts.cumsum(axis=0, dtype=np.int32).cumsum(axis=1, dtype=np.int32), ((1, 0), (1, 0)))

    def of_faces(self, face_uv: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether faces with these texture coordinates (M, 3, 2) have no opaque texel, and only opaque ones: (M,) each.
        Looks at all texels in the box around a face's coordinates."""
        left, right = self._range(face_uv[..., 0], 1, self._wrap[0])
        top, bottom = self._range(1.0 - face_uv[..., 1], 0, self._wrap[1])
        opaque = self._sums[bottom, right] - self._sums[top, right] - self._sums[bottom, left] + self._sums[top, left]
        rows, columns = self._steps
        height, width = self._size
        high = np.minimum(bottom * rows, height) - top * rows
        wide = np.minimum(right * columns, width) - left * columns
        return opaque == 0, opaque == high * wide

    def _range(self, along: np.ndarray, axis: int, wrap: Wrap) -> tuple[np.ndarray, np.ndarray]:
        """First block and the one after the last that each face's coordinates (M, 3) reach; all outside one image."""
        size = self._size[axis]
        step = self._steps[axis]
        low = along.min(axis=1)
        high = along.max(axis=1)
        if wrap == "repeat":
            tile = np.floor(low)
            low = low - tile
            high = high - tile
        beyond = (low < 0) | (high > 1)
        first = np.where(beyond, 0, np.floor(low * size)).clip(0, size - 1).astype(np.int64)
        last = np.where(beyond, size, np.ceil(high * size)).clip(first + 1, size).astype(np.int64) - 1
        return first // step, last // step + 1


def opacity_of(alpha: np.ndarray, cutoff: float, wrap: tuple[Wrap, Wrap]) -> Opacity | None:
    """Where an image with `alpha` (h, w) uint8 reaches `cutoff`, 0 to 1; None if it does everywhere."""
    opaque = alpha >= 255 * cutoff
    return None if opaque.all() else Opacity(opaque, wrap)
