"""Twin rooms: one edit changes the answer of their question, and the rest is the same to the byte."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import load_questions
from roomscout.rooms import edits, twins
from roomscout.rooms.command import main
from roomscout.rooms.edits import Arrangement
from roomscout.rooms.geometry import box_distance
from roomscout.rooms.layout import IN_FRONT_M
from roomscout.rooms.placement import Placer
from roomscout.rooms.questions import QUESTIONS_PER_TYPE, room_questions
from roomscout.rooms.room import BARE, CLUTTERED, FURNISHED, LEVELS, make_room
from roomscout.rooms.routes import RouteMap, draw_route, turns_of
from roomscout.rooms.scan import SHELL, ScanStyle
from roomscout.rooms.twins import make_twins

COARSE = ScanStyle(resolution_m=0.3)
SEED = 31


@pytest.fixture(scope="module")
def pairs():
    """A pair of each type, of levels in turn."""
    levels = list(LEVELS.values())
    return [make_twins(SEED, place, name, levels[place % 2], COARSE) for place, name in enumerate(QUESTIONS_PER_TYPE)]


@pytest.fixture(scope="module")
def base():
    """A room in which there is space."""
    room = next(room for index in range(99) if (room := make_room(SEED, index, COARSE)).area_m2 > 25)
    return Arrangement.of(room.plan, room.objects)


def named(room, name):
    (found,) = room.of_category(name)
    return found


def between(text, first, last):
    return text.split(first)[1].split(last)[0]


def test_the_same_question_has_truths_that_are_far_apart(pairs):
    for pair, name in zip(pairs, QUESTIONS_PER_TYPE, strict=True):
        first, second = pair.rows
        assert first["question_type"] == second["question_type"] == name
        assert (first["question"], first["options"], first["edit"]) == (
            second["question"], second["options"], second["edit"],
        )  # fmt: skip
        assert [row["scene_name"][-1] for row in pair.rows] == ["a", "b"]
        truths = [row["ground_truth"] for row in pair.rows]
        if first["options"]:
            assert truths[0] != truths[1]
        else:
            assert max(map(float, truths)) >= 2.4 * min(map(float, truths))


def test_the_truths_follow_from_the_geometry_of_each_room(pairs):
    """By formulas of their own, for the types whose answer is a number or the nearest object."""
    for pair in pairs:
        for room, row in zip(pair.rooms, pair.rows, strict=True):
            question, truth = row["question"], row["ground_truth"]
            if row["question_type"] == "object_counting":
                assert truth == str(len(room.of_category(between(question, "many ", "(s)"))))
            elif row["question_type"] == "object_abs_distance":
                objects = [
                    named(room, name).box for name in between(question, "between the ", " (in").split(" and the ")
                ]
                assert float(truth) == round(box_distance(*objects), 1)
            elif row["question_type"] == "object_size_estimation":
                points = named(room, between(question, "height) of the ", ", measured")).surface
                assert abs(float(truth) / 100 - max(room_sizes(points, room, question))) < 0.01
            elif row["question_type"] == "room_size_estimation":
                assert float(truth) == round(room.area_m2, 1)
            elif row["question_type"] == "object_rel_distance":
                primary = named(room, between(question, "closest to the ", "?")).box
                chosen = {option[0]: option[3:] for option in row["options"]}
                metres = {
                    letter: min(box_distance(primary, each.box) for each in room.of_category(name))
                    for letter, name in chosen.items()
                }
                assert truth == min(metres, key=metres.get)


def room_sizes(surface, room, question):
    """Width, depth and height of a surface in the directions of its object."""
    box = named(room, between(question, "height) of the ", ", measured")).box
    local = box.local(surface.corners.reshape(-1, 3))
    return np.ptp(local, axis=0)


def test_directions_and_routes_are_also_questions_of_each_room_alone(pairs):
    """Those that the generator of single rooms would ask, with its answer."""
    for pair, name in zip(pairs, QUESTIONS_PER_TYPE, strict=True):
        if "direction" not in name:
            continue
        for room, row in zip(pair.rooms, pair.rows, strict=True):
            drawn = [asked for seed in range(40) for asked in room_questions(room, seed, {name: 40})]
            answers = {each["question"]: each["options"]["ABCD".index(each["ground_truth"])][3:] for each in drawn}
            own = row["options"]["ABCD".index(row["ground_truth"])][3:]
            assert answers.get(row["question"], own) == own
            assert row["question"] in answers


def test_a_route_is_walked_as_it_was_drawn():
    route_map = RouteMap(make_room(SEED, 1, COARSE))
    rng = np.random.default_rng(0)
    routes = [route for route in (draw_route(route_map, rng, 1 + each % 3) for each in range(200)) if route]
    assert routes and all(turns_of(route_map, route) == route.turns for route in routes)


@pytest.mark.parametrize("level", [BARE, CLUTTERED], ids=lambda level: level.name)
@pytest.mark.parametrize("name", ["object_rel_distance", "object_counting", "room_size_estimation"])
def test_the_rest_of_a_room_is_the_same_to_the_byte(level, name):
    style = ScanStyle(0.1, level.style.noise_m, level.style.holes)
    pair = make_twins(SEED, 5, name, level, style)
    parts = []
    for room in pair.rooms:
        mesh = room.mesh
        of_room = {}
        for place, item in enumerate(room.objects):
            chosen = mesh.object_index == place
            key = mesh.vertices[chosen].tobytes(), mesh.colours[chosen].tobytes()
            of_room[item.category, item.box] = key
        parts.append((of_room, mesh.vertices[mesh.object_index == SHELL].tobytes()))
    (first, shell), (second, other_shell) = parts
    same = first.keys() & second.keys()
    assert all(first[key] == second[key] for key in same)
    assert len(same) > 3
    if name != "room_size_estimation":
        assert shell == other_shell
        assert 0 < max(len(first), len(second)) - len(same) <= (1 if "removed" not in pair.rows[0]["edit"] else 9)


def test_twins_obey_the_rules_of_placement(pairs):
    for pair in pairs:
        for room in pair.rooms:
            arrangement = Arrangement.of(room.plan, room.objects)
            assert arrangement.is_visible()
            for index, item in enumerate(room.objects):
                others = [other for place, other in enumerate(room.objects) if place not in (index, item.supported_by)]
                carried = [other for place, other in enumerate(room.objects) if other.supported_by == index]
                alone = Placer(room.plan, np.random.default_rng(0), [each for each in others if each not in carried])
                assert alone.fits(item.box), item


@pytest.mark.parametrize("name", ["wardrobe", "window", "desk"])
def test_nothing_is_moved_to_where_furniture_needs_its_front(name):
    rng = np.random.default_rng(0)
    rooms = (make_room(SEED, index, COARSE) for index in range(99))
    room = next(room for room in rooms if room.area_m2 > 15 and room.of_category(name))
    arrangement = Arrangement.of(room.plan, room.objects)
    boxes = [item.box for item in room.of_category(name)]
    fronts = [Placer.in_front(box, IN_FRONT_M[name], box.bottom, box.top) for box in boxes]
    free = Placer(room.plan, rng, [], fronts)
    for index in arrangement.movable:
        for _ in range(20 if room.objects[index].category not in (name, "chair") else 0):
            changed = edits.moved(arrangement, index, rng)
            assert changed is None or free.fits(changed.objects[index].box), room.objects[index].category


def test_twins_are_the_same_again_and_unlike_others():
    one, again, other = (make_twins(SEED, index, "object_counting", BARE, COARSE) for index in (1, 1, 2))
    assert one.rows == again.rows
    assert all(np.array_equal(a.mesh.vertices, b.mesh.vertices) for a, b in zip(one.rooms, again.rooms, strict=True))
    assert other.rooms[0].mesh.vertices.shape != one.rooms[0].mesh.vertices.shape
    with pytest.raises(ValueError, match="cannot make twins for type view_finding; the types are object_counting"):
        make_twins(SEED, 0, "view_finding")


def test_an_edit_changes_what_it_says_and_nothing_else(base):
    rng = np.random.default_rng(4)
    tried = [(place, edits.moved(base, place, rng)) for place in base.movable]
    index, moved = next((place, found) for place, found in tried if found is not None)
    kind = base.objects[index].category
    assert np.linalg.norm(moved.objects[index].box.plan_center - base.objects[index].box.plan_center) >= 0.6
    more = edits.added(base, "plant", rng)
    assert [item.category for item in more.objects[len(base.objects) :]] == ["plant"]
    assert more.origins[-1] == len(base.objects)
    less = edits.removed(base, {index})
    assert [item.category for item in less.objects].count(kind) == [o.category for o in base.objects].count(kind) - 1
    assert less.origins == tuple(place for place in base.origins if place != index)
    for edited, places in ((moved, {index}), (more, set())):
        same = [place for place, item in enumerate(base.objects) if item is edited.objects[place]]
        assert set(range(len(base.objects))) - set(same) == places


def test_sizes_places_and_walls_change_as_they_should(base):
    resized = [(place, edits.resized(base, place, 0.5)) for place in base.movable]
    place, smaller = next((place, found) for place, found in resized if found is not None)
    old, new = base.objects[place], smaller.objects[place]
    assert np.allclose(new.box.size, np.array(old.box.size) / 2)
    assert np.allclose(np.ptp(new.box.local(new.surface.corners.reshape(-1, 3)), axis=0), new.box.size)
    turns = [edits.turned(base, place, 180.0) for place in base.movable]
    turned = next(found for found in turns if found is not None)
    assert sum(a is not b for a, b in zip(turned.objects, base.objects, strict=True)) == 1
    both = [edits.swapped(base, a, b) for a, b in product(base.movable, repeat=2) if a < b]
    swapped = next(found for found in both if found is not None)
    assert sum(a is not b for a, b in zip(swapped.objects, base.objects, strict=True)) == 2
    wider = edits.wall_moved(base, 0, 2.0)
    assert wider.plan.corners[:, 0].max() == base.plan.corners[:, 0].max() + 2.0
    shifts = [b.box.center[0] - a.box.center[0] for a, b in zip(base.objects, wider.objects, strict=True)]
    assert set(np.round(shifts, 6)) == {0.0, 2.0}
    edge = wider.plan.corners[:, 0].max()
    assert all(item.box.footprint[:, 0].max() <= edge for item in wider.objects)


def test_what_does_not_fit_is_refused(base):
    assert all(edits.resized(base, place, 30.0) is None for place in base.movable)
    hanging = [place for place in base.movable if base.objects[place].box.bottom > 0.5]
    standing = [place for place in base.movable if base.objects[place].box.bottom == 0]
    assert hanging and standing and edits.swapped(base, hanging[0], standing[0]) is None


def test_the_command_writes_pairs_that_a_run_can_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path), "--twins", "--rooms", "2", "--resolution", "0.3", "--level", "bare"]) == 0
    assert capsys.readouterr().out.startswith("2 pairs and 4 questions written")
    asked = load_questions(tmp_path / "questions.jsonl", find_benchmark("rooms-twins"))
    assert [question.id for question in asked] == ["1a", "1b", "2a", "2b"]
    boxes = {room["scene_name"] for room in json.loads((tmp_path / "rooms.json").read_text())}
    assert boxes == {question.scene_name for question in asked}
    with pytest.raises(SystemExit):
        main([str(tmp_path / "other"), "--twins", "--view-finding"])
    assert "--twins goes with no --view-finding" in capsys.readouterr().err


def test_a_level_of_other_style_has_the_same_questions():
    fine, coarse = (make_twins(SEED, 1, "object_abs_distance", FURNISHED, ScanStyle(size)) for size in (0.2, 0.5))
    assert fine.rows == coarse.rows
    assert twins.CHANGES.keys() == QUESTIONS_PER_TYPE.keys()
