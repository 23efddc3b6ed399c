"""Checkpoints as they are on the hub, offline: chat templates that trl ships, and configurations from public places."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from other_checkpoints import OTHERS, trl_template
from PIL import Image
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor
from untrained_checkpoints import UNTRAINED, write_untrained_family

from roomscout.models import ModelError
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.families.family import HEAD, LANGUAGE_MODEL
from roomscout.models.transformers.loading import require_processor
from roomscout.models.transformers.shapes import CHECKPOINTS, make_config

HUB = Path(__file__).parents[1] / "fixtures" / "hub"
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(HUB.glob("*.json"))}
"""By checkpoint: its id, sources, published parameters, and files."""
THINK, NO_THOUGHT = "<think>\n", "<think>\n\n</think>\n\n"
TEMPLATES = {
    "qwen2_5_vl": ("qwen2_5_vl", True, "", ""),
    "qwen3_vl": ("qwen3_vl", True, "", ""),
    "qwen3_5_nothink": ("qwen3_5", True, "", NO_THOUGHT),
    "qwen3_5_think": ("qwen3_5", True, "", NO_THOUGHT),
    "qwen3_6": ("qwen3_5", True, "", ""),
    "qwen3_8": ("qwen3_5", True, "", ""),
    "gemma3": ("gemma3", True, "", ""),
    "gemma4_v5": ("gemma4", True, "", ""),
    "idefics3": ("idefics3", True, "", ""),
    "smolvlm": ("idefics3", True, "", ""),
    "llava_next": ("llava_next", True, "", ""),
    "lfm2_2_5_vl": ("lfm2_vl", True, "", ""),
}
"""For each template of trl: a kind of tiny checkpoint whose tokens it writes, whether it appends turns, what it opens
each reply with, and what it drops before earlier replies."""
THINKING = {"qwen3_5_think": (False, THINK), "qwen3_6": (True, THINK), "qwen3_8": (True, THINK)}
"""Of templates that are not asked to leave thoughts out: whether they append turns, and how they open replies."""


def encoder_of(name: str, kind: str) -> ConversationEncoder:
    """An encoder with the template `name` for a tiny checkpoint."""
    config, processor = {**OTHERS, **UNTRAINED}[kind]()
    processor.chat_template = trl_template(name)
    return ConversationEncoder(processor, config)


def two_turns(encoder: ConversationEncoder, said: str) -> Conversation:
    pixels = np.zeros((224, 224, 3), np.uint8)  # which suits all families
    conversation = Conversation("q", [Message("system", "You are in a room."), Message.of_views("Where?", pixels)])
    conversation.append(Message("assistant", said, tokens=tuple(encoder.reply_ids(said))))
    conversation.append(Message.of_views("You moved.", pixels))
    return conversation


def as_words(text: str, dropped: str = "") -> list[str]:
    """A text without what stands for images, without blanks, and without what the template drops."""
    if dropped:  # which stays before the reply to come
        text = text.replace(dropped, "", text.count(dropped) - 1)
    return re.sub(r"(<\|image_pad\|>)+", "<|image_pad|>", text).split()


@pytest.mark.parametrize("name", TEMPLATES)
def test_two_turns_are_those_of_the_hubs_template(name: str):
    kind, appends, opening, dropped = TEMPLATES[name]
    encoder = encoder_of(name, kind)
    assert (not encoder.chat.rewrites, encoder.chat.opening, encoder.chat.dropped) == (appends, opening, dropped)
    if kind.startswith("qwen"):
        conversation = two_turns(encoder, "I turn.")
        ours = encoder._processor.tokenizer.decode(encoder.encode(conversation).ids)
        assert as_words(ours, dropped) == as_words(encoder.text_of(conversation))


@pytest.mark.parametrize("name", THINKING)
def test_thoughts_stay_where_the_template_can_keep_them(name: str, monkeypatch):
    from roomscout.models.transformers import families

    monkeypatch.setattr(families, "FAMILIES", ())  # those of ours ask not to think
    encoder, (appends, opening) = encoder_of(name, "qwen3_5"), THINKING[name]
    assert (not encoder.chat.rewrites, encoder.chat.opening) == (appends, opening)
    if appends:
        conversation = two_turns(encoder, f"{THINK}A wall.\n</think>\n\nI turn.")
        ours = encoder._processor.tokenizer.decode(encoder.encode(conversation).ids)
        assert "A wall." in ours and as_words(ours) == as_words(encoder.text_of(conversation))


def saved(folder: Path, name: str) -> Any:
    """The configuration of a checkpoint, as transformers reads its files."""
    folder.mkdir(exist_ok=True)
    for file in ("config", "preprocessor_config", "generation_config"):
        if file in FILES[name]:
            (folder / f"{file}.json").write_text(json.dumps(FILES[name][file]))
    return AutoConfig.from_pretrained(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_published_configuration_gives_the_published_model(name: str, tmp_path: Path):
    config = saved(tmp_path, name)
    family = family_of(config)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    assert model.get_submodule(LANGUAGE_MODEL) is not None and model.get_submodule(HEAD) is not None
    if (published := FILES[name]["parameters"]) is not None:
        assert sum(each.numel() for each in model.parameters()) == published
    if sizes := CHECKPOINTS.get(FILES[name]["id"]):
        with torch.device("meta"):
            known = AutoModelForImageTextToText.from_config(make_config(sizes))
        shapes = {each: tuple(weights.shape) for each, weights in model.state_dict().items()}
        assert {each: tuple(weights.shape) for each, weights in known.state_dict().items()} == shapes
    assert family.example in {each["id"] for each in FILES.values()}


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("Qwen")])
def test_a_view_of_default_size_is_not_resized_by_the_published_processor(name: str, tmp_path: Path):
    config = saved(tmp_path, name)
    family, processor = family_of(config), AutoImageProcessor.from_pretrained(tmp_path)
    width, height = family.default_view
    made = processor(images=[Image.new("RGB", (width, height))], return_tensors="pt")
    _, rows, columns = made["image_grid_thw"][0].tolist()
    assert (columns * processor.patch_size, rows * processor.patch_size) == (width, height)
    assert rows * columns // processor.merge_size**2 == family.views.tokens(config, width, height, 1)


PUBLISHED_WEIGHTS = {
    "qwen2_5_vl": ("visual.blocks.0.attn.qkv.weight", "model.layers.0.self_attn.q_proj.weight", "lm_head.weight"),
    "qwen3_vl": ("model.visual.blocks.0.attn.qkv.weight", "model.language_model.layers.0.self_attn.q_proj.weight"),
}
"""Names of weights in the hub's files, as vLLM's and llama.cpp's converters read them."""


@pytest.mark.parametrize("kind", PUBLISHED_WEIGHTS)
def test_weights_with_their_published_names_are_loaded(kind: str, tmp_path: Path):
    from safetensors import safe_open

    folder = write_untrained_family(tmp_path / "tiny", kind)
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert set(PUBLISHED_WEIGHTS[kind]) <= {*file.keys(), "lm_head.weight"}
    _, info = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]


def test_image_tokens_that_differ_are_a_sentence_with_both(tmp_path: Path):
    folder = write_untrained_family(tmp_path / "tiny", "internvl")
    model, processor = AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    model.config.image_token_id, id = 7, processor.image_token_id
    with pytest.raises(ModelError, match=f"its image token is {id}, the model's 7"):
        require_processor(processor, model.config)
