"""Runs on a Ray cluster of this machine: make test-ray installs ray and runs these tests, make test leaves them out."""

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, RoomScans, only_run, results, run_command, scores, trajectories
from waiting import wait_until
from workers import alive, first_part_with, kill_all, processes_of, started, turns_in, wait_for, worker_of

from roomscout.cluster.processes import WatchedProcess
from roomscout.cluster.ray_cluster import Cluster, Replicas, message

pytestmark = pytest.mark.ray

IMPATIENT = """
import functools, sys
from roomscout.agent.console import log_to_console
from roomscout.cluster.in_parts import answer_in_parts
from roomscout.command import eval as evaluation
from roomscout.command import resume
from roomscout.command.words import in_verbs

log_to_console()
impatient = functools.partial(answer_in_parts, no_node_for_s=15.0)
evaluation.answer_in_parts = resume.answer_in_parts = impatient
verb, *arguments = in_verbs(sys.argv[1:])
sys.exit({"eval": evaluation.main, "resume": resume.main}[verb](arguments))
"""
"""The command, except that it waits only 15 seconds for a live node."""


def impatient(command: list[str]) -> list[str]:
    """The same command, run by IMPATIENT."""
    return [sys.executable, "-c", IMPATIENT, *command[2:]]


def slow(rooms: RoomScans, log_root: Path) -> list[str]:
    """A run with two workers that takes a minute: large views."""
    return [
        *rooms.command(log_root, "--ray", "--replicas", "2", "--batch-size", "1"),
        "--image-size", "1600", "1200", "--focal", "750",
    ]  # fmt: skip


def lose_node(log_root: Path) -> None:
    """Kill the node of a cluster on this machine, and its workers, which outlive it by some seconds."""
    kill_all(processes_of(log_root, "raylet/raylet"))
    for worker in processes_of(log_root, "ray::Worker"):
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def lose_driver(log_root: Path) -> None:
    """Kill the process through which the command talks to Ray."""
    kill_all(processes_of(log_root, "roomscout.cluster.ray_driver"))


def test_two_actors_equal_one_process_also_when_one_is_killed(
    six_rooms: RoomScans,
    one_run: Path,
    tmp_path: Path,
):
    process = started(six_rooms.command(tmp_path, "--ray", "--replicas", "2", "--batch-size", "1"), tmp_path)
    os.kill(worker_of(first_part_with(2, process, tmp_path)), signal.SIGKILL)
    said, _ = process.communicate()
    assert (process.returncode, said.count("another one has resumed it")) == (0, 1), said
    assert results(only_run(tmp_path)) == results(one_run)
    assert trajectories(only_run(tmp_path)) == trajectories(one_run)
    assert scores(only_run(tmp_path)) == scores(one_run)


def test_an_interrupted_run_leaves_no_process_and_resumes_to_the_same_without_its_question_file(
    six_rooms: RoomScans,
    one_run: Path,
    tmp_path: Path,
):
    own = replace(six_rooms, questions=Path(shutil.copy(six_rooms.questions, tmp_path / "own.jsonl")))
    command = own.command(tmp_path, "--ray", "--replicas", "2", "--batch-size", "1", "--datasets", "scannet")
    process = started(command, tmp_path)
    worker = worker_of(first_part_with(2, process, tmp_path))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert not alive(worker) and not processes_of(tmp_path)
    own.questions.unlink()
    ended = run_command(shlex.split(said.splitlines()[-1]))
    assert (ended.returncode, "2 parts, 2 at a time" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    assert results(only_run(tmp_path)) == results(one_run)
    assert trajectories(only_run(tmp_path)) == trajectories(one_run)


@pytest.mark.parametrize("lose", [lose_node, lose_driver])
def test_a_lost_cluster_on_this_machine_is_started_again(
    six_rooms: RoomScans, one_run: Path, tmp_path: Path, lose: Callable[[Path], None]
):
    process = started(impatient(slow(six_rooms, tmp_path)), tmp_path)
    first_part_with(2, process, tmp_path)
    lose(tmp_path)
    said, _ = process.communicate()
    assert (process.returncode, said.count("another cluster will resume the run")) == (0, 1), said
    assert [row["answer"] for row in results(only_run(tmp_path))] == [row["answer"] for row in results(one_run)]


def test_a_cluster_that_is_lost_twice_ends_the_run_which_can_be_resumed(six_rooms: RoomScans, tmp_path: Path):
    process = started(impatient(slow(six_rooms, tmp_path)), tmp_path)
    first_part_with(1, process, tmp_path)
    first = processes_of(tmp_path, "raylet/raylet")
    lose_node(tmp_path)
    wait_for(lambda: set(processes_of(tmp_path, "raylet/raylet")) - set(first), process)
    wait_for(lambda: processes_of(tmp_path, "ray::Worker"), process)
    lose_node(tmp_path)
    said, _ = process.communicate()
    assert (process.returncode, "; finished turns are on disk. To resume:" in said) == (2, True), said
    assert not processes_of(tmp_path)
    run = only_run(tmp_path)
    assert said.splitlines()[-1] == f"{sys.executable} {COMMAND} --continue {run}"
    turns = sum(path.read_bytes().count(b"\n") for path in run.glob("parts/*/q*/turns.jsonl"))
    assert turns_in(run) == turns > 0 and (run / "summary.json").exists()


def test_a_node_that_dies_before_the_run_begins_is_replaced_by_a_new_cluster(six_rooms: RoomScans, tmp_path: Path):
    process = started(impatient(six_rooms.command(tmp_path, "--ray")), tmp_path)
    wait_for(lambda: processes_of(tmp_path, "ray::Worker"), process)
    lose_node(tmp_path)  # an actor finishes short calls without its node
    said, _ = process.communicate()
    assert (process.returncode, "another cluster will resume the run" in said) == (0, True), said


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """A cluster of a head without CPU cores and a node with two."""
    utils = pytest.importorskip("ray.cluster_utils")
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=2)
    yield cluster
    cluster.shutdown()


@pytest.mark.parametrize("what", ["the node", "the head"])
def test_a_joined_cluster_that_dies_ends_the_run_which_can_be_resumed(
    two_nodes: Any, six_rooms: RoomScans, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAY_ADDRESS", two_nodes.address)
    process = started(impatient(slow(six_rooms, tmp_path)), tmp_path)
    first_part_with(2, process, tmp_path)
    if what == "the node":
        two_nodes.remove_node(two_nodes.worker_nodes.copy().pop(), allow_graceful=False)
    else:
        two_nodes.head_node.kill_gcs_server()
    lost_at = time.monotonic()
    said, _ = process.communicate()
    assert time.monotonic() - lost_at < 120
    assert process.returncode == 2, said
    assert said.splitlines()[-1] == f"{sys.executable} {COMMAND} --continue {only_run(tmp_path)}"


@pytest.mark.parametrize("delay_s", [1.0, 3.0])
def test_a_sigterm_while_ray_starts_is_an_interrupt(rooms: RoomScans, tmp_path: Path, delay_s: float):
    process = started(rooms.command(tmp_path, "--ray"), tmp_path)
    wait_for(lambda: processes_of(tmp_path, "roomscout.cluster.ray_driver"), process)
    time.sleep(delay_s)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    assert (process.returncode, "Traceback" in said) == (130, False), said
    assert not processes_of(tmp_path)


def test_no_process_outlives_a_killed_command(six_rooms: RoomScans, tmp_path: Path):
    process = started(slow(six_rooms, tmp_path), tmp_path)
    first_part_with(1, process, tmp_path)
    process.kill()
    process.wait()
    wait_until(lambda: not processes_of(tmp_path))


def test_what_a_worker_refuses_ends_the_run_in_one_sentence(rooms: RoomScans, tmp_path: Path):
    ended = run_command(rooms.command(tmp_path, "--ray", "--model", str(tmp_path / "nothing")))
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert ended.stderr.startswith("error: ") and "nothing" in ended.stderr


def test_failed_questions_are_retried_by_the_workers_of_their_parts(
    six_rooms: RoomScans, one_run: Path, tmp_path: Path
):
    root = Path(shutil.copytree(six_rooms.root, tmp_path / "scans"))
    missing = min(root.glob("scannet/scans/*/*.ply"))
    aside = missing.rename(tmp_path / "aside.ply")
    logs = tmp_path / "logs"
    ended = run_command([*six_rooms.command(logs, "--ray", "--replicas", "2"), "--scan-root", str(root)])
    assert ended.returncode == 1, ended.stdout + ended.stderr
    aside.rename(missing)
    again = run_command(
        [*six_rooms.command(logs)[:2], "--continue", "recent", "--log-root", str(logs), "--retry-failed"]
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert results(only_run(logs)) == results(one_run)
    assert trajectories(only_run(logs)) == trajectories(one_run)


def test_a_call_whose_worker_finds_no_place_gets_that_of_an_idle_one():
    process = WatchedProcess("roomscout.cluster.ray_driver", "", "1")
    try:
        assert message(process, 100)  # the nodes: one with one core, for two workers
        ended = list(Cluster(process, Replicas(2, 0, 1), 60).outcomes("resolve", {1: (), 2: ()}))
    finally:
        process.close(10)
    assert {key: type(error) for each in ended for key, error in each.items()} == {1: TypeError, 2: TypeError}
