"""The verb `roomscout leaderboard`: one row per run, in a table for each set of runs that may be compared."""

import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roomscout.analysis.compare.answers import Answers, read_run
from roomscout.analysis.compare.comparison import partial_in_words
from roomscout.analysis.compare.conditions import QUESTIONS, differing, in_words, known_names, refused_in
from roomscout.analysis.titles import answering
from roomscout.analysis.verbs import TABLE_SUFFIXES, comparing_parser, markdown_text, require_writable, write_files
from roomscout.base.grouping import grouped
from roomscout.base.tables import Table, decimal, interval_in_words, latex_text
from roomscout.base.text import escaped, replace_unencodable
from roomscout.runs import RunError
from roomscout.runs.prices import in_money, read_price
from roomscout.runs.reader import RunReader, load_code_of, named_run, run_folders
from roomscout.runs.records import RunFacts, Versions
from roomscout.scoring.headline import headline_of
from roomscout.scoring.intervals import INTERVAL

DIGITS = {"mean_turns": 3, "tokens_per_question": 3, "seconds_per_question": 3, "cost_per_question": 9}
"""The decimals of columns of the CSV file."""


@dataclass(frozen=True)
class Standing:
    """A run in a leaderboard."""

    run: Answers  # without its rows: those of many runs would take much memory
    facts: RunFacts
    row: dict[str, Any]  # of the CSV file, but for the number of the table and datasets; not rounded


def standing_of(folder: Path, prices: Path | None = None) -> Standing:
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
    asked = summary.asked
    answers = summary.types["all"].questions
    low, high = summary.interval("overall") or (None, None)
    versions = facts.last_versions
    row = {
        "run": run.name,
        "model": answering(facts),
        "overall": asked.overall,
        "interval_low": low,
        "interval_high": high,
        "questions": answers,
        "scenes": summary.intervals.scenes.get("overall") if summary.intervals else None,
        "failed": summary.types["all"].failed,
        "finished_only": (summary.finished or asked).overall,
        "mean_turns": summary.types["all"].mean_turns,
        "tokens_per_question": (cost.prefilled_tokens + cost.generated_tokens) / answers if cost else None,
        "seconds_per_question": sum(each.seconds for each in summary.sessions) / answers if summary.sessions else None,
        "cost_per_question": None if money is None else money / answers,
        "label": str(asked.label),
        "benchmark": run.benchmark.title,
        "questions_sha256": facts.questions_sha256,
        "scans_sha256": summary.provenance.scans_sha256 if summary.provenance else None,
        "protocol": run.protocol,
        "date": facts.started[:10],
        "revision": versions.git_revision,
        "version": versions.packages.get("roomscout"),
        "model_revision": versions.model_revision,
    }
    return Standing(replace(run, rows=()), facts, row)


def tables_of(standings: Iterable[Standing], even_if: Container[str] = ()) -> list[list[Standing]]:
    """The rows in tables of runs that may be compared, the best first; the largest table first. `even_if` has settings
    in which the runs of a table may differ; "protocol" stands for all."""
    tables: list[list[Standing]] = []
    for standing in standings:
        for table in tables:
            if not any(why_separate(other, standing, even_if) for other in table):
                table.append(standing)
                break
        else:
            tables.append([standing])
    tables = [sorted(table, key=lambda standing: -standing.row["overall"]) for table in tables]
    return sorted(tables, key=lambda table: -len(table))


def why_separate(first: Standing, other: Standing, even_if: Container[str] = ()) -> str:
    """Why two runs must not be compared, apart from the settings in `even_if`; empty if they may be."""
    reasons = []
    labels = [standing.row["label"] for standing in (first, other)]
    titles = [standing.row["benchmark"] for standing in (first, other)]
    if titles[0] != titles[1]:
        reasons.append(f"another benchmark ({', '.join(titles)})")
    elif first.facts.questions_sha256 != other.facts.questions_sha256:
        reasons.append("other questions")
    elif labels[0] != labels[1]:
        reasons.append(f"another overall ({', '.join(labels)})")
    if refused := refused_in(first.run.conditions, other.run.conditions, even_if):
        reasons.append(in_words(refused))
    return "; ".join(reasons)


def markdown_of(tables: Sequence[Sequence[Standing]]) -> str:
    """The tables as Markdown, each with its questions and protocol; the last cell of a row names the run."""
    lines: list[str] = []
    for number, table in enumerate(tables, start=1):
        first = table[0]
        benchmark = first.run.benchmark
        partial = _partial(table)
        fingerprint = first.facts.questions_sha256[:12]
        notes = [f"{first.facts.questions:,} questions of {benchmark.title} (fingerprint {fingerprint})."]
        if partial:
            notes.append(f"Not a result of {benchmark.scored_as or 'the benchmark'}: {partial}.")
        notes += _condition_lines(table)
        if number > 1:
            notes.append(f"Not comparable with table 1: {why_separate(tables[0][0], first)}.")
        numbered = f"{number}. " if len(tables) > 1 else ""
        lines += [f"## {numbered}{_heading(table)}", ""]
        lines += [*(f"- {note}" for note in notes), "", *_table(table).markdown(), ""]
        if any(standing.row["failed"] for standing in table):
            lines += [
                "Failed questions score 0 in the overall; “finished only” leaves them out, so its runs may differ in "
                "their questions: roomscout compare has the difference over what two runs finished.",
                "",
            ]
        intervals = [standing.run.summary.intervals for standing in table]
        missing = [of_run.missing for of_run in intervals if of_run]
        if why := dict.fromkeys(reasons["overall"] for reasons in missing if "overall" in reasons):
            lines += [f"No interval: {'; '.join(why)}.", ""]
    return markdown_text(lines[:-1])


def _partial(table: Sequence[Standing]) -> str:
    """The overall of a table in words if it does not cover all tasks of the benchmark; else empty."""
    asked = table[0].run.summary.asked
    return partial_in_words(asked.label, [*asked.tasks], table[0].run.benchmark) if asked.label else ""


def _heading(table: Sequence[Standing]) -> str:
    """The benchmark of a table, what its overall is, and what that leaves out."""
    run = table[0].run
    headline = headline_of(run.summary, run.benchmark)
    without = headline.without if headline else ""
    if run.benchmark.scored_as:
        return f"{run.benchmark.title}, scored as {run.benchmark.scored_as}" + (without and f", overall{without}")
    return f"{run.benchmark.title}, {'partial overall' if _partial(table) else table[0].row['label']}{without}"


def latex_of(tables: Sequence[Sequence[Standing]]) -> str:
    """The tables as LaTeX, without costs and names of runs."""
    captions = [_heading(table) + (f" ({number})" if len(tables) > 1 else "") for number, table in enumerate(tables, 1)]
    return latex_text({name: _table(table, with_costs=False) for name, table in zip(captions, tables, strict=True)})


def _condition_lines(table: Sequence[Standing]) -> list[str]:
    """In which conditions a table's runs differ, then their protocol, versions and hashes."""
    runs = [standing.run for standing in table]
    names = dict.fromkeys(name for run in runs for name in differing(runs[0].conditions, run.conditions))
    lines = [f"**Conditions differ** in {', '.join(names)}."] if names else []
    protocols = [run.protocol for run in runs]
    versions = [_versions_of(standing.facts) for standing in table]
    hashes = [str(replace(run.summary.provenance, version=None)) if run.summary.provenance else "" for run in runs]
    lines += _lines_by(runs, protocols, "Protocol: {value}.", "Protocol of {runs}: {value}.")
    lines += _lines_by(runs, versions, "Answered by {value}.", "{runs}: answered by {value}.")
    return lines + _lines_by(runs, hashes, "Hashes: {value}.", "Hashes of {runs}: {value}.")


def _lines_by(runs: Sequence[Answers], values: Sequence[str], of_all: str, of_some: str) -> list[str]:
    """A line for the value of all runs, if it is one, else a line for each value with its runs."""
    names = grouped((value, run.name) for run, value in zip(runs, values, strict=True))
    form = of_all if len(names) == 1 else of_some
    return [form.format(value=value, runs=", ".join(of_value)) for value, of_value in names.items() if value]


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


def _datasets(standings: Iterable[Standing]) -> list[str]:
    return list(dict.fromkeys(name for standing in standings for name in standing.run.summary.datasets))


def _by_dataset(standing: Standing, names: Iterable[str]) -> dict[str, float | None]:
    """The overall of datasets by their names; None for those that the run lacks."""
    scores = standing.run.summary.datasets
    return {name: scores[name].overall if name in scores else None for name in names}


def _tasks(standings: Iterable[Standing]) -> list[str]:
    return list(dict.fromkeys(task for standing in standings for task in standing.run.summary.asked.tasks))


def _table(standings: Sequence[Standing], with_costs: bool = True) -> Table:
    """The rows with what a person reads of them."""
    tasks = _tasks(standings)
    datasets = _datasets(standings)
    any_failed = any(standing.row["failed"] for standing in standings)
    any_money = any(standing.row["cost_per_question"] is not None for standing in standings)
    rows = []
    for standing in standings:
        values = standing.row
        controls = standing.run.about["controls"]
        row = {
            "model": values["model"] + (f" ({controls})" if controls else ""),
            "overall (%)": decimal(values["overall"]),
            INTERVAL: interval_in_words(standing.run.summary.interval("overall")),
            **{task.replace("_", " "): decimal(standing.run.summary.asked.tasks.get(task)) for task in tasks},
            **{name: decimal(percent) for name, percent in _by_dataset(standing, datasets).items()},
            "failed": str(values["failed"]),
        }
        if any_failed:
            row["finished only (%)"] = decimal(values["finished_only"])
        if not with_costs:
            rows.append(row)
            continue
        row["turns"] = decimal(values["mean_turns"], ".2f")
        row["tokens"] = decimal(values["tokens_per_question"], ",.0f")
        row["seconds"] = decimal(values["seconds_per_question"], ".2f")
        if any_money:
            money = values["cost_per_question"]
            row["cost"] = "-" if money is None else in_money(money)
        rows.append(row | {"run": values["run"]})
    return Table.of(rows, left=(0, len(rows[0]) - 1) if with_costs else (0,))


def csv_of(tables: Sequence[Sequence[Standing]]) -> str:
    """The rows of all tables with their number, as CSV, with columns for each task and for the overall of each dataset
    at the end."""
    datasets = _datasets(standing for table in tables for standing in table)
    tasks = _tasks(standing for table in tables for standing in table)
    rows = []
    for number, table in enumerate(tables, start=1):
        for standing in table:
            row = {"table": number, **standing.row}
            row |= {name: round(row[name], digits) for name, digits in DIGITS.items() if row[name] is not None}
            row |= {f"task_{name}": standing.run.summary.asked.tasks.get(name) for name in tasks}
            rows.append(row | {f"overall_{name}": percent for name, percent in _by_dataset(standing, datasets).items()})
    return Table.of(rows).csv()


def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0. Raises RunError."""
    parser = comparing_parser(
        "leaderboard",
        runs="run folders, folders of runs, and names of runs below --log-root",
        even_if="put runs into one table although these settings differ, such as steps; with protocol, whatever the "
        "settings",
        out="write the tables to these files: .md, .csv or .tex (LaTeX)",
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE.yaml", help="add what an answer of each model costs by these prices"
    )
    options = parser.parse_args(arguments)
    replace_unencodable(sys.stdout)
    require_writable(options.out, TABLE_SUFFIXES)
    folders: dict[Path, bool] = {}  # and whether one may lack an overall, since it was not named
    for folder in [named_run(path, options.log_root.expanduser()) for path in options.runs]:
        inside = [] if (folder / "run.json").exists() else run_folders(folder)
        folders |= dict.fromkeys(inside or [folder], bool(inside))
    if options.allow_code:
        load_code_of(folders)
    standings = []
    left_out = []
    for folder, may_lack in folders.items():
        try:
            standings.append(standing_of(folder, options.prices))
        except RunError as error:
            if not may_lack:
                raise
            left_out.append(f"Left out: {error}")
    if not standings:
        raise RunError("; ".join(left_out) or "there is no run to list")
    even_if = known_names(options.even_if, (standing.run.conditions for standing in standings))
    if QUESTIONS in even_if:
        raise RunError("a table is over equal questions: roomscout compare --even-if questions compares other runs")
    tables = tables_of(standings, even_if)
    written = {".md": markdown_of, ".csv": csv_of, ".tex": latex_of}
    write_files(options.out, lambda out: written[out.suffix.lower()](tables))
    sys.stdout.write(markdown_of(tables))
    sys.stdout.flush()
    sys.stderr.write("".join(f"{escaped(line)}\n" for line in left_out))
    return 0
