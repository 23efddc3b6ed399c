"""The scores of a run by dataset, such as the levels of the benchmark rooms."""

from collections.abc import Iterable, Mapping
from typing import Any

from roomscout.data.benchmarks import Benchmark
from roomscout.scoring.intervals import intervals_of
from roomscout.scoring.summary import AggregateError, Row, aggregate, decimal, is_scored, rounded

NAME_WIDTH, WIDTH = 28, 14


def scores_by_dataset(rows: Iterable[Row], benchmark: Benchmark) -> dict[str, Any]:
    """A JSON-serializable entry per dataset, by name; {} unless questions of two datasets or more are scored.

    They are in the order of `benchmark.datasets`, others behind them by name.

    Rows are those of `scoring.summarize` with `dataset` and `scene_name`. An entry has "questions" (answers), "scored",
    "failed" if any of them failed and so scores 0, and in percent "tasks" and "overall", as `aggregate` computes them
    over the dataset's rows (None if no row counts in it, or if it fails on them alone), with "intervals" as
    `intervals_of` returns them.
    """
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["dataset"], []).append(row)
    scored = {name: sum(is_scored(row, benchmark) for row in of_name) for name, of_name in by_name.items()}
    if sum(map(bool, scored.values())) < 2:
        return {}
    others = sorted(by_name.keys() - set(benchmark.datasets))
    found: dict[str, Any] = {}
    for name in [*(name for name in benchmark.datasets if name in by_name), *others]:
        of_name = by_name[name]
        try:
            scores, intervals = aggregate(of_name, benchmark), intervals_of(of_name, benchmark)
        except AggregateError:  # it may need types that this dataset lacks
            scores, intervals = {}, {}
        percents: dict[str, float | None] = {task: rounded(x) for task, x in scores.items()}
        found[name] = {"questions": len(of_name), "scored": scored[name]}
        if failed := sum(row["status"] == "failed" for row in of_name):
            found[name]["failed"] = failed
        overall = percents.pop("overall", None)
        found[name] |= {"tasks": percents, "overall": overall, "intervals": intervals}
    return found


def format_by_dataset(summary: Mapping[str, Any]) -> list[str]:
    """The key "datasets" of a summary as lines of text: tasks, overall and its interval, a column per dataset."""
    found = summary.get("datasets", {})
    if not found:
        return []
    rows: list[tuple[str, list[str]]] = [
        (task, [decimal(each["tasks"].get(task)) for each in found.values()]) for task in summary["asked"]["tasks"]
    ]
    rows.append(("overall", [decimal(each["overall"]) for each in found.values()]))
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
