"""The scores of a run by dataset, such as the levels of the benchmark rooms."""

from collections.abc import Iterable

from roomscout.base.tables import Table, decimal
from roomscout.data.benchmark import Benchmark
from roomscout.scoring.intervals import scored_alone
from roomscout.scoring.rows import ResultRow, scores_of
from roomscout.scoring.scores import DatasetScores, Scores
from roomscout.scoring.summary import rounded


def scores_by_dataset(rows: Iterable[ResultRow], benchmark: Benchmark) -> dict[str, DatasetScores]:
    """The scores by dataset, in the order of `benchmark.datasets`, others behind them by name; {} unless questions of
    two datasets or more are scored."""
    by_name: dict[str, list[ResultRow]] = {}
    for row in rows:
        by_name.setdefault(row.dataset, []).append(row)
    scored = {name: len(scores_of(of_name)) for name, of_name in by_name.items()}
    if sum(map(bool, scored.values())) < 2:
        return {}
    known = [name for name in benchmark.datasets if name in by_name]
    found = {}
    for name in [*known, *sorted(by_name.keys() - set(known))]:
        of_name = by_name[name]
        percents, intervals = scored_alone(of_name, benchmark)
        percents = {task: rounded(percent) for task, percent in percents.items()}
        overall = percents.pop("overall", None)
        found[name] = DatasetScores(
            questions=len(of_name),
            scored=scored[name],
            failed=sum(row.failed for row in of_name),
            tasks=percents,
            overall=overall,
            intervals=intervals,
        )
    return found


def format_by_dataset(scores: Scores) -> list[str]:
    """The scores by dataset as lines of text: tasks, overall and its interval, a column per dataset."""
    if not (found := scores.datasets):
        return []
    each_of = list(found.values())
    rows = [[task, *(decimal(each.tasks.get(task)) for each in each_of)] for task in scores.asked.tasks]
    rows.append(["overall", *(decimal(each.overall) for each in each_of)])
    edges = [each.interval for each in each_of]
    if any(edges):
        rows.append(["95 % interval", *(f"{each[0]:.1f}-{each[1]:.1f}" if each else "-" for each in edges)])
    rows.append(["scored", *(str(each.scored) for each in each_of)])
    if any(each.failed for each in each_of):
        rows.append(["failed, scored 0", *(str(each.failed) for each in each_of)])
    return ["", *Table(["percent by dataset", *found], rows).lines()]
