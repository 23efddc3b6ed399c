"""What a plan says of tokens, money and a budget."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RoomScans
from planned import changed

from roomscout.edge.memory import ConversationSize
from roomscout.edge.money import sent
from roomscout.edge.plan import memory_lines
from roomscout.runs.prices import in_money

MODEL = "gpt-x"
STARTS = ("Tokens:", "Cost:", "--budget")


def test_a_plan_says_tokens_money_and_what_a_budget_pays_for(rooms: RoomScans, tmp_path: Path):
    prices = tmp_path / "prices.yaml"
    prices.write_text(f"{MODEL}: {{input: 1.0, output: 4.0}}")
    served = {"engine": "openai", "base_url": ("http://roomscout.invalid/v1",), "model": MODEL, "steps": 1}
    config = rooms.config(tmp_path, prices=prices, num_questions=2, max_new_tokens=100, **served)
    lines = memory_lines(changed(config, budget=0.0001))
    (about, most), (cost,), (pays,) = ([each for each in lines if each.startswith(word)] for word in STARTS)
    read, written = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+) (?:read|written)", most))
    assert written == 2 * 2 * 100 and "(2 of 2 turns a question, 100 tokens a reply)" in most
    assert "(1.5 of 2 turns a question, 100 tokens a reply)" in about
    assert f"at most {in_money((read + 4 * written) / 1e6)}; if a cache" in cost
    assert pays == "--budget 0.0001: about 0 of 2 answers"
    assert memory_lines(changed(config, budget=9.0))[-2].endswith("--budget 9: more than the cost expected")
    assert not any(each.startswith("Cost") for each in memory_lines(changed(config, prices=None)))


@pytest.mark.parametrize("anytime", [False, True])
@pytest.mark.parametrize("keep_views", [None, 1])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_all_that_is_read_is_counted(turns: int, keep_views: int | None, anytime: bool):
    size = ConversationSize(100, 10, 50, 20, turns, keep_views)
    shown = [1 + min(turn, turn if keep_views is None else keep_views) for turn in range(turns)]
    of_turns = [100 + turn * (10 + 20) + 50 * images for turn, images in enumerate(shown)]
    again = sum(of_turns[:-1])
    expected = (sum(of_turns) + again * anytime, again + again * anytime, 20 * (turns + (turns - 1) * anytime))
    found = sent(size, [1.0] * turns, 20, anytime)
    assert (found.read, found.repeated, found.written) == expected
    probed = sent(replace(size, probe_tokens=7), [1.0] * turns, 20, anytime)
    more = (sum(of_turns) + 7 * turns, sum(of_turns), 20 * turns)
    assert (probed.read, probed.repeated, probed.written) == tuple(map(sum, zip(expected, more, strict=True)))
