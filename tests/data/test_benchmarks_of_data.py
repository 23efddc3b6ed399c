"""Benchmarks, answer kinds and types that a file declares: one run each, and what they refuse."""

import json
import re
from pathlib import Path

import pytest
from planned import run_settings
from result_rows import result_row

from roomscout.base.errors import in_words
from roomscout.data.benchmark import BenchmarkError
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.runs.reader import RunReader
from roomscout.scoring.summary import reference_lines, summarize
from tests.conftest import RoomScans, only_run, results, run_main

ROOT = Path(__file__).parents[2]
TOY = f"{ROOT / 'examples' / 'toy_benchmark.py'}:TOY"
CLOCK = f"{ROOT / 'examples' / 'clock_benchmark.py'}:CLOCK"
ASKED = {
    "is_there": ("Is there a lamp in this room?", None, "yes"),
    "is_empty": ("Is this room empty?", None, "no"),
    "lamp_count": ("How many lamps are there?", None, "2"),
    "which_side": ("Is the lamp left or right of the bed?", ["A. left", "B. right"], "A"),
    "colour_of": ("Which colour has the bed?", None, "blue"),
}


def write_rows(path: Path, scene: str, asked: dict, **columns: str) -> Path:
    rows = [
        {"id": name, "dataset": "scannet", "scene_name": scene, "question_type": name, "question": question,
         "options": options, "ground_truth": truth, **columns}
        for name, (question, options, truth) in asked.items()
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scene_of(rooms: RoomScans) -> str:
    return rooms.rows[0]["scene_name"]


def test_the_example_benchmark_is_run_scored_labelled_and_resumed(rooms: RoomScans, tmp_path: Path):
    questions = write_rows(tmp_path / "toy.jsonl", scene_of(rooms), ASKED)
    ended = run_main(rooms.flags(tmp_path / "runs", "--benchmark", TOY, "--questions", str(questions), "--steps", "1"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = only_run(tmp_path / "runs")
    reader = RunReader(folder)
    assert reader.summary.to_json()["asked"]["overall_label"] == "toy_overall_4_task"
    assert list(reader.summary.to_json()["asked"]["tasks"]) == ["presence", "lamp_count", "which_side", "colour_of"]
    assert "Toy scoring" in reader.facts.protocol
    valid = {"is_there": {"yes", "no"}, "which_side": {"A", "B"}, "colour_of": {"unknown"}}
    answers = {row.id: row.answer for row in reader.rows}
    assert all(answers[name] in expected for name, expected in valid.items())
    before, lines = results(folder), (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:2]))
    assert run_main(["--continue", str(folder)]).returncode == 0
    assert results(folder) == before
    refused = run_main(["--continue", str(folder), "--benchmark", "vsi-bench"])
    assert (refused.returncode, "--benchmark" in refused.stderr) == (2, True)


@pytest.mark.parametrize(("answer", "score"), [("3", 1.0), ("2", 5 / 6), ("9", 0.0), ("12", 0.5), (None, 0.0)])
def test_an_hour_scores_by_its_angle(answer: str | None, score: float):
    (kind,) = (each.kind for each in find_benchmark(CLOCK).types)
    assert kind.score(answer, "3") == pytest.approx(score)


BROKEN_KIND = """
from roomscout.data.answers import Text
from roomscout.data.benchmark import Benchmark, QuestionType

class Code(Text):
    name = "code"

    def {method}

BROKEN = Benchmark("broken", "Broken", (QuestionType("code", Code()), QuestionType("text", Text())))
"""
FAILING_SCORE = """score(self, answer, truth):
        return 1.0 if answer == truth else int(answer or 0)
"""


@pytest.mark.parametrize(
    ("method", "code"),
    [("score", FAILING_SCORE), ("parse", "parse(self, value, letters):\n        return {'7': '7'}[value]\n")],
)
def test_an_error_in_a_kind_fails_its_question_alone(rooms: RoomScans, tmp_path: Path, method: str, code: str):
    broken = benchmark_in(tmp_path, BROKEN_KIND.replace("{method}", code)).replace("MINE", "BROKEN")
    asked = {"code": ("Which code?", None, "7"), "text": ("Which colour?", None, "red")}
    path = write_rows(tmp_path / "code.jsonl", scene_of(rooms), asked)
    ended = run_settings(rooms.config(tmp_path / "runs", questions=path, benchmark=broken, steps=1))
    failed = {row.question_type: row for row in ended.rows if row.failed}
    assert (ended.status, list(failed), failed["code"].score) == (1, ["code"], 0.0)
    assert f"the {method} of Code failed" in (failed["code"].error or "")


def test_types_that_rows_declare_count_in_no_overall(rooms: RoomScans, tmp_path: Path):
    path = write_rows(tmp_path / "own.jsonl", scene_of(rooms), {"is_there": ASKED["is_there"]}, answer_kind="yes_no")
    weight = write_rows(
        tmp_path / "weight.jsonl", scene_of(rooms), {"weight": ("How heavy is the bed?", None, "80")},
        answer_kind="number", unit="kg",
    )  # fmt: skip
    path.write_text(path.read_text() + weight.read_text() + json.dumps(rooms.rows[0]) + "\n")
    assert run_settings(rooms.config(tmp_path / "runs", questions=path, steps=1)).status == 0
    summary = RunReader(only_run(tmp_path / "runs")).summary.to_json()
    counted = rooms.rows[0]["question_type"]
    assert list(summary["types"]) == [counted, "is_there", "weight", "all"]
    assert (summary["asked"]["scored"], summary["asked"]["scored_own"]) == (3, 2)
    assert list(summary["asked"]["tasks"]) == [BENCHMARK.by_name[counted].task]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "vsibench",
            "^--benchmark: there is no benchmark vsibench; there is openeqa, revsi, rooms, rooms-twins, sqa3d, "
            "viewsuite, vsi-bench, vsi-bench-debiased, or name your own as path/to/file.py",
        ),
        ("nowhere.py:TOY", "^--benchmark: nowhere.py:TOY: there is no file nowhere.py"),
        (TOY.replace("TOY", "NONE"), "has no NONE"),
        (TOY.replace("TOY", "LETTER_KIND"), "Letter is not a Benchmark"),
    ],
)
def test_a_benchmark_that_cannot_be_loaded_is_refused(name: str, words: str):
    with pytest.raises(BenchmarkError) as refused:
        find_benchmark(name)
    assert re.search(words, in_words(refused.value))


RECORD = """
from roomscout.data.answers import Number
from roomscout.data.benchmark import Benchmark, QuestionType
def made(**changes):
    types = (QuestionType("object_counting", Number("objects")),)
    return Benchmark(**{"name": "mine", "title": "Mine", "types": types, **changes})
"""


def benchmark_in(folder: Path, source: str) -> str:
    path = folder / "mine.py"
    path.write_text(f"{RECORD}{source}\n")
    return f"{path}:MINE"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("1 / 0", r"raises ZeroDivisionError: division by zero \(mine.py, line 7\) when it is imported: fix it"),
        ("import sys; sys.exit(5)", r"raises SystemExit: 5 \(mine.py, line 7\)"),
        ("MINE = made(types=2 * made().types)", "several types have the name 'object_counting'"),
        ("MINE = made(types=(QuestionType('all', Number()),))", "no type or task can be called 'all'"),
    ],
)
def test_a_broken_benchmark_file_is_refused(tmp_path: Path, source: str, words: str):
    with pytest.raises(BenchmarkError, match=words):
        find_benchmark(benchmark_in(tmp_path, source))


def test_a_run_whose_aggregate_was_broken_is_scored_once_it_is_fixed(rooms: RoomScans, tmp_path: Path):
    named = benchmark_in(tmp_path, "MINE = made(aggregate=lambda benchmark, scores: 1 / 0)")
    counting = next(row for row in rooms.rows if row["question_type"] == "object_counting")
    (tmp_path / "one.jsonl").write_text(json.dumps(counting))
    flags = ["--benchmark", named, "--questions", str(tmp_path / "one.jsonl"), "--steps", "1"]
    ended = run_main(rooms.flags(tmp_path / "runs", *flags))
    folder = only_run(tmp_path / "runs")
    why = "the aggregate of Mine failed (ZeroDivisionError('division by zero') in mine.py, line 7)"
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert why in ended.stdout + ended.stderr
    summary = RunReader(folder).summary.to_json()
    assert summary["errors"][0].startswith(why)
    assert summary["asked"]["overall_label"] == "mean_over_questions_1_task"
    assert summary["asked"]["mean_over_questions_1_task"] == summary["types"]["object_counting"]["percent"]
    benchmark_in(tmp_path, "MINE = made()")
    find_benchmark.cache_clear()  # as in a new process
    assert run_main(["--continue", str(folder)]).returncode == 0
    summary = RunReader(folder).summary.to_json()
    assert summary["asked"]["overall_label"] == "mine_overall_1_task" and "errors" not in summary


def test_published_scores_are_named_only_beside_the_whole_benchmark():
    types = BENCHMARK.scan_types
    whole = [result_row(types[number % len(types)], 1.0, id=str(number)) for number in range(4512)]
    lines = reference_lines(summarize(whole, BENCHMARK), BENCHMARK)
    assert any("mean of the published task scores, overall_7_task: 36.9 % most frequent" in line for line in lines)
    assert not any(line.startswith("published") for line in lines), "no overall over seven tasks is published"
    assert reference_lines(summarize(whole[:-1], BENCHMARK), BENCHMARK) == []


def test_only_the_benchmark_and_the_procedural_rooms_name_its_types():
    """And ReVSI, whose types are variants of them, and the trainer of the explorer, which answers these types alone."""
    named = [
        str(path.relative_to(ROOT / "roomscout"))
        for path in (ROOT / "roomscout").rglob("*.py")
        if path.relative_to(ROOT / "roomscout").parts[0] not in ("analysis", "command", "training", "speed")
        and any(name in path.read_text() for name in BENCHMARK.by_name)
    ]
    assert sorted(named) == [
        "data/benchmarks/revsi.py",
        "data/benchmarks/vsi_bench.py",
        "data/benchmarks/vsi_bench_debiased.py",
        "rooms/benchmark.py",
        "rooms/questions.py",
        "rooms/split.py",
        "rooms/twin_split.py",
        "rooms/twins.py",
    ]
