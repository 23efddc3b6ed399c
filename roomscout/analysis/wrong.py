"""roomscout wrong RUN: the answers of a run that score less than 1, worst first."""

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
    of all types and scenes if none are given. Raises RunError if the run lacks one."""
    _ = reader.facts  # raises RunError for a folder that is not a run
    chosen = chosen_rows(reader.rows, types, scenes)
    if failed:
        listed = [row for row in chosen if row.failed]
    else:
        listed = [row for row in chosen if row.score is not None and row.score < 1 and not row.failed]
    listed.sort(key=lambda row: (row.score or 0.0, row.episode))
    heading = [_heading(chosen, listed, failed)]
    awaiting = sum(row.score is None and row.ground_truth is not None for row in chosen)
    if awaiting and not failed:
        folder = shlex.quote(str(reader.folder))
        heading.append(f"Not scored yet: {awaiting}; to score them: roomscout rescore {folder} --judge MODEL")
    if not listed:
        return heading
    sights = reader.sights
    rows = [
        {
            "folder": str(row.episode),
            "score": decimal(row.score, "g"),
            "turns": str(row.turns),
            "type": row.question_type,
            "scene": f"{row.dataset} {row.scene_name}",
        }
        for row in listed
    ]
    details = (_details(row, sights.get(row.episode)) for row in listed)
    return [*heading, "", *Table.of(rows, left=range(5)).lines_with(details)]


def _heading(chosen: Sequence[ResultRow], listed: Sequence[ResultRow], failed: bool) -> str:
    if failed:
        return f"Failed: {len(listed)} of {len(chosen)}"
    zero = sum(row.score == 0 for row in listed)
    scored = sum(row.score is not None and not row.failed for row in chosen)
    failures = sum(row.failed for row in chosen)
    words = f"Wrong: {zero} of {scored}, partly right: {len(listed) - zero}"
    return words + (f"; failed: {failures}, by an error and not by an answer (--failed lists them)" if failures else "")


def _details(row: ResultRow, sight: Sight | None) -> list[str]:
    """The question, the answer with the right one or why there is none, and how well its objects were in view."""
    if row.failed:
        answer = f"failed ({row.failed_part}): {row.error}"
    else:
        answer = f"answered {row.answer_in_words}" if row.answer is not None else "no answer"
    right = [f"right: {row.truth_in_words}"] if row.ground_truth is not None else []
    in_view = [f"in view: {sight.in_words}"] if sight is not None and sight.objects else []
    return [row.question, "; ".join([answer, *right]), *in_view]
