"""Builds untrained Qwen3-VL checkpoints of any size without downloads: real model class, tokenizer and processor."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.models.transformers.shapes import ModelSizes, make_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast, ProcessorMixin, Qwen3VLConfig, Qwen3VLProcessor

END_OF_TEXT, END_OF_TURN = "<|endoftext|>", "<|im_end|>"
_IMAGE_PAD, _VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"
_VISION_START, _VISION_END = "<|vision_start|>", "<|vision_end|>"
QWEN_TOKENS = (
    END_OF_TEXT, "<|im_start|>", END_OF_TURN, "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", _VISION_START, _VISION_END, "<|vision_pad|>", _IMAGE_PAD, _VIDEO_PAD,
)  # fmt: skip

# Qwen's pre-tokenizer: contractions, words, single digits, punctuation, line breaks, spaces.
_WORD_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# ChatML with one vision block per image, as in Qwen3-VL's template for messages of text and images.
QWEN_TEMPLATE = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- elif part.type == 'text' %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""".strip()


def fresh_model(sizes: ModelSizes, tokenizer: "PreTrainedTokenizerFast", seed: int) -> "PreTrainedModel":
    """A randomly initialized Qwen3-VL for this tokenizer."""
    import torch
    from transformers import Qwen3VLForConditionalGeneration

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3VLForConditionalGeneration(config_for(tokenizer, sizes))


def config_for(tokenizer: "PreTrainedTokenizerFast", sizes: ModelSizes) -> "Qwen3VLConfig":
    """The configuration of a Qwen3-VL of these sizes with the ids of this tokenizer."""
    config = make_config(sizes, **vision_ids(tokenizer))
    config.text_config.eos_token_id = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    return config


def save_checkpoint(folder: Path, model: "PreTrainedModel", processor: "ProcessorMixin") -> Path:
    """Write model and processor, with greedy decoding and both end tokens as defaults; returns the folder."""
    from transformers import GenerationConfig

    end_ids = processor.tokenizer.convert_tokens_to_ids([END_OF_TURN, END_OF_TEXT])
    model.generation_config = GenerationConfig(eos_token_id=end_ids, pad_token_id=end_ids[1], do_sample=False)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def make_processor(vocab: int) -> "Qwen3VLProcessor":
    """Qwen3-VL's processor (patch 16, merge 2) with a byte-level tokenizer of at most `vocab` entries."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    statistics = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16, merge_size=2, temporal_patch_size=2, **statistics),
        tokenizer=make_tokenizer(vocab),
        video_processor=Qwen3VLVideoProcessor(patch_size=16, merge_size=2, temporal_patch_size=2, **statistics),
        chat_template=QWEN_TEMPLATE,
    )


def vision_ids(tokenizer: "PreTrainedTokenizerFast") -> dict[str, int]:
    """The special token ids in the configurations of Qwen's models."""
    return {
        "image_token_id": tokenizer.convert_tokens_to_ids(_IMAGE_PAD),
        "video_token_id": tokenizer.convert_tokens_to_ids(_VIDEO_PAD),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids(_VISION_START),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids(_VISION_END),
    }


def make_tokenizer(
    vocab: int, special: Sequence[str] = QWEN_TOKENS, named: dict[str, str] | None = None
) -> "PreTrainedTokenizerFast":
    """Byte-level BPE with at most `vocab` entries, `special` tokens included, trained on text like the prompts: encodes
    any Unicode, common words in few tokens. `named` special tokens also become attributes."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TURN, pad_token=END_OF_TEXT, padding_side="left",
        extra_special_tokens=[token for token in special if token not in (END_OF_TEXT, END_OF_TURN)],
        clean_up_tokenization_spaces=False, **({"model_specific_special_tokens": named} if named else {}),
    )  # fmt: skip


_OBJECTS = (
    "chair", "table", "bed", "sofa", "door", "window", "desk", "monitor", "lamp", "shelf", "cabinet", "sink",
    "toilet", "bathtub", "refrigerator", "stove", "pillow", "plant", "backpack", "trash bin", "keyboard", "printer",
    "bookshelf", "whiteboard", "nightstand", "dresser", "television", "fireplace", "washer", "curtain", "heater",
    "ceiling light", "telephone", "computer tower", "microwave", "stool", "bench", "mirror", "rug", "box",
)  # fmt: skip

_PROSE = (
    "You are a robot inside a 3D scan of a room. Each turn you see one rendered view and you control the camera.",
    "Explore the room, then answer the question. Reply with a short reason and one JSON object with these six keys:",
    "rotation_angle_degrees forward_meters left_meters z_delta_meters answer done",
    "You turn first, then move in your new heading. Positive angles turn left, negative angles turn right.",
    "The room reaches from x = -3.25 to 4.80 m, y = -2.10 to 5.60 m and z = 0.00 to 2.70 m. The floor is at z = 0.00.",
    "You are at x = 0.50, y = -1.20, z = 1.60 m, heading 90 degrees, pitch 0 degrees. Turn 3 of 8. View 3.",
    "You moved 0.3 of 0.5 m forward, blocked by a surface. The move was clipped at the bounds of the scan.",
    "Your last reply could not be used: the JSON object is missing, so a small look around was done instead.",
    "This is the last turn: you must answer now. Set done to true and answer with one letter or one number.",
    "What do you see? I see a part of the room. I need to look around before I can answer. Nothing new is in view.",
    "Options: A. left B. right C. back D. front-left E. front-right F. back-left G. back-right H. turn back",
    "If multiple rooms are shown, estimate the size of the combined space. What is the size of this room (in square "
    "meters)? An object is to my back if I would have to turn at least 135 degrees in order to face it. The "
    "directions refer to the quadrants of a Cartesian plane (if I am standing at the origin and facing along the "
    "positive y-axis).",
    "You are a robot beginning at the door and facing the window. You want to navigate to the bed. You will perform "
    "the following actions: 1. Go forward until the desk 2. [please fill in] 3. Go forward until the bed. Turn Left, "
    "Turn Right, Turn Back. You have reached the final destination.",
)


def _corpus() -> Iterator[str]:
    """Text like prompts, questions and replies, to train the tokenizer on."""
    yield from _PROSE * 4
    for first, second in product(_OBJECTS, repeat=2):
        yield (
            f"How many {first}(s) are in this room? Measuring from the closest point of each object, what is the "
            f"distance between the {first} and the {second} (in meters)? If I am standing by the {first} and facing "
            f"the {second}, is the lamp to the left or the right of the {second}? What is the length of the longest "
            f"dimension (length, width, or height) of the {first}, measured in centimeters?"
        )
        yield (
            f"I see a {first} to the left, far, and a {second} ahead, near.\n"
            '{"rotation_angle_degrees": -45.0, "forward_meters": 0.5, "left_meters": 0.0, "z_delta_meters": 0.0, '
            '"answer": null, "done": false}'
        )
        yield '{"rotation_angle_degrees": 0, "forward_meters": 0, "answer": "A", "done": true}'
