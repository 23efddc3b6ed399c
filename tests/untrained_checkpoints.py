"""Builds tiny untrained checkpoints of every family, with the real model classes and processors, for tests and demos.

python -m tests.untrained_checkpoints internvl /tmp/tiny-internvl
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.untrained import (
    END_OF_TEXT,
    END_OF_TURN,
    QWEN_TEMPLATE,
    QWEN_TOKENS,
    config_for,
    fresh_model,
    make_processor,
    make_tokenizer,
    save_checkpoint,
    vision_ids,
)
from roomscout.models.transformers.shapes import ModelSizes, mrope, text_settings, vision_settings

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, ProcessorMixin

Parts = tuple["PreTrainedConfig", "ProcessorMixin"]
"""A checkpoint without weights."""

_TINY = ModelSizes(hidden=128, head_dim=32)  # what vLLM needs on a CPU; its Qwen2 has heads of hidden / heads
_SMALLEST = ModelSizes()
_HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_TILE = 56
"""Side of a tile in pixels: 4x4 patches."""


def write_untrained_checkpoint(folder: Path, seed: int = 0, sizes: ModelSizes = _SMALLEST) -> Path:
    """Write a Qwen3-VL checkpoint to `folder`, determined by seed and sizes, and return the folder."""
    processor = make_processor(sizes.vocab)
    return save_checkpoint(folder, fresh_model(sizes, processor.tokenizer, seed), processor)


def write_untrained_family(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write a tiny checkpoint of a kind in UNTRAINED to `folder` and return the folder."""
    import torch
    from transformers import AutoModelForImageTextToText

    config, processor = UNTRAINED[kind]()
    config.text_config.eos_token_id = processor.tokenizer.eos_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config)
    return save_checkpoint(folder, model, processor)


def _qwen3_vl() -> Parts:
    processor = make_processor(_TINY.vocab)
    return config_for(processor.tokenizer, _TINY), processor


def _qwen2_vision_and_processor() -> tuple[dict[str, Any], "ProcessorMixin"]:
    """Patch 14, merge 2."""
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    shape = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**shape, **_HALF),
        tokenizer=make_tokenizer(_TINY.vocab),
        video_processor=Qwen2VLVideoProcessor(**shape, **_HALF),
        chat_template=QWEN_TEMPLATE,
    )
    return vision_settings(_TINY) | {"patch_size": 14}, processor


def _qwen2_text() -> dict[str, Any]:
    rope = {"rope_parameters": mrope(_TINY.head_dim)}
    return text_settings(_TINY) | rope | {"bos_token_id": None, "eos_token_id": None}


def _qwen2_5_vl() -> Parts:
    from transformers import Qwen2_5_VLConfig

    vision, processor = _qwen2_vision_and_processor()
    return Qwen2_5_VLConfig(
        text_config=_qwen2_text(),
        vision_config=vision | {"window_size": 56, "fullatt_block_indexes": [1]},
        **vision_ids(processor.tokenizer),
    ), processor


def _qwen2_vl() -> Parts:
    from transformers import Qwen2VLConfig

    vision, processor = _qwen2_vision_and_processor()
    del vision["intermediate_size"], vision["out_hidden_size"]
    return Qwen2VLConfig(
        text_config=_qwen2_text(),
        vision_config=vision | {"embed_dim": _TINY.vision_hidden, "hidden_size": _TINY.hidden, "mlp_ratio": 2},
        **vision_ids(processor.tokenizer),
    ), processor


# As in Qwen3.5's template, message texts are trimmed, and the next reply opens with a <think> block, empty or not.
_THINKING = QWEN_TEMPLATE.replace("part.text", "part.text | trim").replace(
    "assistant\\n' }}\n{%- endif %}",
    "assistant\\n' }}\n    {%- if enable_thinking is defined and enable_thinking is false %}\n"
    "        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- else %}\n        {{- '<think>\\n' }}\n    {%- endif %}\n"
    "{%- endif %}",
)


def _qwen3_5(moe: bool = False) -> Parts:
    """Three linear-attention layers and one full-attention layer, like the first four of a real checkpoint."""
    from transformers import Qwen3_5Config, Qwen3_5MoeConfig

    sizes = ModelSizes(layers=4)
    processor = make_processor(sizes.vocab)
    processor.tokenizer.add_tokens(["<think>", "</think>"])
    processor.chat_template = _THINKING
    text = text_settings(sizes) | {
        "vocab_size": sizes.vocab + 16, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "rope_parameters": mrope(sizes.head_dim) | {"mrope_interleaved": True, "partial_rotary_factor": 1.0},
    }  # fmt: skip
    if moe:
        del text["intermediate_size"]
        text |= {
            "num_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
        }  # fmt: skip
    return (Qwen3_5MoeConfig if moe else Qwen3_5Config)(
        text_config=text,
        vision_config=vision_settings(sizes) | {"patch_size": 16},
        **vision_ids(processor.tokenizer),
    ), processor


_INTERNVL_TOKENS = {
    "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}  # fmt: skip
# The checkpoints' own template: a line for each image, before the text.
_INTERNVL_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<IMG_CONTEXT>\\n' }}{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{{'<|im_end|>\\n'}}{% endfor %}{% if add_generation_prompt %}{{'<|im_start|>assistant\\n' }}{% endif %}"
)


def _internvl(text_type: str = "qwen3") -> Parts:
    from transformers import GotOcr2ImageProcessor, InternVLConfig, InternVLProcessor, InternVLVideoProcessor

    special = (*QWEN_TOKENS[:3], *_INTERNVL_TOKENS.values())
    tokenizer = make_tokenizer(_TINY.vocab, special, _INTERNVL_TOKENS)
    size = {"height": _TILE, "width": _TILE}
    processor = InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=size, **_HALF),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=size, **_HALF),
        image_seq_length=4,
        chat_template=_INTERNVL_TEMPLATE,
    )
    return InternVLConfig(
        text_config=text_settings(_TINY) | {"model_type": text_type},
        vision_config={
            "hidden_size": _TINY.vision_hidden, "num_hidden_layers": _TINY.vision_layers,
            "num_attention_heads": _TINY.vision_heads, "intermediate_size": _TINY.vision_mlp,
            "image_size": [_TILE, _TILE], "patch_size": [14, 14], "initializer_range": _TINY.initial_std,
            "layer_scale_init_value": 1.0,
        },
        image_token_id=processor.image_token_id,
        image_seq_length=4,
        tie_word_embeddings=False,
    ), processor  # fmt: skip


# The checkpoints' own template: images before text; a space follows the role, except in the generation prompt.
_LLAVA_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>' }}{% endfor %}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}{{ '\\n' + part['text'] }}{% endfor %}"
    "{{'<|im_end|>'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _llava_onevision() -> Parts:
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
    )

    tokenizer = make_tokenizer(_TINY.vocab, (END_OF_TEXT, "<|im_start|>", END_OF_TURN, "<image>", "<video>"))
    size, grids = {"height": _TILE, "width": _TILE}, [[_TILE, 2 * _TILE], [2 * _TILE, _TILE], [2 * _TILE, 2 * _TILE]]
    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=grids, **_HALF),
        tokenizer=tokenizer,
        video_processor=LlavaOnevisionVideoProcessor(size=size, **_HALF),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=_LLAVA_TEMPLATE,
    )
    return LlavaOnevisionConfig(
        text_config=text_settings(_TINY) | {"model_type": "qwen2"},
        vision_config={
            "model_type": "siglip_vision_model", "hidden_size": _TINY.vision_hidden,
            "num_hidden_layers": _TINY.vision_layers, "num_attention_heads": _TINY.vision_heads,
            "intermediate_size": _TINY.vision_mlp, "image_size": _TILE, "patch_size": 14, "vision_use_head": False,
        },
        image_token_index=processor.image_token_id,
        video_token_index=processor.video_token_id,
        image_grid_pinpoints=grids,
    ), processor  # fmt: skip


UNTRAINED: dict[str, Callable[[], Parts]] = {
    "qwen3_vl": _qwen3_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": lambda: _qwen3_5(moe=True),
    "internvl": _internvl,
    "internvl with qwen2": lambda: _internvl("qwen2"),
    "llava_onevision": _llava_onevision,
}
"""Builders by kind of checkpoint: its model type, with a variant if there are several."""


def main() -> None:
    """Parse the command line and write one checkpoint."""
    parser = argparse.ArgumentParser(description="Write a tiny untrained checkpoint of a model family.")
    parser.add_argument("kind", choices=UNTRAINED)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    write_untrained_family(args.folder, args.kind)


if __name__ == "__main__":
    main()
