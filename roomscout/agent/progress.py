"""How far a run is: a bar on terminals and in notebooks, else log lines."""

import logging
import math
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from roomscout.agent.budget import Budget
from roomscout.agent.console import console, redraws, waiting_line
from roomscout.data.benchmark import Benchmark, BenchmarkError
from roomscout.runs.prices import in_money
from roomscout.runs.records import ResultRow
from roomscout.scoring.summary import aggregate

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

log = logging.getLogger(__name__)

LINE_EVERY_S, LINE_EVERY_SHARE, LINE_REST_S = 60.0, 0.05, 5.0
"""Without a bar, a line reports progress after so many seconds, or this share of the questions and this rest."""


class Progress:
    """Counts turns; on a terminal or in a notebook, shows a bar with the benchmark's overall and the time left.
    Elsewhere `tell` logs lines, only to run.log beside a bar or if not to be `shown`. A question counts as `turns_each`
    turns; if that is 1, the bar counts questions. `rows` of earlier processes do not count in the rate."""

    clock = staticmethod(time.monotonic)

    def __init__(
        self,
        total: int,
        rows: Sequence[ResultRow],
        shown: bool = True,
        turns_each: int = 1,
        benchmark: Benchmark | None = None,
        budget: Budget | None = None,
    ):
        self.total = total
        self.done = len(rows)
        self._benchmark = benchmark
        self._scored: list[ResultRow] = []
        self._budget = budget
        self._failed, self._turns_each = 0, turns_each
        self._noun = "turns" if turns_each > 1 else "questions"
        self._in_notebook = shown and console.is_jupyter
        self._cell: DisplayHandle | None = None
        self._drawn_at = -math.inf
        self._bar = RichProgress(
            TextColumn(self._noun, markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and redraws()),
        )
        self._has_bar = not self._bar.disable or self._in_notebook
        self._level = logging.INFO if shown and not self._has_bar else logging.DEBUG
        self._began = self.clock()
        self._logged_at = -math.inf
        self._done_before = self.done
        self._logged = self.done
        for row in rows:
            self._count(row)
        completed = self.done * turns_each
        self._task = self._bar.add_task("", total=total * turns_each, completed=completed, score=self._beside_bar)

    def __enter__(self) -> Self:
        if self._in_notebook:
            from IPython.display import DisplayHandle

            self._cell = DisplayHandle()
            self._cell.display(self._drawn(), raw=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def begun(self) -> None:
        """The first questions have begun: show the bar in place of what the command waited for."""
        waiting_line.end()
        self._bar.start()

    def turn_taken(self) -> None:
        """Count one more turn of a question in progress."""
        if self._turns_each > 1:
            self._advance(1)

    def finished(self, row: ResultRow) -> None:
        """Count one more finished question, with the turns that it did not need."""
        self._count(row)
        self.done += 1
        left = self._turns_each - row.turns if self._turns_each > 1 else 1
        self._advance(left, score=self._beside_bar)

    def tell(self) -> None:
        """Log a line such as "120 of 5130 questions, overall 43.1 %, 812 an hour, 6:10:14 left", if that is due."""
        now = self.clock()
        new = self.done - self._logged
        enough = new >= LINE_EVERY_SHARE * self.total and now - self._logged_at >= LINE_REST_S
        due = enough or now - max(self._began, self._logged_at) >= LINE_EVERY_S
        if not due or self.total == 1 or self.done == self._logged == self.total:
            return
        self._logged = self.done
        self._logged_at = now
        parts = [f"{self.done} of {self.total} questions", self._overall()]
        if finished := self.done - self._done_before:
            hourly = 3600 * finished / max(now - self._began, 1e-3)
            left = timedelta(seconds=round(3600 * (self.total - self.done) / hourly))
            parts += [f"{hourly:.0f} an hour" if hourly >= 10 else f"{hourly:.2g} an hour", f"{left} left"]
        log.log(self._level, "%s", ", ".join(filter(None, parts)))

    def _count(self, row: ResultRow) -> None:
        self._failed += row.failed
        if row.score is not None:
            self._scored.append(row)

    def _advance(self, turns: int, **fields: Any) -> None:
        """Move the bar on; that of a notebook is drawn again, but not more often than every 0.3 seconds."""
        self._bar.update(self._task, advance=turns, **fields)
        now = time.monotonic()
        if self._cell and (now - self._drawn_at >= 0.3 or self._bar.tasks[0].finished):
            self._drawn_at = now
            self._cell.update(self._drawn(), raw=True)

    def _drawn(self) -> dict[str, str]:
        """The bar in the output of a notebook's cell, which needs IPython alone, unlike rich's."""
        task = self._bar.tasks[0]
        done = f"{task.completed:g}"
        total = f"{task.total:g}"
        left = task.time_remaining
        ends = f"{timedelta(seconds=round(left))} left" if left else ""
        text = ", ".join(filter(None, [f"{self._noun} {done}/{total}", task.fields["score"], ends]))
        return {"text/plain": text, "text/html": f"<progress value='{done}' max='{total}'></progress> {text}"}

    @property
    def _beside_bar(self) -> str:
        return self._overall() if self._has_bar else ""

    def _overall(self) -> str:
        """The overall of the finished questions, as the final table has it, how many failed, and the cost so far."""
        try:
            percents = aggregate(self._scored, self._benchmark) if self._benchmark else {}
        except BenchmarkError:  # some aggregates need every type; the final table reports those that fail even then
            percents = {}
        overall = f"overall {percents['overall']:.1f} %" if percents else ""
        cost = f"cost {in_money(self._budget.spent)}" if self._budget else ""
        return ", ".join(filter(None, [overall, f"{self._failed} failed" if self._failed else "", cost]))
