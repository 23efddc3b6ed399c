"""What the engine needs to know about a model family: one record for each."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, ProcessorMixin

ImageInputs = Mapping[str, "torch.Tensor"]
"""What a processor returns for one image, by the names of the model's inputs."""


class Views(Protocol):
    """Which sizes of views a family takes, in pixels, and how many tokens a view becomes."""

    def why_not(self, width: int, height: int) -> str | None:
        """What a view of this size lacks, to follow "a view of ... does not suit ...: "; None for a size that fits."""
        ...

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """Tokens of a view of this size in at most `tiles` tiles."""
        ...


@dataclass(frozen=True)
class Squares:
    """Views that enter the model as they are: each square of `side` pixels becomes one token.

    A view has between the two numbers of `squares`, and is at most `longest_to_shortest` times as long as wide. The
    processor would resize any other view.
    """

    side: int
    squares: tuple[int, int]
    longest_to_shortest: int

    def why_not(self, width: int, height: int) -> str | None:
        """The rule and the nearest sizes that fit; None for a size that fits."""
        if self._fits(width, height):
            return None
        (least, most), side = self.squares, self.side
        nearest = " or ".join(f"{x}x{y}" for x, y in self._nearest(width, height))
        return (
            f"width and height must be multiples of {side}, with {least} to {most} squares of {side}x{side} in all "
            f"and sides of at most {self.longest_to_shortest}:1" + (f"; the nearest is {nearest}" if nearest else "")
        )

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """One token for each square."""
        return (width // self.side) * (height // self.side)

    def _fits(self, width: int, height: int) -> bool:
        if min(width, height) < self.side or width % self.side or height % self.side:
            return False
        least, most = self.squares
        stretched = max(width, height) > self.longest_to_shortest * min(width, height)
        return least <= width * height // self.side**2 <= most and not stretched

    def _nearest(self, width: int, height: int) -> list[tuple[int, int]]:
        """The two sizes that fit and differ least from this one, or from its enlarged or reduced shape."""
        shortest = max(self.side, math.ceil(max(width, height) / self.longest_to_shortest))
        width, height = max(width, shortest), max(height, shortest)
        least, most = self.squares
        scale = math.sqrt(min(max(width * height, least * self.side**2), most * self.side**2) / (width * height))
        width_wanted, height_wanted = width * scale, height * scale

        def around(side: float) -> set[int]:
            return {math.floor(side / self.side) * self.side, math.ceil(side / self.side) * self.side}

        fitting = [size for size in product(around(width_wanted), around(height_wanted)) if self._fits(*size)]
        return sorted(fitting, key=lambda size: abs(size[0] - width_wanted) + abs(size[1] - height_wanted))[:2]


def no_state_bytes(config: "PreTrainedConfig") -> int:
    """For families whose layers all keep keys and values. A named function, because families are pickled."""
    return 0


@dataclass(frozen=True)
class Family:
    """One model family. `config` arguments are a checkpoint's configuration.

    Encoding:

    - `chat_options` are passed to the chat template. `reply_opening` is what the template puts in front of the next
      reply but leaves out in front of earlier ones.
    - `process(processor, image, tiles)` returns the model's inputs for one image in at most `tiles` tiles. With
      `qwen_vl_utils` the image goes through that library first.
    - `placeholders(processor, config, inputs)` are the token ids that replace the one `config.image_token_id` of the
      chat template.
    - `positions(config, ids, inputs)` are the positions (position_axes, len(ids)) of ids with one image, counted from
      0: 3 axes (time, height, width) for M-RoPE, 1 for ordinary positions.

    Batches: rows of different lengths are padded on the left, and each of the model's inputs for images is
    concatenated over all images of the batch, so that rows may have different numbers of images and tiles.

    Reuse: `can_keep(config)` says whether keys and values can be reused across turns. Without it every turn computes
    the whole conversation. `state_bytes(config)` is what layers without keys and values hold for one conversation.

    Views: `views` says which sizes the family takes, `default_view` is a size that suits it. A token of a view covers
    `patches_per_token` patches of the image encoder. `tiled` families can cut a view into several tiles.

    Parts of the model, as paths for `get_submodule`: `language_model`, the `head` that computes logits, the
    `image_encoder` and its `image_layers`. `mergers` compute once per token instead of once per patch. `lookups` are
    modules or parameters that are only read. `text_config` is the name of the language model's part of the
    configuration.
    """

    name: str
    example: str
    model_types: tuple[str, ...]
    process: "Callable[[ProcessorMixin, Image.Image, int], dict[str, torch.Tensor]]"
    placeholders: "Callable[[ProcessorMixin, PreTrainedConfig, ImageInputs], list[int]]"
    position_axes: int
    positions: "Callable[[PreTrainedConfig, Sequence[int], ImageInputs], torch.Tensor]"
    views: Views
    patches_per_token: int
    can_keep: "Callable[[PreTrainedConfig], bool]"
    language_model: str
    image_encoder: str
    image_layers: str
    mergers: tuple[str, ...]
    lookups: tuple[str, ...]
    head: str = "lm_head"
    text_config: str = "text_config"
    default_view: tuple[int, int] = (640, 480)
    tiled: bool = False
    qwen_vl_utils: bool = False
    state_bytes: "Callable[[PreTrainedConfig], int]" = no_state_bytes
    chat_options: Mapping[str, Any] = field(default_factory=dict)
    reply_opening: str = ""

    def why_not(self, width: int, height: int) -> str | None:
        """Why the family cannot take views of this size, in pixels, as one sentence with its multiple and the nearest
        sizes that it takes; None where it can."""
        reason = self.views.why_not(width, height)
        return None if reason is None else f"a view of {width}x{height} pixels does not suit {self.name}: {reason}"


def attends_to_all(config: "PreTrainedConfig") -> bool:
    """Whether every layer of the language model keeps keys and values and attends to all tokens."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None) or ["full_attention"]
    return bool(text.use_cache) and set(kinds) == {"full_attention"}


def plain_positions(config: "PreTrainedConfig", ids: Sequence[int], inputs: ImageInputs) -> "torch.Tensor":
    """Positions (1, len(ids)) that count all tokens, those of images like those of text."""
    import torch

    return torch.arange(len(ids))[None]
