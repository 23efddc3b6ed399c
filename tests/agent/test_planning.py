"""Plans need only configurations: no test here has weights."""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from conftest import RoomScans, questions_and_prompts, run_command
from transformers import AutoModelForImageTextToText, Qwen3VLConfig, Qwen3VLMoeConfig
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.agent.builders import questions_of
from roomscout.agent.config import ModelSettings, RunConfig, ScheduleSettings
from roomscout.agent.planning import (
    card_lines,
    conversation_size,
    fitting_batch,
    gpus_to_split,
    plan_lines,
    plan_run,
)
from roomscout.agent.policies.prompts import prompts_of
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.startup import warn_of_short_replies
from roomscout.agent.timing import (
    PACES,
    ROOFLINE,
    CallGroup,
    ConversationSize,
    as_time,
    expected_run_shape,
    longest_run_shape,
    run_seconds,
    scheduled_calls,
)
from roomscout.command.main import main
from roomscout.models import ModelError
from roomscout.models.gpus import GPUS, RESERVED_BYTES, GpuName
from roomscout.models.transformers import footprint as footprints
from roomscout.models.transformers.devices import usable_bytes
from roomscout.models.transformers.footprint import (
    Footprint,
    Rates,
    Work,
    footprint,
    footprint_on,
    measure_rates,
    rates_of,
    work_of,
)
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


def test_a_conversation_counts_all_its_tokens():
    assert EIGHT_TURNS.tokens == 700 + 7 * 160 + 8 * (414 + 200)


@pytest.mark.parametrize(("budget", "most", "size"), [(61 * GIB, 64, 61), (0, 9, 1), (GIB // 2, 9, 1), (10**15, 9, 9)])
def test_the_batch_fills_the_budget_within_its_limits(budget: int, most: int, size: int):
    assert fitting_batch(budget, GIB, most) == size


@pytest.mark.parametrize(
    ("asked", "most", "free_gib", "size", "warned"),
    [
        ("auto", 64, 10, 3, False),
        ("auto", 2, 10, 2, False),
        (2, 64, 10, 2, False),
        (5, 64, 10, 5, True),
        ("auto", 64, 5.9, 1, True),
        ("auto", 64, 3, 1, True),
    ],
)
def test_the_batch_size_follows_from_the_memory_beside_the_weights(
    rooms: RoomScans, shape_8b: Path, tmp_path, monkeypatch, asked, most, free_gib, size, warned
):
    """4 GiB of weights and 1 GiB per question: of 10 GiB, half of the other 6 are for keys and values."""
    config = rooms.config(tmp_path, model=str(shape_8b), batch_size=asked, max_batch_size=most)
    questions = questions_of(config.what_to_run, config.questions)
    sizes = Footprint(
        "cpu", "float32", 10**9, 4 * GIB, Work(10**9, 10**9, 2, 0, 4, 4), qwen_tokens, 4, int(free_gib * GIB)
    )
    tokens = conversation_size(config, questions, sizes, prompts_of(config.model, config.questions.benchmark)).tokens
    sizes = replace(sizes, work=replace(sizes.work, kv_bytes_per_token=GIB // buffer_columns(tokens)))
    monkeypatch.setattr(footprints, "footprint", lambda *_: sizes)
    plan = plan_run(config, questions, prompts_of(config.model, config.questions.benchmark))
    assert plan.batch_size == size
    assert ("MORE than fits" in plan.why) == warned


def test_the_plan_counts_the_weights_of_compiled_programs(rooms: RoomScans, shape_8b: Path, tmp_path, monkeypatch):
    """1 GiB of weights, copied by two programs: of 10 GiB, half of the other 7 are for keys and values."""
    config = rooms.config(tmp_path, model=str(shape_8b), device="cpu", compile=True)
    sizes = Footprint("cpu", "float32", 10**9, GIB, Work(10**9, 10**9, 2, 1024, 4, 4), qwen_tokens, 4, 10 * GIB)
    monkeypatch.setattr(footprints, "footprint", lambda *_: sizes)
    why = plan_run(config, *questions_and_prompts(config)).why
    assert "3.50 GiB for keys and values" in why and "2.00 GiB for the weights' copies" in why


@pytest.fixture
def large(rooms: RoomScans, shape_8b: Path, tmp_path: Path, monkeypatch) -> RunConfig:
    """A run with a model of 62 GiB on a GPU with 45 GiB free."""
    sizes = Footprint(
        "cuda:0", "bfloat16", 31 * 10**9, 62 * GIB, Work(10**9, 10**9, 2, 1024, 4, 4), qwen_tokens, 4, 45 * GIB
    )
    monkeypatch.setattr(footprints, "footprint", lambda *_: sizes)
    return rooms.config(tmp_path, model=str(shape_8b))


def test_weights_too_large_for_a_gpu_are_refused_before_loading(large: RunConfig):
    with pytest.raises(ModelError, match=r"needs 62.00 GiB for its weights and cuda:0 has 45.00 GiB free: .* one GPU"):
        plan_run(large, *questions_and_prompts(large))


def test_a_plan_reports_weights_that_do_not_fit_and_the_gpus_on_which_they_do(large: RunConfig):
    lines = plan_lines(large.having(plan=True), questions_of(large.what_to_run, large.questions))
    assert lines[-7].startswith("Cannot run: ") and "the model must fit on one GPU" in lines[-7]
    assert lines[-6].startswith("On one GPU, bfloat16")


def test_a_plan_shows_gpus_of_each_usual_size(rooms: RoomScans, shape_8b: Path, tmp_path: Path):
    tables = {}
    for name, changes in {
        "bfloat16": {},
        "4bit": {"quantize": "4bit"},
        "half": {"memory_fraction": 0.5},
        "float32": {"dtype": "float32", "device": "cpu"},
        "two": {"batch_size": 2},
        "capped": {"max_batch_size": 5},
    }.items():
        config = rooms.config(tmp_path, model=str(shape_8b), **changes)
        table = card_lines(config, config.model.dtype, EIGHT_TURNS, 72)
        tables[name] = [re.split(r"\s{2,}", line) for line in table]
        assert [row[0][:6].rstrip() for row in tables[name][1:]] == ["16 GB", "24 GB", "40 GB", "80 GB", "141 GB"]
    batch = {name: [row[4] for row in table[1:]] for name, table in tables.items()}
    usable = {name: [row[1] for row in table[1:]] for name, table in tables.items()}
    weights = {name: table[1][2] for name, table in tables.items()}
    assert batch["bfloat16"][0] == batch["half"][1] == batch["float32"][1] == "does not fit"
    assert batch["4bit"][0].isdecimal() and batch["two"][1:] == ["2", "2", "2", "2"]
    assert [int(size) for size in batch["bfloat16"][1:]] == sorted(map(int, batch["bfloat16"][1:]))
    assert batch["capped"][-1] == "5"
    assert usable["bfloat16"][3] == "71.68 GiB" and usable["half"][3] == "39.82 GiB"
    assert (weights["bfloat16"], weights["4bit"]) == ("16.33 GiB", "6.27 GiB")
    assert tables["float32"][-1][5] == "-" and tables["bfloat16"][-1][5].endswith(("seconds", "minutes"))


def test_quantized_weights_take_what_bitsandbytes_makes_of_them(tmp_path: Path):
    """The bytes of this checkpoint with bitsandbytes 0.50, and the scales of NF4, which it does not count."""
    folder = str(write_untrained_checkpoint(tmp_path, sizes=ModelSizes(hidden=128, head_dim=32)))
    taken = {name: footprint(folder, "float32", "cpu", 1, name).weight_bytes for name in (None, "8bit", "4bit")}
    assert taken == {None: 2663552, "8bit": 1827968, "4bit": 1688704 + 17408}
    reads = {name: footprint(folder, "bfloat16", "cpu", 1, name).work.number_bytes for name in taken}
    assert reads["8bit"] < reads[None] < reads["4bit"]


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
    work = Work(10**9, 10**9, 2, 2**17, 4, 4)
    return Footprint(
        "cuda:0", "bfloat16", 10**9, weights_gib * GIB, work, qwen_tokens, 4, usable_gib * GIB, attention_heads=heads
    )


def test_weights_on_a_cpu_may_stay_on_disk(large: RunConfig, monkeypatch):
    sizes = replace(footprints.footprint(), device="cpu")
    monkeypatch.setattr(footprints, "footprint", lambda *_: sizes)
    assert plan_run(large, *questions_and_prompts(large)).batch_size == 1


@pytest.mark.slow
def test_a_missing_compiler_is_reported_before_loading(rooms: RoomScans, shape_8b: Path, tmp_path):
    command = [*rooms.command(tmp_path), "--model", str(shape_8b), "--compile"]
    nowhere = os.environ | {"CXX": str(tmp_path / "c++"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    ended = run_command(command, env=nowhere)
    assert ended.returncode == 2, ended.stderr
    assert "--compile does not work here" in ended.stderr and "install a C++ compiler" in ended.stderr


def roofline_seconds(model: Footprint, rates: Rates, conversation: ConversationSize, calls: list[CallGroup]) -> float:
    return run_seconds(model, rates, ROOFLINE, conversation, longest_run_shape(conversation), calls)


def test_the_roofline_is_the_binding_limit():
    model = Footprint("cuda", "bfloat16", 3 * 10**9, 6 * 10**9, Work(10**9, 10**9, 2, 0, 4, 4), qwen_tokens, 4, 0)
    one, calls = ConversationSize(0, 0, image_tokens=0, reply_tokens=100, turns=1), [CallGroup(0, rows=4, count=2)]
    assert roofline_seconds(model, Rates(1e12, 1e18), one, calls) == pytest.approx(2 * 100 * 2e9 / 1e12)
    assert roofline_seconds(model, Rates(1e18, 1e12), one, calls) == pytest.approx(8 * 100 * 2e9 / 1e12)


def test_the_roofline_counts_the_parameters_that_a_token_uses(shape_8b: Path):
    """Of the 8.77 billion parameters, a text token uses neither the image encoder nor the embedding table."""
    work = footprint(str(shape_8b), "bfloat16", "cpu").work
    assert work.token_parameters == pytest.approx(7.57e9, rel=0.005)
    encoder, mergers = 0.576e9, 4 * 39e6
    assert work.patch_parameters == pytest.approx(encoder - mergers * 3 / 4, rel=0.03)
    assert (work.layers, work.encoder_layers) == (36, 27)
    one = ConversationSize(700, 160, image_tokens=300, reply_tokens=200, turns=8)
    model, rates = (
        Footprint("cuda", "bfloat16", 0, 0, work, qwen_tokens, 4, 0),
        Rates(bytes_per_s=4.2e12, flop_per_s=700e12),
    )
    alone = [CallGroup(turn, 1, 1) for turn in range(8)]
    assert roofline_seconds(model, rates, one, alone) == pytest.approx(1600 * 2 * 7.57e9 / 4.2e12, rel=0.1)


def test_no_pace_is_faster_than_the_roofline():
    work, rates = Work(10**9, 4 * 10**8, 2, 10**5, 36, 27), Rates(3e12, 700e12)
    for sizes in ((1, 500, 1200, 3000, 200), (64, 32000, 76800, 192000, 200), (4, 0, 0, 9000, 0)):
        least = work.least_seconds(rates, *sizes)
        assert ROOFLINE.call_seconds(work, rates, *sizes) == pytest.approx(least)
        for pace in PACES.values():
            assert pace.call_seconds(work, rates, *sizes) >= least


@dataclass
class Going:
    """A question for the scheduler that ends after some turns."""

    turns: int
    turn: int = 0

    @property
    def is_final(self) -> bool:
        return self.turn == self.turns


@pytest.mark.parametrize(
    ("batched", "few", "refill"),
    [
        (0, 1, False),
        (0, 3, False),
        (4, 1, False),
        (4, 2, False),
        (4, 0, False),
        ("all", 1, False),
        ("all", 0, False),
        ("all", 1, True),
    ],
)
@pytest.mark.parametrize("lengths", [[9] * 12, [1, 3, 5, 7, 9, 9] * 3])
def test_planned_calls_equal_those_of_the_scheduler(batched, few, refill, lengths):
    """Batches of 6. Question lengths repeat with each cohort of 6, so that all cohorts have the same shares.

    Without a concurrency (0 here), the last questions share calls, which is not planned.
    """
    config = RunConfig.of(batch=True, max_batched_turns=batched, concurrency=few or "auto", refill=refill)
    batched_turns = config.schedule.last_batched_turn + 1
    scheduler = Scheduler([Going(turns) for turns in lengths], 6, batched_turns, refill, few or None)
    made = 0
    while scheduler.has_work:
        scheduler.admit()
        for state in scheduler.next_batch() or scheduler.next_few():
            state.turn += 1
        made += 1
    shares = [sum(length > turn for length in lengths) / len(lengths) for turn in range(9)]
    calls = scheduled_calls(config.schedule, len(lengths), 6, shares)
    assert sum(call.rows * call.count for call in calls) == pytest.approx(sum(lengths))
    tail = 2 * len(lengths) / 6 if few != 1 or refill else 0  # the last questions of a cohort leave places empty
    assert made - tail - 1 <= sum(call.count for call in calls) <= made + (1e-9 if few or refill else 2)


def test_remaining_questions_form_a_smaller_cohort():
    calls = scheduled_calls(ScheduleSettings(max_batched_turns="all", concurrency=64), 70, 64, [1.0])
    assert calls == [CallGroup(0, 64, 1), CallGroup(0, 6, 1)]


def test_remaining_questions_fill_places_that_the_last_whole_cohort_leaves():
    assert scheduled_calls(ScheduleSettings(), 96, 64, [1.0]) == [CallGroup(0, 64, 1.5)]
    on_cpu = scheduled_calls(ScheduleSettings(), 96, 64, [1.0], mixes_turns=False)
    assert on_cpu == [CallGroup(0, 64, 1), CallGroup(0, 32, 1)]


def test_turns_are_not_mixed_on_a_cpu():
    work = Work(7_568_405_504, 453_361_456, 2, 147_456, 36, 27)
    for device, mixes in (("cpu", False), ("cuda:0", True), ("h100", True)):
        assert Footprint(device, "bfloat16", 0, 0, work, qwen_tokens, 4, 0).mixes_turns is mixes


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        ({"compile": True}, {}),
        ({"max_batched_turns": "all"}, {"concurrency": 1}),
        ({}, {"concurrency": 8}),
        ({"concurrency": 8}, {"concurrency": 1}),
        ({"concurrency": 1}, {"concurrency": 1, "max_batched_turns": 0}),
        ({}, {"kv_reuse": False}),
        ({}, {"anytime": True}),
        ({"anytime": True}, {"anytime": True, "kv_reuse": False}),
        ({"max_batched_turns": "all", "refill": True}, {"max_batched_turns": "all"}),
    ],
)
def test_the_expected_time_follows_the_schedule(faster: dict, slower: dict):
    work = Work(7_568_405_504, 453_361_456, 2, 147_456, 36, 27)
    model, rates = Footprint("cuda:0", "bfloat16", 0, 0, work, qwen_tokens, 4, 0), Rates(3e12, 790e12)
    conversation = ConversationSize(700, 160, image_tokens=300, reply_tokens=512, turns=9)
    shape = expected_run_shape(conversation)

    def seconds(changes: dict) -> float:
        config = RunConfig.of(batch=True, **changes)
        pace, calls = PACES["cuda", config.model.compile], scheduled_calls(config.schedule, 320, 32, shape.shares)
        reuses, anytime = config.model.kv_reuse, config.controls.anytime
        return run_seconds(model, rates, pace, conversation, shape, calls, reuses, anytime)

    assert seconds(faster) < 0.98 * seconds(slower)


@pytest.mark.parametrize(("questions", "paper_s"), [(1, 44), (8, 45), (32, 48), (64, 62)])
def test_eager_lockstep_on_an_h200_agrees_with_a_separate_estimate(questions: int, paper_s: float):
    """Qwen3-VL-8B, 8 turns of 200 tokens. The estimate assumed 27.5 ms per step until memory bandwidth binds."""
    work = Work(7_568_405_504, 453_361_456, 2, 147_456, 36, 27)
    model = Footprint("cuda:0", "bfloat16", 0, 0, work, qwen_tokens, 4, 0)
    shape = longest_run_shape(EIGHT_TURNS)
    calls = scheduled_calls(ScheduleSettings(steps=7, max_batched_turns="all"), questions, 64, shape.shares)
    pace = replace(PACES["cuda", False], view_s=0.0)
    assert run_seconds(model, Rates(4.3e12, 790e12), pace, EIGHT_TURNS, shape, calls) == pytest.approx(paper_s, rel=0.1)


def test_questions_are_expected_to_take_half_the_turns():
    shape = expected_run_shape(ConversationSize(700, 160, image_tokens=300, reply_tokens=512, turns=9))
    assert shape.turns == pytest.approx(5)
    assert shape.steps(1) == 200 and shape.steps(64) == pytest.approx(320)
    short = expected_run_shape(ConversationSize(700, 160, image_tokens=300, reply_tokens=100, turns=1))
    assert (short.turns, short.steps(64)) == (1, 100)


def test_only_the_active_experts_of_a_mixture_count():
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


def test_a_device_without_memory_to_measure_rates_still_has_a_plan(
    rooms: RoomScans, shape_8b: Path, tmp_path, monkeypatch
):
    monkeypatch.setitem(footprints._COPY_BYTES, "cpu", 2**50)
    config = rooms.config(tmp_path, model=str(shape_8b), device="cpu")
    lines = plan_lines(config, questions_of(config.what_to_run, config.questions))
    assert any(line.startswith("Time: unknown, too little memory") for line in lines)


def test_a_plan_is_printed_and_nothing_is_loaded_or_written(rooms: RoomScans, shape_8b: Path, tmp_path: Path, capsys):
    flags = rooms.flags(tmp_path)
    assert main([*flags, "--model", str(shape_8b), "--plan"]) == 0
    assert list(tmp_path.iterdir()) == []
    printed = capsys.readouterr().out
    for words in (
        f"Questions: {len(rooms.rows)} on 2 scans",
        "Images: at most 72",
        "Tokens:",
        "Batch size",
        "Time expected:",
    ):
        assert words in printed


@pytest.mark.parametrize(
    ("checkpoint", "parameters"), [("2B", 2.13e9), ("4B", 4.44e9), ("8B", 8.77e9)]
)  # published sizes
def test_published_checkpoints_need_no_download_to_be_sized(checkpoint: str, parameters: float):
    sizes = footprint_on("h200", f"Qwen/Qwen3-VL-{checkpoint}-Instruct", "auto")
    assert sizes.parameters == pytest.approx(parameters, rel=0.005)
    assert (sizes.weight_bytes, sizes.dtype) == (2 * sizes.parameters, "bfloat16")
    assert sizes.image_tokens(640, 480) == 300


def test_the_built_in_8b_shape_equals_the_8b(shape_8b: Path):
    known = footprint_on("h100", "Qwen/Qwen3-VL-8B-Instruct", "bfloat16")
    assert known == footprint_on("h100", str(shape_8b), "bfloat16")


@pytest.mark.parametrize("gpu", GPUS)
def test_usable_memory_and_rates_are_below_the_datasheets(gpu: GpuName):
    size_gb = {"h200": 141, "h100": 80, "a100-80": 80, "a100-40": 40, "l40s": 48, "rtx4090": 24, "rtx4080": 16}[gpu]
    assert size_gb * 1e9 < GPUS[gpu].memory_bytes + 1e9 and GPUS[gpu].memory_bytes <= size_gb * GIB
    assert GPUS[gpu].usable_bytes(0.5) == GPUS[gpu].memory_bytes // 2
    assert GPUS[gpu].usable_bytes(0.999) == GPUS[gpu].memory_bytes - RESERVED_BYTES
    assert rates_of(gpu).bytes_per_s < GPUS[gpu].peak_bytes_per_s
    assert rates_of(gpu).flop_per_s < GPUS[gpu].peak_flop_per_s


def test_on_a_cpu_the_memory_fraction_counts_what_the_process_has_taken():
    taken, total, more = psutil.Process().memory_info().rss, psutil.virtual_memory().total, 2**26
    assert usable_bytes(torch.device("cpu"), (taken + more) / total) < 2 * more


@pytest.mark.slow
def test_a_run_on_another_gpu_can_be_planned_offline(rooms: RoomScans, tmp_path: Path):
    flags = ["--plan", "--plan-device", "h100", "--compile", "--model", "Qwen/Qwen3-VL-8B-Instruct"]
    alone = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    ended = run_command([*rooms.command(tmp_path), *flags], env=alone)
    assert ended.returncode == 0, ended.stderr
    for words in (
        "characters a token",
        "Memory on h100: 71.68 GiB usable with",
        "3,015 GB/s",
        "H100 SXM",
        "1.3 times their",
    ):
        assert words in ended.stdout


def test_text_is_counted_if_the_tokenizer_is_present(rooms: RoomScans, shape_8b: Path, tmp_path: Path):
    config = rooms.config(tmp_path, plan=True, plan_device="rtx4090", model=str(shape_8b))
    lines = "\n".join(plan_lines(config, questions_of(config.what_to_run, config.questions)))
    assert "characters a token" not in lines and "Memory on rtx4090: 21.59 GiB usable" in lines


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(4.21, "4.2 seconds"), (83, "83 seconds"), (150, "2.5 minutes"), (2700, "45 minutes"), (9000, "2.5 hours")],
)
def test_times_have_two_digits(seconds: float, words: str):
    assert as_time(seconds) == words


@pytest.mark.parametrize(
    ("model", "settings", "warned"),
    [
        ("Qwen/Qwen3-VL-8B-Thinking", {}, True),
        ("moonshotai/Kimi-VL-A3B-Thinking-2506", {}, True),
        ("deepseek-r1:32b", {}, True),
        ("o3", {}, True),
        ("gpt-5-mini", {}, True),
        ("Phi-4-reasoning-vision", {}, True),
        ("QVQ-72B-Preview", {}, True),
        ("Qwen/Qwen3-VL-8B-Thinking", {"max_new_tokens": 600}, False),
        ("Qwen/Qwen3-VL-8B-Instruct", {}, False),
        ("gpt-4o", {}, False),
        ("pro1-r12", {}, False),
        ("model-nonthinking", {}, False),
        ("model-non-thinking", {}, False),
        ("embedded", {}, False),
    ],
)
def test_a_model_that_is_named_like_one_that_reasons_is_given_advice_on_its_replies(
    model: str, settings: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
):
    warn_of_short_replies(ModelSettings(model=model, **settings))
    text = f"{model} seems to reason before it replies, and replies end after 512 tokens: add --max-new-tokens 8192"
    assert (text in caplog.text) == warned
    assert bool(caplog.records) == warned
