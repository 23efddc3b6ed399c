"""The frozen twins: all types and levels, nothing to guess, and files that are what their descriptions say."""

import json
import re
from collections import Counter
from pathlib import Path

import mlcroissant
import numpy as np
import pytest

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.maps import FloorPlans
from roomscout.analysis.report.pages import index_of, page_of
from roomscout.analysis.report.writer import write_report
from roomscout.analysis.wrong import report_wrong
from roomscout.data.questions import load_questions
from roomscout.rooms.frozen import SplitError, shipped_rows
from roomscout.rooms.room import LEVELS
from roomscout.rooms.twin_split import PAIRS, PAIRS_PER_TYPE, SHA256, SHIPPED, SHIPPED_SCANS, SPLIT
from roomscout.rooms.twins_benchmark import BENCHMARK
from roomscout.runs.reader import RunReader
from roomscout.scoring.scores import EpisodeId
from scripts.croissant import SETS, description_of, file_of
from scripts.twins_prior import prior_table
from scripts.twins_split import sha256_of_shipped
from tests.conftest import run_main

ROWS = shipped_rows(SHIPPED)


def test_all_types_and_levels_have_their_pairs():
    assert sha256_of_shipped() == SHA256 and len(ROWS) == 2 * PAIRS == 1200
    assert [row["id"] for row in ROWS[:3]] == ["1a", "1b", "2a"]
    pairs = list(zip(ROWS[::2], ROWS[1::2], strict=True))
    same = ("dataset", "question_type", "question", "options", "edit", "canary")
    assert all(first[name] == second[name] for first, second in pairs for name in same)
    assert all(first["scene_name"][:-1] == second["scene_name"][:-1] for first, second in pairs)
    asked = Counter((first["dataset"], first["question_type"]) for first, _ in pairs)
    assert asked == {(level, name): number for name, number in PAIRS_PER_TYPE.items() for level in LEVELS}
    scenes = {f"{row['dataset']}/{row['scene_name']}.ply" for row in ROWS}
    assert scenes == {line.split()[1] for line in SHIPPED_SCANS.read_text().splitlines()} and len(scenes) == 1200


def test_a_question_without_its_twin_is_said_not_to_count(caplog):
    assert len(load_questions(None, BENCHMARK, num_questions=6)) == 6 and not caplog.messages
    assert [question.id for question in load_questions(None, BENCHMARK, num_questions=3)] == ["1a", "1b", "2a"]
    assert caplog.messages == ["Questions without their twin, which do not count: 1, such as of pair 2"]


def test_the_best_constant_scores_less_than_5_percent_of_pairs():
    for name in PAIRS_PER_TYPE:
        own = [row for row in ROWS if row["question_type"] == name]
        truths = [row["ground_truth"] for row in own]
        pairs = list(zip(truths[::2], truths[1::2], strict=True))
        if own[0]["options"]:
            assert all(first != second for first, second in pairs)
            continue
        kind = BENCHMARK.by_name[name].kind
        numbers = np.unique(np.round(np.geomspace(min(map(float, truths)), max(map(float, truths)), 100), 2))
        scores = [
            np.mean([min(kind.score(str(number), truth) for truth in pair) for pair in pairs]) for number in numbers
        ]
        assert max(scores) < 0.05, name


def test_a_room_is_made_again_and_another_one_refused():
    row = ROWS[0]
    assert SPLIT.checked_room(row["dataset"], row["scene_name"], [row]).name == row["scene_name"]
    for change in ({"ground_truth": "77"}, {"question_type": "object_counting", "question": "What?"}):
        with pytest.raises(SplitError, match="another room"):
            SPLIT.checked_room(row["dataset"], row["scene_name"], [row | change])


@pytest.mark.parametrize("name", SETS)
def test_the_description_of_the_files_is_true_and_valid(name):
    described = json.loads(file_of(name).read_text())
    assert described == description_of(name)
    assert not mlcroissant.Dataset(jsonld=str(file_of(name))).metadata.ctx.issues.errors


KNOWING = """
from roomscout.agent.policies import Decision, Policy
from roomscout.envs.actions import CameraAction

class Knowing(Policy):
    name = "knowing"

    def decide(self, states):
        return [Decision(CameraAction(done=True, answer=self.answer(state))) for state in states]

    def answer(self, state):
        return state.question.ground_truth

class Guessing(Knowing):
    name = "guessing"

    def answer(self, state):
        return "3"
"""


def test_who_knows_the_truth_gets_all_pairs_and_who_guesses_none(tmp_path):
    policy = tmp_path / "knowing.py"
    policy.write_text(KNOWING)
    flags = ["eval", "--benchmark", "rooms-twins", "--num-questions", "6", "--no-report", "--renderer", "blind"]
    said = run_main([*flags, "--log-root", str(tmp_path / "a"), "--policy", f"{policy}:Knowing"]).stdout
    assert "single answers: 100.0 %, pairs: 100.0 %" in said
    assert "of 3 pairs, the answer changes in 3 (100.0 %), in the right direction in 3 (100.0 %)" in said
    (folder,) = (tmp_path / "a").iterdir()
    assert prior_table(folder).lines()[1].split()[:4] == ["object_counting", "100.0", "100.0", "0.0"]
    run = RunContents.read(folder)
    assert run.twins == {1: 2, 2: 1, 3: 4, 4: 3, 5: 6, 6: 5}
    page = page_of(run.answer(EpisodeId(2)), run, FloorPlans(tmp_path, run.facts), str)
    shown = [(each["name"], each["answer"] == each["truth"], Path(each["view"]).exists()) for each in page["twins"]]
    assert shown == [("q002", True, True), ("q001", True, True)]
    said = run_main([*flags, "--log-root", str(tmp_path / "b"), "--policy", f"{policy}:Guessing"]).stdout
    assert "pairs: 0.0 %" in said and "Wrong: 3 of 3, partly right: 0; to list them" in said
    (folder,) = (tmp_path / "b").iterdir()
    write_report(folder)
    report = (folder / "report.html").read_text()
    assert "Single answers: " in report and "Sensitivity: of 3 pairs" in report
    run = RunContents.read(folder)
    index = index_of([answer.entry for answer in run.finished()], run)
    assert [row[-1] for row in index["rows"]] == ["q002", "q001", "q004", "q003", "q006", "q005"]
    counted, _, _, *listed = report_wrong(RunReader(folder))
    assert counted == "Wrong: 3 of 3, partly right: 0"
    pairs = [re.findall(r"q\d+", line) for line in listed if not line.startswith(" ")]
    assert sorted(map(sorted, pairs)) == [["q001", "q002"], ["q003", "q004"], ["q005", "q006"]]
    assert sum("answered 3" in line for line in listed) == 6
