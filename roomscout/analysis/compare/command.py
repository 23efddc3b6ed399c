"""The verb `roomscout compare`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.compare.answers import read_answers
from roomscout.analysis.compare.comparison import compare
from roomscout.analysis.compare.conditions import known_names
from roomscout.analysis.compare.pages import json_of, lines_of, markdown_of, page_values
from roomscout.analysis.outputs import require_writable, write_text
from roomscout.analysis.report.writer import style_of, templates
from roomscout.analysis.run_argument import add_log_root, print_lines
from roomscout.base.text import replace_unencodable
from roomscout.base.verbs import parser_of, refusing
from roomscout.data.benchmark import BenchmarkError
from roomscout.runs import RunError
from roomscout.runs.allow_code import add_allow_code, load_code_of
from roomscout.runs.reader import named_run

SUFFIXES = (".html", ".json", ".md")


@refusing(RunError, BenchmarkError)
def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0, or 2 after an error."""
    parser = parser_of(
        "compare",
        "Compare runs over the same questions with the first one: the difference per task and overall with "
        "an interval over scenes, the questions that flipped, and how many scenes the difference takes.",
    )
    parser.add_argument(
        "runs", type=Path, nargs="*", metavar="RUN",
        help="run folders or the names of runs below --log-root, or samples of lmms-eval's task vsibench (.jsonl)",
    )  # fmt: skip
    add_log_root(parser)
    parser.add_argument(
        "--even-if", nargs="+", default=(), metavar="NAME",
        help="compare although these settings differ, such as steps; with questions, those that all runs have; with "
        "protocol, whatever the settings",
    )  # fmt: skip
    parser.add_argument(
        "--failed-as-wrong", action="store_true",
        help="count failed questions as wrong answers; else the scores are over the questions that both runs finished",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, nargs="+", default=(), metavar="FILE",
        help="also write the comparison to these files: .html with links into the reports, .json or .md",
    )  # fmt: skip
    add_allow_code(parser)
    given = parser.parse_args(arguments)
    replace_unencodable(sys.stdout)
    log_root = given.log_root.expanduser()
    if len(given.runs) < 2:
        raise RunError("compare takes two runs or more: roomscout compare RUN RUN")
    require_writable(given.out, SUFFIXES)
    paths = [path.expanduser() if path.suffix == ".jsonl" else named_run(path, log_root) for path in given.runs]
    if given.allow_code:
        load_code_of(path for path in paths if path.suffix != ".jsonl")
    runs = read_answers(paths)
    even_if = known_names(given.even_if, (each.conditions or {} for each in runs))
    found = compare(runs, even_if, given.failed_as_wrong)
    template = templates("roomscout.analysis.compare").get_template("compare.html.j2")
    for out in (path.expanduser() for path in given.out):
        kind = out.suffix.lower()
        if kind == ".json":
            text = json.dumps(json_of(found), indent=2) + "\n"
        elif kind == ".md":
            text = markdown_of(found)
        else:
            text = template.render(**page_values(found, out), style=style_of("palette.css", "report.css"))
        write_text(out, text)
    print_lines([*lines_of(found), *(f"Written: {out}" for out in given.out)])
    return 0
