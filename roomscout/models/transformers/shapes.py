"""Sizes of Qwen3-VL checkpoints, for plans without downloads and for untrained models."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Qwen3VLConfig


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a Qwen3-VL's language model and image encoder (`vision_...`)."""

    hidden: int = 64  # width of a token
    layers: int = 2  # of the language model
    heads: int = 4  # of queries, in a layer
    kv_heads: int = 2  # of keys and values, in a layer
    head_dim: int = 16  # width of a head
    mlp: int = 128  # width inside a layer's MLP
    vision_hidden: int = 32  # width of a patch
    vision_layers: int = 2  # of the image encoder
    vision_heads: int = 2  # of queries, in one of its layers
    vision_mlp: int = 64  # width inside its layers' MLPs
    deepstack: tuple[int, ...] = (0,)  # the encoder's layers, from 0, whose features enter the language model
    vocab: int = 1024  # the most tokens
    max_positions: int = 32768  # the longest conversation, in tokens
    tie_embeddings: bool = False  # the head's weights are those of the embeddings
    initial_std: float = 0.1  # standard deviation of initial weights


def make_config(sizes: ModelSizes, **ids: int) -> "Qwen3VLConfig":
    """The configuration of a Qwen3-VL of these sizes, with special token ids by name (default: Qwen's own)."""
    from transformers import Qwen3VLConfig

    text = text_settings(sizes) | {"rope_parameters": mrope(sizes.head_dim) | {"mrope_interleaved": True}}
    vision = vision_settings(sizes) | {"patch_size": 16, "deepstack_visual_indexes": list(sizes.deepstack)}
    return Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=sizes.tie_embeddings, **ids)


def text_settings(sizes: ModelSizes) -> dict[str, Any]:
    """Configuration values shared by all families' language models."""
    return {
        "vocab_size": sizes.vocab, "hidden_size": sizes.hidden, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads, "head_dim": sizes.head_dim,
        "intermediate_size": sizes.mlp, "max_position_embeddings": sizes.max_positions,
        "initializer_range": sizes.initial_std,
    }  # fmt: skip


def vision_settings(sizes: ModelSizes) -> dict[str, Any]:
    """Configuration values shared by the image encoders of Qwen's models."""
    return {
        "hidden_size": sizes.vision_hidden, "depth": sizes.vision_layers, "num_heads": sizes.vision_heads,
        "intermediate_size": sizes.vision_mlp, "out_hidden_size": sizes.hidden,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "initializer_range": sizes.initial_std,
    }  # fmt: skip


def mrope(rotated: int) -> dict[str, Any]:
    """M-RoPE over `rotated` dimensions of a head, split between time, height and width as in Qwen3-VL: 24 + 20 + 20."""
    pairs = rotated // 2
    spatial = pairs * 20 // 64
    sections = [pairs - 2 * spatial, spatial, spatial]
    return {"rope_type": "default", "rope_theta": 5_000_000.0, "mrope_section": sections}


QWEN = ModelSizes(
    kv_heads=8, head_dim=128, vocab=151936, max_positions=262144, tie_embeddings=True, initial_std=0.02,
    vision_hidden=1024, vision_layers=24, vision_heads=16, vision_mlp=4096, deepstack=(5, 11, 17),
)  # fmt: skip
CHECKPOINTS = {  # sizes by hub id, with the hub's spelling
    "Qwen/Qwen3-VL-2B-Instruct": replace(QWEN, hidden=2048, layers=28, heads=16, mlp=6144),
    "Qwen/Qwen3-VL-4B-Instruct": replace(QWEN, hidden=2560, layers=36, heads=32, mlp=9728),
    "Qwen/Qwen3-VL-8B-Instruct": replace(
        QWEN, hidden=4096, layers=36, heads=32, mlp=12288, tie_embeddings=False,
        vision_hidden=1152, vision_layers=27, vision_mlp=4304, deepstack=(8, 16, 24),
    ),
}  # fmt: skip
