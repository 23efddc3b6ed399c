"""The verb `roomscout leaderboard`: one row per run, in a table for each set of runs that may be compared."""

import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roomscout.analysis.compare.answers import RunAnswers, read_run
from roomscout.analysis.compare.comparison import partial_in_words
from roomscout.analysis.compare.conditions import PROTOCOL, QUESTIONS, differing, in_words, known_names
from roomscout.analysis.compare.options import comparing_parser, write_files
from roomscout.analysis.outputs import markdown_text, require_writable
from roomscout.analysis.titles import answering
from roomscout.base.tables import Table, decimal, interval_in_words
from roomscout.base.text import escaped, replace_unencodable
from roomscout.runs import RunError
from roomscout.runs.allow_code import load_code_of
from roomscout.runs.prices import in_money, read_price
from roomscout.runs.reader import RunReader, named_run, run_folders
from roomscout.runs.records import RunFacts, Versions
from roomscout.scoring.intervals import INTERVAL

SUFFIXES = (".md", ".csv")


def standing_of(folder: Path, prices: Path | None = None) -> RunAnswers:
    """Read a run's row from run.json and summary.json; raises RunError, also if nothing is scored. `prices` is a file
    with the price of its model, instead of that with which it was run."""
    reader = RunReader(folder)
    facts = reader.facts
    summary = reader.summary
    run = read_run(reader)  # also refuses a run with damaged results, whose summary may be of others
    if summary is not None and summary.asked.awaiting_judge and summary.asked.label is None:
        raise RunError(f"{folder} is not scored yet: score it with roomscout rescore {folder} --judge MODEL")
    if summary is None or summary.asked.label is None or summary.asked.overall is None:
        raise RunError(f"{folder} has no overall: finish the run with roomscout resume, or leave it out")
    cost = summary.cost
    money = cost.money if cost else None
    if cost and prices is not None and facts.asks_model:
        try:
            money = read_price(prices, facts.config["model"]).of(*cost.tokens)
        except ValueError as error:
            raise RunError(str(error)) from None
    if money is not None:
        money /= summary.types["all"].questions
    return replace(run, rows=(), money=money)  # the rows of many runs would take much memory


def tables_of(runs: Iterable[RunAnswers], even_if: Container[str] = ()) -> list[list[RunAnswers]]:
    """The rows in tables of runs that may be compared, the best first; the largest table first. `even_if` has settings
    in which the runs of a table may differ; "protocol" stands for all."""
    tables: list[list[RunAnswers]] = []
    for run in runs:
        for table in tables:
            if not any(why_separate(other, run, even_if) for other in table):
                table.append(run)
                break
        else:
            tables.append([run])
    tables = [sorted(table, key=lambda run: -(run.summary.asked.overall or 0.0)) for table in tables]
    return sorted(tables, key=lambda table: -len(table))


def why_separate(first: RunAnswers, other: RunAnswers, even_if: Container[str] = ()) -> str:
    """Why two runs must not be compared, apart from the settings in `even_if`; empty if they may be."""
    reasons = []
    label = first.summary.asked.label
    other_label = other.summary.asked.label
    if first.benchmark.title != other.benchmark.title:
        reasons.append(f"another benchmark ({first.benchmark.title}, {other.benchmark.title})")
    elif first.facts.questions_sha256 != other.facts.questions_sha256:
        reasons.append("other questions")
    elif label != other_label:
        reasons.append(f"another overall ({label}, {other_label})")
    differs = {} if PROTOCOL in even_if else differing(first.conditions, other.conditions)
    if refused := {name: values for name, values in differs.items() if name not in even_if}:
        reasons.append(in_words(refused))
    return "; ".join(reasons)


def markdown_of(tables: Sequence[Sequence[RunAnswers]]) -> str:
    """The tables as Markdown, each with its questions and protocol; the last cell of a row names the run."""
    lines: list[str] = []
    for number, table in enumerate(tables, start=1):
        first = table[0]
        benchmark = first.benchmark
        label = first.summary.asked.label
        partial = partial_in_words(label, [*first.summary.asked.tasks], benchmark) if label else ""
        overall = "partial overall" if partial else str(label)
        if benchmark.scored_as:
            overall = f"scored as {benchmark.scored_as}"
        fingerprint = first.facts.questions_sha256[:12]
        notes = [f"{first.facts.questions:,} questions of {benchmark.title} (fingerprint {fingerprint})."]
        if partial:
            notes.append(f"Not a result of {benchmark.scored_as or 'the benchmark'}: {partial}.")
        notes += _condition_lines(table)
        if number > 1:
            notes.append(f"Not comparable with table 1: {why_separate(tables[0][0], first)}.")
        numbered = f"{number}. " if len(tables) > 1 else ""
        lines += [f"## {numbered}{benchmark.title}, {overall}", ""]
        lines += [*(f"- {note}" for note in notes), "", *_table(table).markdown(), ""]
        if any(run.all_types.failed for run in table):
            lines += [
                "Failed questions score 0 in the overall; “finished only” leaves them out, so its runs may differ in "
                "their questions: roomscout compare has the difference over what two runs finished.",
                "",
            ]
        missing = (run.summary.intervals.missing for run in table if run.summary.intervals)
        if why := dict.fromkeys(reasons["overall"] for reasons in missing if "overall" in reasons):
            lines += [f"No interval: {'; '.join(why)}.", ""]
    return markdown_text(lines[:-1])


def _condition_lines(table: Sequence[RunAnswers]) -> list[str]:
    """In which conditions a table's runs differ, then their protocol, versions and hashes."""
    names = dict.fromkeys(name for run in table for name in differing(table[0].conditions, run.conditions))
    lines = [f"**Conditions differ** in {', '.join(names)}."] if names else []
    protocols = [run.protocol for run in table]
    versions = [_versions_of(run.facts) for run in table]
    hashes = [str(replace(run.summary.provenance, version=None)) if run.summary.provenance else "" for run in table]
    lines += _lines_by(table, protocols, "Protocol: {value}.", "Protocol of {runs}: {value}.")
    lines += _lines_by(table, versions, "Answered by {value}.", "{runs}: answered by {value}.")
    return lines + _lines_by(table, hashes, "Hashes: {value}.", "Hashes of {runs}: {value}.")


def _lines_by(table: Sequence[RunAnswers], values: Sequence[str], of_all: str, of_some: str) -> list[str]:
    """A line for the value of all runs of a table, if it is one, else a line for each value with its runs."""
    names: dict[str, list[str]] = {}
    for run, value in zip(table, values, strict=True):
        names.setdefault(value, []).append(run.name)
    form = of_all if len(names) == 1 else of_some
    return [form.format(value=value, runs=", ".join(runs)) for value, runs in names.items() if value]


def _versions_of(facts: RunFacts) -> str:
    first = _versions_in_words(facts.first_versions)
    last = _versions_in_words(facts.last_versions)
    return last if first == last else f"{first}, and since it was last resumed by {last}"


def _versions_in_words(versions: Versions) -> str:
    commit = versions.git_revision
    checkpoint = versions.model_revision
    code = " ".join(filter(None, ["RoomScout", versions.packages.get("roomscout")]))
    if commit:
        code += f" at {commit[:12]}{'+changes' if commit.endswith('+changes') else ''}"
    return code + (f", checkpoint revision {checkpoint[:12]}" if checkpoint else "")


def _datasets(runs: Iterable[RunAnswers]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.summary.datasets))


def _table(runs: Sequence[RunAnswers]) -> Table:
    datasets = _datasets(runs)
    any_failed = any(run.all_types.failed for run in runs)
    any_money = any(run.money is not None for run in runs)
    rows = []
    for run in runs:
        controls = run.about["controls"]
        row = {
            "model": answering(run.facts) + (f" ({controls})" if controls else ""),
            "overall (%)": decimal(run.summary.asked.overall),
            INTERVAL: interval_in_words(run.interval),
            **{name: decimal(run.overall_of(name)) for name in datasets},
            "failed": str(run.all_types.failed),
        }
        if any_failed:
            row["finished only (%)"] = decimal(run.finished_only)
        row["turns"] = decimal(run.all_types.mean_turns, ".2f")
        row["tokens"] = decimal(run.tokens, ",.0f")
        row["seconds"] = decimal(run.seconds, ".2f")
        if any_money:
            row["cost"] = "-" if run.money is None else in_money(run.money)
        rows.append(row | {"run": run.name})
    return Table.of(rows, left=(0, len(rows[0]) - 1))


def csv_of(tables: Sequence[Sequence[RunAnswers]]) -> str:
    """The rows of all tables with their number, as CSV, with a column for the overall of each dataset at the end."""
    datasets = _datasets(run for table in tables for run in table)
    rows = [_csv_row(number, run, datasets) for number, table in enumerate(tables, start=1) for run in table]
    return Table.of(rows).csv()


def _csv_row(table: int, run: RunAnswers, datasets: Iterable[str]) -> dict[str, Any]:
    low, high = run.interval or (None, None)
    versions = run.facts.last_versions
    intervals = run.summary.intervals
    provenance = run.summary.provenance
    return {
        "table": table,
        "run": run.name,
        "model": answering(run.facts),
        "overall": run.summary.asked.overall,
        "interval_low": low,
        "interval_high": high,
        "questions": run.all_types.questions,
        "scenes": intervals.scenes.get("overall") if intervals else None,
        "failed": run.all_types.failed,
        "finished_only": run.finished_only,
        "mean_turns": _rounded(run.all_types.mean_turns),
        "tokens_per_question": _rounded(run.tokens),
        "seconds_per_question": _rounded(run.seconds),
        "cost_per_question": _rounded(run.money, 9),
        "label": str(run.summary.asked.label),
        "benchmark": run.benchmark.title,
        "questions_sha256": run.facts.questions_sha256,
        "scans_sha256": provenance.scans_sha256 if provenance else None,
        "protocol": run.protocol,
        "date": run.facts.started[:10],
        "revision": versions.git_revision,
        "version": versions.packages.get("roomscout"),
        "model_revision": versions.model_revision,
        **{f"overall_{name}": run.overall_of(name) for name in datasets},
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0. Raises RunError."""
    parser = comparing_parser(
        "leaderboard",
        "Print one row per run, best first, as Markdown. Runs that must not be compared (other questions, "
        "tasks, or protocol) stand in separate tables. Turns, tokens, seconds and cost are per question.",
        runs="run folders, folders of runs, and names of runs below --log-root",
        even_if="put runs into one table although these settings differ, such as steps; with protocol, whatever the "
        "settings",
        out="write the tables to these files, .md or .csv",
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE.yaml", help="add what an answer of each model costs by these prices"
    )
    options = parser.parse_args(arguments)
    replace_unencodable(sys.stdout)
    require_writable(options.out, SUFFIXES)
    folders: dict[Path, bool] = {}  # and whether one may lack an overall, since it was not named
    for folder in [named_run(path, options.log_root.expanduser()) for path in options.runs]:
        inside = [] if (folder / "run.json").exists() else run_folders(folder)
        folders |= dict.fromkeys(inside or [folder], bool(inside))
    if options.allow_code:
        load_code_of(folders)
    runs = []
    left_out = []
    for folder, may_lack in folders.items():
        try:
            runs.append(standing_of(folder, options.prices))
        except RunError as error:
            if not may_lack:
                raise
            left_out.append(f"Left out: {error}")
    if not runs:
        raise RunError("; ".join(left_out) or "there is no run to list")
    even_if = known_names(options.even_if, (run.conditions for run in runs))
    if QUESTIONS in even_if:
        raise RunError("a table is over equal questions: roomscout compare --even-if questions compares other runs")
    tables = tables_of(runs, even_if)
    text = markdown_of(tables)
    write_files(options.out, lambda out: csv_of(tables) if out.suffix.lower() == ".csv" else text)
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.stderr.write("".join(f"{escaped(line)}\n" for line in left_out))
    return 0
