"""Measures the loop's CPU time per turn with a trivial policy: moving, rendering, encoding, writing, scheduling.

    python -m roomscout.speed.loop

Compares two runs on the same rooms that differ only in the number of questions. The cost of a turn is the difference in
CPU time divided by the difference in turns, so that loading scans and choosing first views cancel out.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from roomscout.agent.config import RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.state import QuestionState
from roomscout.envs.actions import CameraAction
from roomscout.rooms import QUESTIONS_FILE, write_rooms

FEW, MANY = 4, 36


class Wander(Policy):
    """Moves in every turn except the last, each question along a different path."""

    name = "wander"

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """Rotate by an angle that depends on question and turn, then move half a metre forward."""
        return [Decision(self._action(state)) for state in states]

    def _action(self, state: QuestionState) -> CameraAction:
        if state.is_last_turn:
            return CameraAction(answer=state.question.letters[0] if state.question.letters else "1", done=True)
        return CameraAction(rotation_angle_degrees=20.0 + 7 * (state.number % 9) + state.turn, forward_meters=0.5)


def main() -> None:
    """Measure and print one line per renderer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image-size", type=int, nargs=2, default=(640, 480), metavar=("W", "H"))
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    logging.getLogger("roomscout").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        rooms = Path(folder) / "rooms"
        write_rooms(rooms, rooms=2, seed=0)
        config = RunConfig.of(
            batch=True, questions=rooms / QUESTIONS_FILE, scan_root=rooms, log_root=Path(folder) / "logs",
            image_size=tuple(args.image_size), max_batched_turns="all",
        )  # fmt: skip
        for renderer in ("raycast", "blind"):
            costs = [cost_of_a_turn(config.having(renderer=renderer)) for _ in range(args.repeats + 1)][1:]
            print(
                f"{renderer}: {1e3 * statistics.median(costs):.1f} ms of CPU time per turn "
                f"({1e3 * min(costs):.1f} to {1e3 * max(costs):.1f})"
            )


def cost_of_a_turn(config: RunConfig) -> float:
    """CPU seconds per turn, over all threads."""
    (few_s, few), (many_s, many) = (measure(config.having(num_questions=count)) for count in (FEW, MANY))
    return (many_s - few_s) / (many - few)


def measure(config: RunConfig) -> tuple[float, int]:
    """CPU seconds of a run, over all threads, and its number of turns."""
    started = time.process_time()
    rows = main_vsi_bench_loop(config, policy=Wander()).rows
    return time.process_time() - started, sum(row.turns for row in rows)


if __name__ == "__main__":
    main()
