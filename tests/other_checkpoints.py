"""Builds tiny untrained checkpoints of families that roomscout has no code for, with the real model classes, processors
and, where trl has them, chat templates."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.untrained import END_OF_TEXT, END_OF_TURN, make_processor, make_tokenizer, save_checkpoint, vision_ids
from roomscout.models.transformers.shapes import ModelSizes, mrope, text_settings, vision_settings
from tests.untrained_checkpoints import Parts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_SIZES = ModelSizes()
_HYBRID = ModelSizes(layers=4)
_TILE = 56
"""Side of a tile in pixels: 4x4 patches."""
_SQUARE = {"height": _TILE, "width": _TILE}
_WINDOW = 64
"""Tokens that layers of sliding or indexed attention see: fewer than a prompt has."""


def write_other(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write a tiny checkpoint of a kind in OTHERS to `folder` and return the folder."""
    import torch
    from transformers import AutoModelForImageTextToText

    config, processor = OTHERS[kind]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config)
        for weights in model.parameters():
            if weights.ndim > 1 and not weights.any():  # Gemma 3's projection, which would hide the images
                torch.nn.init.normal_(weights, std=_SIZES.initial_std)
    save_checkpoint(folder, model, processor)
    model.generation_config.eos_token_id = [processor.tokenizer.eos_token_id, processor.tokenizer.pad_token_id]
    model.generation_config.save_pretrained(folder)
    return folder


def _tokenizer(
    special: Sequence[str], end: str = END_OF_TURN, begin: str | None = None, named: dict[str, str] | None = None
) -> "PreTrainedTokenizerFast":
    """A tokenizer with these special tokens, one that ends turns and possibly one that begins texts."""
    tokens = dict.fromkeys((END_OF_TEXT, END_OF_TURN, *special, *(named or {}).values()))
    tokenizer = make_tokenizer(_SIZES.vocab, tuple(tokens), named)
    tokenizer.eos_token, tokenizer.bos_token = end, begin
    return tokenizer


def _text(tokenizer: "PreTrainedTokenizerFast", sizes: ModelSizes = _SIZES, **more: Any) -> dict[str, Any]:
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return text_settings(sizes) | ids | more


def _vision(**more: Any) -> dict[str, Any]:
    """The settings of an image encoder that sees tiles."""
    return {
        "hidden_size": _SIZES.vision_hidden, "num_hidden_layers": _SIZES.vision_layers,
        "num_attention_heads": _SIZES.vision_heads, "intermediate_size": _SIZES.vision_mlp,
        "image_size": _TILE, "patch_size": 14, "initializer_range": _SIZES.initial_std,
    } | more  # fmt: skip


def trl_template(name: str) -> str:
    """A chat template of the hub, as trl has it."""
    spec = find_spec("trl")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text()


def _template(image: str, turns: dict[str, tuple[str, str]], prompt: str = "", start: str = "") -> str:
    """A chat template that writes `start`, each message between the two texts of its role, images as `image`, and
    `prompt` before a reply; other roles are refused."""
    return (
        f"{{{{ {start!r} }}}}{{% for message in messages %}}{{% set around = {turns!r}[message.role] %}}"
        "{{ around[0] }}{% if message.content is string %}{{ message.content }}{% else %}"
        f"{{% for part in message.content %}}{{{{ {image!r} if part.type == 'image' else part.text }}}}{{% endfor %}}"
        "{% endif %}{{ around[1] }}{% endfor %}"
        f"{{% if add_generation_prompt %}}{{{{ {prompt!r} }}}}{{% endif %}}"
    )


def _chatml(image: str, *roles: str) -> str:
    turns = {role: (f"<|im_start|>{role}\n", "<|im_end|>\n") for role in roles}
    return _template(image, turns, "<|im_start|>assistant\n")


def _glm(version: str) -> Parts:
    """A reply ends where the next turn begins; M-RoPE rotates half of each head."""
    import transformers

    marks = {
        "image_token_id": "<|image|>", "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>", "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>", "video_end_token_id": "<|end_of_video|>",
    }  # fmt: skip
    turns = {role: (f"<|{role}|>\n", "") for role in ("system", "user", "assistant")}
    roles = ("<|system|>", "<|user|>", "<|assistant|>")
    tokenizer = _tokenizer(("[gMASK]", "<sop>", *roles, *marks.values()), end="<|user|>")
    parts = ("Config", "ImageProcessor", "VideoProcessor", "Processor")
    config, image_processor, video_processor, processor = (getattr(transformers, version + part) for part in parts)
    size = {"shortest_edge": 28 * 28, "longest_edge": 2 * 112 * 112}
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    return config(
        text_config=_text(tokenizer, rope_parameters=mrope(_SIZES.head_dim // 2) | {"partial_rotary_factor": 0.5}),
        vision_config=vision_settings(_SIZES) | {"patch_size": 14, "image_size": 112},
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in marks.items()},
    ), processor(
        image_processor=image_processor(size=size), tokenizer=tokenizer, video_processor=video_processor(size=size),
        chat_template=_template(image, turns, "<|assistant|>\n", "[gMASK]<sop>"),
    )  # fmt: skip


def _llava_next() -> Parts:
    from transformers import LlavaNextConfig, LlavaNextImageProcessor, LlavaNextProcessor

    tokenizer = _tokenizer(("<unk>", "<s>", "</s>", "<image>"), end="</s>", begin="<s>")
    grids = [[_TILE, 2 * _TILE], [2 * _TILE, _TILE], [2 * _TILE, 2 * _TILE]]
    images = {"size": {"shortest_edge": _TILE}, "crop_size": _SQUARE, "image_grid_pinpoints": grids}
    return LlavaNextConfig(
        text_config=_text(tokenizer, model_type="mistral", sliding_window=None),
        vision_config=_vision(model_type="clip_vision_model", num_hidden_layers=3),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"), image_grid_pinpoints=grids, image_seq_length=16,
    ), LlavaNextProcessor(
        image_processor=LlavaNextImageProcessor(**images), tokenizer=tokenizer, patch_size=14,
        vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=trl_template("llava_next"),
    )  # fmt: skip


def _idefics3(name: str = "Idefics3") -> Parts:
    """Idefics3 or SmolVLM, which also sees videos."""
    import transformers

    tiles = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
    begin, end = "<|begin_of_text|>", "<end_of_utterance>"
    special = (begin, end, "<fake_token_around_image>", "<image>", "<global-img>", *tiles)
    tokenizer = _tokenizer(special, end, begin)
    size = {"size": {"longest_edge": 2 * _TILE}, "max_image_size": {"longest_edge": _TILE}}
    videos = {"video_processor": transformers.SmolVLMVideoProcessor(**size)} if name == "SmolVLM" else {}
    return getattr(transformers, f"{name}Config")(
        text_config=_text(tokenizer, model_type="llama"), vision_config=_vision(),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), pad_token_id=tokenizer.pad_token_id,
    ), getattr(transformers, f"{name}Processor")(
        image_processor=getattr(transformers, f"{name}ImageProcessor")(**size), tokenizer=tokenizer, image_seq_len=4,
        chat_template=trl_template(name.lower()), **videos,
    )  # fmt: skip


def _gemma3() -> Parts:
    """The tokens of an image see each other; what the processor calls its image token begins an image."""
    from transformers import Gemma3Config, Gemma3ImageProcessor, Gemma3Processor

    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = _tokenizer(("<bos>", "<start_of_turn>", "<end_of_turn>"), "<end_of_turn>", "<bos>", named)
    return Gemma3Config(
        text_config=_text(
            tokenizer, query_pre_attn_scalar=_SIZES.head_dim, sliding_window=_WINDOW,
            layer_types=["sliding_attention", "full_attention"],
        ),
        vision_config=_vision(model_type="siglip_vision_model", vision_use_head=False), mm_tokens_per_image=4,
        **{f"{name}_index": tokenizer.convert_tokens_to_ids(token) for name, token in named.items()},
        initializer_range=_SIZES.initial_std, tie_word_embeddings=False,
    ), Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size=_SQUARE), tokenizer=tokenizer, image_seq_length=4,
        chat_template=trl_template("gemma3"),
    )  # fmt: skip


def _gemma4() -> Parts:
    """The second half of the layers reuse the keys and values of the first; every layer has its own embeddings."""
    import transformers

    named = {
        "boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>",
        "boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>",
    }  # fmt: skip
    special = ("<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|video|>")
    tokenizer = _tokenizer(special, "<turn|>", "<bos>", named)
    size: dict[str, Any] = {"patch_size": 8, "pooling_kernel_size": 2, "max_soft_tokens": 70}  # the fewest it takes
    processor = transformers.Gemma4Processor(
        feature_extractor=transformers.Gemma4AudioFeatureExtractor(),
        image_processor=transformers.Gemma4ImageProcessor(**size), tokenizer=tokenizer,
        video_processor=transformers.Gemma4VideoProcessor(**size), image_seq_length=70,
        chat_template=trl_template("gemma4_v5"),
    )  # fmt: skip
    vision = _vision(
        patch_size=8, pooling_kernel_size=2, num_key_value_heads=2, head_dim=16, position_embedding_size=128
    )
    return transformers.Gemma4Config(
        text_config=_text(
            tokenizer, _HYBRID, layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=_WINDOW,
            global_head_dim=32, num_kv_shared_layers=2, vocab_size_per_layer_input=_HYBRID.vocab,
            hidden_size_per_layer_input=8,
        ),
        vision_config=vision, boi_token_id=tokenizer.boi_token_id, eoi_token_id=tokenizer.eoi_token_id,
        image_token_id=tokenizer.image_token_id, boa_token_id=tokenizer.boa_token_id,
        eoa_token_index=tokenizer.eoa_token_id, audio_token_id=tokenizer.audio_token_id,
        video_token_id=processor.video_token_id, initializer_range=_SIZES.initial_std, tie_word_embeddings=False,
    ), processor  # fmt: skip


def _pixtral_processor(tokenizer: "PreTrainedTokenizerFast", merge: int, template: str) -> "ProcessorMixin":
    from transformers import PixtralImageProcessor, PixtralProcessor

    images = PixtralImageProcessor(patch_size=14, size={"longest_edge": 112})
    return PixtralProcessor(images, tokenizer, patch_size=14, spatial_merge_size=merge, chat_template=template)


_MISTRAL_TOKENS = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]")


def _mistral3() -> Parts:
    from transformers import Mistral3Config

    system = ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
    tokenizer = _tokenizer((*_MISTRAL_TOKENS, *system), end="</s>", begin="<s>")
    turns = {"system": system, "user": ("[INST]", "[/INST]"), "assistant": ("", "</s>")}
    return Mistral3Config(
        text_config=_text(tokenizer, model_type="mistral", sliding_window=None),
        vision_config=_vision(model_type="pixtral", image_size=112), spatial_merge_size=2,
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"), tie_word_embeddings=False,
    ), _pixtral_processor(tokenizer, 2, _template("[IMG]", turns, start="<s>"))  # fmt: skip


# As in the checkpoints' own template, the system message begins the last message of the user.
_PIXTRAL_TEMPLATE = (
    "{{ '<s>' }}{% for message in messages if message.role != 'system' %}{% if message.role == 'user' %}{{ '[INST]' }}"
    "{% if loop.last and messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{{ (system if system is string else system[0].text) + '\\n\\n' }}{% endif %}{% endif %}"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{{ '[IMG]' if part.type == 'image' else part.text }}{% endfor %}{% endif %}"
    "{{ '[/INST]' if message.role == 'user' else '</s>' }}{% endfor %}"
)


def _pixtral() -> Parts:
    from transformers import LlavaConfig

    tokenizer = _tokenizer(_MISTRAL_TOKENS, end="</s>", begin="<s>")
    return LlavaConfig(
        text_config=_text(tokenizer, model_type="mistral", sliding_window=None),
        vision_config=_vision(model_type="pixtral", image_size=112), image_seq_length=1, vision_feature_layer=-1,
        vision_feature_select_strategy="full", image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
    ), _pixtral_processor(tokenizer, 1, _PIXTRAL_TEMPLATE)  # fmt: skip


def _lfm2_vl() -> Parts:
    """Short convolutions in half of the layers; images larger than 8,192 pixels become tiles and a thumbnail."""
    from transformers import Lfm2VlConfig, Lfm2VlImageProcessor, Lfm2VlProcessor

    tiles = tuple(f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5))
    image = ("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", *tiles)
    tokenizer = _tokenizer(("<|startoftext|>", "<|im_start|>", *image), begin="<|startoftext|>")
    images: dict[str, Any] = {"tile_size": 64, "max_tiles": 4, "min_image_tokens": 1, "max_image_tokens": 4}
    return Lfm2VlConfig(
        text_config=_text(
            tokenizer, _HYBRID, layer_types=["conv", "conv", "full_attention", "full_attention"],
            block_auto_adjust_ff_dim=False,
        ),
        vision_config=_vision(model_type="siglip2_vision_model", patch_size=16, num_patches=16, vision_use_head=False),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), projector_hidden_size=_HYBRID.hidden,
        tie_word_embeddings=False,
    ), Lfm2VlProcessor(
        image_processor=Lfm2VlImageProcessor(**images), tokenizer=tokenizer, chat_template=trl_template("lfm2_2_5_vl")
    )  # fmt: skip


def _qwen4_exp() -> Parts:
    """Three linear-attention layers, the first with n-gram embeddings, and one layer of indexed attention."""
    from transformers import Qwen4ExpConfig

    processor = make_processor(_HYBRID.vocab - 2)
    processor.tokenizer.add_tokens(["<think>", "</think>"])
    processor.chat_template = trl_template("qwen3_8")
    text = _text(
        processor.tokenizer, _HYBRID, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
        linear_num_value_heads=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, hc_count=2, hc_lowrank=8, ple_layer_ids=[1], heads_per_ngram=2,
        ngram_vocab_size_base=64, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=2, indexer_n_heads=2,
        indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=_WINDOW, indexer_compress_ratio=4,
        rope_parameters=mrope(_HYBRID.head_dim) | {"mrope_interleaved": True, "partial_rotary_factor": 1.0},
    )  # fmt: skip
    del text["intermediate_size"]
    vision = vision_settings(_HYBRID) | {"patch_size": 16}
    return Qwen4ExpConfig(text_config=text, vision_config=vision, **vision_ids(processor.tokenizer)), processor


def _aya_vision() -> Parts:
    """In a prompt, <image> becomes several <|IMG_PATCH|>."""
    from transformers import AyaVisionConfig, AyaVisionProcessor, GotOcr2ImageProcessor

    start, end = "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"
    prompt = f"{start}<|CHATBOT_TOKEN|><|START_RESPONSE|>"
    turns = {
        "system": (f"{start}<|SYSTEM_TOKEN|>", end), "user": (f"{start}<|USER_TOKEN|>", end),
        "assistant": (prompt, f"<|END_RESPONSE|>{end}"),
    }  # fmt: skip
    special = (
        "<BOS_TOKEN>", start, end, "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|START_RESPONSE|>",
        "<|END_RESPONSE|>", "<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>",
        "TILE_GLOBAL", "TILE_1", "TILE_2", "TILE_3", "TILE_4",
    )  # fmt: skip
    tokenizer = _tokenizer(special, end, "<BOS_TOKEN>")
    return AyaVisionConfig(
        text_config=_text(
            tokenizer, _HYBRID, layer_types=["sliding_attention"] * 3 + ["full_attention"], sliding_window=_WINDOW,
            model_type="cohere2", logit_scale=1.0,
        ),
        vision_config=_vision(model_type="siglip_vision_model", vision_use_head=False), downsample_factor=2,
        image_token_index=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"), tie_word_embeddings=False,
    ), AyaVisionProcessor(
        image_processor=GotOcr2ImageProcessor(size=_SQUARE, max_patches=4), tokenizer=tokenizer, patch_size=14,
        img_size=_TILE, downsample_factor=2, chat_template=_template("<image>", turns, prompt, "<BOS_TOKEN>"),
    )  # fmt: skip


def _ovis2() -> Parts:
    """In a prompt, <image> becomes several <IMG_ATOM>."""
    from transformers import Ovis2Config, Ovis2ImageProcessor, Ovis2Processor

    indicators = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    tokenizer = _tokenizer(("<|im_start|>", "<image>", "<IMG_ATOM>", *indicators))
    atom, *indicator_ids = tokenizer.convert_tokens_to_ids(["<IMG_ATOM>", *indicators])
    return Ovis2Config(
        text_config=_text(tokenizer, model_type="qwen2"), vision_config=_vision(vocab_size=128, hidden_stride=2),
        image_token_id=atom, visual_indicator_token_ids=indicator_ids, vocab_size=_SIZES.vocab,
        hidden_size=_SIZES.hidden, tie_word_embeddings=False,
    ), Ovis2Processor(
        image_processor=Ovis2ImageProcessor(size=_SQUARE, crop_to_patches=True, max_patches=4), tokenizer=tokenizer,
        image_seq_length=4, chat_template=_chatml("<image>\n", "system", "user", "assistant"),
    )  # fmt: skip


def _molmo2() -> Parts:
    """The tokens of images have embeddings of their own, beyond the vocabulary; no system messages."""
    from transformers import Molmo2Config, Molmo2ImageProcessor, Molmo2Processor, Molmo2VideoProcessor

    marks = {
        "image_start_token_id": "<im_start>", "low_res_image_start_token_id": "<low_res_im_start>",
        "image_end_token_id": "<im_end>", "image_patch_id": "<im_patch>",
        "frame_start_token_id": "<frame_start>", "frame_end_token_id": "<frame_end>",
    }  # fmt: skip
    beyond = (*marks.values(), "<im_col>", "<im_low>", "<|image|>", "<|video|>")
    tokenizer = _tokenizer(("<|im_start|>", *beyond), begin=END_OF_TURN)
    crop: dict[str, Any] = {"size": _SQUARE, "patch_size": 14, "pooling_size": [2, 2]}
    vision = _vision(num_key_value_heads=_SIZES.vision_heads, head_dim=16, image_size=[_TILE, _TILE])
    adapter = {
        "vision_feature_layer": [1, 0], "hidden_size": _SIZES.vision_hidden, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": _SIZES.mlp, "text_hidden_size": _SIZES.hidden,
        "initializer_range": _SIZES.initial_std,
    }  # fmt: skip
    return Molmo2Config(
        text_config=_text(tokenizer, vocab_size=len(tokenizer) - len(beyond), additional_vocab_size=len(beyond)),
        vision_config=vision, adapter_config=adapter, initializer_range=_SIZES.initial_std,
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in marks.items()},
    ), Molmo2Processor(
        image_processor=Molmo2ImageProcessor(max_crops=4, overlap_margins=[1, 1], **crop), tokenizer=tokenizer,
        video_processor=Molmo2VideoProcessor(**crop), chat_template=_chatml("<|image|>", "user", "assistant"),
    )  # fmt: skip


def _minicpmv4_7() -> Parts:
    """Three linear-attention layers and one full-attention layer; images become an overview and slices."""
    import transformers

    named = {
        "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "image_start_token": "<image>",
        "image_end_token": "</image>", "slice_start_token": "<slice>", "slice_end_token": "</slice>",
        "image_id_start_token": "<image_id>", "image_id_end_token": "</image_id>",
    }  # fmt: skip
    tokenizer = _tokenizer(("<|im_start|>",), named=named)
    size: dict[str, Any] = {"max_slice_nums": 4, "scale_resolution": _TILE, "patch_size": 14}
    return transformers.MiniCPMV4_7Config(
        text_config=_text(
            tokenizer, _HYBRID, model_type="qwen3_5_text", linear_key_head_dim=8, linear_value_head_dim=8,
            linear_num_key_heads=2, linear_num_value_heads=4,
            rope_parameters=mrope(_HYBRID.head_dim) | {"mrope_interleaved": True, "partial_rotary_factor": 1.0},
        ),
        vision_config=_vision(), insert_layer_id=0, image_size=_TILE,
        image_token_id=tokenizer.image_token_id, video_token_id=tokenizer.video_token_id,
        image_start_id=tokenizer.image_start_token_id, image_end_id=tokenizer.image_end_token_id,
        slice_start_id=tokenizer.slice_start_token_id, slice_end_id=tokenizer.slice_end_token_id,
        newline_id=tokenizer.convert_tokens_to_ids("Ċ"), tie_word_embeddings=False,
    ), transformers.MiniCPMV4_7Processor(
        image_processor=transformers.MiniCPMV4_6ImageProcessor(**size), tokenizer=tokenizer,
        video_processor=transformers.MiniCPMV4_6VideoProcessor(**size),
        chat_template=_chatml("<|image_pad|>\n", "system", "user", "assistant"),
    )  # fmt: skip


OTHERS: dict[str, Callable[[], Parts]] = {
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "glm4v": lambda: _glm("Glm4v"),
    "glm46v": lambda: _glm("Glm46V"),
    "idefics3": _idefics3,
    "smolvlm": lambda: _idefics3("SmolVLM"),
    "llava_next": _llava_next,
    "mistral3": _mistral3,
    "pixtral": _pixtral,
    "molmo2": _molmo2,
    "minicpmv4_7": _minicpmv4_7,
    "ovis2": _ovis2,
    "lfm2_vl": _lfm2_vl,
    "aya_vision": _aya_vision,
    "qwen4_exp": _qwen4_exp,
}
"""Builders by kind of checkpoint: its model type, but that of "pixtral" is llava."""
