"""Frames of videos: which ones are shown, and their pixels."""

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from roomscout.base.extras import importing
from roomscout.base.files import FileRefused, not_fetched, own_folders, require_inside, require_own
from roomscout.base.grouping import grouped
from roomscout.base.pictures import PictureError, opened
from roomscout.base.shots import FRAME, Shot, fitting_size
from roomscout.base.text import on_disk
from roomscout.data.pictures import MOST_BYTES
from roomscout.data.scans import ScanNotFound, require_plain

log = logging.getLogger(__name__)

IMAGE_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".webp", ".bmp"))  # of the frames in a folder of frames
NO_COLOUR = re.compile(r"(?<![a-z])(depth|ir|infrared|mask|label|instance|semantic|normal|confidence)s?(?![a-z])", re.I)
"""In the names of images that are not what a camera saw."""
SERIES_SHOWN = 5
MOST_VIDEO_BYTES = 2**36  # an hour of 4K at 50 Mbit/s has a third
WHOSE = "the folder of videos"
CONTAINERS = "mov,matroska,webm,avi,mpegts,mpeg,asf,flv"  # formats of videos, by FFmpeg's names, none that lists files
HDR = {16: "PQ", 18: "HLG"}  # transfers that nothing here maps to sRGB, by their numbers in ITU-T H.273


class VideoError(Exception):
    """A video is damaged, or has fewer frames than are asked for. The message names the file and the fix."""


class VideoNotFound(ScanNotFound):
    """A scene has no video, or no folder of frames."""

    setting = "videos"


@dataclass(frozen=True)
class FramesRecord:
    """Which frames a model saw of a video, or of a folder of frames."""

    file: str  # or folder
    sha256: str  # of the file's bytes, or of the shown images' names and bytes
    total: int  # how many frames there are
    indices: tuple[int, ...]  # those that were shown, in this order, from 0
    fps: float | None = None  # the average rate; None for a folder

    @property
    def in_words(self) -> str:
        """What was shown, such as "3 of 100 frames of scene0001_00.mp4: 0, 49, 99"."""
        places = ", ".join(map(str, self.indices))
        return f"{len(self.indices)} of {self.total} frames of {Path(self.file).name}: {places}"


Frames = tuple[FramesRecord, tuple[Shot, ...]]  # which they are, and their pixels


@dataclass(frozen=True)
class FrameSize:
    """How large frames are shown: both sides are multiples of `side`, with `least` to `pixels` pixels in all."""

    pixels: int
    side: int = 1
    least: int = 1

    def fitted(self, image: Image.Image) -> np.ndarray:
        """An image of this size, (H, W, 3) uint8 RGB, resized only if it must be."""
        image = image.convert("RGB")
        size = fitting_size(*image.size, self.pixels, self.side, self.least)
        if image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC)
        return np.asarray(image)


def sampled(total: int, frames: int) -> tuple[int, ...]:
    """Which of `total` frames are shown: evenly spaced, the first and the last included, as VSI-Bench's code has it."""
    return tuple(map(int, np.linspace(0, total - 1, frames, dtype=int)))


def frames_path(root: Path, form: str, dataset: str, scene: str) -> Path:
    """A scene's video below a folder, in a file of this form, or its folder of frames if empty; VideoNotFound."""
    require_plain(dataset, scene, VideoNotFound)
    is_video = bool(form)
    form = form or "{dataset}/{scene}"
    path = on_disk(root / form.format(dataset=dataset, scene=scene))
    try:
        if is_video:
            require_own(path, own_folders(root), WHOSE, MOST_VIDEO_BYTES)
        elif not path.is_dir():
            raise FileNotFoundError
        else:
            require_inside(path, own_folders(root), WHOSE)
    except FileNotFoundError:
        paths = form.format(dataset="<dataset>", scene="<scene>")
        raise VideoNotFound(f"there is no {path}: name the folder of {paths}") from None
    except FileRefused as error:
        raise VideoNotFound(f"{path} is {error}: put the {'video' if is_video else 'folder'} itself there") from None
    except OSError as error:
        raise VideoNotFound(f"{path} cannot be read ({error.strerror or error})") from None
    return path


def frames_of_video(path: Path, frames: int, size: FrameSize) -> Frames:
    """Frames of a video, and which they are; raises VideoError. As decord, counts the frames that can be decoded,
    whatever the container says, but warns if it is more; they are shown as players show them, see `_upright`."""
    with _opened(path) as (video, stream):
        total = sum(1 for packet in video.demux(stream) if packet.size)
        rate = stream.average_rate
        seconds = (video.duration or 0) / 1e6
        promised = stream.frames or round(seconds * (rate or 0))
        least = stream.frames or 0.95 * promised - 1  # a duration is only about that of the frames
        if (transfer := HDR.get(stream.codec_context.color_trc)) is not None:
            log.warning("%s is HDR (%s): its frames are too flat; convert it to SDR", path, transfer)
    made, decoded = _decoded(path, _chosen(path, total, frames), size)
    if decoded != total:  # some packets hold no frame
        total = decoded
        made, _ = _decoded(path, _chosen(path, total, frames), size)
    if total < least:
        log.warning(
            "%s is damaged or ends early: frames are chosen among the %d of %d that decode", path, total, promised
        )
    wanted = sampled(total, frames)
    fps = float(rate) if rate else None
    with _reading(path), path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    record = FramesRecord(str(path), sha256, total, wanted, fps)
    return record, tuple(made[place] for place in wanted)


def frames_of_folder(path: Path, frames: int, size: FrameSize, root: Path | None = None) -> Frames:
    """Images of a folder as frames, in natural order (2.jpg before 10.jpg), and which they are; raises VideoError, also
    for links out of `root`, by default `path`."""
    with _reading(path):
        files = [file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES and file.name[0] != "."]
    files = sorted(_colour_series(path, files), key=lambda file: (_natural(file.name), file.name))
    if not files:
        raise VideoError(f"{path} has no frame: put images of {', '.join(sorted(IMAGE_SUFFIXES))} there")
    wanted = _chosen(path, len(files), frames)
    made = {}
    digests = []
    own = own_folders(root or path)
    for place in dict.fromkeys(wanted):
        with _reading(files[place]):
            require_own(files[place], own, WHOSE, MOST_BYTES)
            data = files[place].read_bytes()
            made[place] = Shot(FRAME, size.fitted(opened(data)))
        digests.append((files[place].name, hashlib.sha256(data).hexdigest()))
    sha256 = digests[0][1] if len(digests) == 1 else hashlib.sha256(repr(digests).encode()).hexdigest()
    record = FramesRecord(str(path), sha256, len(files), wanted)
    return record, tuple(made[place] for place in wanted)


def _colour_series(path: Path, files: Sequence[Path]) -> Sequence[Path]:
    """Of several series in a folder, whose names differ in more than a number, the only one in colour; VideoError."""
    by_form = grouped((re.sub(r"\d+", "#", file.name), file) for file in files)
    series = {name: images for name, images in by_form.items() if len(images) > 1}
    if len(series) < 2:
        return files
    colour = [name for name in series if not NO_COLOUR.search(name)]
    if len(colour) != 1:
        named = ", ".join(sorted(series)[:SERIES_SHOWN])
        raise VideoError(f"{path} has several series of images ({named}): leave the frames of one there")
    return series[colour[0]]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, PictureError) as error:
        raise VideoError(f"{path} cannot be read ({error})") from None


def _chosen(path: Path, total: int, frames: int) -> tuple[int, ...]:
    if total < frames:
        raise VideoError(f"{path} has {total} frames, fewer than the {frames} to show")
    return sampled(total, frames)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _decoded(path: Path, wanted: Sequence[int], size: FrameSize) -> tuple[dict[int, Shot], int]:
    """The wanted frames of a video by their places, and how many can be decoded in all; raises VideoError."""
    made = dict[int, Shot]()
    place = 0
    with _opened(path) as (video, stream):
        for packet in video.demux(stream):
            try:
                frames = packet.decode()
            except ValueError:  # FFmpeg's for a cut or broken frame
                continue
            for frame in frames:
                if place in wanted:
                    made[place] = Shot(FRAME, size.fitted(_upright(frame, stream.sample_aspect_ratio or 1)))
                place += 1
    return made, place


def _upright(frame: Any, pixel: float) -> Image.Image:
    """A frame with square pixels, where its own are `pixel` times as wide as high, turned and mirrored by the quarter
    turns of its display matrix (a b u, c d v, x y w in ISO/IEC 14496-12: x' = a x + c y, y' = b x + d y)."""
    from av.sidedata.sidedata import Type

    image = frame.to_image()
    if pixel != 1:
        image = image.resize((max(1, round(image.width * pixel)), image.height), Image.Resampling.BICUBIC)
    data = frame.side_data.get(Type.DISPLAYMATRIX)
    if data is None:
        return image
    a, b, _, c, d, *_ = np.frombuffer(bytes(data), dtype=np.int32).tolist()
    if abs(b) > abs(a):
        image = image.transpose(Image.Transpose.TRANSPOSE)
        a = c
        d = b
    image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if a < 0 else image
    return image.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if d < 0 else image


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """A video and its largest stream; raises VideoError, also for what FFmpeg raises inside this block."""
    with importing("av", "reading videos", VideoError):
        import av
    try:
        with path.open("rb") as file:
            if pointer := not_fetched(file.read(1024)):
                raise VideoError(f"{path} {pointer}")
        with av.open(str(path), options={"format_whitelist": CONTAINERS}) as video:
            covers = av.stream.Disposition.attached_pic
            streams = [stream for stream in video.streams.video if not stream.disposition & covers]
            if not streams:
                raise VideoError(f"{path} has no video stream: it is damaged, or another kind of file")
            yield video, max(streams, key=lambda stream: stream.width * stream.height)
    except (av.FFmpegError, OSError) as error:
        why = error.strerror or error
        raise VideoError(f"{path} cannot be read as a video ({why}): it is damaged; fetch it again") from None
