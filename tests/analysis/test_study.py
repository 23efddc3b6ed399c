"""`roomscout study`: real studies of a scripted model on two rooms, each cell a process of the command."""

import csv
import json
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL_VIEW, RoomScans, made_once, results, run_main
from planned import run_settings
from waiting import wait_until

from roomscout.analysis.compare.answers import read_answers
from roomscout.analysis.compare.comparison import compare
from roomscout.analysis.study.plots import plot_of
from roomscout.analysis.study.presets import GIVEN, PRESETS, Cell
from roomscout.analysis.study.tables import lines_of, loss_table, markdown_of, most_in, never_saw, results_of
from roomscout.command.main import main
from roomscout.command.study import Given, StudiedCommand, Study, done_file, finished_runs, open_study
from roomscout.edge.settings import flags_giving
from roomscout.runs import RunError
from roomscout.runs.merge import merge
from roomscout.runs.reader import RunReader, run_folders
from roomscout.runs.sights import SightGroup, SightSplit
from roomscout.runs.writer import RunWriter
from roomscout.scoring.intervals import Estimate

COMMAND = StudiedCommand()


def flags(rooms: RoomScans, *more: str) -> list[str]:
    """The flags of a small scripted run; a study is fast with them."""
    width, height = map(str, SMALL_VIEW)
    return [
        "--questions", str(rooms.questions), "--scan-root", str(rooms.root), "--policy", "random", "--renderer",
        "raycast", "--image-size", width, height, "--focal", "75", "--steps", "3", "--no-report", *more,
    ]  # fmt: skip


def opened(folder: Path, name: str, rooms: RoomScans, *more: str) -> Study:
    return open_study(folder, name, COMMAND.read(flags(rooms, *more), folder), COMMAND)


def runs_of(folder: Path, name: str = "motion") -> list[Path]:
    """The run folder of each cell."""
    study = Study(folder, name, {}, "")
    found = [study.run_of(cell) for cell in study.preset.cells]
    return [run for run in found if run is not None]


@pytest.fixture(scope="session")
def studied(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of two cells; nobody may change it."""

    def make(folder: Path) -> None:
        assert main(["study", "motion", str(folder / "motion"), *flags(rooms)]) == 0

    return made_once(tmp_path_factory, "study", make) / "motion"


def test_each_cell_is_a_run_with_the_settings_of_its_preset(studied: Path):
    settings = [RunReader(run).facts.setting("translation") for run in runs_of(studied)]
    assert settings == [True, False]


def test_the_table_has_the_scores_and_differences_of_compare(studied: Path):
    (pair,) = compare(read_answers(runs_of(studied)), ("protocol",)).pairs
    with (studied / "study.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == "overall"]
    assert pair.overall is not None
    assert [row["cell"] for row in rows] == ["with translation", "turning only"]
    assert float(rows[0]["percent"]) == pytest.approx(pair.overall.first, abs=1e-3)
    assert float(rows[1]["difference"]) == pytest.approx(pair.overall.percent, abs=1e-3)


def test_questions_that_failed_in_a_cell_are_left_out_of_all(studied: Path, tmp_path: Path):
    whole, other = runs_of(studied)
    failing = shutil.copytree(other, tmp_path / "failing")
    rows = [json.loads(line) for line in (failing / "results.jsonl").read_text().splitlines()]
    rows[0] |= {"answer": None, "score": 0.0, "status": "failed", "failed_part": "model"}
    (failing / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    writer = RunWriter(failing, "")
    writer.export(None)
    writer.close()
    found = results_of(PRESETS["motion"], [whole, failing])
    assert (found.left_out, found.questions) == (1, len(rows) - 1)
    assert [cell.failed for cell in found.cells] == [0, 1]
    first, second = (cell.overall for cell in found.cells)
    assert first is not None and second is not None
    assert found.cells[1].gains["overall"].percent == pytest.approx(second.percent - first.percent)
    assert "(1 failed in one)" in lines_of(found)[0] and "1 question that failed" in markdown_of(found, "Study")


def test_never_saw_is_a_share_of_the_answers_that_need_an_object():
    groups = {
        name: SightGroup(answers=answers, below_full=0, percent=0.0)
        for name, answers in (("never_saw", 39), ("saw", 9), ("no_object", 12))
    }
    split = SightSplit(enough_pixels=1, surface_percent=50.0, types={"all": groups})
    assert never_saw(split) == pytest.approx(81.25)
    assert never_saw(replace(split, types={"all": {"no_object": groups["no_object"]}})) is None
    assert never_saw(None) is None


def test_a_finished_cell_is_not_run_again(studied: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    before = [(run / "run.log").read_bytes() for run in runs_of(studied)]
    assert main(["study", "motion", str(studied)]) == 0  # without flags: study.json has them
    assert [(run / "run.log").read_bytes() for run in runs_of(studied)] == before
    assert caplog.text.count("finished before") == 2


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("motion", ("--steps", "4"), r"was begun with --steps 3, not 4"),
        ("motion", ("--seed", "1"), r"was begun with --seed 0, not 1"),
        ("motion", ("--num-questions", "2"), r"was begun with --num-questions none, not 2"),
        ("controls", (), r"is a study of motion, not controls"),
    ],
)
def test_a_folder_with_another_study_is_refused_by_what_differs(
    studied: Path, rooms: RoomScans, name: str, more: tuple[str, ...], words: str
):
    with pytest.raises(RunError, match=words):
        opened(studied, name, rooms, *more)


def test_a_setting_of_speed_may_change(studied: Path, rooms: RoomScans):
    assert opened(studied, "motion", rooms, "--batch-size", "2").settings["batch_size"] == 2


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("controls", ("--moves", "spin"), "sets --moves itself"),
        ("controls", ("--min-turns", "2"), "controls, cell spin: --min-turns 2 conflicts with --moves spin"),
        ("motion", ("--moves", "spin"), "motion, cell turning only: --no-translation conflicts with --moves spin"),
        ("passive", (), "add --moves-of RUN"),
        ("passive", ("--moves-of", "other", "--shard", "1/2"), "leave out --shard"),
    ],
)
def test_flags_that_conflict_with_a_preset_are_refused_before_anything_runs(
    rooms: RoomScans, tmp_path: Path, name: str, more: tuple[str, ...], words: str
):
    with pytest.raises(RunError, match=words):
        opened(tmp_path / "new", name, rooms, *more)
    assert not (tmp_path / "new").exists()


def test_all_cells_of_all_presets_have_names_and_folders_of_their_own():
    for preset in PRESETS.values():
        assert len({cell.folder for cell in preset.cells}) == len(preset.cells)
        assert {cell.moves_of for cell in preset.cells} <= {"", GIVEN, *(cell.name for cell in preset.cells)}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_cells_that_can_run(name: str, rooms: RoomScans, tmp_path: Path):
    needed = {"passive": ("--moves-of", str(tmp_path / "other")), "video": ("--videos", str(tmp_path))}
    sets_itself = {"budget": ("--steps", "3"), "video": ("--focal", "75")}.get(name, ())
    words = [word for word in flags(rooms, *needed.get(name, ())) if word not in sets_itself]
    policy = words.index("--policy")
    words[policy : policy + 2] = ["--model", "embedded"]
    study = open_study(tmp_path / "new", name, COMMAND.read(words, tmp_path), COMMAND)
    assert all(flags_giving(study.settings_of(cell)) for cell in study.preset.cells)


def test_the_budget_has_a_curve_for_free_and_one_for_forced(studied: Path):
    cells = (Cell("0 moves", moves=0), Cell("3 free", moves=3, series="free"))
    found = results_of(PRESETS["motion"], runs_of(studied))
    pairs = zip(found.cells, cells, strict=True)
    curve = plot_of(type(found)(**{**vars(found), "cells": tuple(_placed(each, cell) for each, cell in pairs)}))
    assert "maximum number of moves" in curve
    assert curve.count("<circle") == 2 + 1  # and that beside the name


def _placed(result: Any, cell: Cell) -> Any:
    return type(result)(**{**vars(result), "cell": cell})


@pytest.mark.slow
def test_an_interrupted_study_resumes_and_equals_an_undisturbed_one(studied: Path, rooms: RoomScans, tmp_path: Path):
    folder = tmp_path / "motion"
    given = ["study", "motion", str(folder), *flags(rooms)]
    with subprocess.Popen(
        [*COMMAND.words, *given], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        wait_until(lambda: list(folder.glob("runs/*/*/q*/turns.jsonl")))
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[0]
    assert process.returncode == 130
    assert "to resume, run the same command again" in said
    assert run_main(given).returncode == 0
    assert [results(run) for run in runs_of(folder)] == [results(run) for run in runs_of(studied)]
    assert (folder / "study.csv").read_bytes() == (studied / "study.csv").read_bytes()


def scores_in(study: Path) -> list[dict[str, str]]:
    """The rows of a table without what was never in view, which a merge always works out."""
    with (study / "study.csv").open() as table:
        return [{name: cell for name, cell in row.items() if name != "never_saw"} for row in csv.DictReader(table)]


def answer_part(study: Study, rooms: RoomScans, part: tuple[int, int]) -> None:
    """Answer a part of each cell in this process, or retry its failed questions, as the study's own processes do."""
    for cell in study.preset.cells:
        begun = study.run_of(cell, part)
        config = rooms.config(study.place_of(cell), steps=3, shard="{}/{}".format(*part), **cell.settings)
        ended = run_settings(config, begun, retry_failed=begun is not None)
        assert ended.folder is not None
        done_file(ended.folder).touch()


@pytest.mark.slow
def test_parts_that_retry_their_failed_questions_are_merged_to_the_whole(
    studied: Path, rooms: RoomScans, tmp_path: Path
):
    root = Path(shutil.copytree(rooms.root, tmp_path / "rooms"))
    scan = min(root.rglob("*.ply"))
    whole_scan = scan.read_bytes()
    scan.write_bytes(b"damaged")
    copied = RoomScans(root, root / rooms.questions.name)
    study = opened(tmp_path / "motion", "motion", copied)
    answer_part(study, copied, (1, 2))
    assert finished_runs(study, Given({}, (1, 2)), COMMAND) is None  # the other part is pending
    answer_part(study, copied, (2, 2))
    merged = [study.folder / "merged" / cell.folder for cell in study.preset.cells]
    for cell, folder in zip(study.preset.cells, merged, strict=True):
        merge(folder, run_folders(study.place_of(cell)))
    assert all(any(row.failed for row in RunReader(run).rows) for run in merged)
    scan.write_bytes(whole_scan)
    for part in ((1, 2), (2, 2)):
        answer_part(study, copied, part)
    assert run_main(["study", "motion", str(study.folder), *flags(copied, "--shard", "1/2")]).returncode == 0
    assert not any(row.failed for run in merged for row in RunReader(run).rows)
    assert scores_in(study.folder) == scores_in(studied)


def _ladder(tmp_path: Path, run: Path, shares: tuple[float, ...]) -> Any:
    """The results of a ladder of which each cell has this share of the questions right, in every scene alike."""
    folders = []
    for place, share in enumerate(shares):
        copy = shutil.copytree(run, tmp_path / f"cell{place}")
        rows = [json.loads(line) for line in (copy / "results.jsonl").read_text().splitlines()]
        rows = [row | {"score": share, "failed_part": None, "status": "answered"} for row in rows]
        (copy / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        writer = RunWriter(copy, "")
        writer.export(None)
        writer.close()
        folders.append(copy)
    return results_of(PRESETS["ladder"], folders)


def test_a_study_writes_its_tables_as_latex_and_its_plot_as_svg_and_pdf(studied: Path):
    latex = (studied / "study.tex").read_text()
    assert latex.count(r"\toprule") == latex.count(r"\begin{tabular}") == 2
    assert "var(" not in (studied / "study.svg").read_text()
    assert b"/FontFile2" in (studied / "study.pdf").read_bytes()


def test_a_step_is_named_only_if_its_interval_lies_above_the_next_one():
    def steps(*edges: tuple[float, float] | None) -> list[Estimate]:
        return [
            Estimate(name, 20.0 if each is None else sum(each) / 2, 12, each)
            for name, each in zip(("looking", "perceiving", "reasoning"), edges, strict=True)
        ]

    assert most_in(steps((10, 14), (15, 30), (0, 9))) == "perceiving"
    assert most_in(steps((10, 16), (15, 30), (0, 9))) == most_in(steps((10, 14), None, (0, 9))) == "not separable"


def test_the_steps_of_a_ladder_add_up_to_100(studied: Path, tmp_path: Path):
    found = _ladder(tmp_path, runs_of(studied)[0], (0.2, 0.25, 0.5, 0.4, 0.8, 0.1))
    assert [each.name for each in found.losses["overall"]] == list(PRESETS["ladder"].steps)
    for of_task in found.losses.values():
        assert [each.percent for each in of_task] == pytest.approx([5, 25, -10, 40, 20])
    table = loss_table(found)
    assert table.heads[1:6] == ["own views", *PRESETS["ladder"].steps][:5]
    assert {row[-1] for row in table.rows} == {"not separable"} and {row[1] for row in table.rows} == {"20.0"}
    assert "adds up to 100" in markdown_of(found, "Ladder")
