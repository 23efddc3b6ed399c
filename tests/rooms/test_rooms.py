"""Procedural rooms have consistent geometry, correct answers, the benchmark's wording, and the same bytes per seed."""

import math
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from roomscout.base.errors import UsageError
from roomscout.data.questions import load_questions
from roomscout.data.scans import find_scan
from roomscout.rendering.open3d_import import import_open3d
from roomscout.rooms import QUESTIONS_PER_TYPE, Room, ScanStyle, make_room, room_questions, write_rooms
from roomscout.rooms.command import main
from roomscout.rooms.geometry import OrientedBox, box_distance, points_in_polygon
from roomscout.rooms.placement import LOOKALIKES, RoomObject
from roomscout.rooms.room import EYE_M, standing_points
from roomscout.rooms.writer import ply_of

COARSE = ScanStyle(resolution_m=0.5)
SEED, ROOMS = 5, 6
MANY = dict.fromkeys(QUESTIONS_PER_TYPE, 6)
Row = dict[str, Any]

# Copied from the benchmark's public rows instead of imported, so that a mistake in the package's wording fails a test.
WORDING = {
    "object_counting": r"How many (.+)\(s\) are in this room\?",
    "object_abs_distance": r"Measuring from the closest point of each object, what is the distance between the (.+) "
    r"and the (.+) \(in meters\)\?",
    "object_size_estimation": r"What is the length of the longest dimension \(length, width, or height\) of the (.+), "
    r"measured in centimeters\?",
    "room_size_estimation": r"What is the size of this room \(in square meters\)\? If multiple rooms are shown, "
    r"estimate the size of the combined space\.",
    "object_rel_distance": r"Measuring from the closest point of each object, which of these objects "
    r"\((.+), (.+), (.+), (.+)\) is the closest to the (.+)\?",
    "object_rel_direction_easy": r"If I am standing by the (.+) and facing the (.+), is the (.+) to the left or the "
    r"right of the \2\?",
    "object_rel_direction_medium": r"If I am standing by the (.+) and facing the (.+), is the (.+) to my left, right, "
    r"or back\?\nAn object is to my back if I would have to turn at least 135 degrees in order to face it\.",
    "object_rel_direction_hard": r"If I am standing by the (.+) and facing the (.+), is the (.+) to my front-left, "
    r"front-right, back-left, or back-right\?\nThe directions refer to the quadrants of a Cartesian plane \(if I am "
    r"standing at the origin and facing along the positive y-axis\)\.",
    "route_planning": r"You are a robot beginning at the (.+) and facing the (.+)\. You want to navigate to the (.+)\. "
    r"You will perform the following actions \(Note: for each \[please fill in\], choose either 'turn back,' 'turn "
    r"left,' or 'turn right\.'\): (1\. .+)\. You have reached the final destination\.",
}
OPTIONS = {
    "object_rel_direction_easy": {"left", "right"},
    "object_rel_direction_medium": {"left", "right", "back"},
    "object_rel_direction_hard": {"front-left", "front-right", "back-left", "back-right"},
}


@pytest.fixture(scope="module")
def rooms() -> list[Room]:
    return [make_room(SEED, index, COARSE) for index in range(ROOMS)]


@pytest.fixture(scope="module")
def fine() -> Room:
    """A room as dense as by default."""
    return make_room(SEED, 0)


@pytest.fixture(scope="module")
def asked(rooms: list[Room]) -> list[tuple[Room, Row]]:
    return [(room, row) for i, room in enumerate(rooms) for row in room_questions(room, (SEED, i), MANY)]


def of_type(asked: list[tuple[Room, Row]], *kinds: str) -> list[tuple[Room, Row, tuple[str, ...]]]:
    """Room, row and the names in the question's text, for every question of these types."""
    found = []
    for room, row in asked:
        if row["question_type"] in kinds:
            match = re.fullmatch(WORDING[row["question_type"]], row["question"])
            assert match, row["question"]
            found.append((room, row, match.groups()))
    return found


def answer_text(row: Row) -> str:
    """The text of the correct option, without its letter."""
    return str(row["options"]["ABCD".index(row["ground_truth"])]).split(". ", 1)[1]


def only_object(room: Room, category: str) -> RoomObject:
    """The only object of a category."""
    (item,) = room.of_category(category)
    return item


def center(room: Room, category: str) -> complex:
    """The centre of the only object of a category, x + iy in the floor plan."""
    x, y, _ = only_object(room, category).box.center
    return complex(x, y)


def least_squares_distance(a: OrientedBox, b: OrientedBox) -> float:
    """Distance between two boxes, as a bounded least squares problem over their points."""

    def axes(box: OrientedBox) -> np.ndarray:
        yaw = math.radians(box.yaw_deg)
        return np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]])

    reach = np.concatenate([a.size, b.size]) / 2
    between = lsq_linear(
        np.hstack([axes(a), -axes(b)]), np.subtract(b.center, a.center), (-reach, reach), method="bvls", tol=1e-12
    )
    return math.sqrt(2 * between.cost)


# ---- geometry ---------------------------------------------------------------------------------------------------

boxes = st.builds(
    OrientedBox,
    st.tuples(*[st.floats(-3, 3)] * 3),
    st.tuples(*[st.floats(0.05, 3)] * 3),
    st.floats(-180, 180),
)


@settings(max_examples=60, deadline=None)
@given(boxes, boxes)
def test_box_distance_equals_the_least_squares_solution(a: OrientedBox, b: OrientedBox) -> None:
    assert box_distance(a, b) == pytest.approx(least_squares_distance(a, b), abs=1e-5)


def test_boxes_do_not_overlap_unless_one_supports_the_other(rooms: list[Room]) -> None:
    lattice = np.stack(np.meshgrid(*[np.linspace(-0.499, 0.499, 6)] * 3), axis=-1).reshape(-1, 3)
    for room in rooms:
        for (i, a), (j, b) in combinations(enumerate(room.objects), 2):
            if a.supported_by == j or b.supported_by == i:
                continue
            for one, other in ((a.box, b.box), (b.box, a.box)):
                flat = one.plan_point((lattice * one.size)[:, :2])
                points = np.column_stack([flat, lattice[:, 2] * one.size[2] + one.center[2]])
                inside = (np.abs(other.local(points)) < np.array(other.size) / 2 - 1e-6).all(axis=1)
                assert not inside.any(), (room.name, a.category, b.category)


def test_furniture_is_inside_the_walls_without_lookalikes_and_leaves_room_to_walk(rooms: list[Room]) -> None:
    for room in rooms:
        furniture = room.mesh.vertices[room.mesh.object_index >= 0]
        assert points_in_polygon(furniture[:, :2].astype(float), room.plan.corners).all()
        assert furniture[:, 2].min() >= -1e-6 and furniture[:, 2].max() <= room.plan.height
        present = {o.category for o in room.objects}
        assert not any(a in present and b in present for a, b in LOOKALIKES)
        reached = standing_points(room.plan, [o.box for o in room.objects])
        assert np.linalg.norm(reached - room.plan.middle, axis=1).min() < 0.15
        assert len(reached) * 0.01 > 0.1 * room.area_m2


def test_every_object_is_visible_in_a_level_view_from_eye_height(fine: Room) -> None:
    scene = import_open3d().t.geometry.RaycastingScene()
    scene.add_triangles(np.array(fine.mesh.vertices), np.array(fine.mesh.faces, dtype=np.uint32))
    floor = standing_points(fine.plan, [o.box for o in fine.objects])
    assert all(_most_pixels(scene, fine, i, floor[:: len(floor) // 40 + 1]) >= 40 for i in range(len(fine.objects)))


def _most_pixels(scene: Any, room: Room, index: int, floor: np.ndarray) -> int:
    """The most pixels of a 160 x 120 view from a point of `floor` that object `index` covers, counted up to 40."""
    target = room.objects[index].box.plan_center
    best = 0
    for x, y in floor:
        rays = scene.create_rays_pinhole(
            fov_deg=93.7, center=[*target, EYE_M], eye=[x, y, EYE_M], up=[0, 0, 1], width_px=160, height_px=120
        )
        hit = scene.cast_rays(rays)["primitive_ids"].numpy().ravel()
        face = room.mesh.faces[hit[hit != scene.INVALID_ID], 0]
        best = max(best, int((room.mesh.object_index[face] == index).sum()))
        if best >= 40:
            return best
    return best


# ---- answers ----------------------------------------------------------------------------------------------------


def test_every_type_is_asked_in_the_benchmarks_wording_and_columns(asked: list[tuple[Room, Row]]) -> None:
    assert len(of_type(asked, *WORDING)) == len(asked)
    assert {row["question_type"] for _, row in asked} == set(WORDING)
    columns = ["id", "dataset", "scene_name", "question_type", "question", "ground_truth", "options"]
    for _, row in asked:
        assert list(row) == columns and isinstance(row["id"], int) and isinstance(row["ground_truth"], str)
        if row["options"] is not None:
            assert [option[:3] for option in row["options"]] == ["A. ", "B. ", "C. ", "D. "][: len(row["options"])]
            assert row["ground_truth"] in "ABCD"[: len(row["options"])]
    assert len({(row["scene_name"], row["question"]) for _, row in asked}) == len(asked)


def test_counts_are_correct_and_never_one(asked: list[tuple[Room, Row]]) -> None:
    for room, row, (category,) in of_type(asked, "object_counting"):
        assert int(row["ground_truth"]) == sum(o.category == category for o in room.objects) >= 2


def test_distances_are_between_closest_points(asked: list[tuple[Room, Row]]) -> None:
    for room, row, (a, b) in of_type(asked, "object_abs_distance"):
        metres = least_squares_distance(only_object(room, a).box, only_object(room, b).box)
        assert float(row["ground_truth"]) == pytest.approx(metres, abs=0.0501)
        assert metres >= 0.5 - 1e-6


def test_sizes_are_the_longest_extent_of_the_surface_along_its_own_axes(asked: list[tuple[Room, Row]]) -> None:
    for room, row, (category,) in of_type(asked, "object_size_estimation"):
        item = only_object(room, category)
        flat = item.surface.corners.reshape(-1, 3) @ [1, 1j, 0] * np.exp(-1j * math.radians(item.box.yaw_deg))
        extents = [np.ptp(flat.real), np.ptp(flat.imag), np.ptp(item.surface.corners[..., 2])]
        assert int(row["ground_truth"]) == pytest.approx(100 * max(extents), abs=0.51)


def test_room_sizes_are_the_bounds_minus_the_notch(asked: list[tuple[Room, Row]]) -> None:
    for room, row, _ in of_type(asked, "room_size_estimation"):
        whole = np.ptp(room.plan.corners, axis=0).prod()
        notch = sum(np.prod(notch.size[:2]) for notch in room.plan.notches)
        assert float(row["ground_truth"]) == pytest.approx(whole - notch, abs=0.11)


def test_the_nearest_of_four_is_nearest_by_the_papers_gap(asked: list[tuple[Room, Row]]) -> None:
    for room, row, (*four, primary) in of_type(asked, "object_rel_distance"):
        here = only_object(room, primary).box
        metres = {c: min(least_squares_distance(here, o.box) for o in room.of_category(c)) for c in four}
        assert answer_text(row) == min(metres, key=lambda c: metres[c])
        low = sorted(metres.values())
        assert low[1] - low[0] > 0.3
        assert np.diff(low).min() > (0.3 if room.area_m2 > 40 else 0.15) - 1e-6


@pytest.mark.parametrize("kind", sorted(OPTIONS))
def test_directions_agree_with_a_rotated_map(asked: list[tuple[Room, Row]], kind: str) -> None:
    questions = of_type(asked, kind)
    assert questions
    for room, row, (a, b, c) in questions:
        assert {option[3:] for option in row["options"]} == OPTIONS[kind]
        assert all(abs(center(room, one) - center(room, other)) >= 0.8 for one, other in combinations((a, b, c), 2))
        # rotated so that the viewer at the origin faces +y
        seen = (center(room, c) - center(room, a)) / (center(room, b) - center(room, a)) * 1j
        off_axis = math.degrees(math.acos(seen.imag / abs(seen)))
        side = "left" if seen.real < 0 else "right"
        if kind.endswith("hard"):
            assert answer_text(row) == ("front-" if seen.imag > 0 else "back-") + side
            assert min(abs(off_axis - edge) for edge in (0, 90, 180)) >= 10
        else:
            assert answer_text(row) == ("back" if off_axis >= 135 else side)
            assert min(off_axis, abs(off_axis - 135)) >= 10


def test_route_turns_agree_with_the_map(asked: list[tuple[Room, Row]]) -> None:
    for room, row, (start, facing, end, text) in of_type(asked, "route_planning"):
        steps = re.split(r" ?\d+\. ", text)[1:]
        here, ahead = center(room, start), center(room, facing) - center(room, start)
        turns = []
        for i, step in enumerate(steps):
            if step == "[please fill in]":
                there = center(room, steps[i + 1].removeprefix("Go forward until the "))
                turns.append(_turn((there - here) / ahead))
            else:
                there = center(room, step.removeprefix("Go forward until the "))
                here, ahead = there, there - here
        assert steps[-1] == f"Go forward until the {end}"
        assert answer_text(row) == ", ".join(turns)
        assert 1 <= len(turns) <= 3
        assert len(row["options"]) == len(set(row["options"])) == (3 if len(turns) == 1 else 4)
        assert all(option.count("Turn") == len(turns) for option in row["options"])


def _turn(seen: complex) -> str:
    """The turn towards `seen` when facing +x; asserts that it is unambiguous by 10 degrees."""
    degrees = math.degrees(math.atan2(seen.imag, seen.real))
    assert abs(degrees) > 35 and abs(abs(degrees) - 135) >= 10
    return "Turn Back" if abs(degrees) > 135 else "Turn Left" if degrees > 0 else "Turn Right"


def test_letters_and_sides_are_balanced(asked: list[tuple[Room, Row]]) -> None:
    for width in (2, 3, 4):
        letters = Counter(row["ground_truth"] for _, row in asked if row["options"] and len(row["options"]) == width)
        total = sum(letters.values())
        spread = 4 * math.sqrt(total / width)
        assert all(abs(letters[c] - total / width) < spread for c in "ABCD"[:width]), letters
    sides = Counter(answer_text(row) for _, row, _ in of_type(asked, "object_rel_direction_easy"))
    assert abs(sides["left"] - sides["right"]) < 4 * math.sqrt(sum(sides.values()))


# ---- scans, files, command --------------------------------------------------------------------------------------


def test_a_style_changes_the_scan_but_neither_objects_nor_questions(fine: Room) -> None:
    corners = fine.mesh.vertices[fine.mesh.faces]
    assert np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max() < 2 * 0.05
    moved, torn = make_room(SEED, 0, ScanStyle(noise_m=0.02)), make_room(SEED, 0, ScanStyle(holes=15))
    shift = np.linalg.norm(moved.mesh.vertices - fine.mesh.vertices, axis=1)
    assert 0.01 < np.sqrt(np.mean(shift**2)) < 0.03
    assert len(torn.mesh.faces) < len(fine.mesh.faces)
    before = np.bincount(fine.mesh.object_index[fine.mesh.faces[:, 0]] + 1)[1:]
    after = np.bincount(torn.mesh.object_index[torn.mesh.faces[:, 0]] + 1, minlength=len(before) + 1)[1:]
    assert (after > 0.2 * before).all(), "an object cannot be recognised"
    assert fine.objects == moved.objects == torn.objects
    assert room_questions(fine, 3) == room_questions(torn, 3)


def test_a_written_scan_round_trips(rooms: list[Room], tmp_path: Path) -> None:
    room = rooms[2]
    (tmp_path / "room.ply").write_bytes(ply_of(room.mesh))
    read = trimesh.load(tmp_path / "room.ply", process=False)
    assert np.array_equal(read.vertices, room.mesh.vertices)
    assert np.array_equal(read.faces, room.mesh.faces)
    assert np.array_equal(read.visual.vertex_colors[:, :3], room.mesh.colours)


def test_an_interrupted_write_leaves_no_outdated_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rooms(tmp_path, 1, SEED, COARSE)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("roomscout.rooms.writer.room_questions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_rooms(tmp_path, 2, SEED, COARSE)
    assert not (tmp_path / "questions.jsonl").exists()
    assert not (tmp_path / "rooms.json").exists()


def test_a_rooms_bytes_depend_neither_on_the_number_of_rooms_nor_on_the_process(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    flags = ["--seed", "9", "--holes", "2", "--noise", "0.01", "--resolution", "0.5"]
    assert main([str(two), "--rooms", "2", *flags]) == 0
    subprocess.run(
        [sys.executable, "-m", "roomscout", "rooms", str(one), "--rooms", "1", *flags],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        check=True,
    )
    (scan,) = one.glob("scannet/scans/*/*.ply")
    assert scan.read_bytes() == (two / scan.relative_to(one)).read_bytes()
    assert (two / "questions.jsonl").read_bytes().startswith((one / "questions.jsonl").read_bytes())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rooms", "0"), "rooms must be 1 or more, not 0"),
        (("--resolution", "0"), "resolution must be from"),
        (("--objects", "20", "10"), "objects must be two numbers from 9 to 100, the smaller first"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        main([str(tmp_path / "out"), *arguments])


def test_a_folder_takes_more_of_its_rooms_but_no_others(tmp_path: Path) -> None:
    write_rooms(tmp_path, 1, 5, COARSE)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"has other rooms .*'seed': 5, .* not .*'seed': 6"):
        write_rooms(tmp_path, 1, 6, COARSE)
    for seed in (-1, 2**32):
        for twins in (False, True):
            with pytest.raises(ValueError, match="seed must be from 0 to 4294967295"):
                write_rooms(tmp_path, 1, seed, COARSE, twins=twins)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    count = write_rooms(tmp_path, 2, 5, COARSE)
    questions = load_questions(tmp_path / "questions.jsonl")
    assert len(questions) == count
    assert len({find_scan(tmp_path, each.dataset, each.scene_name) for each in questions}) == 2
