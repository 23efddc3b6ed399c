"""Tests that looking at a run executes no code that its run.json names, and still shows what the run recorded."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, only_run, run_main

from roomscout import load_trajectories
from roomscout.analysis.serve.runs import RunList
from roomscout.data.benchmarks import _loaded_code, find_benchmark
from roomscout.data.benchmarks.vsi_bench import BENCHMARK as VSI_BENCH
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader

OWN = """
from dataclasses import dataclass
from pathlib import Path

from roomscout.data.answers import Text
from roomscout.data.benchmark import Benchmark, QuestionType, mean_over_questions
from roomscout.data.benchmarks.vsi_bench import BENCHMARK as VSI_BENCH

Path(__file__).with_name("executed").touch()


@dataclass(frozen=True)
class Shout(Text):
    name = "shout"

    def score(self, answer, truth):
        return float(answer is not None and answer.upper() == truth.upper())


def half(benchmark, scores):
    return {name: 50 * percent for name, percent in mean_over_questions(benchmark, scores).items()}


OWN = Benchmark("own", "Own", (*VSI_BENCH.types, QuestionType("shouted", Shout())), label="own_overall")
HALVED = Benchmark("halved", "Halved", OWN.types, aggregate=half)
"""

VERBS = {
    "report": lambda run: ["report", run],
    "wrong": lambda run: ["wrong", run],
    "failures": lambda run: ["failures", run],
    "rescore": lambda run: ["rescore", run],
    "leaderboard": lambda run: ["leaderboard", run],
    "compare": lambda run: ["compare", run, f"{run}2"],
    "export": lambda run: ["export", run, "--to", "inspect", "--out", f"{run}.eval"],
    "replay": lambda run: ["replay", run, "1"],
}


def forgotten() -> None:
    """As in a new process: no code of a user is loaded."""
    _loaded_code.clear()
    find_benchmark.cache_clear()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file with two benchmarks of a user, which leaves a file when it is executed."""
    path = tmp_path / "code" / "own.py"
    path.parent.mkdir()
    path.write_text(OWN)
    return path


@pytest.fixture
def ran(rooms: RoomScans, tmp_path: Path, own: Path) -> Path:
    """A run of a user's benchmark, and what says that its code was executed is gone."""
    return run_of(f"{own}:OWN", rooms, tmp_path)


def run_of(benchmark: str, rooms: RoomScans, tmp_path: Path) -> Path:
    rows = [*rooms.rows[:2], {**rooms.rows[0], "id": "shout", "question_type": "shouted", "ground_truth": "bed"}]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({**row, "options": row.get("options")}) + "\n" for row in rows))
    flags = rooms.flags(tmp_path / "runs", "--benchmark", benchmark, "--questions", str(questions), "--steps", "1")
    ended = run_main(flags)
    assert ended.returncode == 0, ended.stderr
    run = tmp_path / "run"
    only_run(tmp_path / "runs").rename(run)
    shutil.copytree(run, tmp_path / "run2")
    (tmp_path / "code" / "executed").unlink()
    forgotten()
    return run


def named_by(run: Path, benchmark: str, described: bool) -> None:
    """Have a run name another benchmark, and with or without the description of its own."""
    for each in (run, Path(f"{run}2")):
        facts = json.loads((each / "run.json").read_text())
        facts["config"]["benchmark"] = benchmark
        if not described:
            del facts["benchmark"]
        (each / "run.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(("name", "described"), [("{own}:OWN", True), ("own:OWN", False)])
def test_no_reading_verb_executes_what_a_run_names(
    ran: Path, own: Path, name: str, described: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(own.parent)  # where a module of that name would be found
    named_by(ran, name.format(own=own), described)
    for flags in VERBS.values():
        ended = run_main(flags(str(ran)))
        assert ended.returncode in (0, 2), ended.stderr
    RunList(ran.parent, ran.parent).runs()
    assert not (own.parent / "executed").exists()


def test_what_was_recorded_of_a_benchmark_is_what_it_was(ran: Path, own: Path):
    recorded, found = RunReader(ran).benchmark, find_benchmark(f"{own}:OWN")
    same = ("name", "title", "label", "aggregate", "rescans", "sizes", "references", "datasets", "excluded")
    assert [getattr(recorded, each) for each in same] == [getattr(found, each) for each in same]
    assert [each.kind for each in recorded.types[:-1]] == [each.kind for each in VSI_BENCH.types]
    assert [(each.name, each.task, each.kind.name) for each in recorded.types] == [
        (each.name, each.task, each.kind.name) for each in found.types
    ]


def test_an_earlier_run_of_a_user_s_benchmark_is_one_sentence_with_the_flag(ran: Path, own: Path):
    named_by(ran, f"{own}:OWN", described=False)
    ended = run_main(VERBS["compare"](str(ran)))
    (line,) = ended.stderr.splitlines()
    assert "is Python code, which reading a run does not execute: add --allow-code" in line
    assert ended.returncode == 2


@pytest.mark.parametrize(
    ("benchmark", "verb", "words"),
    [
        ("OWN", "rescore", "answers of kind shout are scored by the code of"),
        ("HALVED", "compare", "the overall of Halved is computed by the code of"),
    ],
)
def test_what_a_user_s_code_computes_needs_the_flag(
    rooms: RoomScans, tmp_path: Path, own: Path, benchmark: str, verb: str, words: str
):
    run = run_of(f"{own}:{benchmark}", rooms, tmp_path)
    refused, allowed = (run_main([*VERBS[verb](str(run)), *more]) for more in ([], ["--allow-code"]))
    assert words in refused.stderr
    assert (refused.returncode, allowed.returncode) == (2, 0)


def test_trajectories_execute_no_code_unless_that_is_allowed(ran: Path, own: Path):
    assert len(load_trajectories(ran)) == 3
    named_by(ran, f"{own}:OWN", described=False)
    with pytest.raises(RunError, match="allow_code=True"):
        load_trajectories(ran)
    assert not (own.parent / "executed").exists()
    assert len(load_trajectories(ran, allow_code=True)) == 3


def test_resuming_executes_the_benchmark_and_describes_it(ran: Path, own: Path):
    named_by(ran, f"{own}:OWN", described=False)
    rows = (ran / "results.jsonl").read_text().splitlines(keepends=True)
    (ran / "results.jsonl").write_text("".join(rows[:-1]))
    ended = run_main(["resume", str(ran), "--no-report"])
    described = RunReader(ran).facts.benchmark
    assert ended.returncode == 0, ended.stderr
    assert described is not None
    assert described.name == "own"


@pytest.mark.parametrize("change", [{"types": [{}]}, {"rescans": {"a": "("}}, {"title": 1}])
def test_a_damaged_description_is_one_sentence(ran: Path, change: dict[str, Any]):
    facts = json.loads((ran / "run.json").read_text())
    facts["benchmark"].update(change)
    (ran / "run.json").write_text(json.dumps(facts))
    with pytest.raises(RunError, match="damaged"):
        _ = RunReader(ran).benchmark
