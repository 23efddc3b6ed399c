"""What the hardware did in a run: seconds by part, what its engine waited for, and its GPUs."""

import runpy
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import RoomScans, run_in_process, run_main
from scripted_model import ScriptedBackend, random_policy

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.state import QuestionState
from roomscout.analysis.report.writer import write_report
from roomscout.models import Reply, ReplyFormat
from roomscout.models.conversation import Conversation
from roomscout.runs.hardware import HARDWARE_FILE, bottleneck
from roomscout.runs.merge import merge
from roomscout.runs.reader import RunReader

FAKE = Path(__file__).parents[1] / "fixtures" / "fake_nvml" / "pynvml.py"
NOTHING = dict.fromkeys(("preprocess", "prefill", "decode", "replies", "wait_views", "wait_other", "render"), 0.0)


class Engine(ScriptedBackend):
    """An engine whose calls take a moment, which it splits into prefill and decoding unless it is a server."""

    def __init__(self, concurrent: bool = False) -> None:
        super().__init__(random_policy())
        self.concurrent = concurrent

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        time.sleep(0.02)
        split = {} if self.concurrent else {"prefill_seconds": 0.005, "decode_seconds": 0.015}
        texts = [each.text for each in super().generate(conversations, reply_format)]
        return [Reply(text, generated_tokens=8, seconds=0.02, **split) for text in texts]


def summary_of(folder: Path) -> dict[str, Any]:
    found = RunReader(folder).summary.to_json()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (
            {"prefill": 10, "decode": 50, "wait_views": 34, "wait_other": 6, "render": 90},
            "The bottleneck is decoding (50 % of the time); the GPU waited 34 % for views",
        ),
        ({"replies": 91, "render": 9}, "The bottleneck is waiting for replies (91 % of the time); views took 9 %"),
        ({}, ""),
    ],
)
def test_the_bottleneck_is_what_took_most_of_the_time(seconds, sentence):
    assert bottleneck(NOTHING | seconds, "the GPU") == sentence


def test_a_run_in_lockstep_records_what_its_engine_waited_for(rooms: RoomScans, tmp_path: Path):
    folder = run_in_process(rooms.config(tmp_path, batch_size=3, steps=2, device="cpu"), ModelPolicy(Engine()))
    reader, summary = RunReader(folder), summary_of(folder)
    assert all(turn.seconds.wait_views + turn.seconds.wait_other > 0 for turn in reader.all_turns())
    waited = {(turn.batch, turn.turn, turn.seconds.wait_views, turn.seconds.wait_other) for turn in reader.all_turns()}
    assert len(waited) == summary["cost"]["generate_calls"], "the questions of a batch waited together"
    found, session = summary["hardware"], summary["sessions"][0]["seconds"]
    calls = [value for part, value in found["seconds"].items() if part not in ("render", "write")]
    assert sum(calls) <= session and found["seconds"]["wait_views"] > 0
    assert "the engine waited" in found["bottleneck"] and found["bottleneck"].endswith("% for views")
    assert 0.02 <= found["turn_seconds"]["median"] <= found["turn_seconds"]["p95"]
    assert found["tokens_per_second"] == pytest.approx(8 * found["mean_batch"] / 0.02, rel=0.01)
    assert (found["mean_batch"], found["batch_fill"]) == (summary["cost"]["mean_batch"], summary["cost"]["batch_fill"])
    assert "gpus" not in found and not (folder / HARDWARE_FILE).exists()


def test_the_wait_for_a_turn_is_that_before_its_reply_and_not_before_its_forced_answer(
    rooms: RoomScans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    at_once = QuestionState.take_turn

    def slowly(*args: Any) -> Any:
        time.sleep(0.05)
        return at_once(*args)

    monkeypatch.setattr(QuestionState, "take_turn", slowly)
    config = rooms.config(tmp_path, batch_size=3, steps=2, device="cpu", anytime=True)
    turns = RunReader(run_in_process(config, ModelPolicy(Engine()))).all_turns()
    later = [turn.seconds.wait_views for turn in turns if turn.turn]  # first views are made ahead
    assert later and min(later) > 0.01


def test_gpus_are_sampled_survive_a_resume_and_a_merge_and_are_shown(rooms: RoomScans, tmp_path: Path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**runpy.run_path(str(FAKE))))
    parts = []
    for part in ("1/2", "2/2"):
        ended = run_main(rooms.flags(tmp_path / "parts", "--steps", "1", "--name", "run", "--shard", part))
        assert (ended.returncode, ended.stderr) == (0, "")
        parts.append(tmp_path / "parts" / f"run_shard{part.replace('/', 'of')}")
    first = RunReader(parts[0])
    before = first.gpu_samples
    assert {each.name for each in before} == {"Fake GPU"} and before[0].utilisation_percent[0] == 70
    gpus = summary_of(parts[0])["hardware"]["gpus"]
    assert gpus["memory_mib"] == {"mean": 20480.0, "max": 20480} and gpus["power_w"]["max"] == 312
    (parts[0] / "results.jsonl").unlink()
    (parts[0] / HARDWARE_FILE).write_text((parts[0] / HARDWARE_FILE).read_text() + '{"at": "torn')
    again = rooms.flags(tmp_path / "parts", "--continue", str(parts[0]), "--shard", "1/2")
    assert run_main(again).returncode == 0
    assert first.gpu_samples[: len(before)] == before and len(first.gpu_samples) > len(before)
    merge(tmp_path / "merged", parts)
    both = [*first.gpu_samples, *RunReader(parts[1]).gpu_samples]
    assert RunReader(tmp_path / "merged").gpu_samples == both
    page = write_report(tmp_path / "merged").path.read_text()
    assert "Fake GPU" in page and "busy 70 % of the time" in page
