"""What GPUs did, as NVIDIA's library tells it; a stand-in for it is in tests/fixtures/fake_nvml."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import enumerate as threads
from time import sleep
from typing import Any

import pytest

from roomscout.models import gpus
from roomscout.models.gpus import chosen_gpus, sampled_gpus

FAKE = Path(__file__).parents[1] / "fixtures" / "fake_nvml"


@pytest.fixture
def fake_nvml(monkeypatch) -> Iterator[None]:
    """A machine with two GPUs, sampled at once."""
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "EVERY_S", 0.01)
    monkeypatch.setattr(gpus, "SAMPLES_PER_LINE", 3)
    yield
    sys.modules.pop("pynvml", None)


def sampled(device: str = "auto", count: int = 1, at_least: int = 1) -> list[dict[str, Any]]:
    """The lines that are written until each GPU has a sample, or the sampler has ended without one."""
    lines: list[dict[str, Any]] = []
    with sampled_gpus(device, count, lines.append):
        while len(lines) < at_least and any(each.name == "gpu-sampler" for each in threads()):
            sleep(0.005)
    return lines


@pytest.mark.parametrize(
    ("visible", "device", "count", "entries"),
    [
        (None, "auto", 1, ["0"]),
        (None, "cuda:1", 1, ["1"]),
        (None, "cpu", 1, []),
        (None, "auto", 2, ["0", "1"]),
        ("1", "cuda", 1, ["1"]),
        ("1,0", "cuda:1", 1, ["0"]),
        ("GPU-22222222-bbbb", "auto", 1, ["GPU-22222222-bbbb"]),
        ("MIG-33333333-cccc, 0", "cuda:1", 1, ["0"]),
        ("0,-1,1", "auto", 3, ["0"]),
        ("", "auto", 1, []),
        ("-1", "cuda", 1, []),
        ("NoDevFiles", "auto", 1, []),
        ("0", "cuda:1", 1, []),
    ],
)
def test_the_gpus_are_those_that_cuda_would_choose(monkeypatch, visible, device, count, entries):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert chosen_gpus(device, count) == entries


@pytest.mark.usefixtures("fake_nvml")
def test_each_gpu_of_several_has_its_lines():
    lines = sampled(count=2, at_least=4)
    assert {each["gpu"] for each in lines} == {"0", "1"}
    assert all(len(each["memory_mib"]) == 3 for each in lines[:4]), "a line has several samples"


@pytest.mark.usefixtures("fake_nvml")
@pytest.mark.parametrize(
    "variables", [{"FAKE_NVML": "broken"}, {"CUDA_VISIBLE_DEVICES": "7"}, {"CUDA_VISIBLE_DEVICES": "GPU-"}]
)
def test_without_a_gpu_nothing_is_sampled_and_the_log_says_so_once(monkeypatch, caplog, variables):
    caplog.set_level("DEBUG", "roomscout")
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    assert sampled() == []
    assert [record.levelno for record in caplog.records if record.name == gpus.__name__] == [logging.DEBUG]
