"""Exports: each file read back, by the tool itself where it is installed."""

import ast
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from conftest import RoomScans, run_in_process, scripted
from PIL import Image

from roomscout.analysis.exports.command import main
from roomscout.runs.reader import RunReader


@pytest.fixture(scope="module")
def run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a scripted model; questions of VSI-Bench's types."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("run"), steps=4), scripted(3))


def export(run: Path, to: str, out: Path) -> Path:
    """Export a run, which must succeed and leave the run as it was."""
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main([str(run), "--to", to, "--out", str(out)]) == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    return out


def json_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_inspect_reads_its_log_with_views_replies_and_scores(run: Path, tmp_path: Path):
    inspect_log = pytest.importorskip("inspect_ai.log")
    log = inspect_log.read_eval_log(str(export(run, "inspect", tmp_path / "run.eval")))
    reader = RunReader(run)
    rows, summary = reader.rows, reader.summary
    assert summary is not None
    assert log.status == "success"
    assert [sample.id for sample in log.samples] == [row.id for row in rows]
    assert [sample.scores["score"].value for sample in log.samples] == [row.score for row in rows]
    for sample, row in zip(log.samples, rows, strict=True):
        said = [message.text for message in sample.messages if message.role == "assistant"]
        assert said == [turn.reply.text for turn in reader.turns(row.episode)]
        images = [
            each for message in sample.messages for each in message.content if getattr(each, "type", "") == "image"
        ]
        assert len(images) == row.turns and all(each.image.startswith("data:image/png;base64,") for each in images)
    tasks = summary["asked"]["tasks"]
    (score,) = log.results.scores
    assert {name: score.metrics[name].value for name in tasks} == {
        name: pytest.approx(percent / 100, abs=1e-5) for name, percent in tasks.items()
    }


def test_samples_for_lmms_eval_have_what_its_scorer_returns(run: Path, tmp_path: Path):
    rows = RunReader(run).rows
    samples = json_lines(export(run, "lmms-eval", tmp_path / "samples_vsibench.jsonl"))
    assert [sample["doc_id"] for sample in samples] == [row.number - 1 for row in rows]
    for sample, row in zip(samples, rows, strict=True):
        scored = sample["vsibench_score"]
        metric = "accuracy" if row.options else "MRA:.5:.95:.05"
        assert scored[metric] == row.score
        assert sample["filtered_resps"] == [scored["prediction"]] == [row.answer or ""]
        assert (sample["target"], scored["question_type"]) == (row.ground_truth, row.question_type)


@pytest.mark.parametrize("ending", ["xlsx", "tsv"])
def test_the_table_for_vlmevalkit_is_read_as_it_reads_it(run: Path, tmp_path: Path, ending: str):
    path = export(run, "vlmevalkit", tmp_path / f"predictions.{ending}")
    table = pd.read_excel(path) if ending == "xlsx" else pd.read_csv(path, sep="\t")
    rows = RunReader(run).rows
    assert list(table.columns)[-1] == "prediction"
    assert list(table["prediction"].astype(str)) == [row.answer or "no answer" for row in rows]
    assert list(table["type"]) == [row.question_type for row in rows]
    for candidates, row in zip(table["candidates"], rows, strict=True):
        assert pd.isna(candidates) if not row.options else ast.literal_eval(candidates) == list(row.options)


def test_messages_have_an_image_for_each_placeholder(run: Path, tmp_path: Path):
    lines = json_lines(export(run, "messages", tmp_path / "train.jsonl"))
    assert len(lines) == len(RunReader(run).rows)
    for line in lines:
        assert sum(message["content"].count("<image>") for message in line["messages"]) == len(line["images"])
        assert [message["role"] for message in line["messages"][:3]] == ["system", "user", "assistant"]
        assert line["messages"][-1]["role"] == "assistant"
        for path in line["images"]:
            with Image.open(path) as view:
                assert view.size == (160, 96)


def test_a_placeholder_in_a_reply_stands_for_no_image(run: Path, tmp_path: Path):
    copy = shutil.copytree(run, tmp_path / "run")
    path = copy / "q001" / "messages.json"
    messages = json.loads(path.read_text())
    messages[-1]["text"] = "I see <image>"
    path.write_text(json.dumps(messages))
    first = json_lines(export(copy, "messages", tmp_path / "train.jsonl"))[0]
    assert sum(message["content"].count("<image>") for message in first["messages"]) == len(first["images"])


def test_a_conversation_without_a_view_is_left_out_and_named(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "q002" / "render_00.png").unlink()
    lines = json_lines(export(copy, "messages", tmp_path / "train.jsonl"))
    assert len(lines) == len(RunReader(run).rows) - 1
    assert "q002/render_00.png is missing, so q002 is left out" in caplog.text


@pytest.mark.parametrize("to", ["lmms-eval", "messages"])
def test_an_unfinished_run_exports_what_is_finished_and_says_so(
    run: Path, tmp_path: Path, to: str, caplog: pytest.LogCaptureFixture
):
    copy = shutil.copytree(run, tmp_path / "run")
    journal = copy / "results.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:3]))
    assert len(json_lines(export(copy, to, tmp_path / "out.jsonl"))) == 3
    assert "5 answers are pending and not exported" in caplog.text


def test_a_policy_without_a_model_has_no_conversations(
    rooms: RoomScans, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = run_in_process(rooms.config(tmp_path, model=None, policy="random", num_questions=1))
    assert main([str(folder), "--to", "messages", "--out", str(tmp_path / "m.jsonl")]) == 2
    assert "a policy without a model has none" in capsys.readouterr().err
    assert len(json_lines(export(folder, "lmms-eval", tmp_path / "s.jsonl"))) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{tmp}", "--to", "messages"], "is not a run folder: it has no run.json"),
        (["{run}", "--to", "messages", "--out", "{run}/m.jsonl"], "is in the run folder"),
        (["{run}", "--to", "messages", "--out", "{tmp}/absent/m.jsonl"], "cannot be written"),
        (["{empty}", "--to", "lmms-eval"], "has no finished question to export"),
    ],
    ids=["no run", "in the run", "no folder", "nothing finished"],
)
def test_bad_input_is_refused_in_one_sentence(
    arguments: Sequence[str], says: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    empty = shutil.copytree(run, tmp_path / "empty")
    (empty / "results.jsonl").unlink()
    assert main([each.format(run=run, tmp=tmp_path, empty=empty) for each in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
