"""Run folders can be read while they are written, and reading changes nothing."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RoomScans, run_in_process, scripted
from scripted_model import ScriptedBackend

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.state import QuestionState
from roomscout.runs.reader import RunReader, run_folders
from roomscout.runs.records import EpisodeId, ResultRow, Turn
from roomscout.runs.writer import RunWriter


@pytest.fixture(scope="module")
def killed(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three questions that was killed: two have results, the third was writing the line of its turn 2."""
    run = run_in_process(rooms.config(tmp_path_factory.mktemp("killed"), num_questions=3, steps=3), scripted())
    for name in ("summary.json", "results.json", "results.csv", "run.lock"):
        (run / name).unlink()
    rows = (run / "results.jsonl").read_text().splitlines(keepends=True)
    (run / "results.jsonl").write_text("".join(row for row in rows if json.loads(row)["number"] < 3))
    first, second, third, *_ = (run / "q003" / "turns.jsonl").read_text().splitlines(keepends=True)
    (run / "q003" / "turns.jsonl").write_text(first + second + third[:40])
    return run


@pytest.fixture
def interrupted(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "interrupted"))


def read_everything(reader: RunReader) -> None:
    assert reader.facts.schema == 2 and reader.rows and list(reader.all_turns())
    assert reader.summary is None or reader.summary.cost
    for episode in reader.begun:
        assert isinstance(reader.messages(episode), list)  # of a turn that was just written, they follow its line
        assert all(turn.shots[0].load() is not None for turn in reader.turns(episode))


def snapshot(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_records_survive_reading_and_writing(interrupted: Path):
    written = (
        ("results.jsonl", lambda line: ResultRow.from_json(line).to_json()),
        ("q*/turns.jsonl", lambda line: Turn.from_json(line).to_json()),
    )
    for name, again in written:
        for path in interrupted.glob(name):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    assert json.dumps(again(json.loads(line))) + "\n" == line
    facts = (interrupted / "run.json").read_text()
    assert json.dumps(RunReader(interrupted).facts.to_json(), indent=2) == facts


def test_reading_changes_nothing_and_takes_no_lock(interrupted: Path):
    with (interrupted / "results.jsonl").open("a") as journal:
        journal.write('{"number": 3, "id": "13", "data')
    before = snapshot(interrupted)
    read_everything(RunReader(interrupted))
    assert snapshot(interrupted) == before
    RunWriter(interrupted).close()
    with (interrupted / "results.jsonl").open("a") as journal:
        journal.write("{")
    holder, before = RunWriter(interrupted), snapshot(interrupted)
    read_everything(RunReader(interrupted))
    assert snapshot(interrupted) == before
    holder.close()


def test_the_reader_ignores_a_torn_last_line_and_the_writer_removes_it(interrupted: Path):
    results_file, turns_file = interrupted / "results.jsonl", interrupted / "q003" / "turns.jsonl"
    whole = results_file.read_bytes()
    results_file.write_bytes(whole + b'{"number": 3')
    torn = turns_file.read_bytes()
    assert not torn.endswith(b"\n")
    reader = RunReader(interrupted)
    rows, turns = reader.rows, reader.turns(EpisodeId(3))
    assert ([row.number for row in rows], [turn.turn for turn in turns]) == ([1, 2], [0, 1])
    RunWriter(interrupted).close()
    assert results_file.read_bytes() == whole
    assert turns_file.read_bytes() == torn[: torn.rfind(b"\n") + 1]
    assert (reader.rows, reader.turns(EpisodeId(3))) == (rows, turns)


def test_a_reader_always_sees_complete_records(rooms: RoomScans, tmp_path: Path):
    glances: list[tuple[EpisodeId, list[Turn]]] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_in_process, rooms.config(tmp_path, batch_size=3))
        while not running.done():
            for reader in map(RunReader, run_folders(tmp_path)):
                glances += [(row.episode, reader.turns(row.episode)) for row in reader.rows]
                glances += [(episode, reader.turns(episode)) for episode in reader.begun]
                for _, turns in glances[-3:]:
                    assert all(turn.shots[0].load() is not None for turn in turns)
        final = RunReader(running.result())
    assert glances and all(final.turns(episode)[: len(turns)] == turns for episode, turns in glances)


def test_a_turn_is_read_as_it_was_written(rooms: RoomScans, tmp_path: Path):
    """Replies and their costs, poses and moves, in the classes that the loop uses; a reply may hold odd characters."""
    odd = ModelPolicy(ScriptedBackend(lambda chat: 'I see \ud800 {"forward_meters": 1}'))
    states = []

    class Keeping(ModelPolicy):
        def forget(self, state: QuestionState) -> None:
            states.append((state.episode, list(state.turns)))

    folder = run_in_process(rooms.config(tmp_path, num_questions=2, steps=2), Keeping(odd.backend))
    for episode, turns in states:
        saved = RunReader(folder).turns(episode)
        assert [replace(turn, seconds=turn.seconds, scan=None) for turn in saved] == [
            replace(turn, seconds=there.seconds) for turn, there in zip(turns, saved, strict=True)
        ]
        assert all((turn.view == there.view).all() for turn, there in zip(turns, saved, strict=True))
