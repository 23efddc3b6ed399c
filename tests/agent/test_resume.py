"""After a kill, an interrupt or damage, a resumed run ends with the results of an undisturbed one."""

import csv
import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from conftest import (
    COMMAND,
    RoomScans,
    interrupted,
    only_run,
    results,
    run_command,
    run_in_process,
    run_main,
    trajectories,
)
from planned import run_settings, spec_of
from stopping import continued, stop_after, turns_on_disk

from roomscout.agent.session import begin_folder
from roomscout.runs import RunError
from roomscout.runs.writer import RunWriter

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference: a run without interruption."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("undisturbed"), batch_size=3))


def copied(undisturbed: Path, log_root: Path) -> Path:
    """A copy of the reference that a test may damage."""
    return Path(shutil.copytree(undisturbed, log_root / undisturbed.name))


def test_a_run_that_is_killed_repeatedly_equals_an_undisturbed_one(rooms: RoomScans, undisturbed: Path, tmp_path: Path):
    flags = rooms.flags(tmp_path, "--batch-size", "3")
    for turns in (1, 12):
        killed = stop_after(flags, tmp_path, turns, signal.SIGKILL)
        assert killed.returncode == -signal.SIGKILL
        flags = continued(tmp_path)
    assert run_main(flags).returncode == 0
    folder = only_run(tmp_path)
    assert results(folder) == results(undisturbed)
    assert trajectories(folder) == trajectories(undisturbed)


def test_a_killed_run_resumes_without_its_question_file_and_not_with_another(rooms: RoomScans, tmp_path: Path):
    file = Path(shutil.copy(rooms.questions, tmp_path / "own.jsonl"))
    own = replace(rooms, questions=file)
    folder = run_in_process(own.config(tmp_path / "logs", num_questions=2))
    undisturbed, named = (results(folder), trajectories(folder)), continued(folder.parent, "--questions", str(file))
    assert run_main(named).returncode == 0
    for content in ("".join(json.dumps(row) + "\n" for row in rooms.rows[1:]), ""):
        file.write_text(content)
        ended = run_main(continued(interrupted(folder, 1).parent))
        assert ended.returncode == 0, ended.stderr
        assert (results(folder), trajectories(folder)) == undisturbed
        refused = run_main(named)
        assert refused.returncode == 2 and ("was begun with other questions" in refused.stderr or not content)


def test_changed_questions_in_the_run_folder_are_refused(rooms: RoomScans, tmp_path: Path):
    config = rooms.config(tmp_path, num_questions=2)
    folder = run_in_process(config)
    copy = folder / "questions.jsonl"
    copy.write_text("".join(copy.read_text().splitlines(keepends=True)[:1]))
    with pytest.raises(RunError, match="begun with other questions"):
        run_settings(config, folder)
    copy.write_text('{"id": "1"}\n')
    with pytest.raises(RunError, match=r"questions\.jsonl is damaged"):
        run_settings(config, folder)


PAUSING = """
import time
from roomscout.agent.policies.controls import RandomPolicy

class Pausing(RandomPolicy):
    def decide(self, states):
        if states[0].turn == 1:
            time.sleep(600)
        return super().decide(states)
"""


def that_pauses(rooms: RoomScans, tmp_path: Path) -> tuple[list[str], int]:
    """The flags of a run that does not end by itself, and the turns that it has written when it pauses."""
    policy = tmp_path / "pausing.py"
    policy.write_text(PAUSING)
    return rooms.flags(tmp_path, "--policy", f"{policy}:Pausing"), len(rooms.rows)


@pytest.mark.parametrize("pause", [0.0, *(pytest.param(each, marks=SLOW) for each in (0.002, 0.01, 0.03, 0.1))])
def test_a_second_signal_changes_nothing(rooms: RoomScans, tmp_path: Path, pause: float):
    flags, turns = that_pauses(rooms, tmp_path)
    command = [sys.executable, str(COMMAND), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while turns_on_disk(tmp_path) < turns and process.poll() is None:
        time.sleep(0.002)
    process.terminate()
    time.sleep(pause)
    process.terminate()
    said, _ = process.communicate()
    assert process.returncode == 130
    assert said.splitlines()[-1].endswith(f"--continue {only_run(tmp_path)}")


@pytest.mark.slow
def test_the_resume_command_keeps_the_flags_of_the_last_resumption(rooms: RoomScans, undisturbed: Path, tmp_path: Path):
    moved = tmp_path / "moved"
    shutil.copytree(rooms.root, moved)
    logs = tmp_path / "logs"
    stop_after(rooms.flags(logs), logs, 4, signal.SIGTERM)
    flags = ("--scan-root", str(moved), "--batch-size", "3", "--max-batched-turns", "all")
    process = stop_after(continued(logs, *flags), logs, turns_on_disk(logs) + 2, signal.SIGTERM)
    assert process.returncode == 130 and process.stdout is not None
    command = shlex.split(process.stdout.read().splitlines()[-1])
    assert set(flags) <= set(command)
    assert run_main(command[2:]).returncode == 0
    assert results(only_run(logs)) == results(undisturbed)


def test_nothing_is_written_after_a_failed_write(rooms: RoomScans, tmp_path: Path):
    spec = spec_of(rooms.config(tmp_path))
    run_log = begin_folder(spec.record, spec.questions)
    path = run_log.folder / "results.jsonl"
    both_queued = Event()

    def torn(path: Path) -> None:
        both_queued.wait()
        path.write_text("half a line")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run_log._enqueue(torn, path)
    run_log._enqueue(lambda path: path.write_text("more"), path)
    both_queued.set()
    with pytest.raises(RunError, match="make room, then resume with"):
        run_log.flush()
    with pytest.raises(RunError, match="make room"):
        run_log.flush()
    run_log.close()
    assert path.read_text() == "half a line"


def summary(folder: Path) -> dict:
    """summary.json without the times and costs of the run, and without what only the command adds."""
    return {
        key: value
        for key, value in json.loads((folder / "summary.json").read_text()).items()
        if key not in ("cost", "hardware", "sessions", "sight")
    }


def truncated(path: Path, share: float) -> None:
    """Truncate a file as a crash during a write would."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


@pytest.mark.parametrize("share", [0.0, 0.62])
@pytest.mark.parametrize("what", ["results.jsonl", "q002/turns.jsonl", "q003/render_00.png", "q001/messages.json"])
def test_a_torn_file_is_redone(rooms: RoomScans, undisturbed: Path, tmp_path: Path, what: str, share: float):
    config, folder = rooms.config(tmp_path, batch_size=3), copied(undisturbed, tmp_path)
    if what != "results.jsonl":  # as if no question had been finished
        (folder / "results.jsonl").unlink()
    truncated(folder / what, share)
    run_settings(config, folder)
    assert results(folder) == results(undisturbed)
    assert trajectories(folder) == trajectories(undisturbed)


def test_failed_questions_are_retried_on_request(rooms: RoomScans, undisturbed: Path, tmp_path: Path):
    root = shutil.copytree(rooms.root, tmp_path / "scans")
    config = rooms.config(tmp_path / "logs", scan_root=root, batch_size=3)
    missing = min(root.glob("scannet/scans/*/*.ply"))
    missing.rename(tmp_path / "aside.ply")
    folder = run_in_process(config)
    (tmp_path / "aside.ply").rename(missing)
    ended = run_main(continued(config.log_root))
    assert (ended.returncode, "add --retry-failed" in ended.stdout) == (1, True)
    assert results(folder) != results(undisturbed)
    ended = run_main(continued(config.log_root, "--retry-failed"))
    assert (ended.returncode, "Retrying 4 failed questions" in ended.stdout) == (0, True)
    assert results(folder) == results(undisturbed)
    assert trajectories(folder) == trajectories(undisturbed)
    assert summary(folder) == summary(undisturbed)


def test_a_resumed_run_may_repeat_or_negate_earlier_switches(rooms: RoomScans, undisturbed: Path, tmp_path: Path):
    settings = {"compile": True, "max_batched_turns": "all"}
    interrupted(run_in_process(rooms.config(tmp_path, **settings)), 1)
    ended = run_main(continued(tmp_path, "--no-compile", "--max-batched-turns", "4"))
    assert ended.returncode == 0, ended.stderr
    assert trajectories(only_run(tmp_path)) == trajectories(undisturbed)


def test_the_exports_contain_every_row_and_what_a_letter_means(rooms: RoomScans, undisturbed: Path):
    rows = results(undisturbed)
    exported = json.loads((undisturbed / "results.json").read_text())
    assert [row["id"] for row in exported] == [row["id"] for row in rows] == [str(row["id"]) for row in rooms.rows]
    with (undisturbed / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    kept = [(row["id"], row["status"], float(row["score"])) for row in table]
    assert kept == [(row["id"], row["status"], row["score"]) for row in rows]
    asked = {str(row["id"]): row["options"] for row in rooms.rows if row["options"]}
    chosen = {row["id"]: row for row in table if row["options"]}
    assert {id: json.loads(row["options"]) for id, row in chosen.items()} == asked
    for row in chosen.values():
        assert f"{row['ground_truth']}. {row['ground_truth_text']}" in asked[row["id"]]
        assert f"{row['answer']}. {row['answer_text']}" in asked[row["id"]]
        assert (undisturbed / row["folder"] / "turns.jsonl").is_file()


def test_a_run_of_another_schema_or_without_a_setting_is_refused(rooms: RoomScans, undisturbed: Path, tmp_path: Path):
    folder = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    facts = json.loads((folder / "run.json").read_text())
    del facts["config"]["see"]
    for written, words in (
        ({**facts, "schema": 0}, "has schema 0, but this version writes 2"),
        (facts, "run.json is damaged: it lacks --see"),
    ):
        (folder / "run.json").write_text(json.dumps(written))
        with pytest.raises(RunError, match=words):
            run_settings(rooms.config(tmp_path), folder)


def test_a_second_writer_is_refused_and_the_first_is_named(rooms: RoomScans, undisturbed: Path):
    holder = RunWriter(undisturbed)
    ended = run_main(continued(undisturbed.parent))
    holder.close()
    assert (ended.returncode, f"process {os.getpid()} on" in ended.stderr) == (2, True)


def test_a_closed_output_pipe_does_not_end_the_run(rooms: RoomScans, undisturbed: Path, tmp_path: Path):
    run_command(["sh", "-c", '"$@" | head -1', "sh", *rooms.command(tmp_path, "--batch-size", "3")])
    assert results(only_run(tmp_path)) == results(undisturbed)


@pytest.mark.parametrize(
    ("imported", "how"),
    [
        ("roomscout.agent.session", signal.SIGINT),
        *(pytest.param(each, signal.SIGTERM, marks=SLOW) for each in ("roomscout.agent", "open3d")),
    ],
)
def test_an_early_interrupt_ends_without_a_traceback(
    rooms: RoomScans, tmp_path: Path, imported: str, how: signal.Signals
):
    command = [sys.executable, "-X", "importtime", *rooms.command(tmp_path)[1:]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any(line.split("|")[-1].strip() == imported for line in process.stderr)
    process.send_signal(how)
    _, said = process.communicate()
    assert (process.returncode, "Traceback" in said) == (130, False)


def test_an_interrupt_that_a_library_makes_an_error_of_its_own_is_one_all_the_same(rooms: RoomScans, tmp_path: Path):
    code = (
        "import os, signal, sys, roomscout.edge.resolve as resolve\n"
        "def broken(*_):\n"
        "    try: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    except KeyboardInterrupt: raise ValueError('invalid schema') from None\n"
        "resolve.read_saved = broken\n"
        "from roomscout.command.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    ended = run_command([sys.executable, "-c", code, *rooms.flags(tmp_path)])
    assert ended.returncode == 130 and "Interrupted before the run began" in ended.stdout and not ended.stderr


def begun_run(rooms: RoomScans, tmp_path: Path) -> tuple[Path, Path]:
    """A run with all questions in progress, and a copy of its scans."""
    root = Path(shutil.copytree(rooms.root, tmp_path / "moved"))
    return interrupted(run_in_process(rooms.config(tmp_path / "logs", batch_size=3)), 1), root


def test_a_run_is_not_resumed_in_another_room(rooms: RoomScans, tmp_path: Path):
    folder, root = begun_run(rooms, tmp_path)
    first, second = sorted(root.glob("scannet/scans/*/*.ply"))
    first.write_bytes(second.read_bytes())
    before = {path: path.read_bytes() for path in folder.rglob("*.json*")}
    ended = run_main(continued(folder.parent, "--scan-root", str(root)))
    assert ended.returncode == 2
    recorded = rooms.root / first.relative_to(root)
    assert f"with the scan {recorded}, and {first} is a different scan now" in ended.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*.json*")} == before


@pytest.mark.parametrize("fingerprints", [True, False])
def test_a_scan_may_move_while_a_run_is_interrupted(
    rooms: RoomScans, undisturbed: Path, tmp_path: Path, fingerprints: bool
):
    folder, root = begun_run(rooms, tmp_path)
    for journal in folder.glob("q*/turns.jsonl") if not fingerprints else ():
        turn = json.loads(journal.read_text())
        del turn["scan"]
        journal.write_text(json.dumps(turn) + "\n")
    assert run_settings(rooms.config(folder.parent, scan_root=root, batch_size=3), folder).status == 0
    assert results(folder) == results(undisturbed)
    assert not fingerprints or trajectories(folder) == trajectories(undisturbed)
