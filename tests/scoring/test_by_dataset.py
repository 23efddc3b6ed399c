"""Scores by dataset, and the labels of overalls over a part of a benchmark."""

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, run_in_process

from roomscout.analysis.compare.leaderboard import main as leaderboard
from roomscout.analysis.report.writer import write_report
from roomscout.data.benchmark import Benchmark, mean
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.benchmarks.vsi_bench import BENCHMARK as VSI_BENCH
from roomscout.runs.reader import RunReader
from roomscout.scoring.agreement import agreement_lines, by_annotator
from roomscout.scoring.by_dataset import format_by_dataset, scores_by_dataset
from roomscout.scoring.summary import aggregate, part_lines, summarize

ROOMS = replace(find_benchmark("rooms"), label="rooms_overall", sizes={"rooms_overall_7_task": 27 * 12})
TYPES, LEVELS, SCENES = ROOMS.scan_types, ROOMS.datasets, range(12)


def rows(levels: Iterable[str] = LEVELS, types: Iterable[str] = TYPES) -> list[dict[str, Any]]:
    """A row of each type about each of 12 scenes of the levels, some right and some wrong."""
    draw = random.Random(0)
    return [
        {"id": f"{level} {scene} {name}", "dataset": level, "scene_name": f"{level}_{scene}", "question_type": name,
         "ground_truth": "2", "score": float(draw.random() < 0.5), "status": "answered",
         "failed_part": None, "turns": 2, "sample": 1}
        for level in levels for scene in SCENES for name in types
    ]  # fmt: skip


def label(found: list[dict[str, Any]], pending: int = 0, part: str = "") -> str:
    return summarize(found, ROOMS, pending, part)["asked"]["overall_label"]


def test_each_dataset_is_scored_as_if_it_were_alone():
    found = scores_by_dataset(rows(), ROOMS)
    alone = aggregate([row for row in rows() if row["dataset"] == "furnished"], ROOMS)
    assert {**found["furnished"]["tasks"], "overall": found["furnished"]["overall"]} == {
        name: round(percent, 10) for name, percent in alone.items()
    }


def test_each_dataset_has_an_interval_over_its_own_scenes():
    found = scores_by_dataset(rows(), ROOMS)["cluttered"]
    low, high = found["intervals"]["percent"]["overall"]
    assert low < found["overall"] < high and found["intervals"]["scenes"]["overall"] == 12


def test_an_aggregate_that_needs_every_type_scores_no_dataset_or_person_that_lacks_one():
    def strict(benchmark: Benchmark, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
        return {"overall": 100 * mean([mean(scores[name]) for name in TYPES])}

    benchmark = replace(ROOMS, aggregate=strict)
    some = [row | {"answer": "2", "seconds": 1.0} for row in [*rows(["bare"]), *rows(["furnished"], TYPES[:1])]]
    datasets = scores_by_dataset(some, benchmark)
    people = by_annotator([(row["dataset"], row) for row in some], benchmark)
    assert datasets["bare"]["overall"] == people["bare"]["percent"] is not None
    assert datasets["furnished"]["overall"] is people["furnished"]["percent"] is None
    summary = summarize(some, benchmark, 0, "") | {"datasets": datasets, "annotators": people}
    assert any(line.startswith("overall") and line.endswith("-") for line in format_by_dataset(summary))
    assert agreement_lines(summary)[-1] == "furnished: 12 answers, 1 s each (median)"


def test_datasets_are_in_the_order_of_their_benchmark():
    assert list(scores_by_dataset(rows(reversed(LEVELS)), ROOMS)) == ["bare", "furnished", "cluttered"]


def test_a_run_over_one_dataset_has_no_scores_by_dataset():
    assert scores_by_dataset(rows(["bare"]), ROOMS) == {}


def test_the_table_has_a_column_per_dataset():
    found = rows()
    summary = summarize(found, ROOMS) | {"datasets": scores_by_dataset(found, ROOMS)}
    lines = format_by_dataset(summary)
    assert lines[1].split() == ["percent", "by", "dataset", *LEVELS]
    assert lines[-1].split() == ["scored", "108", "108", "108"]


def test_all_questions_have_the_label_of_the_benchmark():
    assert label(rows()) == "rooms_overall_7_task"


def test_one_dataset_alone_has_another_label():
    assert label(rows(["bare"])) == "partial_rooms_overall_7_task_of_108_questions_in_bare"


def test_some_questions_about_all_datasets_have_another_label():
    assert label(rows()[:-9]) == "partial_rooms_overall_7_task_of_315_questions"


def test_some_types_about_all_datasets_keep_their_label():
    assert label(rows(types=TYPES[:1])).startswith("partial_rooms_overall_1_task_without_object_abs_distance+")


def test_several_answers_to_a_question_count_as_one_question():
    twice = [row | {"sample": sample} for row in rows(["bare"]) for sample in (1, 2)]
    assert label(twice) == "partial_rooms_overall_7_task_of_108_questions_in_bare"


def test_an_unfinished_run_over_all_datasets_is_no_part():
    assert label(rows(), pending=5) == "unfinished_rooms_overall_7_task"


@pytest.mark.parametrize(("pending", "part", "begins"), [(5, "", "unfinished"), (0, "part_1_of_2", "part_1_of_2")])
def test_an_unfinished_run_and_a_part_name_the_datasets_that_they_cover(pending: int, part: str, begins: str):
    assert label(rows(["bare"]), pending, part) == f"{begins}_partial_rooms_overall_7_task_in_bare"


def test_an_unfinished_run_over_one_dataset_says_so_in_words():
    found = summarize(rows(["bare"]), ROOMS, pending=5)["asked"]
    words = found.label.in_words([*found.tasks], ROOMS)
    assert words == "unfinished_partial rooms overall of 7 tasks in bare"


def test_questions_about_other_datasets_are_not_the_benchmark():
    found = [row | {"dataset": "mine"} for row in rows(["bare"])]
    assert label(found) == "partial_rooms_overall_7_task_of_108_questions_in_mine"


def test_the_label_of_a_part_of_the_questions_is_said_in_words():
    found = summarize(rows(["bare", "furnished"]), ROOMS)["asked"]
    words = found.label.in_words([*found.tasks], ROOMS)
    assert words == "partial rooms overall of 7 tasks and 216 questions in bare, furnished"


def test_a_part_that_lacks_tasks_names_tasks_and_questions():
    found = summarize(rows(["bare"], [name for name in TYPES if name != "route_planning"]), ROOMS)["asked"]
    words = found.label.in_words([*found.tasks], ROOMS)
    assert words.startswith("partial rooms overall of 6 tasks (") and words.endswith(") and 96 questions in bare")


def test_the_labels_of_vsi_bench_do_not_depend_on_datasets():
    found = [row | {"dataset": "scannet"} for row in rows(["bare"])]
    whole = replace(VSI_BENCH, sizes={"overall_7_task": len({(row["dataset"], row["id"]) for row in found})})
    assert summarize(found, whole)["asked"]["overall_label"] == "overall_7_task"


def test_a_run_over_a_part_of_vsi_bench_says_so():
    summary = summarize(rows(["bare"]), VSI_BENCH)
    (line,) = part_lines({"datasets": ["scannet"], "num_questions": 9}.get, summary, VSI_BENCH)
    assert line.startswith("a part of VSI-Bench (--datasets, --num-questions): ")


def test_a_run_over_a_file_of_ones_own_is_no_part_of_vsi_bench():
    summary = summarize(rows(["bare"]), VSI_BENCH)
    assert part_lines({"questions": "my.jsonl", "num_questions": 9}.get, summary, VSI_BENCH) == []


@pytest.fixture(scope="module")
def run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over two rooms of different datasets."""
    folder = tmp_path_factory.mktemp("two")
    first = rooms.rows[0]["scene_name"]
    asked = [
        row | {"dataset": "small" if row["scene_name"] == first else "large", "scan": str(scan_of(rooms, row))}
        for row in rooms.rows
    ]
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in asked))
    return run_in_process(rooms.config(folder / "runs", questions=questions, steps=1))


def scan_of(rooms: RoomScans, row: dict[str, Any]) -> Path:
    return next(rooms.root.rglob(f"{row['scene_name']}*.ply"))


def test_a_run_keeps_its_scores_by_dataset(run: Path):
    found = (RunReader(run).summary or {})["datasets"]
    assert {name: each["scored"] for name, each in found.items()} == {"large": 4, "small": 4}


def test_a_run_prints_its_scores_by_dataset(run: Path):
    assert re.search(r"percent by dataset +large +small", (run / "run.log").read_text())


def test_the_report_shows_the_scores_by_dataset(run: Path, tmp_path: Path):
    page = write_report(run, tmp_path / "report.html").path.read_text()
    assert re.search(r'By dataset</h3>.*<th scope="col">large</th><th scope="col">small</th>', page, re.DOTALL)


def test_the_leaderboard_has_a_column_per_dataset(run: Path, capsys: pytest.CaptureFixture[str]):
    assert leaderboard([str(run)]) == 0
    assert "| 95 % interval | large | small | failed |" in capsys.readouterr().out
