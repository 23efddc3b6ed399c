"""The frames of videos that questions ask about, instead of scans."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
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
from roomscout.data.scans import without
from roomscout.data.video_frames import (
    FrameSize,
    FramesRecord,
    VideoError,
    frames_of_folder,
    frames_of_video,
    frames_path,
)

FILMS_AHEAD = 2
COLUMNS = 4
THUMBNAIL_PX = 160  # the width of a frame in the image that a run keeps of it


@dataclass(frozen=True, eq=False)
class Film:
    """The frames that are shown of a scene's video, and which they are."""

    record: FramesRecord
    shots: tuple[Shot, ...]

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
    """Where frames come from and how many of what size are shown; `root` and `form` are those of `frames_path`."""

    root: Path
    form: str
    frames: int
    size: FrameSize

    def missing(self, questions: Iterable[Question]) -> dict[tuple[str, str], str]:
        """Why each scene without frames has none, in order of first appearance."""
        return without(questions, lambda question: frames_path(self.root, self.form, *question.scene))


class FilmLibrary:
    """Decodes the frames of each scene once, the next ones' in the background; thread-safe. Keeps what fits into
    `cache_bytes`, and what is in use or ahead. A scene needs the hash that is `recorded` for it, if any."""

    def __init__(self, settings: FilmSettings, cache_bytes: int, recorded: Mapping[tuple[str, str], str]) -> None:
        self.settings = settings
        self._recorded = recorded
        self._most = max(1 + FILMS_AHEAD, cache_bytes // (3 * settings.size.pixels * settings.frames))
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
                if len(self._films) > self._most:
                    self._films.popitem(last=False)
            self._films.move_to_end(scene)
            return self._films[scene]

    def _load(self, scene: tuple[str, str]) -> Film:
        settings = self.settings
        path = frames_path(settings.root, settings.form, *scene)
        if settings.form:
            film = Film(*frames_of_video(path, settings.frames, settings.size))
        else:
            film = Film(*frames_of_folder(path, settings.frames, settings.size, settings.root))
        if film.record.sha256 != self._recorded.get(scene, film.record.sha256):
            raise VideoError(f"{film.record.file} is not what the run began with: restore it, or start a new run")
        return film
