"""A judge's marks of answers in free text: kept beside a run's records, and read by everything that shows scores."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import COMMAND, RoomScans, only_run
from faulty_servers import FaultyServer, scripted
from planned import changed, run_settings
from result_rows import result_row
from waiting import wait_until

from roomscout.analysis.report.writer import write_report
from roomscout.command.reports import complete
from roomscout.command.verbs import VERBS
from roomscout.data.judged import JUDGED_KIND
from roomscout.edge.settings import Settings
from roomscout.runs import RunError
from roomscout.runs.merge import merge
from roomscout.runs.prices import in_money
from roomscout.runs.reader import MARKS_FILE, RunReader
from roomscout.runs.writer import RunWriter
from roomscout.scoring.samples import majority_score
from roomscout.scoring.scores import Mark

LABEL = r"\w+_open_eqa_v0_overall_judged_by_marker-1_[0-9a-f]{8}_2_task"
SCENES = ("scene0709_00", "scene0710_00")


def openeqa_rows() -> list[dict]:
    """Two questions about each scene, in OpenEQA's columns: one with extra answers, one without."""
    rows = []
    for scene in SCENES:
        of_scene = {"episode_history": f"scannet-v0/002-scannet-{scene}"}
        rows.append({"question": "What is red?", "answer": "Fire extinguisher", "category": "object recognition",
                     "question_id": f"{scene}-red", **of_scene})  # fmt: skip
        rows.append({"question": "Where is the cereal?", "answer": "On the shelf", "category": "object localization",
                     "question_id": f"{scene}-cereal", "extra_answers": ["By the sink"], **of_scene})  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def config(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A run over four questions of OpenEQA about two rooms."""
    folder = tmp_path_factory.mktemp("openeqa")
    (folder / "scans").mkdir()
    for scene, scan in zip(SCENES, sorted(rooms.root.rglob("*.ply")), strict=True):
        shutil.copy(scan, folder / "scans" / f"{scene}.ply")
    path = folder / "open-eqa-v0.json"
    path.write_text(json.dumps(openeqa_rows()))
    return rooms.config(folder / "runs", questions=path, scan_root=folder / "scans", benchmark="openeqa", steps=1)


@pytest.fixture(scope="module")
def unjudged(config: Settings) -> Path:
    """A finished run with its report, which no judge has marked. Nobody may change it."""
    assert complete(run_settings(config), config) == 0
    return only_run(config.log_root)


@pytest.fixture
def run(unjudged: Path, tmp_path: Path) -> Path:
    return shutil.copytree(unjudged, tmp_path / "run")


def lenient(chat) -> str:
    """A judge that marks answers to questions with extra answers with 5, and others with 2."""
    return "5" if "Extra Answers" in chat.messages[0].text else "Your mark: 2"


def rescore(run: Path, server: FaultyServer, *flags: str, judge: str = "marker-1") -> int:
    command: Callable | None = VERBS["rescore"].load()
    assert command is not None
    return command([str(run), "--judge", judge, "--judge-url", server.url, *flags])


@pytest.fixture
def judged(run: Path) -> Path:
    with FaultyServer(scripted(lenient)) as server:
        assert rescore(run, server) == 0
    return run


# ---- without a judge --------------------------------------------------------------------------------------------


def test_a_run_without_a_judge_says_that_it_is_not_scored(unjudged: Path):
    asked = RunReader(unjudged).summary.to_json()["asked"]
    assert (asked["awaiting_judge"], asked["overall_label"]) == (4, None)
    said = "4 not scored yet: a judge scores them, see roomscout rescore"
    assert said in (unjudged / "run.log").read_text()


def test_the_report_of_an_unjudged_run_has_the_command_that_scores_it(unjudged: Path):
    assert f"roomscout rescore {unjudged} --judge MODEL" in (unjudged / "report.html").read_text()


# ---- marks ------------------------------------------------------------------------------------------------------


def test_a_judge_scores_a_run_later(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    caplog.clear()
    with FaultyServer(scripted(lenient)) as server:
        assert rescore(run, server, "--out", str(tmp_path / "judged.csv")) == 0
    printed = "\n".join(caplog.messages)
    assert "4 answers marked, 0 had a mark" in printed and "HTTP Request" not in printed
    assert re.search(r"\noverall +- +62\.5\noverall: .*, judged by marker-1 [0-9a-f]{8}\n", printed)
    scores = {row["id"]: row["score"] for row in csv.DictReader((tmp_path / "judged.csv").open())}
    assert scores == {each["question_id"]: "1.0" if "extra_answers" in each else "0.25" for each in openeqa_rows()}


def test_an_interrupt_ends_a_judge_whose_server_hangs_and_keeps_its_marks(run: Path):
    with FaultyServer(scripted(lenient), lambda request: "hang" if len(server.requests) > 1 else None, 99) as server:
        command = [sys.executable, "-m", "roomscout", "rescore", str(run), "--judge", "marker-1"]
        process = subprocess.Popen([*command, "--judge-url", server.url], cwd=COMMAND.parent)
        wait_until(lambda: len(server.requests) > 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 130
    assert len((run / MARKS_FILE).read_text().splitlines()) == 1


def test_marks_score_the_summary(judged: Path):
    asked = RunReader(judged).summary.to_json()["asked"]
    assert re.fullmatch(LABEL + r"\S*", asked["overall_label"])
    assert (asked[asked["overall_label"]], asked["scored"], "awaiting_judge" in asked) == (62.5, 4, False)


def test_the_tokens_of_a_judge_are_priced(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    prices = tmp_path / "prices.yaml"
    prices.write_text("marker-1: {input: 1000, output: 2000, cached_input: 100}\n")
    with FaultyServer(scripted(lenient)) as server:
        assert rescore(run, server, "--prices", str(prices)) == 0
    reader = RunReader(run)
    assert reader.marks is not None and reader.summary is not None and reader.summary.judge is not None
    read, cached, written = reader.marks.tokens
    assert min(read, written) > 0 and reader.summary.judge.prompt_tokens == read
    assert reader.summary.judge.money == pytest.approx(((read - cached) * 1000 + cached * 100 + written * 2000) / 1e6)
    write_report(run)
    assert f"judge {in_money(reader.summary.judge.money)}" in (run / "report.html").read_text()
    prices.write_text("another: {input: 1, output: 2}\n")
    with FaultyServer(scripted(lenient)) as server:
        assert rescore(run, server, "--prices", str(prices)) == 0
    assert "The tokens of the judge are not priced" in caplog.text and "no price of marker-1" in caplog.text


def test_a_second_call_asks_only_for_what_is_missing(judged: Path):
    lines = (judged / MARKS_FILE).read_text().splitlines(keepends=True)
    (judged / MARKS_FILE).write_text("".join(lines[:3]))
    with FaultyServer(scripted(lenient)) as server:
        assert rescore(judged, server) == 0
        assert len(server.requests) == 1


def test_rescoring_a_judged_run_keeps_its_marks(judged: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    caplog.clear()
    command = VERBS["rescore"].load()
    assert command is not None and command([str(judged)]) == 0
    assert "\n".join(caplog.messages).startswith("0 of 4 answers change")


def test_a_run_has_the_marks_of_one_judge(judged: Path):
    before = (judged / MARKS_FILE).read_bytes()
    with FaultyServer(scripted(lenient)) as server:
        with pytest.raises(RunError, match="has the marks of marker-1, and a run has those of one judge"):
            rescore(judged, server, judge="other")
        assert server.requests == []
    assert (judged / MARKS_FILE).read_bytes() == before


def test_the_judge_is_asked_as_openeqa_asks_it(run: Path):
    with FaultyServer(scripted(lambda chat: "3")) as server:
        rescore(run, server)
        bodies = [request.body for request in server.requests]
    asked = {(each["model"], each["temperature"], each["seed"], each["max_tokens"]) for each in bodies}
    assert (asked, len(bodies)) == ({("marker-1", 0.2, 1234, 32)}, 4)


def test_a_missing_answer_scores_zero_without_a_mark(judged: Path):
    row = RunReader(judged).recorded_rows[0]
    marks = RunReader(judged).marks
    assert marks is not None and marks.scored(replace(row, answer=None)).score == 0


def test_a_majority_has_the_score_of_its_mark():
    rows = [result_row("open", score, answer=answer, ground_truth="x") for answer, score in (("a", 0.25), ("b", 1.0))]
    assert majority_score([*rows, rows[1]], JUDGED_KIND) == 1.0


def test_parts_keep_their_marks_when_they_are_merged(config: Settings, tmp_path: Path):
    parts = []
    for number in (1, 2):
        part = changed(config, shard=f"{number}/2", log_root=tmp_path / f"part{number}", report=False)
        outcome = run_settings(part)
        assert outcome.folder is not None
        parts.append(outcome.folder)
        run = RunWriter(outcome.folder)
        for row in run.rows:
            run.mark(Mark(row.id, str(row.answer), 4, "marker-1", "0" * 8, (100, 20, 3)))
        run.close()
    summary = merge(tmp_path / "merged", parts)
    assert (summary.asked.scored, summary.asked.overall) == (4, 75.0)
    assert summary.judge is not None
    assert (summary.judge.prompt_tokens, summary.judge.cached_tokens, summary.judge.generated_tokens) == (400, 80, 12)


# ---- at the end of a run ----------------------------------------------------------------------------------------


def test_a_run_with_a_judge_is_scored_at_its_end(config: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with FaultyServer(scripted(lenient)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        judged = changed(config, log_root=tmp_path / "runs", judge="marker-1")
        assert complete(run_settings(judged), judged) == 0
    page = (only_run(tmp_path / "runs") / "report.html").read_text()
    assert "judged_by_marker-1" in page and "62.5" in page


def test_a_judge_that_fails_at_the_end_leaves_a_complete_run(
    config: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    with FaultyServer(scripted(lenient), fault=lambda request: "401:wrong key") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        judged = changed(config, log_root=tmp_path / "runs", judge="marker-1")
        assert complete(run_settings(judged), judged) == 0
    assert "The run is complete, but without marks for every answer (EngineLost: " in caplog.text
    assert "rescore" in caplog.text and "--judge-url" in caplog.text
