"""The Family record: everything the engine needs to know about a model family."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from roomscout.models.conversation import Clip

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, ProcessorMixin

ImageInputs = dict[str, "torch.Tensor"]  # a processor's output for one image, by the names of the model's inputs
# In all families:
LANGUAGE_MODEL = "model.language_model"
HEAD = "lm_head"  # the layer that computes logits
PRESERVE_THOUGHTS = {"preserve_thinking": True}  # chat templates that have it then leave thoughts in earlier replies
EncodedVideo = tuple[list[int], "torch.Tensor", ImageInputs]  # ids of a text with a video, their positions, inputs


class Views(ABC):
    """The view sizes that a family accepts, in pixels (any, unless it has rules), and the tokens of a view."""

    def why_not(self, width: int, height: int) -> str | None:
        """Why this size is not accepted, to complete "a view of ... does not suit ...: "; None if it is accepted."""
        return None

    @abstractmethod
    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """Tokens of a view of this size in at most `tiles` tiles."""


@dataclass(frozen=True)
class Squares(Views):
    """Views that enter without resizing, a token for each square of `side` pixels: within the inclusive range `squares`
    and up to this aspect ratio, since the processor would resize any other."""

    side: int
    squares: tuple[int, int]
    max_aspect_ratio: int

    def why_not(self, width: int, height: int) -> str | None:
        """The broken rule and the nearest accepted size; None for an accepted size."""
        rule = self._broken_rule(width, height)
        if rule is None:
            return None
        nearest = self._nearest(width, height)
        return f"{rule}; the nearest size is {nearest[0]}x{nearest[1]}" if nearest else rule

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """One token for each square."""
        return (width // self.side) * (height // self.side)

    def _broken_rule(self, width: int, height: int) -> str | None:
        (least, most) = self.squares
        side = self.side
        if min(width, height) < side or width % side or height % side:
            return f"width and height must be multiples of {side}"
        if max(width, height) > self.max_aspect_ratio * min(width, height):
            return f"the aspect ratio may be at most {self.max_aspect_ratio}:1"
        if not least <= width * height // side**2 <= most:
            return f"a view must have {least} to {most} squares of {side}x{side} pixels"
        return None

    def _nearest(self, width: int, height: int) -> tuple[int, int] | None:
        """The accepted size closest to this one, scaled into the range of squares if it is outside."""
        shortest = max(self.side, math.ceil(max(width, height) / self.max_aspect_ratio))
        width = max(width, shortest)
        height = max(height, shortest)
        least, most = self.squares
        scale = math.sqrt(min(max(width * height, least * self.side**2), most * self.side**2) / (width * height))
        width_wanted = width * scale
        height_wanted = height * scale

        def around(side: float) -> set[int]:
            return {math.floor(side / self.side) * self.side, math.ceil(side / self.side) * self.side}

        sizes = product(around(width_wanted), around(height_wanted))
        fitting = (size for size in sizes if self._broken_rule(*size) is None)
        return min(fitting, key=lambda size: abs(size[0] - width_wanted) + abs(size[1] - height_wanted), default=None)


def _missing(*args: object) -> Any:
    raise NotImplementedError("a family has these functions, unless its checkpoint's processor encodes")


@dataclass(frozen=True)
class Family:
    """A model family. `config` arguments are a checkpoint's configuration.

    Image inputs are concatenated over the rows of a batch, with any number in each row."""

    name: str  # as messages call it
    example: str  # the hub id of a checkpoint
    model_types: tuple[str, ...]  # those of its checkpoints' configurations
    views: Views  # the accepted sizes
    process: "Callable[[ProcessorMixin, Image.Image, int, torch.device | None], ImageInputs]" = _missing
    """`process(processor, image, tiles, device)`: the model's inputs for one image in at most `tiles` tiles."""
    placeholders: "Callable[[ProcessorMixin, PreTrainedConfig, ImageInputs], list[int]]" = _missing
    """`placeholders(processor, config, inputs)`: the ids in place of the template's single `config.image_token_id`."""
    positions: "Callable[[PreTrainedConfig, Sequence[int], ImageInputs], torch.Tensor]" = _missing
    """`positions(config, ids, inputs)`: the positions (axes, len(ids)) of ids with one image, starting at 0: 3 axes
    (time, height, width) for M-RoPE, 1 for ordinary positions."""
    by_processor: bool = False  # the checkpoint's own processor encodes in place of these functions: see `last_resort`
    default_view: tuple[int, int] = (640, 480)  # an accepted size, in pixels
    tiled: bool = False  # can split a view into several tiles
    keeps_sizes: bool = False  # the processor resizes no accepted view
    video: "Callable[[ProcessorMixin, PreTrainedConfig, str, Sequence[np.ndarray], Clip], EncodedVideo] | None" = None
    """`video(processor, config, text, frames, clip)`: a text with a video, as the family's processor encodes it; None
    for a family that sees videos as images."""
    chat_options: Mapping[str, Any] = field(default_factory=dict)  # passed to the chat template
    reply_opening: str = ""  # what the template puts before the next reply but not before earlier ones

    def why_not(self, width: int, height: int) -> str | None:
        """A sentence with the rule that views of this size in pixels break, and the nearest size; None if accepted."""
        reason = self.views.why_not(width, height)
        return None if reason is None else f"a view of {width}x{height} pixels does not suit {self.name}: {reason}"

    def sees_videos(self, processor: "ProcessorMixin") -> bool:
        """Whether a message may show a video: the family has such an input, and so has the chat template."""
        return self.video is not None and processor.video_token in (processor.chat_template or "")


def plain_positions(config: "PreTrainedConfig", ids: Sequence[int], inputs: ImageInputs) -> "torch.Tensor":
    """Positions (1, len(ids)) that count text and image tokens alike."""
    import torch

    return torch.arange(len(ids))[None]
