"""The Python API: trajectories with and without a run folder, and custom policies."""

import runpy
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import COMMAND, SMALL_VIEW, RoomScans, only_run, run_in_process, run_main
from planned import changed, run_settings

from roomscout import Trajectory, ask, explore, load_policy, load_trajectories
from roomscout.agent.policies import Decision, Policy, PolicyError
from roomscout.agent.state import QuestionState
from roomscout.base.errors import ConfigError
from roomscout.data.questions import Question, QuestionError, load_questions
from roomscout.data.scans import ScanNotFound
from roomscout.edge.sections import ModelSettings
from roomscout.envs.actions import CameraAction
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader

VIEW = {"image_size": SMALL_VIEW, "focal": 75.0, "renderer": "raycast"}
OWN_POLICY = """
from roomscout.agent.policies import Decision, Policy
from roomscout.envs.actions import CameraAction

class {name}(Policy):
    def __init__(self, seed):
        self.seed = seed

    def decide(self, states):
        assert {condition}, "something is wrong"
        answers = ["A" if state.question.options else "2" for state in states]
        return [Decision(CameraAction(30.0, answer=each, done=state.turn == 2)) for each, state in zip(answers, states)]

class NoPolicy:
    pass
"""


class TurnAndAnswer(Policy):
    """Turns left twice, then answers."""

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        answers = [("A" if state.question.options else "2") if state.turn == 2 else None for state in states]
        return [
            Decision(CameraAction(rotation_angle_degrees=30.0, answer=answer, done=answer is not None))
            for answer in answers
        ]


@pytest.fixture
def scan(rooms: RoomScans) -> Path:
    return min(rooms.root.rglob("*.ply"))


def content(trajectories: Sequence[Trajectory]) -> list:
    """The contents of trajectories, to compare them."""
    return [
        (
            *(each.question, each.answer, each.score, each.status, each.error),
            [(t.view.tobytes(), t.pose, t.reply.text, t.action, t.move, t.parse_error) for t in each.turns],
        )
        for each in trajectories
    ]


def test_one_question_returns_a_trajectory(scan: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ask(str(scan), "How many chairs are in this room?", ground_truth="2", policy=TurnAndAnswer, **VIEW)
    assert (asked.answer, asked.score, asked.status, asked.error) == ("2", 1.0, "answered", None)
    assert [turn.view.shape for turn in asked.turns] == [(SMALL_VIEW[1], SMALL_VIEW[0], 3)] * 3
    assert (asked.turns[1].pose.heading_deg - asked.turns[0].pose.heading_deg) % 360 == pytest.approx(30.0)
    assert not list(tmp_path.iterdir()), "no run folder unless one is asked for"


def test_trajectories_from_memory_and_from_a_run_folder_are_equal(rooms: RoomScans, tmp_path: Path):
    settings = {**VIEW, "scan_root": str(rooms.root), "policy": "random", "steps": 2}
    in_memory = explore(str(rooms.questions), **settings)
    on_disk = explore(load_questions(rooms.questions), log_root=str(tmp_path), **settings)
    assert [each.question for each in in_memory] == load_questions(rooms.questions)
    assert content(in_memory) == content(on_disk)
    assert content(load_trajectories(only_run(tmp_path))) == content(on_disk)


ROOM: dict[str, Any] = {"id": "q", "dataset": "mine", "scene_name": "room", "question": "How many?"}
LISTS: dict[str, list[dict[str, Any]]] = {
    "of a video too": [
        {"question_type": "obj_appearance_order", "options": ("A. bed, lamp", "B. lamp, bed"), "ground_truth": "A"},
        {"question_type": "object_counting", "ground_truth": "2", "id": "r"},
    ],
    "written otherwise": [
        {"question_type": "object_counting", "ground_truth": " 2\n", "id": 1},
        {"question_type": "object_counting", "ground_truth": "2", "id": 2.0},
        {"question_type": "object_counting", "ground_truth": "2", "id": " a "},
    ],
    "no ground truth": [
        {"question_type": "object_counting"},
        {"question_type": "open", "id": "o"},
        {"question_type": "open_choice", "options": ["A. one", "B. two"], "id": "r"},
    ],
}


@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS)
def test_a_list_is_asked_scored_and_resumed_as_in_memory(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "room.ply").symlink_to(scan)
    listed = [Question(**{**ROOM, **row}) for row in rows]
    settings = {**VIEW, "scan_root": tmp_path, "policy": "random", "steps": 2}
    in_memory = explore(listed, **settings)
    assert [each.question.question_type for each in in_memory] == [each.question_type for each in listed]
    assert [each.question.id for each in in_memory] == [
        str(row.get("id", "q")).strip(" ").removesuffix(".0") for row in rows
    ]
    assert [each.score is None for each in in_memory] == ["ground_truth" not in row for row in rows]
    on_disk = explore((each for each in listed), log_root=tmp_path / "logs", **settings)
    assert content(on_disk) == content(in_memory)
    folder = only_run(tmp_path / "logs")
    assert list((tmp_path / "logs").iterdir()) == [folder], "the run folder stands alone"
    (folder / "results.jsonl").write_text("")
    resumed = run_main(["--continue", str(folder)])
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert content(load_trajectories(folder)) == content(in_memory)


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        (["How many?"], r"question 1: 'How many\?' is not a Question"),
        ([Question(**ROOM, question_type="object_counting", ground_truth="three")], r"1 \(id q\): ground_truth"),
        ([Question(**ROOM, question_type="nonsense")], r"question 1 \(id q\): unknown question_type 'nonsense'"),
        (3, "explore takes a question file or a list of Question objects, got 3"),
    ],
)
def test_bad_questions_are_refused_before_anything_starts(tmp_path: Path, monkeypatch, questions: Any, words: str):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QuestionError, match=words):
        explore(questions, model="no/such-model", scan_root="nowhere", log_root="logs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "returned None instead of a list with a Decision for each of"),
        ([1], r"returned 1 \(int\) instead of a Decision for Q001"),
        ([Decision({"answer": "2"})], r"a Decision whose action is .+ \(dict\) instead of CameraAction for Q001"),  # type: ignore[arg-type]
        ([Decision(CameraAction(), "left")], r"a Decision whose reply is 'left' \(str\) instead of Reply for Q001"),  # type: ignore[arg-type]
        ([Decision(CameraAction(answer=2, done=True))], r"action.answer is 2 \(int\) instead of str"),  # type: ignore[arg-type]
        ([Decision(CameraAction(done=True))], "an action that is done without an answer for Q001"),
        ([Decision(CameraAction(answer=" ", done=True))], "an action of which the answer is empty for Q001"),
        ([Decision(CameraAction(np.float32(9)))], r"rotation_angle_degrees is .+ \(float32\) instead of int"),  # type: ignore[arg-type]
    ],
)
def test_what_a_policy_returns_instead_of_decisions_is_named(scan: Path, returned: Any, words: str):
    class Odd(Policy):
        def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
            return returned

    with pytest.raises(PolicyError, match=r"Odd.decide, asked about Q001 \(id asked\), .*" + words):
        ask(scan, "Where is it?", policy=Odd, **VIEW)


def test_views_are_read_when_they_are_looked_at(rooms: RoomScans, tmp_path: Path):
    folder = run_in_process(rooms.config(tmp_path, num_questions=1, steps=0))
    (loaded,) = load_trajectories(folder)
    assert loaded.turns[0].view.shape == (SMALL_VIEW[1], SMALL_VIEW[0], 3)
    for image in folder.glob("*/*.png"):
        image.unlink()
    (loaded,) = load_trajectories(folder)
    with pytest.raises(RunError, match=r"q001/render_00.png is missing or damaged"):
        _ = loaded.turns[0].view


def test_a_loaded_model_can_be_reused_and_keeps_its_view_settings(scan: Path, one_thread):
    policy = load_policy("embedded", max_new_tokens=8)
    asked = {"policy": policy, "steps": 0, "renderer": "raycast"}
    first, second = (ask(scan, "How many chairs are in this room?", **asked) for _ in range(2))
    assert content([first]) == content([second])
    assert first.turns[0].view.shape == (160, 288, 3) and first.turns[0].reply.text


def test_threads_that_share_a_loaded_model_get_the_replies_of_one_thread(scan: Path, one_thread):
    policy = load_policy("embedded", max_new_tokens=8)
    questions = ["How many chairs are in this room?", "How many lamps are in this room?"]

    def asked(question: str) -> Trajectory:
        return ask(scan, question, policy=policy, steps=1, renderer="raycast")

    one_by_one = [asked(question) for question in questions]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(asked, questions * 2))
    assert content(together) == content(one_by_one * 2)


def test_errors_before_a_run_are_raised(tmp_path: Path):
    question = Question("1", "scannet", "scene", "object_counting", "How many?", ground_truth="1")
    with pytest.raises(ScanNotFound):
        explore([question], policy=TurnAndAnswer, scan_root=tmp_path / "nowhere")
    with pytest.raises(QuestionError, match="question 1 has the same id"):
        explore([question, replace(question, question="How few?")], policy=TurnAndAnswer)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stepz": 3}, "^there is no setting --stepz; did you mean --steps"),
        ({"steps": -1}, "^--steps: .*greater than or equal to 0, got -1$"),
        ({"batch": True}, "--batch cannot be set here"),
        (
            {"policy": TurnAndAnswer, "temperature": 1.0},
            "--temperature would .*: pass it to load_policy",
        ),
        ({"policy": dict}, "dict is not a policy"),
    ],
)
def test_a_wrong_setting_is_named(scan: Path, settings: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        ask(scan, "Where is it?", **settings)


@pytest.mark.parametrize("name", ["own_policy:Turner", "own_policy.py:Turner"])
def test_a_policy_named_on_the_command_line_runs_and_resumes(
    rooms: RoomScans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_policy", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    source = tmp_path / "own_policy.py"
    source.write_text(OWN_POLICY.format(name="Turner", condition="states[0].turn < 1"))
    given = [
        each for each in rooms.flags(tmp_path / "logs", "--num-questions", "2") if each not in ("--policy", "random")
    ]
    stopped = run_main([*given, "--policy", name])
    folder = only_run(tmp_path / "logs")
    assert stopped.returncode == 3 and "Turner.decide, asked about Q001" in stopped.stdout
    assert "own_policy.py" in stopped.stdout and "turns.py" not in stopped.stdout  # the traceback of the user's code
    source.write_text(OWN_POLICY.format(name="Turner", condition="self.seed == 0"))
    sys.modules.pop("own_policy", None)
    resumed = run_main(["--continue", str(folder)])
    assert resumed.returncode == 0, resumed.stderr
    assert RunReader(folder).facts.config["model"] == "Turner"
    assert {row.turns for row in RunReader(folder).rows} == {3}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own.py", "there is random, stay, planner and human, or your own: it takes module:Class"),
        ("unfinished.py:Turner", r"unfinished.py, line 1 is not Python \(expected ':'\): fix it"),
        ("lacking.py:Turner", r"raises ModuleNotFoundError: .* \(lacking.py, line 1\) when it is imported"),
        ("nowhere:Turner", "nowhere cannot be imported"),
        ("nowhere.py:Turner", "there is no file"),
        ("own.py:NoPolicy", "NoPolicy is not a policy"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_named(rooms: RoomScans, tmp_path: Path, monkeypatch, name: str, words: str):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN_POLICY.format(name="Turner", condition="True"))
    Path("unfinished.py").write_text("class Turner\n")
    Path("lacking.py").write_text("import a_package_that_is_not_installed\n")
    config = changed(rooms.config(tmp_path / "logs"), model=ModelSettings.model, policy=name)
    with pytest.raises(ConfigError, match=words):
        run_settings(config)


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(COMMAND.parent / "examples" / "first_hour.py"), run_name="__main__")
    assert (tmp_path / "first_hour" / "trajectory.png").exists()
