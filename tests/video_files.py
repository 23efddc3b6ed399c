"""Videos for tests: frame i is one shade of grey, which grows with i, below a mark in the upper left corner."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

STEP = 5
"""How much lighter each frame is than the one before."""


def write_video(
    path: Path,
    frames: int,
    size: tuple[int, int] = (64, 48),
    b_frames: int = 0,
    variable_rate: bool = False,
    rotation: int = 0,
    transfer: int = 2,
    pixel: Fraction = Fraction(1),
    **options: str,
) -> Path:
    """An H.264 video at 10 frames a second; `options` are the container's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    with av.open(str(path), "w", options=options) as out:
        stream: Any = out.add_stream("libx264", rate=10, options={"crf": "4"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.max_b_frames = b_frames
        stream.codec_context.color_trc, stream.codec_context.sample_aspect_ratio = transfer, pixel
        stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        time_ms = 0
        for number in range(frames):
            image = np.full((height, width, 3), STEP * number, np.uint8)
            image[: height // 3, : width // 3] = (255, 0, 0)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            time_ms += 37 if variable_rate and number % 3 else 100
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    if rotation:
        _rotate(path, rotation)
    return path


def shade(image: np.ndarray) -> int:
    """Which frame an image shows, by the shade of its lower right corner."""
    return round(float(image[-1, -1].mean()) / STEP)


def _rotate(path: Path, degrees: int) -> None:
    """Write the display matrix of a quarter turn clockwise into an MP4 file: the last one, which is the track's."""
    assert degrees == 90
    plain = b"".join(
        Fraction(each).numerator.to_bytes(4, "big") for each in (0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 1 << 30)
    )
    turned = b"".join(each.to_bytes(4, "big", signed=True) for each in (0, 0x10000, 0, -0x10000, 0, 0, 0, 0, 1 << 30))
    content = path.read_bytes()
    at = content.rindex(plain)
    path.write_bytes(content[:at] + turned + content[at + len(turned) :])
