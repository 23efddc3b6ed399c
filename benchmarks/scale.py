"""Shows how near N workers come to N times the speed of one.

    python -m benchmarks.scale [--json FILE]
    python -m benchmarks.scale --real     (needs the package ray)

By default nothing is run and clocks are virtual: questions are taken from the queue and batched by the code of real
runs, and a call lasts as long as `Engine` expects of an 8B model on an H100. With --real, Ray and the loop answer fewer
questions with a policy that sleeps a share of these times, and the figures are compared with the simulation of the
same.

The efficiency of N workers is the time of one worker with its best schedule, divided by N times theirs, from their mean
start to the end of the merge, and `with_startup` from the command on. `unlike` is what the time becomes if one worker
has half the speed, against the ideal of that, and `failure` if one loses its call halfway and starts again.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import new_file
from benchmarks.roofline import Rates, Work
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.state import QuestionState, Status
from roomscout.cluster.in_parts import answer_in_parts
from roomscout.cluster.parts import ChunkQueue
from roomscout.data.benchmarks import DEFAULT, find_benchmark
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
STARTUP_S = (25.0, 35.0)  # seconds for Ray, imports and the plan, before the weights: an assumption
FILES, WEIGHTS, WORKERS_A_NODE = 2e9, 17.5e9, 8
"""Bytes a second that the file system gives to all nodes together, those of the weights, which each node reads once,
and the workers of a node. Assumptions."""
MERGE_S, EXPORT_S = 0.002, 0.0005
"""Seconds per question to take a finished part into the run, and to write the tables of all. Measured on
two loaded cores."""
WORK = Work(7_568_405_504, 453_361_456, 2, kv_bytes_per_token=147_456, layers=36, encoder_layers=27)
RATES = Rates(3.015e12, 791.2e12)  # of Qwen3-VL-8B in bfloat16, and of an H100 SXM: copies and matrix products
REPLY, REPLY_SIGMA, MOST_TOKENS = 200, 0.5, 512
"""Tokens of a reply: the mean, the standard deviation of its logarithm, and the limit."""
FIRST_TEXT, TURN_TEXT, IMAGE, PATCHES = 518, 160, 300, 4
"""Tokens of the first text, of each later one and of a view of 640x480, and the patches of a token."""
LAYER_S, VIEW_S = 0.4e-3, 6e-3
"""Seconds that each layer of a step takes at least as a graph (speed.md), and those of drawing the last view."""
BUCKET = 8  # rows of the smallest graph, and by how many rows the others differ
BATCHES = (8, 16, 22, 32, 43)  # the batch sizes of which a single worker takes the best; 43 fit an H100
SLOWER = 8  # how many times as long a call takes as the policy of --real sleeps


@dataclass(frozen=True)
class Engine:
    """How long calls of a model take, with keys and values kept: Qwen3-VL-8B on an H100, with graphs. An assumption.

    A decoding step takes half as long again as its roofline and prefill twice as long, both at least `LAYER_S` per
    layer. Rows that have ended leave once a graph for fewer rows, a multiple of `BUCKET`, serves the rest. A question
    takes up to `turns` turns, each as likely to be its last.
    """

    batch_size: int = 43
    turns: int = 9
    refill: bool = False

    def turns_of(self, question: Question) -> int:
        """How many turns a question takes."""
        return random.Random(f"{question.id} turns").randint(1, self.turns)

    def seconds(self, states: Sequence[QuestionState]) -> float:
        """Seconds of a call for the next turn of these questions, and of drawing the last view."""
        rows = len(states)
        turns = [state.turn for state in states]
        new = sum((TURN_TEXT if turn else FIRST_TEXT) + IMAGE for turn in turns)
        lengths = [FIRST_TEXT + IMAGE + turn * (TURN_TEXT + IMAGE + REPLY) for turn in turns]
        prefill = 2 * WORK.least_prefill_seconds(RATES, new, PATCHES * rows * IMAGE)
        seconds = max(prefill, LAYER_S * (WORK.layers + WORK.encoder_layers)) + VIEW_S
        draws = (random.Random(f"{state.question.id} {state.turn}") for state in states)
        mu = math.log(REPLY) - REPLY_SIGMA**2 / 2
        ends = [min(draw.lognormvariate(mu, REPLY_SIGMA), MOST_TOKENS) for draw in draws]
        replies = sorted(zip(ends, lengths, strict=True))
        done = 0.0
        for place, (end, _) in enumerate(replies, start=1):
            left = len(replies) - place
            if math.ceil(left / BUCKET) < math.ceil(rows / BUCKET):
                held = sum(length for _, length in replies[-rows:]) + rows * (done + end) / 2
                step = 1.5 * WORK.least_step_seconds(RATES, rows, held)
                seconds += (end - done) * max(step, LAYER_S * WORK.layers)
                rows = left
                done = end
        return seconds


def questions_on_scenes(count: int, scenes: int, like: Question) -> list[Question]:
    """Questions on scenes with unequal numbers of them: one each, and others by log-normal weights.

    With VSI-Bench's 5,130 on 288 scenes, 2 to 71, and 16 in the median.
    """
    draw = np.random.default_rng(0)
    weights = draw.lognormal(0, 0.5, scenes)
    sizes = 1 + draw.multinomial(count - scenes, weights / weights.sum())
    names = [f"scene{number:04d}_00" for number in range(scenes) for _ in range(sizes[number])]
    return [replace(like, id=str(place), scene_name=name) for place, name in enumerate(names)]


class VirtualQueue(ChunkQueue):
    """The queue without its folder."""

    def __init__(self, questions: Sequence[Question], workers: int) -> None:
        super().__init__(Path(), questions, workers)
        self._of = dict[int, int]()

    def claim(self, number: int, part: int) -> bool:
        """See ChunkQueue."""
        return self._of.setdefault(number, part) == part

    def _taken(self, part: int | str) -> list[int]:
        return sorted(number for number, of in self._of.items() if part in ("*", of))


def scheduler_of(engine: Engine, questions: Sequence[Question], **more: Any) -> Scheduler:
    """The scheduler of a run whose turns are all batched."""
    states = [QuestionState(number, question, engine.turns - 1) for number, question in enumerate(questions, 1)]
    return Scheduler(states, engine.batch_size, engine.turns, engine.refill, **more)


def calls_of(scheduler: Scheduler, engine: Engine) -> Iterator[float]:
    """The seconds of each call; questions are taken from the queue when the call before is over."""
    left = dict[str, int]()
    while scheduler.has_work:
        scheduler.admit()
        batch = scheduler.next_batch()
        if not batch:
            continue
        yield engine.seconds(batch)
        for state in batch:
            state.turns.append(None)  # type: ignore[arg-type]  # only counted
            id = state.question.id
            left[id] = left.get(id, engine.turns_of(state.question)) - 1
            state.status = Status.ACTIVE if left[id] else Status.ANSWERED


def best_alone(questions: Sequence[Question], engine: Engine) -> tuple[float, Engine]:
    """The time of one worker with its best schedule, and that."""
    times = dict[Engine, float]()
    for batch_size, refill in product(sorted({*BATCHES, engine.batch_size}), (False, True)):
        schedule = replace(engine, batch_size=batch_size, refill=refill)
        times[schedule] = sum(calls_of(scheduler_of(schedule, scene_order(questions)), schedule))
    best = min(times, key=lambda schedule: times[schedule])
    return times[best], best


def ends_of(
    questions: Sequence[Question],
    engine: Engine,
    ready_s: Sequence[float],
    speeds: Sequence[float],
    failing: bool = False,
) -> list[float]:
    """When each worker ends that is ready and as fast as given. With `failing`, the first loses its third call halfway
    and starts again."""
    queue = VirtualQueue(questions, len(ready_s))

    def more(worker: int) -> Callable[[int], list[QuestionState]]:
        return lambda most: [QuestionState(0, question, engine.turns - 1) for question in queue.take(worker + 1, most)]

    calls = [calls_of(scheduler_of(engine, (), more=more(worker)), engine) for worker in range(len(ready_s))]
    free = [(at, worker) for worker, at in enumerate(ready_s)]
    ends = list(ready_s)
    number = 0
    heapify(free)
    while free:
        at, worker = free[0]
        seconds = next(calls[worker], None)
        if seconds is None:
            ends[worker] = at
            heappop(free)
            continue
        number += worker == 0  # the calls of the first worker
        lost = seconds / 2 + startup_s(0, 1) if failing and worker == 0 and number == 3 else 0.0
        heapreplace(free, (at + lost + seconds / speeds[worker], worker))
    return ends


def startup_s(worker: int, workers: int) -> float:
    """When a worker is ready: its node has read the weights, while all nodes share the file system."""
    nodes = math.ceil(workers / WORKERS_A_NODE)
    return random.Random(f"worker {worker}").uniform(*STARTUP_S) + nodes * WEIGHTS / FILES


def simulate(questions: Sequence[Question], counts: Sequence[int], engine: Engine) -> list[dict[str, Any]]:
    """The figures of runs on so many workers."""
    alone, best = best_alone(questions, engine)
    after = (MERGE_S + EXPORT_S) * len(questions)
    rows = list[dict[str, Any]]()
    for count in counts:
        ready = [startup_s(worker, count) for worker in range(count)]
        even = [1.0] * count
        ends = ends_of(questions, engine, [0.0] * count, even)
        slow = [0.5, *even[1:]]
        ideal = alone / (count - 0.5)
        rows.append({
            "workers": count,
            "seconds": max(ends) + after,
            "efficiency": alone / count / (max(ends) + after),
            "tail": max(ends) - min(ends),
            "seconds_with_startup": max(ends_of(questions, engine, ready, even)) + after,
            "unlike": max(ends_of(questions, engine, [0.0] * count, slow)) / ideal,
            "failure": max(ends_of(questions, engine, [0.0] * count, even, True)) / (alone / count),
            "alone": f"batches of {best.batch_size}{', refilled' if best.refill else ''}",
        })  # fmt: skip
        rows[-1]["efficiency_with_startup"] = alone / count / rows[-1]["seconds_with_startup"]
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
                questions=folder / "all.jsonl", scan_root=folder, log_root=folder / f"on_{workers}",
                ray=True, replicas=workers, policy=f"{folder / 'sleeping.py'}:Sleeping", renderer="raycast",
                image_size=(16, 16), focal=8.0, batch_size=engine.batch_size,
            )  # fmt: skip
            started = time.time()
            run = answer_in_parts(divide(settings)).folder
            assert run is not None and len(RunReader(run).rows) == count
            begun = (datetime.fromisoformat(RunReader(part).facts.started).timestamp() for part in parts_of_run(run))
            ready = [at - started for at in sorted(begun)]
            last = max(ends_of(questions, engine, [SLOWER * at for at in ready], [1.0] * len(ready))) / SLOWER
            ends = {
                "": (run / "results.jsonl").stat().st_mtime - started,
                "simulated_": last + (MERGE_S + EXPORT_S) * count,
            }
            row: dict[str, Any] = {"workers": workers, "startup_seconds": sum(ready) / len(ready)}
            rows.append(row)
            for kind, end in ends.items():
                row[kind + "seconds"] = end - row["startup_seconds"]
                row[kind + "efficiency"] = rows[0][kind + "seconds"] / workers / row[kind + "seconds"]
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
    usual_count, usual_scenes, usual_workers = (160, 32, WORKERS[:4]) if options.real else (5130, 288, WORKERS)
    count = options.questions or usual_count
    scenes = options.scenes or usual_scenes
    counts = sorted({1, *(options.workers or usual_workers)})
    if not 1 <= scenes <= count or counts[0] < 1:
        parser.error("--questions takes a number that is not below --scenes, and --workers numbers from 1")
    like = with_kind(Question("", "scannet", "", "object_counting", ASKED, ground_truth="2"), find_benchmark(DEFAULT))
    engine = Engine(batch_size=8 if options.real else Engine.batch_size)
    if options.real:
        print(f"REAL: on Ray, {count} questions on {scenes} scenes; each call sleeps 1/{SLOWER} of its time")
        rows = real(engine, count, scenes, counts)
        print_table(rows, "workers", "startup_seconds", "seconds", "efficiency", "simulated_seconds",
                    "simulated_efficiency")  # fmt: skip
    else:
        print(f"SIMULATED: {count} questions on {scenes} scenes, Qwen3-VL-8B on H100s, batches of {engine.batch_size}")
        questions = questions_on_scenes(count, scenes, like)
        for refill in (False, True):
            print(f"--{'' if refill else 'no-'}refill")
            rows = simulate(questions, counts, replace(engine, refill=refill))
            print_table(rows, "workers", "seconds", "efficiency", "tail", "seconds_with_startup",
                        "efficiency_with_startup", "unlike", "failure")  # fmt: skip
        print(f"The best schedule of one worker: {rows[0]['alone']}")
    if options.json:
        about = {"simulated": not options.real, "questions": count, "scenes": scenes, "batch_size": engine.batch_size}
        options.json.write_text(json.dumps(about | {"workers": rows}, indent=1) + "\n", encoding="utf-8")


def print_table(rows: Sequence[dict[str, Any]], *columns: str) -> None:
    """Print these figures of each row below their names."""
    print("  ".join(columns))
    for row in rows:
        places = {name: 0 if "seconds" in name or name in ("workers", "tail") else 3 for name in columns}
        print("  ".join(f"{row[name]:{len(name)}.{places[name]}f}" for name in columns))


if __name__ == "__main__":
    main()
