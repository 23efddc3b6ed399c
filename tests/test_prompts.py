"""The wording that the shipped explorer was trained on, the default wording, and wordings from files."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from roomscout.agent.config import ConfigError
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import (
    Prompts,
    checkpoint_prompts,
    explorer_prompts,
    load_prompts,
    prompts_of,
    run_prompts,
    system_message,
    turn_message,
)
from roomscout.agent.policies.replies import LOOK_AROUND, ParsedAction
from roomscout.agent.run_folder import saved_prompts
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.envs.actions import CameraAction
from roomscout.envs.environment import Extent, Observation
from roomscout.models import Reply
from roomscout.models.scripted import ScriptedBackend, random_policy
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.motion import MoveOutcome
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.records import Turn, TurnSeconds
from tests.conftest import RoomScans, run_in_process, vsi_question

QUESTION = vsi_question(
    "1", "scannet", "s", "object_rel_direction_easy", "Is the lamp to the left or the right of the bed?",
    ("A. left", "B. right"), "A",
)  # fmt: skip
HERE = CameraPose(1.25, 2.0, 1.7, 359.6, -15.0)


def observation(turn: int, moves_left: int, move: MoveOutcome | None = None) -> Observation:
    extent = Extent((-0.04, 5.5), (0.0, 4.0), 0.1)
    return Observation(np.zeros((2, 2, 3), np.uint8), HERE, extent, move, turn, moves_left)


def after(parsed: ParsedAction, moved_m: float = 1.0, blocked: bool = False, clipped: bool = False) -> str:
    move = MoveOutcome(HERE, 1.0, moved_m, blocked, clipped)
    seconds = TurnSeconds(0.0, 0.0, 0.0, 0.0)
    turn = Turn(0, HERE, parsed.action, parsed.clamped, parsed.error, move, Reply(""), ("1",), seconds)
    return turn_message(explorer_prompts(), QUESTION, observation(1, 7, move), turn).text


def test_the_system_message_is_that_of_training():
    text = system_message(explorer_prompts(), QUESTION).text
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
    advice = explorer_prompts().advice
    text = "\n".join(f"{family}: {advice[name]}" for family, name in learned.items())
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "35152f384fff8fb77c960013d286e5ddb643e64d27d769ecf35eb74cc201c24f"
    )


def test_turn_0_asks_the_question_and_says_where_the_camera_is():
    assert turn_message(explorer_prompts(), QUESTION, observation(0, 8), None).text == (
        "Question: Is the lamp to the left or the right of the bed?\nOptions:\nA. left\nB. right\n\n"
        "The room spans x 0.0 to 5.5 m and y 0.0 to 4.0 m. The camera is at x 1.2, y 2.0, 1.6 m above the floor, "
        "heading 0 degrees (0 looks along +x, 90 along +y).\n\n"
        "Turn 0: you have 8 moves left; answer as soon as you are sure."
    )


@pytest.mark.parametrize(
    ("parsed", "options", "words"),
    [
        (ParsedAction(CameraAction(90.0, 1.0)), {}, "Turned 90 degrees left. Moved 1.00 m."),
        (ParsedAction(CameraAction(-45.0, 1.0)), {"moved_m": 0.25, "blocked": True},
         "Turned 45 degrees right. Moved 0.25 of 1.00 m, blocked."),
        (ParsedAction(CameraAction(0.0, 1.0)), {"moved_m": 0.5, "clipped": True},
         "Did not turn. Moved 0.50 of 1.00 m, at the edge of the scan."),
        (ParsedAction(LOOK_AROUND, error="no JSON"), {},
         "Your reply could not be used: no JSON. The camera turned a little instead. Turned 45 degrees left. "
         "Moved 1.00 m."),
        (ParsedAction(CameraAction(), ("forward_meters 9 -> 2",)), {},
         "Out of range and cut: forward_meters 9 -> 2. Did not turn. Moved 1.00 m."),
    ],
)  # fmt: skip
def test_a_later_turn_reports_the_outcome_of_the_last_action(parsed: ParsedAction, options: dict, words: str):
    first, _, last = after(parsed, **options).split("\n\n")
    assert first == words
    assert last == "Turn 1: you have 7 moves left; answer as soon as you are sure."


def test_the_last_turn_must_answer():
    assert turn_message(explorer_prompts(), QUESTION, observation(8, 0), None).text.endswith(
        'This is the last turn: no more moves. Answer now, with your best guess, and "done": true.'
    )


def test_the_default_prompt_is_pinned():
    """Scores of different prompts are not comparable: change it on purpose only."""
    prompts = Prompts().with_advice_of(BENCHMARK)
    assert prompts.sha256 == "70fd2f6f5e32b8eda06e010753569521570261df1eb2d10dad5f94b8940eefd4"


def test_the_default_prompt_reads_as_a_whole():
    prompts = Prompts().with_advice_of(BENCHMARK)
    counting = vsi_question("1", "scannet", "s", "object_counting", "How many chair(s) are in this room?", (), "3")
    assert system_message(prompts, counting).text == (
        "You are inside a 3D scan of a real room and see it through a camera that you control. You have to answer one "
        "question about the room. Each turn shows you the current view. Reply with a short thought, then exactly one "
        "JSON object that either moves the camera or gives your answer:\n"
        '{"rotation_angle_degrees": 0, "forward_meters": 0, "left_meters": 0, "z_delta_meters": 0, "answer": null, '
        '"done": false}\n\n'
        "- rotation_angle_degrees: -180 to 180. Positive turns left, negative turns right. The camera turns first, "
        "then moves along its new heading.\n"
        "- forward_meters: -2 to 2. Negative moves backward.\n"
        "- left_meters: -2 to 2. Positive moves left, negative moves right.\n"
        "- z_delta_meters: -0.5 to 0.5. Positive moves up, negative moves down.\n"
        "- answer: null while you are exploring; at the end, one plain number, such as 3.\n"
        "- done: true only together with your final answer, which ends the exploration.\n\n"
        "The camera stays inside the room and cannot pass through walls or furniture; the next message says when a "
        "move was blocked. Holes in the scan are white. Look in every direction before you answer, and do not count an "
        "object again when it appears in another view."
    )
    assert turn_message(prompts, counting, observation(1, 1), None).text == (
        "Question: How many chair(s) are in this room?\n\n"
        "The room spans x 0.0 to 5.5 m and y 0.0 to 4.0 m. The camera is at x 1.2 m, y 2.0 m, 1.6 m above the floor, "
        "heading 0 degrees (0 faces +x, 90 faces +y).\n\n"
        "Turn 1: 1 move left. Answer as soon as you are sure."
    )


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
        ("outcome: moved", "mine.yaml: outcome should be .*, got 'moved'"),
        ("- a list", "mine.yaml has no prompts"),
        ("# a comment", "mine.yaml has no prompts: it takes texts by name, which are system, "),
        ("system: [", "mine.yaml cannot be read as YAML"),
        ("system: !!timestamp soon", "mine.yaml cannot be read as YAML: could not determine a constructor"),
        ("system: !!int many", "mine.yaml cannot be read as YAML: could not determine a constructor"),
        ("{a: " * 3000, "mine.yaml cannot be read as YAML: it is nested too deeply"),
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
    with pytest.raises(ConfigError, match=f"^--prompts .*{words}"):
        main_vsi_bench_loop(config)
    assert not (tmp_path / "runs").exists()


def test_values_of_a_prompts_file_stay_text(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("opening: 2024-13-45\nsystem: yes\n")
    prompts = load_prompts(tmp_path / "mine.yaml")
    assert (prompts.opening, prompts.system) == ("2024-13-45", "yes")


def test_a_dangling_link_to_a_checkpoints_prompts_is_an_error(tmp_path: Path):
    (tmp_path / "prompts.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(ValueError, match=r"prompts.yaml cannot be read \(No such file or directory\)"):
        checkpoint_prompts(str(tmp_path))


def test_damaged_prompts_of_a_run_are_named_in_one_line(rooms: RoomScans, tmp_path: Path):
    policy = ModelPolicy(ScriptedBackend(random_policy()), prompts=Prompts())
    folder = run_in_process(rooms.config(tmp_path / "runs", model="served", num_questions=1), policy)
    facts = json.loads((folder / "run.json").read_text())
    facts["prompts"]["templates"]["opening"] = "{oops}"
    (folder / "run.json").write_text(json.dumps(facts))
    with pytest.raises(RunError, match=r"^[^\n]*its prompts are damaged \(opening cannot be filled in [^\n]*$"):
        saved_prompts(folder)


def test_a_missing_file_of_prompts_is_named(rooms: RoomScans, tmp_path: Path):
    config = rooms.config(tmp_path, model="embedded", prompts=tmp_path / "mine.yaml")
    with pytest.raises(ConfigError, match=r"^--prompts .*mine.yaml cannot be read \(No such file or directory\)$"):
        prompts_of(config.model, config.questions.benchmark)


def test_a_run_keeps_its_prompts_when_the_file_changes(rooms: RoomScans, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text('remaining_turns: "{moves} to go."\n')
    config = rooms.config(tmp_path / "runs", prompts=path, model="served", num_questions=2)
    prompts = run_prompts(config)
    folder = run_in_process(config, ModelPolicy(ScriptedBackend(random_policy()), prompts=prompts))
    facts = RunReader(folder).facts
    assert facts.prompts["sha256"] == prompts.sha256
    assert f"prompts {prompts.sha256[:12]}" in facts.protocol
    path.write_text("system: Changed.\n")
    assert saved_prompts(folder) == prompts


def test_a_run_that_recorded_no_prompts_resumes_with_those_of_its_time():
    assert saved_prompts(Path(__file__).parent / "data" / "run_schema1" / "interrupted") == explorer_prompts()


def test_prompts_need_a_model(rooms: RoomScans, tmp_path: Path):
    with pytest.raises(ConfigError, match="--prompts are the words that a model reads"):
        rooms.config(tmp_path, prompts=tmp_path / "mine.yaml").checked()
