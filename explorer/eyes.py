"""The command `python -m explorer.eyes`: compare a checkpoint's notes on single views with the teacher's."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from explorer.notes import FIRST, VIEWS, Note, notes_in, seen_from_first, view_text
from explorer.store import read_shard, shards_in
from roomscout.agent.policies.replies import action_format
from roomscout.models import Backend, ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.engines import make_backend

BATCH = 32
NEAR_M = 1.0
"""A note matches an object of its category within this distance."""


@dataclass(frozen=True)
class NoteAccuracy:
    """How good the notes on many views are."""

    views: int  # how many
    precision: float  # of notes, 0 to 1
    recall: float  # of the teacher's notes, 0 to 1
    place_error_m: float  # the mean of matched notes
    size_error: float  # the mean of matched notes, as a share of the true size


def matched(said: Sequence[Note], true: Sequence[Note]) -> list[tuple[Note, Note]]:
    """Match notes to true notes of the same category, nearest pairs first; each note is used at most once."""
    pairs = sorted(
        ((_distance_m(a, b), i, j)
         for i, a in enumerate(said) for j, b in enumerate(true) if a.category == b.category)
    )  # fmt: skip
    used_said: set[int] = set()
    used_true: set[int] = set()
    matches = []
    for distance, i, j in pairs:
        if distance <= NEAR_M and i not in used_said and j not in used_true:
            used_said.add(i)
            used_true.add(j)
            matches.append((said[i], true[j]))
    return matches


def _distance_m(a: Note, b: Note) -> float:
    return float(np.hypot(a.ahead_m - b.ahead_m, a.left_m - b.left_m))


def single_views(folder: Path, rooms: int) -> Iterator[tuple[Conversation, str]]:
    """Views of the last rooms, each as a conversation's first turn, with the teacher's notes.

    Uses counting questions, where the teacher overlooks nothing.
    """
    for path in shards_in(folder)[-rooms:]:
        for number, episode in enumerate(read_shard(path)):
            if not episode.blind and episode.question_type == "object_counting":
                for turn, (image, reply) in enumerate(zip(episode.images, episode.replies, strict=True)):
                    conversation = Conversation(f"{path.stem} {number} {turn}")
                    conversation.append(Message("system", episode.system))
                    conversation.append(Message.of_views(episode.user[0], image))
                    yield conversation, view_text(FIRST, FIRST, seen_from_first(reply))


def note_accuracy(backend: Backend, views: Sequence[tuple[Conversation, str]]) -> NoteAccuracy:
    """Score the model's notes on the views against the teacher's."""
    said_count = 0
    true_count = 0
    pairs: list[tuple[Note, Note]] = []
    for start in range(0, len(views), BATCH):
        part = views[start : start + BATCH]
        replies = backend.generate([conversation for conversation, _ in part], action_format())
        for (conversation, truth), reply in zip(part, replies, strict=True):
            said = notes_in(reply.text)
            true = notes_in(truth)
            said_count += len(said)
            true_count += len(true)
            pairs += matched(said, true)
            backend.release(conversation)
    offsets = [_distance_m(a, b) for a, b in pairs]
    sizes = [abs(a.size_cm - b.size_cm) / b.size_cm for a, b in pairs]
    return NoteAccuracy(
        views=len(views),
        precision=len(pairs) / max(1, said_count),
        recall=len(pairs) / max(1, true_count),
        place_error_m=float(np.mean(offsets)) if pairs else float("nan"),
        size_error=float(np.mean(sizes)) if pairs else float("nan"),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m explorer.eyes", description=__doc__)
    parser.add_argument("model", help="checkpoint folder")
    parser.add_argument("demos", type=Path, help="folder of demonstrations; the last rooms are used")
    parser.add_argument("--rooms", type=int, default=4, help="number of rooms (%(default)s)")
    options = parser.parse_args(arguments)
    views = list(single_views(options.demos, options.rooms))
    settings = ModelOptions(max_new_tokens=VIEWS.max_new_tokens)
    accuracy = note_accuracy(make_backend(options.model, settings), views)
    sys.stdout.write(
        f"{accuracy.views} views: precision {accuracy.precision:.2f}, recall {accuracy.recall:.2f}, places off by "
        f"{accuracy.place_error_m:.2f} m, sizes by {accuracy.size_error:.0%}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
