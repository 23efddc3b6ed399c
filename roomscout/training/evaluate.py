"""`python -m roomscout.training.evaluate`: measure how much a checkpoint gains from exploring unseen rooms."""

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roomscout.agent.config import RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.base.text import escaped_lines, log_to_stream
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.questions import Question, load_questions
from roomscout.rooms import QUESTIONS_FILE, QUESTIONS_PER_TYPE, kept_rooms
from roomscout.runs.settings import NUM_STEPS
from roomscout.scoring.intervals import Difference, Estimate, differences, estimates
from roomscout.scoring.summary import most_frequent_answer, overall_label
from roomscout.training.notes import VIEWS
from roomscout.training.splits import SPLITS

log = logging.getLogger(__name__)

CONDITIONS: dict[str, dict[str, Any]] = {
    "explorer": {"renderer": "raycast"},
    "view 0 only": {"renderer": "raycast", "steps": 0},
    "blind": {"renderer": "blind"},
}
"""Run settings under which the same questions are answered."""


def spread(questions: Sequence[Question], per_type: int) -> list[Question]:
    """At most `per_type` questions of each type, spread evenly over the list to cover as many rooms as possible.

    Keeps the order.
    """
    chosen = []
    for name in BENCHMARK.by_name:
        of_type = [question for question in questions if question.question_type == name]
        count = min(per_type, len(of_type))
        chosen += [of_type[place * len(of_type) // count] for place in range(count)]
    kept = {question.id for question in chosen}
    return [question for question in questions if question.id in kept]


class Unfinished(Exception):
    """A condition, named by the message, did not finish, so conditions cannot be compared."""


def answers(config: RunConfig) -> dict[str, list[dict[str, Any]]]:
    """The result rows of a run in each of CONDITIONS; raises Unfinished if a run did not finish."""
    results = {}
    for name, changes in CONDITIONS.items():
        outcome = main_vsi_bench_loop(config.having(**changes))
        results[name] = [asdict(row) for row in outcome.rows]
        if outcome.status:
            raise Unfinished(
                f"{name}: ended with status {outcome.status}, {len(results[name])} questions; see "
                f"{config.output.log_root}"
            )
    return results


def overall_gain(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> Difference:
    """Overall score of `rows` minus that of `others` on the same questions, with its interval over rooms."""
    return differences(others, rows, BENCHMARK)[-1]


def table(results: Mapping[str, Sequence[Mapping[str, Any]]], questions: Sequence[Question]) -> list[str]:
    """A Markdown table: percent with 95 % interval per type and condition, and the most-frequent-answer baseline."""
    lines = [f"| type | questions | {' | '.join(results)} | most frequent answer |"]
    lines.append("|---" * (len(results) + 3) + "|")
    found = [{each.name: each for each in estimates(rows, BENCHMARK)} for rows in results.values()]
    for name in BENCHMARK.by_name:
        of_type = [question for question in questions if question.question_type == name]
        if of_type:
            cells = [_cell(of_condition[name]) for of_condition in found]
            frequent = most_frequent_answer(of_type, BENCHMARK)["overall"]
            lines.append(f"| {name} | {len(of_type)} | {' | '.join(cells)} | {frequent:.1f} |")
    overall = [_cell(of_condition["overall"]) for of_condition in found]
    frequent = most_frequent_answer(questions, BENCHMARK)["overall"]
    label = overall_label((question.question_type for question in questions), BENCHMARK)
    lines.append(f"| {label} | {len(questions)} | {' | '.join(overall)} | {frequent:.1f} |")
    return lines


def _cell(score: Estimate) -> str:
    if score.interval is None:
        return f"{score.percent:.1f}"
    low, high = score.interval
    return f"{score.percent:.1f} ({low:.0f}-{high:.0f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m roomscout.training.evaluate", description=__doc__)
    parser.add_argument("model", help="checkpoint folder")
    parser.add_argument("out", type=Path, help="folder for rooms, runs and the table")
    parser.add_argument("--rooms", type=int, default=200, help="number of rooms (%(default)s)")
    parser.add_argument("--per-type", type=int, default=200, help="maximum questions of each type (%(default)s)")
    parser.add_argument(
        "--split",
        choices=("validation", "test"),
        default="validation",
        help="validation rooms to compare checkpoints during development, test rooms for final results (%(default)s)",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="questions in one batch (%(default)s)")
    options = parser.parse_args(arguments)
    log_to_stream(sys.stderr, logging.WARNING)
    rooms = kept_rooms(options.out, options.rooms, SPLITS[options.split], QUESTIONS_PER_TYPE)
    asked_file = rooms / f"questions_{options.per_type}.jsonl"
    asked = spread(load_questions(rooms / QUESTIONS_FILE), options.per_type)
    asked_file.write_text("".join(json.dumps(question.row) + "\n" for question in asked), encoding="utf-8")
    config = RunConfig.of(
        **asdict(VIEWS),
        batch=True, questions=asked_file, scan_root=rooms, model=options.model,
        log_root=options.out / "runs", max_batched_turns="all",
        batch_size=options.batch_size,
    )  # fmt: skip
    try:
        results = answers(config)
    except Unfinished as error:
        sys.stderr.write(escaped_lines(str(error)) + "\n")
        return 1
    lines = [*table(results, asked), "", *_remarks(results)]
    (options.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (options.out / "rows.json").write_text(json.dumps(results), encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _remarks(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    explorer = results["explorer"]
    turns = sum(row["turns"] for row in explorer)
    errors = sum(row["parse_errors"] for row in explorer)
    lines = [
        f"Turns per question: {turns / len(explorer):.2f} of {NUM_STEPS + 1}; "
        f"readable replies: {1 - errors / turns:.2%}."
    ]
    for name in list(results)[1:]:
        gain = overall_gain(explorer, results[name])
        interval = f"{gain.interval[0]:+.1f} to {gain.interval[1]:+.1f}" if gain.interval else gain.missing
        lines.append(f"Explorer over {name}: {gain.percent:+.1f} points overall ({interval}).")
    return lines


if __name__ == "__main__":
    sys.exit(main())
