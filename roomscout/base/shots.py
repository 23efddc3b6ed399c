"""The named images of an observation, with a fast PNG encoder."""

import hashlib
import math
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

VIEW = "rgb"  # the name of the view, which is the first image of each observation
PICTURE = "picture"  # how the name of an image that is a picture of the question begins; its number follows, from 1
FRAME = "frame"  # the name of an image that is a frame of a video

_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\0\0\0\0IEND" + struct.pack(">I", zlib.crc32(b"IEND"))
_UP = 2  # PNG's filter type Up: each byte is stored as its difference to the byte above


@dataclass(frozen=True, eq=False)
class Shot:
    """An image with the name of its modality, (H, W, 3) uint8 RGB. Its PNG and its hash are computed on first use."""

    name: str
    image: "np.ndarray"

    @cached_property
    def png(self) -> bytes:
        """The image as a PNG (W3C Portable Network Graphics, third edition) in 3 ms for 640x480; Pillow takes 19, a
        quarter of a turn's CPU time, most of it to choose a filter for every row."""
        import numpy as np
        from isal import isal_zlib  # machines that only run models (benchmarks.gpu) may lack it

        height, width, _ = self.image.shape
        rows = self.image.reshape(height, 3 * width)
        filtered = np.empty((height, 1 + 3 * width), dtype=np.uint8)
        filtered[:, 0] = _UP
        filtered[0, 1:] = rows[0]
        np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB, not interlaced
        png = _PNG_START
        for chunk in (b"IHDR" + header, b"IDAT" + isal_zlib.compress(filtered, 1)):
            png += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        return png + _PNG_END

    @cached_property
    def sha256(self) -> str:
        """A hexadecimal hash of the image's size and pixels: 0.6 ms for 640x480."""
        digest = hashlib.sha256(str(self.image.shape).encode())
        digest.update(self.image.tobytes())
        return digest.hexdigest()


def fitting_size(width: int, height: int, most: int, side: int = 1, least: int = 1) -> tuple[int, int]:
    """A size with sides that are multiples of `side`, of at most `most` and at least `least` pixels, and the aspect
    ratio as far as that allows: as Qwen's `smart_resize`; with `side` 1, small images stay as they are."""
    wide = max(side, round(width / side) * side)
    high = max(side, round(height / side) * side)
    if wide * high > most:
        scale = math.sqrt(width * height / most)
        wide = max(side, math.floor(width / scale / side) * side)
        high = max(side, math.floor(height / scale / side) * side)
    elif wide * high < least:
        scale = math.sqrt(least / (width * height))
        wide = math.ceil(width * scale / side) * side
        high = math.ceil(height * scale / side) * side
    return wide, high


def is_whole_png(path: Path) -> bool:
    """Whether a file begins and ends as a PNG does; after a crash, either may be missing or NUL."""
    with path.open("rb") as file:
        start = file.read(len(_PNG_START))
        file.seek(max(0, path.stat().st_size - len(_PNG_END)))
        return start == _PNG_START and file.read(len(_PNG_END)) == _PNG_END
