"""roomscout wrong: the answers of a run that score less than 1."""

import shlex
from pathlib import Path

from conftest import RoomScans, only_run
from planned import run_settings

from roomscout.analysis.wrong import main, report_wrong
from roomscout.runs.reader import RunReader


def folders(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines[3:] if not line.startswith(" ")]


def test_wrong_answers_are_listed_by_score_then_by_number(one_run: Path):
    reader = RunReader(one_run)
    rows = sorted((row for row in reader.rows if row.score < 1), key=lambda row: (row.score, row.number))
    lines = report_wrong(reader)
    zero = sum(row.score == 0 for row in rows)
    assert lines[0] == f"Wrong: {zero} of {len(reader.rows)}, partly right: {len(rows) - zero}"
    assert folders(lines) == [row.folder for row in rows]


def test_types_and_scenes_are_chosen_by_name(one_run: Path):
    reader = RunReader(one_run)
    first = next(row for row in reader.rows if row.score < 1)
    lines = report_wrong(reader, [first.question_type], [first.scene_name])
    wanted = (first.question_type, first.scene_name)
    some = [row for row in reader.rows if (row.question_type, row.scene_name) == wanted and row.score < 1]
    assert sorted(folders(lines)) == [row.folder for row in some]


def test_a_run_ends_with_how_to_list_what_is_wrong(rooms: RoomScans, tmp_path: Path, caplog, capsys):
    caplog.set_level("INFO")
    run_settings(rooms.config(tmp_path, steps=0))
    wrong, known_by, folder = caplog.messages[-3:]
    assert known_by.startswith("Identified by: rows of the benchmark ")
    run = only_run(tmp_path)
    assert folder == f"Run folder: {run}"
    counts, command = wrong.split("; to list them: ")
    verb, *arguments = shlex.split(command)[1:]
    capsys.readouterr()
    assert (verb, main(arguments)) == ("wrong", 0)
    assert capsys.readouterr().out.splitlines()[0] == counts
