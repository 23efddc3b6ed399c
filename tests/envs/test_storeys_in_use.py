"""A camera that climbs from one storey to the next: what it is told and shown, and what reports draw."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import RoomScans, only_run
from planned import run_settings
from simple_rooms import box, scene_of

from roomscout.analysis.report.maps import FloorPlans
from roomscout.data.questions import Question
from roomscout.envs.actions import CameraMove
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene
from roomscout.rooms.writer import ply_of
from roomscout.runs.reader import RunReader

RED, GREEN = (220, 20, 20), (20, 200, 20)
UP = CameraMove(z_delta_meters=0.5)


@pytest.fixture(scope="module")
def house() -> Scene:
    """A ground floor of 8 x 6 m with a green box, and over half of it an upper floor with a red one."""
    return scene_of(
        box((0, 0, -0.2), (8, 6, 0)),
        box((0, 0, 2.8), (4, 6, 3)),
        box((0, 0, 5.6), (8, 6, 5.8)),
        *(box((x, 0, 0), (x + 0.1, 6, 5.6)) for x in (0.0, 7.9)),
        *(box((0, y, 0), (8, y + 0.1, 5.6)) for y in (0.0, 5.9)),
        box((6, 4, 0), (7, 5, 1), GREEN),
        box((1, 4, 3), (2, 5, 4), RED),
    )


def share_of(colour: tuple[int, int, int], image: np.ndarray) -> float:
    return float((np.abs(image.astype(int) - colour).max(axis=-1) < 30).mean())


def test_a_camera_that_climbs_reads_and_sees_its_own_storey(house: Scene):
    camera = CameraSettings((160, 120), 60.0, 1.6, 0.0, see=("map", "plan"))
    start = CameraPose(6.0, 2.0, 2.4, 135.0)
    env = ExplorationEnv(OneSceneLibrary(house, {"q": start}, RaycastRenderer(), camera), 8, in_scan_coordinates=True)
    question = Question("q", "own", "house", "own", "?", (), None)
    seen = [env.reset(question)]
    seen += [env.step(UP) for _ in range(5)]
    assert [each.pose.z_m for each in seen] == pytest.approx([2.4, 2.9, 3.4, 3.9, 4.4, 4.9], abs=0.01)
    floors = [each.extent.floor_z_m for each in seen]
    assert floors == pytest.approx([0, 0, 3, 3, 3, 3], abs=0.01)
    assert seen[0].extent_from_start != seen[-1].extent_from_start
    plans = [next(shot.image for shot in each.images if shot.name == "plan") for each in seen]
    assert share_of(GREEN, plans[0]) > 10 * share_of(RED, plans[0])
    assert share_of(RED, plans[-1]) > 0.001
    maps = [next(shot.image for shot in each.images if shot.name == "map") for each in seen]
    assert share_of(RED, maps[-1]) > 0.001
    assert share_of(GREEN, maps[-1]) == 0 < share_of(GREEN, maps[0])


def test_a_report_draws_the_plan_of_the_storey_where_the_path_begins(house: Scene, rooms: RoomScans, tmp_path: Path):
    (tmp_path / "house.ply").write_bytes(ply_of(house))
    asked = {
        "scan": "house.ply",
        "question": "?",
        "question_type": "own",
        "answer_kind": "yes_no",
        "ground_truth": "yes",
    }
    starts = [{"x_m": 2, "y_m": 2, "heading_deg": 0, "z_m": z_m} for z_m in (1.6, 4.6)]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(asked | {"start": start}) + "\n" for start in starts))
    settings = rooms.config(tmp_path / "runs", questions=path, scan_root=tmp_path, policy="stay")
    assert run_settings(settings).status == 0
    reader = RunReader(only_run(tmp_path / "runs"))
    firsts = [next(iter(reader.turns(row.episode))) for row in sorted(reader.rows, key=lambda row: row.number)]
    drawn = [FloorPlans(tmp_path / "plans", reader.facts).draw(turn.scan, turn.pose.z_m) for turn in firsts]
    again = [FloorPlans(tmp_path / "plans", reader.facts).draw(turn.scan, turn.pose.z_m) for turn in firsts]
    assert drawn == again
    assert len({path for path, _ in drawn}) == 2
