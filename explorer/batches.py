"""Converts conversations to training rows: token ids exactly as in evaluation, with loss masks and weights."""

import io
import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import torch
from PIL import Image

from explorer.notes import FIRST, PLACE_WORD, Note, seen_from_first, view_text
from explorer.practice import make_counting, make_practice, make_second_look, read_off
from explorer.store import StoredEpisode
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.rooms.furniture import CATEGORIES
from roomscout.rooms.questions import COUNTING

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin, Qwen3VLConfig

IGNORED = -100
"""Label of tokens without loss."""
NOTHING_SHOWN = np.zeros((0, 0, 0), dtype=np.uint8)
THOUGHT_WEIGHT = 4.0
"""Loss weight of reasoning tokens; note tokens have weight 1 but are several times as many."""
CHOICE = re.compile(r"(?:: )?[A-D]\.?| Turn .+")
CHOICE_WEIGHT = 8.0
"""Option letters and turns, at most one token in a hundred, and their additional loss weight."""
WALK_LINE = 2
"""Index of the reply line that announces a walk."""
GAP_WORD = re.compile(r" \d+\.\d m;")
NEXT_OPTION_AT = 2
"""Offset in tokens from a gap to the next option; in between are the letters of the nearest so far and of that option.
"""
BRIGHTNESS, TINT = 0.15, 0.06
"""Maximum relative change of brightness and of single colour channels in augmentation."""


@dataclass(frozen=True, eq=False)
class Row:
    """One conversation as a training example."""

    ids: np.ndarray  # (L,)
    positions: np.ndarray  # (3, L) for M-RoPE
    spoken: np.ndarray  # (L,) bool: the ids to learn, which are replies, each with its end token
    weights: np.ndarray  # (L,) of the loss
    views: tuple[bytes, ...]  # its images as encoded files, in order
    shown: np.ndarray  # (views, H / 16, W / 16): the categories in the patches of its images
    answer_at: int = -1  # the index of the answer's first id, -1 if there is none
    mirrored: bool = False  # whether its views are flipped horizontally


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of rows, padded on the right."""

    ids: torch.Tensor  # (rows, columns)
    positions: torch.Tensor  # (3, rows, columns)
    labels: torch.Tensor  # (rows, columns), IGNORED for tokens that are not learned
    weights: torch.Tensor  # (rows, columns) of the loss
    images: torch.Tensor  # (N, H, W, 3) uint8, of all rows
    shown: torch.Tensor  # (N, H / 16, W / 16) uint8: the categories in the patches of the images
    answers: torch.Tensor  # (rows,): the columns of the answers, -1 for none

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        return Batch(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))

    def inputs(self, config: "Qwen3VLConfig") -> dict[str, torch.Tensor]:
        """The arguments of the model's forward call. Rows are padded on the right, so no attention mask is needed."""
        words = {"input_ids": self.ids, "position_ids": self.positions}
        if not len(self.images):
            return words
        patch = config.vision_config.patch_size
        merge = config.vision_config.spatial_merge_size
        count, height, width, _ = self.images.shape
        return words | {
            "pixel_values": patches(self.images, patch, merge),
            "image_grid_thw": torch.tensor([[1, height // patch, width // patch]] * count, device=self.ids.device),
            "mm_token_type_ids": (self.ids == config.image_token_id).int(),
        }


class RowMaker:
    """Converts stored conversations to rows with the encoder used in evaluation."""

    def __init__(self, model: "PreTrainedModel", processor: "ProcessorMixin") -> None:
        self._tokenizer = processor.tokenizer
        self._image_id = model.config.image_token_id
        words = self._tokenizer.batch_decode([[id] for id in range(len(self._tokenizer))])
        self._place_ids = [id for id, word in enumerate(words) if PLACE_WORD.fullmatch(word)]
        self._category_ids = [id for id, word in enumerate(words) if word.strip() in CATEGORIES]
        self._gap_ids = [id for id, word in enumerate(words) if GAP_WORD.fullmatch(word)]
        self._choice_ids = [id for id, word in enumerate(words) if CHOICE.fullmatch(word)]
        self._line_end = words.index("\n")
        self._empty_turn: tuple[list[list[int]], np.ndarray] | None = None
        sizes_only = copy(processor)
        sizes_only.image_processor = _SizesOnly(int(processor.image_processor.patch_size))
        self._encoder = ConversationEncoder(sizes_only, model.config)

    def episode(self, stored: StoredEpisode) -> Row:
        """All turns. Learns the teacher's replies, except the announcement and action of a blocked walk."""
        said = [self._ids(reply) for reply in stored.replies]
        turns, positions = self._encoded(stored.system, stored.user, stored.replies, said, stored.views[0])
        row = self._make_row(turns, positions, said, stored.views, stored.shown)
        index = np.arange(len(row.ids))
        learned = np.ones(len(row.ids), dtype=bool)
        for turn, stopped in enumerate(stored.stopped[:-1]):
            if stopped:
                reply_at = sum(map(len, turns[: turn + 1]))
                walk = [at for at, id in enumerate(said[turn]) if id == self._line_end][WALK_LINE - 1]
                learned &= (index <= reply_at + walk) | (index >= reply_at + len(said[turn]))
        return replace(row, spoken=row.spoken & learned)

    def view(self, stored: StoredEpisode, turn: int, mirrored: bool = False) -> Row:
        """A single view without preceding text, noted as if it were the first view, followed by facts read off these
        notes. The objects in the facts are drawn at random, so their names are not learned."""
        notes = _noted(stored, turn, mirrored)
        text = view_text(FIRST, FIRST, notes)
        if notes:
            text += "\n" + read_off(np.random.default_rng(crc32(text.encode())), notes)
        row = self._single_view(stored, turn, mirrored, "", text)
        random = self._thoughts(row.ids, row.spoken) & np.isin(row.ids, self._category_ids)
        return replace(row, spoken=row.spoken & ~random)

    def second_look(self, stored: StoredEpisode, turn: int, mirrored: bool = False) -> Row:
        """A single view as if from a second position, after a reply that states what is still missing."""
        notes = _noted(stored, turn, mirrored)
        rng = np.random.default_rng([turn, crc32("".join((*stored.user, *(note.text for note in notes))).encode())])
        before, text = make_second_look(rng, notes)
        return self._single_view(stored, turn, mirrored, f"<|im_start|>assistant\n{before}<|im_end|>\n", text)

    def drill(self, stored: StoredEpisode) -> Row:
        """A conversation without views: the question, all notes in one reply, and the reasoning to the answer.

        Only the places in the notes are learned; the rest cannot be known without the views.
        """
        turns, _ = self._encoded(stored.system, stored.user[:1], stored.replies[:1], [[]], stored.views[0])
        ids = [id for id in turns[0] if id != self._image_id]
        *earlier, last = stored.replies
        notes, *thought = last.split("\n")
        notes = " ".join([*(reply.partition("\n")[0] for reply in earlier), notes])
        return self._text_only(ids, notes, "\n".join(thought))

    def counting(self, rng: np.random.Generator) -> Row:
        """A conversation without views that counts over synthetic notes. Learns the reasoning, not the notes."""
        name, turns = make_counting(rng)
        ids = self._ids(f"<|im_start|>user\n{COUNTING.format(c=name)}")
        spoken = [False] * len(ids)
        for turn, (notes, thought) in enumerate(turns):
            start = "<|im_end|>\n<|im_start|>user\n" if turn else ""
            for text, learned in ((f"{start}<|im_end|>\n<|im_start|>assistant\n{notes}\n", False), (thought, True)):
                more = self._ids(text)
                ids += more
                spoken += [learned] * len(more)
        return Row(
            np.array(ids, dtype=np.int32),
            np.tile(np.arange(len(ids), dtype=np.int32), (3, 1)),
            np.array(spoken),
            np.ones(len(ids), dtype=np.float32),
            (),
            NOTHING_SHOWN,
        )

    def practice(self, rng: np.random.Generator) -> Row:
        """Synthetic notes and many lines of reasoning about them.

        The objects are drawn at random, so their names are not learned, except an option that follows a gap.
        """
        practice = make_practice(rng)
        before = self._ids(f"<|im_start|>user\n{practice.options}<|im_end|>\n<|im_start|>assistant\n")
        row = self._text_only(before, practice.notes, practice.thoughts)
        random = np.isin(row.ids, self._category_ids)
        gaps = np.flatnonzero(np.isin(row.ids, self._gap_ids))
        random[(gaps + NEXT_OPTION_AT).clip(max=len(random) - 1)] = False
        return replace(row, spoken=row.spoken & ~random, answer_at=-1)

    def _single_view(self, stored: StoredEpisode, turn: int, mirrored: bool, before: str, text: str) -> Row:
        """A single view after the text `before`, and the reply `text` to it."""
        if self._empty_turn is None:
            self._empty_turn = self._encoded("", [""], [""], [[]], stored.views[0])
        (view_ids,), positions = self._empty_turn
        ids = self._ids(before)
        positions = np.concatenate([np.broadcast_to(np.arange(len(ids)), (3, len(ids))), len(ids) + positions], axis=1)
        views = stored.views[turn : turn + 1]
        row = self._make_row([ids + view_ids], positions, [self._ids(text)], views, stored.shown[turn : turn + 1])
        return replace(row, shown=row.shown[..., ::-1], mirrored=True) if mirrored else row

    def _text_only(self, before: list[int], notes: str, thought: str) -> Row:
        """A reply without a view. Learns the places in the notes and all of the reasoning."""
        positions = np.broadcast_to(np.arange(len(before)), (3, len(before)))
        row = self._make_row([before], positions, [self._ids(f"{notes}\n{thought}")], (), NOTHING_SHOWN)
        thought_at = len(before) + len(self._ids(notes))
        learned = np.isin(row.ids, self._place_ids) | (np.arange(len(row.ids)) >= thought_at)
        return replace(row, spoken=row.spoken & learned)

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encoded(
        self, system: str, user: Sequence[str], replies: Sequence[str], said: Sequence[list[int]], view: bytes
    ) -> tuple[list[list[int]], np.ndarray]:
        """The ids of each turn, and the positions of all ids."""
        width, height = Image.open(io.BytesIO(view)).size
        image = np.zeros((height, width, 3), dtype=np.uint8)
        conversation = Conversation("row")
        conversation.append(Message("system", system))
        for turn, text in enumerate(user):
            if turn:
                conversation.append(Message("assistant", replies[turn - 1], tokens=tuple(said[turn - 1])))
            conversation.append(Message.of_views(text, image))
        encoded = self._encoder.encode(conversation)
        self._encoder.release(conversation.key)
        return [turn.ids for turn in encoded.turns], encoded.positions.numpy()

    def _make_row(
        self,
        turns: Sequence[list[int]],
        positions: np.ndarray,
        said: Sequence[list[int]],
        views: tuple[bytes, ...],
        shown: np.ndarray,
    ) -> Row:
        """Concatenate all turns and the last reply. A turn's ids begin with the previous reply and its end token."""
        ends = [0, *[len(reply) + 1 for reply in said[:-1]]]
        spoken = np.concatenate([np.arange(len(ids)) < end for ids, end in zip(turns, ends, strict=True)])
        last = [*said[-1], self._tokenizer.eos_token_id]
        ids = np.concatenate([*turns, last])
        after = positions.max() + 1 + np.arange(len(last))
        positions = np.concatenate([positions, np.broadcast_to(after, (3, len(last)))], axis=1)
        spoken = np.concatenate([spoken, np.ones(len(last), dtype=bool)])
        answer = self._answer_place(ids, len(last))
        return Row(
            ids.astype(np.int32), positions.astype(np.int32), spoken, self._weights(ids, spoken), views, shown, answer
        )

    def _weights(self, ids: np.ndarray, spoken: np.ndarray) -> np.ndarray:
        """Loss weights, (L,) float32."""
        thoughts = np.where(self._thoughts(ids, spoken), THOUGHT_WEIGHT, 1.0)
        return (thoughts * np.where(np.isin(ids, self._choice_ids), CHOICE_WEIGHT, 1.0)).astype(np.float32)

    def _thoughts(self, ids: np.ndarray, spoken: np.ndarray) -> np.ndarray:
        """(L,) bool: whether each id comes after the first line of a reply."""
        thoughts = np.zeros(len(ids), dtype=bool)
        starts = np.flatnonzero(np.diff(spoken.astype(int), prepend=0, append=0))
        for start, end in zip(starts[::2], starts[1::2], strict=True):
            line_ends = np.flatnonzero(ids[start:end] == self._line_end)
            if len(line_ends):
                thoughts[start + line_ends[0] + 1 : end] = True
        return thoughts

    def _answer_place(self, ids: np.ndarray, last: int) -> int:
        """The index of the answer: the id after its opening quote, or -1."""
        for place in range(len(ids) - last, len(ids) - 1):
            if self._tokenizer.convert_ids_to_tokens(int(ids[place])).endswith('"answer":Ġ"'):
                return place + 1
        return -1


def _noted(stored: StoredEpisode, turn: int, mirrored: bool) -> list[Note]:
    """The teacher's notes on a view as if it were the first; mirrored like the view."""
    notes = seen_from_first(stored.replies[turn])
    return [note.mirrored for note in reversed(notes)] if mirrored else notes


class _SizesOnly:
    """Replaces the image processor, because ids depend only on image sizes."""

    def __init__(self, patch_size: int) -> None:
        self.patch_size = patch_size

    def __call__(self, images: Sequence[Image.Image], **_: object) -> dict[str, torch.Tensor]:
        width, height = images[0].size
        grid = torch.tensor([[1, height // self.patch_size, width // self.patch_size]])
        return {"image_grid_thw": grid, "pixel_values": torch.empty(0)}


def collate(rows: Sequence[Row], pad_id: int) -> Batch:
    """Stack rows, padded on the right, where causal attention hides the padding from the row."""
    columns = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), columns), pad_id)
    positions = torch.zeros((3, len(rows), columns), dtype=torch.long)
    labels = torch.full((len(rows), columns), IGNORED)
    weights = torch.ones((len(rows), columns))
    for number, row in enumerate(rows):
        length = len(row.ids)
        ids[number, :length] = torch.from_numpy(row.ids)
        positions[:, number, :length] = torch.from_numpy(row.positions)
        labels[number, :length] = torch.from_numpy(np.where(row.spoken, row.ids, IGNORED))
        weights[number, :length] = torch.from_numpy(row.weights)
    views = [_pixels(view, row.mirrored) for row in rows for view in row.views]
    images = np.stack(views) if views else np.empty((0, 0, 0, 3), dtype=np.uint8)
    categories = torch.from_numpy(np.concatenate([row.shown for row in rows]))
    answers = torch.tensor([row.answer_at for row in rows])
    return Batch(ids, positions, labels, weights, torch.from_numpy(images), categories, answers)


def _pixels(view: bytes, mirrored: bool) -> np.ndarray:
    pixels = np.asarray(Image.open(io.BytesIO(view)).convert("RGB"))
    return pixels[:, ::-1] if mirrored else pixels


def jittered(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Augment images (N, H, W, 3) uint8 with random brightness and tint."""
    light = 1 + BRIGHTNESS * (2 * torch.rand(len(images), 1, 1, 1, generator=generator) - 1)
    tint = 1 + TINT * (2 * torch.rand(len(images), 1, 1, 3, generator=generator) - 1)
    return (images * (light * tint)).clamp_(0, 255).to(torch.uint8)


def patches(images: torch.Tensor, patch_size: int, merge_size: int) -> torch.Tensor:
    """(N * patches, 3 * 2 * patch_size²) float32 from images (N, H, W, 3) uint8, in the layout of Qwen's image
    processor: scaled to -1..1, duplicated along time, patches of a merged square adjacent."""
    count, height, width, _ = images.shape
    rows = height // patch_size // merge_size
    columns = width // patch_size // merge_size
    scaled = images.float() / 127.5 - 1.0
    grid = scaled.reshape(count, rows, merge_size, patch_size, columns, merge_size, patch_size, 3)
    ordered = grid.permute(0, 1, 4, 2, 5, 7, 3, 6).unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)
    return ordered.reshape(count * rows * columns * merge_size**2, -1)
