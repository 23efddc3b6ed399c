"""The scores of a run by dataset, such as the levels of the benchmark rooms."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roomscout.data.benchmarks import Benchmark
from roomscout.scoring.intervals import intervals_of
from roomscout.scoring.summary import Row, aggregate, is_scored, rounded

NAME_WIDTH, WIDTH = 28, 14


def scores_by_dataset(rows: Iterable[Row], benchmark: Benchmark) -> dict[str, Any]:
    """A JSON-serializable entry per dataset, by name; {} unless questions of two datasets or more are scored.

    They are in the order of `benchmark.datasets`, others behind them by name.

    Rows are those of `scoring.summarize` with `dataset` and `scene_name`. An entry has "questions" (answers), "scored",
    "failed" if any of them failed and so scores 0, and in percent "tasks" and "overall", as `aggregate` computes them
    over the dataset's rows (None if no row counts in it), with "intervals" as `intervals_of` returns them. Raises
    BenchmarkError.
    """
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["dataset"], []).append(row)
    scored = {name: sum(is_scored(row, benchmark) for row in of_name) for name, of_name in by_name.items()}
    if sum(map(bool, scored.values())) < 2:
        return {}
    return {
        name: {"questions": len(by_name[name]), "scored": scored[name]}
        | _failed(by_name[name])
        | _scores(by_name[name], benchmark)
        for name in sorted(by_name, key=lambda name: (_place(name, benchmark.datasets), name))
    }


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def _failed(rows: Iterable[Row]) -> dict[str, int]:
    failed = sum(row["status"] == "failed" for row in rows)
    return {"failed": failed} if failed else {}


def _scores(rows: list[Row], benchmark: Benchmark) -> dict[str, Any]:
    percents: dict[str, float | None] = {name: rounded(value) for name, value in aggregate(rows, benchmark).items()}
    overall = percents.pop("overall", None)
    return {"tasks": percents, "overall": overall, "intervals": intervals_of(rows, benchmark)}


def format_by_dataset(summary: Mapping[str, Any]) -> list[str]:
    """The key "datasets" of a summary as lines of text: tasks, overall and its interval, a column per dataset."""
    found = summary.get("datasets", {})
    if not found:
        return []
    rows: list[tuple[str, list[str]]] = [
        (task, [_decimal(each["tasks"].get(task)) for each in found.values()]) for task in summary["asked"]["tasks"]
    ]
    rows.append(("overall", [_decimal(each["overall"]) for each in found.values()]))
    intervals = [interval_of(each) for each in found.values()]
    if any(intervals):
        rows.append(("95 % interval", [f"{each[0]:.1f}-{each[1]:.1f}" if each else "-" for each in intervals]))
    rows.append(("scored", [str(each["scored"]) for each in found.values()]))
    if any(each.get("failed") for each in found.values()):
        rows.append(("failed, scored 0", [str(each.get("failed", 0)) for each in found.values()]))
    width = max(WIDTH, *(2 + len(name) for name in found))
    head = f"{'percent by dataset':<{NAME_WIDTH}}" + "".join(f"{name:>{width}}" for name in found)
    return [
        "", head, *(f"{name:<{NAME_WIDTH}}" + "".join(f"{cell:>{width}}" for cell in cells) for name, cells in rows)
    ]  # fmt: skip


def interval_of(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of a dataset's overall in percent, low and high; None if unknown."""
    found = entry["intervals"].get("percent", {}).get("overall")
    return (found[0], found[1]) if found else None


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
