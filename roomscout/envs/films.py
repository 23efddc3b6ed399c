"""The frames of videos that questions ask about, instead of scans."""

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np
from PIL import Image

from roomscout.base.shots import VIEW, Shot
from roomscout.data.questions import Question
from roomscout.data.video_frames import (
    FrameSize,
    FramesRecord,
    VideoNotFound,
    frames_folder_of,
    frames_of_folder,
    frames_of_video,
    video_of,
)

FILMS_AHEAD = 2
COLUMNS = 4
THUMBNAIL_PX = 160
"""The width of a frame in the image that a run keeps of it."""


@dataclass(frozen=True, eq=False)
class Film:
    """The frames that are shown of a scene's video, and which they are."""

    record: FramesRecord
    shots: tuple[Shot, ...]

    @property
    def size_bytes(self) -> int:
        """The memory of the frames; those that are shown twice count twice."""
        return sum(shot.image.nbytes for shot in self.shots)

    @cached_property
    def sheet(self) -> Shot:
        """All frames in one small image, in rows from the left: what a run keeps of them, and reports show."""
        height, width, _ = self.shots[0].image.shape
        size = THUMBNAIL_PX, max(1, round(THUMBNAIL_PX * height / width))
        small = [np.asarray(Image.fromarray(shot.image).resize(size)) for shot in self.shots]
        columns = min(COLUMNS, len(small))
        small += [np.full_like(small[0], 255)] * (-len(small) % columns)
        rows = [np.concatenate(small[at : at + columns], axis=1) for at in range(0, len(small), columns)]
        return Shot(VIEW, np.concatenate(rows))


@dataclass(frozen=True)
class FilmSettings:
    """Where frames come from and how many of what size are shown. `root` has videos in files of `form`, or folders of
    images if that is empty."""

    root: Path
    form: str
    frames: int
    size: FrameSize

    def path_of(self, dataset: str, scene: str) -> Path:
        """The video of a scene, or its folder of frames; raises VideoNotFound."""
        return (
            video_of(self.root, self.form, dataset, scene) if self.form else frames_folder_of(self.root, dataset, scene)
        )

    def missing(self, questions: Iterable[Question]) -> dict[tuple[str, str], str]:
        """Why each scene without frames has none, in order of first appearance."""
        reasons = {}
        for scene in dict.fromkeys(question.scene for question in questions):
            try:
                self.path_of(*scene)
            except VideoNotFound as error:
                reasons[scene] = str(error)
        return reasons


class FilmLibrary:
    """Decodes the frames of each scene once for its questions, the next scenes' in the background.

    Keeps at most `cache_bytes` of frames, besides those in use and the newest. Methods may be called from many threads.
    """

    def __init__(self, settings: FilmSettings, cache_bytes: int) -> None:
        self.settings = settings
        self._cache_bytes = cache_bytes
        self._films: OrderedDict[tuple[str, str], Future[Film]] = OrderedDict()
        self._lock = Lock()
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="video-loader")

    def film_of(self, question: Question) -> Film:
        """The frames of the question's scene; raises VideoNotFound or VideoError, for each question about it."""
        return self._film(question.scene).result()

    def load_ahead(self, questions: Iterable[Question]) -> None:
        """Decode the frames of the next scenes in the background; errors are raised on use."""
        for scene in list(dict.fromkeys(question.scene for question in questions))[:FILMS_AHEAD]:
            self._film(scene)

    def scan_file(self, question: Question) -> None:
        """None: no scan is used."""

    def close(self) -> None:
        """Stop decoding ahead; waits for the video that is being decoded."""
        self._loader.shutdown(cancel_futures=True)

    def _film(self, scene: tuple[str, str]) -> "Future[Film]":
        with self._lock:
            if scene not in self._films:
                self._films[scene] = self._loader.submit(copy_context().run, self._load, scene)
            self._films.move_to_end(scene)
            return self._films[scene]

    def _load(self, scene: tuple[str, str]) -> Film:
        settings = self.settings
        path = settings.path_of(*scene)
        read = frames_of_video if settings.form else frames_of_folder
        film = Film(*read(path, settings.frames, settings.size))
        self._make_room(film.size_bytes, scene)
        return film

    def _make_room(self, needed: int, scene: tuple[str, str]) -> None:
        """Forget the scenes that were asked for longest ago until a new one fits."""
        with self._lock:
            kept = {
                name: future.result().size_bytes
                for name, future in self._films.items()
                if name != scene and future.done() and not future.cancelled() and future.exception() is None
            }
            total = needed + sum(kept.values())
            for name, size in kept.items():
                if total <= self._cache_bytes:
                    return
                del self._films[name]
                total -= size
