"""Runs on a Ray cluster of this machine: make test-ray installs ray and runs these tests, make test leaves them out."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import RoomScans, only_run, results, run_command, scores, trajectories

from runs.reader import RunReader, run_folders

pytestmark = pytest.mark.ray


def begun_parts(run: Path) -> list[Path]:
    """Folders of the parts of a run that have finished a turn."""
    return sorted({path.parents[1] for path in run.glob("parts/*/q*/turns.jsonl")})


def worker_of(part: Path) -> int:
    """The process that writes a part."""
    found = re.match(r"process (\d+) on", (part / "run.lock").read_text())
    assert found is not None
    return int(found[1])


def first_part_with(turns: int, process: subprocess.Popen[str], log_root: Path) -> Path:
    """Wait until a part has so many turns; the other parts may not have begun."""
    while process.poll() is None:
        for run in log_root.glob("*_batched"):
            for part in begun_parts(run):
                if turns_in(part) >= turns:
                    return part
        time.sleep(0.01)
    raise AssertionError(f"ended too early: {process.communicate()}")


def turns_in(part: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in part.glob("q*/turns.jsonl"))


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def in_session(session: int) -> list[str]:
    """Command lines of all processes whose environment or session is that of a started command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session and alive(int(folder.name)):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except (OSError, ProcessLookupError):
            continue
    return found


def test_two_actors_equal_one_process_also_when_one_is_killed(
    six_rooms: RoomScans,
    one_run: Path,
    tmp_path: Path,
):
    process = started(six_rooms.command(tmp_path, "--ray", "--replicas", "2", "--batch-size", "1"))
    os.kill(worker_of(first_part_with(2, process, tmp_path)), signal.SIGKILL)
    said, _ = process.communicate()
    assert (process.returncode, said.count("another one will resume it")) == (0, 1), said
    assert results(only_run(tmp_path)) == results(one_run)
    assert trajectories(only_run(tmp_path)) == trajectories(one_run)
    assert scores(only_run(tmp_path)) == scores(one_run)


def test_an_interrupted_run_leaves_no_process_and_resumes_to_the_same(
    six_rooms: RoomScans,
    one_run: Path,
    tmp_path: Path,
):
    process = started(six_rooms.command(tmp_path, "--ray", "--replicas", "2", "--batch-size", "1"))
    worker = worker_of(first_part_with(2, process, tmp_path))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert not alive(worker) and not in_session(process.pid)
    ended = run_command(shlex.split(said.splitlines()[-1]))
    assert (ended.returncode, "RAY: 2 parts, 2 at a time" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    assert results(only_run(tmp_path)) == results(one_run)
    assert trajectories(only_run(tmp_path)) == trajectories(one_run)


def test_an_interrupt_while_ray_starts_leaves_no_process(rooms: RoomScans, tmp_path: Path):
    process = started(rooms.command(tmp_path, "--ray"))
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("RAY: starting"):
            break
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate()
    assert (process.returncode, "Traceback" in said) == (130, False), said
    assert not in_session(process.pid) and not run_folders(tmp_path)


def test_a_policy_is_recorded_by_its_name(rooms: RoomScans, tmp_path: Path):
    (tmp_path / "two.py").write_text(
        "from agent.policies import Decision, Policy\n"
        "from envs.actions import CameraAction\n"
        "class Two(Policy):\n"
        "    def decide(self, states):\n"
        "        return [Decision(CameraAction(answer='2', done=True)) for _ in states]\n"
    )
    command = rooms.command(tmp_path / "logs", "--ray", "--policy", f"{tmp_path / 'two.py'}:Two")
    command.remove("--model")
    command.remove("scripted:random")
    ended = run_command(command)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = RunReader(only_run(tmp_path / "logs")).summary
    assert summary is not None and summary["model"] == "Two"


def test_what_a_worker_refuses_ends_the_run_in_one_sentence(rooms: RoomScans, tmp_path: Path):
    ended = run_command([*rooms.command(tmp_path, "--ray"), "--model", str(tmp_path / "nothing")])
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
