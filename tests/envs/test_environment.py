"""The environment of a question: reset, step and resume."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import RoomScans

from roomscout.data.questions import load_questions
from roomscout.envs.actions import CameraAction, CameraMove
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.library import CameraSettings, OneSceneLibrary, ScanLibrary
from roomscout.rendering.renderers import RenderError, make_renderer

CAMERA = CameraSettings((96, 64), 45.0, 1.6, -15.0)


@pytest.fixture(scope="module")
def library(rooms: RoomScans):
    made = ScanLibrary(make_renderer("raycast"), CAMERA, rooms.root)
    yield made
    made.close()


@pytest.fixture
def question(rooms: RoomScans):
    return load_questions(rooms.questions)[0]


def test_a_reset_shows_view_0_with_all_moves_left(library: ScanLibrary, question):
    first = ExplorationEnv(library, 3).reset(question)
    assert (first.turn, first.moves_left, first.move) == (0, 3, None)
    assert first.view.shape == (64, 96, 3) and first.view.std() > 0
    assert np.array_equal(first.view, library.first_view(question).image)
    (x0, x1), (y0, y1) = first.extent.x_m, first.extent.y_m
    assert x0 < first.pose.x_m < x1 and y0 < first.pose.y_m < y1
    assert first.pose.z_m - first.extent.floor_z_m == pytest.approx(1.6, abs=0.05)


def test_in_a_scene_in_memory_each_question_starts_at_its_own_pose(library: ScanLibrary, question):
    scene, usual = library.scene_of(question), library.first_view(question).pose
    starts = {question.id: usual.turned(90.0), "other": usual}
    in_memory = OneSceneLibrary(scene, starts, library.renderer, CAMERA)
    turned = ExplorationEnv(library, 1)
    turned.reset(question)
    started, stepped = ExplorationEnv(in_memory, 1).reset(question), turned.step(CameraAction(90.0))
    assert started.pose == stepped.pose and np.array_equal(started.view, stepped.view)
    other = ExplorationEnv(in_memory, 1).reset(replace(question, id="other"))
    assert np.array_equal(other.view, library.first_view(question).image)


def test_steps_turn_then_move_and_count_down(library: ScanLibrary, question):
    env = ExplorationEnv(library, 2)
    first = env.reset(question)
    second = env.step(CameraAction(rotation_angle_degrees=90.0, forward_meters=0.3))
    assert (second.turn, second.moves_left) == (1, 1)
    assert second.pose.heading_deg == pytest.approx((first.pose.heading_deg + 90) % 360)
    assert second.move is not None and 0 < second.move.moved_m <= 0.3 + 1e-6
    assert not np.array_equal(second.view, first.view)
    assert env.step(CameraAction()).moves_left == 0
    with pytest.raises(ValueError, match="no moves left"):
        env.step(CameraAction())


def test_resuming_with_a_known_outcome_equals_taking_its_action(library: ScanLibrary, question):
    action = CameraAction(rotation_angle_degrees=-30.0, forward_meters=2.0)
    stepped, resumed = ExplorationEnv(library, 3), ExplorationEnv(library, 3)
    first = stepped.reset(question)
    resumed.reset_at(library.scene_of(question), first.pose, first.images)
    outcome = stepped.outcome(action)
    assert stepped.observation is first, "outcome() must not move the camera"
    expected, found = stepped.step(action), resumed.resume(outcome)
    assert found.move == expected.move == outcome and found.pose == expected.pose
    assert np.array_equal(found.view, expected.view)
    assert resumed.sight.path == stepped.sight.path == (first.pose, outcome.pose)
    assert resumed.sight.origin == first.pose and np.array_equal(resumed.sight.depth, stepped.sight.depth)


def test_a_render_error_leaves_the_environment_unchanged(library: ScanLibrary, question, monkeypatch):
    env = ExplorationEnv(library, 3)
    first = env.reset(question)

    def broken(*_: object) -> np.ndarray:
        raise RenderError("the renderer is gone")

    with monkeypatch.context() as patch:
        patch.setattr(library.renderer, "render", broken)
        with pytest.raises(RenderError):
            env.step(CameraAction(forward_meters=0.2))
    assert env.observation is first and env.sight.path == (first.pose,)
    assert env.step(CameraAction(forward_meters=0.2)).turn == 1


@pytest.mark.parametrize("values", [{"forward_meters": 2.1}, {"z_delta_meters": -0.6}, {"left_meters": float("nan")}])
def test_an_action_beyond_its_limits_is_refused(values: dict[str, float]):
    (name,) = values
    with pytest.raises(ValueError, match=f"{name} is "):
        CameraAction(**values)


def test_looking_down_changes_the_view_up_to_the_limit(library: ScanLibrary, question):
    env, down = ExplorationEnv(library, 5), CameraMove(pitch_angle_degrees=-30.0)
    first = env.reset(question)
    seen = [env.step(down) for _ in range(3)]
    assert [each.pose.pitch_deg for each in seen] == [-45.0, -60.0, -60.0]
    assert not np.array_equal(seen[0].view, first.view)
    assert np.array_equal(env.step(CameraMove(pitch_angle_degrees=45.0)).view, first.view)
