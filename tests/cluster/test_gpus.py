"""Runs with --gpus: real processes on this machine's CPU, and which GPUs each would get."""

import os
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from conftest import COMMAND, RoomScans, only_run, results, run_main, scores, trajectories
from waiting import wait_until
from workers import alive, first_part_with, processes_of, started, worker_of

from roomscout.cluster.parts import MOST_QUESTIONS, ChunkQueue, chunks_of
from roomscout.cluster.processes import devices_of
from roomscout.data.questions import Question, load_questions
from roomscout.data.scans import scene_order
from roomscout.edge.dividing import divide
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader

TWO = ("--gpus", "0,1", "--device", "cpu")


SLOW = """
import os, time
from roomscout.agent.policies.controls import RandomPolicy

class Slow(RandomPolicy):
    def decide(self, states):
        time.sleep(float(os.environ.get("TEST_SECONDS_A_TURN", "0")))
        return super().decide(states)
"""
"""The policy of the other runs, which takes its time where the environment says so."""


def begun(rooms: RoomScans, log_root: Path) -> tuple[subprocess.Popen[str], Path]:
    """A slow run in two processes, once a part has two turns; and that part."""
    (log_root / "slow.py").write_text(SLOW)
    flags = (*TWO, "--batch-size", "1", "--policy", f"{log_root / 'slow.py'}:Slow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_SECONDS_A_TURN", "0.2")
        process = started(rooms.command(log_root, *flags), log_root)
    return process, first_part_with(2, process, log_root)


def answers(run: Path) -> list[str | None]:
    return [row["answer"] for row in results(run)]


def test_two_processes_equal_one(six_rooms: RoomScans, one_run: Path, tmp_path: Path):
    ended = run_main(six_rooms.flags(tmp_path, *TWO))
    assert (ended.returncode, "2 parts, 2 at a time" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    run = only_run(tmp_path)
    assert results(run) == results(one_run)
    assert trajectories(run) == trajectories(one_run)
    assert scores(run) == scores(one_run)
    hosts = {RunReader(part).facts.part for part in sorted((run / "parts").glob("*shard*"))}
    assert {str(each) for each in hosts} <= {"part 1 of 2", "part 2 of 2"}  # one that comes late finds nothing left


@pytest.mark.slow
def test_an_interrupt_ends_all_processes_and_the_run_resumes_to_the_same(
    six_rooms: RoomScans, one_run: Path, tmp_path: Path
):
    process, part = begun(six_rooms, tmp_path)
    worker = worker_of(part)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert not alive(worker) and not processes_of(tmp_path)
    last = shlex.split(said.splitlines()[-1])
    assert last == [sys.executable, str(COMMAND), "--continue", str(only_run(tmp_path))]
    assert results(only_run(tmp_path)) != results(one_run)
    ended = run_main(last[2:])
    assert (ended.returncode, "2 parts, 2 at a time" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    assert answers(only_run(tmp_path)) == answers(one_run)


def test_no_process_outlives_a_killed_command_and_its_run_resumes_in_one_process(
    six_rooms: RoomScans, one_run: Path, tmp_path: Path
):
    process, _ = begun(six_rooms, tmp_path)
    process.kill()
    process.wait()
    wait_until(lambda: not processes_of(tmp_path))
    ended = run_main(["--continue", "recent", "--log-root", str(tmp_path), "--gpus", "none"])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert answers(only_run(tmp_path)) == answers(one_run)


@pytest.mark.slow
def test_a_process_that_dies_is_reported_and_the_others_finish(six_rooms: RoomScans, one_run: Path, tmp_path: Path):
    process, part = begun(six_rooms, tmp_path)
    os.kill(worker_of(part), signal.SIGKILL)
    said, _ = process.communicate()
    assert process.returncode == 3, said
    number = RunReader(part).facts.part.number
    assert "The worker on the CPU died (SIGKILL)" in said
    assert f"Part {3 - number}/2 is finished" in said and f"before their end: {number}/2" in said
    assert said.splitlines()[-1] == f"{sys.executable} {COMMAND} --continue {only_run(tmp_path)}"
    assert len(results(only_run(tmp_path))) < len(results(one_run))


def test_no_chunk_is_taken_twice_and_the_last_ones_are_shared(six_rooms: RoomScans, tmp_path: Path):
    questions = load_questions(six_rooms.questions)
    chunks = chunks_of(questions)
    assert {len({each.scene for each in chunk}) for chunk in chunks} == {1}
    assert [each for chunk in chunks for each in chunk] == scene_order(questions)
    queues, taken = [ChunkQueue(tmp_path / "queue", questions, 2) for _ in range(2)], list[Question]()
    assert queues[0].claim(0, 1) and not queues[1].claim(0, 2)
    sizes = []
    with ThreadPoolExecutor(2) as threads:
        while any(found := list(threads.map(ChunkQueue.take, queues, (1, 2), (10, 10)))):
            taken += [*found[0], *found[1]]
            sizes.append(max(map(len, found)))
    assert sorted(each.id for each in taken) == sorted(each.id for chunk in chunks[1:] for each in chunk)
    assert max(sizes) < 10 + MOST_QUESTIONS
    assert {each.id for each in queues[0].taken_by(1)} <= {each.id for each in [*taken, *chunks[0]]}
    queues[0].give_back(1)
    assert not queues[1].taken_by(1) and queues[1].claim(0, 2) and not queues[0].claim(0, 1)


def test_lost_workers_of_one_part_may_claim_at_once(six_rooms: RoomScans, tmp_path: Path):
    """A worker that is taken for lost may still live when another one resumes its part."""
    questions = load_questions(six_rooms.questions)
    chunks = range(len(chunks_of(questions)))
    queues = [ChunkQueue(tmp_path / "queue", questions, 2) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            for chunk in chunks:
                assert all(threads.map(lambda queue, number=chunk: queue.claim(number, 1), queues))
            queues[0].give_back(1)
    assert not list((tmp_path / "queue").iterdir())


@pytest.mark.slow
def test_a_study_loads_its_model_once_for_each_worker(six_rooms: RoomScans, tmp_path: Path):
    model = ("--model", "embedded", "--max-new-tokens", "8", "--steps", "0", "--num-questions", "2", "--no-report")
    asked = ("--questions", str(six_rooms.questions), "--scan-root", str(six_rooms.root), "--renderer", "raycast")
    ended = run_main(["study", "motion", str(tmp_path / "study"), *asked, *model, "--gpus", "0", "--device", "cpu"])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    logs = [part.read_text() for part in tmp_path.glob("**/parts/*/run.log")]
    assert len(logs) == 2 and sum("Loaded the weights" in log for log in logs) == 1


@pytest.mark.slow
def test_a_model_in_two_processes_answers_as_in_one(six_rooms: RoomScans, tmp_path: Path):
    model = ("--model", "embedded", "--steps", "1", "--num-questions", "4", "--max-new-tokens", "16")
    for logs, flags in ((tmp_path / "two", TWO), (tmp_path / "one", ())):
        ended = run_main(six_rooms.flags(logs, *model, *flags))
        assert ended.returncode == 0, ended.stdout + ended.stderr
    two = only_run(tmp_path / "two")
    assert trajectories(two) == trajectories(only_run(tmp_path / "one"))
    parts = [RunReader(part).facts for part in (two / "parts").glob("*shard*")]
    assert RunReader(two).facts.setting("memory_fraction") == 0.9
    assert {part.setting("memory_fraction") for part in parts} == {0.45}


@pytest.mark.parametrize(
    ("changes", "fraction"),
    [({"device": "cpu"}, 0.4), ({"device": "cuda"}, 0.8), ({"device": "cpu", "gpus": "0"}, 0.8)],
)
def test_processes_on_the_cpu_share_its_memory(rooms: RoomScans, tmp_path: Path, changes, fraction):
    values = {"model": "embedded", "memory_fraction": 0.8, "gpus": "0,1"} | changes
    run = divide(rooms.config(tmp_path, **values))
    assert (run.settings | run.of_worker)["memory_fraction"] == fraction


@pytest.mark.parametrize(
    ("mask", "gpus", "each", "devices"),
    [
        (None, ("all",), 1, ["0", "1", "2", "3"]),
        (None, ("2", "0"), 1, ["2", "0"]),
        (None, ("all",), 2, ["0,1", "2,3"]),
        ("4,6,7,5", ("0", "3"), 1, ["4", "5"]),
        ("GPU-a,GPU-b, GPU-c,GPU-d,GPU-beyond", ("all",), 2, ["GPU-a,GPU-b", "GPU-c,GPU-d"]),
    ],
)
def test_each_process_has_its_gpus_of_those_that_are_visible(mask, gpus, each, devices, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    assert devices_of(gpus, "auto", each) == devices
    with pytest.raises(RunError, match=r"^there is no GPU 9: this process sees 4 GPUs") as refused:
        devices_of(("9",), "auto", 1)
    assert refused.value.setting == "gpus"
