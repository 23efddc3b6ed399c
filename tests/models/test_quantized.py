"""Weights that bitsandbytes quantizes as they are loaded; without the package, the sentence that says so."""

import sys
from pathlib import Path

import pytest
import torch
from conftest import RoomScans, run_in_process, run_main, trajectories
from planned import checked
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.base.errors import ConfigError
from roomscout.edge.resolve import resolve
from roomscout.edge.resuming import saved_settings
from roomscout.models.transformers.footprint import Checkpoint, linear_weights
from roomscout.models.transformers.shapes import ModelSizes
from roomscout.models.transformers.weights import load_checkpoint
from roomscout.runs.reader import RunReader

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Wide enough that NF4 saves memory, and with shapes in the image encoder that are no multiples of its blocks."""
    return str(write_untrained_checkpoint(tmp_path_factory.mktemp("wide"), sizes=ModelSizes(hidden=128, head_dim=32)))


@pytest.mark.parametrize("quantize", ["4bit", "8bit"])
def test_the_plan_knows_which_weights_are_quantized(checkpoint: str, quantize: str):
    loaded, _ = load_checkpoint(checkpoint, torch.float32, CPU, quantize)
    plain, _ = load_checkpoint(checkpoint, torch.float32, CPU)
    made = {f"{name}.weight" for name, each in loaded.named_modules() if type(each).__module__.startswith("bitsand")}
    assert made == linear_weights(plain).keys()
    planned = Checkpoint(checkpoint, "cpu", "float32").footprint(1, quantize).weight_bytes
    assert planned == pytest.approx(loaded.get_memory_footprint(return_buffers=False), rel=0.06)


def test_quantized_weights_change_answers_and_cannot_change_in_a_run(rooms: RoomScans, checkpoint: str, tmp_path: Path):
    few = {"model": checkpoint, "num_questions": 2, "steps": 1, "max_new_tokens": 12, "renderer": "blind"}
    runs = {
        name: run_in_process(rooms.config(tmp_path / str(name), quantize=name, **few))
        for name in (None, "4bit", "8bit")
    }
    assert trajectories(runs[None]) != trajectories(runs["4bit"])
    assert ", dtype=float32, quantize=4bit, " in RunReader(runs["4bit"]).facts.protocol
    with pytest.raises(ConfigError, match="--quantize would change answers of this run"):
        resolve({"quantize": "8bit"}, saved_settings(RunReader(runs["4bit"])))


def test_without_bitsandbytes_the_run_is_refused_before_weights_are_loaded(
    rooms: RoomScans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    ended = run_main(rooms.flags(tmp_path, "--model", "embedded", "--quantize", "4bit"))
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert ended.stderr.startswith('error: --quantize needs the package bitsandbytes: pip install "roomscout[quanti')


def test_compiled_steps_are_refused_on_a_cpu(rooms: RoomScans, tmp_path: Path):
    ended = run_main(rooms.flags(tmp_path, "--model", "embedded", "--compile", "--device", "cpu"))
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert ended.stderr.startswith("error: --compile: only for CUDA: on the cpu, runs with compiled steps take longer")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "openai", "base_url": ("http://h/v1",)}, "--quantize 4bit needs --engine transformers"),
        ({"engine": "vllm"}, "--quantize 4bit needs --engine transformers"),
        ({"compile": True}, "--quantize 4bit conflicts with --compile"),
        ({"adapter": Path("a")}, "--quantize 4bit conflicts with --adapter"),
        ({"policy": "random"}, "--quantize 4bit conflicts with --policy"),
    ],
)
def test_what_cannot_be_quantized_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        checked(quantize="4bit", **settings)
