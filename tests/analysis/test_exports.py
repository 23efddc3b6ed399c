"""roomscout export: each file read back, by the tool itself where it is installed."""

import base64
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, run_in_process, scripted

from roomscout.command.main import main
from roomscout.runs.reader import RunReader
from roomscout.runs.records import ResultRow


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
    assert main(["export", str(run), "--to", to, "--out", str(out)]) == 0
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


def test_inspect_reads_each_answer_to_a_question_as_an_epoch(rooms: RoomScans, tmp_path: Path):
    pytest.importorskip("inspect_ai.log")
    run = run_in_process(rooms.config(tmp_path, samples=2, num_questions=2, steps=0), scripted(3))
    log = read_by_inspect(export(run, "inspect", tmp_path / "run.eval"))
    found = {(str(sample.id), sample.epoch): sample.scores["score"].answer for sample in log.samples}
    assert found == {(row.id, row.sample): row.answer for row in RunReader(run).rows}
    assert log.eval.config.epochs == 2


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


def test_a_file_that_exists_is_replaced_only_with_force(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    wanted = ["export", str(run), "--to", "messages", "--out", str(out)]
    assert (main(wanted), out.read_text()) == (2, "mine")
    assert capsys.readouterr().err == f"error: {out} exists: choose another --out, or replace it with --force\n"
    assert (main([*wanted, "--force"]), out.read_text()[:12]) == (0, '{"messages":')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("{tmp} --to messages", "is not a run folder: it has no run.json"),
        ("{run} --to messages --out {run}/m.jsonl", "is in the run folder, which stays as it is"),
        ("{run} --to messages --out {tmp}/absent/m.jsonl", "cannot be written (No such file or directory)"),
        ("{run} --to messages --out {run}/../mine/m.jsonl", "cannot be written (Not a directory)"),
        ("{run} --to messages --out {tmp}", "is a folder: name a file in it"),
        ("{empty} --to messages --out {tmp}/x", "has no finished question to export: resume it"),
        ("{damaged} --to messages --out {tmp}/x", "results.jsonl, line 1 is damaged"),
    ],
    ids=["no run", "in the run", "no folder", "below a file", "a folder", "nothing finished", "damaged"],
)
def test_bad_input_is_refused_in_one_sentence(
    arguments: str, says: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    empty, damaged = (shutil.copytree(run, tmp_path / name) for name in ("empty", "damaged"))
    (empty / "results.jsonl").unlink()
    (damaged / "results.jsonl").write_text("{}\n")
    (run.parent / "mine").write_text("")
    given: Sequence[str] = arguments.format(run=run, tmp=tmp_path, empty=empty, damaged=damaged).split()
    assert main(["export", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
