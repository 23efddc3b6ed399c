"""Untrained checkpoints are reproducible and load like any other."""

import filecmp

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor
from untrained_checkpoints import write_untrained_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_untrained_checkpoint(tmp_path_factory.mktemp("untrained") / "checkpoint")


@pytest.fixture(scope="module")
def processor(checkpoint):
    return AutoProcessor.from_pretrained(checkpoint)


def test_the_same_seed_gives_the_same_files(checkpoint, tmp_path):
    again = write_untrained_checkpoint(tmp_path / "again")
    names = [path.name for path in sorted(checkpoint.iterdir())]
    assert filecmp.cmpfiles(checkpoint, again, names, shallow=False)[0] == names


def test_it_loads_through_the_auto_classes_as_qwen3_vl(checkpoint):
    model, info = AutoModelForImageTextToText.from_pretrained(checkpoint, output_loading_info=True)
    assert type(model).__name__ == "Qwen3VLForConditionalGeneration"
    assert not info["missing_keys"] and not info["unexpected_keys"]


def test_any_text_survives_the_tokenizer(processor):
    text = "3 chairs, 1.5 m — 椅子 🙂 \x00 naïve\r\n\t{“x”: ½}"
    assert processor.tokenizer.decode(processor.tokenizer(text)["input_ids"]) == text


def test_the_chat_template_is_chatml(processor):
    chat = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "look"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "seen"}]},
    ]
    assert processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nrules<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>look<|im_end|>\n"
        "<|im_start|>assistant\nseen<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
