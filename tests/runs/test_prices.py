"""Prices of tokens from a file, what a run costs by them, and the budget that stops a run."""

import csv
import json
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import pytest
from conftest import RoomScans, only_run, trajectories
from faulty_servers import FaultyServer, scripted
from planned import changed, run_settings
from scripted_model import ScriptedBackend, content_hash, random_policy

from roomscout.agent.policies.model import ModelPolicy
from roomscout.analysis.compare.leaderboard import main as leaderboard
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.scores import about_in_words, facts_in_words
from roomscout.base.errors import SettingError, in_words
from roomscout.command.verbs import VERBS
from roomscout.edge.settings import Settings
from roomscout.models import Reply
from roomscout.models.conversation import Conversation
from roomscout.runs import RunError
from roomscout.runs.prices import Price, in_money, read_price
from roomscout.runs.reader import RunReader

MODEL = "gpt-x"
PRICES = f"{MODEL}: {{input: 1.0, output: 4.0, cached_input: 0.1}}\nowner/model: {{input: 2, output: 8}}\n"
OF_A_TURN = (60 * 1.0 + 40 * 0.1 + 10 * 4.0) / 1e6
"""What a reply of `Counting` costs."""


class Counting(ScriptedBackend):
    """Replies that read 100 tokens, 40 of them cached, and write 10."""

    def generate(self, conversations, reply_format) -> list[Reply]:
        """See ScriptedBackend."""
        replies = super().generate(conversations, reply_format)
        return [replace(each, prompt_tokens=100, reused_tokens=40, generated_tokens=10) for each in replies]


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """A file of prices."""
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES)
    return path


def answered(config: Settings, folder: Path | None = None):
    """The outcome of a run of a model that counts tokens."""
    policy = ModelPolicy(Counting(random_policy(), MODEL))
    return run_settings(changed(config, model=MODEL), folder, policy=policy, show_progress=False)


def test_a_price_is_found_by_the_name_of_the_model_or_of_its_folder(prices: Path):
    assert read_price(prices, MODEL) == Price(MODEL, 1, 4, 0.1)
    assert read_price(prices, "owner/model") == Price("owner/model", 2, 8, 2), "cached tokens cost what others do"
    assert read_price(prices, f"/checkpoints/{MODEL}") == Price(MODEL, 1, 4, 0.1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "write each model as MODEL: {input: 1.0"),
        ("gpt-x: {input: 1, output: 2, inputs: 3}\n", "there is no gpt-x.inputs"),
        ("gpt-x: {input: 1}\n", "missing keys: gpt-x.output"),
        ("gpt-x: {input: -1, output: 2}\n", "gpt-x.input: Input should be greater than or equal to 0"),
        ("gpt-x: {input: .nan, output: 2}\n", "gpt-x.input: Input should be a valid number"),
        ("model: {input: 1, output: 2}\n", "has no price of gpt-x, as the run calls its model, only of model: add"),
    ],
)
def test_a_file_that_has_no_price_is_named_in_one_sentence(prices: Path, text: str, complaint: str):
    prices.write_text(text)
    with pytest.raises(SettingError) as refused:
        read_price(prices, MODEL)
    assert in_words(refused.value).startswith("--prices: ")
    assert complaint in str(refused.value)
    assert str(prices) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_money_of_a_run_is_in_its_summary_tables_and_report(rooms: RoomScans, prices: Path, tmp_path: Path, capsys):
    answered(rooms.config(tmp_path / "runs", prices=prices, steps=2))
    folder = only_run(tmp_path / "runs")
    reader = RunReader(folder)
    turns = len(list(reader.all_turns()))
    cost = json.loads((folder / "summary.json").read_text())["cost"]
    assert cost["money"] == pytest.approx(turns * OF_A_TURN, abs=1e-6)
    assert cost["price"] == {"model": MODEL, "input": 1.0, "output": 4.0, "cached_input": 0.1}
    assert sum(each["money"] for each in cost["tasks"].values()) == pytest.approx(cost["money"], abs=1e-5)
    assert sum(each["answers"] for each in cost["tasks"].values()) == len(reader.rows)
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert [float(row["money"]) for row in rows] == pytest.approx([int(row["turns"]) * OF_A_TURN for row in rows])
    contents = RunContents.read(folder)
    assert "by task: object_counting" in dict(facts_in_words(contents))["Cost"]
    assert about_in_words(contents).endswith(f"cost {in_money(cost['money'])}")
    assert leaderboard([str(folder)]) == 0
    assert "| cost | run |" in capsys.readouterr().out


def test_an_older_run_is_priced_in_its_folder_or_in_a_leaderboard_alone(rooms, prices: Path, tmp_path: Path, capsys):
    answered(rooms.config(tmp_path / "runs", steps=1))
    folder = only_run(tmp_path / "runs")
    before = json.loads((folder / "summary.json").read_text())
    assert "money" not in before["cost"]
    assert leaderboard([str(folder), "--prices", str(prices)]) == 0
    assert "| cost | run |" in capsys.readouterr().out
    assert json.loads((folder / "summary.json").read_text()) == before
    assert VERBS["rescore"].load()([str(folder), "--prices", str(prices)]) == 0
    after = json.loads((folder / "summary.json").read_text())
    assert after["cost"]["money"] == pytest.approx(after["cost"]["turns"] * OF_A_TURN, abs=1e-6)
    assert {**after, "cost": None} == {**before, "cost": None}
    prices.write_text("another: {input: 1, output: 2}\n")
    for verb in (VERBS["rescore"].load(), leaderboard):
        with pytest.raises(RunError, match=f"no price of {MODEL}"):
            verb([str(folder), "--prices", str(prices)])


def test_a_budget_stops_a_run_that_a_larger_one_resumes(rooms: RoomScans, prices: Path, tmp_path: Path, caplog):
    config = rooms.config(tmp_path / "runs", prices=prices, steps=2, batch_size=2)
    config = changed(config, budget=1.5 * OF_A_TURN)
    outcome = answered(config)
    assert outcome.status == 3
    assert outcome.error is None
    assert len(list(RunReader(outcome.folder).all_turns())) == 2, "no turn begins after the first two"
    assert "is spent" in caplog.text
    *_, last = caplog.messages
    assert last.endswith(f"{outcome.folder} --budget {3 * OF_A_TURN}"), "an auto is what it was"
    assert answered(config, outcome.folder).status == 3, "what earlier processes spent counts"
    assert caplog.messages[-1].count("--budget") == 1
    assert answered(changed(config, budget=1.6 * OF_A_TURN), outcome.folder).status == 3
    assert caplog.messages[-1].count("--budget") == 1, "though it has changed"
    assert len(list(RunReader(outcome.folder).all_turns())) == 2
    assert any("is spent" in line for line in RunContents.read(outcome.folder).logged)
    resumed = answered(changed(config, budget=1.0), outcome.folder)
    assert resumed.status == 0
    assert not any("is spent" in line for line in RunContents.read(outcome.folder).logged), "it is finished now"


class Costly(ScriptedBackend):
    """Answers in a turn that depends on the question, with counts that depend on the conversation; notes the `most`
    replies in flight and the `highest` cost of one."""

    def __init__(self, price: Price, seed: int, concurrent: bool) -> None:
        super().__init__(self._say, MODEL)
        self.price, self.seed, self.concurrent = price, seed, concurrent
        self.most, self.highest, self._in_flight = 0, 0.0, 0
        self._lock = Lock()

    def _say(self, conversation: Conversation) -> str:
        last = Random(f"{self.seed} {conversation.messages[1].text}").randrange(4)
        done = sum(message.role == "user" for message in conversation.messages) > last
        return json.dumps({"rotation_angle_degrees": 45, "answer": "A" if done else None, "done": done})

    def _counted(self, conversation: Conversation, reply: Reply) -> Reply:
        draw = Random(f"{self.seed} {content_hash(conversation)}")
        read = draw.randrange(1, 400)
        counts = {
            "prompt_tokens": read,
            "reused_tokens": draw.randrange(read),
            "generated_tokens": draw.randrange(1, 90),
        }
        return replace(reply, **counts, seconds=0.001)

    def generate(self, conversations, reply_format) -> list[Reply]:
        """See ScriptedBackend."""
        replies = super().generate(conversations, reply_format)
        replies = [self._counted(*each) for each in zip(conversations, replies, strict=True)]
        computed = [(reply.prompt_tokens - reply.reused_tokens, reply) for reply in replies]
        costs = [self.price.of(new, reply.reused_tokens, reply.generated_tokens) for new, reply in computed]
        with self._lock:
            self._in_flight += len(replies)
            self.most = max(self.most, self._in_flight)
            self.highest = max(self.highest, *costs)
        time.sleep(0.005)
        with self._lock:
            self._in_flight -= len(replies)
        return replies


@pytest.mark.parametrize(
    ("seed", "schedule", "concurrent"),
    [
        (1, {"batch_size": 3, "max_batched_turns": "all"}, False),
        pytest.param(2, {"batch_size": 4, "max_batched_turns": 1, "concurrency": 1}, False, marks=pytest.mark.slow),
        (3, {"batch_size": 3, "max_batched_turns": "all", "refill": True, "samples": 2, "temperature": 0.5}, False),
        (4, {"batch_size": 3, "anytime": True}, False),
        pytest.param(5, {"batch_size": 1}, True, marks=pytest.mark.slow),
        pytest.param(6, {"batch_size": 4, "samples": 2, "temperature": 0.5}, True, marks=pytest.mark.slow),
        (7, {"batch_size": 32, "anytime": True}, True),
    ],
)
def test_no_turn_begins_once_a_budget_is_spent_and_costs_add_up(
    rooms: RoomScans, tmp_path: Path, seed: int, schedule: dict[str, Any], concurrent: bool
):
    draw = Random(seed)
    rates = {name: round(draw.uniform(0.1, 50), 3) for name in ("input", "output", "cached_input")}
    prices = tmp_path / "prices.yaml"
    prices.write_text(json.dumps({MODEL: rates}))
    price = Price(MODEL, **rates)
    config = rooms.config(tmp_path / "runs", prices=prices, steps=3, **schedule)

    def outcome_of(folder: Path | None = None, **changes: Any):
        backend = Costly(price, seed, concurrent)
        outcome = run_settings(changed(config, model=MODEL, **changes), folder, policy=ModelPolicy(backend))
        return outcome, RunReader(outcome.folder).summary.cost, backend.most * backend.highest

    whole, cost, _ = outcome_of(log_root=tmp_path / "whole")
    assert whole.status == 0
    folder, parts, most_in_flight = None, 3, 0.0
    for part in range(1, parts + 1):
        budget = part / parts * cost.money + 1e-6
        outcome, spent, in_flight = outcome_of(folder, budget=budget)
        folder = outcome.folder
        assert outcome.status == (3 if RunReader(folder).facts.episodes > len(outcome.rows) else 0)
        assert not any(row.failed for row in outcome.rows)
        assert budget <= spent.money + 1e-6 or outcome.status == 0
        most_in_flight = max(most_in_flight, in_flight * (2 if "anytime" in schedule else 1))
        assert spent.money < budget + most_in_flight
    assert (outcome.status, spent.money, spent.tokens) == (0, pytest.approx(cost.money), cost.tokens)
    assert trajectories(folder) == trajectories(whole.folder)
    assert sum(task.money for task in spent.tasks.values()) == pytest.approx(cost.money, abs=1e-5)


@pytest.mark.parametrize("reused", ["", ', "prompt_tokens_details": {"cached_tokens": 5}'])
@pytest.mark.parametrize(
    "usage",
    ["null", '{"prompt_tokens": 10}', '{"completion_tokens": 10}', '{"prompt_tokens": 9, "completion_tokens": -1}'],
)
def test_a_reply_without_counts_of_both_stops_a_priced_run(
    rooms: RoomScans, prices: Path, tmp_path: Path, usage: str, reused: str, caplog
):
    told = usage[:-1] + reused + "}" if usage != "null" else usage
    answer = scripted(random_policy())

    def silent(body: bytes) -> bytes:
        sent = json.loads(answer(body)) | {"usage": json.loads(told)}
        return json.dumps(sent).encode()

    with FaultyServer(answer) as server:
        config = rooms.config(
            tmp_path / "runs", prices=prices, steps=1, num_questions=2, model=MODEL, engine="openai",
            base_url=(server.url,),
        )  # fmt: skip
        server.answering = silent
        outcome = run_settings(config)
        assert outcome.status == 3 and not outcome.rows and not list(RunReader(outcome.folder).all_turns())
        assert "how many tokens it read and how many it wrote (usage); use one that does" in caplog.text
        server.answering = answer
        assert run_settings(config, outcome.folder).status == 0
