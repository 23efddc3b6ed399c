"""Converts conversations to vLLM's format: one placeholder per image; each PNG is sent once."""

import base64
from typing import Any

import numpy as np
import torch

from roomscout.base.shots import Shot
from roomscout.models.conversation import Conversation
from roomscout.models.transformers.encoding import ConversationEncoder, EncodedConversation
from roomscout.models.transformers.families.internvl import INTERNVL
from roomscout.models.transformers.families.qwen import QWEN2_5_VL, QWEN3_VL

COMPARED = (QWEN3_VL, QWEN2_5_VL, INTERNVL)  # families whose replies through vLLM equal those of transformers


class LayoutEncoder(ConversationEncoder):
    """Encodes conversations without pixels: ids and positions depend on views' sizes; each size is processed once."""

    keeps_pixels = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._by_size: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}
        super().__init__(*args, **kwargs)

    def _encode_image(self, pixels: np.ndarray) -> dict[str, torch.Tensor]:
        if pixels.shape not in self._by_size:
            self._by_size[pixels.shape] = super()._encode_image(pixels)
        return self._by_size[pixels.shape]

    def unexpanded(self, conversation: Conversation) -> list[int]:
        """The ids of the chat template's text, in which vLLM finds and expands what stands for images."""
        with self._lock:
            return self._tokenize(self.text_of(conversation))


def prompt_ids(encoded: EncodedConversation, image_id: int) -> list[int]:
    """The ids of a conversation with `image_id` in place of all that stands for an image; vLLM expands it."""
    ids = list[int]()
    for turn in encoded.turns:
        ids += [*turn.ids[: turn.image_start], image_id, *turn.ids[turn.image_end :]]
    return ids


def image_part(shot: Shot, with_pixels: bool) -> dict[str, Any]:
    """An image under its content hash, by which vLLM knows it; without pixels, the server must have it already."""
    url = "data:image/png;base64," + base64.b64encode(shot.png).decode("ascii") if with_pixels else None
    return {"type": "image_url", "url": url, "uuid": shot.sha256}
