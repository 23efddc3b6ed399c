"""The wording that the shipped explorer was trained on, the default wording, and wordings from files."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned import run_settings, spec_of
from scripted_model import ScriptedBackend, random_policy
from simple_rooms import box, scene_of

from roomscout.agent.actions.space import LOOK_AROUND
from roomscout.agent.policies import Decision
from roomscout.agent.policies.messages import system_message, turn_message
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Controls, Prompts, checkpoint_prompts, load_prompts
from roomscout.base.errors import ConfigError
from roomscout.base.shots import Shot
from roomscout.data.benchmarks import openeqa, sqa3d
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.questions import Question
from roomscout.edge.resuming import saved_prompts
from roomscout.envs.actions import CameraAction
from roomscout.envs.environment import ExplorationEnv, Extent, Observation
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.models import Reply
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.motion import MoveOutcome
from roomscout.rendering.renderers import make_renderer
from roomscout.runs.reader import RunReader
from roomscout.runs.records import Turn, TurnSeconds
from tests.conftest import RoomScans, run_in_process, vsi_question

LOOKS = CameraAction.of(LOOK_AROUND)
QUESTION = vsi_question(
    "1", "scannet", "s", "object_rel_direction_easy", "Is the lamp to the left or the right of the bed?",
    ("A. left", "B. right"), "A",
)  # fmt: skip
START = CameraPose(3.25, 2.0, 1.7, 90.0, -15.0)
HERE = CameraPose(1.25, 2.0, 1.7, 359.6, -15.0)
CAMERA = Intrinsics(640, 480, 300.0)


def observation(turn: int, moves_left: int, move: MoveOutcome | None = None) -> Observation:
    extent, from_start = Extent((-0.04, 5.5), (0.0, 4.0), 0.1), Extent((-2.0, 2.0), (-2.25, 3.29), 0.1)
    view = np.zeros((2, 2, 3), np.uint8)
    return Observation((Shot("rgb", view),), HERE, extent, move, turn, moves_left, START, from_start, CAMERA)


def after(parsed: Decision, moved_m: float = 1.0, blocked: bool = False, clipped: bool = False) -> str:
    move = MoveOutcome(HERE, 1.0, moved_m, blocked, clipped)
    seconds = TurnSeconds(0.0, 0.0, 0.0, 0.0)
    turn = Turn(0, HERE, parsed.action, parsed.clamped, parsed.error, move, Reply(""), ("1",), seconds)
    return turn_message(checkpoint_prompts("embedded"), QUESTION, observation(1, 7, move), turn).text


def test_the_system_message_is_that_of_training():
    text = system_message(checkpoint_prompts("embedded"), QUESTION, observation(0, 8)).text
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "592065cd528227e5643b5e5fb7d3084a4bd51a8ad0e6fd3d8cc9d1b40bd5812b"
    )


def test_the_advice_is_that_of_training():
    learned = {
        "counting": "object_counting",
        "distance": "object_abs_distance",
        "size": "object_size_estimation",
        "room_size": "room_size_estimation",
        "nearest": "object_rel_distance",
        "direction": "object_rel_direction_easy",
        "route": "route_planning",
        "order": "obj_appearance_order",
        "open": "default",
    }
    advice = checkpoint_prompts("embedded").advice
    text = "\n".join(f"{family}: {advice[name]}" for family, name in learned.items())
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "35152f384fff8fb77c960013d286e5ddb643e64d27d769ecf35eb74cc201c24f"
    )


def test_turn_0_asks_the_question_and_says_where_the_camera_is():
    assert turn_message(checkpoint_prompts("embedded"), QUESTION, observation(0, 8), None).text == (
        "Question: Is the lamp to the left or the right of the bed?\nOptions:\nA. left\nB. right\n\n"
        "The room spans x 0.0 to 5.5 m and y 0.0 to 4.0 m. The camera is at x 1.2, y 2.0, 1.6 m above the floor, "
        "heading 0 degrees (0 looks along +x, 90 along +y).\n\n"
        "Turn 0: you have 8 moves left; answer as soon as you are sure."
    )
    assert turn_message(checkpoint_prompts("embedded"), QUESTION, observation(8, 0), None).text.endswith(
        'This is the last turn: no more moves. Answer now, with your best guess, and "done": true.'
    )


@pytest.mark.parametrize(
    ("parsed", "options", "words"),
    [
        (Decision(CameraAction(90.0, 1.0)), {}, "Turned 90 degrees left. Moved 1.00 m."),
        (Decision(CameraAction(-45.0, 1.0)), {"moved_m": 0.25, "blocked": True},
         "Turned 45 degrees right. Moved 0.25 of 1.00 m, blocked."),
        (Decision(CameraAction(0.0, 1.0)), {"moved_m": 0.5, "clipped": True},
         "Did not turn. Moved 0.50 of 1.00 m, at the edge of the scan."),
        (Decision(LOOKS, error="no JSON"), {},
         "Your reply could not be used: no JSON. The camera turned a little instead. Turned 45 degrees left. "
         "Moved 1.00 m."),
        (Decision(CameraAction(), clamped=("forward_meters 9 -> 2",)), {},
         "Out of range and cut: forward_meters 9 -> 2. Did not turn. Moved 1.00 m."),
    ],
)  # fmt: skip
def test_a_later_turn_reports_the_outcome_of_the_last_action(parsed: Decision, options: dict, words: str):
    first, _, last = after(parsed, **options).split("\n\n")
    assert first == words
    assert last == "Turn 1: you have 7 moves left; answer as soon as you are sure."


def test_the_default_prompt_is_pinned_and_reads_as_a_whole():
    """Scores of different prompts are not comparable: change it on purpose only."""
    prompts = Prompts().with_advice_of(BENCHMARK)
    assert prompts.sha256 == "f3a3643fe066e5212dece0b6a1b2bad5a08f7e68d254c66ced83357e0b009059"
    counting = vsi_question("1", "scannet", "s", "object_counting", "How many chair(s) are in this room?", (), "3")
    assert system_message(prompts, counting, observation(0, 8)).text == (
        "You are inside a 3D scan of a room and see it through a camera that you control. You have to answer one "
        "question about the room. Each turn shows you the current view. Reply with a sentence or two about what you "
        "see and conclude, then exactly one JSON object that either moves the camera or gives your answer:\n"
        '{"rotation_angle_degrees": 0, "forward_meters": 0, "left_meters": 0, "z_delta_meters": 0, "answer": null, '
        '"done": false}\n\n'
        "- rotation_angle_degrees: -180 to 180. Positive turns left, negative turns right. The camera turns first, "
        "then moves along its new heading.\n"
        "- forward_meters: -2 to 2. Negative moves backward.\n"
        "- left_meters: -2 to 2. Positive moves left, negative moves right.\n"
        "- z_delta_meters: -0.5 to 0.5. Positive moves up, negative moves down.\n"
        "- answer: null while you are exploring; at the end, one plain number, such as 3.\n"
        "- done: true only together with your final answer, which ends the exploration.\n\n"
        "The camera's field of view is 94 degrees wide and 77 degrees high. Its pitch is always -15 degrees (0 is "
        "level, negative looks down). The camera stays inside the room and cannot pass through walls or furniture; the "
        "next message says when a move was blocked. Holes in the scan are white. Look in every direction before you "
        "answer. Do not count an object again when it appears in another view."
    )
    assert turn_message(prompts, counting, observation(1, 1), None).text == (
        "Question: How many chair(s) are in this room?\n\n"
        "The room spans x -2.0 to 2.0 m and y -2.2 to 3.3 m. The camera is at x 0.0 m, y 2.0 m, 1.6 m above the floor, "
        "heading 270 degrees (0 faces +x, 90 faces +y).\n\n"
        "Turn 1: 1 move left. Answer as soon as you are sure."
    )


MOVES = (CameraAction(30.0, 1.0), CameraAction(-100.0, 2.0, 0.5), CameraAction(170.0, 2.0, z_delta_meters=0.3))
TELLING_ALL = ("pose", "extent", "turns")


def texts_of_a_walk(rotated_deg: float, shifted_m: tuple[float, float], question: Question = QUESTION) -> list[str]:
    """What the default prompts say in each turn of a walk through a room that lies elsewhere in its coordinates."""
    room = box((0, 0, 0), (6, 5, 2.5))
    frame = CameraPose(0.0, 0.0, 0.0, rotated_deg)
    place = CameraPose(*shifted_m, 0.0, 0.0)
    axes = np.stack([frame.forward, frame.left, [0.0, 0.0, 1.0]])
    scene = scene_of(replace(room, vertices=(room.vertices @ axes + place.position).astype(np.float32)))
    start = CameraPose(0.0, 0.0, 0.0, 20.0 + rotated_deg, -15.0).at([2.0, 1.5, 1.6] @ axes + place.position)
    camera = CameraSettings((24, 16), 12.0, 1.6, -15.0)
    env = ExplorationEnv(OneSceneLibrary(scene, {}, make_renderer("blind"), camera), len(MOVES))
    seen = [env.reset_at(scene, start), *(env.step(move) for move in MOVES)]
    return [turn_message(Prompts(), question, each, None).text for each in seen]


def test_positions_and_extent_count_from_the_first_view():
    first, second, *_ = texts_of_a_walk(0.0, (0.0, 0.0))
    assert "The camera is at x 0.0 m, y 0.0 m, 1.6 m above the floor, heading 0 degrees" in first
    assert "The camera is at x 0.9 m, y 0.5 m, 1.6 m above the floor, heading 30 degrees" in second
    spans = re.search(r"spans x (\S+) to (\S+) m and y (\S+) to (\S+) m", first)
    assert spans is not None
    # The corners of the room, seen from 2, 1.5 along a heading of 20 degrees, without the outermost 2 %.
    corners = [CameraPose(2, 1.5, 0, 20).relative(CameraPose(x, y, 0, 0)) for x in (0, 6) for y in (0, 5)]
    xs, ys = zip(*((each.x_m, each.y_m) for each in corners), strict=True)
    assert [float(each) for each in spans.groups()] == pytest.approx([min(xs), max(xs), min(ys), max(ys)], abs=0.6)


@pytest.mark.parametrize(
    ("size", "focal", "pitch", "words"),
    [
        ((640, 480), 300.0, -15.0, "94 degrees wide and 77 degrees high. Its pitch is always -15 degrees"),
        ((448, 448), 224.0, 0.0, "90 degrees wide and 90 degrees high. Its pitch is always 0 degrees"),
        ((333, 1001), 500.5, 7.5, "37 degrees wide and 90 degrees high. Its pitch is always 7.5 degrees"),
        ((640, 480), 6000.0, -15.0, "6.1 degrees wide and 4.6 degrees high."),
    ],
)
def test_the_field_of_view_and_the_pitch_are_told(size: tuple[int, int], focal: float, pitch: float, words: str):
    seen = replace(observation(0, 8), pose=replace(HERE, pitch_deg=pitch), camera=Intrinsics(*size, focal))
    for controls in (
        {},
        {"moves": "spin"},
        {"moves": "none"},
        {"moves": "spin", "at_once": True},
        {"translation": False},
    ):
        read = Prompts().under(Controls(**controls, tell=TELLING_ALL))
        assert f"The camera's field of view is {words}" in system_message(read, QUESTION, seen).text


WATCHED: dict[str, Any] = {"moves": "spin"}
RECTANGLE = "The room may not fill the rectangle of its extent."
IN_WORDS = "Answer in a few words, not in a sentence."
RULER = "The camera's position is given in metres: use it to judge scale."


@pytest.mark.parametrize(
    ("kind", "controls", "tell", "advice"),
    [
        ("room_size_estimation", {}, "pose turns", "Find the walls in every direction."),
        ("room_size_estimation", {}, "extent", f"Find the walls in every direction. {RECTANGLE}"),
        ("room_size_estimation", WATCHED, "pose", "Note where the walls are."),
        ("room_size_estimation", WATCHED, "extent", f"Note where the walls are. {RECTANGLE}"),
        ("object_counting", WATCHED, "pose", "Do not count an object again when it appears in another view."),
        ("object_abs_distance", {}, "pose", f"Look at both objects, from nearby if you can. {RULER}"),
        ("object_abs_distance", {}, "turns", "Look at both objects, from nearby if you can."),
        ("object_abs_distance", {"translation": False}, "pose", "Look at both objects."),
        ("object_abs_distance", WATCHED, "pose", f"Look at both objects. {RULER}"),
        ("object_abs_distance", {"moves": "none"}, "turns", "Look at both objects."),
        ("object_size_estimation", {"moves": "spin", "at_once": True}, "", "Look at the whole object."),
        ("object_rel_direction_easy", WATCHED, "", BENCHMARK.by_name["object_rel_direction_easy"].advice),
        ("route_planning", {"moves": "none"}, "", BENCHMARK.by_name["route_planning"].advice),
        ("open", {}, "", "Look around until you have seen everything that the question needs."),
        ("open", WATCHED, "", "Pay attention to everything that the question needs."),
        ("what", WATCHED, "", sqa3d.ADVICE),
        ("object_recognition", {}, "", f"Look at the whole room before you answer. {IN_WORDS}"),
        ("object_recognition", WATCHED, "", IN_WORDS),
    ],
)  # fmt: skip
def test_controls_keep_the_advice_that_applies(kind: str, controls: dict[str, Any], tell: str, advice: str):
    own = next((each for each in (sqa3d.BENCHMARK, openeqa.BENCHMARK) if kind in each.by_name), BENCHMARK)
    prompts = Prompts().with_advice_of(own).under(Controls(**controls, tell=tuple(tell.split())))
    text = system_message(prompts, replace(QUESTION, question_type=kind), observation(0, 8)).text
    assert text.endswith(f" {advice}")


def test_a_file_replaces_only_the_templates_that_it_names(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text('remaining_turns: "{moves} to go."\nadvice:\n  default: Look.\n')
    prompts = load_prompts(path).with_advice_of(BENCHMARK)
    assert (prompts.remaining_turns, prompts.system) == ("{moves} to go.", Prompts().system)
    assert prompts.advice["route_planning"] == BENCHMARK.by_name["route_planning"].advice


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("system: 'Move {far}'", r"mine.yaml: system cannot be filled in \(KeyError: 'far'\): it takes {action}"),
        ("last_turn: 'Say {\"done\": true}'", "last_turn cannot be filled in .*no placeholders; write {{ for a brace"),
        ("outcome: {moved: '{moved_m:.2q}'}", "outcome.moved cannot be filled in .*{moved_m}"),
        ("sytem: Look", "mine.yaml: there is no sytem"),
        ("outcome: moved", "mine.yaml: outcome: Input should be .*, got 'moved'"),
        ("- a list", "mine.yaml: no prompts"),
        ("# a comment", "mine.yaml: no prompts: it takes texts by name, which are system, "),
        ("system: [", "mine.yaml: while parsing"),
        ("system: !!timestamp soon", "mine.yaml: could not determine a constructor"),
        ("system: !!int many", "mine.yaml: could not determine a constructor"),
        ("{a: " * 3000, "mine.yaml: it is nested too deeply"),
        ("opening: '{question.__class__}'", r"opening cannot be filled in .*it takes {question}"),
        ("opening: '{question!r}'", "opening cannot be filled in .*no conversion"),
        ("opening: '{question:>1000000000}'", "opening cannot be filled in .*at most two digits"),
        ("position: '{x:.{heading}f}'", "position cannot be filled in .*at most two digits"),
        ('system: "\\ud800"', "system cannot be filled in .*surrogates not allowed"),
        ('advice: {route_planning: "\\ud800"}', "advice for 'route_planning' contains an unpaired surrogate"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused_before_anything_starts(
    rooms: RoomScans, tmp_path: Path, text: str, words: str
):
    (tmp_path / "mine.yaml").write_text(text)
    config = rooms.config(tmp_path / "runs", model="embedded", prompts=tmp_path / "mine.yaml")
    with pytest.raises(ConfigError, match=f"^--prompts: .*{words}"):
        run_settings(config)
    assert not (tmp_path / "runs").exists()


SERVER = {"engine": "openai", "base_url": "http://127.0.0.1:9/v1"}


def test_a_run_keeps_its_prompts_when_the_file_changes(rooms: RoomScans, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text('remaining_turns: "{moves} to go."\n')
    config = rooms.config(tmp_path / "runs", prompts=path, model="served", num_questions=2, **SERVER)
    prompts = spec_of(config).rules.prompts
    folder = run_in_process(config, ModelPolicy(ScriptedBackend(random_policy()), prompts=prompts))
    facts = RunReader(folder).facts
    assert facts.prompts.sha256 == prompts.sha256
    assert f"prompts={prompts.sha256[:12]}," in facts.protocol
    path.write_text("system: Changed.\n")
    assert saved_prompts(RunReader(folder)) == prompts
