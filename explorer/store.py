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
    """The text of a conversation: the system message, user messages and replies.

    Per turn, `stopped` says whether its move was blocked or clipped, and `missing` whether an object of the question
    was still to be found. `out_of_moves`: no move was left at the last turn.
    """

    question_type: str
    ground_truth: str
    answer: str | None
    blind: bool
    system: str
    user: tuple[str, ...]
    replies: tuple[str, ...]
    stopped: tuple[bool, ...]
    missing: tuple[bool, ...]
    out_of_moves: bool


@dataclass(frozen=True, eq=False)
class StoredEpisode(Transcript):
    """An `Episode` as stored: `views` are its images as WebP files."""

    views: tuple[bytes, ...]
    shown: np.ndarray

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
    shown: dict[int, np.ndarray] = {}
    records = []
    for episode in episodes:
        indices = [views.setdefault(_webp(image), len(views)) for image in episode.images]
        shown |= zip(indices, episode.shown, strict=True)
        record = {name: getattr(episode, name) for name in _TEXTS}
        records.append(record | {"views": indices})
    sizes = np.array([len(view) for view in views], dtype=np.int64)
    content = np.frombuffer(b"".join(views), dtype=np.uint8)
    texts = np.frombuffer(json.dumps(records).encode(), dtype=np.uint8)
    draft = path.with_name("." + path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        draft, sizes=sizes, views=content, texts=texts, shown=np.stack([shown[index] for index in range(len(views))])
    )
    draft.rename(path)


def read_shard(path: Path) -> list[StoredEpisode]:
    """Read one room's demonstrations."""
    with np.load(path) as arrays:
        content = arrays["views"].tobytes()
        ends = np.cumsum(arrays["sizes"])
        records: list[dict[str, Any]] = json.loads(arrays["texts"].tobytes())
        starts = ends - arrays["sizes"]
        shown = arrays["shown"]
    views = [content[start:end] for start, end in zip(starts, ends, strict=True)]
    if lacking := {*_TEXTS} - {key for record in records for key in record}:
        raise ValueError(f"{path} lacks {', '.join(sorted(lacking))}: an earlier version wrote it; demonstrate again")
    return [_stored(record, views, shown) for record in records]


_TEXTS = tuple(field.name for field in fields(Transcript))


def _stored(record: dict[str, Any], views: list[bytes], shown: np.ndarray) -> StoredEpisode:
    lists = {name: tuple(record[name]) for name in ("user", "replies", "stopped", "missing")}
    texts: dict[str, Any] = {name: record[name] for name in _TEXTS} | lists
    indices = record["views"]
    return StoredEpisode(**texts, views=tuple(views[each] for each in indices), shown=shown[indices])


def _webp(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "WEBP", quality=WEBP_QUALITY)
    return buffer.getvalue()
