"""Tests that inputs made to break a verb are refused in a sentence, or do no harm."""

import copy
import csv
import io
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, on_a_terminal, run_main

from roomscout import ask
from roomscout.agent.policies.prompts import load_prompts
from roomscout.analysis.compare.answers import read_lmms_eval
from roomscout.analysis.compare.leaderboard import markdown_of, standing_of
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.serve import runs as serve_runs
from roomscout.analysis.serve.live import LiveRun
from roomscout.analysis.serve.runs import MOST_OPENED, RunList
from roomscout.analysis.study.cells import Study, only_one
from roomscout.base.plain_yaml import read_yaml
from roomscout.base.text import csv_cell, in_markdown
from roomscout.base.web import server_on
from roomscout.data.benchmark import Benchmark, QuestionType
from roomscout.data.benchmarks.vsi_bench import BENCHMARK as VSI_BENCH
from roomscout.data.question import UNDECLARED
from roomscout.data.questions import Question, QuestionError, load_questions, normalized
from roomscout.rendering.open3d_import import import_open3d
from roomscout.rendering.scene import SceneError
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


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"extra_answers": "abc"}, "extra_answers: Input should be a valid tuple"),
        ({"extra_answers": (1,)}, "extra_answers.0: Input should be a valid string"),
    ],
)
def test_a_wrong_column_of_a_question_is_refused(more: dict[str, Any], says: str):
    with pytest.raises(QuestionError, match=says):
        normalized([Question(**COLUMNS, **more)], VSI_BENCH)


def asked(question: Question) -> str:
    return normalized([question], VSI_BENCH)[0].kind.name


@pytest.mark.parametrize("copied_by", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copied_question_can_be_asked(copied_by: Callable[[Question], Question]):
    question = copied_by(Question(**COLUMNS))
    assert question.kind is UNDECLARED
    assert asked(question) == "number"


def test_no_options_may_be_none(rooms: RoomScans):
    scan = next(rooms.root.rglob("*.ply"))
    found = ask(scan, "How many?", options=None, policy="random", renderer="blind", steps=0, image_size=(32, 32))
    assert found.status in ("answered", "exhausted")


def test_a_benchmark_whose_filter_fails_is_one_sentence(tmp_path: Path):
    def asks(row: Any) -> bool:
        return row["absent"] > 1

    mine = Benchmark("mine", "Mine", (QuestionType("object_counting", VSI_BENCH.types[0].kind),), asks=asks)
    (tmp_path / "questions.jsonl").write_text(json.dumps({**COLUMNS, "options": None}) + "\n")
    with pytest.raises(
        QuestionError, match=r"row 1: the asks of Mine failed \(KeyError\('absent'\) in test_hardening.py, line \d+\)"
    ):
        load_questions(tmp_path / "questions.jsonl", mine)


# Files of others


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", r"\*a stands for a list or a mapping: write it there again"),
        ("a: &a {x: 1}\nb: {<<: *a}\n", r"\*a stands for a list or a mapping: write it there again"),
        ("a: 1\nb: 2\na: 3\n", "a is there twice: leave one out"),
        ("x: {a: 1, 'a': 2}\n", "a is there twice: leave one out"),
    ],
)
def test_yaml_with_aliases_or_a_key_twice_is_refused(tmp_path: Path, text: str, why: str):
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(ValueError, match=why):
        read_yaml(tmp_path / "file.yaml")


def test_yaml_may_use_a_text_again(tmp_path: Path):
    (tmp_path / "file.yaml").write_text("a: &a some text\nb: *a\n")
    assert read_yaml(tmp_path / "file.yaml") == {"a": "some text", "b": "some text"}


@pytest.mark.parametrize("width", ["999999999", "\u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669", "\uff19" * 9])
def test_a_template_takes_no_wide_padding_in_any_digits(tmp_path: Path, width: str):
    (tmp_path / "prompts.yaml").write_text(f"remaining_turns: 'Turns: {{remaining:>{width}}}'\n", encoding="utf-8")
    with pytest.raises(ValueError, match="remaining_turns"):
        load_prompts(tmp_path / "prompts.yaml")


def test_samples_of_lmms_eval_may_have_other_line_separators(one_run: Path, tmp_path: Path):
    row = RunReader(one_run).rows[0]
    asked = {"id": row.id, "dataset": row.dataset, "scene_name": row.scene_name, "question_type": row.question_type}
    asked |= {"question": "How\u2028many\u0085chairs\x0b?", "ground_truth": row.ground_truth, "prediction": "4"}
    line = json.dumps({"vsibench_overall": asked | {"accuracy": 1.0}}, ensure_ascii=False)
    (tmp_path / "samples.jsonl").write_text(f"{line}\n", encoding="utf-8")
    (found,) = read_lmms_eval(tmp_path / "samples.jsonl").rows
    assert found.question == "How\u2028many\u0085chairs\x0b?"


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
    text = markdown_of([[replace(standing, benchmark=replace(standing.benchmark, name=name, title=name))]])
    assert "<img" not in text
    assert "](" not in text.replace("&#91;x](", "").replace("!&#91;](", "")
    assert in_markdown("p < 0.001") == "p &lt; 0.001"


def test_a_plot_leaves_out_numbers_that_it_cannot_show(copied: Path):
    rows = (copied / "results.jsonl").read_text().replace('"answer": "9"', '"answer": "1.6e308"')
    (copied / "results.jsonl").write_text(rows)
    for name in ("questions.jsonl", "results.jsonl"):
        changed = (copied / name).read_text().replace('"ground_truth": "2"', '"ground_truth": "1.7e308"')
        (copied / name).write_text(changed)
    assert run_main(["report", str(copied)]).returncode == 0


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


@pytest.mark.parametrize("name", ["q" + "9" * 5000, "q001_s" + "9" * 5000, "x" * 5000, "q\u0661"])
def test_long_names_and_versions_are_not_found(one_run: Path, tmp_path: Path, name: str):
    live = LiveRun(one_run, tmp_path)
    views = (name, "render_00.png"), ("q001", f"render_{'0' * 5000}.png")
    for path in (["data", f"{name}.js"], *(["views", *view] for view in views), ["maps", "0" * 5000 + ".png"]):
        assert live.page(path, {}) is None
    begun = live.changes("")["version"].partition(".")[0]
    assert live.changes(f"{begun}.{'9' * 5000}")["answers"]["rows"]


# The server


def test_a_list_of_runs_keeps_no_questions(one_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = RunList(one_run.parent, tmp_path)
    first = runs.runs()
    monkeypatch.setattr(serve_runs, "RunContents", None)  # what has not changed is not read again
    assert runs.runs() == first
    kept = [*runs._read.values()]
    assert not [each for _, *known, progress in kept for each in (*known, *progress.args) if hasattr(each, "questions")]


def test_a_folder_keeps_few_runs_in_memory(one_run: Path, tmp_path: Path):
    for number in range(MOST_OPENED + 2):
        folder = tmp_path / "runs" / f"run{number}"
        folder.mkdir(parents=True)
        for name in ("run.json", "results.jsonl", "summary.json", "questions.jsonl"):
            shutil.copy(one_run / name, folder)
    site = RunList(tmp_path / "runs", tmp_path / "drafts")
    for number in range(MOST_OPENED + 2):
        assert site.page(["runs", f"run{number}", ""], {}) is not None
    assert site._report.cache_info().currsize == MOST_OPENED


def test_a_server_out_of_descriptors_rests(one_run: Path):
    class Full:
        def page(self, path: list[str], query: dict[str, list[str]]) -> None:
            return None

    with server_on(0, Full()) as server:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        started = time.monotonic()
        try:
            with pytest.raises(OSError, match="Too many open files"):
                server.get_request()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert time.monotonic() - started >= 0.15


# Studies, terminals and Open3D


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


def test_a_terminal_without_a_size_shows_no_pictures():
    said = on_a_terminal([
        sys.executable, "-c",
        "import os; os.environ.update(TERM='xterm-256color', COLORTERM='truecolor')\n"
        "from roomscout.agent.console import shows_pictures; print(os.get_terminal_size(), shows_pictures())",
    ])  # fmt: skip
    assert "columns=0" in said
    assert "False" in said


def test_what_needs_open3d_says_what_to_install(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rooms: RoomScans
):
    monkeypatch.setitem(sys.modules, "open3d", None)
    with pytest.raises(SceneError, match=r"scans need open3d, which cannot be loaded .*: pip install open3d"):
        import_open3d()
    report, failures, replay, preview = (
        run_main(verb)
        for verb in (
            ["report", str(copied)],
            ["failures", str(copied), "--no-save"],
            ["replay", str(copied), "q001"],
            ["preview", str(next(rooms.root.rglob("*.ply"))), "--out", str(tmp_path / "preview")],
        )
    )
    assert report.returncode == 0, report.stderr
    for ended in (failures, replay, preview):
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
        assert "pip install open3d" in ended.stderr


def test_an_interrupt_during_the_import_of_open3d_comes_after_it(monkeypatch: pytest.MonkeyPatch):
    """The command then ends with 130; inside the import it would be an ImportError, or break the module."""

    class Interrupted(Loader):
        def exec_module(self, module: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            module.is_whole = True

    class Finder(MetaPathFinder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
            return ModuleSpec(name, Interrupted()) if name == "open3d" else None

    monkeypatch.delitem(sys.modules, "open3d", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    try:
        with pytest.raises(KeyboardInterrupt):
            import_open3d()
        assert sys.modules["open3d"].is_whole
    finally:
        sys.modules.pop("open3d", None)
