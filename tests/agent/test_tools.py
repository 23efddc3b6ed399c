"""Marks on surfaces, and measuring between points of a view: what is told, recorded, counted and labelled."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RoomScans, run_in_process
from simple_rooms import box, landmark_room, scene_of
from test_action_spaces import ONE, QUESTION, said_to, saying, turns_of

from roomscout.agent.actions import find_space
from roomscout.agent.actions.points import MARKED, SeenPlace
from roomscout.agent.policies import Decision
from roomscout.agent.policies.replies import parse_action
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.modalities.marks import APART, EDGE, marks_of
from roomscout.rendering.renderers import make_renderer
from roomscout.rendering.scene import Scene
from roomscout.runs.reader import RunReader

START = CameraPose(1.0, 2.5, 1.3, 0.0)
OPEN = scene_of(box((0, 0, -0.1), (6, 5, 0.0)))
"""A floor without walls."""


def place_in(scene: Scene, renderer: str = "raycast", see: tuple[str, ...] = ("rgb",), width: int = 160) -> SeenPlace:
    camera = CameraSettings((width, width * 3 // 5), width * 75 / 160, 1.5, 0.0, see=see)
    env = ExplorationEnv(OneSceneLibrary(scene, {}, make_renderer(renderer), camera), 8)
    return SeenPlace(env.reset_at(scene, START), env.sight)


def read(keys: dict[str, Any], place: SeenPlace, space: str = "tools") -> Decision:
    text = json.dumps({**keys, "answer": None, "done": False})
    return parse_action(text, QUESTION, space=find_space(space), place=place)


@pytest.mark.parametrize("width", [160, 288, 640])
def test_marks_are_on_surfaces_apart_and_in_order(width: int):
    sight = place_in(landmark_room(), width=width)._sight
    marks = marks_of(sight)
    assert list(marks) == list(range(1, len(marks) + 1)) and 8 <= len(marks) <= 16
    assert [y for _, y in marks.values()] == sorted(y for _, y in marks.values())
    pixels = [*marks.values()]
    assert all(math.dist(a, b) >= max(APART * width, 20) - 1e-6 for a in pixels for b in pixels if a != b)
    edge = EDGE * (width // 80)
    assert all(edge <= x <= width - edge and edge <= y <= width * 3 // 5 - edge for x, y in pixels)
    assert all(np.isfinite(sight.depth[int(y), int(x)]) for x, y in pixels)
    assert marks_of(place_in(landmark_room(), width=width)._sight) == marks


def test_no_mark_is_in_a_hole_or_in_a_blind_view():
    sight = place_in(OPEN)._sight
    assert 2 <= len(marks_of(sight)) < 16 and all(y > 50 for _, y in marks_of(sight).values())
    blind = place_in(landmark_room(), "blind", ("rgb", "marks"))
    assert marks_of(blind._sight) == {} and blind.pixel_of_mark(1) is None


def test_a_mark_stands_for_its_pixel():
    place = place_in(landmark_room(), see=("rgb", "marks"))
    pixel = marks_of(place._sight)[3]
    expected = read({"action": "go_to", "point": [*pixel]}, place_in(landmark_room()), "pixel").action
    for keys in ({"point": 3}, {"point": "3"}, {"point": 3.0}, {"mark": 3}, {"point": None, "mark": 3}):
        assert read({"action": "go_to", **keys}, place, "pixel").action == expected
    (point,) = place.seen.values()
    assert (point.pixel, point.mark) == (pixel, 3) and point.surface is not None
    for number in (0, 17, 99, -1, 2.5, 10**400):
        error = read({"action": "turn_to", "point": number}, place, "pixel").error or ""
        assert error.startswith("point: the view has no mark ") or "must be [x, y]" in error
    unmarked = read({"action": "turn_to", "point": 3}, place_in(landmark_room()), "pixel")
    assert unmarked.error == "point: the view has no mark 3; a point is [x, y] in pixels"


def test_a_distance_is_that_of_the_surfaces():
    place = place_in(landmark_room())
    parsed = read({"rotation_angle_degrees": 30, "measure": [[70, 60], [90, 60]]}, place)
    (use,) = parsed.uses
    surfaces = [place.surface_at(70, 60), place.surface_at(90, 60)]
    assert surfaces[0] is not None and surfaces[1] is not None
    expected = float(np.linalg.norm(surfaces[0] - surfaces[1]))
    assert expected > 0.5 and use.metres == pytest.approx(expected, abs=0.006)
    assert use.result == f"{expected:.2f} m between [70, 60] and [90, 60]"
    assert parsed.action.in_words == "left 30°" and len(place.seen) == 2


def test_nothing_is_measured_through_a_hole_or_blindly_and_the_move_counts():
    for place in (place_in(OPEN), place_in(landmark_room(), "blind")):
        parsed = read({"forward_meters": 1, "measure": [[80, 90], [20, 10]]}, place)
        (use,) = parsed.uses
        assert use.metres is None and use.result.startswith("nothing: there is no surface at [")
        assert parsed.action.forward_meters == 1


def act(measure: object = None, answer: object = None, **move: float) -> str:
    return json.dumps({**move, "measure": measure, "answer": answer, "done": answer is not None})


STEPS: dict[str, Any] = {"actions": "tools", "camera_pitch": 0.0, "steps": 5, "see": ("rgb", "marks"), **ONE}
WALK = (
    act([[60, 60], [100, 60]], rotation_angle_degrees=40),
    act([2, [100, 80]]),
    act([[500, 60], [100, 60]]),
    act(forward_meters=0.5),
    act([1, 2], answer=3),
)


def saying_per_turn(*replies: str) -> Any:
    """A model that gives these replies in turn, of two images each."""
    return saying(*(each for each in replies for _ in range(2)))


@pytest.fixture(scope="module")
def marked(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with marks of a model that measures."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("marked"), **STEPS), saying_per_turn(*WALK))


def test_measurements_are_told_recorded_counted_and_labelled(marked: Path):
    system, _, first, second, refused, moved = said_to(marked)
    assert "measure: [[x1, y1], [x2, y2]]" in system and system.endswith(MARKED)
    turns = turns_of(marked)
    assert first.startswith(f"Measured {turns[0].uses[0].result}. Turned 40 degrees left.")
    assert second.startswith(f"Measured {turns[1].uses[0].result}. Did not turn.")
    assert "between mark 2 and [100" in second and turns[1].points[0].mark == 2
    assert refused.startswith("Your reply could not be used: measure [500, 60] is outside the view")
    assert "Measured" not in moved and not turns[-1].uses  # nobody reads what the last turn measures
    reader = RunReader(marked)
    summary = reader.summary.to_json()
    assert [row.measurements for row in reader.rows] == [summary["types"]["all"]["measurements"]] == [2]
    assert summary["asked"]["overall_label"].startswith("measured_")
    assert "measured 2 distances in scans for 1 of 1 answers" in "".join(summary["warnings"])
