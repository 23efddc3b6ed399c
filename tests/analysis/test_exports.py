"""roomscout export: each file read back, by the tool itself where it is installed."""

import ast
import base64
import contextlib
import json
import os
import shutil
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import RoomScans, run_in_process, scripted

from roomscout.analysis.exports.answers import plain_answer
from roomscout.analysis.exports.command import FORMATS, main
from roomscout.analysis.report.contents import RunContents
from roomscout.runs.reader import RunReader
from roomscout.runs.records import ResultRow

OLD_RUN = Path(__file__).parents[1] / "fixtures" / "run_schema1" / "interrupted"


@pytest.fixture(scope="module")
def run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a scripted model; questions of VSI-Bench's types. Nobody may change it."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("run"), steps=4), scripted(3))


@pytest.fixture(scope="module")
def copy(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run in which q002 lacks a view, and a reply of q001 has the word that stands for an image."""
    copy = Path(shutil.copytree(run, tmp_path_factory.mktemp("copy") / "run"))
    (copy / "q002" / "render_00.png").unlink()
    path = copy / "q001" / "messages.json"
    messages = json.loads(path.read_text())
    messages[-1]["text"] = "I see <image>"
    path.write_text(json.dumps(messages))
    return copy


def export(run: Path, to: str, out: Path) -> Path:
    """Export a run, which must succeed and leave the run as it was."""
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main([str(run), "--to", to, "--out", str(out)]) == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    return out


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_by_inspect(path: Path) -> Any:
    """A log as Inspect reads it, with its images in place."""
    return pytest.importorskip("inspect_ai.log").read_eval_log(str(path), resolve_attachments=True)


@pytest.fixture(scope="module")
def log(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run's log."""
    pytest.importorskip("inspect_ai.log")
    return read_by_inspect(export(run, "inspect", tmp_path_factory.mktemp("inspect") / "run.eval"))


def samples_and_rows(log: Any, run: Path) -> list[tuple[Any, ResultRow]]:
    """Each sample of a log with the row of its question."""
    samples = {str(sample.id): sample for sample in log.samples}
    return [(samples.pop(row.id), row) for row in RunReader(run).rows]


def test_inspect_reads_the_scores_by_name(run: Path, log: Any):
    for sample, row in samples_and_rows(log, run):
        assert {name: score.value for name, score in sample.scores.items()} == {"score": row.score, **row.scores}


def test_inspect_reads_the_replies_of_each_turn(run: Path, log: Any):
    for sample, row in samples_and_rows(log, run):
        said = [message.text for message in sample.messages if message.role == "assistant"]
        assert said == [turn.reply.text for turn in RunReader(run).turns(row.episode)]


def test_inspect_reads_the_views_as_images(run: Path, log: Any):
    for sample, row in samples_and_rows(log, run):
        parts = [part for message in sample.messages for part in message.content if not isinstance(part, str)]
        views = [base64.b64decode(part.image.partition(",")[2]) for part in parts if part.type == "image"]
        assert views == [(run / row.folder / f"render_{turn:02d}.png").read_bytes() for turn in range(row.turns)]


def test_inspect_reads_the_means_of_the_summary(run: Path, log: Any):
    asked = (RunReader(run).summary or {})["asked"]
    percents = {asked["overall_label"]: asked[asked["overall_label"]], **asked["tasks"]}
    read = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
    assert read == {name: pytest.approx(percent / 100, abs=1e-5) for name, percent in percents.items()}


def test_inspect_reads_where_the_camera_was(run: Path, log: Any):
    for sample, row in samples_and_rows(log, run):
        poses = [turn.to_json()["pose"] for turn in RunReader(run).turns(row.episode)]
        assert [turn["pose"] for turn in sample.metadata["turns"]] == poses


def test_inspect_reads_summaries_and_a_sample_without_the_others(run: Path, tmp_path: Path):
    inspect_log = pytest.importorskip("inspect_ai.log")
    path = str(export(run, "inspect", tmp_path / "run.eval"))
    rows = RunReader(run).rows
    summaries = inspect_log.read_eval_log_sample_summaries(path)
    assert {str(summary.id): summary.scores["score"].value for summary in summaries} == {
        row.id: row.score for row in rows
    }
    sample = inspect_log.read_eval_log_sample(path, id=rows[2].id, epoch=1)
    assert sample.metadata["folder"] == rows[2].folder


def test_an_inspect_log_is_written_without_all_views_in_memory(run: Path, tmp_path: Path):
    pytest.importorskip("inspect_ai.log")
    large = Path(shutil.copytree(run, tmp_path / "large"))
    views = list(large.glob("q*/render_00.png"))
    for view in views:
        view.write_bytes(os.urandom(3_000_000))
    tracemalloc.start()
    out = export(large, "inspect", tmp_path / "large.eval")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    all_in_base64 = 4_000_000 * len(views)
    assert out.stat().st_size > 3_000_000 * len(views) and peak < all_in_base64


def test_an_inspect_log_names_a_missing_view(copy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    pytest.importorskip("inspect_ai.log")
    log = read_by_inspect(export(copy, "inspect", tmp_path / "run.eval"))
    second, _ = samples_and_rows(log, copy)[1]
    assert second.messages[1].text.startswith("[render_00.png is missing]")
    missing = copy / "q002" / "render_00.png"
    assert f"views that are missing, as their messages say: 1; first: {missing}" in caplog.messages


def test_inspect_reads_each_answer_to_a_question_as_an_epoch(rooms: RoomScans, tmp_path: Path):
    pytest.importorskip("inspect_ai.log")
    run = run_in_process(rooms.config(tmp_path, samples=2, num_questions=2, steps=0), scripted(3))
    log = read_by_inspect(export(run, "inspect", tmp_path / "run.eval"))
    found = {(str(sample.id), sample.epoch): sample.scores["score"].answer for sample in log.samples}
    assert found == {(row.id, row.sample): row.answer for row in RunReader(run).rows}
    assert log.eval.config.epochs == 2


def test_inspect_reads_why_a_question_failed(rooms: RoomScans, tmp_path: Path):
    pytest.importorskip("inspect_ai.log")
    root = shutil.copytree(rooms.root, tmp_path / "scans")
    min(root.glob("scannet/scans/*/*.ply")).unlink()
    run = run_in_process(rooms.config(tmp_path / "logs", scan_root=root, steps=0), scripted(3))
    log = read_by_inspect(export(run, "inspect", tmp_path / "run.eval"))
    errors = {str(sample.id): sample.error.message for sample in log.samples if sample.error is not None}
    assert errors == {row.id: row.error for row in RunReader(run).rows if row.failed}


def scored_by_lmms_eval(question_type: str, prediction: str, truth: str) -> float:
    """The rules of lmms-eval at 75571cf, `vsibench_process_results` in lmms_eval/tasks/vsibench/utils.py."""
    if question_type.startswith(("object_rel", "route", "obj_appearance")):
        return float(prediction.split(" ")[0].rstrip(".").strip().lower() == truth.lower())
    if not prediction:
        return 0.0
    error = abs(float(prediction) - float(truth)) / float(truth)
    return float((error <= 1 - np.linspace(0.5, 0.95, int((0.95 - 0.5) / 0.05 + 2))).mean())


def test_samples_for_lmms_eval_have_what_its_scorer_returns(run: Path, tmp_path: Path):
    rows = RunReader(run).rows
    samples = json_lines(export(run, "lmms-eval", tmp_path / "samples.jsonl"))
    assert [sample["doc_id"] for sample in samples] == [int(row.id) for row in rows]
    for sample, row in zip(samples, rows, strict=True):
        scored = sample["vsibench_overall"]
        metric = "accuracy" if row.options else "MRA:.5:.95:.05"
        assert scored[metric] == scored_by_lmms_eval(row.question_type, scored["prediction"], scored["ground_truth"])
        assert sample["filtered_resps"] == scored["prediction"]


def test_samples_for_lmms_eval_have_the_last_reply(run: Path, tmp_path: Path):
    reader = RunReader(run)
    samples = json_lines(export(run, "lmms-eval", tmp_path / "samples.jsonl"))
    last = [[reader.turns(row.episode)[-1].reply.text] for row in reader.rows]
    assert [sample["resps"] for sample in samples] == last


def test_the_table_for_vlmevalkit_is_read_as_it_reads_it(run: Path, tmp_path: Path):
    table = pd.read_csv(export(run, "vlmevalkit", tmp_path / "predictions.tsv"), sep="\t")
    rows = RunReader(run).rows
    assert list(table["prediction"].astype(str)) == [row.answer or "no answer" for row in rows]
    assert list(table["question_type"]) == [row.question_type for row in rows]
    for candidates, row in zip(table["candidates"], rows, strict=True):
        assert pd.isna(candidates) if not row.options else ast.literal_eval(candidates) == list(row.options)


@pytest.mark.parametrize(("answer", "written"), [("1e3", "1000"), (".5", "0.5"), ("+3", "3"), ("2.50", "2.5")])
def test_a_number_is_written_in_digits_that_other_tools_read(answer: str, written: str, run: Path, tmp_path: Path):
    folder = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("q0*"))
    number = next(row for row in RunReader(run).rows if not row.options)
    path = folder / "results.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    next(row for row in rows if row["id"] == number.id)["answer"] = answer
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    contents = RunContents.read(folder)
    assert plain_answer(contents.question(number.episode)) == written


@pytest.mark.parametrize("to", ["messages", "trl"])
def test_datasets_loads_conversations_with_their_views(to: str, run: Path, tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    path = export(run, to, tmp_path / "train.jsonl")
    loaded = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    loaded = loaded.cast_column("images", datasets.List(datasets.Image()))
    assert [len(images) for images in loaded["images"]] == [row.turns for row in RunReader(run).rows]
    assert {image.size for images in loaded["images"] for image in images} == {(160, 96)}


def test_text_messages_have_a_tag_for_each_image(copy: Path, tmp_path: Path):
    for line in json_lines(export(copy, "messages", tmp_path / "train.jsonl")):
        said = [message["content"] for message in line["messages"]]
        assert sum(content.count("<image>") for content in said) == len(line["images"])


def test_parts_of_messages_have_the_conversation_as_it_was(copy: Path, tmp_path: Path):
    first, *_ = json_lines(export(copy, "trl", tmp_path / "train.jsonl"))
    parts = [part for message in first["messages"] for part in message["content"]]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    assert texts == [message["text"] for message in RunReader(copy).messages(RunReader(copy).rows[0].episode)]
    assert sum(part == {"type": "image"} for part in parts) == len(first["images"])


def test_a_conversation_without_a_view_is_left_out_and_named(
    copy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    lines = json_lines(export(copy, "messages", tmp_path / "train.jsonl"))
    assert len(lines) == len(RunReader(copy).rows) - 1
    assert f"{copy / 'q002' / 'render_00.png'} is missing, so q002 is left out: restore it" in caplog.messages


@pytest.mark.parametrize("to", ["lmms-eval", "vlmevalkit", "messages"])
def test_an_unfinished_run_exports_what_is_finished_and_says_so(
    to: str, run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = shutil.copytree(run, tmp_path / "run")
    journal = folder / "results.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:3]))
    caplog.set_level("INFO")
    export(folder, to, tmp_path / "out")
    assert caplog.messages[0] == "5 answers of the run are not finished, and not exported"
    assert caplog.messages[-1].startswith("3 answers, for ")


def test_a_damaged_line_is_left_out_and_named(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder = shutil.copytree(run, tmp_path / "run")
    path = folder / "results.jsonl"
    path.write_text(path.read_text() + "{}\n")
    assert len(json_lines(export(folder, "lmms-eval", tmp_path / "out"))) == len(RunReader(run).rows)
    assert f"{path}, line 9 is damaged" in caplog.text


@pytest.mark.parametrize("to", ["lmms-eval", "vlmevalkit", "messages", "trl"])
def test_a_run_of_an_earlier_version_is_exported_too(to: str, tmp_path: Path):
    assert export(OLD_RUN, to, tmp_path / "out").stat().st_size


def test_a_policy_without_a_model_has_answers_but_no_conversations(
    rooms: RoomScans, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = run_in_process(rooms.config(tmp_path, policy="random", num_questions=1))
    assert len(json_lines(export(folder, "lmms-eval", tmp_path / "s.jsonl"))) == 1
    assert main([str(folder), "--to", "messages", "--out", str(tmp_path / "m.jsonl")]) == 2
    assert "a policy without a model has none" in capsys.readouterr().err


def test_a_file_that_exists_is_replaced_only_with_force(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out.tsv"
    out.write_text("mine")
    wanted = [str(run), "--to", "vlmevalkit", "--out", str(out)]
    assert (main(wanted), out.read_text()) == (2, "mine")
    assert capsys.readouterr().err == f"error: {out} exists: choose another --out, or replace it with --force\n"
    assert (main([*wanted, "--force"]), out.read_text()[:5]) == (0, "index")


def test_the_file_is_by_default_here_and_named_after_the_run(run: Path, tmp_path: Path):
    for to in ("lmms-eval", "vlmevalkit", "messages", "trl"):
        with contextlib.chdir(tmp_path):
            assert main([str(run), "--to", to]) == 0
        assert (tmp_path / f"{run.name}{FORMATS[to].ending}").is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("{tmp} --to messages", "is not a run folder: it has no run.json"),
        ("{run} --to messages --out {run}/m.jsonl", "is in the run folder, which stays as it is"),
        ("{run} --to messages --out {tmp}/absent/m.jsonl", "cannot be written (No such file or directory)"),
        ("{run} --to messages --out {run}/../mine/m.jsonl", "cannot be written (Not a directory)"),
        ("{run} --to messages --out {tmp}", "is a folder: name a file in it"),
        ("{empty} --to lmms-eval --out {tmp}/x", "has no finished question to export: resume it"),
        ("{damaged} --to lmms-eval --out {tmp}/x", "results.jsonl, line 1 is damaged"),
        ("{own} --to lmms-eval --out {tmp}/x", "has no finished question of a type of VSI-Bench with a ground truth"),
    ],
    ids=["no run", "in the run", "no folder", "below a file", "a folder", "nothing finished", "damaged", "other types"],
)
def test_bad_input_is_refused_in_one_sentence(
    arguments: str, says: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    empty, damaged, own = (shutil.copytree(run, tmp_path / name) for name in ("empty", "damaged", "own"))
    (empty / "results.jsonl").unlink()
    (damaged / "results.jsonl").write_text("{}\n")
    for name in ("results.jsonl", "questions.jsonl"):
        text = (own / name).read_text()
        for question_type in ("object_", "room_", "route_"):
            text = text.replace(f'"question_type": "{question_type}', '"question_type": "my_')
        (own / name).write_text(text)
    (run.parent / "mine").write_text("")
    given: Sequence[str] = arguments.format(run=run, tmp=tmp_path, empty=empty, damaged=damaged, own=own).split()
    assert main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
