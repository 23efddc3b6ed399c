"""Demonstrations on disk: one compact file per room, so that training needs no rooms and no renderer."""

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from explorer.episodes import Episode

WEBP_QUALITY = 80
"""About 5 KB per view: loses vertex noise, but nothing that a person would recognize."""


@dataclass(frozen=True, eq=False)
class Transcript:
    """The text of a conversation, and what became of it."""

    question_type: str  # a key of `explorer.reading.FAMILIES`
    ground_truth: str  # empty if the question has none
    answer: str | None  # the teacher's, None if it has not answered
    blind: bool  # whether its teacher saw nothing and guessed
    system: str  # the message of the system
    user: tuple[str, ...]  # the messages of the user, one per turn
    replies: tuple[str, ...]  # one per turn
    stopped: tuple[bool, ...]  # per turn, whether its move was blocked or clipped
    missing: tuple[bool, ...]  # per turn, whether an object of the question was still to be found
    out_of_moves: bool  # whether no move was left at the last turn


@dataclass(frozen=True, eq=False)
class StoredEpisode(Transcript):
    """An `Episode` as stored."""

    views: tuple[bytes, ...]  # its images as WebP files
    shown: np.ndarray  # see `Episode`

    @property
    def images(self) -> list[np.ndarray]:
        """(H, W, 3) uint8 each."""
        return [np.asarray(Image.open(io.BytesIO(view)).convert("RGB")) for view in self.views]


def shard_path(folder: Path, seed: int, index: int) -> Path:
    """The file of one room's demonstrations."""
    return folder / f"room_{seed}_{index:05d}.npz"


def shards_in(folder: Path) -> list[Path]:
    """The files of all rooms below a folder, in the order of the rooms."""
    return sorted(folder.rglob("room_*.npz"), key=lambda path: path.name)


def write_shard(path: Path, episodes: Iterable["Episode"]) -> None:
    """Write one room's demonstrations atomically; shared views are stored once."""
    views: dict[bytes, int] = {}
    categories: dict[int, np.ndarray] = {}
    records = []
    for episode in episodes:
        indices = [views.setdefault(_webp(image), len(views)) for image in episode.images]
        categories |= zip(indices, episode.shown, strict=True)
        record = {name: getattr(episode, name) for name in _TEXTS}
        records.append(record | {"views": indices})
    sizes = np.array([len(view) for view in views], dtype=np.int64)
    content = np.frombuffer(b"".join(views), dtype=np.uint8)
    texts = np.frombuffer(json.dumps(records).encode(), dtype=np.uint8)
    draft = path.with_name("." + path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    by_view = np.stack([categories[index] for index in range(len(views))])
    np.savez_compressed(draft, sizes=sizes, views=content, texts=texts, shown=by_view)
    draft.rename(path)


def read_shard(path: Path) -> list[StoredEpisode]:
    """Read one room's demonstrations."""
    with np.load(path) as arrays:
        content = arrays["views"].tobytes()
        ends = np.cumsum(arrays["sizes"])
        records: list[dict[str, Any]] = json.loads(arrays["texts"].tobytes())
        starts = ends - arrays["sizes"]
        categories = arrays["shown"]
    views = [content[start:end] for start, end in zip(starts, ends, strict=True)]
    if lacking := {*_TEXTS} - {key for record in records for key in record}:
        raise ValueError(f"{path} lacks {', '.join(sorted(lacking))}: an earlier version wrote it; demonstrate again")
    return [_stored(record, views, categories) for record in records]


_TEXTS = tuple(field.name for field in fields(Transcript))


def _stored(record: dict[str, Any], views: list[bytes], categories: np.ndarray) -> StoredEpisode:
    lists = {name: tuple(record[name]) for name in ("user", "replies", "stopped", "missing")}
    texts: dict[str, Any] = {name: record[name] for name in _TEXTS} | lists
    indices = record["views"]
    return StoredEpisode(**texts, views=tuple(views[index] for index in indices), shown=categories[indices])


def _webp(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "WEBP", quality=WEBP_QUALITY)
    return buffer.getvalue()
