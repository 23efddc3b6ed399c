"""--probe map: where a policy believes objects to be after each turn, outside the conversation."""

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import OpenPage
from conftest import RoomScans, only_run, results, run_in_process, scripted, trajectories
from planned import checked, run_settings
from scripted_model import ScriptedBackend, random_policy
from test_anytime import replies, tiny, turns_of
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import MAP_PROBE, Prompts
from roomscout.agent.policies.replies import read_map
from roomscout.agent.state import QuestionState
from roomscout.analysis.report.writer import write_report
from roomscout.base.errors import ConfigError
from roomscout.command.main import main
from roomscout.data.boxes import KnownBoxes, ObjectBox
from roomscout.envs.actions import CameraAction
from roomscout.envs.library import recorded_scene
from roomscout.envs.object_boxes import geometry_of
from roomscout.models import ModelError, Reply
from roomscout.models.conversation import Conversation
from roomscout.rendering.visibility import enough_pixels, object_pixels
from roomscout.runs.beliefs import Belief, Believed
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = 3


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny untrained checkpoint."""
    return str(write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny"))


def placed(state: QuestionState, box: ObjectBox, forward_m: float = 0.0) -> Believed:
    """The place of a box from the start, or beside it."""
    start = state.observations[0].pose
    away = np.array(box.center) - start.position
    return Believed(box.name, float(away @ start.forward) + forward_m, float(away @ start.left))


def in_view(state: QuestionState, turn: int) -> list[ObjectBox]:
    """The boxes that the view of a turn shows well."""
    seen = state.observations[turn]
    pixels = object_pixels(state.environment.scene, seen.pose, seen.camera, geometry_of(state.boxes))
    return [
        box for box, count in zip(state.boxes, pixels, strict=True)
        if count >= enough_pixels(seen.camera.width, seen.camera.height)
    ]  # fmt: skip


def seen_so_far(state: QuestionState) -> list[ObjectBox]:
    shown = [id(box) for turn in range(state.turn + 1) for box in in_view(state, turn)]
    return [box for box in state.boxes if id(box) in shown]


def perfect(state: QuestionState) -> list[Believed]:
    return [placed(state, box) for box in seen_so_far(state)]


def shifted(state: QuestionState) -> list[Believed]:
    """Objects of which there is one, a metre ahead of where they are."""
    names = [box.name for box in state.boxes]
    return [placed(state, box, 1.0) for box in seen_so_far(state) if names.count(box.name) == 1]


def forgetful(state: QuestionState) -> list[Believed]:
    return [placed(state, box) for box in in_view(state, state.turn)]


def inventive(state: QuestionState) -> list[Believed]:
    return [*perfect(state), Believed("dragon", 0.0, 0.0)]


class Mapper(Policy):
    """Turns, answers what is true in the last turn, and has maps of its own."""

    def __init__(self, believes: Callable[[QuestionState], list[Believed]] = perfect) -> None:
        self.believes = believes

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """Always to the left."""
        left = CameraAction(rotation_angle_degrees=100.0)
        return [
            Decision(CameraAction(answer=state.question.ground_truth, done=True) if state.is_last_turn else left)
            for state in states
        ]

    def map_now(self, states: Sequence[QuestionState]) -> list[Belief]:
        return [Belief(tuple(self.believes(state))) for state in states]


def probed(rooms: RoomScans, folder: Path, policy: Policy, **settings: Any) -> Path:
    return run_in_process(rooms.config(folder, probe="map", steps=STEPS, **settings), policy)


def by_turn(folder: Path) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = RunReader(folder).summary.to_json()["beliefs"]["by_turn"]
    assert [of_turn["turn"] for of_turn in turns] == [*range(STEPS + 1)]
    return turns


def views_of(folder: Path) -> dict[EpisodeId, list[set[int]]]:
    """By the run's record: which boxes each view shows well."""
    reader = RunReader(folder)
    camera = reader.facts.intrinsics
    enough = enough_pixels(camera.width, camera.height)
    found = {}
    for row in reader.rows:
        scan = reader.scan(row.episode)
        assert scan is not None
        geometry = geometry_of(KnownBoxes().of(Path(scan.file), row.scene_name))
        scene = recorded_scene(scan, "auto", 1.0)
        counts = [object_pixels(scene, turn.pose, camera, geometry) for turn in reader.turns(row.episode)]
        found[row.episode] = [{*np.flatnonzero(pixels >= enough).tolist()} for pixels in counts]
    return found


class TestKnownBeliefs:
    def test_a_perfect_map(self, rooms: RoomScans, tmp_path: Path):
        folder = probed(rooms, tmp_path, Mapper())
        for of_turn in by_turn(folder):
            assert (of_turn["precision"], of_turn["recall"], of_turn["error_m"]) == (1.0, 1.0, 0.0)
            assert (of_turn["invented"], of_turn["lost"], of_turn["answers"]) == (0.0, 0.0, len(RunReader(folder).rows))
        seen = [set().union(*views) for views in views_of(folder).values()]
        for turns, expected in zip(turns_of(folder).values(), seen, strict=True):
            score = turns[-1].belief.score
            assert {*score.seen} == {*score.right} == expected
        beliefs = RunReader(folder).summary.to_json()["beliefs"]
        needed = [turns[-1].belief.score.needed_right for turns in turns_of(folder).values()]
        groups = {right: beliefs.get(name) for right, name in ((True, "right_map"), (False, "wrong_map"))}
        assert needed.count(True) > 0
        for right, group in groups.items():
            assert (group or {"answers": 0})["answers"] == needed.count(right)
            assert group is None or group["percent"] == 100.0
        with (folder / "results.csv").open() as table:
            rows = list(csv.DictReader(table))
        assert {row["belief_precision"] for row in rows} == {row["belief_recall"] for row in rows} == {"1.0"}
        assert {row["belief_error_m"] for row in rows} == {"0.0"}

    def test_a_map_that_is_a_metre_off(self, rooms: RoomScans, tmp_path: Path):
        turns = by_turn(probed(rooms, tmp_path, Mapper(shifted)))
        assert {(of_turn["error_m"], of_turn["precision"], of_turn["lost"]) for of_turn in turns} == {(1.0, 1.0, 0.0)}

    def test_a_map_that_forgets_what_is_out_of_view(self, rooms: RoomScans, tmp_path: Path):
        folder = probed(rooms, tmp_path, Mapper(forgetful))
        every = views_of(folder).values()
        lost, recall = [], []
        for turn in range(STEPS + 1):
            pairs = [(views[turn], set().union(*views[:turn])) for views in every]
            lost.append(np.mean([len(before - view) for view, before in pairs]))
            recall.append(np.mean([len(view) / len(view | before) for view, before in pairs if view | before]))
        assert lost[0] == 0 < lost[-1]
        assert [of_turn["lost"] for of_turn in by_turn(folder)] == pytest.approx(lost, abs=1e-4)
        assert [of_turn["recall"] for of_turn in by_turn(folder)] == pytest.approx(recall, abs=1e-4)

    def test_a_map_that_has_what_is_not_there(self, rooms: RoomScans, tmp_path: Path):
        for of_turn in by_turn(probed(rooms, tmp_path, Mapper(inventive))):
            assert (of_turn["invented"], of_turn["recall"]) == (1.0, 1.0) and of_turn["precision"] < 1

    def test_nothing_is_seen_in_grey_views(self, rooms: RoomScans, tmp_path: Path):
        policy = Mapper(lambda state: [placed(state, box) for box in state.boxes])
        found = by_turn(probed(rooms, tmp_path, policy, renderer="blind", num_questions=1))
        shares = {(of_turn["precision"], of_turn["recall"], of_turn["coverage"]) for of_turn in found}
        assert shares == {(0.0, None, 0.0)}

    def test_scans_without_boxes_are_recorded_and_not_scored(self, rooms: RoomScans, tmp_path: Path):
        root = Path(shutil.copytree(rooms.root, tmp_path / "root"))
        (root / "rooms.json").unlink()
        policy = Mapper(lambda state: [Believed("bed", 1.0, 0.0)])
        folder = probed(rooms, tmp_path / "logs", policy, scan_root=root, num_questions=2)
        assert RunReader(folder).summary.to_json()["beliefs"] == {"maps": 8, "unread": 0, "unscored": 8, "by_turn": ()}
        for turns in turns_of(folder).values():
            assert [turn.belief.objects for turn in turns] == [(Believed("bed", 1.0, 0.0),)] * (STEPS + 1)
        log = (folder / "run.log").read_text()
        assert "8 of 8 maps are not scored: no boxes that fit their scans are known" in log


MAP = '[{"object": "bed", "forward_m": 1.5, "left_m": 0}]'


def answering(reply: str, seed: int = 0) -> Callable[[Conversation], str]:
    """The scripted model, which replies this to the probe."""
    others = random_policy(seed)
    return lambda conversation: reply if conversation.messages[-1].text.endswith(MAP_PROBE) else others(conversation)


def beliefs_of(folder: Path) -> dict[EpisodeId, list[Any]]:
    """The maps of each turn with their replies."""
    return {
        episode: [(turn.belief.objects, turn.belief.score, turn.belief.error, turn.belief.reply.text) for turn in turns]
        for episode, turns in turns_of(folder).items()
    }


class TestModels:
    def test_the_run_is_the_same_with_and_without_it(self, rooms: RoomScans, checkpoint: str, tmp_path: Path):
        settings = {"steps": 2, "num_questions": 3, "batch_size": 2, "max_batched_turns": 2, "concurrency": 2}
        without, with_it, with_both = (
            run_in_process(rooms.config(tmp_path / name, **settings, **more), tiny(checkpoint))
            for name, more in {"0": {}, "1": {"probe": "map"}, "2": {"probe": "map", "anytime": True}}.items()
        )
        assert replies(with_both) == replies(with_it) == replies(without)
        assert trajectories(with_both) == trajectories(with_it) == trajectories(without)
        assert results(with_both) == results(with_it) == results(without)
        plain, probing = RunReader(without).facts, RunReader(with_it).facts
        assert plain.conditions == probing.conditions and plain.prompts == probing.prompts
        assert plain.probe is None and "probe" not in json.loads((without / "run.json").read_text())
        assert probing.probe is not None and probing.probe.templates == {"map": MAP_PROBE}
        assert probing.probe.sha256 not in (None, plain.prompts.sha256)
        before, after = (RunReader(folder).summary.to_json()["cost"] for folder in (without, with_it))
        cost = after.pop("probe")
        times = ("generate_seconds", "seconds", "tasks")
        assert {**after, **dict.fromkeys(times)} == {**before, **dict.fromkeys(times)}
        assert (cost["answers"], cost["images_encoded"]) == (9, 0) and cost["mean_batch"] > 1
        assert "beliefs" not in RunReader(without).summary.to_json()
        assert RunReader(with_it).summary.to_json()["beliefs"]["unread"] == 9

    def test_a_map_is_read_scored_reported_and_asked_for_below_the_message(self, rooms: RoomScans, tmp_path: Path):
        read: list[list[str]] = []

        def reply(conversation: Conversation) -> str:
            read.append([message.text for message in conversation.messages])
            return answering(MAP)(conversation)

        folder = probed(rooms, tmp_path, ModelPolicy(ScriptedBackend(reply)), batch_size=3)
        asked = [texts for texts in read if texts[-1].endswith(MAP_PROBE)]
        assert len(asked) == len(read) / 2
        for texts in asked:
            assert [*texts[:-1], texts[-1].removesuffix(f"\n\n{MAP_PROBE}")] in read
        for turns in turns_of(folder).values():
            assert all(turn.belief.objects == (Believed("bed", 1.5, 0.0),) and turn.belief.score for turn in turns)
        write_report(folder)
        report = (folder / "report.html").read_text()
        assert "Beliefs by turn" in report and "Score by the last map" in report
        assert '"belief":["bed (1.5, 0.0); ' in (folder / "report_files" / "data" / "q001.js").read_text()

    def test_a_replay_shows_the_map_of_its_turn_as_pins(self, rooms: RoomScans, tmp_path: Path, browser: Any):
        folder = probed(rooms, tmp_path, ModelPolicy(ScriptedBackend(answering(MAP))), batch_size=3, num_questions=1)
        replay = tmp_path / "replay.html"
        assert main(["replay", str(folder), "1", "--out", str(replay)]) == 0
        opened = OpenPage(browser, replay.as_uri())
        opened.page.wait_for_selector("body[data-drawn]")
        assert opened.page.locator("#labels .believed:visible").all_inner_texts() == ["bed"]
        assert "where the model believes objects to be" in opened.page.inner_text("#legend")
        opened.page.evaluate("document.getElementById('objects').click()")
        opened.page.locator("#labels .believed:visible").wait_for(state="hidden")
        opened.page.close()

    @pytest.mark.parametrize("probe", ["map", "anytime"])
    def test_an_error_of_the_model_beside_the_conversation_costs_no_answer(
        self, rooms: RoomScans, tmp_path: Path, probe: str
    ):
        def reply(conversation: Conversation) -> str:
            words = conversation.messages[-1].text
            turns = sum(message.role == "user" for message in conversation.messages)
            if words.endswith(MAP_PROBE) or (Prompts().last_turn in words and turns <= STEPS):
                raise ModelError("the list is too long")
            return random_policy()(conversation)

        asked = {"probe": "map"} if probe == "map" else {"anytime": True}
        plain = run_in_process(rooms.config(tmp_path / "plain", steps=STEPS, batch_size=3), scripted())
        config = rooms.config(tmp_path / "probed", steps=STEPS, batch_size=3, **asked)
        folder = run_in_process(config, ModelPolicy(ScriptedBackend(reply)))
        assert results(folder) == results(plain) and trajectories(folder) == trajectories(plain)
        turns = [turn for turns in turns_of(folder).values() for turn in turns]
        if probe == "map":
            assert {turn.belief.error for turn in turns} == {"the list is too long"}
        else:
            assert {turn.forced.answer for turn in turns if turn.forced} == {None}

    def test_a_reply_that_is_no_map_is_counted_and_costs_no_answer(self, rooms: RoomScans, tmp_path: Path):
        folder = probed(rooms, tmp_path / "probed", scripted())
        plain = run_in_process(rooms.config(tmp_path / "plain", steps=STEPS), scripted())
        assert results(folder) == results(plain) and trajectories(folder) == trajectories(plain)
        beliefs = RunReader(folder).summary.to_json()["beliefs"]
        turns = sum(map(len, turns_of(folder).values()))
        assert (beliefs["maps"], beliefs["unread"], beliefs["by_turn"]) == (turns, turns, ())
        errors = {error for maps in beliefs_of(folder).values() for _, _, error, _ in maps}
        assert errors == {"no complete JSON list of objects"}

    def test_an_error_between_a_turn_and_its_map_loses_nothing(self, rooms: RoomScans, tmp_path: Path):
        whole = probed(rooms, tmp_path / "whole", ModelPolicy(ScriptedBackend(answering(MAP))), batch_size=3)
        config = rooms.config(tmp_path / "parts", probe="map", steps=STEPS, batch_size=3)
        for calls in (1, 4):
            begun = next(iter((tmp_path / "parts").glob("*_batched")), None)
            assert run_settings(config, begun, Stopping(calls)).status == 3
        folder = only_run(tmp_path / "parts")
        run_settings(config, folder, ModelPolicy(ScriptedBackend(answering(MAP))))
        assert results(folder) == results(whole)
        assert trajectories(folder) == trajectories(whole)
        assert beliefs_of(folder) == beliefs_of(whole)

    def test_an_engine_that_batches_itself_has_the_same_maps(self, rooms: RoomScans, tmp_path: Path):
        policies = [ModelPolicy(ScriptedBackend(answering(MAP))) for _ in range(2)]
        policies[1].concurrent = True
        one, other = (probed(rooms, tmp_path / str(place), policy) for place, policy in enumerate(policies))
        assert beliefs_of(one) == beliefs_of(other)


class Stopping(ModelPolicy):
    """The scripted model, which raises an error instead of the n-th list of maps."""

    def __init__(self, calls: int) -> None:
        super().__init__(ScriptedBackend(answering(MAP)))
        self._left = calls

    def map_now(self, states: Sequence[QuestionState]) -> list[Belief]:
        if states:
            self._left -= 1
        if not self._left:
            raise RuntimeError("stopped")
        return super().map_now(states)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (MAP, ["bed"]),
        ("[]", []),
        (f"As in [1], I list:\n```json\n{MAP}\n```", ["bed"]),
        ("[{object: 'bed', forward_m: +1.5, left_m: -.5,},]", ["bed"]),
        (f'{{"objects": {MAP}}}', ["bed"]),
        (f"[] or rather {MAP}", ["bed"]),
        (f"<think>{MAP}</think>[]", []),
        (f"<think>{MAP}", None),
        (MAP[:-2], None),
        (f"{MAP}\nStill to find: [ ]", ["bed"]),
        (f'{MAP} {{"answer": null, "options": []}}', ["bed"]),
        (f'{MAP} [{{"answer": 3}}]', ["bed"]),
        (f"[{MAP}]", ["bed"]),
        ('[{"object": "bed", "tags": []}, {"object": "so', None),
        ('{"answer": "3", "options": []}', None),
        (MAP.replace("1.5", '"1.5"'), None),
        (MAP.replace("left_m", "right_m"), None),
        ("[1, 2]", None),
        ("[" * 3000, None),
        ("", None),
    ],
)
def test_the_last_list_of_objects_in_a_reply_is_the_map(said: str, names: list[str] | None):
    found = read_map(Reply(said))
    assert (found.error is not None) == (names is None) and [item.object for item in found.objects] == (names or [])
    assert found.reply.text == said


def test_a_map_that_the_token_limit_cut_off_says_so():
    found = read_map(Reply(MAP[:-2], generated_tokens=320, finish_reason="length"))
    cut = "no complete JSON list of objects, only one that is cut off; the reply ended at its limit of 320 tokens"
    assert found.error == cut


class TestRefusals:
    def test_a_policy_that_has_no_map(self, rooms: RoomScans, tmp_path: Path):
        with pytest.raises(ConfigError, match="random cannot be asked: leave out --probe"):
            run_settings(rooms.config(tmp_path, probe="map"))

    def test_views_that_are_shown_at_once(self):
        with pytest.raises(ConfigError, match="--probe map conflicts with --present once"):
            checked(probe="map", present="once", moves="spin")

    @pytest.mark.parametrize(
        "returned",
        [[], [None], [Belief(("bed",))], [Belief((Believed("", 0.0, 0.0),))]],  # type: ignore[arg-type]
    )
    def test_what_is_no_map_stops_the_run(self, rooms: RoomScans, tmp_path: Path, returned: list[Any]):
        policy = Mapper()
        policy.map_now = lambda states: returned if states else []  # type: ignore[method-assign]
        stopped = run_settings(rooms.config(tmp_path, probe="map", num_questions=1), policy=policy)
        assert stopped.status == 3 and "Mapper.map_now, asked about" in str(stopped.error)


def test_a_reply_of_no_model_costs_nothing(rooms: RoomScans, tmp_path: Path):
    cost = RunReader(probed(rooms, tmp_path, Mapper(), num_questions=1)).summary.to_json()["cost"]
    assert cost["probe"]["answers"] == STEPS + 1 and cost["probe"]["generated_tokens"] == 0
    assert Belief().reply == Reply("")
