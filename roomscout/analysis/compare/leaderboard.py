"""The verb `roomscout leaderboard`: one row per run, in a table for each set of runs that may be compared."""

import sys
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roomscout.analysis.compare.conditions import (
    PROTOCOL,
    QUESTIONS,
    Conditions,
    conditions_of,
    differing,
    in_words,
    known_names,
)
from roomscout.analysis.outputs import require_writable, write_text
from roomscout.analysis.run_argument import add_log_root
from roomscout.analysis.titles import answering, controls_of
from roomscout.base.tables import Table, decimal, interval_in_words
from roomscout.base.text import escaped, in_markdown, replace_unencodable
from roomscout.base.verbs import parser_of, refusing
from roomscout.data.benchmark import Benchmark
from roomscout.runs import RunError
from roomscout.runs.allow_code import add_allow_code, load_code_of
from roomscout.runs.prices import in_money, read_price
from roomscout.runs.reader import RunReader, named_run, run_folders
from roomscout.runs.records import RunFacts, Versions
from roomscout.runs.summary import Summary
from roomscout.scoring.intervals import INTERVAL
from roomscout.scoring.scores import Edges, Label, TypeScores

SUFFIXES = (".md", ".csv")


@dataclass(frozen=True)
class Standing:
    """A run's row. Turns, `tokens`, `seconds` and `money` are per answer; None where they are not recorded."""

    folder: Path
    facts: RunFacts
    conditions: Conditions
    benchmark: Benchmark
    summary: Summary
    label: Label
    overall: float
    money: float | None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def model(self) -> str:
        """What answered: the model, by its last part, or the policy."""
        return answering(self.facts)

    @property
    def covers(self) -> str:
        """The tasks and questions of a partial overall; empty for an overall of the benchmark."""
        words = self.label.in_words([*self.summary.asked.tasks], self.benchmark)
        return "" if words == str(self.label) else words

    @property
    def all_types(self) -> TypeScores:
        """The counts over all questions, of which the failed ones score 0."""
        return self.summary.types["all"]

    @property
    def finished_only(self) -> float | None:
        """The overall over the questions that did not fail; None if none remains."""
        return self.summary.finished.overall if self.summary.finished else self.overall

    @property
    def interval(self) -> Edges | None:
        """The interval of the overall."""
        return self.summary.interval("overall")

    @property
    def tokens(self) -> float | None:
        """The tokens that the model computed, without reused ones."""
        cost = self.summary.cost
        return (cost.prefilled_tokens + cost.generated_tokens) / self.all_types.questions if cost else None

    @property
    def seconds(self) -> float | None:
        """The wall time of all processes of the run."""
        sessions = self.summary.sessions
        return sum(each.seconds for each in sessions) / self.all_types.questions if sessions else None

    def overall_of(self, dataset: str) -> float | None:
        """The overall of a dataset."""
        found = self.summary.datasets.get(dataset)
        return found.overall if found else None

    def may_be_compared(self, other: "Standing", even_if: Container[str] = ()) -> bool:
        """Whether both have the same questions, label and conditions, apart from those in `even_if`."""
        same = self.label == other.label and self.facts.questions_sha256 == other.facts.questions_sha256
        others = [name for name in differing(self.conditions, other.conditions) if name not in even_if]
        return same and self.benchmark.title == other.benchmark.title and (PROTOCOL in even_if or not others)


def standing_of(folder: Path, prices: Path | None = None) -> Standing:
    """Read a run's row from run.json and summary.json; raises RunError, also if nothing is scored. `prices` is a file
    with the price of its model, instead of that with which it was run."""
    reader = RunReader(folder)
    facts = reader.facts
    summary = reader.summary
    _ = reader.rows  # refuses a run with damaged results, whose summary may be of others
    if summary is not None and summary.asked.awaiting_judge and summary.asked.label is None:
        raise RunError(f"{folder} is not scored yet: score it with roomscout rescore {folder} --judge MODEL")
    if summary is None or (label := summary.asked.label) is None or (overall := summary.asked.overall) is None:
        raise RunError(f"{folder} has no overall: finish the run with roomscout resume, or leave it out")
    money = _money_of(facts, summary, prices)
    return Standing(folder, facts, conditions_of(reader), reader.benchmark, summary, label, overall, money)


def _money_of(facts: RunFacts, summary: Summary, prices: Path | None) -> float | None:
    """What an answer of a run took, by its own price or that in a file; None if neither is known."""
    cost = summary.cost
    answers = summary.types["all"].questions
    if cost is None:
        return None
    if prices is None or not facts.asks_model:
        return None if cost.money is None else cost.money / answers
    try:
        return read_price(prices, facts.config["model"]).of(*cost.tokens) / answers
    except ValueError as error:
        raise RunError(str(error)) from None


def tables_of(standings: Iterable[Standing], even_if: Container[str] = ()) -> list[list[Standing]]:
    """The rows in tables of runs that may be compared, the best first; the largest table first. `even_if` has settings
    in which the runs of a table may differ; "protocol" stands for all."""
    tables: list[list[Standing]] = []
    for each in standings:
        table = next((table for table in tables if all(each.may_be_compared(other, even_if) for other in table)), None)
        if table is None:
            tables.append([each])
        else:
            table.append(each)
    tables = [sorted(table, key=lambda each: -each.overall) for table in tables]
    return sorted(tables, key=lambda table: -len(table))


def markdown_of(tables: Sequence[Sequence[Standing]]) -> str:
    """The tables as Markdown, each with its questions and protocol; the last cell of a row names the run."""
    lines: list[str] = []
    for number, table in enumerate(tables, start=1):
        first = table[0]
        benchmark = table[0].benchmark
        overall = f"scored as {benchmark.scored_as}" if benchmark.scored_as else f"{first.label}"
        overall = "partial overall" if first.covers and not benchmark.scored_as else overall
        title = f"{benchmark.title}, {overall}"
        fingerprint = first.facts.questions_sha256[:12]
        notes = [f"{first.facts.questions:,} questions of {benchmark.title} (fingerprint {fingerprint})."]
        if first.covers:
            notes.append(f"Not a result of {benchmark.scored_as or 'the benchmark'}: {first.covers}.")
        notes += _condition_lines(table)
        if number > 1:
            notes.append(f"Not comparable with table 1: {_why_separate(tables[0][0], first)}.")
        lines += [f"## {number}. {title}" if len(tables) > 1 else f"## {title}", ""]
        lines += [*(f"- {note}" for note in notes), "", *_table(table).markdown(), ""]
        if any(each.all_types.failed for each in table):
            lines += [
                "Failed questions score 0 in the overall; “finished only” leaves them out, so its runs may differ in "
                "their questions: roomscout compare has the difference over what two runs finished.",
                "",
            ]
        missing = (each.summary.intervals.missing for each in table if each.summary.intervals)
        if why := dict.fromkeys(reasons["overall"] for reasons in missing if "overall" in reasons):
            lines += [f"No interval: {'; '.join(why)}.", ""]
    return "".join(f"{in_markdown(line)}\n" for line in lines[:-1])


def _lines_by(table: Sequence[Standing], value_of: Callable[[Standing], str], of_all: str, of_some: str) -> list[str]:
    """A line for the value of all runs of a table, if it is one, else a line for each value with its runs."""
    found: dict[str, list[str]] = {}
    for each in table:
        found.setdefault(value_of(each), []).append(each.name)
    form = of_all if len(found) == 1 else of_some
    return [form.format(value=value, runs=", ".join(runs)) for value, runs in found.items() if value]


def _condition_lines(table: Sequence[Standing]) -> list[str]:
    """The protocol, the versions and the hashes of a table's runs, and in which conditions they differ."""
    names = dict.fromkeys(name for each in table for name in differing(table[0].conditions, each.conditions))
    lines = [f"**Conditions differ** in {', '.join(names)}."] if names else []
    lines += _lines_by(table, lambda each: each.facts.protocol, "Protocol: {value}.", "Protocol of {runs}: {value}.")
    lines += _lines_by(
        table, lambda each: _versions_of(each.facts), "Answered by {value}.", "{runs}: answered by {value}."
    )
    return lines + _lines_by(table, _hashes_of, "Hashes: {value}.", "Hashes of {runs}: {value}.")


def _hashes_of(each: Standing) -> str:
    return str(replace(each.summary.provenance, version=None)) if each.summary.provenance else ""


def _versions_of(facts: RunFacts) -> str:
    begun = _versions(facts.first_versions)
    last = _versions(facts.last_versions)
    return last if begun == last else f"{begun}, and since it was last resumed by {last}"


def _versions(found: Versions) -> str:
    commit = found.git_revision
    checkpoint = found.model_revision
    code = " ".join(filter(None, ["RoomScout", found.packages.get("roomscout")]))
    if commit:
        code += f" at {commit[:12]}{'+changes' if commit.endswith('+changes') else ''}"
    return code + (f", checkpoint revision {checkpoint[:12]}" if checkpoint else "")


def _why_separate(first: Standing, other: Standing) -> str:
    reasons = []
    if first.benchmark.title != other.benchmark.title:
        reasons.append(f"another benchmark ({first.benchmark.title}, {other.benchmark.title})")
    elif first.facts.questions_sha256 != other.facts.questions_sha256:
        reasons.append("other questions")
    elif first.label != other.label:
        reasons.append(f"another overall ({first.label}, {other.label})")
    if found := differing(first.conditions, other.conditions):
        reasons.append(in_words(found))
    return "; ".join(reasons)


def _datasets(standings: Iterable[Standing]) -> list[str]:
    return list(dict.fromkeys(name for each in standings for name in each.summary.datasets))


def _table(standings: Sequence[Standing]) -> Table:
    datasets = _datasets(standings)
    any_failed = any(each.all_types.failed for each in standings)
    any_money = any(each.money is not None for each in standings)
    rows = [
        {
            "model": each.model + (f" ({', '.join(controls)})" if (controls := controls_of(each.facts)) else ""),
            "overall (%)": f"{each.overall:.1f}",
            INTERVAL: interval_in_words(each.interval),
            **{name: decimal(each.overall_of(name)) for name in datasets},
            "failed": str(each.all_types.failed),
            **({"finished only (%)": decimal(each.finished_only)} if any_failed else {}),
            "turns": decimal(each.all_types.mean_turns, ".2f"),
            "tokens": decimal(each.tokens, ",.0f"),
            "seconds": decimal(each.seconds, ".2f"),
            **({"cost": "-" if each.money is None else in_money(each.money)} if any_money else {}),
            "run": each.name,
        }
        for each in standings
    ]
    return Table.of(rows, left=(0, len(rows[0]) - 1))


def csv_of(tables: Sequence[Sequence[Standing]]) -> str:
    """The rows of all tables with their number, as CSV, with a column for the overall of each dataset at the end."""
    datasets = _datasets(each for table in tables for each in table)
    rows = [_csv_row(number, each, datasets) for number, table in enumerate(tables, start=1) for each in table]
    return Table.of(rows).csv()


def _csv_row(table: int, each: Standing, datasets: Iterable[str]) -> dict[str, Any]:
    low, high = each.interval or (None, None)
    versions = each.facts.last_versions
    intervals = each.summary.intervals
    provenance = each.summary.provenance
    return {
        "table": table,
        "run": each.name,
        "model": each.model,
        "overall": each.overall,
        "interval_low": low,
        "interval_high": high,
        "questions": each.all_types.questions,
        "scenes": intervals.scenes.get("overall") if intervals else None,
        "failed": each.all_types.failed,
        "finished_only": each.finished_only,
        "mean_turns": _rounded(each.all_types.mean_turns),
        "tokens_per_question": _rounded(each.tokens),
        "seconds_per_question": _rounded(each.seconds),
        "cost_per_question": each.money and round(each.money, 9),
        "label": str(each.label),
        "benchmark": each.benchmark.title,
        "questions_sha256": each.facts.questions_sha256,
        "scans_sha256": provenance.scans_sha256 if provenance else None,
        "protocol": each.facts.protocol,
        "date": each.facts.started[:10],
        "revision": versions.git_revision,
        "version": versions.packages.get("roomscout"),
        "model_revision": versions.model_revision,
        **{f"overall_{name}": each.overall_of(name) for name in datasets},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


@refusing(RunError)
def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0, or 2 after an error."""
    parser = parser_of(
        "leaderboard",
        "Print one row per run, best first, as Markdown. Runs that must not be compared (other questions, "
        "tasks, or protocol) stand in separate tables. Turns, tokens, seconds and cost are per question.",
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN",
        help="run folders, folders of runs, and names of runs below --log-root",
    )  # fmt: skip
    add_log_root(parser)
    parser.add_argument(
        "--even-if", nargs="+", default=(), metavar="NAME",
        help="put runs into one table although these settings differ, such as steps; with protocol, whatever the "
        "settings",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, nargs="+", default=(), metavar="FILE", help="write the tables to these files, .md or .csv"
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE.yaml", help="add what an answer of each model costs by these prices"
    )
    add_allow_code(parser)
    given = parser.parse_args(arguments)
    replace_unencodable(sys.stdout)
    require_writable(given.out, SUFFIXES)
    standings, left_out = _standings(given.runs, given.log_root.expanduser(), given.prices, given.allow_code)
    even_if = known_names(given.even_if, (each.conditions for each in standings))
    if QUESTIONS in even_if:
        raise RunError("a table is over equal questions: roomscout compare --even-if questions compares other runs")
    tables = tables_of(standings, even_if)
    for out in given.out:
        text = csv_of(tables) if out.suffix.lower() == ".csv" else markdown_of(tables)
        write_text(out.expanduser(), text)
    sys.stdout.write(markdown_of(tables))
    sys.stdout.flush()
    sys.stderr.write("".join(f"{escaped(line)}\n" for line in left_out))
    return 0


def _standings(
    named: Iterable[Path], log_root: Path, prices: Path | None, allow_code: bool
) -> tuple[list[Standing], list[str]]:
    """The rows of runs, once each, and why runs in a folder of runs have none; raises RunError for others."""
    given: dict[Path, bool] = {}
    for folder in (named_run(each, log_root) for each in named):
        inside = [] if (folder / "run.json").exists() else run_folders(folder)
        given |= dict.fromkeys(inside or [folder], bool(inside))
    if allow_code:
        load_code_of(given)
    standings, left_out = [], []
    for folder, may_lack in given.items():
        try:
            standings.append(standing_of(folder, prices))
        except RunError as error:
            if not may_lack:
                raise
            left_out.append(f"Left out: {error}")
    if not standings:
        raise RunError("; ".join(left_out) or "there is no run to list")
    return standings, left_out
