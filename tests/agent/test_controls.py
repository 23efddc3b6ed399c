"""Controls: who moves the camera, how views are presented, which answers count, and what the prompts reveal."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from conftest import RoomScans, interrupted, pixels, results, run_in_process, scripted, trajectories
from planned import run_settings, settings_of
from scripted_model import ScriptedBackend
from simple_rooms import box, closed_room, scene_of

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.movers import GreedyCoverage
from roomscout.agent.policies.prompts import Controls, Prompts, checkpoint_prompts, load_prompts
from roomscout.agent.state import QuestionState, Rules
from roomscout.base.errors import ConfigError
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.edge.memory import suited_to_model
from roomscout.envs.actions import CameraAction
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.models.checkpoint_files import own_view_settings
from roomscout.models.conversation import Conversation
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.motion import move
from roomscout.rendering.renderers import make_renderer
from roomscout.rendering.scene import Scene
from roomscout.rendering.views import SurfaceCoverage
from roomscout.runs.movers import MOVERS
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, Turn
from tests.conftest import vsi_question

CAMERA = CameraSettings((96, 64), 45.0, 1.6, -15.0)
QUESTION = vsi_question("1", "scannet", "s", "object_counting", "How many chair(s) are in this room?", (), "1")
START = CameraPose(1.5, 2.5, 1.6, 0.0, -15.0)
DIVIDED = scene_of(box((0, 0, 0), (6, 5, 2.5)), box((2.95, 0, 0), (3.05, 3.4, 2.5)))
"""A room with a wall at x = 3 that leaves a door at y = 3.4..5."""
FIRST = EpisodeId(1)
COUNTING: dict[str, Any] = {"question_types": ("object_counting",), "num_questions": 1}


def answering(answer_from: int = 0, **numbers: float) -> ModelPolicy:
    """A model that asks for the same move in every turn, and also answers from a turn on."""

    def reply(conversation: Conversation) -> str:
        done = len(conversation.images) > answer_from
        return json.dumps({**numbers, "answer": "2" if done else None, "done": done})

    return ModelPolicy(ScriptedBackend(reply), prompts=Prompts())


def moved(scene: Scene, name: str, steps: int, translation: bool = True) -> list[CameraPose]:
    """The poses through which a mover takes a camera in a scene."""
    mover = resolve_name(MOVERS[name].target)(0)
    library = OneSceneLibrary(scene, {"1": START}, make_renderer("raycast"), CAMERA)
    env = ExplorationEnv(library, steps)
    env.reset(QUESTION)
    state = QuestionState(1, QUESTION, steps, rules=Rules(translation=translation))
    state.begin(env)
    poses = [START]
    for _ in range(steps):
        after = env.step(mover.next_move(state).action)
        state.observations.append(after)
        state.turns.append(None)  # type: ignore[arg-type]  # movers read only how many there are
        poses.append(after.pose)
    return poses


def _along(before: CameraPose, after: CameraPose) -> tuple[float, float, float]:
    """Metres forward, left and up from one pose to another, along the axes of the first."""
    step = after.position - before.position
    return float(step @ before.forward), float(step @ before.left), float(step[2])


def turns_of(folder: Path, episode: EpisodeId = FIRST) -> list[Turn]:
    return RunReader(folder).turns(episode)


def poses_of(folder: Path) -> dict[EpisodeId, list[CameraPose]]:
    return {episode: [turn.pose for turn in turns_of(folder, episode)] for episode in RunReader(folder).begun}


class TestMovers:
    @pytest.mark.parametrize("steps", [1, 8])
    def test_the_views_of_a_spin_divide_the_circle_evenly(self, steps: int):
        poses = moved(closed_room(), "spin", steps)
        headings = [pose.heading_deg for pose in poses]
        assert headings == pytest.approx(np.arange(steps + 1) * 360 / (steps + 1), abs=0.05 * steps)
        assert all(np.array_equal(pose.position, START.position) for pose in poses)

    def test_a_random_move_is_never_stopped(self):
        poses = moved(DIVIDED, "random", 30)
        assert len({pose.heading_deg for pose in poses}) > 20
        for before, after in pairwise(poses):
            step = float(np.linalg.norm(after.position - before.position))
            outcome = move(DIVIDED, before, before.moved(0, *_along(before, after)))
            assert outcome.moved_m == pytest.approx(outcome.requested_m) == pytest.approx(step)

    @pytest.mark.parametrize("name", ["random", "coverage"])
    def test_movers_without_translation_only_turn(self, name: str):
        poses = moved(DIVIDED, name, 5, translation=False)
        assert {tuple(pose.position) for pose in poses} == {tuple(START.position)}

    def test_coverage_takes_the_reachable_pose_that_shows_the_most_new_surface(self):
        poses = moved(DIVIDED, "coverage", 2)
        library = OneSceneLibrary(DIVIDED, {"1": START}, make_renderer("raycast"), CAMERA)
        coverage = SurfaceCoverage(DIVIDED)
        for here, chosen in pairwise(poses):
            coverage.add(here, CAMERA.intrinsics)
            env = ExplorationEnv(library, 1)
            env.reset_at(DIVIDED, here)
            shown = [
                np.count_nonzero(coverage.seen_from(pose, CAMERA.intrinsics) & ~coverage.seen)
                for direction in GreedyCoverage.DIRECTIONS_DEG
                for distance in (0.0, *GreedyCoverage.DISTANCES_M)
                for place in [env.outcome(CameraAction(direction, distance)).pose]
                for pose in [place.turned(turn) for turn in GreedyCoverage.HEADINGS_DEG]
            ]
            best = np.count_nonzero(coverage.seen_from(chosen, CAMERA.intrinsics) & ~coverage.seen)
            assert best >= max(shown) - 5  # the action is rounded to millimetres


class TestWhoMoves:
    @pytest.mark.parametrize("moves", ["random", "coverage"])
    def test_moves_depend_on_neither_batch_nor_replies(self, rooms: RoomScans, tmp_path: Path, moves: str):
        few = {"moves": moves, "steps": 2, "num_questions": 3}
        one = run_in_process(rooms.config(tmp_path / "1", batch_size=1, **few), scripted(1))
        many = run_in_process(rooms.config(tmp_path / "2", batch_size=3, **few), scripted(2))
        assert poses_of(one) == poses_of(many)

    def test_what_the_model_asked_for_is_recorded_and_not_carried_out(self, rooms: RoomScans, tmp_path: Path):
        model = answering(answer_from=2, forward_meters=1.0)
        folder = run_in_process(rooms.config(tmp_path, moves="spin", steps=3, **COUNTING), model)
        first, second, third, last = turns_of(folder)
        assert first.requested == second.requested == CameraAction(forward_meters=1.0)
        assert third.requested == CameraAction(forward_meters=1.0, answer="2", done=True)
        assert last.requested is None and len({turn.pose.position.tobytes() for turn in (first, last)}) == 1

    def test_nobody_moves_and_the_first_view_is_the_only_one(self, rooms: RoomScans, tmp_path: Path):
        folder = run_in_process(rooms.config(tmp_path, moves="none", **COUNTING), answering())
        assert len(turns_of(folder)) == 1
        assert "This is the only view" in RunReader(folder).messages(FIRST)[1]["text"]
        protocol = RunReader(folder).facts.protocol
        assert protocol.startswith("moves=none, ") and "steps" not in protocol

    def test_only_the_last_answer_counts_and_the_model_is_told_the_truth(self, rooms: RoomScans, tmp_path: Path):
        folder = run_in_process(rooms.config(tmp_path, moves="spin", steps=2, **COUNTING), answering())
        assert [turn.action.done for turn in turns_of(folder)] == [False, False, True]
        assert [row["answer"] for row in results(folder)] == ["2"]
        read = [each["text"] for each in RunReader(folder).messages(FIRST) if each["role"] != "assistant"]
        assert read[2].startswith(
            "Your answer was recorded, but only the answer to the last view counts. Turned 120 degrees left."
        )
        assert "which you do not control" in read[0] and "1 move left" not in "\n".join(read)


class TestOwnMoves:
    def test_no_answer_counts_before_min_turns(self, rooms: RoomScans, tmp_path: Path):
        folder = run_in_process(rooms.config(tmp_path, min_turns=2, steps=5, **COUNTING), answering(forward_meters=0.1))
        turns = turns_of(folder)
        assert len(turns) == 3
        assert turns[0].requested == CameraAction(forward_meters=0.1, answer="2", done=True)
        assert turns[0].action == CameraAction(forward_meters=0.1)
        said = [message["text"] for message in RunReader(folder).messages(FIRST) if message["role"] == "user"]
        assert "Answer as soon as you are sure, but not before turn 2." in said[0]
        assert said[1].startswith("Your answer was recorded, but no answer before turn 2 counts. Did not turn.")

    def test_without_translation_the_camera_only_turns(self, rooms: RoomScans, tmp_path: Path):
        model = answering(answer_from=2, rotation_angle_degrees=30.0, forward_meters=5.0)
        folder = run_in_process(rooms.config(tmp_path, translation=False, steps=5, **COUNTING), model)
        turns = turns_of(folder)
        assert [turn.action for turn in turns[:2]] == [CameraAction(30.0)] * 2
        assert turns[0].requested == CameraAction(30.0, 2.0)
        assert turns[0].clamped == ()
        system = RunReader(folder).messages(FIRST)[0]["text"]
        assert "forward" not in system and '{"rotation_angle_degrees": 0, "answer": null, "done": false}' in system


@pytest.fixture(scope="module")
def explored(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model moves and answers at random."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("explored"), steps=2, num_questions=4), scripted(3))


class TestMovesOf:
    def test_another_model_is_shown_the_same_views(self, rooms: RoomScans, explored: Path, tmp_path: Path):
        few = {"moves_of": explored, "num_questions": 4}
        folder = run_in_process(rooms.config(tmp_path / "2", steps=2, **few), scripted(4))
        assert poses_of(folder) == poses_of(explored)
        views = sorted(path.relative_to(explored) for path in explored.glob("q*/*.png"))
        assert [pixels(folder / view) for view in views] == [pixels(explored / view) for view in views]
        fewer = run_in_process(rooms.config(tmp_path / "1", steps=1, **few), scripted(4))
        assert poses_of(fewer) == {episode: poses[:2] for episode, poses in poses_of(explored).items()}

    @pytest.mark.parametrize(
        ("changes", "why"),
        [({"focal": 80.0}, "other settings: focal 75$"), ({"num_questions": 8}, "has not asked question")],
    )
    def test_other_views_and_other_questions_are_refused(
        self, rooms: RoomScans, explored: Path, tmp_path: Path, changes: dict[str, Any], why: str
    ):
        with pytest.raises(ConfigError, match=why):
            run_settings(rooms.config(tmp_path, moves_of=explored, **changes), policy=scripted())

    def test_another_scan_fails_its_questions(self, rooms: RoomScans, explored: Path, tmp_path: Path):
        root = Path(shutil.copytree(rooms.root, tmp_path / "root"))
        scene = rooms.rows[0]["scene_name"]
        (scan,) = root.rglob(f"{scene}*.ply")
        (other,) = [each for each in root.rglob("room_*.ply") if each != scan]
        shutil.copyfile(other, scan)
        few = {"moves_of": explored, "num_questions": 1}
        folder = run_in_process(rooms.config(tmp_path / "logs", scan_root=root, **few), scripted())
        row = RunReader(folder).rows[0]
        assert row.failed_part == "scene" and f"has seen {scene} in another scan" in str(row.error)


class TestPresentation:
    def test_at_once_shows_what_turns_show(self, rooms: RoomScans, tmp_path: Path):
        config = {"moves": "spin", "steps": 2, **COUNTING}
        by_turns = run_in_process(rooms.config(tmp_path / "1", **config), answering())
        once = run_in_process(rooms.config(tmp_path / "2", present="once", **config), answering())
        names = [f"q001/render_{turn:02d}.png" for turn in range(3)]
        assert [pixels(once / name) for name in names] == [pixels(by_turns / name) for name in names]
        _, user, _ = RunReader(once).messages(FIRST)
        assert user["images"] == [Path(name).name for name in names]
        told = [message["text"] for message in RunReader(by_turns).messages(FIRST) if message["role"] == "user"]
        for number, text in enumerate(told):
            position = next(part for part in text.split("\n\n") if part.startswith("The camera is at"))
            assert position in next(line for line in user["text"].split("\n") if line.startswith(f"View {number}:"))


CONTROLS: dict[str, dict[str, Any]] = {
    "once": {"moves": "random", "present": "once"},
    "coverage": {"moves": "coverage"},
    "min_turns": {"min_turns": 2},
}


class TestResuming:
    @pytest.mark.parametrize("name", [*CONTROLS, "moves_of"])
    def test_a_run_interrupted_under_a_control_ends_like_an_undisturbed_one(
        self, rooms: RoomScans, explored: Path, tmp_path: Path, name: str
    ):
        controls = CONTROLS.get(name, {"moves_of": explored})
        config = rooms.config(tmp_path / "whole", steps=2, num_questions=2, **controls)
        whole = run_in_process(config, scripted())
        cut = interrupted(whole, 1, tmp_path / "cut")
        run_settings(config, cut, scripted())
        assert results(cut) == results(whole)
        assert trajectories(cut) == trajectories(whole)


class TestTell:
    def said(self, rooms: RoomScans, log_root: Path, tell: str) -> str:
        folder = run_in_process(rooms.config(log_root, tell=tell, steps=1, **COUNTING), answering(answer_from=1))
        return "\n".join(message["text"] for message in RunReader(folder).messages(FIRST))

    def test_the_extent_is_told_to_the_explorer_alone_and_nothing_can_be_told(self, rooms: RoomScans, tmp_path: Path):
        said = self.said(rooms, tmp_path / "1", "auto")
        assert "The room spans" not in said
        assert "The camera is at x" in said and "1 move left" in said
        said = self.said(rooms, tmp_path / "2", "nothing")
        assert not [words for words in ("spans", "is at", "left. ", "Turn 0") if words in said]
        assert suited_to_model(settings_of(model="embedded"), own_view_settings("embedded"), None, None)["tell"] == (
            "pose",
            "extent",
            "turns",
        )

    @pytest.mark.parametrize(
        ("changes", "warned"),
        [
            ({"tell": "pose"}, None),
            ({"tell": "pose extent"}, "The model was told the room's extent, which nearly gives away room_size"),
            ({"tell": "pose", "see": "map plan"}, "The model was told the room's extent, which nearly gives away"),
        ],
    )
    def test_a_score_of_room_sizes_is_marked_if_the_extent_was_told(
        self, rooms: RoomScans, tmp_path: Path, changes: dict[str, Any], warned: str | None
    ):
        sizes = {"question_types": ("room_size_estimation",), "steps": 0, "questions": rooms.root / "questions.jsonl"}
        folder = run_in_process(rooms.config(tmp_path, **sizes, **changes), answering())
        warnings = RunReader(folder).summary.to_json().get("warnings", [])
        of_prompts = [warning for warning in warnings if not warning.startswith("The model was given the whole room")]
        assert [warning.startswith(warned or "") for warning in of_prompts] == [True] * (warned is not None)
        assert (len(warnings) > len(of_prompts)) == ("plan" in changes.get("see", ""))


EVERYTHING = ("pose", "extent", "turns")
PROMPTS = [Prompts(), checkpoint_prompts("embedded")]


@pytest.mark.parametrize(
    ("controls", "tell", "default", "explorer"),
    [
        ({}, ("pose", "turns"), "47baf9f70d3c8046", "5b854ad94341cfee"),
        ({}, (), "063be7748930b315", "b38e078963828af1"),
        ({"moves": "none"}, EVERYTHING, "734ac355e7b72320", "e07d11ebed70739d"),
        ({"moves": "spin", "at_once": True}, EVERYTHING, "625c707c3a4f8f05", "0a038785e63dc744"),
        ({"min_turns": 3}, EVERYTHING, "463e3dadf2bab89f", "80b83ca090fa9ed7"),
        ({"translation": False}, EVERYTHING, "1f4a55d9c9ceff15", "cd0d3806bf611807"),
    ],
)
def test_the_prompts_of_controls_are_pinned(
    controls: dict[str, Any], tell: tuple[str, ...], default: str, explorer: str
):
    """Scores of different prompts are not comparable: change them on purpose only."""
    read = [each.with_advice_of(BENCHMARK).under(Controls(**controls, tell=tell)) for each in PROMPTS]
    assert [each.sha256[:16] for each in read] == [default, explorer]


def test_a_file_of_prompts_may_have_its_own_words_for_controls(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("variants:\n  watching: Look at what you are shown. {action}\n")
    read = load_prompts(tmp_path / "mine.yaml").under(Controls(moves="spin", tell=EVERYTHING))
    assert read.system == "Look at what you are shown. {action}"
