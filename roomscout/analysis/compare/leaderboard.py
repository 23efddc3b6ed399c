"""The verb `roomscout leaderboard`: one row per run, in a table for each set of runs that may be compared."""

import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from roomscout.analysis.outputs import require_outside_runs, write_text
from roomscout.analysis.run_argument import add_log_root
from roomscout.analysis.tables import INTERVAL, csv_of_rows, decimal, interval_in_words, markdown_table
from roomscout.analysis.titles import answering, controls_of
from roomscout.base.text import escaped, in_markdown, replace_unencodable
from roomscout.base.verbs import parser_of, refusing
from roomscout.runs import RunError
from roomscout.runs.allow_code import add_allow_code, load_code_of
from roomscout.runs.costs import Cost
from roomscout.runs.hashes import Provenance
from roomscout.runs.prices import in_money, read_price
from roomscout.runs.reader import RunReader, named_run, run_folders
from roomscout.runs.records import RunFacts, Versions
from roomscout.scoring.summary import aggregate, rounded

SUFFIXES = (".md", ".csv")


@dataclass(frozen=True)
class Standing:
    """A run's row. Figures are None where they are not recorded.

    `covers` names the tasks of a partial overall; it is empty for an overall of the benchmark. `scored_as` is the title
    of the benchmark whose rules score other questions than its own; else empty. `failed` questions score 0 in the
    `overall`, and `finished_only` is that of the others, None if none remains.
    `tokens` are those that the model computed, without reused ones, `seconds` the wall time of all processes of the
    run, and `money` what it cost, all per answer. `by_dataset` has the overall of each dataset, if there are several.
    `provenance` is that of summary.json.
    """

    folder: Path
    facts: RunFacts
    conditions: Conditions
    benchmark: str
    scored_as: str
    label: str
    covers: str
    overall: float
    interval: tuple[float, float] | None
    no_interval: str
    questions: int
    scenes: int | None
    failed: int
    finished_only: float | None
    mean_turns: float | None
    tokens: float | None
    seconds: float | None
    by_dataset: Mapping[str, float | None]
    money: float | None = None
    provenance: Provenance | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def model(self) -> str:
        """What answered: the model, by its last part, or the policy."""
        return answering(self.facts)

    @property
    def controls(self) -> str:
        """The controls of the run in parentheses, such as " (spin)"; empty without any."""
        found = controls_of(self.facts)
        return f" ({', '.join(found)})" if found else ""

    def may_be_compared(self, other: "Standing", even_if: Container[str] = ()) -> bool:
        """Whether both have the same questions, label and conditions, apart from those in `even_if`."""
        same = self.label == other.label and self.facts.questions_sha256 == other.facts.questions_sha256
        apart = [name for name in differing(self.conditions, other.conditions) if name not in even_if]
        return same and self.benchmark == other.benchmark and (PROTOCOL in even_if or not apart)


def standing_of(folder: Path, prices: Path | None = None) -> Standing:
    """Read a run's row from run.json and summary.json; raises RunError, also if nothing is scored.

    `prices` is a file with the price of its model, instead of that with which it was run.
    """
    reader = RunReader(folder)
    facts, summary, benchmark = reader.facts, reader.summary, reader.benchmark
    rows = reader.rows  # refuses a run with damaged results, whose summary may be of others
    if summary is not None and summary["asked"].get("awaiting_judge") and not summary["asked"]["overall_label"]:
        raise RunError(f"{folder} is not scored yet: score it with roomscout rescore {folder} --judge MODEL")
    if summary is None or not (label := summary["asked"]["overall_label"]):
        raise RunError(f"{folder} has no overall: finish the run with roomscout resume, or leave it out")
    intervals, everything = summary.get("intervals", {}), summary["types"]["all"]
    found = intervals.get("percent", {}).get("overall")
    cost, answers = summary.cost, everything["questions"]
    tokens = cost and cost.prefilled_tokens + cost.generated_tokens
    asked, sessions = summary.asked, summary.get("sessions", ())
    words = asked.label.in_words([*asked.tasks], benchmark) if asked.label else ""
    finished = aggregate((row for row in rows if not row.failed), benchmark)
    return Standing(
        folder,
        facts,
        conditions_of(reader),
        benchmark.title,
        benchmark.scored_as,
        label,
        "" if words == label else words,
        asked[label],
        (found[0], found[1]) if found else None,
        intervals.get("missing", {}).get("overall", "the run is of a version without intervals: resume it to add them"),
        answers,
        intervals.get("scenes", {}).get("overall"),
        everything["failed"],
        rounded(finished["overall"]) if finished else None,
        everything["mean_turns"],
        tokens / answers if tokens is not None else None,
        sum(each["seconds"] for each in sessions) / answers if sessions else None,
        {name: each["overall"] for name, each in summary.get("datasets", {}).items()},
        _money_of(facts, cost, answers, prices),
        summary.provenance,
    )


def _money_of(facts: RunFacts, cost: Cost | None, answers: int, prices: Path | None) -> float | None:
    """What an answer of a run with these costs took, by its own price or that in a file; None if neither is known."""
    if cost is None:
        return None
    if prices is None or not facts.asks_model:
        return None if cost.money is None else cost.money / answers
    try:
        return read_price(prices, facts.config["model"]).of(*cost.tokens) / answers
    except ValueError as error:
        raise RunError(str(error)) from None


def tables_of(standings: Iterable[Standing], even_if: Container[str] = ()) -> list[list[Standing]]:
    """The rows in tables of runs that may be compared, the best first; the largest table first.

    `even_if` has settings in which the runs of a table may differ; "protocol" stands for all.
    """
    tables: list[list[Standing]] = []
    for each in standings:
        table = next((table for table in tables if all(each.may_be_compared(other, even_if) for other in table)), None)
        if table is None:
            tables.append([each])
        else:
            table.append(each)
    tables = [sorted(table, key=lambda each: -each.overall) for table in tables]
    return sorted(tables, key=lambda table: -len(table))


@dataclass(frozen=True)
class Section:
    """A table of runs that may be compared, as texts: what it is, notes above it, its cells, and notes below it."""

    title: str
    notes: list[str]
    heads: list[str]
    rows: list[list[str]]
    below: list[str]


def sections_of(tables: Sequence[Sequence[Standing]]) -> list[Section]:
    """The tables with their questions and protocol; the last cell of a row names the run."""
    found = []
    for number, table in enumerate(tables, start=1):
        first = table[0]
        overall = (
            f"scored as {first.scored_as}" if first.scored_as else "partial overall" if first.covers else first.label
        )
        what = f"{first.benchmark}, {overall}"
        fingerprint = first.facts.questions_sha256[:12]
        notes = [f"{first.facts.questions:,} questions of {first.benchmark} (fingerprint {fingerprint})."]
        if first.covers:
            notes.append(f"Not a result of {first.scored_as or 'the benchmark'}: {first.covers}.")
        notes += [*_protocol_lines(table), *_version_lines(table), *_hash_lines(table)]
        if number > 1:
            notes.append(f"Not comparable with table 1: {_apart(tables[0][0], first)}.")
        below = []
        if any(each.failed for each in table):
            below.append(
                "Failed questions score 0 in the overall; “finished only” leaves them out, so its runs may differ in "
                "their questions: roomscout compare has the difference over what two runs finished."
            )
        if without := [each for each in table if each.interval is None]:
            below.append(f"No interval: {'; '.join(dict.fromkeys(each.no_interval for each in without))}.")
        found.append(Section(f"{number}. {what}" if len(tables) > 1 else what, notes, *_cells(table), below))
    return found


def markdown_of(tables: Sequence[Sequence[Standing]]) -> str:
    """The tables as Markdown, each with its questions and protocol."""
    lines: list[str] = []
    for each in sections_of(tables):
        rows = markdown_table(each.heads, each.rows, left=(0, len(each.heads) - 1))
        lines += [f"## {each.title}", "", *(f"- {note}" for note in each.notes), "", *rows, ""]
        lines += [line for note in each.below for line in (note, "")]
    return "".join(f"{in_markdown(line)}\n" for line in lines[:-1])


def _protocol_lines(table: Sequence[Standing]) -> list[str]:
    """The protocol of a table's runs; of runs that differ in it, the conditions and the protocol of each."""
    protocols: dict[str, list[str]] = {}
    for each in table:
        protocols.setdefault(each.facts.protocol, []).append(each.name)
    if len(protocols) == 1:
        return [f"Protocol: {next(iter(protocols))}."]
    names = dict.fromkeys(name for each in table for name in differing(table[0].conditions, each.conditions))
    lines = [f"**Conditions differ** in {', '.join(names)}."] if names else []
    return lines + [f"Protocol of {', '.join(runs)}: {protocol}." for protocol, runs in protocols.items()]


def _version_lines(table: Sequence[Standing]) -> list[str]:
    """What code and which checkpoint answered, as far as recorded; a line for all runs if it was the same."""
    versions: dict[str, list[str]] = {}
    for each in table:
        versions.setdefault(_versions_of(each.facts), []).append(each.name)
    if len(versions) == 1:
        return [f"Answered by {next(iter(versions))}."]
    return [f"{', '.join(runs)}: answered by {those}." for those, runs in versions.items()]


def _hash_lines(table: Sequence[Standing]) -> list[str]:
    """The hashes by which the runs are known, as far as recorded; a line for all runs if they are the same."""
    hashes: dict[str, list[str]] = {}
    for each in table:
        hashes.setdefault(str(each.provenance and replace(each.provenance, version=None)), []).append(each.name)
    alone = len(hashes) == 1
    return [f"Hashes{'' if alone else ' of ' + ', '.join(runs)}: {known}." for known, runs in hashes.items() if known]


def _versions_of(facts: RunFacts) -> str:
    begun, last = _versions(facts.first_versions), _versions(facts.last_versions)
    return last if begun == last else f"{begun}, and since it was last resumed by {last}"


def _versions(found: Versions) -> str:
    version, commit = found.packages.get("roomscout"), found.git_revision
    code = " ".join(filter(None, ["RoomScout", version or ("" if commit else "of an unknown version")]))
    changed = "+changes" if commit and commit.endswith("+changes") else ""
    code += f" at {commit[:12]}{changed}" if commit else ""
    checkpoint = found.model_revision
    return code + (f", checkpoint revision {checkpoint[:12]}" if checkpoint else "")


def _apart(first: Standing, other: Standing) -> str:
    """Why two runs are in different tables."""
    reasons = []
    if first.benchmark != other.benchmark:
        reasons.append(f"another benchmark ({first.benchmark}, {other.benchmark})")
    elif first.facts.questions_sha256 != other.facts.questions_sha256:
        reasons.append("other questions")
    elif first.label != other.label:
        reasons.append(f"another overall ({first.label}, {other.label})")
    if found := differing(first.conditions, other.conditions):
        reasons.append(in_words(found))
    return "; ".join(reasons)


def _cells(table: Sequence[Standing]) -> tuple[list[str], list[list[str]]]:
    """The heads and the rows of a table."""
    columns: dict[str, Callable[[Standing], str]] = {
        "model": lambda each: each.model + each.controls,
        "overall (%)": lambda each: f"{each.overall:.1f}",
        INTERVAL: lambda each: interval_in_words(each.interval),
        **{
            name: partial(lambda each, name: decimal(each.by_dataset.get(name)), name=name) for name in _datasets(table)
        },
        "failed": lambda each: str(each.failed),
        "finished only (%)": lambda each: decimal(each.finished_only),
        "turns": lambda each: decimal(each.mean_turns, ".2f"),
        "tokens": lambda each: decimal(each.tokens, ",.0f"),
        "seconds": lambda each: decimal(each.seconds, ".2f"),
        "cost": lambda each: "-" if each.money is None else in_money(each.money),
        "run": lambda each: each.name,
    }
    if not any(each.failed for each in table):
        del columns["finished only (%)"]
    if all(each.money is None for each in table):
        del columns["cost"]
    return list(columns), [[cell_of(each) for cell_of in columns.values()] for each in table]


def _datasets(table: Iterable[Standing]) -> list[str]:
    """The datasets that any of the runs has an overall of."""
    return list(dict.fromkeys(name for each in table for name in each.by_dataset))


def csv_of(tables: Sequence[Sequence[Standing]]) -> str:
    """The rows of all tables with their number, as CSV, with a column for the overall of each dataset at the end."""
    datasets = _datasets(each for table in tables for each in table)
    rows = [_csv_row(number, each, datasets) for number, table in enumerate(tables, start=1) for each in table]
    return csv_of_rows(rows)


def _csv_row(table: int, each: Standing, datasets: Iterable[str]) -> dict[str, Any]:
    """The cells of a run by column."""
    low, high = each.interval or (None, None)
    versions = each.facts.last_versions
    return {
        "table": table,
        "run": each.name,
        "model": each.model,
        "overall": each.overall,
        "interval_low": low,
        "interval_high": high,
        "questions": each.questions,
        "scenes": each.scenes,
        "failed": each.failed,
        "finished_only": each.finished_only,
        "mean_turns": _rounded(each.mean_turns),
        "tokens_per_question": _rounded(each.tokens),
        "seconds_per_question": _rounded(each.seconds),
        "cost_per_question": each.money and round(each.money, 9),
        "label": each.label,
        "benchmark": each.benchmark,
        "questions_sha256": each.facts.questions_sha256,
        "scans_sha256": each.provenance.scans_sha256 if each.provenance else None,
        "protocol": each.facts.protocol,
        "date": each.facts.started[:10],
        "revision": versions.git_revision,
        "version": versions.packages.get("roomscout"),
        "model_revision": versions.model_revision,
        **{f"overall_{name}": each.by_dataset.get(name) for name in datasets},
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
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folders, folders of runs, and names of runs below --log-root",
    )
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
    for out in given.out:
        if out.suffix.lower() not in SUFFIXES:
            raise RunError(f"--out {out}: name a file that ends in {' or '.join(SUFFIXES)}")
        require_outside_runs(out.expanduser())
    if QUESTIONS in given.even_if:
        raise RunError("a table is over equal questions: roomscout compare --even-if questions compares other runs")
    folders, listed = runs_in(named_run(folder, given.log_root.expanduser()) for folder in given.runs)
    if given.allow_code:
        load_code_of(folders)
    standings, left_out = [], []
    for folder in folders:
        try:
            standings.append(standing_of(folder, given.prices))
        except RunError as error:
            if folder not in listed:
                raise
            left_out.append(f"Left out: {error}")
    if not standings:
        raise RunError("; ".join(left_out) or "there is no run to list")
    even_if = known_names(given.even_if, (each.conditions for each in standings))
    tables = tables_of(standings, even_if)
    for out in given.out:
        text = csv_of(tables) if out.suffix.lower() == ".csv" else markdown_of(tables)
        write_text(out.expanduser(), text, "--out")
    sys.stdout.write(markdown_of(tables))
    sys.stdout.flush()
    sys.stderr.write("".join(f"{escaped(line)}\n" for line in left_out))
    return 0


def runs_in(folders: Iterable[Path]) -> tuple[list[Path], set[Path]]:
    """The run folders, once each, and which of them were found in a folder of runs."""
    found, listed = [], set()
    for folder in folders:
        inside = [] if (folder / "run.json").exists() else run_folders(folder)
        listed.update(inside)
        found += inside or [folder]
    return list(dict.fromkeys(found)), listed
