"""The verb `roomscout compare`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.compare.answers import read_answers
from roomscout.analysis.compare.comparison import compare
from roomscout.analysis.compare.conditions import known_names
from roomscout.analysis.compare.pages import csv_of, html_of, json_of, latex_of, lines_of, markdown_of
from roomscout.analysis.verbs import comparing_parser, print_lines, require_writable, write_files
from roomscout.base.text import replace_unencodable
from roomscout.runs import RunError
from roomscout.runs.reader import load_code_of, named_run

SUFFIXES = (".html", ".json", ".md", ".csv", ".tex")


def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0. Raises RunError or BenchmarkError."""
    parser = comparing_parser(
        "compare",
        runs="run folders or the names of runs below --log-root, or samples of lmms-eval's task vsibench (.jsonl)",
        even_if="compare although these settings differ, such as steps; with questions, those that all runs have; with "
        "protocol, whatever the settings",
        out="also write the comparison to these files: .html with links to reports, .json, .md, .csv or .tex",
    )
    parser.add_argument(
        "--failed-as-wrong", action="store_true",
        help="count failed questions as wrong answers; else the scores are over the questions that both runs finished",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    replace_unencodable(sys.stdout)
    log_root = options.log_root.expanduser()
    if len(options.runs) < 2:
        raise RunError("compare takes two runs or more: roomscout compare RUN RUN")
    require_writable(options.out, SUFFIXES)
    paths = [path.expanduser() if path.suffix == ".jsonl" else named_run(path, log_root) for path in options.runs]
    if options.allow_code:
        load_code_of(path for path in paths if path.suffix != ".jsonl")
    runs = read_answers(paths)
    even_if = known_names(options.even_if, (run.conditions for run in runs))
    comparison = compare(runs, even_if, options.failed_as_wrong)

    def text_of(out: Path) -> str:
        if out.suffix.lower() == ".json":
            return json.dumps(json_of(comparison), indent=2) + "\n"
        if out.suffix.lower() == ".html":
            return html_of(comparison, out)
        return {".md": markdown_of, ".csv": csv_of, ".tex": latex_of}[out.suffix.lower()](comparison)

    write_files(options.out, text_of)
    print_lines([*lines_of(comparison), *(f"Written: {out}" for out in options.out)])
    return 0
