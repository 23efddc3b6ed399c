"""Tests what verbs that read a run may write: complete files of their own, and nothing through a link."""

import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import run_main

from roomscout.analysis.report.writer import write_report
from roomscout.base.files import replace_text, replacing
from roomscout.runs import RunError
from roomscout.runs.writer import RunWriter

FLAGS = {"compare": "{run} {other} --out", "leaderboard": "{run} --out", "replay": "{run} 1 --out"}


@pytest.fixture
def copied(one_run: Path, tmp_path: Path) -> Path:
    """A run that a test may change."""
    return Path(shutil.copytree(one_run, tmp_path / "run"))


def test_no_file_is_written_through_a_link_of_a_draft_s_name(copied: Path, tmp_path: Path):
    outside = tmp_path / "mine.txt"
    outside.write_text("mine")
    for name in ("report.html.tmp", "summary.json.tmp", "run.json.tmp"):
        (copied / name).symlink_to(outside)
    write_report(copied)
    run = RunWriter(copied)
    run.export(None)
    run.describe(run.reader.facts)
    run.close()
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("name", ["run.lock", "results.jsonl", "marks.jsonl", "q001/turns.jsonl"])
def test_a_link_is_not_opened_to_write(copied: Path, tmp_path: Path, name: str):
    outside = tmp_path / "mine.txt"
    outside.write_text("mine")
    (copied / name).unlink(missing_ok=True)
    (copied / name).symlink_to(outside)
    with pytest.raises(RunError, match="link"):
        RunWriter(copied)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("name", ["report_files", "report_files/data"])
def test_a_report_does_not_write_into_a_linked_folder(copied: Path, tmp_path: Path, name: str):
    outside = tmp_path / "mine"
    outside.mkdir()
    (copied / name).parent.mkdir(exist_ok=True)
    (copied / name).symlink_to(outside)
    with pytest.raises(RunError, match="is a link"):
        write_report(copied)
    assert not list(outside.iterdir())


def test_two_writers_of_one_file_do_not_collide(tmp_path: Path):
    """Each one's file replaces the other's whole."""
    texts = [str(number) * 100_000 for number in range(4)]
    threads = [threading.Thread(target=lambda text=text: replace_text(tmp_path / "page", text)) for text in texts]
    with replacing(tmp_path / "page") as draft:
        draft.write_text("first")
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert (tmp_path / "page").read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["page"]


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("compare", "summary.json"), ("compare", "report.html"), ("compare", "q001/messages.json"),
        ("leaderboard", "results.csv"), ("leaderboard", "notes.md"), ("replay", "report.html"),
        ("replay", "q001/replay_1.html"),
    ],
)  # fmt: skip
def test_a_verb_does_not_write_among_the_files_of_a_run(copied: Path, one_run: Path, verb: str, name: str):
    flags = FLAGS[verb].format(run=one_run, other=copied).split()
    result = run_main([verb, *flags, str(copied / name)])
    assert "in the run folder" in result.stderr
    assert result.returncode == 2


def leaderboard(run: Path, out: Path) -> str:
    return run_main(["leaderboard", str(run), "--out", str(out)]).stderr


def rescore(run: Path, out: Path) -> str:
    return run_main(["rescore", str(run), "--out", str(out), "--force"]).stderr


@pytest.mark.parametrize("verb", [leaderboard, rescore])
def test_a_full_disk_leaves_the_earlier_table(one_run: Path, tmp_path: Path, verb: Callable[[Path, Path], str]):
    """A limit on the size of files fails a write as a full disk does."""
    out = tmp_path / "table.csv"
    out.write_text("earlier")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        printed = verb(one_run, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written" in printed
    assert out.read_text() == "earlier"
