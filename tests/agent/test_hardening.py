"""Tests that inputs made to break a verb are refused in a sentence, or do no harm."""

import copy
import csv
import io
import json
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, run_main

from roomscout import ask
from roomscout.agent.policies.prompts import load_prompts
from roomscout.analysis.compare.leaderboard import markdown_of, standing_of
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.serve.live import LiveRun
from roomscout.base.plain_yaml import read_yaml
from roomscout.base.text import csv_cell, in_markdown
from roomscout.command.study import Study, only_one
from roomscout.data.benchmarks.vsi_bench import BENCHMARK as VSI_BENCH
from roomscout.data.questions import Question, normalized
from roomscout.runs import RunInUse
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId
from roomscout.runs.writer import as_csv

COLUMNS: dict[str, Any] = {
    "id": "1",
    "dataset": "mine",
    "scene_name": "kitchen",
    "question_type": "object_counting",
    "question": "How many chairs?",
    "ground_truth": "3",
}


@pytest.fixture
def copied(one_run: Path, tmp_path: Path) -> Path:
    """A run that a test may change."""
    return Path(shutil.copytree(one_run, tmp_path / "run"))


# Questions in Python


@pytest.mark.parametrize("copied_by", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copied_question_can_be_asked(copied_by: Callable[[Question], Question]):
    question = copied_by(Question(**COLUMNS))
    assert normalized([question], VSI_BENCH)[0].kind.name == "number"


def test_no_options_may_be_none(rooms: RoomScans):
    scan = next(rooms.root.rglob("*.ply"))
    found = ask(scan, "How many?", options=None, policy="random", renderer="blind", steps=0, image_size=(32, 32))
    assert found.status in ("answered", "exhausted")


# Files of others


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", r"\*a stands for a list or a mapping: write it there again"),
        ("x: {a: 1, 'a': 2}\n", "a is there twice: leave one out"),
    ],
)
def test_yaml_with_aliases_or_a_key_twice_is_refused(tmp_path: Path, text: str, why: str):
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(ValueError, match=why):
        read_yaml(tmp_path / "file.yaml")
    (tmp_path / "file.yaml").write_text("a: &a some text\nb: *a\n")
    assert read_yaml(tmp_path / "file.yaml") == {"a": "some text", "b": "some text"}


@pytest.mark.parametrize("width", ["999999999", "\uff19" * 9])
def test_a_template_takes_no_wide_padding_in_any_digits(tmp_path: Path, width: str):
    (tmp_path / "prompts.yaml").write_text(f"remaining_turns: 'Turns: {{remaining:>{width}}}'\n", encoding="utf-8")
    with pytest.raises(ValueError, match="remaining_turns"):
        load_prompts(tmp_path / "prompts.yaml")


# Exports and tables


def test_an_exported_id_is_no_path(copied: Path, tmp_path: Path):
    pytest.importorskip("inspect_ai")
    for name in ("results.jsonl", "questions.jsonl"):
        (copied / name).write_text((copied / name).read_text().replace('"id": "20"', '"id": "../../20"'))
    out = tmp_path / "log.eval"
    assert run_main(["export", str(copied), "--to", "inspect", "--out", str(out)]).returncode == 0
    assert not [name for name in zipfile.ZipFile(out).namelist() if ".." in Path(name).parts]


def test_a_formula_in_a_table_is_text_and_numbers_and_positions_stay_as_they_are():
    for text in ("=1+1", "+cmd|'/c calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "-x"):
        (found,) = csv.DictReader(io.StringIO(as_csv([{"question": text}], ["question"])))
        assert csv_cell(text) == found["question"] == f"'{text}"
    for value in ("-1.5", "+3", "-1.5, 2, 0.4", "-1e-3", "yes", "", -2, None, 0.5):
        assert csv_cell(value) == value


def test_markdown_has_no_markup_of_others(one_run: Path):
    standing = standing_of(one_run)
    name = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) ![](http://a/b) a|b & &lt;"
    run = replace(standing.run, benchmark=replace(standing.run.benchmark, name=name, title=name))
    text = markdown_of([[replace(standing, run=run)]])
    assert "<img" not in text
    assert "](" not in text.replace("&#91;x](", "").replace("!&#91;](", "")
    assert in_markdown("p < 0.001") == "p &lt; 0.001"


# Links and names


@pytest.mark.parametrize("linked", ["q001", "q001/render_00.png"])
def test_no_view_outside_a_run_is_shown(copied: Path, tmp_path: Path, linked: str):
    outside = tmp_path / "private"
    (copied / linked).rename(outside)
    (copied / linked).symlink_to(outside)
    read, live = RunContents.read(copied), LiveRun(copied, tmp_path / "maps")
    live.report()
    assert live.page(["views", "q001", "render_00.png"], {}) is None
    assert RunReader(copied).turns(EpisodeId(1))[0].shots[0].load() is None
    assert live.page(["views", "q002", "render_00.png"], {}) is not None
    with pytest.raises(Exception, match="is a link out of the run folder"):
        read.images(EpisodeId(1), {"role": "user", "text": "", "image": "render_00.png"})


# Studies and Open3D


def test_two_studies_in_one_folder_do_not_run_at_once(tmp_path: Path):
    study = Study(tmp_path, "controls", {}, "0")
    (tmp_path / "study.json").write_text(
        json.dumps({"schema": 1, "preset": "controls", "settings": {}, "questions_sha256": "0"})
    )
    with only_one(study, None):
        with pytest.raises(RunInUse, match="is being written by process"), only_one(study, None):
            pass
        with only_one(study, (1, 2)):
            pass


def test_what_needs_open3d_says_what_to_install(copied: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "open3d", None)
    assert run_main(["report", str(copied)]).returncode == 0
    ended = run_main(["replay", str(copied), "q001"])
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1) and "pip install open3d" in ended.stderr
