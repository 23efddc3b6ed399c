"""--anytime: an answer after each turn, outside the conversation, that costs only its own tokens."""

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import RoomScans, only_run, results, run_in_process, scripted, traced, trajectories
from faulty_servers import FaultyServer, sometimes
from faulty_servers import scripted as served
from planned import checked, run_settings
from scripted_model import ScriptedBackend, random_policy
from transformers import AutoConfig, AutoProcessor
from untrained_checkpoints import write_untrained_checkpoint, write_untrained_family

from roomscout.agent.policies import Decision
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.agent.state import QuestionState
from roomscout.analysis.report.writer import write_report
from roomscout.analysis.study.plots import plot_of
from roomscout.analysis.study.presets import PRESETS
from roomscout.analysis.study.tables import results_of, turn_table
from roomscout.base.errors import ConfigError
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.models import ModelOptions, Reply
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.vllm.backend import LayoutEncoder
from roomscout.runs.anytime import anytime, forced_in
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, ForcedAnswer, ResultRow, Turn

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENS = 12
ACTION = action_format()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny untrained checkpoint."""
    return str(write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny"))


def tiny(checkpoint: str, **options: Any) -> ModelPolicy:
    values = {"device": "cpu", "max_new_tokens": TOKENS, "temperature": 1.5, **options}
    return ModelPolicy(TransformersBackend.from_checkpoint(checkpoint, ModelOptions(**values)))


def turns_of(folder: Path) -> dict[EpisodeId, list[Turn]]:
    reader = RunReader(folder)
    return {episode: reader.turns(episode) for episode in reader.begun}


def replies(folder: Path) -> dict[EpisodeId, list[Any]]:
    """What each turn said, with its tokens, but not its times."""
    return {
        episode: [
            (turn.reply.tokens, turn.reply.text, turn.reply.prompt_tokens, turn.reply.reused_tokens) for turn in turns
        ]
        for episode, turns in turns_of(folder).items()
    }


def test_the_run_is_the_same_with_and_without_it_and_its_cost_is_an_entry_of_its_own(
    rooms: RoomScans, checkpoint: str, tmp_path: Path
):
    settings = {"steps": 2, "num_questions": 3, "batch_size": 2, "max_batched_turns": 2, "concurrency": 2}
    without, with_it = (
        run_in_process(rooms.config(tmp_path / str(on), anytime=on, **settings), tiny(checkpoint))
        for on in (False, True)
    )
    assert replies(with_it) == replies(without)
    assert trajectories(with_it) == trajectories(without)
    assert results(with_it) == results(without)
    plain, all_of_it = (RunReader(each).summary.to_json()["cost"] for each in (without, with_it))
    cost = all_of_it.pop("anytime")
    times = ("generate_seconds", "seconds", "tasks")  # what a task costs includes its forced answers
    assert {**all_of_it, **dict.fromkeys(times)} == {**plain, **dict.fromkeys(times)}
    assert (cost["answers"], cost["images_encoded"]) == (6, 0)
    assert 0 < cost["prefilled_tokens"] < 40 * 6


def test_it_is_what_the_model_would_say_if_the_turn_were_its_last(rooms: RoomScans, checkpoint: str, tmp_path: Path):
    """Where the prompts do not count the turns, a run with fewer moves is the same up to its last turn."""
    settings = {"tell": "pose", "num_questions": 2, "max_new_tokens": TOKENS}
    probed = run_in_process(rooms.config(tmp_path / "2", anytime=True, steps=2, **settings), tiny(checkpoint))
    shorter = run_in_process(rooms.config(tmp_path / "1", steps=1, **settings), tiny(checkpoint))
    for episode, turns in turns_of(shorter).items():
        forced = turns_of(probed)[episode][1].forced
        assert forced is not None and forced.reply.tokens == turns[-1].reply.tokens


ROOM = {"dataset": "scannet", "scene_name": "s"}


def episode(
    number: int, *scores: float, status: str = "answered", kind: str = "object_counting"
) -> tuple[Any, list[Any]]:
    """A result with the scores of its forced answers and, last, its own; and its turns, as far as they matter here."""
    row = ResultRow(
        number=number, id=str(number), **ROOM, question_type=kind, question="?", ground_truth="1", answer="1",
        score=scores[-1], status=status, failed_part=None, error=None, turns=len(scores), parse_errors=0, seconds=0.0,
    )  # fmt: skip
    turns = [SimpleNamespace(forced=ForcedAnswer("1", score, Reply(""), ("1",))) for score in scores[:-1]]
    return row, [*turns, SimpleNamespace(forced=None)]


def by_turn(*episodes: tuple[Any, list[Any]], **settings: Any) -> dict[str, Any]:
    """What a summary says of these answers in a run of three moves."""
    setting = ({"moves": "model", "moves_of": None, "steps": 3} | settings).get
    facts = SimpleNamespace(setting=setting, model_moves=setting("moves") == "model" and setting("moves_of") is None)
    forced = {row.episode: forced_in(turns) for row, turns in episodes}
    found = anytime([row for row, _ in episodes], forced, BENCHMARK, facts)  # type: ignore[arg-type]
    assert found is not None
    return found.to_json()


def test_the_summary_by_turn_keeps_the_answers_of_questions_that_have_ended():
    found = by_turn(episode(1, 0, 1), episode(2, 0, 0, 0.5, 1), episode(3, 0.5))["by_turn"]
    assert [each["percent"] for each in found] == pytest.approx([50 / 3, 50, 200 / 3, 250 / 3])
    assert [each["forced"] for each in found] == [2, 1, 1, 0]


def test_the_summary_says_what_was_too_early_too_late_or_better_before():
    found = by_turn(episode(1, 0, 1), episode(2, 0.5), episode(3, 0, 0, 0, 0), episode(4, 0, 0, status="failed"))
    assert found["too_early"] == {"with_moves_left": 2, "below_full": 1}
    for others in ({"moves": "spin"}, {"moves_of": "run"}):
        assert "too_early" not in by_turn(episode(1, 0, 1), **others), "somebody else moves"
    found = by_turn(episode(1, 1, 0, 1, 1), episode(2, 0, 1), episode(3, 0, 0))["too_late"]
    assert found == {"above_zero": 2, "as_good_earlier": 1, "turns_since_first": 1.5, "turns_since_stable": 0.5}
    assert by_turn(episode(1, 1, 0), episode(2, 0.5, 1, 1), episode(3, 0))["better_earlier"] == 1
    assert by_turn(episode(1, 0, 1), episode(2, None, 1))["answers"] == 1, "the other awaits a judge"  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def restless(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same checkpoint where every eighth token ends a reply, so that rows end at different lengths."""
    folder = shutil.copytree(checkpoint, tmp_path_factory.mktemp("models") / "restless")
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] += range(0, 860, 8)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return str(folder)


def backend_of(checkpoint: str, **options: Any) -> TransformersBackend:
    return TransformersBackend.from_checkpoint(checkpoint, ModelOptions(device="cpu", max_new_tokens=TOKENS, **options))


def begin(number: int, side: int = 64) -> Conversation:
    conversation = Conversation(f"q{number}")
    conversation.append(Message("system", "You are inside the 3D scan of a room."))
    show(conversation, "Where is the door? " * (3 * number + 1) + "Answer when you are sure.", side)
    return conversation


def show(conversation: Conversation, text: str, side: int = 64) -> None:
    draw = np.random.default_rng([len(conversation.messages), *conversation.id.encode()])
    conversation.append(Message.of_views(text, draw.integers(0, 256, (side, side, 3), dtype=np.uint8)))


def last_turn(conversation: Conversation) -> Conversation:
    """The alternative that ends with other words."""
    text = conversation.messages[-1].text
    return conversation.asking_instead(text.replace("Answer when you are sure.", "This is the last turn: answer now."))


def alone(conversation: Conversation) -> Conversation:
    """The same messages as a conversation that shares nothing with another one."""
    return Conversation(conversation.id, list(conversation.messages))


def go_on(conversation: Conversation, reply: Reply) -> None:
    conversation.append(reply.message)
    show(conversation, "You moved 0.5 m. Answer when you are sure.")


class TestAlternatives:
    @pytest.mark.parametrize("kind", ["qwen2_5_vl", "internvl"])
    def test_one_is_encoded_as_a_conversation_of_its_own(self, kind: str, tmp_path: Path):
        path = str(write_untrained_family(tmp_path / "tiny", kind))
        side = 56 if kind.startswith("qwen2") else 64
        config, processor = AutoConfig.from_pretrained(path), AutoProcessor.from_pretrained(path)
        conversation = begin(1, side)
        conversation.append(Reply("I look further.").message)
        show(conversation, "You moved 0.5 m. Answer when you are sure.", side)
        for encoder in (ConversationEncoder(processor, config), LayoutEncoder(processor, config)):
            one, other = last_turn(conversation), alone(last_turn(conversation))
            assert encoder.encode(one).ids == encoder.encode(other).ids
            assert torch.equal(encoder.encode(one).positions, encoder.encode(other).positions)

    @pytest.mark.parametrize(
        "options",
        [{"temperature": 2.0}, {"planned_tokens": 2000}, {"compiled steps": True}],
        ids=str,
    )
    def test_replies_are_those_to_conversations_of_their_own(self, restless: str, options: dict[str, Any]):
        if "compiled steps" in options:
            backend, plain = traced(backend_of(restless)), backend_of(restless, kv_reuse=False)
        else:
            backend, plain = backend_of(restless, **options), backend_of(restless, **options | {"kv_reuse": False})
        conversations, different = [begin(number) for number in range(4)], set()
        for turn in range(3):
            turns = backend.generate(conversations, ACTION)
            asked = [last_turn(each) for each in conversations[turn % 2 :]]  # not always all of the batch
            replies = [reply.tokens for reply in backend.generate(asked, ACTION)]
            assert replies == [reply.tokens for reply in plain.generate([alone(each) for each in asked], ACTION)]
            assert [reply.tokens for reply in turns] == [
                reply.tokens for reply in plain.generate([alone(each) for each in conversations], ACTION)
            ]
            different.update(replies)
            for conversation, reply in zip(conversations, turns, strict=True):
                go_on(conversation, reply)
        assert len(different) > 3  # equal replies would prove nothing

    def test_evicted_origins_are_computed_again(self, restless: str):
        backend, plain = backend_of(restless), backend_of(restless, kv_reuse=False)
        conversations = [begin(number) for number in range(3)]
        backend.generate(conversations, ACTION)
        backend._runner.release(conversations[1].key)
        asked = [last_turn(each) for each in conversations]
        replies = backend.generate(asked, ACTION)
        assert [reply.tokens for reply in replies] == [
            reply.tokens for reply in plain.generate([alone(each) for each in asked], ACTION)
        ]
        assert [reply.images_encoded for reply in replies] == [0, 1, 0]


@pytest.fixture(scope="module")
def forced(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an answer after each turn."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("forced"), anytime=True, steps=3), scripted())


class TestRuns:
    def test_each_turn_but_the_last_is_forced_scored_and_exported(self, forced: Path):
        turns = turns_of(forced)
        for each in turns.values():
            assert [turn.forced is not None for turn in each] == [True] * (len(each) - 1) + [False]
        summary = RunReader(forced).summary.to_json()
        last, asked = summary["anytime"]["by_turn"][-1], summary["asked"]
        assert (last["percent"], last["forced"]) == (asked[asked["overall_label"]], 0)
        with (forced / "results.csv").open() as table:
            rows = list(csv.DictReader(table))
        for row, each in zip(rows, turns.values(), strict=True):
            exported = zip(json.loads(row["forced_answers"]), json.loads(row["forced_scores"]), strict=True)
            assert [*exported] == [(turn.forced.answer, turn.forced.score) for turn in each if turn.forced is not None]
        write_report(forced)
        assert "Overall if each turn were the last" in (forced / "report.html").read_text()
        assert '"forced":' in (forced / "report_files" / "data" / "q001.js").read_text()

    def test_whoever_moves_the_model_is_asked_in_the_words_of_the_last_turn(self, rooms: RoomScans, tmp_path: Path):
        read: list[str] = []

        def reply(conversation: Conversation) -> str:
            read.append(conversation.messages[-1].text)
            return json.dumps({"answer": "1", "done": True})

        settings = {"moves": "spin", "steps": 2, "num_questions": 1, "anytime": True}
        run_in_process(rooms.config(tmp_path, **settings), ModelPolicy(ScriptedBackend(reply)))
        last = ['This is the last view. Give your best answer now, with "done": true.' in text for text in read]
        assert last == [False, True, False, True, True]

    def test_an_engine_that_batches_itself_gives_the_same_answers(self, rooms: RoomScans, forced: Path, tmp_path: Path):
        concurrent = scripted()
        concurrent.concurrent = True
        assert forced_of(run_in_process(rooms.config(tmp_path, anytime=True, steps=3), concurrent)) == forced_of(forced)

    def test_an_error_between_a_turn_and_its_forced_answer_loses_nothing(
        self, rooms: RoomScans, forced: Path, tmp_path: Path
    ):
        config = rooms.config(tmp_path, anytime=True, steps=3, batch_size=3)
        for calls in (1, 4):
            begun = next(iter(tmp_path.glob("*_batched")), None)
            assert run_settings(config, begun, Stopping(calls)).status == 3
        folder = only_run(tmp_path)
        run_settings(config, folder, scripted())
        assert results(folder) == results(forced)
        assert trajectories(folder) == trajectories(forced)
        assert forced_of(folder) == forced_of(forced)

    @pytest.mark.parametrize("moves", [{"present": "once", "moves": "spin"}, {"moves": "none"}, {"steps": 0}])
    def test_a_run_of_one_turn_is_refused(self, moves: dict[str, Any]):
        with pytest.raises(ConfigError, match="--anytime conflicts with"):
            checked(anytime=True, **moves)

    def test_a_policy_that_cannot_be_asked_is_refused(self, rooms: RoomScans, tmp_path: Path):
        with pytest.raises(ConfigError, match="random cannot be asked: leave out --anytime"):
            run_settings(rooms.config(tmp_path, anytime=True))

    def test_a_server_is_asked_a_second_time_with_the_same_beginning(self, rooms: RoomScans, tmp_path: Path):
        asked = {"anytime": True, "steps": 1, "num_questions": 3}
        config = rooms.config(tmp_path / "1", **asked)
        here = run_in_process(config, ModelPolicy(ScriptedBackend(random_policy())))
        with FaultyServer(served(random_policy()), sometimes(1 / 4), hang_s=0.3) as server:
            settings = {"model": "served", "engine": "openai", "base_url": (server.url,)}
            there = run_in_process(rooms.config(tmp_path / "2", **asked, **settings))
        assert trajectories(there) == trajectories(here)
        assert forced_of(there) == forced_of(here)

    def test_a_study_has_a_table_and_a_curve_by_turn(self, rooms: RoomScans, tmp_path: Path):
        preset = PRESETS["anytime"]
        runs = [
            run_in_process(rooms.config(tmp_path / cell.name, steps=2, num_questions=2, **cell.settings), scripted())
            for cell in preset.cells
        ]
        found = results_of(preset, runs)
        table = turn_table(found)
        by_turn = RunReader(runs[1]).summary.to_json()["anytime"]["by_turn"]
        assert table.heads[:4] == ["overall", "turn 0", "turn 1", "turn 2"]
        assert table.rows[1][:4] == ["spin", *(f"{each['percent']:.1f}" for each in by_turn)]
        assert plot_of(found).count("<circle") == 9 + 3  # and those beside the names


class Stopping(ModelPolicy):
    """The scripted model, which raises an error instead of the n-th list of forced answers."""

    def __init__(self, calls: int) -> None:
        super().__init__(ScriptedBackend(random_policy()))
        self._left = calls

    def answer_now(self, states: Sequence[QuestionState]) -> list[Decision]:
        if states:
            self._left -= 1
        if not self._left:
            raise RuntimeError("stopped")
        return super().answer_now(states)


def forced_of(folder: Path) -> dict[EpisodeId, list[Any]]:
    """The forced answers of each turn with their replies."""
    return {
        episode: [turn.forced and (turn.forced.answer, turn.forced.score, turn.forced.reply.text) for turn in turns]
        for episode, turns in turns_of(folder).items()
    }
