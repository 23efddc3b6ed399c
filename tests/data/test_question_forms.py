"""Options, ground truths, columns and scans in the forms in which people write them."""

import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roomscout.data.answers import POINT_KIND, YES_NO_KIND, Number
from roomscout.data.options import Options, read_options, written_options
from roomscout.data.questions import Question, QuestionError, ask_one, load_questions, load_saved, normalized, saved
from roomscout.data.scans import ScanNotFound, scan_of

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
        ["A.left", "B.right"], ["A)left", "B)right"], ["a. left", "b. right"], ["a) left", "b) right"],
        ["(a) left", "(b) right"], ["(A)left", "(B)right"], ["[A] left", "[B] right"], ["A．left", "B．right"],
        ["A - left", "B - right"], ["A left", "B right"], ["1. left", "2. right"], ["1) left", "2) right"],
        ["(1) left", "(2) right"], ["1.left", "2.right"], ["0. left", "1. right"], ["left", "right"],
        [" left ", "right"], {"A": "left", "B": "right"}, {"a": "left", "b": "right"}, {"1": "left", "2": "right"},
        {"A": "A. left", "B": "B. right"}, {"option_a": "left", "option_b": "right"},
        {"A": "left", "B": "right", "C": None}, {"text": ["left", "right"], "label": ["A", "B"]},
        {"text": ["left", "right"], "label": ["1", "2"]},
        [{"label": "A", "text": "left"}, {"label": "B", "text": "right"}],
        [{"A": "left"}, {"B": "right"}], "left|right", "left | right", '["left", "right"]',
        '{"A": "left", "B": "right"}',
        "{'A': 'left', 'B': 'right'}", "['left' 'right']", "A. left\nB. right", "left\nright", "A. left B. right",
        "A. left, B. right", "A.left; B.right", "1. left 2. right", "left; right", ["left|right"],
        ["Option A: left", "Option B: right"], ["**A.** left", "**B.** right"], ["<A> left", "<B> right"],
        ["A = left", "B = right"], ["A — left", "B — right"], ["Ａ．left", "Ｂ．right"],
    ],
    ids=str,
)  # fmt: skip
def test_options_get_letters(written: object):
    assert read_options(written_options(written)).lettered == ("A. left", "B. right")


@pytest.mark.parametrize(
    "written", [["A. left", "B. right"], ["(A) left", "(B) right"], ["A: left", "B) right"], ["B. left", "D. right"]]
)
def test_options_with_letters_stay_as_they_are(written: list[str]):
    assert read_options(written_options(written)).lettered == tuple(written)


@pytest.mark.parametrize(
    ("written", "texts"),
    [
        (["1.5 m", "2.5 m"], ["1.5 m", "2.5 m"]),
        (["10:30", "11:30"], ["10:30", "11:30"]),
        ([1, 2.0, 3], ["1", "2", "3"]),
        (["A chair", "B chair"], ["A chair", "B chair"]),
        (["s. Bahn", "u. Bahn"], ["s. Bahn", "u. Bahn"]),
        (["2. left", "3. right"], ["2. left", "3. right"]),
        (["e.g. a lamp", "i.e. a bed"], ["e.g. a lamp", "i.e. a bed"]),
    ],
)
def test_the_beginning_of_a_text_is_no_label(written: list[object], texts: list[str]):
    assert [text for _, text in read_options(written_options(written)).texts] == texts


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("red, blue", r"write a JSON list, or \| between them, as in red\|blue"),
        ("red", "are not a list"),
        (["A. left", "right"], r"'right' has no letter or no text, unlike 'A. left'; write it as 'B. right'"),
        (["A.left", "right"], r"write it as 'B. right'"),
        (["left", " "], "option B is empty"),
        ({"x": "left", "why": "right"}, "options have the keys x, why; they must be letters"),
        ([True, False], "option True is not a text"),
        (5, "options are 5; they must be"),
        ([str(number) for number in range(27)], "at most 26 are supported, got 27"),
    ],
)
def test_options_that_cannot_be_read_are_refused_with_the_fix(written: object, words: str):
    with pytest.raises(ValueError, match=words):
        read_options(written_options(written))


@pytest.mark.parametrize("nothing", [None, "", "[]", "null", float("nan"), []])
def test_no_options(nothing: object):
    assert read_options(written_options(nothing)) == Options()


@pytest.mark.parametrize("truth", ["B", "B.", "(B)", "[B]", "B. right", "right", "Right.", " b) ", ["B"], "Option B"])
@pytest.mark.parametrize("options", [["A. left", "B. right"], ["left", "right"], ["a) left", "b) right"]])
def test_a_truth_names_an_option(tmp_path: Path, truth: object, options: list[str]):
    [question] = read(tmp_path, {**SIDE, "options": options, "ground_truth": truth})
    assert question.ground_truth == "B"


@pytest.mark.parametrize("truth", ["(B) right", "b: Right", "Option B - right", "Ｂ"])
def test_a_truth_with_another_mark_names_an_option(tmp_path: Path, truth: str):
    [question] = read(tmp_path, {**SIDE, "ground_truth": truth})
    assert question.ground_truth == "B"
    with pytest.raises(QuestionError, match="not one of the letters A, B"):
        read(tmp_path, {**SIDE, "ground_truth": "(B) left"})


def test_named_options_keep_their_letters_in_any_order(tmp_path: Path):
    [question] = read(tmp_path, {**SIDE, "options": ["Option B: left", "Option A: right"], "ground_truth": "B"})
    assert (question.options, question.ground_truth) == (("B. left", "A. right"), "B")


@pytest.mark.parametrize(
    ("options", "truths", "letters"),
    [
        (["1. left", "2. right"], ["2"], ["B"]),
        (["0. left", "1. right"], [1], ["B"]),
        (["left", "right", "ahead"], [0, 1, 2], ["A", "B", "C"]),
        (["left", "right", "ahead"], ["3", "1", 2.0], ["C", "A", "B"]),
        (["2", "3", "4"], ["3"], ["B"]),
        (["A. B", "B. A"], ["A"], ["A"]),
        (["yes", "no"], ["no"], ["B"]),
    ],
)
def test_a_truth_may_be_the_number_of_an_option(
    tmp_path: Path, options: list[str], truths: list[object], letters: list[str]
):
    rows = [{**SIDE, "options": options, "ground_truth": truth} for truth in truths]
    assert [question.ground_truth for question in read(tmp_path, *rows)] == letters


@pytest.mark.parametrize(
    ("options", "truth", "words"),
    [
        (["left", "right", "ahead"], 1, "the number of an option, counted from 0 or from 1: write its letter"),
        (["B", "A"], "A", "either option A or B: give the options letters"),
        (["left", "right"], 7, "not one of the letters A, B"),
        (["left", "left"], "left", "either option A or B"),
        (["left", "right"], ["left", "right"], "a list: give one answer"),
    ],
)
def test_a_truth_that_may_be_several_options_is_refused(tmp_path: Path, options: list[str], truth: object, words: str):
    with pytest.raises(QuestionError, match=rf"row 1 \(id 1\): ground_truth .* of a question of type side is {words}"):
        read(tmp_path, {**SIDE, "options": options, "ground_truth": truth})


@pytest.mark.parametrize(
    ("written", "truth"),
    [
        ("2.50", "2.50"), (2, "2"), (2.0, "2.0"), (Decimal("2.5"), "2.5"), ("12,5", "12.5"), ("0,125", "0.125"),
        ("1,2345", "1.2345"), ("1.234,5", "1234.5"), ("1,234.5", "1234.5"), ("1,234,567", "1234567"), ("3 m", "3"),
        ("3 meters", "3"), ("2,5 m", "2.5"), (["2"], "2"), (" 2 ", "2"),
    ],
)  # fmt: skip
def test_a_number_is_read_as_it_is_written(written: object, truth: str):
    assert Number("m").read_truth(written, Options()) == truth


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1,200", "either 1.200 or 1200"),
        ("3 cm", "followed by 'cm', and its unit is objects"),
        ("1/2", "followed by '/2'"),
        (True, "neither text nor a number"),
        ([2, 3], "a list"),
    ],
)
def test_a_number_that_may_be_several_is_refused(tmp_path: Path, written: object, words: str):
    with pytest.raises(QuestionError, match=words):
        read(tmp_path, {**COUNT, "ground_truth": written})


@pytest.mark.parametrize(("unit", "said"), [("meters", "2 m"), ("M", "2 metres"), ("sq m", "2 m²"), ("kg", "2 kg")])
def test_a_unit_may_have_any_of_its_spellings(unit: str, said: str):
    assert Number(unit).parse(said, ()) == Number(unit).read_truth(said, Options()) == "2"


@pytest.mark.parametrize("yes", [True, "Yes", "yes.", "YES!", "true", "True", "y", "1", 1, 1.0, ["yes"]])
@pytest.mark.parametrize("no", [False, "no", "No.", "false", "N", 0])
def test_yes_and_no_have_several_spellings(yes: object, no: object):
    read = [YES_NO_KIND.read_truth(each, Options()).lower() for each in (yes, no)]
    assert read == ["yes", "no"]


@pytest.mark.parametrize("written", [[1, 2.5, 0.4], "1, 2.5, 0.4", ["1", "2.5", "0.4"]])
def test_a_point_is_a_text_or_a_list(written: object):
    assert POINT_KIND.read_truth(written, Options()) == "1, 2.5, 0.4"


def test_own_questions_take_the_same_forms():
    asked = ask_one("Which?", "room", ["red|green|blue"], ground_truth="green")
    assert (asked.options, asked.ground_truth) == (("A. red", "B. green", "C. blue"), "B")
    with pytest.raises(QuestionError, match=r"^--options: options 'red, blue' are not a list"):
        ask_one("Which?", "room", "red, blue")  # type: ignore[arg-type]


CELLS = ["scan", "question", "question_type", "ground_truth"]
VALUES = ["room.ply", "How wide is it?", "object_size_estimation", "12,5"]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("{head;}\n{row;}\n", "utf-8"),
        ("\ufeff{head;}\r\n{row;}\r\n;;;\r\n", "utf-8"),
        ("sep=;\r\n{head;}\r\n{row;}\r\n", "utf-8"),
        ("{head\t}\n{row\t}\n", "utf-8"),
        ("{head\t}\r\n{row\t}\r\n", "utf-16"),
        ("{head|}\n{row|}\n", "utf-8"),
        ("\n \n{head;};;\n{row;};;\n ; ; ; ;;\n", "utf-8"),
        ("{head;}\n{row;};;\n", "utf-8"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_the_files_of_spreadsheets_are_read(tmp_path: Path, text: str, encoding: str, suffix: str):
    for mark in ";\t|":
        text = text.replace(f"{{head{mark}}}", mark.join(CELLS)).replace(f"{{row{mark}}}", mark.join(VALUES))
    (tmp_path / f"q.{suffix}").write_bytes(text.encode(encoding))
    [question] = load_questions(tmp_path / f"q.{suffix}")
    assert (question.scan, question.ground_truth) == ("room.ply", "12.5")


def test_a_comma_in_a_cell_separates_no_columns(tmp_path: Path):
    text = 'Scan, Question ,question type,answer-kind,Options,Ground_Truth\nroom.ply,"Near, or far?",is,letter,a|b,b\n'
    (tmp_path / "q.csv").write_text(text)
    [question] = load_questions(tmp_path / "q.csv")
    assert (question.question, question.options, question.ground_truth) == ("Near, or far?", ("A. a", "B. b"), "b")


def test_a_column_for_each_option(tmp_path: Path):
    head = "index\tscan\tquestion\tquestion_type\tanswer_kind\tA\tB\tC\tground_truth"
    (tmp_path / "q.tsv").write_text(f"{head}\n0\troom.ply\tWhich?\tside\tletter\tleft\tright\t\tright\n")
    [question] = load_questions(tmp_path / "q.tsv")
    assert (question.options, question.ground_truth) == (("A. left", "B. right"), "B")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.csv", b'[{"scan": "r.ply"}]', "is JSON: rename it, so that its name ends in .jsonl or .json"),
        ("q.csv", b"PK\x03\x04 ", "is a spreadsheet or another zip archive: export it as CSV"),
        ("q.jsonl", b"\xef\xbb\xbfscan,question\n", "is a table: rename it, so that its name ends in .csv"),
        ("q.jsonl", b"\x1f\x8b\x08", "is packed by gzip: unpack it with gunzip"),
        ("q.json", b"<!doctype html><html>", "is a web page or XML: download the file itself"),
        ("q.tsv", b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer: run git lfs pull"),
        ("q.csv", b"PAR1 ", "is a parquet file: rename it, so that its name ends in .parquet"),
    ],
)
def test_a_file_that_is_another_is_named_as_what_it_is(tmp_path: Path, name: str, content: bytes, words: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(QuestionError, match=words):
        load_questions(tmp_path / name)


@pytest.mark.parametrize("content", [COUNT, {"info": {"version": 1}, "questions": [COUNT]}])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_one_question_and_a_list_beside_other_objects_are_read(tmp_path: Path, content: object, encoding: str):
    (tmp_path / "q.json").write_text(json.dumps(content), encoding=encoding)
    assert len(load_questions(tmp_path / "q.json")) == 1


@pytest.mark.parametrize(
    "content", [{"questions": [COUNT, COUNT]}, {"a": COUNT, "b": COUNT}, [COUNT, COUNT], f"{json.dumps(COUNT)}\n" * 2]
)
@pytest.mark.parametrize("suffix", ["json", "jsonl", "ndjson"])
def test_json_is_read_as_list_lines_or_object(tmp_path: Path, content: object, suffix: str):
    if suffix != "json" and isinstance(content, dict):
        pytest.skip("an object on one line is a row")
    (tmp_path / f"q.{suffix}").write_text(content if isinstance(content, str) else json.dumps(content))
    assert len(load_questions(tmp_path / f"q.{suffix}")) == 2


def test_parquet_structs_are_options(tmp_path: Path):
    table = pa.table({name: [value] for name, value in SIDE.items() if name != "options"})
    table = table.append_column("Options", pa.array([{"A": "left", "B": "right"}]))
    pq.write_table(table, tmp_path / "q.parquet")
    assert load_questions(tmp_path / "q.parquet")[0].options == ("A. left", "B. right")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("ground_truth", "answer"), ("ground_truth", "label"), ("ground_truth", "gt"), ("question", "prompt"),
     ("question_type", "type"), ("ground_truth", "grond_truth")],
)  # fmt: skip
def test_a_missing_column_is_found_by_its_meaning(tmp_path: Path, ours: str, theirs: str):
    row = {theirs if name == ours else name: value for name, value in COUNT.items()}
    with pytest.raises(QuestionError, match=f"missing column {ours}; rename {theirs} to {ours}$"):
        read(tmp_path, row)


def test_an_ignored_column_is_named_with_its_meaning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        read(tmp_path, {**COUNT, "choices": ["a", "b"], "colour": "red", "": 0})
    assert "ignoring unknown columns: choices (did you mean options?), colour" in caplog.text
    assert not caplog.text.strip().endswith(",")


# Scans


@pytest.mark.parametrize(
    "written", ["scans/room.ply", "scans\\room.ply", ".\\scans\\room.ply", " scans/room.ply ", "URI", "~"]
)
def test_a_scan_is_found_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str):
    scan = tmp_path / "scans" / "room.ply"
    scan.parent.mkdir()
    scan.touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    written = {"URI": scan.as_uri(), "~": "~/scans/room.ply"}.get(written, written)
    [question] = read(tmp_path, {**COUNT, "scan": written})
    assert scan_of(question, tmp_path / "nowhere") == scan


def test_a_backslash_may_be_part_of_a_name(tmp_path: Path):
    (tmp_path / "a\\b.ply").touch()
    [question] = read(tmp_path, {**COUNT, "scan": str(tmp_path / "a\\b.ply")})
    assert scan_of(question, tmp_path) == tmp_path / "a\\b.ply"


def test_a_path_of_a_windows_machine_is_named_as_one(tmp_path: Path):
    [question] = read(tmp_path, {**COUNT, "scan": "C:\\scans\\room.ply"})
    with pytest.raises(ScanNotFound, match="a path of a Windows machine; write it relative to the question file"):
        scan_of(question, tmp_path)


def test_a_scan_has_its_own_unit_and_up_axis(tmp_path: Path):
    rows = [
        {**COUNT, "scale": 0.01, "up_axis": "-Y"},
        {**COUNT, "scan": "b.ply", "scale": "0,001", "up_axis": ""},
        {**COUNT, "scan": "c.ply", "scale": None},
    ]
    first, second, third = read(tmp_path, *rows)
    assert [(each.scale, each.up_axis) for each in (first, second, third)] == [
        (0.01, "-y"),
        (0.001, None),
        (None, None),
    ]
    assert first.frame.over("z", 1.0) == ("-y", 0.01)
    assert third.frame.over("z", 0.1) == ("z", 0.1)
    (tmp_path / "saved.jsonl").write_text(saved([first, second, third]))
    from roomscout.data.benchmarks.vsi_bench import BENCHMARK

    assert load_saved(tmp_path / "saved.jsonl", BENCHMARK) == [first, second, third]
    assert load_questions(tmp_path / "saved.jsonl") == normalized([first, second, third]) == [first, second, third]
    assert "scale" not in third.row


@pytest.mark.parametrize(
    ("cells", "frame"),
    [
        ({"scale": "cm", "up_axis": "Y-up"}, (0.01, "y")),
        ({"scale": "1 mm", "up_axis": "z up"}, (0.001, "z")),
        ({"scale": " 0.01 ", "up_axis": "\u2013Z"}, (0.01, "-z")),
    ],
)
def test_a_unit_and_an_axis_are_read_as_people_write_them(
    tmp_path: Path, cells: dict[str, Any], frame: tuple[float, str]
):
    [question] = read(tmp_path, {**COUNT, **cells})
    assert (question.scale, question.up_axis) == frame


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"scale": "inches"}, "scale 'inches' must be the metres of the scan's unit, such as 0.01 for centimetres"),
        ({"scale": 0}, "scale 0 must be"),
        ({"scale": True}, "scale True must be"),
        ({"up_axis": "w"}, "up_axis 'w' must be one of auto, x, y, z, -x, -y, -z"),
    ],
)
def test_a_wrong_unit_or_axis_is_refused(tmp_path: Path, cells: dict[str, Any], words: str):
    with pytest.raises(QuestionError, match=rf"row 1 \(id 1\): {words}"):
        read(tmp_path, {**COUNT, **cells})


@pytest.mark.parametrize("other", [{"scale": 0.001}, {}, {"scale": 0.01, "up_axis": "y"}, {"scene_name": "other"}])
def test_a_scan_has_one_unit_and_one_axis(tmp_path: Path, other: dict[str, Any]):
    with pytest.raises(
        QuestionError, match=r"row 2: the scan of scene .* has .*, and in row 1 scale 0\.01 and no up_axis"
    ):
        read(tmp_path, {**COUNT, "scale": 0.01}, {**COUNT, **other})
