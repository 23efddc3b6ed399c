"""Points of a view that a model names: where the camera goes, what cannot be read, and what a record suffices for."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, results, run_in_process
from simple_rooms import landmark_room
from test_action_spaces import ONE, QUESTION, accepted_by, said_to, saying, turns_of

from roomscout.agent.actions import find_space
from roomscout.agent.actions.pixel import STAND_OFF_M
from roomscout.agent.actions.points import SeenPlace
from roomscout.agent.policies import Decision
from roomscout.agent.policies.replies import parse_action
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.renderers import make_renderer
from roomscout.rendering.scene import Scene

PIXEL = find_space("pixel")
CAMERA = CameraSettings((160, 96), 75.0, 1.5, 0.0)
DONE = '{"action": null, "point": null, "answer": 2, "done": true}'
START = CameraPose(1.0, 2.5, 1.3, 0.0)


def act(action: object, point: object = None) -> str:
    return json.dumps({"action": action, "point": point, "answer": None, "done": False})


def place_in(scene: Scene, pose: CameraPose, renderer: str = "raycast") -> SeenPlace:
    env = ExplorationEnv(OneSceneLibrary(scene, {}, make_renderer(renderer), CAMERA), 8)
    return SeenPlace(env.reset_at(scene, pose), env.sight)


def read(text: str, place: SeenPlace) -> Decision:
    return parse_action(text, QUESTION, space=PIXEL, place=place)


@pytest.mark.parametrize("pose", [START, CameraPose(3.0, 2.5, 1.3, 200.0, -20.0)])
@pytest.mark.parametrize("point", [(20, 12), (150, 80), (80, 48)])
def test_what_it_turns_to_and_looks_at_is_in_the_middle_of_the_next_view(pose: CameraPose, point: tuple[float, float]):
    place = place_in(landmark_room(), pose)
    surface = place.surface_at(*point)
    assert surface is not None
    for action in ("turn_to", "look_at"):
        after = place_in(landmark_room(), read(act(action, point), place).action.goal(pose))
        x, y, depth = (after.pose.world_to_camera @ [*surface, 1.0])[:3]
        assert abs(x / depth) < 0.002 and (action == "turn_to" or abs(y / depth) < 0.002)
        assert after.pose.pitch_deg == pose.pitch_deg or action == "look_at"


def test_it_goes_along_the_floor_until_before_the_point_or_to_the_limit_of_a_move():
    place = place_in(landmark_room(), CameraPose(3.0, 2.5, 1.3, 0.0))
    wall = read(act("go_to", [80, 60]), place).action
    assert (wall.rotation_angle_degrees, wall.forward_meters) == (0.0, 2.0)  # the wall is at 3 m
    assert wall.z_delta_meters == wall.pitch_angle_degrees == 0.0
    floor = read(act("go_to", [40, 95]), place)
    surface = place.surface_at(40, 95)
    assert surface is not None and surface[2] == pytest.approx(0.0, abs=1e-4)
    assert floor.action.forward_meters == pytest.approx(math.dist(surface[:2], (3.0, 2.5)) - STAND_OFF_M, abs=0.006)
    near = read(act("go_to", [80, 48]), place_in(landmark_room(), CameraPose(5.2, 2.0, 1.3, 0.0)))
    assert near.action.forward_meters == pytest.approx(0.3, abs=0.006)
    assert read(act("go_to", [80, 48]), place_in(landmark_room(), CameraPose(5.7, 2.0, 1.3, 0.0))).action.length_m == 0


SIZE = ": x is from 0 to 160 and y from 0 to 96, in pixels"


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ([161, 20], f"point [161, 20] is outside the view{SIZE}"),
        ([-3, 20], f"point [-3, 20] is outside the view{SIZE}"),
        ([500, 500], f"point [500, 500] is outside the view{SIZE}"),
        ([0.5, 0.4], f"point [0.5, 0.4] is a share of the view{SIZE}"),
        ([10, 20, 30, 40], "point has four numbers: write [x, y], the middle of what you mean"),
        ("10, 20, 30, 40", "point has four numbers: write [x, y], the middle of what you mean"),
        ([10], "point: the view has no mark 10; a point is [x, y] in pixels"),
        (None, "turn_to needs a point: write [x, y] in pixels of the view"),
        (7, "point: the view has no mark 7; a point is [x, y] in pixels"),
        ("the chair", 'point must be [x, y] in pixels, not "the chair"'),
        ([True, False], "point must be [x, y] in pixels, not a list"),
        (["a", 3], "point must be [x, y] in pixels, not a list"),
        ([[1, 2], [3, 4]], "point must be [x, y] in pixels, not a list"),
        ({"x": 3}, "point must be [x, y] in pixels, not an object"),
        ([], "point must be [x, y] in pixels, not a list"),
        ("", 'point must be [x, y] in pixels, not ""'),
    ],
)
def test_other_points_are_named_and_turn_the_camera(point: object, why: str):
    parsed = read(act("turn_to", point), place_in(landmark_room(), START))
    assert parsed.error == why and parsed.action.rotation_angle_degrees == 45.0


def test_the_room_behind_is_reached_without_a_point():
    place = place_in(landmark_room(), START)
    assert read(act("turn_around"), place).action.in_words == "left 180°"
    assert read(act("Turn right", [3, 3]), place).action.in_words == "right 60°"
    assert read(act(None), place).action.in_words == "stays"
    assert read('{"answer": 2, "done": true}', place).action.done


@pytest.mark.parametrize(
    ("keys", "accepted"),
    [
        ('"action": "go_to", "point": [120, 80]', True),
        ('"action": "turn_around", "point": null', True),
        ('"action": null, "point": null', True),
        ('"action": "jump", "point": null', False),
        ('"action": "go_to", "point": [120]', False),
        ('"action": "go_to", "point": [-120, 80]', False),
        ('"action": "go_to", "point": [1, 2, 3, 4]', False),
    ],
)
def test_the_grammar_takes_only_points(keys: str, accepted: bool):
    assert accepted_by(PIXEL, f'There. {{{keys}, "answer": null, "done": false}}') is accepted


STEPS: dict[str, Any] = {"actions": "pixel", "camera_pitch": 0.0, "steps": 6, **ONE}
WALK = (act("go_to", [120, 80]), act("go_to", [500, 500]), act("look_at", [20, 90]), act("turn_around"))
WALK = (*WALK, act("go_to", "80, 90"), act("jump"), DONE)


@pytest.fixture(scope="module")
def walked(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of actions by points."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("walked"), **STEPS), saying(*WALK))


def test_a_run_tells_and_records_what_a_point_led_to(walked: Path):
    system, _, went, refused, looked, *_ = said_to(walked)
    assert PIXEL.lines.replace("{view_width}", "160").replace("{view_height}", "96").format(move_limit="2") in system
    assert "Its pitch is 0 degrees at the start" in system
    first, second, third, *_ = turns_of(walked)
    assert first.fields == {"action": "go_to", "point": [120, 80]}
    assert first.move is not None and first.points[0].surface is not None
    gone = math.dist(first.points[0].surface[:2], first.pose.position[:2])
    assert first.action.forward_meters == pytest.approx(min(gone - STAND_OFF_M, 2.0), abs=0.006)
    assert went.startswith("Turned 28.1 degrees right. Moved ")
    assert refused.startswith("Your reply could not be used: point [500, 500] is outside the view: x is from 0 to 160")
    assert "Looks " in looked and third.action.pitch_angle_degrees < 0
    assert not second.points and [row["parse_errors"] for row in results(walked)] == [2]
