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
from result_rows import result_row

from roomscout.analysis.report.writer import write_report
from roomscout.data.benchmark import Benchmark, mean
from roomscout.data.benchmarks import find_benchmark
from roomscout.runs.reader import RunReader
from roomscout.scoring.agreement import agreement_lines, by_annotator
from roomscout.scoring.by_dataset import dataset_table, scores_by_dataset
from roomscout.scoring.scores import ResultRow
from roomscout.scoring.summary import aggregate, summarize

ROOMS = replace(find_benchmark("rooms"), label="rooms_overall", sizes={"rooms_overall_7_task": 27 * 12})
TYPES, LEVELS, SCENES = ROOMS.scan_types, ROOMS.datasets, range(12)


def rows(levels: Iterable[str] = LEVELS, types: Iterable[str] = TYPES) -> list[ResultRow]:
    """A row of each type about each of 12 scenes of the levels, some right and some wrong."""
    draw = random.Random(0)
    return [
        result_row(
            name,
            float(draw.random() < 0.5),
            id=f"{level} {scene} {name}",
            dataset=level,
            scene_name=f"{level}_{scene}",
        )
        for level in levels
        for scene in SCENES
        for name in types
    ]


def test_each_dataset_is_scored_as_if_it_were_alone():
    found = scores_by_dataset(rows(reversed(LEVELS)), ROOMS)
    assert list(found) == ["bare", "furnished", "cluttered"]
    alone = aggregate([row for row in rows(reversed(LEVELS)) if row.dataset == "furnished"], ROOMS)
    assert {**found["furnished"].tasks, "overall": found["furnished"].overall} == {
        name: round(percent, 10) for name, percent in alone.items()
    }
    assert scores_by_dataset(rows(["bare"]), ROOMS) == {}


def test_an_aggregate_that_needs_every_type_scores_no_dataset_or_person_that_lacks_one():
    def strict(benchmark: Benchmark, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
        return {"overall": 100 * mean([mean(scores[name]) for name in TYPES])}

    benchmark = replace(ROOMS, aggregate=strict)
    some = [*rows(["bare"]), *rows(["furnished"], TYPES[:1])]
    datasets = scores_by_dataset(some, benchmark)
    people = by_annotator([(row.dataset, row) for row in some], benchmark)
    assert datasets["bare"].overall == people["bare"].percent is not None
    assert datasets["furnished"].overall is people["furnished"].percent is None
    summary = replace(summarize(some, benchmark), datasets=datasets, annotators=people)
    by_dataset = dataset_table(summary)
    assert by_dataset is not None and ["overall", f"{datasets['bare'].overall:.1f}", "-"] in by_dataset.rows
    heads, *lines = [line.split() for line in agreement_lines(summary) if line]
    assert heads == ["percent", "(answers)", "bare", "furnished"] and lines[-2] == ["answers", "108", "12"]
    assert ["which", "covers", "108", "answers", "of", "9", "types"] in lines


def test_the_table_has_a_column_per_dataset():
    found = rows()
    table = dataset_table(replace(summarize(found, ROOMS), datasets=scores_by_dataset(found, ROOMS)))
    assert table is not None and table.heads == ["percent by dataset", *LEVELS]
    assert table.rows[-1] == ["scored answers", "108", "108", "108"]


def without(*names: str) -> list[str]:
    return [name for name in TYPES if name not in names]


SIX_TASKS = dict.fromkeys(ROOMS.by_name[name].task for name in without("route_planning"))
BARE = "partial_rooms_overall_7_task_of_108_questions_in_bare"


@pytest.mark.parametrize(
    ("found", "pending", "part", "label", "words"),
    [
        (rows(), 0, "", "rooms_overall_7_task", "rooms_overall_7_task"),
        (rows(["bare"]) * 2, 0, "", BARE, "partial rooms overall of 7 tasks and 108 questions in bare"),
        (
            rows()[:-9],
            0,
            "",
            "partial_rooms_overall_7_task_of_315_questions",
            "partial rooms overall of 7 tasks and 315 questions",
        ),
        (rows(), 5, "", "unfinished_rooms_overall_7_task", "unfinished_rooms_overall_7_task"),
        (
            rows(["bare"]),
            0,
            "part_1_of_2",
            "part_1_of_2_partial_rooms_overall_7_task_in_bare",
            "part_1_of_2_partial rooms overall of 7 tasks in bare",
        ),
        (
            rows(["bare"], without("route_planning")),
            0,
            "",
            "partial_rooms_overall_6_task_of_96_questions_in_bare_without_route_planning",
            f"partial rooms overall of 6 tasks ({', '.join(SIX_TASKS)}) and 96 questions in bare",
        ),
    ],
)
def test_the_label_and_the_words_of_an_overall(found: list[ResultRow], pending: int, part: str, label: str, words: str):
    asked = summarize(found, ROOMS, pending, part).asked
    assert (str(asked.label), asked.label.in_words([*asked.tasks], ROOMS)) == (label, words)


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


def test_a_run_keeps_and_its_report_shows_the_scores_by_dataset(run: Path, tmp_path: Path):
    found = RunReader(run).summary.datasets
    assert {name: each.scored for name, each in found.items()} == {"large": 4, "small": 4}
    page = write_report(run, tmp_path / "report.html").path.read_text()
    assert re.search(r'By dataset</h3>.*<th scope="col">large</th><th scope="col">small</th>', page, re.DOTALL)
