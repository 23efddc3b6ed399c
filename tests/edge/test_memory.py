"""Plans need no weights: no test here has any, but their names and shapes."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import RoomScans
from planned import memory_plan, spec_of
from transformers import AutoModelForImageTextToText, Qwen3VLConfig
from untrained_checkpoints import write_untrained_checkpoint

from explorer.untrained import make_processor, vision_ids
from roomscout.command.main import main
from roomscout.edge.memory import ConversationSize, fitting_batch, gpus_to_split
from roomscout.edge.settings import Settings
from roomscout.models import ModelError
from roomscout.models.transformers.footprint import Checkpoint, Footprint
from roomscout.models.transformers.kv_cache import buffer_columns
from roomscout.models.transformers.shapes import ModelSizes

GIB = 2**30


def qwen_tokens(width: int, height: int) -> int:
    return (width // 32) * (height // 32)


EIGHT_TURNS = ConversationSize(
    first_text_tokens=700, turn_text_tokens=160, image_tokens=414, reply_tokens=200, turns=8
)  # fmt: skip


@pytest.fixture(scope="module")
def shape_8b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of Qwen3-VL-8B, with a small tokenizer, and a file with holes for its weights."""
    folder = tmp_path_factory.mktemp("shape_8b")
    processor = make_processor(1024)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False,
        },
        vision_config={
            "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096,
            "patch_size": 16, "spatial_merge_size": 2, "deepstack_visual_indexes": [8, 16, 24],
        },
        tie_word_embeddings=False, **vision_ids(processor.tokenizer),
    )  # fmt: skip
    config.save_pretrained(folder)
    processor.save_pretrained(folder)
    with torch.device("meta"):
        weights = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16).state_dict()
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, weight in weights.items():
        header[name] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": [end, end + weight.nbytes]}
        end += weight.nbytes
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)
    return folder


@pytest.mark.parametrize(("budget", "most", "size"), [(61 * GIB, 64, 61), (0, 9, 1), (GIB // 2, 9, 1), (10**15, 9, 9)])
def test_the_batch_fills_the_budget_within_its_limits(budget: int, most: int, size: int):
    assert fitting_batch(budget, GIB, most) == size


@pytest.mark.parametrize(
    ("asked", "most", "free_gib", "size", "warned"),
    [
        ("auto", 64, 10, 3, False),
        ("auto", 2, 10, 2, False),
        (5, 64, 10, 5, True),
        ("auto", 64, 5.9, 1, True),
    ],
)
def test_the_batch_size_follows_from_the_memory_beside_the_weights(
    rooms: RoomScans, shape_8b: Path, tmp_path, monkeypatch, asked, most, free_gib, size, warned
):
    """4 GiB of weights and 1 GiB per question: of 10 GiB, half of the other 6 are for keys and values."""
    chosen = {"batch_size": asked, "max_batch_size": most}
    config = rooms.config(tmp_path, model=str(shape_8b), image_size=(160, 96), **chosen)
    sizes = Footprint("cpu", "float32", 10**9, 4 * GIB, 0, qwen_tokens, int(free_gib * GIB))
    monkeypatch.setattr(Checkpoint, "footprint", lambda *_: sizes)
    size_of_one = memory_plan(config).conversation
    assert size_of_one is not None
    per_token = GIB // buffer_columns(size_of_one.tokens)
    sizes = replace(sizes, kv_bytes_per_token=per_token)
    plan = memory_plan(config)
    assert plan.batch_size == size
    assert ("MORE than fits" in plan.why) == warned


@pytest.fixture
def large(rooms: RoomScans, shape_8b: Path, tmp_path: Path, monkeypatch) -> Settings:
    """A run with a model of 62 GiB on a GPU with 45 GiB free."""
    sizes = Footprint("cuda:0", "bfloat16", 31 * 10**9, 62 * GIB, 1024, qwen_tokens, 45 * GIB)
    monkeypatch.setattr(Checkpoint, "footprint", lambda *_: sizes)
    return rooms.config(tmp_path, model=str(shape_8b))


def test_weights_too_large_for_a_gpu_are_refused_before_loading(large: Settings):
    with pytest.raises(ModelError, match=r"needs 62.00 GiB for its weights and cuda:0 has 45.00 GiB free: .* one GPU"):
        memory_plan(large)


def test_a_plan_reports_weights_that_do_not_fit(large: Settings):
    plan = memory_plan(large, previews=True)
    assert not plan.fits and plan.why.startswith("Cannot run: ") and "the model must fit on one GPU" in plan.why


def test_quantized_weights_take_what_bitsandbytes_makes_of_them(tmp_path: Path):
    """The bytes of this checkpoint with bitsandbytes 0.50, and the scales of NF4, which it does not count."""
    folder = str(write_untrained_checkpoint(tmp_path, sizes=ModelSizes(hidden=128, head_dim=32)))
    taken = {
        name: Checkpoint(folder, "cpu", "float32").footprint(1, name).weight_bytes for name in (None, "8bit", "4bit")
    }
    assert taken == {None: 2663552, "8bit": 1827968, "4bit": 1688704 + 17408}


@pytest.mark.parametrize(
    ("weights_gib", "usable_gib", "visible", "heads", "gpus"),
    [(16, 72, 8, 32, 1), (62, 36, 8, 32, 2), (145, 72, 8, 64, 4), (145, 72, 6, 64, 4), (62, 40, 8, 28, 2)],
)
def test_vllm_gets_the_fewest_gpus_that_fit(weights_gib, usable_gib, visible, heads, gpus):
    sizes = sized(weights_gib, usable_gib, heads)
    assert gpus_to_split("big", sizes, EIGHT_TURNS, visible) == gpus
    assert gpus_to_split("big", replace(sizes, device="cpu"), EIGHT_TURNS, 0) == 1


@pytest.mark.parametrize(("visible", "heads"), [(1, 64), (3, 64), (8, 2)])
def test_a_model_that_no_split_fits_is_refused_in_a_sentence(visible: int, heads: int):
    with pytest.raises(ModelError, match=r"--tensor-parallel-size auto: big needs .* attention heads: use more"):
        gpus_to_split("big", sized(145, 72, heads), EIGHT_TURNS, visible)


def sized(weights_gib: int, usable_gib: int, heads: int) -> Footprint:
    return Footprint(
        "cuda:0", "bfloat16", 10**9, weights_gib * GIB, 2**17, qwen_tokens, usable_gib * GIB, attention_heads=heads
    )


def test_a_plan_is_printed_and_nothing_is_loaded_or_written(rooms: RoomScans, shape_8b: Path, tmp_path: Path, capsys):
    assert main(rooms.flags(tmp_path, "--model", str(shape_8b), "--plan", "--image-size", "auto")) == 0
    assert list(tmp_path.iterdir()) == []
    printed = capsys.readouterr().out
    assert f"Questions: {len(rooms.rows)} on 2 scans" in printed
    assert "Images: at most 72" in printed and "Batch size" in printed


@pytest.mark.parametrize(
    ("model", "settings", "warned"),
    [
        ("Qwen/Qwen3-VL-8B-Thinking", {}, True),
        ("o3", {}, True),
        ("Qwen/Qwen3-VL-8B-Thinking", {"max_new_tokens": 600}, False),
        ("Qwen/Qwen3-VL-8B-Instruct", {}, False),
        ("model-non-thinking", {}, False),
        ("embedded", {}, False),
    ],
)
def test_a_model_that_is_named_like_one_that_reasons_is_given_advice_on_its_replies(
    model: str, settings: dict[str, Any], warned: bool, rooms: RoomScans, tmp_path: Path, caplog
):
    server = {"engine": "openai", "base_url": "http://127.0.0.1:9/v1", "model": model}
    spec_of(rooms.config(tmp_path, **server, **settings))
    assert (f"{model} seems to reason before it replies: add --max-new-tokens" in caplog.text) == warned
