"""Action spaces: what a model may write, what the camera then does, and what verbs make of it afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, interrupted, results, run_in_process, trajectories
from planned import run_settings
from scripted_model import ScriptedBackend

from roomscout.agent.actions import SPACES, find_space
from roomscout.agent.actions.space import ActionSpace
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Controls, Prompts, checkpoint_prompts
from roomscout.agent.policies.replies import parse_action
from roomscout.base.errors import ConfigError, SettingError
from roomscout.command.main import main
from roomscout.envs.actions import CameraMove
from roomscout.models.conversation import Conversation
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, Turn
from tests.conftest import vsi_question

QUESTION = vsi_question("1", "scannet", "s", "object_counting", "How many chair(s) are in this room?", (), "1")
ONE: dict[str, Any] = {"question_types": ("object_counting",), "num_questions": 1, "model": "told"}
DISCRETE = find_space("discrete")
FORWARD = "|".join(["move_forward"] * 5)
WALK = (
    '{"actions": "turn_left|move_forward", "answer": null, "done": false}',
    '{"actions": "look_down", "answer": null, "done": false}',
    *[f'{{"actions": "{FORWARD}", "answer": null, "done": false}}'] * 5,
    '{"actions": "jump", "answer": null, "done": false}',
    '{"actions": "", "answer": 2, "done": true}',
)


def saying(*replies: str) -> ModelPolicy:
    """A model that gives these replies in turn."""

    def reply(conversation: Conversation) -> str:
        return replies[min(len(conversation.images), len(replies)) - 1]

    return ModelPolicy(ScriptedBackend(reply), prompts=Prompts())


def turns_of(folder: Path) -> list[Turn]:
    return RunReader(folder).turns(EpisodeId(1))


def said_to(folder: Path) -> list[str]:
    """What the model read: the system prompt, then a message for each turn."""
    messages = RunReader(folder).messages(EpisodeId(1))
    return [message["text"] for message in messages if message["role"] != "assistant"]


@pytest.fixture(scope="module")
def walked(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of discrete actions against a wall."""
    config = rooms.config(tmp_path_factory.mktemp("walked"), actions="discrete", camera_pitch=0.0, steps=8, **ONE)
    return run_in_process(config, saying(*WALK))


class TestDiscrete:
    def test_steps_are_carried_out_until_one_is_blocked(self, walked: Path):
        turns = turns_of(walked)
        first, stopped = turns[0], next(turn for turn in turns if turn.stopped)
        assert first.move is not None and stopped.move is not None
        assert first.move.pose == first.action.goal(first.pose)
        assert (first.turned_deg, first.move.moved_m) == pytest.approx((30.0, 0.25))
        assert stopped.move.requested_m == pytest.approx(1.25) and stopped.move.moved_m < 1.25
        assert {turn.pose.pitch_deg for turn in turns[2:]} == {-30.0}
        assert [turn.fields.get("actions") for turn in turns[:3]] == ["turn_left|move_forward", "look_down", FORWARD]
        assert [row.answer for row in RunReader(walked).rows] == ["2"]

    def test_the_model_reads_the_truth_about_its_actions_and_its_pitch(self, walked: Path):
        system, _, turned, looked, *_, after_jump = said_to(walked)
        assert DISCRETE.lines in system and "rotation_angle" not in system
        assert '{"actions": "turn_left|move_forward", "answer": null, "done": false}' in system
        assert "Its pitch is 0 degrees at the start" in system and "always" not in system
        assert turned.startswith("Turned 30 degrees left. Moved 0.25 m.")
        assert looked.startswith("Did not turn. Looks 30 degrees down. Did not move.")
        assert after_jump.startswith('Your reply could not be used: there is no action "jump": actions are')
        assert "The camera turned a little instead. Turned 30 degrees left." in after_jump

    def test_an_interrupted_run_ends_like_an_undisturbed_one(self, walked: Path, rooms: RoomScans, tmp_path: Path):
        cut = interrupted(walked, 3, tmp_path / "cut")
        config = rooms.config(tmp_path, actions="discrete", camera_pitch=0.0, steps=8, **ONE)
        run_settings(config, cut, saying(*WALK))
        assert (results(cut), trajectories(cut)) == (results(walked), trajectories(walked))

    def test_without_translation_steps_only_turn_and_look(self, rooms: RoomScans, tmp_path: Path):
        config = rooms.config(tmp_path, actions="discrete", translation=False, steps=8, **ONE)
        folder = run_in_process(config, saying(*WALK))
        turns = turns_of(folder)
        assert {turn.pose.position.tobytes() for turn in turns} == {turns[0].pose.position.tobytes()}
        assert turns[1].pose.heading_deg == pytest.approx((turns[0].pose.heading_deg + 30) % 360)
        assert "move_forward" not in said_to(folder)[0] and "look_down" in said_to(folder)[0]

    @pytest.mark.parametrize(
        ("actions", "why"),
        [(f'"{FORWARD}|turn_left"', "it has 6 actions: write at most 5"), ("7", "actions must be a text such as")],
    )
    def test_what_it_cannot_read_is_named_and_turns_the_camera(self, actions: str, why: str):
        parsed = parse_action(f'{{"actions": {actions}, "answer": null, "done": false}}', QUESTION, space=DISCRETE)
        assert why in (parsed.error or "") and parsed.action.rotation_angle_degrees == 30.0


def test_the_camera_looks_up_by_metric_actions_with_pitch(rooms: RoomScans, tmp_path: Path):
    up = '{"rotation_angle_degrees": 0, "pitch_angle_degrees": 80, "answer": null, "done": false}'
    config = rooms.config(tmp_path, actions="metric-pitch", camera_pitch=-15.0, steps=2, **ONE)
    folder = run_in_process(config, saying(up, up, WALK[-1]))
    assert [turn.pose.pitch_deg for turn in turns_of(folder)] == [-15.0, 45.0, 60.0]
    assert turns_of(folder)[0].clamped == ("pitch_angle_degrees 80 -> 60",)
    assert "Looks 45 degrees up." in said_to(folder)[2]
    assert "- pitch_angle_degrees: -60 to 60." in said_to(folder)[0]


FORMS = [form for each in map(find_space, SPACES) for form in (each, each.turning) if form]


@pytest.mark.parametrize("space", FORMS)
def test_the_schema_takes_what_the_prompt_shows(space: ActionSpace):
    jsonschema = pytest.importorskip("jsonschema")
    shown = json.loads(space.example())
    assert [*shown] == [*space.all_keys] == space.schema["required"][1:]
    for name, key in space.keys.items():
        takes = jsonschema.Draft202012Validator(space.schema["properties"][name]).is_valid
        assert takes(shown[name]) and takes(key.still) and not takes("jump")
    assert not space.read({name: key.still for name, key in space.keys.items()}, None)[0].length_m


def accepted_by(space: ActionSpace, text: str) -> bool:
    """Whether the space's grammar takes a whole reply."""
    xgrammar = pytest.importorskip("xgrammar")
    vocabulary = [chr(code) for code in range(128)]
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[0]))
    matcher = xgrammar.GrammarMatcher(compiler.compile_grammar(space.grammar))
    return bool(matcher.accept_string(text) and matcher.accept_token(0))


@pytest.mark.parametrize("space", FORMS)
def test_the_grammar_takes_what_the_prompt_shows_and_no_more_keys(space: ActionSpace):
    assert accepted_by(space, f"I look on. {space.example()}") and accepted_by(space, space.example(still=True))
    first = next(iter(space.keys))
    assert not accepted_by(space, space.example().replace(first, "other"))
    assert not accepted_by(space, space.example().replace(f'"{first}": ', f'"{first}": "jump" '))


@pytest.mark.parametrize(
    ("actions", "accepted"),
    [("", True), (FORWARD, True), (FORWARD + "|look_up", False), ("turn_left|", False), ("jump", False)],
)
def test_the_grammar_takes_only_known_steps(actions: str, accepted: bool):
    text = f'I look on. {{"actions": "{actions}", "answer": null, "done": false}}'
    assert accepted_by(DISCRETE, text) is accepted


def test_the_explorer_keeps_its_own_actions():
    with pytest.raises(SettingError, match=r"^the prompts .* in their template system: .*") as refusal:
        checkpoint_prompts("embedded").under(Controls(actions="discrete", tell=()))
    assert refusal.value.setting == "actions"


COMPASS = '''
"""Moves along the axes of the scan, which no other space here has."""

from roomscout.agent.actions.space import ActionSpace, Key
from roomscout.envs.actions import CameraMove

HEADINGS = {"east": 0.0, "north": 90.0, "west": 180.0, "south": 270.0}


def read(fields, place):
    """Turn to a point of the compass and walk a metre."""
    to = fields.get("go")
    if to is None:
        return CameraMove(), ()
    if to not in HEADINGS:
        raise ValueError(f"go must be one of {', '.join(HEADINGS)}")
    turn = (HEADINGS[to] - place.pose.heading_deg + 180.0) % 360.0 - 180.0
    return CameraMove(rotation_angle_degrees=turn, forward_meters=1.0), ()


SPACE = ActionSpace(
    name="compass",
    keys={"go": Key("north", None, '("null" | "\\\\"north\\\\"")', {"enum": [None, *HEADINGS]})},
    lines="- go: east, north, west or south, by a metre; null to stay.",
    read=read,
)
'''


def test_a_space_of_a_users_file_runs_and_is_rescored(
    rooms: RoomScans, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    (tmp_path / "compass.py").write_text(COMPASS)
    name = f"{tmp_path / 'compass.py'}:SPACE"
    replies = ('{"go": "west", "done": false}', '{"go": "up", "done": false}', '{"answer": 2, "done": true}')
    folder = run_in_process(rooms.config(tmp_path / "log", actions=name, steps=4, **ONE), saying(*replies))
    turns = turns_of(folder)
    assert [turn.pose.heading_deg for turn in turns[1:]] == pytest.approx([180.0, 225.0])
    assert ", actions=compass.py:SPACE, " in RunReader(folder).facts.protocol
    assert "since the camera stays where it is" not in said_to(folder)[0] and "- go: east" in said_to(folder)[0]
    assert turns[0].move is not None and turns[0].action.goal(turns[0].pose).heading_deg == pytest.approx(180.0)
    assert main(["rescore", str(folder)]) == 2 and "--allow-code" in capsys.readouterr().err
    assert main(["rescore", str(folder), "--allow-code"]) == 0
    assert "0 of 1 answers change" in caplog.text and "acts differently" not in caplog.text
    with pytest.raises(ConfigError, match="--no-translation: the action space compass"):
        run_in_process(rooms.config(tmp_path, actions=name, translation=False, **ONE), saying(*replies))


def test_an_error_in_a_space_of_a_users_file_fails_its_question_alone(rooms: RoomScans, tmp_path: Path):
    (tmp_path / "compass.py").write_text(COMPASS.replace("if to not in HEADINGS", "if HEADINGS[to] < 0"))
    name = f"{tmp_path / 'compass.py'}:SPACE"
    replies = ('{"go": "west", "done": false}', '{"go": "up", "done": false}')
    folder = run_in_process(rooms.config(tmp_path / "log", actions=name, steps=4, **ONE), saying(*replies))
    (row,) = RunReader(folder).rows
    assert (row.status, row.failed_part) == ("failed", "action space")
    assert row.error == "the read of the action space compass failed (KeyError('up') in compass.py, line 15): fix it"


def test_a_move_in_order_is_the_first_with_the_rest_after_it():
    left, on = CameraMove(30.0), CameraMove(forward_meters=0.25)
    assert CameraMove.in_order([left, on]).singles == (left, on)
    assert CameraMove.in_order([]) == CameraMove()
