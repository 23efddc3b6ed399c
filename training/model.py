"""The explorer before training: a small Qwen3-VL and a tokenizer of phrases, as one checkpoint folder."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.backends.embedded import ModelSizes, make_config, make_processor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIZES = {
    "small": ModelSizes(
        hidden=160, layers=4, heads=5, kv_heads=5, head_dim=32, mlp=448,
        vision_hidden=160, vision_layers=4, vision_heads=5, vision_mlp=448, deepstack=(1,),
        max_positions=8192, tie_embeddings=True, initial_std=0.08,
    ),
    "large": ModelSizes(
        hidden=256, layers=6, heads=8, kv_heads=4, head_dim=32, mlp=512,
        vision_hidden=192, vision_layers=5, vision_heads=6, vision_mlp=512, deepstack=(2,),
        max_positions=8192, tie_embeddings=True, initial_std=0.08,
    ),
}  # fmt: skip
"""4 and 8 million weights: what two cores and what a GPU can train in an hour; 8 and 16 MB in bfloat16."""


def use_linear_patches(model: "PreTrainedModel") -> None:
    """Let the image encoder multiply its patches by a matrix, as its convolution does far more slowly.

    Each patch is one kernel's size, so both are the same sum; names and shapes of the weights stay.
    """
    from torch import Tensor
    from torch.nn import Conv3d
    from torch.nn.functional import linear

    class PatchProduct(Conv3d):
        def forward(self, input: Tensor) -> Tensor:
            return linear(input.flatten(1), self.weight.flatten(1), self.bias)

    model.model.visual.patch_embed.proj.__class__ = PatchProduct


def write_untrained(folder: Path, corpus: Iterable[str], seed: int, sizes: ModelSizes) -> None:
    """Write a fresh checkpoint whose tokenizer knows the phrases of `corpus`; `sizes.vocab` is what they come to."""
    import torch
    from transformers import GenerationConfig, Qwen3VLForConditionalGeneration

    from training.vocabulary import make_tokenizer

    processor = make_processor(512)
    processor.tokenizer = make_tokenizer(corpus, processor.tokenizer)
    sizes = replace(sizes, vocab=-(-len(processor.tokenizer) // 64) * 64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(make_config(sizes, processor.tokenizer))
    tokenizer = processor.tokenizer
    ends = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[1], do_sample=False)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
