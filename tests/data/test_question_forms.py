"""Options, ground truths, columns and scans in the documented forms, and what is refused with the form expected."""

import json
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pytest

from roomscout.data.answers import LETTER_KIND, Number, Text
from roomscout.data.benchmark import QuestionType
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.options import Options, read_options
from roomscout.data.questions import Question, QuestionError, load_questions, load_saved, normalized, saved
from roomscout.data.scans import scan_of

SIDE: dict[str, Any] = {
    "scan": "room.ply", "question": "Left or right?", "question_type": "side", "answer_kind": "letter",
    "options": ["A. left", "B. right"], "ground_truth": "B",
}  # fmt: skip
COUNT: dict[str, Any] = {
    "scan": "room.ply", "question": "How many lamps?", "question_type": "object_counting", "ground_truth": 2,
}  # fmt: skip


def read(folder: Path, *rows: dict[str, Any]) -> list[Question]:
    """The questions of a file with these rows."""
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_questions(folder / "q.jsonl")


@pytest.mark.parametrize(
    "written",
    [
        ["left", "right"], [" left ", "right"], ["A. left", "B. right"], {"A": "left", "B": "right"},
        {"A": "left", "B": "right", "C": None}, "left|right", "left | right", '["left", "right"]',
        '{"A": "left", "B": "right"}',
    ],
    ids=str,
)  # fmt: skip
def test_options_get_letters(written: object):
    assert read_options(written).lettered == ("A. left", "B. right")


@pytest.mark.parametrize(
    "written", [["A. left", "B. right"], ["(A) left", "(B) right"], ["A: left", "B) right"], ["B. left", "D. right"]]
)
def test_options_with_letters_stay_as_they_are(written: list[str]):
    assert read_options(written).lettered == tuple(written)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("red, blue", r"must be a list such as .*, or left\|right"),
        ("['left', 'right']", "are not JSON"),
        (["A. left", "right"], "must all have a letter as in 'A. left', or none, and a text"),
        (["a) left", "b) right"], "must all have a letter"),
        (["1. left", "2. right"], "must all have a letter"),
        (["Option B: left", "Option A: right"], "must all have a letter"),
        (["left", " "], "must all have a letter as in 'A. left', or none, and a text"),
        ({"x": "left", "why": "right"}, "must be a list"),
        ([True, False], "must be a list"),
        (5, "options 5 must be"),
        ([str(number) for number in range(27)], "at most 26 options are supported, got 27"),
    ],
)
def test_options_in_other_forms_are_refused(written: object, words: str):
    with pytest.raises(ValueError, match=words):
        read_options(written)


@pytest.mark.parametrize("truth", ["B", "b", "right", "Right.", "B. right"])
@pytest.mark.parametrize("options", [["A. left", "B. right"], ["left", "right"]])
def test_a_truth_is_the_letter_or_the_text_of_an_option(truth: str, options: list[str]):
    assert LETTER_KIND.read_truth(truth, read_options(options)).upper() == "B"


@pytest.mark.parametrize(
    ("options", "truth", "words"),
    [
        (["left", "right"], 1, "not one of the letters A, B"),
        (["A. left", "B. right"], "(B) left", "not one of the letters A, B"),
        (["left", "right"], ["right"], "neither text nor a finite number"),
        (["B", "A"], "A", "either option A or B: give the options letters"),
        (["left", "left"], "left", "either option A or B"),
    ],
)
def test_a_truth_that_names_no_option_or_several_is_refused(
    tmp_path: Path, options: list[str], truth: object, words: str
):
    with pytest.raises(QuestionError, match=rf"row 1 \(id 1\): ground_truth .* of a question of type side is {words}"):
        read(tmp_path, {**SIDE, "options": options, "ground_truth": truth})


@pytest.mark.parametrize(
    ("written", "truth"),
    [
        ("2.50", "2.50"), (2, "2"), (2.0, "2.0"), (Decimal("2.5"), "2.5"), ("12,5", "12.5"), ("0,125", "0.125"),
        ("3 m", "3"), ("3 meters", "3"), ("2,5 m", "2.5"), (" 2 ", "2"),
    ],
)  # fmt: skip
def test_a_number_is_read_as_it_is_written(written: object, truth: str):
    assert Number("m").read_truth(written, Options()) == truth


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1,200", "a number with a comma: write it with a decimal point"),
        ("1,234,567", "a number with a comma"),
        ("3 cm", "not a finite number above 0"),
        (True, "neither text nor a finite number"),
        ([2, 3], "neither text nor a finite number"),
    ],
)
def test_a_number_in_another_form_is_refused(tmp_path: Path, written: object, words: str):
    with pytest.raises(QuestionError, match=words):
        read(tmp_path, {**COUNT, "ground_truth": written})


# Tables


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_the_files_of_spreadsheets_are_read(tmp_path: Path, separator: str, suffix: str):
    lines = ["scan,question,question_type,ground_truth", "room.ply,How wide is it?,object_size_estimation,12.5", ",,,"]
    text = "\r\n".join(lines).replace(",", separator).replace("12.5", "12,5")
    (tmp_path / f"q.{suffix}").write_bytes(f"\ufeff{text}\r\n".encode())
    [question] = load_questions(tmp_path / f"q.{suffix}")
    assert (question.scan, question.ground_truth) == ("room.ply", "12.5")


def test_a_column_for_each_option(tmp_path: Path):
    head = "scan\tquestion\tquestion_type\tanswer_kind\tA\tB\tC\tground_truth"
    (tmp_path / "q.tsv").write_text(f"{head}\nroom.ply\tWhich?\tside\tletter\tleft\tright\t\tright\n")
    [question] = load_questions(tmp_path / "q.tsv")
    assert (question.options, question.ground_truth) == (("A. left", "B. right"), "B")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.json", json.dumps({"questions": [COUNT]}), "must be a JSON list of objects"),
        ("q.json", f"{json.dumps(COUNT)}\n" * 2, "invalid JSON"),
        ("q.jsonl", json.dumps([COUNT]), "row 1: expected a JSON object"),
        ("q.csv", "Scan;Question\nroom.ply;How many?\n", "row 2: missing column dataset, scene_name, question_type"),
        ("q.json", '{"id": {"0": 1}, "question": {"0": "How?"}}', 'to_json.path, orient="records".'),
        ("q.csv", "scan,question,ground_truth\n\nroom.ply,How many?\n", "row 3: 2 cells below a header of 3"),
        (
            "q.csv",
            "version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
            "is a Git LFS pointer instead of the file",
        ),
    ],
)
def test_files_in_other_forms_are_refused(tmp_path: Path, name: str, content: str, words: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(QuestionError, match=f"^{tmp_path / name}.*{words}") as refused:
        load_questions(tmp_path / name)
    assert "\n" not in str(refused.value)


# Scans


@pytest.mark.parametrize("written", ["scans/room.ply", "scans\\room.ply", " scans/room.ply ", "~/scans/room.ply"])
def test_a_scan_is_found_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str):
    scan = tmp_path / "scans" / "room.ply"
    scan.parent.mkdir()
    scan.touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    [question] = read(tmp_path, {**COUNT, "scan": written})
    assert scan_of(question, tmp_path / "nowhere") == scan


def test_a_scan_has_its_own_unit_and_up_axis(tmp_path: Path):
    rows = [
        {**COUNT, "scale": "cm", "up_axis": "-y"},
        {**COUNT, "scan": "b.ply", "scale": "0,001", "up_axis": ""},
        {**COUNT, "scan": "c.ply", "scale": None},
    ]
    questions = read(tmp_path, *rows)
    assert [(each.scale, each.up_axis) for each in questions] == [(0.01, "-y"), (0.001, None), (None, None)]
    assert questions[0].frame.over("z", 1.0) == ("-y", 0.01)
    assert questions[2].frame.over("z", 0.1) == ("z", 0.1)
    (tmp_path / "saved.jsonl").write_text(saved(questions))
    assert load_saved(tmp_path / "saved.jsonl", BENCHMARK) == questions
    assert load_questions(tmp_path / "saved.jsonl") == normalized(questions) == questions
    assert "scale" not in questions[2].row


ROW = {"id": "1", "dataset": "scannet", "scene_name": "s1", "question_type": "object_counting",
       "question": "How many chair(s) are in this room?", "ground_truth": "2"}  # fmt: skip


def test_the_shards_of_a_split_are_read_as_a_folder_if_all_are_there(tmp_path: Path):
    rows = [ROW | {"id": str(number)} for number in range(4)]
    for shard in (0, 1):
        pandas.DataFrame(rows[2 * shard : 2 * shard + 2]).to_parquet(tmp_path / f"test-0000{shard}-of-00002.parquet")
    assert [each.id for each in load_questions(tmp_path)] == ["0", "1", "2", "3"]
    (tmp_path / "test-00000-of-00002.parquet").unlink()
    with pytest.raises(QuestionError, match="all shards of one split"):
        load_questions(tmp_path)


@pytest.mark.parametrize("truth", ["[2.5]", "['4']"])
def test_a_truth_that_is_a_list_is_refused_whatever_its_quotes(truth: str, tmp_path: Path):
    pandas.DataFrame([ROW | {"ground_truth": truth}]).to_csv(tmp_path / "q.csv", index=False)
    with pytest.raises(QuestionError, match=r"row 2 .*is a list: write its value alone"):
        load_questions(tmp_path / "q.csv")


@dataclass(frozen=True)
class Halved(Text):
    """A kind by which no answer is quite right."""

    name = "halved"
    best: float = 0.2
    takes: bool = True

    def parse(self, value: object, letters: object) -> str | None:
        return super().parse(value, ()) if self.takes else None

    def score(self, answer: str | float | None, truth: str) -> float:
        return self.best * float(answer == truth)


@pytest.mark.parametrize("takes", [True, False])
def test_a_truth_that_does_not_score_1_as_an_answer_is_refused(tmp_path: Path, takes: bool):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({**COUNT, "question_type": "colour", "ground_truth": "red"}))
    kinds = [replace(BENCHMARK, types=(QuestionType("colour", Halved(best, takes)),)) for best in (1.0, 0.2)]
    assert [question.ground_truth for question in load_questions(path, kinds[0])] == ["red"]
    with pytest.raises(QuestionError, match=r"ground_truth 'red' .* as an answer, it scores 0\.2 by Halved, not 1"):
        load_questions(path, kinds[1])


@pytest.mark.parametrize(
    ("kind", "truth"),
    [("point", "1, 2"), ("point", "1, 2, 3"), ("pose", "1, 2, 1.5, 90, 0"), ("pose", "1, 2, 1.5, 90, 0, 3"),
     ("number", "1e-3"), ("yes_no", "NO"), ("text", "Red."), ("letter", "b")],
)  # fmt: skip
def test_a_truth_of_each_kind_scores_1(tmp_path: Path, kind: str, truth: str):
    options = {"options": ["A. x", "B. y"]} if kind == "letter" else {}
    [question] = read(tmp_path, {**COUNT, "question_type": "t", "answer_kind": kind, "ground_truth": truth, **options})
    assert question.ground_truth == truth


@pytest.mark.parametrize(("means", "words"), [
    ("yes", "Yes TRUE ja Ja WAHR Oui VRAI sí Sí SÍ si VERDADERO Vero SIM waar"),
    ("no", "No FALSE nein Nein FALSCH Non FAUX FALSO não Nao onwaar"),
])  # fmt: skip
def test_yes_and_no_are_read_as_people_write_them(tmp_path: Path, means: str, words: str):
    """In a cell of a spreadsheet, and as an answer."""
    rows = "".join(f"room.ply;there;yes_no;Is there a bed?;{word}\n" for word in words.split())
    (tmp_path / "q.csv").write_text("scan;question_type;answer_kind;question;ground_truth\n" + rows)
    questions = load_questions(tmp_path / "q.csv")
    assert {question.ground_truth.lower() for question in questions} == {means}
    answers = [f"{word}{more}" for word in words.split() for more in ("", ".", ", behind the door")]
    assert {questions[0].parse_answer(answer) for answer in answers} == {means}
    assert {question.score(means) for question in questions} == {1.0}
    (tmp_path / "q.csv").write_text(
        (tmp_path / "q.csv").read_text() + "room.ply;there;yes_no;Is there a bed?;vielleicht"
    )
    with pytest.raises(QuestionError, match=r"vielleicht.* neither yes nor no .also ja, non, TRUE or FALSCH"):
        load_questions(tmp_path / "q.csv")
