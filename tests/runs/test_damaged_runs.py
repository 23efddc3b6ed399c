"""Tests that a damaged file of a run is one sentence, in every verb that reads runs: each file is checked once."""

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, run_in_process, run_main, scripted

from roomscout import load_trajectories
from roomscout.analysis.compare.answers import read_answers
from roomscout.analysis.compare.comparison import compare
from roomscout.analysis.compare.leaderboard import csv_of, markdown_of, standing_of, tables_of
from roomscout.analysis.compare.pages import lines_of
from roomscout.analysis.exports import messages
from roomscout.analysis.failures import failure_lines
from roomscout.analysis.replay.lookup import find_answer, intrinsics_of
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.maps import FloorPlans
from roomscout.analysis.report.pages import index_of, page_of, script_json
from roomscout.analysis.report.writer import page_values, template
from roomscout.analysis.seeing import Seen
from roomscout.analysis.serve.runs import RunList
from roomscout.analysis.wrong import report_wrong
from roomscout.data.benchmark import BenchmarkError
from roomscout.data.questions import QuestionError
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader

FILES = (
    "run.json", "summary.json", "results.jsonl", "questions.jsonl", "baselines.json", "seen.jsonl", "marks.jsonl",
    "q001/turns.jsonl", "q001/messages.json",
)  # fmt: skip
PER_FILE = 5


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 7, 10**30, 2**63, 0.5, 1e308, float("nan"), float("inf"), "", "x", "\ud800", [], ["x"], [[1]],
    {}, {"x": 1}, nested(60),
)  # fmt: skip


@pytest.fixture(scope="module")
def small_run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three questions with everything that a run folder may have."""
    config = rooms.config(tmp_path_factory.mktemp("damaged"), num_questions=3, steps=2, anytime=True)
    run = run_in_process(config, scripted())
    assert run_main(["failures", str(run)]).returncode == 0
    mark = {"id": "x", "answer": "y", "mark": 3, "judge": "j", "prompts_sha256": "0"}
    (run / "marks.jsonl").write_text(json.dumps(mark) + "\n")
    return run


def read_everything(run: Path, intact: Path, out: Path) -> Iterator[Callable[[], object]]:
    """What the verbs that read a run do, one after another."""

    def report() -> None:
        read = RunContents.read(run)
        plans = FloorPlans(out / "maps", "z", 1.0)
        plans.draw = refused  # type: ignore[method-assign]  # scans are not part of a run
        questions = [read.answer(episode) for episode in read.episodes]
        pages = [script_json(page_of(question, read, plans, str)) for question in questions]
        entries = [question.entry for question in questions]
        script_json(index_of(entries))
        assert pages is not None
        template().render(**page_values(read, entries), data="", nonce="", styles=[], scripts=[])

    def replay() -> None:
        read = RunContents.read(run)
        find_answer(read, "q001")
        intrinsics_of(read.facts)

    def failures() -> None:
        reader = RunReader(run)
        failure_lines(reader.rows, Seen(reader.sights, (), 0))

    def board() -> None:
        tables = tables_of([standing_of(run)])
        markdown_of(tables)
        csv_of(tables)

    yield report
    yield replay
    yield failures
    yield board
    yield lambda: report_wrong(RunReader(run))
    yield lambda: load_trajectories(run)
    yield lambda: lines_of(compare(read_answers([intact, run]), ["questions", "steps"]))
    yield lambda: messages.write_as_text(RunContents.read(run), out / "file")


def refused(scan: object) -> Any:
    from roomscout.rendering.scene import SceneError

    raise SceneError("not drawn")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value inside a value."""
    for key, inside in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield (*path, key)
        yield from places(inside, (*path, key))


def mutated(value: Any, draw: random.Random) -> Any:
    """A copy with one value inside deleted or replaced."""
    changed = copy.deepcopy(value)
    *outer, last = draw.choice(list(places(value)) or [()]) or (None,)
    place = changed
    for key in outer:
        place = place[key]
    if last is None or draw.random() < 0.04:
        return draw.choice(VALUES)
    if draw.random() < 0.2:
        del place[last]
    else:
        place[last] = draw.choice(VALUES)
    return changed


@pytest.mark.parametrize("name", FILES)
def test_no_damaged_file_ends_in_a_traceback(small_run: Path, tmp_path: Path, name: str):
    draw, run = random.Random(name), tmp_path / "run"
    shutil.copytree(small_run, run)
    intact = (run / name).read_text()
    for _ in range(PER_FILE):
        if name.endswith(".json"):
            content = json.dumps(mutated(json.loads(intact), draw))
        else:
            lines = [json.loads(line) for line in intact.splitlines()]
            chosen = draw.randrange(len(lines))
            lines[chosen] = mutated(lines[chosen], draw)
            content = "".join(json.dumps(line) + "\n" for line in lines)
        (run / name).write_text(content)
        for step in read_everything(run, small_run, tmp_path):
            try:
                with suppress(RunError, QuestionError, BenchmarkError):
                    step()
            except Exception as error:
                raise AssertionError(f"{step} of {name}: {content[:3000]}") from error


DAMAGE: tuple[tuple[str, Callable[[Any], object], str], ...] = (
    ("run.json", lambda run: run["config"].update(samples=None), "run.json is damaged .*samples"),
    ("run.json", lambda run: run["config"].update(benchmark=["x"]), "run.json is damaged .*benchmark"),
    ("run.json", lambda run: run.update(resumed=[{"packages": 3}]), "run.json is damaged .*packages"),
    ("run.json", lambda run: run.update(started="yesterday"), "run.json is damaged .*yesterday"),
    ("run.json", lambda run: run["config"].update(scale=nested(50)), "run.json is damaged .*nested too deeply"),
    ("summary.json", lambda all_: all_.update(asked=[]), "summary.json is damaged .*asked"),
    ("summary.json", lambda all_: all_["types"].pop("all"), "summary.json is damaged .*lacks all"),
    ("summary.json", lambda all_: all_["cost"].update(generated_tokens=1e308), "summary.json is damaged .*too large"),
    ("baselines.json", lambda found: found["most_frequent"].update(answers=3), "baselines.json is damaged .*answers"),
    ("q001/messages.json", lambda talk: talk.append("x"), "messages.json is damaged"),
    ("q001/messages.json", lambda talk: talk[1].update(image="../../../mine.png"), "messages.json is damaged .*image"),
    ("q001/turns.jsonl", lambda turn: turn["pose"].update(x_m=1e200), "turns.jsonl, line 1 is damaged .*nowhere"),
    ("q001/turns.jsonl", lambda turn: turn.update(batch=[]), "turns.jsonl, line 1 is damaged .*batch"),
    ("q001/turns.jsonl", lambda turn: turn.update(turn=1), "turns.jsonl is damaged .*turn 0 is missing"),
    ("seen.jsonl", lambda seen: seen.update(surface=[]), "seen.jsonl, line 1 is damaged .*different numbers of turns"),
    ("results.jsonl", lambda row: row.update(score=None), "results.jsonl is damaged .*has no score"),
    ("results.jsonl", lambda row: row.update(turns=10**9), "results.jsonl, line 1 is damaged .*turns"),
)


def every_file(run: Path) -> None:
    reader = RunReader(run)
    _ = reader.facts, reader.summary, reader.guesses, reader.sights, reader.rows, reader.questions
    for episode in reader.begun:
        _ = reader.turns(episode), reader.messages(episode)


@pytest.mark.parametrize(("name", "change", "says"), DAMAGE)
def test_a_damaged_value_is_named_with_its_file(
    small_run: Path, tmp_path: Path, name: str, change: Callable[[Any], object], says: str
):
    path = Path(shutil.copytree(small_run, tmp_path / "run")) / name
    first, *others = path.read_text().splitlines() if name.endswith("l") else [path.read_text()]
    value = json.loads(first)
    change(value)
    path.write_text("\n".join([json.dumps(value), *others]) + "\n")
    with pytest.raises(RunError, match=says):
        every_file(tmp_path / "run")


def test_a_list_of_runs_shows_the_others_beside_a_damaged_one(small_run: Path, tmp_path: Path):
    good, bad = (Path(shutil.copytree(small_run, tmp_path / name)) for name in ("good", "bad"))
    facts = json.loads((bad / "run.json").read_text())
    facts["config"]["samples"] = None
    (bad / "run.json").write_text(json.dumps(facts))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "run.json").write_text("[" * 100_000)
    page = RunList(tmp_path).page()
    assert "samples" in page
    assert "nested too deeply" in page
    assert "3 questions" in page
    assert (good.name, bad.name) == ("good", "bad")


def test_a_verb_refuses_a_damaged_run_with_status_2(small_run: Path, tmp_path: Path):
    run = shutil.copytree(small_run, tmp_path / "run")
    (run / "run.json").write_text("{}")
    for verb in (["report", str(run)], ["wrong", str(run)], ["leaderboard", str(run)], ["replay", str(run), "1"]):
        ended = run_main(verb)
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1
