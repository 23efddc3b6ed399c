"""The explorer before training: a small Qwen3-VL with a phrase tokenizer, and faster layers to train it with."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.untrained import fresh_model, make_processor, save_checkpoint
from roomscout.models.transformers.shapes import ModelSizes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

SIZES = ModelSizes(
    hidden=160, layers=4, heads=5, kv_heads=5, head_dim=32, mlp=448,
    vision_hidden=160, vision_layers=4, vision_heads=5, vision_mlp=448, deepstack=(1,),
    max_positions=8192, initial_std=0.08,
)  # fmt: skip
"""4 million parameters, 9 MB in bfloat16."""

EMBEDDING_STD, POSITION_STD, NUMBER_SHARE = 0.5, 0.7, 0.8
HALF_WAVES = (1, 2, 4, 6, 10)
"""Frequencies of the image position embedding, in half periods per image side."""
PERIODS = (0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 20, 45, 90, 180, 360)
"""Periods of the sinusoids that give close numbers similar initial embeddings, for metres, centimetres and degrees."""


def write_untrained(folder: Path, corpus: Iterable[str], seed: int, sizes: ModelSizes) -> None:
    """Write an untrained checkpoint. Its tokenizer contains the phrases of `corpus`, whose number replaces
    `sizes.vocab`."""
    from explorer.vocabulary import make_tokenizer

    processor = make_processor(512)
    processor.tokenizer = make_tokenizer(corpus, processor.tokenizer)
    sizes = replace(sizes, vocab=-(-len(processor.tokenizer) // 64) * 64)
    model = fresh_model(sizes, processor.tokenizer, seed)
    init_weights(model, processor.tokenizer)
    save_checkpoint(folder, model, processor)


def init_weights(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast") -> None:
    """Adjust the initial weights for faster training.

    Residual branches start small (Radford et al. 2019 scale them by one over the root of the number of layers), text
    and image tokens start with similar norms, and close numbers get similar embeddings.
    """
    import torch

    config = model.config
    visual = model.model.visual
    language = model.model.language_model
    with torch.no_grad():
        for layer in language.layers:
            for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj):
                matrix.weight.mul_((2 * config.text_config.num_hidden_layers) ** -0.5)
        for block in visual.blocks:
            for matrix in (block.attn.proj, block.mlp.linear_fc2):
                matrix.weight.mul_((2 * config.vision_config.depth) ** -0.5)
        for merger in (visual.merger, *visual.deepstack_merger_list):
            merger.linear_fc2.weight.mul_(EMBEDDING_STD / 2)
        visual.pos_embed.weight.copy_(torch.from_numpy(position_embeddings(*visual.pos_embed.weight.shape)))
        tokens = torch.from_numpy(token_embeddings(tokenizer, *language.embed_tokens.weight.shape))
        language.embed_tokens.weight.copy_(EMBEDDING_STD * tokens)
        model.lm_head.weight.copy_(config.text_config.initializer_range * tokens)


def position_embeddings(count: int, width: int) -> np.ndarray:
    """Sinusoidal position embeddings (count, width) float32 with variance POSITION_STD squared, one row per cell of a
    square grid in row-major order.

    Qwen's default, small and random, gives image tokens too little position information to infer a direction.
    """
    side = round(count**0.5)
    angles = np.pi * np.arange(side)[:, None] / (side - 1) * np.array(HALF_WAVES)
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    rows = np.repeat(waves, side, axis=0)
    columns = np.tile(waves, (side, 1))
    features = np.concatenate([rows, columns], axis=1)
    projection = np.random.default_rng(0).normal(size=(features.shape[1], width))
    return (POSITION_STD * features @ projection / np.sqrt(2 * len(HALF_WAVES))).astype(np.float32)


def token_embeddings(tokenizer: "PreTrainedTokenizerFast", count: int, width: int) -> np.ndarray:
    """Token embeddings (count, width) float32 with unit variance. They are random, except that those of numbers are
    mostly a projection of sines and cosines of the value."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(count, width))
    projection = rng.normal(size=(2 * len(PERIODS), width)) / np.sqrt(len(PERIODS))
    for id, token in enumerate(tokenizer.batch_decode([[id] for id in range(len(tokenizer))])):
        if match := _NUMBER_TOKEN.fullmatch(token):
            angles = 2 * np.pi * float(match[1]) / np.array(PERIODS)
            waves = np.concatenate([np.sin(angles), np.cos(angles)]) @ projection
            vectors[id] = NUMBER_SHARE**0.5 * waves + (1 - NUMBER_SHARE) ** 0.5 * vectors[id]
    return vectors.astype(np.float32)


_NUMBER_TOKEN = re.compile(r" ?([+-]?\d+(?:\.\d+)?)(?: (?:cm|m))?[;.,]?")


def use_fast_layers(model: "PreTrainedModel", compiled: bool = False) -> None:
    """Speed up training on images of one size without changing the computation.

    The patch convolution, whose kernel is one patch, becomes a matrix product. The image encoder's attention is batched
    over images instead of looping over them. On a CPU, attention runs in float32 even under autocast, because the
    backward pass of PyTorch's bfloat16 kernel is slower there. With `compiled`, each layer is compiled for dynamic
    shapes. Names and shapes of weights do not change.
    """
    import torch
    from torch import Tensor
    from torch.nn import Conv3d
    from torch.nn.functional import linear
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask
    from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen

    class LinearPatchEmbedding(Conv3d):
        def forward(self, input: Tensor) -> Tensor:
            return linear(input.flatten(1), self.weight.flatten(1), self.bias)

    class BatchedVisionAttention(qwen.Qwen3VLVisionAttention):
        def forward(self, hidden_states: Tensor, cu_seqlens: Tensor, position_embeddings: Any, **_: Any) -> Tensor:
            patches = len(hidden_states)
            qkv = self.qkv(hidden_states).reshape(patches, 3, self.num_heads, self.head_dim)
            query, key = qwen.apply_rotary_pos_emb_vision(qkv[:, 0], qkv[:, 1], *position_embeddings)
            parts = [part.reshape(len(cu_seqlens) - 1, -1, *part.shape[1:]) for part in (query, key, qkv[:, 2])]
            query, key, value = (part.transpose(1, 2) for part in parts)
            attended = attend(query, key, value, None, self.scaling, causal=False)
            return self.proj(attended.transpose(1, 2).reshape(patches, -1))

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, causal: bool) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            if query.device.type == "cpu":
                query = query.float()
                key = key.float()
                value = value.float()
            else:
                key = key.to(query.dtype)
                value = value.to(query.dtype)
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, scale=scaling, is_causal=causal and mask is None,
                enable_gqa=query.shape[1] != key.shape[1],
            )  # fmt: skip

    def attend_to_text(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **_: Any
    ) -> tuple[Tensor, None]:
        return attend(query, key, value, mask, scaling, causal=True).transpose(1, 2), None

    AttentionInterface.register("training", attend_to_text)
    AttentionMaskInterface.register("training", sdpa_mask)
    model.set_attn_implementation({"text_config": "training"})
    model.model.visual.patch_embed.proj.__class__ = LinearPatchEmbedding
    for block in model.model.visual.blocks:
        block.attn.__class__ = BatchedVisionAttention
    if compiled:
        for layer in (*model.model.visual.blocks, *model.model.language_model.layers):
            layer.forward = torch.compile(layer.forward, dynamic=True)
