"""Shows how near N workers come to N times the speed of one.

    python -m benchmarks.scale [--json FILE]
    python -m benchmarks.scale --real     (needs the package ray)

By default nothing is run and clocks are virtual: questions are divided, handed out and batched by the code of real
runs, and a call lasts as long as `Engine` expects of an 8B model on an H100, with as many decoding steps as its longest
reply has tokens. With --real, Ray and the loop answer fewer questions with a policy that sleeps a share of these times,
and the figures are compared with the simulation of the same.

The efficiency of N workers is the time of one, divided by N times theirs, to the end of the merge: without start-up,
and `with_startup` from the command on.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heapify, heapreplace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.roofline import Rates, Work
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.state import QuestionState, Status
from roomscout.base.files import new_file
from roomscout.cluster.in_parts import answer_in_parts
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.data.parts import cut
from roomscout.data.question import with_kind
from roomscout.data.questions import Question, load_questions, saved
from roomscout.data.scans import scene_order
from roomscout.edge.dividing import divide
from roomscout.edge.settings import Settings
from roomscout.envs.actions import CameraAction
from roomscout.rooms import QUESTIONS_FILE, write_rooms
from roomscout.runs.reader import RunReader, parts_of_run

ASKED = "How many chair(s) are in this room?"
WORKERS = (1, 2, 4, 8, 16, 32, 64)
STARTUP_S = (90.0, 150.0)
"""How long a worker takes until it is ready: 30 seconds for Ray, imports and the plan, and 60 to 120 for the weights,
which is 150 to 300 MB/s for each of the workers. An assumption."""
MERGE_S, EXPORT_S = 0.002, 0.0005
"""Seconds per question to take a finished part into the run, and to write the tables of all. Measured on
two loaded cores."""
WORK = Work(7_568_405_504, 453_361_456, 2, kv_bytes_per_token=147_456, layers=36, encoder_layers=27)
RATES = Rates(3.015e12, 791.2e12)
"""Of Qwen3-VL-8B in bfloat16, and of an H100 SXM: copies and matrix products."""
REPLY, REPLY_SPREAD, MOST_TOKENS = 200, 0.25, 512
"""Tokens of a reply: the mean, the standard deviation relative to it, and the limit."""
FIRST_TEXT, TURN_TEXT, IMAGE, PATCHES = 518, 160, 300, 4
"""Tokens of the first text, of each later one and of a view of 640x480, and the patches of a token."""
LAYER_S, VIEW_S = 0.75e-3, 6e-3
"""Seconds that each layer of a call takes at least, for Python and kernel launches, and those of drawing a view."""
SLOWER = 8
"""How many times as long a call takes as the policy of --real sleeps."""


@dataclass(frozen=True)
class Engine:
    """How long calls of a model take, with keys and values kept: Qwen3-VL-8B on an H100, not compiled. An assumption.

    A decoding step takes half as long again as its roofline and prefill twice as long, both at least `LAYER_S` per
    layer. A question takes up to `turns` turns, each as likely to be its last.
    """

    batch_size: int = 22
    turns: int = 9

    def turns_of(self, question: Question) -> int:
        """How many turns a question takes."""
        return random.Random(f"{question.id} turns").randint(1, self.turns)

    def seconds(self, states: Sequence[QuestionState]) -> float:
        """Seconds of a call for the next turn of these questions, and of drawing their next views."""
        rows, turns = len(states), [state.turn for state in states]
        draws = (random.Random(f"{state.question.id} {state.turn}") for state in states)
        longest = max(min(max(draw.gauss(REPLY, REPLY_SPREAD * REPLY), 1), MOST_TOKENS) for draw in draws)
        new = sum((TURN_TEXT if turn else FIRST_TEXT) + IMAGE for turn in turns)
        held = sum(FIRST_TEXT + IMAGE + turn * (TURN_TEXT + IMAGE + REPLY) for turn in turns) + rows * longest / 2
        prefill = 2 * WORK.least_prefill_seconds(RATES, new, PATCHES * rows * IMAGE)
        step = max(1.5 * WORK.least_step_seconds(RATES, rows, held), LAYER_S * WORK.layers)
        return max(prefill, LAYER_S * (WORK.layers + WORK.encoder_layers)) + longest * step + rows * VIEW_S


def questions_on_scenes(count: int, scenes: int, like: Question) -> list[Question]:
    """Questions on scenes with unequal numbers of them: one each, and others by log-normal weights.

    With VSI-Bench's 5,130 on 288 scenes, 2 to 71, and 16 in the median.
    """
    draw = np.random.default_rng(0)
    weights = draw.lognormal(0, 0.5, scenes)
    sizes = 1 + draw.multinomial(count - scenes, weights / weights.sum())
    names = [f"scene{number:04d}_00" for number in range(scenes) for _ in range(sizes[number])]
    return [replace(like, id=str(place), scene_name=name) for place, name in enumerate(names)]


def part_seconds(part: Sequence[Question], engine: Engine) -> float:
    """Seconds of all turns of a part, in the batches that the scheduler of runs makes."""
    schedule, moves = Settings(), engine.turns - 1
    states = [QuestionState(number, question, moves) for number, question in enumerate(scene_order(part), 1)]
    left = {state.number: engine.turns_of(state.question) for state in states}
    scheduler = Scheduler(states, min(engine.batch_size, len(states)), schedule.last_batched_turn + 1)
    seconds = 0.0
    while scheduler.has_work:
        scheduler.admit()
        batch = scheduler.next_batch() or scheduler.next_few()
        seconds += engine.seconds(batch)
        for state in batch:
            state.turns.append(None)  # type: ignore[arg-type]  # only counted
            left[state.number] -= 1
            state.status = Status.ACTIVE if left[state.number] else Status.ANSWERED
    return seconds


def parts_of(questions: Sequence[Question], workers: int, engine: Engine) -> list[tuple[int, float]]:
    """The parts for so many workers in the order in which they are taken: questions and seconds of each."""
    of = min(len({question.scene for question in questions}), workers)
    parts = sorted(cut(questions, of), key=len, reverse=True)
    return [(len(part), part_seconds(part, engine)) for part in parts]


def ended(parts: Sequence[tuple[int, float]], ready_s: Sequence[float]) -> tuple[float, list[float]]:
    """When the run ends, and when each worker does, if each takes the next part as soon as it can."""
    free, ends, finished = [(at, worker) for worker, at in enumerate(ready_s)], list(ready_s), []
    heapify(free)
    for questions, seconds in parts:
        at, worker = free[0]
        ends[worker] = at + seconds
        heapreplace(free, (ends[worker], worker))
        finished.append((ends[worker], questions))
    merged = 0.0
    for at, questions in sorted(finished):
        merged = max(merged, at) + MERGE_S * questions
    return merged + EXPORT_S * sum(questions for questions, _ in parts), ends


def simulate(questions: Sequence[Question], counts: Sequence[int], engine: Engine) -> list[dict[str, Any]]:
    """The figures of runs on so many workers; the first number must be 1."""
    rows: list[dict[str, Any]] = []
    for count in counts:
        parts = parts_of(questions, count, engine)
        ready = [random.Random(f"worker {number}").uniform(*STARTUP_S) for number in range(count)]
        row: dict[str, Any] = {"workers": count, "parts": len(parts)}
        for name, ready_s in (("", [0.0] * count), ("_with_startup", ready)):
            row["seconds" + name], ends = ended(parts, ready_s)
            row["efficiency" + name] = (rows or [row])[0]["seconds" + name] / count / row["seconds" + name]
            row["tail_seconds" + name] = max(ends) - min(ends)
        rows.append(row)
    return rows


class Sleeper(Policy):
    """Sleeps as long as a call of its engine takes, divided by SLOWER, and answers in the turn that the engine says."""

    engine: Engine

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """A turn by 30 degrees for each question, or its answer."""
        time.sleep(self.engine.seconds(states) / SLOWER)
        last = [state.turn + 1 >= self.engine.turns_of(state.question) for state in states]
        return [Decision(CameraAction(30.0, answer="2" if done else None, done=done)) for done in last]


def real(engine: Engine, count: int, scenes: int, counts: Sequence[int]) -> list[dict[str, Any]]:
    """The figures of runs on Ray, with `simulated_seconds`; seconds count from the mean start of the workers."""
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_rooms(folder, rooms=1, seed=0)
        (scan,) = folder.glob("scannet/scans/*/*.ply")
        like = replace(load_questions(folder / QUESTIONS_FILE)[0], scan=str(scan))
        questions = questions_on_scenes(count, scenes, like)
        (folder / "all.jsonl").write_text(saved(questions), encoding="utf-8")
        policy = f"from benchmarks.scale import *\nclass Sleeping(Sleeper):\n    engine = {engine!r}\n"
        (folder / "sleeping.py").write_text(policy, encoding="utf-8")
        for workers in counts:
            settings = Settings(
                batch=True, questions=folder / "all.jsonl", scan_root=folder, log_root=folder / f"on_{workers}",
                ray=True, replicas=workers, policy=f"{folder / 'sleeping.py'}:Sleeping", renderer="raycast",
                image_size=(16, 16), focal=8.0, batch_size=engine.batch_size,
            )  # fmt: skip
            started = time.time()
            run = answer_in_parts(divide(settings, None)).folder
            assert run is not None and len(RunReader(run).rows) == count
            begun = (datetime.fromisoformat(RunReader(part).facts.started).timestamp() for part in parts_of_run(run))
            ready = [at - started for at in sorted(begun)[:workers]]
            parts = [(number, seconds / SLOWER) for number, seconds in parts_of(questions, workers, engine)]
            ends = (run / "results.jsonl").stat().st_mtime - started, ended(parts, ready)[0]
            row: dict[str, Any] = {"workers": workers, "parts": len(parts), "startup_seconds": sum(ready) / workers}
            for name, end in zip(("", "simulated_"), ends, strict=True):
                row[name + "seconds"] = end - row["startup_seconds"]
                row[name + "efficiency"] = (rows or [row])[0][name + "seconds"] / workers / row[name + "seconds"]
            rows.append(row)
    return rows


def main() -> None:
    """Simulate, or run on Ray, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, help="5130, with --real 160")
    parser.add_argument("--scenes", type=int, help="288, with --real 32")
    parser.add_argument("--workers", type=int, nargs="+", metavar="N", help="1 to 64, with --real 1 to 8")
    parser.add_argument("--real", action="store_true", help="run on Ray, with batches of 8 and shorter times")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="also write the figures into this file")
    options = parser.parse_args()
    usual, workers = ((160, 32), WORKERS[:4]) if options.real else ((5130, 288), WORKERS)
    count, scenes = options.questions or usual[0], options.scenes or usual[1]
    counts = sorted({1, *(options.workers or workers)})
    if not 1 <= scenes <= count or counts[0] < 1:
        parser.error("--questions takes a number that is not below --scenes, and --workers numbers from 1")
    like = with_kind(Question("", "scannet", "", "object_counting", ASKED, ground_truth="2"), find_benchmark(DEFAULT))
    engine = Engine(batch_size=8 if options.real else Engine.batch_size)
    if options.real:
        print(f"REAL: on Ray, {count} questions on {scenes} scenes; each call sleeps 1/{SLOWER} of its time")
        rows = real(engine, count, scenes, counts)
        print_table(rows, "workers", "parts", "startup_seconds", "seconds", "efficiency", "simulated_seconds",
                    "simulated_efficiency")  # fmt: skip
    else:
        print(f"SIMULATED: {count} questions on {scenes} scenes, Qwen3-VL-8B on H100s, batches of {engine.batch_size}")
        rows = simulate(questions_on_scenes(count, scenes, like), counts, engine)
        print_table(rows, "workers", "parts", "seconds", "efficiency", "tail_seconds", "seconds_with_startup",
                    "efficiency_with_startup")  # fmt: skip
    if options.json:
        found = {"simulated": not options.real, "questions": count, "scenes": scenes, "batch_size": engine.batch_size}
        options.json.write_text(json.dumps(found | {"workers": rows}, indent=1) + "\n", encoding="utf-8")


def print_table(rows: Sequence[dict[str, Any]], *columns: str) -> None:
    """Print these figures of each row below their names."""
    print("  ".join(columns))
    for row in rows:
        print("  ".join(f"{row[name]:{len(name)}.{3 if 'efficiency' in name else 0}f}" for name in columns))


if __name__ == "__main__":
    main()
