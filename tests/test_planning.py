"""Sizes of runs, from configurations alone: no weights exist anywhere in these tests."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import RoomScans, run_command
from transformers import AutoModelForImageTextToText, Qwen3VLConfig, Qwen3VLMoeConfig

from agent.backends import footprint as footprints
from agent.backends.footprint import Footprint, Rates, Work, footprint, measure_rates, work_of
from agent.backends.untrained import write_untrained_checkpoint
from agent.evaluation import questions_of
from agent.planning import ConversationSize, best_seconds, conversation_size, fitting_batch, plan_lines, plan_run

GIB = 2**30
EIGHT_TURNS = ConversationSize(
    first_text_tokens=700, turn_text_tokens=160, image_tokens=414, reply_tokens=200, turns=8
)  # fmt: skip


@pytest.fixture(scope="module")
def shape_8b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of Qwen3-VL-8B without its weights, with the embedded checkpoint's tokenizer."""
    folder = tmp_path_factory.mktemp("shape_8b")
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False,
        },
        vision_config={
            "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096,
            "patch_size": 16, "spatial_merge_size": 2, "deepstack_visual_indexes": [8, 16, 24],
        },
        tie_word_embeddings=False,
    )  # fmt: skip
    config.save_pretrained(folder)
    for path in write_untrained_checkpoint(folder / "small").glob("*token*"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_the_8b_shape_has_its_published_size(shape_8b: Path):
    sizes = footprint(str(shape_8b), "bfloat16", "cpu")
    assert sizes.parameters == pytest.approx(8.77e9, rel=0.005)
    assert sizes.weight_bytes == 2 * sizes.parameters
    assert sizes.work.kv_bytes_per_token == 144 * 1024
    assert sizes.image_tokens(640, 480) == 300


def test_a_question_takes_the_bytes_of_all_its_tokens():
    assert EIGHT_TURNS.tokens == 700 + 7 * 160 + 8 * (414 + 200)


@pytest.mark.parametrize(
    ("budget", "questions", "size"),
    [(61 * GIB, 1000, 61), (0, 9, 1), (GIB // 2, 9, 1), (10**15, 9, 9), (10**15, 999, 64)],
)
def test_the_batch_fills_its_share_and_is_never_empty_nor_larger_than_sense(budget: int, questions: int, size: int):
    assert fitting_batch(budget, GIB, questions) == size


@pytest.mark.parametrize(
    ("asked", "free_gib", "size", "warned"),
    [("auto", 10, 3, False), (2, 10, 2, False), (5, 10, 5, True), ("auto", 5.9, 1, True), ("auto", 3, 1, True)],
)
def test_the_plan_shares_out_what_is_free_beside_the_weights(
    rooms: RoomScans, shape_8b: Path, tmp_path, monkeypatch, asked, free_gib, size, warned
):
    """4 GiB of weights and 1 GiB a question: of 10 GiB half of the 6 beside them is for keys and values."""
    config = rooms.config(tmp_path, model=str(shape_8b), batch_size=asked)
    questions = questions_of(config)
    sizes = Footprint("cpu", "float32", 10**9, 4 * GIB, Work(10**9, 10**9, 2, 0), 32, 4, int(free_gib * GIB))
    tokens = conversation_size(config, questions, sizes).tokens
    sizes = replace(sizes, work=replace(sizes.work, kv_bytes_per_token=GIB // tokens))
    monkeypatch.setattr(footprints, "footprint", lambda *_: sizes)
    plan = plan_run(config, questions)
    assert plan.batch_size == size
    assert ("MORE than fits" in plan.why) == warned


def test_the_plan_counts_the_weights_of_compiled_programs(rooms: RoomScans, shape_8b: Path, tmp_path, monkeypatch):
    """1 GiB of weights that two programs hold too: of 10 GiB half of the 7 beside them is for keys and values."""
    config = rooms.config(tmp_path, model=str(shape_8b), device="cpu", compile=True)
    sizes = Footprint("cpu", "float32", 10**9, GIB, Work(10**9, 10**9, 2, 1024), 32, 4, 10 * GIB)
    monkeypatch.setattr(footprints, "footprint", lambda *_: sizes)
    why = plan_run(config, questions_of(config)).why
    assert "3.50 GiB for keys and values" in why and "2.00 GiB for the weights' copies" in why


def test_a_compiler_that_is_not_there_is_missed_before_anything_is_loaded(rooms: RoomScans, shape_8b: Path, tmp_path):
    command = [*rooms.command(tmp_path), "--model", str(shape_8b), "--compile"]
    nowhere = os.environ | {"CXX": str(tmp_path / "c++"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    ended = run_command(command, env=nowhere)
    assert ended.returncode == 2, ended.stderr
    assert "--compile does not work here" in ended.stderr and "install a C++ compiler" in ended.stderr


def test_the_least_time_is_that_of_the_binding_limit():
    model = Footprint("cuda", "bfloat16", 3 * 10**9, 6 * 10**9, Work(10**9, 10**9, 2, 0), 32, 4, 0)
    one = ConversationSize(0, 0, image_tokens=0, reply_tokens=100, turns=1)
    reading = best_seconds(model, Rates(1e12, 1e18), one, rows_of_turn=[4], questions=8)
    computing = best_seconds(model, Rates(1e18, 1e12), one, rows_of_turn=[4], questions=8)
    assert reading == pytest.approx(2 * 100 * 2e9 / 1e12)
    assert computing == pytest.approx(8 * 100 * 2e9 / 1e12)


def test_the_least_time_counts_what_a_token_passes_through(shape_8b: Path):
    """8.77 billion parameters, of which a token of text passes neither the encoder nor the table of input vectors."""
    work = footprint(str(shape_8b), "bfloat16", "cpu").work
    assert work.token_parameters == pytest.approx(7.57e9, rel=0.005)
    encoder, mergers = 0.576e9, 4 * 39e6
    assert work.patch_parameters == pytest.approx(encoder - mergers * 3 / 4, rel=0.03)
    one = ConversationSize(700, 160, image_tokens=300, reply_tokens=200, turns=8)
    model = Footprint("cuda", "bfloat16", 0, 0, work, 32, 4, 0)
    rates = Rates(bytes_per_s=4.2e12, flop_per_s=700e12)
    assert best_seconds(model, rates, one, [1] * 8, 1) == pytest.approx(1600 * 2 * 7.57e9 / 4.2e12, rel=0.1)


def test_of_a_mixture_only_the_experts_count_that_a_token_is_sent_to():
    text = {
        "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "moe_intermediate_size": 24,
        "num_experts": 8, "decoder_sparse_step": 1,
    }  # fmt: skip
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    sizes = []
    for experts in (2, 4):
        config = Qwen3VLMoeConfig(
            text_config={**text, "num_experts_per_tok": experts},
            vision_config={**vision, "deepstack_visual_indexes": [0]},
        )
        with torch.device("meta"):
            sizes.append(work_of(AutoModelForImageTextToText.from_config(config), 2).token_parameters)
    assert sizes[1] - sizes[0] == 2 * 2 * 3 * 32 * 24  # two more in each of two layers, of three matrices each


def test_rates_are_measured_on_the_device():
    rates = measure_rates("cpu", "float32")
    assert rates.bytes_per_s > 1e8
    assert rates.flop_per_s > 1e8


def test_a_device_without_room_to_measure_in_still_has_a_plan(rooms: RoomScans, shape_8b: Path, tmp_path, monkeypatch):
    monkeypatch.setitem(footprints._COPY_BYTES, "cpu", 2**50)
    config = rooms.config(tmp_path, model=str(shape_8b), device="cpu")
    assert plan_lines(config, questions_of(config))[-1].startswith("Time: not known, too little memory")


def test_a_plan_is_printed_and_nothing_is_loaded_or_written(rooms: RoomScans, shape_8b: Path, tmp_path: Path):
    ended = run_command([*rooms.command(tmp_path), "--model", str(shape_8b), "--plan"])
    assert (ended.returncode, list(tmp_path.iterdir())) == (0, []), ended.stderr
    for words in (f"Questions: {len(rooms.rows)} on 2 scans", "Images: 72", "Tokens:", "Batch size", "at best"):
        assert words in ended.stdout
