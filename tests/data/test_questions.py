"""Every file format yields the same questions, and errors name the bad row and how to fix it."""

import csv
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from roomscout.data.answers import POSE_KIND, Number
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.question import with_kind
from roomscout.data.questions import (
    Question,
    QuestionError,
    QuestionSource,
    ask_one,
    fingerprint,
    load_questions,
    load_saved,
    normalized,
    saved,
)
from roomscout.data.scans import missing_scans, scan_of
from tests.conftest import vsi_question

SAMPLE = Path(__file__).parents[1] / "fixtures" / "vsi_bench_sample.jsonl"
COUNTING: dict[str, Any] = {
    "id": "007",
    "dataset": "arkitscenes",
    "scene_name": "42446167",
    "question_type": "object_counting",
    "question": 'How many "big" chair(s), if any,\nare in this room?',
    "options": None,
    "ground_truth": "4",
}
ROUTE: dict[str, Any] = {
    "id": "8",
    "dataset": "scannetpp",
    "scene_name": "0042",
    "question_type": "route_planning",
    "question": "You are a robot beginning at the door …",
    "options": ["A. Turn Back", 'B. Don\'t turn, "wait"', "C. Turn Left 😀"],
    "ground_truth": "B",
}
ORDER: dict[str, Any] = {**ROUTE, "id": "9", "scene_name": "0043", "question_type": "obj_appearance_order"}

Writer = Callable[[Path, list[dict]], None]


def write_jsonl(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_json(path: Path, rows: list[dict]) -> None:
    path.write_text(json.dumps(rows))


def write_csv(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        cells = ({"options": json.dumps(row["options"])} if "options" in row else {} for row in rows)
        writer.writerows({**row, **cell} for row, cell in zip(rows, cells, strict=True))


def write_parquet(path: Path, rows: list[dict]) -> None:
    pd.DataFrame(rows).to_parquet(path)


WRITERS = [
    ("q.jsonl", write_jsonl),
    ("q.json", write_json),
    ("q.csv", write_csv),
    ("q.parquet", write_parquet),
]


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_every_format_gives_the_same_questions(tmp_path: Path, name: str, write: Writer) -> None:
    rows = [COUNTING, ROUTE]
    write(tmp_path / name, rows)
    expected = [vsi_question(**{**row, "options": tuple(row["options"] or ())}) for row in rows]
    assert load_questions(tmp_path / name) == expected


# Bad input


def error_of(path: Path, **filters: Any) -> str:
    with pytest.raises(QuestionError) as error:
        load_questions(path, **filters)
    assert "\n" not in str(error.value)
    return str(error.value)


BAD_ROWS = [
    ({**ROUTE, "question_type": "chess"}, "unknown question_type 'chess'"),
    ({**ROUTE, "question_type": "open"}, "open takes no options"),
    ({**ROUTE, "id": "007"}, "1 has the same id"),
    ({**ROUTE, "id": None}, "id: Input should be a valid string, got None"),
    ({**ROUTE, "id": 1.5}, "id: Input should be a valid string"),
    ({**ROUTE, "scene_name": ""}, "scene_name: String should have at least 1 character"),
    ({**ROUTE, "scene_name": "\ud83d"}, "scene_name: Input should be a valid string"),
    ({**ROUTE, "dataset": None}, "dataset: Input should be a valid string"),
    ({**ROUTE, "question": "  \n"}, "the question is empty"),
    ({**ROUTE, "question": None}, "question: Input should be a valid string"),
    ({**ROUTE, "question": "broken \ud83d"}, "surrogate"),
    (
        {**ROUTE, "ground_truth": "D"},
        "ground_truth 'D' of a question of type route_planning is not one of the letters A, B, C",
    ),
    ({**ROUTE, "ground_truth": ""}, "ground_truth ''"),
    ({**ROUTE, "ground_truth": None}, "ground_truth None"),
    ({**ROUTE, "options": []}, "needs at least two options, but has 0"),
    ({**ROUTE, "options": ["B. left"]}, "needs at least two options, but has 1"),
    ({**ROUTE, "options": ["B. left", "B. right"]}, "duplicate letters (B, B)"),
    ({**COUNTING, "id": "8", "ground_truth": "four"}, "ground_truth 'four'"),
    ({**COUNTING, "id": "8", "ground_truth": "0"}, "not a finite number above 0"),
    ({**COUNTING, "id": "8", "options": ["A. 1", "B. 2"]}, "object_counting takes no options"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_a_bad_row_is_named(tmp_path: Path, row: dict, message: str) -> None:
    write_jsonl(tmp_path / "q.jsonl", [COUNTING, row])
    error = error_of(tmp_path / "q.jsonl")
    assert f"{tmp_path}/q.jsonl, row 2" in error
    assert message in error


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.jsonl", b"", "is empty"),
        ("q.csv", b"", "is empty"),
        ("q.json", b"[]", "is empty"),
        ("q.csv", ",".join(COUNTING).encode(), "is empty"),
        ("q.json", b"", "invalid JSON"),
        ("q.txt", b"", "a question file is one of .jsonl, .json, .csv, .tsv, .parquet"),
        ("q.csv", "Küche".encode("latin-1"), ": save it again as UTF-8"),
        ("q.jsonl", None, "No such file"),
        ("q.parquet", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    error = error_of(tmp_path / name)
    assert f"{tmp_path}/{name}" in error and words in error


# Filters


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "q.jsonl", [COUNTING, ROUTE, ORDER])
    return tmp_path / "q.jsonl"


@pytest.mark.parametrize(
    "filters",
    [
        {"datasets": ["scannetpp"]},
        {"question_types": ["route_planning"]},
        {"scenes": ["0042"]},
        {"ids": ["8"]},
        {"ids": ["8", "007"], "datasets": ["scannetpp"]},
    ],
)
def test_filters_select_and_combine(source: Path, filters: dict) -> None:
    assert [question.id for question in load_questions(source, **filters)] == ["8"]


@pytest.mark.parametrize(
    ("filters", "absent", "existing"),
    [
        ({"datasets": ["matterport"]}, "dataset matterport", "arkitscenes, scannetpp"),
        ({"question_types": ["room_size_estimation"]}, "question_type room_size", "object_counting, route_planning"),
        ({"scenes": ["42"]}, "scene_name 42", "42446167, 0042"),
        ({"ids": ["8", "7"]}, "id 7", "007, 8, 9"),
    ],
)
def test_a_filter_value_that_does_not_occur_is_refused(source: Path, filters: dict, absent: str, existing: str) -> None:
    with pytest.raises(QuestionError, match=f"has no {absent}") as refused:
        load_questions(source, **filters)
    assert [refused.value.setting] == list(filters)
    assert f"it has {existing}" in str(refused.value)


def test_questions_about_the_video_are_excluded_and_the_reason_is_logged(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        questions = load_questions(source)
    assert [question.id for question in questions] == ["007", "8"]
    assert len(caplog.messages) == 1
    assert "Excluded all obj_appearance_order questions (1)" in caplog.messages[0]


def test_types_apart_from_the_overall_are_said_to_be_excluded_only_to_who_asked_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rooms = find_benchmark("rooms")
    rows = [vsi_question(str(number), "bare", "room", "object_counting", "?") for number in range(2)]
    views = replace(rows[0], id="v", question_type="view_finding", kind=POSE_KIND)
    source = QuestionSource("rooms", [*rows, views], frozenset(), of_benchmark=True)
    with caplog.at_level(logging.INFO):
        assert source.choose(rooms) == rows and not caplog.messages
        assert source.choose(rooms, ids=["0", "v"]) == rows[:1]
        assert source.choose(rooms, question_types=["view_finding"]) == [views]
    assert [message.partition(":")[0] for message in caplog.messages] == ["Excluded all view_finding questions (1)"]
    with pytest.raises(QuestionError, match="view_finding is asked only if the question types name it"):
        source.choose(rooms, ids=["v"])


# Question objects


def as_object(row: dict[str, Any]) -> Question:
    """A row as an object, with its values as they are."""
    return Question(**{**row, "options": row["options"] or ()})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"id": 7}, {"id": "7"}),
        ({"id": 7.0}, {"id": "7"}),
        ({"id": np.int64(7)}, {"id": "7"}),
        ({"id": " a "}, {"id": "a"}),
        ({"ground_truth": "4\n"}, {"ground_truth": "4"}),
        ({"ground_truth": 4}, {"ground_truth": "4"}),
        ({"ground_truth": np.float32(2.5)}, {"ground_truth": "2.5"}),
        ({"ground_truth": None}, {"ground_truth": None}),
        ({"options": []}, {"options": ()}),
    ],
)
def test_objects_are_normalized_like_rows(given: dict, read: dict) -> None:
    plain = replace(as_object(COUNTING), options=())
    assert normalized([replace(plain, **given)]) == [with_kind(replace(plain, **read), BENCHMARK)]


def test_the_fingerprint_depends_on_the_order() -> None:
    questions = load_questions(SAMPLE)
    assert fingerprint(questions) == fingerprint(load_questions(SAMPLE))
    assert fingerprint(questions) != fingerprint(questions[::-1])


def test_saved_questions_are_read_exactly_as_they_were(tmp_path: Path) -> None:
    toy = find_benchmark(f"{Path(__file__).parents[2]}/examples/toy_benchmark.py:TOY")
    questions = [
        ask_one("How many chair(s) are in this room?", "odd \udce9 \u2028 name", ground_truth="3"),
        ask_one("Which one?", "room", options=("left", "right")),
        *load_questions(SAMPLE),
        with_kind(Question("5", "mine", "room", "their own", "How wide?", kind=Number("cm")), BENCHMARK),
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text(saved(questions))
    assert load_saved(path, BENCHMARK) == questions
    assert fingerprint(load_saved(path, BENCHMARK)) == fingerprint(questions)
    assert all({"answer_kind", "unit"} <= json.loads(line).keys() for line in path.read_text().splitlines())
    lamps = [with_kind(Question("1", "mine", "room", "lamp_count", "How many lamps?", ground_truth="2"), toy)]
    path.write_text(saved(lamps))
    assert load_saved(path, toy) == load_questions(path, toy) == lamps


OWN = {"question_type": "object_counting", "question": "How many chair(s) are in this room?", "ground_truth": "2"}


def test_a_row_may_name_its_scan_beside_the_file_or_below_the_scan_root(tmp_path: Path) -> None:
    (tmp_path / "mine/a").mkdir(parents=True)
    (tmp_path / "mine/a/mesh.ply").touch()
    file = tmp_path / "mine/questions.jsonl"
    write_jsonl(file, [{**OWN, "scan": "a/mesh.ply"}, {**OWN, "scan": "b/mesh.glb", "scene_name": "b"}])
    beside, below = load_questions(file)
    assert (beside.scan, beside.scene) == (str(tmp_path / "mine/a/mesh.ply"), ("own", "a/mesh"))
    assert (below.scan, below.scene) == ("b/mesh.glb", ("own", "b"))
    root = tmp_path / "scans"
    root.mkdir()
    assert scan_of(beside, root) == tmp_path / "mine/a/mesh.ply"
    assert missing_scans([beside, below], root).keys() == {("own", "b")}
    (root / "b").mkdir()
    (root / "b/mesh.glb").touch()
    assert scan_of(below, root) == root / "b/mesh.glb"
    again = tmp_path / "again.jsonl"
    again.write_text(saved([beside, below]))
    assert load_questions(again) == load_saved(again, BENCHMARK) == normalized([beside, below]) == [beside, below]
