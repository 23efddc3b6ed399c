"""roomscout wrong RUN: the answers, or pairs of answers, of a run that score less than 1, worst first."""

import shlex
import sys
from collections.abc import Sequence

from roomscout.analysis.verbs import add_choices, chosen_rows, chosen_run, print_lines
from roomscout.base.tables import Table, decimal
from roomscout.base.text import replace_unencodable
from roomscout.base.verbs import Parser
from roomscout.runs.reader import RunReader
from roomscout.runs.records import ResultRow
from roomscout.runs.sights import Sight
from roomscout.scoring.pairs import below_full


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0. Raises RunError."""
    parser = Parser(prog="roomscout wrong")
    add_choices(parser)
    parser.add_argument(
        "--failed", action="store_true", help="only questions that failed, scored or not, with the reason"
    )
    options = parser.parse_intermixed_args(arguments)
    replace_unencodable(sys.stdout)
    folder = chosen_run(options)
    lines = report_wrong(RunReader(folder), options.types, options.scenes, options.failed)
    print_lines(lines)
    return 0


def report_wrong(
    reader: RunReader, types: Sequence[str] = (), scenes: Sequence[str] = (), failed: bool = False
) -> list[str]:
    """The wrong and partly right answers, and with `failed` the failed questions, as lines, by score, then by number;
    of all types and scenes if none are given. The two answers of a pair count and are listed as one, the worse first.
    Raises RunError if the run lacks one."""
    _ = reader.facts  # raises RunError for a folder that is not a run
    chosen = chosen_rows(reader.rows, types, scenes)
    below, how_many = below_full(chosen, reader.benchmark)
    failures = [row for row in chosen if row.failed]
    if failed:
        listed = [[row] for row in sorted(failures, key=lambda row: row.episode)]
        heading = [f"Failed: {len(failures)} of {len(chosen)}"]
    else:
        listed = below
        hint = f"; failed: {len(failures)}, by an error and not by an answer (--failed lists them)" if failures else ""
        heading = [how_many + hint]
    awaiting = sum(row.score is None and row.ground_truth is not None for row in chosen)
    if awaiting and not failed:
        folder = shlex.quote(str(reader.folder))
        heading.append(f"Not scored yet: {awaiting}; to score them: roomscout rescore {folder} --judge MODEL")
    if not listed:
        return heading
    sights = reader.sights
    rows = [
        {
            "folder": ", ".join(str(row.episode) for row in answers),
            "score": decimal(answers[0].score, "g"),
            "turns": ", ".join(str(row.turns) for row in answers),
            "type": answers[0].question_type,
            "scene": ", ".join(dict.fromkeys(f"{row.dataset} {row.scene_name}" for row in answers)),
        }
        for answers in listed
    ]
    details = (
        [answers[0].question, *(line for row in answers for line in _details(row, sights.get(row.episode)))]
        for answers in listed
    )
    return [*heading, "", *Table.of(rows, left=range(5)).lines_with(details)]


def _details(row: ResultRow, sight: Sight | None) -> list[str]:
    """The answer with the right one or why there is none, and how well the objects of the question were in view."""
    if row.failed:
        answer = f"failed ({row.failed_part}): {row.error}"
    else:
        answer = f"answered {row.answer_in_words}" if row.answer is not None else "no answer"
    right = [f"right: {row.truth_in_words}"] if row.ground_truth is not None else []
    in_view = [f"in view: {sight.in_words}"] if sight is not None and sight.objects else []
    return ["; ".join([answer, *right]), *in_view]
