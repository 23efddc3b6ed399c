"""The scores of a run by dataset, such as the levels of the benchmark rooms."""

from collections.abc import Iterable

from roomscout.base.grouping import grouped
from roomscout.base.tables import Table, decimal, interval_in_words
from roomscout.data.benchmark import Benchmark
from roomscout.scoring.intervals import INTERVAL, scored_alone
from roomscout.scoring.pairs import in_pairs
from roomscout.scoring.scores import DatasetScores, ResultRow, Scores, scores_of


def scores_by_dataset(rows: Iterable[ResultRow], benchmark: Benchmark) -> dict[str, DatasetScores]:
    """The scores by dataset, in the order of `benchmark.datasets`, then by name; {} unless several have a score."""
    by_name = grouped((row.dataset, row) for row in rows)
    if sum(bool(scores_of(of_name)) for of_name in by_name.values()) < 2:
        return {}
    own = [name for name in benchmark.datasets if name in by_name]
    by_dataset = {}
    for name in [*own, *sorted(by_name.keys() - set(own))]:
        of_name = by_name[name]
        percents, intervals = scored_alone(of_name, benchmark)
        overall = percents.pop("overall", None)
        by_dataset[name] = DatasetScores(
            questions=len(of_name),
            scored=len(scores_of(in_pairs(of_name, benchmark))),
            failed=sum(row.failed for row in of_name),
            tasks=percents,
            overall=overall,
            intervals=intervals,
        )
    return by_dataset


def dataset_table(scores: Scores) -> Table | None:
    """The scores by dataset: tasks, overall and its interval, a column per dataset; None unless there are several."""
    datasets = scores.datasets.values()
    if not datasets:
        return None
    rows = [[task, *(decimal(dataset.tasks.get(task)) for dataset in datasets)] for task in scores.asked.tasks]
    rows.append(["overall", *(decimal(dataset.overall) for dataset in datasets)])
    if any(dataset.interval for dataset in datasets):
        rows.append([INTERVAL, *(interval_in_words(dataset.interval) for dataset in datasets)])
    rows.append(["scored answers", *(str(dataset.scored) for dataset in datasets)])
    if any(dataset.failed for dataset in datasets):
        rows.append(["failed, scored 0", *(str(dataset.failed) for dataset in datasets)])
    return Table(["percent by dataset", *scores.datasets], rows)
