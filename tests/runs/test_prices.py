"""Prices of tokens from a file, what a run costs by them, and the budget that stops a run."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RoomScans, only_run
from planned import changed, run_settings
from scripted_model import ScriptedBackend, random_policy

from roomscout.agent.budget import Budget
from roomscout.agent.policies.model import ModelPolicy
from roomscout.analysis.compare.leaderboard import main as leaderboard
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.scores import about_in_words, facts_in_words
from roomscout.base.errors import SettingError, in_words
from roomscout.command.verbs import VERBS
from roomscout.edge.settings import Settings
from roomscout.models import Reply
from roomscout.runs import RunError
from roomscout.runs.prices import Price, in_money, read_price
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, Turn

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
    assert len(outcome.rows) == 1, "the first question shows what one costs, and no other fits"
    assert "is spent" in caplog.text
    *_, last = caplog.messages
    assert last.endswith(f"{outcome.folder} --budget {3 * OF_A_TURN}"), "an auto is what it was"
    assert answered(config, outcome.folder).status == 3, "what earlier processes spent counts"
    assert len(RunReader(outcome.folder).rows) == 1
    resumed = answered(changed(config, budget=1.0), outcome.folder)
    assert resumed.status == 0
    undisturbed = answered(changed(config, budget=None, log_root=tmp_path / "undisturbed"))
    assert [row.answer for row in resumed.rows] == [row.answer for row in undisturbed.rows]


ONE, *OTHERS = (EpisodeId(number) for number in range(4))


@pytest.fixture
def turn(one_run: Path) -> Turn:
    """A turn that costs OF_A_TURN."""
    turn = next(RunReader(one_run).all_turns())
    return replace(turn, reply=replace(turn.reply, prompt_tokens=100, reused_tokens=40, generated_tokens=10))


def test_a_budget_reserves_the_mean_cost_for_questions_in_progress(turn: Turn):
    budget = Budget(Price(MODEL, 1, 4, 0.1), 6.5 * OF_A_TURN)
    assert budget.room([]) == 1 and budget.room([ONE]) == 0, "what a question costs is not known"
    budget.spend(ONE, turn)
    budget.spend(ONE, turn)
    assert budget.room([]) == 2, "two more of two turns fit"
    assert budget.room(OTHERS[:1]) == 1
    budget.spend(OTHERS[0], turn)
    assert budget.room(OTHERS[:1]) == 1, "half of it is spent already"
    assert budget.room(OTHERS[:2]) == 0 and not budget.is_spent
    assert budget.spent == pytest.approx(3 * OF_A_TURN)
    assert Budget(Price(MODEL, 1, 4, 0.1)).room([ONE]) is None


def test_a_budget_counts_earlier_turns_and_stops_at_a_reply_without_usage(turn: Turn):
    budget = Budget(Price(MODEL, 1, 4, 0.1), 2.5 * OF_A_TURN, {ONE: [turn, turn], OTHERS[0]: [turn]}, [ONE])
    assert budget.is_spent and budget.spent == pytest.approx(3 * OF_A_TURN)
    silent = replace(turn, reply=replace(turn.reply, text="{}", prompt_tokens=0))
    with pytest.raises(RunError, match="the server does not say how many tokens"):
        budget.spend(ONE, silent)
