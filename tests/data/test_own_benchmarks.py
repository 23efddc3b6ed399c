"""Benchmarks without code, positions as answers, the debiased VSI-Bench, and where data comes from."""

import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import COMMAND, RoomScans, only_run, run_main

from roomscout.base.errors import in_words
from roomscout.data.answers import POINT_KIND
from roomscout.data.benchmark import BenchmarkError
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import QuestionError, load_questions
from roomscout.runs.reader import RunReader
from roomscout.scoring.summary import label_of

ROOT = COMMAND.parent
DESCRIBED = """
name: kitchens
title: Kitchens
types:
  where_is: {answer: point, task: places, advice: Walk up to it.}
  is_there: yes_no
  lamps: {answer: number, unit: lamps}
overall: tasks
size: 3
references:
  - {name: an expert, percent: 91.5, source: "our report, table 2", protocol: by walking}
questions_from: https://example.org/kitchens
terms: CC0
"""
ROWS = (
    {"scene_name": "kitchen", "question_type": "where_is", "question": "Where is the sink?", "ground_truth": "1, 2"},
    {"scene_name": "kitchen", "question_type": "is_there", "question": "Is there a sofa?", "ground_truth": "no"},
    {"scan": "kitchen.ply", "question_type": "lamps", "question": "How many lamps?", "ground_truth": 2},
)


@pytest.fixture
def kitchens(rooms: RoomScans, tmp_path: Path) -> Path:
    """A benchmark folder with one scan, which two rows name by dataset and scene and one by its file."""
    folder = tmp_path / "kitchens"
    (folder / "mine").mkdir(parents=True)
    scan = next(rooms.root.rglob("*.ply"))
    shutil.copy(scan, folder / "mine" / "kitchen.ply")
    shutil.copy(scan, folder / "kitchen.ply")
    (folder / "benchmark.yaml").write_text(DESCRIBED)
    lines = (json.dumps({"dataset": "mine", **row} if "scan" not in row else row) + "\n" for row in ROWS)
    (folder / "questions.jsonl").write_text("".join(lines))
    return folder


def flags(rooms: RoomScans, log_root: Path) -> list[str]:
    """A run with a scripted policy, without questions and scan root."""
    given = rooms.flags(log_root)
    return ["--batch", "--steps", "1", *given[given.index("--log-root") :]]


def test_a_folder_with_a_yaml_is_run_scored_labelled_and_resumed_from_anywhere(
    rooms: RoomScans, kitchens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    ended = run_main([*flags(rooms, tmp_path / "runs"), "--benchmark", "kitchens"])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = only_run(tmp_path / "runs")
    summary = RunReader(folder).summary.to_json()
    assert summary["asked"]["overall_label"] == "kitchens_overall_3_task"
    assert list(summary["asked"]["tasks"]) == ["places", "is_there", "lamps"]
    assert "published kitchens_overall_3_task: 91.5 % an expert (our report, table 2, by walking)" in ended.stdout
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text(lines[0])
    monkeypatch.chdir("/")
    assert run_main(["--continue", str(folder)]).returncode == 0
    assert len(RunReader(folder).rows) == len(ROWS)


def test_a_part_of_a_folder_with_datasets_is_labelled(rooms: RoomScans, kitchens: Path, tmp_path: Path):
    shutil.move(kitchens / "kitchen.ply", kitchens / "mine" / "other.ply")
    (kitchens / "benchmark.yaml").write_text(DESCRIBED.replace("size: 3", "datasets: [new, mine]\nsize: 6"))
    new = [row | {"dataset": "new", "scan": "mine/other.ply", "scene_name": "other"} for row in ROWS]
    mine = [row | {"dataset": "mine", "scan": "mine/kitchen.ply", "scene_name": "kitchen"} for row in ROWS]
    (kitchens / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*mine, *new]))
    run_main([*flags(rooms, tmp_path / "runs"), "--benchmark", str(kitchens), "--datasets", "new"])
    asked = RunReader(only_run(tmp_path / "runs")).summary.to_json()["asked"]
    assert asked["overall_label"] == "partial_kitchens_overall_3_task_of_3_questions_in_new"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (DESCRIBED, "", "missing keys: types"),
        ("answer: point", "answer: place", "answer_kind 'place' is unknown; the kinds are letter, number"),
        ("answer: point, task", "task", "missing keys: types.where_is.answer"),
        ("yes_no", "{answer: yes_no, unit: m}", "unit 'm' is for answers of kind number"),
        ("overall: tasks", "overall: median", "overall: Input should be 'tasks' or 'questions'"),
        ("percent: 91.5", "percent: high", "references.0.percent: Input should be a valid number"),
        ("source:", "sources:", "missing keys: references.0.source"),
        ("size: 3", "", "references need size, the number of all questions, which they cover"),
        ("task: places", "task: all", "no type or task can be called 'all'"),
        ("is_there: yes_no", "is_there: yes_no: no", "mapping values are not allowed"),
    ],
)
def test_a_bad_yaml_is_refused_in_one_sentence(tmp_path: Path, before: str, after: str, words: str):
    (tmp_path / "benchmark.yaml").write_text(DESCRIBED.replace(before, after, 1))
    with pytest.raises(BenchmarkError, match=f"^{tmp_path}/benchmark.yaml: .*{words.replace('[', '.')}") as refused:
        find_benchmark(str(tmp_path))
    assert in_words(refused.value).startswith(f"--benchmark: {tmp_path}")
    assert "\n" not in str(refused.value)


def test_the_benchmark_of_the_documentation_is_accepted(tmp_path: Path):
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "data.md").read_text(), re.DOTALL)
    (block,) = (each for each in blocks if "\ntypes:" in each)
    (tmp_path / "benchmark.yaml").write_text(block)
    assert find_benchmark(str(tmp_path)).sizes == {"kitchens_overall_3_task": 120}


# ---- positions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("1.5, -2, 0.4", "1.5, -2, 0.4"),
        ("(1.5 -2 .4)", "1.5, -2, .4"),
        ("1.5 m, -2 m, 0.4 m", "1.5, -2, 0.4"),
        ([1.5, -2, 0.4], "1.5, -2, 0.4"),
        ("1.5, -2", None),
        ("by the sink", None),
        ("1, 2, nan", None),
        ([1, [2], 3], None),
        (None, None),
    ],
)
def test_a_position_is_three_finite_coordinates(value: object, answer: str | None):
    assert POINT_KIND.parse(value, ()) == answer


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [
        ("1, 2, 3", "1, 2, 3", 1.0),
        ("1, 2, 3.3", "1, 2, 3", 0.75),
        ("1, 3, 3", "1, 2, 3", 0.5),
        ("1, 2, 9", "1, 2, 3", 0.0),
        ("1, 2, 9", "1, 2", 1.0),
        (None, "1, 2", 0.0),
    ],
)
def test_a_position_scores_the_share_of_distances_that_it_keeps(answer: str | None, truth: str, score: float):
    assert POINT_KIND.score(answer, truth) == score


# ---- VSI-Bench-Debiased -----------------------------------------------------------------------------------------


def vsi_rows(path: Path, *pruned: object) -> Path:
    """Rows of VSI-Bench in its published columns, one for each value of `pruned`; "absent" leaves the column out."""
    row = {"dataset": "scannet", "scene_name": "scene0246_00", "question_type": "object_counting", "options": None,
           "question": "How many pillow(s) are in this room?", "ground_truth": "6"}  # fmt: skip
    kept = ({} if value == "absent" else {"pruned": value} for value in pruned)
    path.write_text("".join(json.dumps({"id": i, **row, **more}) + "\n" for i, more in enumerate(kept)))
    return path


def test_debiased_asks_the_rows_that_were_not_pruned(tmp_path: Path):
    path = vsi_rows(tmp_path / "rows.jsonl", True, False, "True", "False")
    assert [question.id for question in load_questions(path, find_benchmark("vsi-bench-debiased"))] == ["1", "3"]


def test_the_label_of_debiased_says_so():
    debiased = find_benchmark("vsi-bench-debiased")
    assert str(label_of(debiased.scan_types, debiased)) == "debiased_overall_7_task"


@pytest.mark.parametrize(
    ("pruned", "words"),
    [
        ("absent", "row 1: missing column pruned; VSI-Bench-Debiased's columns are id, dataset"),
        ("maybe", "row 1: pruned is 'maybe'; it must be true or false"),
        (None, "row 1: pruned is None; it must be true or false"),
    ],
)
def test_a_row_that_does_not_say_whether_it_was_pruned_is_refused(tmp_path: Path, pruned: object, words: str):
    with pytest.raises(QuestionError, match=words):
        load_questions(vsi_rows(tmp_path / "rows.jsonl", pruned), find_benchmark("vsi-bench-debiased"))
