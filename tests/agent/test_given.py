"""--given: the path that shows what a question needs, and the boxes of objects as text."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import RoomScans, interrupted, run_in_process, scripted, trajectories
from planned import run_settings
from simple_rooms import BLUE, GREEN, RED, box, scene_of

from roomscout.agent.policies.movers import ShowNeeded
from roomscout.agent.policies.prompts import Controls, Prompts
from roomscout.agent.state import QuestionState, Rules
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.seeing import see
from roomscout.base.errors import ConfigError
from roomscout.data.boxes import KnownBoxes, ObjectBox
from roomscout.data.questions import Question
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.models import Reply
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.renderers import make_renderer
from roomscout.runs.export import exports_of
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId
from roomscout.training.environment import RoomEnv
from tests.conftest import vsi_question

CAMERA = CameraSettings((160, 96), 75.0, 1.6, -15.0)
START = CameraPose(1.5, 2.5, 1.6, 90.0, -15.0)
DIVIDED = scene_of(
    box((0, 0, 0), (8, 5, 2.5)),
    box((3.95, 0, 0), (4.05, 3.4, 2.5)),
    box((1.2, 4.4, 0), (1.8, 4.9, 0.8), RED),
    box((0.1, 0.6, 0), (0.6, 1.2, 0.8), GREEN),
    box((7.0, 0.4, 0), (7.6, 1.0, 0.9), BLUE),
)
"""A room behind whose wall at x = 4 is a chest; a chair is ahead of START, a table behind it to the left."""
BOXES = (
    ObjectBox("chair", (1.5, 4.65, 0.4), (0.6, 0.5, 0.8)),
    ObjectBox("table", (0.35, 0.9, 0.4), (0.5, 0.6, 0.8)),
    ObjectBox("chest", (7.3, 0.7, 0.45), (0.6, 0.6, 0.9)),
)
ANSWER = '{"answer": "2", "done": true}'


class Furnished(OneSceneLibrary):
    """A scene in memory whose boxes are known."""

    def __init__(self, *boxes: ObjectBox) -> None:
        super().__init__(DIVIDED, {"1": START}, make_renderer("raycast"), CAMERA)
        self.known = boxes

    def boxes_of(self, question: Question) -> tuple[ObjectBox, ...]:
        return self.known


def asking(text: str, kind: str = "object_abs_distance") -> Question:
    return vsi_question("1", "scannet", "s", kind, text, (), "1")


def episode(question: Question, steps: int = 8, boxes: str = "", prompts: Prompts | None = None) -> QuestionState:
    """An episode on the given path in the divided room."""
    mover = ShowNeeded(0)
    state = QuestionState(1, question, steps, rules=Rules(prompts=prompts or Prompts(), mover=mover, boxes=boxes))
    state.reset(Furnished(*BOXES))
    return state


def walked(state: QuestionState) -> QuestionState:
    """The same after its last turn."""
    while not state.is_final:
        state.step(Reply(ANSWER))
    return state


class TestPath:
    def test_it_moves_no_farther_than_what_is_needed_and_goes_around_a_wall(self):
        state = episode(asking("What is the size of the chair?"))
        assert (state.steps, state.not_shown, state.observation.moves_left) == (0, "", 0)
        state = walked(episode(asking("How far is the chair from the table?")))
        assert len(state.turns) == 2 and state.turns[0].action.forward_meters == 0
        state = walked(episode(asking("What is the size of the chest?")))
        assert state.not_shown == ""
        assert any(turn.action.forward_meters or turn.action.left_meters for turn in state.turns)

    def test_too_few_moves_are_said_and_recorded(self):
        state = walked(episode(asking("How far is the chair from the chest?"), steps=1))
        assert state.turns[0].not_shown == "chest never in view" and not state.turns[-1].not_shown
        assert "chest never in view" in json.dumps(state.turns[0].to_json())

    def test_a_question_without_objects_is_shown_the_room_until_nothing_is_new(self):
        state = walked(episode(asking("How large is the room?"), steps=30))
        assert 2 < len(state.turns) < 31

    def test_without_translation_it_only_turns(self):
        rules = Rules(mover=ShowNeeded(0), translation=False)
        state = QuestionState(1, asking("Where are the table and the chest?"), 4, rules=rules)
        state.reset(Furnished(*BOXES))
        assert {tuple(turn.pose.position) for turn in walked(state).turns} == {tuple(START.position)}
        assert state.not_shown.startswith("chest")

    def test_failures_sees_what_the_path_shows(self, rooms: RoomScans, tmp_path: Path):
        folder = run_in_process(rooms.config(tmp_path, given="path", steps=2, num_questions=3), scripted())
        reader = RunReader(folder)
        for each, sight in see(reader).sights.items():
            assert (sight.verdict in ("saw", "no_object")) == (not reader.turns(each)[0].not_shown)
        assert reader.summary is not None
        assert str(reader.summary.asked.label).startswith("given_path_")
        assert any("was given a path on which" in each for each in reader.summary.warnings)

    def test_moves_depend_on_neither_batch_nor_presentation_nor_a_resume(self, rooms: RoomScans, tmp_path: Path):
        few = {"given": "path", "steps": 2, "num_questions": 2}
        folder = run_in_process(rooms.config(tmp_path / "1", **few), scripted(1))
        once = run_in_process(rooms.config(tmp_path / "2", present="once", batch_size=1, **few), scripted(2))
        here, there = RunReader(folder), RunReader(once)
        for each in here.begun:
            assert [turn.pose for turn in there.turns(each)] == [turn.pose for turn in here.turns(each)]
        torn = interrupted(folder, 1, tmp_path / "3" / folder.name)
        config = rooms.config(torn.parent, **few)
        assert run_settings(config, folder=torn, policy=scripted(1)).status == 0
        assert trajectories(torn) == trajectories(folder)


def told(boxes: str) -> Prompts:
    """Prompts of a run that is given these boxes and a path."""
    return Prompts().under(Controls(moves="given path", boxes=boxes))


class TestBoxes:
    def test_each_object_is_told_once_it_is_in_view_from_where_the_camera_starts(self):
        state = episode(asking("How far is the chair from the table?"), boxes="boxes-seen", prompts=told("boxes-seen"))
        first = state.messages().messages[-1].text
        assert "- chair: centre 2.15, 0.00, 0.40; size 0.60 x 0.50 x 0.80; heading 90" in first
        assert "table:" not in first and "started at x 0.00, y 0.00, heading 0 degrees" in first
        state.step(Reply("I look."))
        second = state.messages().messages[-1].text
        assert "- table: centre -1.60, 1.15, 0.40; size 0.60 x 0.50 x 0.80; heading 0" in second
        assert "chair:" not in second and "chest" not in first + second

    def test_all_objects_are_told_in_the_first_message_alone(self):
        state = episode(asking("How far is the chair from the table?"), boxes="boxes", prompts=told("boxes"))
        assert all(f"- {each.category}: " in state.messages().messages[-1].text for each in BOXES)
        state.step(Reply("I look."))
        assert "centre" not in state.messages().messages[-1].text

    def test_objects_of_one_name_are_numbered_as_they_are_told(self):
        library = Furnished(*BOXES, ObjectBox("chair", (6.0, 2.0, 0.4), (0.5, 0.5, 0.8)))
        state = QuestionState(1, asking("?"), 1, rules=Rules(prompts=told("boxes"), boxes="boxes"))
        state.reset(library)
        text = state.messages().messages[-1].text
        assert text.index("- chair 1: centre 2.15") < text.index("- chair 2: centre")

    def test_grey_views_with_the_boxes_of_the_file_ask_for_reasoning_alone(self, rooms: RoomScans, tmp_path: Path):
        few = {"given": "boxes", "moves": "none", "renderer": "blind", "num_questions": 1}
        reader = RunReader(run_in_process(rooms.config(tmp_path, **few), scripted()))
        assert np.ptp(reader.turns(EpisodeId(1))[0].view) == 0
        assert reader.facts.protocol.startswith("BLIND, every view grey, moves=none, ")
        assert ", given=boxes, " in reader.facts.protocol
        (scan,) = rooms.root.rglob(f"{rooms.rows[0]['scene_name']}*.ply")
        boxes = KnownBoxes().of(scan, rooms.rows[0]["scene_name"])
        assert reader.messages(EpisodeId(1))[1]["text"].count(": centre") == len(boxes)

    def test_the_report_of_an_unfinished_run_names_its_score_as_its_export_does(self, rooms: RoomScans, tmp_path: Path):
        few = {"given": "boxes", "moves": "none", "num_questions": 3}
        torn = run_in_process(rooms.config(tmp_path, **few), scripted())
        results = torn / "results.jsonl"
        results.write_text("".join(results.read_text().splitlines(keepends=True)[:2]))
        reader = RunReader(torn)
        exported, _ = exports_of(reader, reader.rows, [])
        assert str(exported.asked.label).startswith("unfinished_given_boxes_")
        shown = RunContents.read(torn).summary
        for name in ("asked", "with_scan", "finished", "types", "intervals", "datasets", "pending"):
            assert getattr(shown, name) == getattr(exported, name)

    def test_endless_rooms_know_their_boxes(self):
        view = {"image_size": (32, 24), "focal": 45.0, "renderer": "raycast"}
        with RoomEnv(endless=True, datasets=["bare"], given="boxes", steps=1, **view) as env:
            assert "- door: centre" in env.reset(seed=1)[-1].text

    def test_scans_without_boxes_are_refused_before_the_run(self, rooms: RoomScans, tmp_path: Path):
        root = Path(shutil.copytree(rooms.root, tmp_path / "root"))
        (root / "rooms.json").unlink()
        with pytest.raises(ConfigError, match=r"no boxes .* are known, and the run needs them: put a boxes.json"):
            run_settings(rooms.config(tmp_path / "logs", scan_root=root, given="boxes"), policy=scripted())
        assert not (tmp_path / "logs").exists()

    def test_a_scene_without_boxes_fails_its_questions_alone(self, rooms: RoomScans, tmp_path: Path):
        root = Path(shutil.copytree(rooms.root, tmp_path / "root"))
        scenes = json.loads((root / "rooms.json").read_text())
        (root / "rooms.json").write_text(json.dumps(scenes[:1]))
        config = rooms.config(tmp_path / "logs", scan_root=root, given="boxes", steps=0)
        failed = [row for row in RunReader(run_in_process(config, scripted())).rows if row.failed]
        assert {row.scene_name for row in failed} == {scenes[1]["scene_name"]}
        assert all(row.failed_part == "scene" and "roomscout boxes" in str(row.error) for row in failed)
