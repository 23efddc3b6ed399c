"""Log lines and the progress bar, which is shown on terminals and in notebooks."""

import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from roomscout.base.text import LogFormatter, replace_unencodable
from roomscout.data.benchmarks import Benchmark, BenchmarkError
from roomscout.runs import RunError
from roomscout.runs.records import ResultRow
from roomscout.scoring.summary import ScoresByType

Handler = TypeVar("Handler", bound=logging.Handler)

OUR_LOGGER = "roomscout"
NOTEBOOK_EVERY_S = 0.3
"""Seconds between two drawings of a notebook's bar."""
TURNS_LOGGER = "roomscout.agent.turns"
"""Logs each reply and its action, at level DEBUG."""


def counted(number: int, noun: str) -> str:
    """A number and its noun, such as "1 question" or "3 questions"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Console(Console):
    """A console that stops printing when its pipe closes (`| head`); the run continues and still writes run.log."""

    def __init__(self) -> None:
        # rich prints nothing at all where COLUMNS is 0, as in containers and under job schedulers.
        super().__init__(highlight=False, width=80 if os.environ.get("COLUMNS") == "0" else None)

    def on_broken_pipe(self) -> None:
        """Stop printing."""
        self.quiet = True
        discard_output()


def discard_output() -> None:
    """Redirect standard output to /dev/null after its pipe closed; else Python prints an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


console = _Console()


class ConsoleHandler(logging.Handler):
    """Prints log lines, with outside text escaped, above the progress bar if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LogFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        print_to_console(self.format(record))


def print_to_console(content: RenderableType) -> None:
    """Print a line without interpreting markup, or a picture. If that fails, as on a full disk, stops printing."""
    try:
        console.print(content, markup=False, emoji=False, highlight=False, soft_wrap=True)
    except OSError:
        console.on_broken_pipe()


def log_to_console() -> None:
    """Print the package's log lines to standard output, without details that only run.log has.

    Characters that the output's encoding lacks are printed as escapes.
    """
    replace_unencodable(sys.stdout)
    handler = ConsoleHandler()
    handler.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    _log_everything()


def log_turns_to_console() -> None:
    """Also print each reply and its action; call it once, after `log_to_console`."""
    handler = ConsoleHandler()
    handler.addFilter(lambda record: record.levelno < logging.INFO)
    logging.getLogger(TURNS_LOGGER).addHandler(handler)


def _log_everything() -> None:
    logging.getLogger(OUR_LOGGER).setLevel(logging.DEBUG)


class RunLogFormatter(LogFormatter):
    """Formats the lines of run.log: the time, the level of a warning or an error, and the message.

    If a message begins with a question's label, such as "[Q003] ", all its lines do, so that `grep` finds them.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as text of one line or several."""
        first, *later = super().format(record).split("\n")
        found = re.match(r"\[Q\d+[^]]*\] ", first)
        time = self.formatTime(record, "%m-%d %H:%M:%S")
        level = f"{record.levelname} " if record.levelno >= logging.WARNING else ""
        return "\n".join([f"{time} {level}{first}", *(f"{time} {found[0]}{line}" if found else line for line in later)])


class _RunLogFile(logging.FileHandler):
    """The log file of one run, with outside text escaped. Ignores failed writes: if the disk is full, RunWriter ends
    the run.

    Several runs can share a process. A record belongs to the run of the context that logs it. Threads start without a
    context, so the package starts those that log with `copy_context().run`. What any other thread logs is written if
    this is the only run in progress.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self.setFormatter(RunLogFormatter())

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record belongs to this run."""
        run = _run_log.get()
        if run is None:
            others = (other for other in logging.getLogger().handlers if isinstance(other, _RunLogFile))
            return all(other is self for other in others)
        return run is self

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Ignore the error."""

    def close(self) -> None:
        """Close the file even if its last lines cannot be written."""
        with suppress(OSError):
            super().close()


_run_log: ContextVar[_RunLogFile | None] = ContextVar("run_log", default=None)
"""The log file of the current context's run."""


class _EarlyLines(logging.Handler):
    """Keeps what its run logs before the run has a log file."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record that this run's context logs."""
        if _early_lines.get() is self:
            self.records.append(record)


_early_lines: ContextVar[_EarlyLines | None] = ContextVar("early_lines", default=None)
"""What the current context's run has logged so far; None once its log file is open."""


@contextmanager
def _handling(current: "ContextVar[Handler | None]", handler: Handler) -> Iterator[None]:
    """Let a handler see all log lines inside this block, as the one that is `current` in this context."""
    before = current.set(handler)
    logging.getLogger().addHandler(handler)
    _log_everything()
    try:
        yield
    finally:
        current.reset(before)
        logging.getLogger().removeHandler(handler)


@contextmanager
def lines_kept_for_log() -> Iterator[None]:
    """Keep this run's log lines inside this block until `log_to_file` opens its log file and writes them there."""
    with _handling(_early_lines, _EarlyLines()):
        yield


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append this run's log lines with timestamps to its log file inside this block; see `_RunLogFile`.

    The file begins with the lines kept by `lines_kept_for_log`.
    """
    try:
        handler = _RunLogFile(path)
    except OSError as error:
        raise RunError(f"{path} cannot be opened for writing ({error.strerror})") from None
    with closing(handler), _handling(_run_log, handler):
        early = _early_lines.get()
        kept = _early_lines.set(None)
        for record in early.records if early else ():
            handler.handle(record)
        try:
            yield
        finally:
            _early_lines.reset(kept)


class _NotebookBar:
    """A bar in the output of a notebook's cell, drawn again in place. Needs IPython alone, unlike rich's."""

    def __init__(self, noun: str):
        from IPython.display import DisplayHandle

        self._noun, self._handle, self._drawn_at = noun, DisplayHandle(), -math.inf

    def begin(self, task: Task) -> None:
        """Show the bar below the cell that runs."""
        self._handle.display(self._drawn(task), raw=True)

    def draw(self, task: Task) -> None:
        """Draw the bar again, unless it was drawn just now and the task is not finished."""
        now = time.monotonic()
        if now - self._drawn_at >= NOTEBOOK_EVERY_S or task.finished:
            self._drawn_at = now
            self._handle.update(self._drawn(task), raw=True)

    def _drawn(self, task: Task) -> dict[str, str]:
        left = task.time_remaining
        parts = [
            f"{self._noun} {task.completed:g}/{task.total:g}",
            task.fields["score"],
            f"{timedelta(seconds=round(left))} left" if left else "",
        ]
        text = ", ".join(filter(None, parts))
        return {
            "text/plain": text,
            "text/html": f"<progress value='{task.completed:g}' max='{task.total:g}'></progress> {text}",
        }


class Progress:
    """Counts turns; on a terminal or in a notebook, shows a bar with the remaining time and the benchmark's overall.

    A question counts as `turns_each` turns, however few it takes; if that is 1, the bar counts questions. Without a
    `benchmark` it shows no overall.
    """

    def __init__(
        self,
        total: int,
        rows: Sequence[ResultRow],
        shown: bool = True,
        turns_each: int = 1,
        benchmark: Benchmark | None = None,
    ):
        self._scores = ScoresByType(benchmark) if benchmark else None
        self._failed = 0
        self._turns_each = turns_each
        noun = "turns" if turns_each > 1 else "questions"
        self._in_notebook = _NotebookBar(noun) if shown and console.is_jupyter else None
        self._bar = RichProgress(
            TextColumn(noun, markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        for row in rows:
            self._count(row)
        done = len(rows) * turns_each
        self._task = self._bar.add_task("questions", total=total * turns_each, completed=done, score=self._overall)

    def __enter__(self) -> Self:
        self._bar.start()
        if self._in_notebook is not None:
            self._in_notebook.begin(self._bar.tasks[0])
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def turn_taken(self) -> None:
        """Count one more turn of a question in progress."""
        if self._turns_each > 1:
            self._bar.advance(self._task)
            self._draw_in_notebook()

    def finished(self, row: ResultRow) -> None:
        """Count one more finished question, with the turns that it did not need."""
        self._count(row)
        left = self._turns_each - row.turns if self._turns_each > 1 else 1
        self._bar.update(self._task, advance=left, score=self._overall)
        self._draw_in_notebook()

    def _count(self, row: ResultRow) -> None:
        self._failed += row.failed
        if self._scores is not None:
            self._scores.add(vars(row))

    def _draw_in_notebook(self) -> None:
        if self._in_notebook is not None:
            self._in_notebook.draw(self._bar.tasks[0])

    @property
    def _overall(self) -> str:
        """The overall of the finished questions, as the final table has it; empty while there is none."""
        if self._scores is None or (self._bar.disable and self._in_notebook is None):
            return ""
        try:
            percents = self._scores.percents()
        except BenchmarkError:  # some aggregates need every type; the final table reports those that fail even then
            return ""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"overall {percents['overall']:.1f} %{failed}" if percents else ""
