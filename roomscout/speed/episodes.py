"""Measures steps per second of 1, 8 and 64 episodes at once in `VectorEnv`, beside the loop of runs without a model.

All episodes are about one procedural room and turn by 30 degrees in each step. Usage:

    python -m roomscout.speed.episodes [--steps 16] [--image-size 640 480] [--json FILE]
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from roomscout import Policy, Question, VectorEnv, explore
from roomscout.agent.policies import Decision
from roomscout.agent.state import QuestionState
from roomscout.base.extras import importing
from roomscout.base.files import new_file
from roomscout.data.questions import load_questions
from roomscout.envs.actions import CameraAction
from roomscout.rooms import QUESTIONS_FILE, write_rooms

with importing("psutil", "this measurement", SystemExit):
    import psutil

TURN = '{"rotation_angle_degrees": 30, "answer": null, "done": false}'
AT_ONCE = (1, 8, 64)


class Turns(Policy):
    """Turns by 30 degrees."""

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """The same move for each question."""
        return [Decision(CameraAction(rotation_angle_degrees=30.0)) for _ in states]


def loop_steps_per_s(questions: list[Question], settings: dict[str, Any]) -> float:
    """Moves per second of a run in memory, its start included in neither this nor the other figure."""
    explore(questions[:1], policy=Turns(), progress=False, **{**settings, "steps": 1})  # loads libraries
    timed = []
    for steps in (1, settings["steps"]):
        started = time.perf_counter()
        explore(questions, policy=Turns(), progress=False, **{**settings, "steps": steps})
        timed.append(time.perf_counter() - started)
    return len(questions) * (settings["steps"] - 1) / (timed[1] - timed[0])


def episodes_steps_per_s(questions: list[Question], settings: dict[str, Any]) -> tuple[float, float]:
    """Moves per second of as many episodes, and MiB of memory that they add to the process."""
    at_once, process = len(questions), psutil.Process()
    with VectorEnv(at_once, questions, **settings) as many:
        many.reset(questions=[0] * at_once)
        before = process.memory_info().rss
        many.step([TURN] * at_once)
        started = time.perf_counter()
        for _ in range(settings["steps"] - 1):
            many.step([TURN] * at_once)
        seconds = time.perf_counter() - started
        return at_once * (settings["steps"] - 1) / seconds, (process.memory_info().rss - before) / 2**20


def endless_reset_s(at_once: int, settings: dict[str, Any]) -> float:
    """Seconds to begin as many episodes in endless rooms, each in another one."""
    with VectorEnv(at_once, endless=True, renderer="raycast", image_size=settings["image_size"]) as many:
        started = time.perf_counter()
        many.reset(seeds=list(range(at_once)))
        return time.perf_counter() - started


def main() -> None:
    """Measure, and print a line for each number of episodes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=16, help="moves of each episode (%(default)s)")
    parser.add_argument("--image-size", type=int, nargs=2, default=(640, 480), metavar=("W", "H"))
    parser.add_argument("--json", type=new_file, help="also write the figures into this file")
    options = parser.parse_args()
    figures = []
    with TemporaryDirectory() as folder:
        write_rooms(Path(folder), rooms=1, seed=3)
        one = load_questions(Path(folder) / QUESTIONS_FILE)[0]
        settings = {
            "scan_root": Path(folder),
            "renderer": "raycast",
            "image_size": tuple(options.image_size),
            "steps": options.steps,
        }
        for at_once in AT_ONCE:
            questions = [Question(**{**vars(one), "id": str(number)}) for number in range(at_once)]
            loop = loop_steps_per_s(questions, {**settings, "max_batched_turns": "all"})
            episodes, memory_mib = episodes_steps_per_s(questions, settings)
            reset = endless_reset_s(at_once, settings)
            found = {"steps_per_s": episodes, "loop_steps_per_s": loop, "mib": memory_mib, "endless_reset_s": reset}
            figures.append({"episodes": at_once, **found})
            print(
                f"{at_once:3} episodes: {episodes:6.1f} steps/s, the loop without a model {loop:6.1f} "
                f"({episodes / loop - 1:+.0%}); {memory_mib:.0f} MiB more memory; "
                f"{reset:.1f} s to begin in endless rooms"
            )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
