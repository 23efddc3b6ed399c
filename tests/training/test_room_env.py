"""Environments for trainers: the episodes of evaluation, one at a time and many at once."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SMALL_VIEW, RoomScans
from scripted_model import random_policy

from explorer.splits import SPLITS
from roomscout import Question, RoomEnv, VectorEnv, explore, load_policy
from roomscout.agent.policies.prompts import MAP_PROBE
from roomscout.data.questions import QuestionError
from roomscout.models import Reply
from roomscout.models.conversation import Conversation, Message
from roomscout.rendering.camera import CameraPose
from roomscout.rooms.frozen import shipped_rows
from roomscout.rooms.split import SEEDS, SHIPPED
from roomscout.training.endless import ENDLESS
from roomscout.training.environment import EnvError

VIEW: dict[str, Any] = {"image_size": SMALL_VIEW, "focal": 75.0, "renderer": "raycast", "steps": 3}
RULES: dict[str, dict[str, Any]] = {
    "metric": {},
    "discrete": {"actions": "discrete"},
    "tools and marks": {"actions": "tools-pixel", "see": ["rgb", "marks"]},
    "further images": {"see": ["rgb", "depth", "map", "plan"]},
    "coverage, all views at once": {"moves": "coverage", "present": "once", "see": ["map"]},
    "no answer before turn 2": {"min_turns": 2},
}
DONE = '{"answer": "3", "done": true}'


def reply_to(actions: str) -> Callable[[Sequence[dict[str, Any]]], str]:
    """A function that replies at random in an action space, in ways that depend on what was said so far."""
    metric = random_policy(1)

    def reply(messages: Sequence[dict[str, Any]]) -> str:
        text = metric(Conversation("", [Message(each["role"], each["text"]) for each in messages]))
        if actions == "metric":
            return text
        if '"done": true' in text:
            return DONE
        own: dict[str, Any] = {"actions": "turn_left|move_forward|look_down"}
        if actions == "tools-pixel":
            own = {"action": "turn_to", "point": 3, "measure": [[20, 60], 5]}
        return json.dumps({**own, "answer": None, "done": False})

    return reply


@pytest.mark.parametrize("rules", RULES)
def test_an_environment_repeats_every_message_view_move_and_score_of_a_run(rules: str, rooms: RoomScans):
    settings = {**VIEW, "scan_root": rooms.root, **RULES[rules]}
    policy = load_policy(reply_to(RULES[rules].get("actions", "metric")))
    run = explore(rooms.questions, policy=policy, progress=False, num_questions=3, **settings)
    assert len({turn.reply.text for each in run for turn in each.turns}) > 1
    with RoomEnv(rooms.questions, **settings) as env:
        for recorded in run:
            env.reset(recorded.question.id)
            for turn in recorded.turns:
                if turn.reply.text or RULES[rules].get("present") != "once":
                    step = env.step(turn.reply.text)
            assert step.ended and step.messages == []
            assert step.info["score"] == recorded.score and step.info["answer"] == recorded.answer
            assert step.reward == (recorded.score or 0.0)
            same = [(each.pose, each.move, each.action, each.parse_error) for each in recorded.turns]
            assert [(each.pose, each.move, each.action, each.parse_error) for each in env.state.turns] == same
            assert [(each.role, each.text) for each in env.messages] == [
                (each["role"], each["text"]) for each in recorded.messages
            ]
            for ours, theirs in zip(env.messages, recorded.messages, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(ours.images, theirs["images"], strict=True))


def test_a_reward_has_its_named_parts(rooms: RoomScans):
    parts = {"turn_cost": 0.01, "unreadable_cost": 0.1, "coverage": 2.0, "answer_format": 0.5}
    question = next(row for row in rooms.rows if row["question_type"] == "object_counting")
    with RoomEnv(rooms.questions, rewards=parts, scan_root=rooms.root, **VIEW) as env:
        env.reset(str(question["id"]))
        step = env.step("I cannot say")
        assert step.info["rewards"]["unreadable_cost"] == -0.1 and step.info["rewards"]["score"] == 0
        step = env.step('{"rotation_angle_degrees": 180, "answer": null, "done": false}')
        assert step.info["rewards"]["unreadable_cost"] == 0 and 0 < step.info["rewards"]["coverage"] < 2
        step = env.step(json.dumps({"answer": question["ground_truth"], "done": True}))
        expected = {"score": 1.0, "turn_cost": -0.01, "unreadable_cost": 0.0, "coverage": 0.0, "answer_format": 0.5}
        assert step.info["rewards"] == expected and step.reward == pytest.approx(1.49)


def test_a_map_beside_a_reply_is_rewarded_and_stays_out_of_the_conversation(rooms: RoomScans):
    with RoomEnv(rooms.questions, rewards={"map": 0.5}, scan_root=rooms.root, **VIEW) as env:
        for known in (True, False):
            first = env.reset(0)
            assert env.map_messages[-1].text == f"{first[-1].text}\n\n{MAP_PROBE}"
            start, boxes = env.state.observation.pose, env.state.boxes
            places = [(box.name, start.relative(CameraPose(*box.center, 0.0))) for box in boxes if known]
            entries = [{"object": name, "forward_m": at.x_m, "left_m": at.y_m} for name, at in places]
            step = env.step("I look.", json.dumps(entries))
            seen = len(step.info["turn"].belief.score.seen)
            f1 = 2 * seen / (len(boxes) + seen) if known else 0
            assert step.info["rewards"]["map"] == pytest.approx(0.5 * f1) and seen
            assert [message.text for message in env.messages[:2]] == [message.text for message in first]
            assert env.step("I look.", Reply("nothing")).info["rewards"]["map"] == 0
            with pytest.raises(EnvError, match="the reward part map, takes the text of a reply, got None"):
                env.step("I look.")
            later = env.step("I look.", "[]").info["turn"].belief.score.seen
            assert {*later} >= {*step.info["turn"].belief.score.seen}


def test_what_the_part_map_cannot_be_is_refused(rooms: RoomScans, tmp_path: Path):
    with RoomEnv(rooms.questions, scan_root=rooms.root, **VIEW) as env:
        env.reset(0)
        with pytest.raises(EnvError, match=r"map_messages are for the reward part map: make .* rewards=.'map': 1"):
            env.map_messages  # noqa: B018
    scans = shutil.copytree(rooms.root, tmp_path / "scans", ignore=shutil.ignore_patterns("rooms.json"))
    with VectorEnv(2, rooms.questions, rewards={"map": 1.0}, scan_root=scans, **VIEW) as envs:
        assert envs.reset([0, 1]) == [[], []]
        assert all(str(why).startswith("the reward part map needs the boxes of objects: ") for why in envs.failures)


def test_endless_rooms_are_repeatable_and_no_rooms_of_a_test():
    names = {row["scene_name"] for row in shipped_rows(SHIPPED)}
    with RoomEnv(endless=True, datasets=["bare"], question_types=["object_counting"], **VIEW) as env:
        drawn = [env.draw(seed) for seed in (0, 2**31, 0)]
        assert drawn[0] == drawn[2] != drawn[1] and {each.question_type for each in drawn} == {"object_counting"}
        assert all(each.dataset == "bare" and each.scene_name not in names for each in drawn)
        first, again = env.reset(seed=3), env.another().reset(seed=3)
        assert np.array_equal(first[1].images[0], again[1].images[0]) and first[1].text == again[1].text
        assert {env.step(DONE).ended} == {True}
        assert env.reset(3)[1].text == first[1].text, "its number is the seed"
        with pytest.raises(EnvError, match="has no question -1"):
            env.reset(-1)
        with pytest.raises(QuestionError, match="below 4287967296"):  # its seed would be that of another room
            env.reset(2**32 - ENDLESS)
    assert max(*SPLITS.values(), *SEEDS.values()) < ENDLESS
    assert all(name.startswith(tuple(f"room_seed{seed}_" for seed in SEEDS.values())) for name in names)


def test_episodes_at_once_equal_those_alone_and_share_their_scans(rooms: RoomScans):
    replies = ['{"rotation_angle_degrees": 40, "answer": null, "done": false}', DONE]
    with VectorEnv(3, rooms.questions, scan_root=rooms.root, **VIEW) as many:
        begun = many.reset(questions=[0, 1, 0])
        steps = [many.step([replies[0]] * 3), many.step({0: replies[1], 2: replies[1]})]
        assert [each.ended for each in steps[1]] == [True, False, True]
        assert steps[1][1].messages == [] and steps[1][1].reward == 0
        assert many.envs[0].state.env.scene is many.envs[2].state.env.scene  # type: ignore[union-attr]
        with RoomEnv(rooms.questions, scan_root=rooms.root, **VIEW) as env:
            assert env.reset(0)[1].text == begun[0][1].text
            assert env.step(replies[0]).messages == steps[0][0].messages == steps[0][2].messages
            assert env.step(replies[1]).reward == steps[1][0].reward
        assert len(many.reset(only=[1])) == 1


def test_episodes_at_once_all_stay_where_they_are_if_one_of_them_cannot_go_on(rooms: RoomScans):
    turn = '{"rotation_angle_degrees": 40, "answer": null, "done": false}'
    with VectorEnv(3, rooms.questions, scan_root=rooms.root, **VIEW) as many:
        many.reset(questions=[0, 0, 0])
        many.step({0: DONE})
        for replies in ([turn] * 3, [None, turn, 5], [turn], "xxx", {5: turn}, {"1": turn}, None):
            with pytest.raises(EnvError):
                many.step(replies)  # type: ignore[arg-type]
        for arguments in ({"only": [7]}, {"only": [0, 0]}, {"only": 1.5}, {"questions": []}, {"questions": 3.5}):
            with pytest.raises(EnvError):
                many.reset(**arguments)  # type: ignore[arg-type]
        with pytest.raises(EnvError, match="no question 'x'"):
            many.reset(questions=[0, 0, "x"])
        assert [env.state.turn for env in many.envs] == [1, 0, 0] and many.envs[0].state.is_final
        assert [each.ended for each in many.step([None, turn, turn])] == [True, False, False]


def test_endless_twins_are_two_rooms_with_one_question():
    bare = {"datasets": ["bare"], "question_types": ["object_counting"], "benchmark": "rooms-twins"}
    with RoomEnv(endless=True, **bare, **VIEW) as env:
        first, second = (env._world.question(number) for number in (6, 7))
        assert (first.question, first.id[:-1]) == (second.question, second.id[:-1])
        assert first.ground_truth != second.ground_truth
        assert env.draw(6) == first
        views = [env.reset(number)[1].images[0] for number in (6, 7, 6)]
        assert np.array_equal(views[0], views[2])
        assert env.step(f'{{"done": true, "answer": "{first.ground_truth}"}}').info["score"] == 1
    with pytest.raises(QuestionError, match="view_finding"):
        RoomEnv(endless=True, benchmark="rooms-twins", question_types=["view_finding"], renderer="blind")


def test_endless_rooms_of_several_episodes_are_made_once_each_and_drawn_in_order():
    bare = {"endless": True, "datasets": ["bare"], "question_types": ["object_counting"], **VIEW}
    with VectorEnv(2, **bare) as many, RoomEnv(**bare) as env:
        begun = [each[1].text for each in many.reset(seeds=[1, 1])]
        assert begun[0] == begun[1] == env.reset(seed=1)[1].text
        assert many.envs[0]._world.rooms._known.cache_info().misses == 1  # type: ignore[union-attr]
        unseeded = [each[1].text for each in many.reset()]
        assert unseeded == [env.reset()[1].text for _ in many.envs]


def one_question(**changes: Any) -> Question:
    values = {"id": "7", "dataset": "scannet", "scene_name": "x", "question_type": "object_counting"}
    return Question(**{**values, "question": "How many chair(s) are in this room?", "ground_truth": "3", **changes})


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"questions": [one_question(ground_truth=None)]}, EnvError, "question 7 has no ground truth"),
        ({"questions": [one_question()], "rewards": {"speed": 1}}, EnvError, "there is no reward part speed"),
        ({"questions": [one_question()], "temperature": 0.7}, EnvError, "temperature has no effect on an episode"),
        ({"endless": True, "ids": ["1"]}, EnvError, "ids chooses among questions"),
        ({"endless": True, "datasets": ["huge"], "renderer": "blind"}, QuestionError, "huge"),
    ],
)
def test_what_cannot_be_an_environment_is_named(arguments: dict[str, Any], error: type[Exception], says: str):
    with pytest.raises(error, match=says):
        RoomEnv(**arguments)


def test_what_cannot_be_a_step_is_named(rooms: RoomScans):
    with RoomEnv(rooms.questions, scan_root=rooms.root, **VIEW) as env:
        with pytest.raises(EnvError, match="call reset"):
            env.step(DONE)
        with pytest.raises(EnvError, match="has no question 'nothing'"):
            env.reset("nothing")
        env.reset(0)
        while not env.step("nothing to read").ended:
            pass
        with pytest.raises(EnvError, match="is over"):
            env.step(DONE)
