"""Log lines and the progress bar, which is shown on terminals and in notebooks."""

import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from roomscout.base.text import LogFormatter, replace_unencodable
from roomscout.data.benchmark import Benchmark, BenchmarkError
from roomscout.runs import RunError
from roomscout.runs.records import ResultRow
from roomscout.scoring.summary import ScoresByType

log = logging.getLogger(__name__)
Handler = TypeVar("Handler", bound=logging.Handler)

OUR_LOGGER = "roomscout"
NOTEBOOK_EVERY_S = 0.3
"""Seconds between two drawings of a notebook's bar."""
LINE_EVERY_S, LINE_EVERY_SHARE, LINE_REST_S = 60.0, 0.05, 5.0
"""Where there is no bar, a line tells of progress after so many seconds or this share of the questions, but not sooner
than LINE_REST_S after the last line."""
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

    @property
    def can_redraw(self) -> bool:
        """Whether lines can be drawn again: not in a file, also with FORCE_COLOR, and not where TERM is dumb."""
        return self.is_terminal and self.file.isatty() and not self.is_dumb_terminal

    def on_broken_pipe(self) -> None:
        """Stop printing."""
        self.quiet = True
        discard_output()


def discard_output() -> None:
    """Redirect standard output to /dev/null after its pipe closed; else Python prints an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


console = _Console()


class ConsoleHandler(logging.Handler):
    """Prints log lines from a level on, with outside text escaped, above the progress bar if there is one.

    At level DEBUG they are those of run.log. At INFO, `with_turns` adds each reply and its action.
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self.setFormatter(RunLogFormatter() if level == logging.DEBUG else LogFormatter())
        self._least, self.with_turns = level, False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is printed."""
        return record.levelno >= self._least or (self.with_turns and record.name == TURNS_LOGGER)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        print_to_console(self.format(record))


def print_to_console(content: RenderableType) -> None:
    """Print a line without interpreting markup, or a picture. If that fails, as on a full disk, stops printing."""
    try:
        console.print(content, markup=False, emoji=False, highlight=False, soft_wrap=True)
    except OSError:
        console.on_broken_pipe()


def log_to_console(level: int = logging.INFO) -> None:
    """Print the package's log lines from a level on to standard output: DEBUG adds the details of run.log, and RESULT
    leaves out all but results, warnings and errors.

    Characters that the output's encoding lacks are printed as escapes.
    """
    replace_unencodable(sys.stdout)
    logging.getLogger().addHandler(ConsoleHandler(level))
    _log_everything()


def log_turns_to_console() -> None:
    """Also print each reply and its action from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ConsoleHandler):
            handler.with_turns = True


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


class _ProgressLines:
    """Logs how far a run is, now and then: "120 of 5130 questions, overall 43.1 %, 812 an hour, 6.2 hours left".

    Questions `done` by earlier processes count, except in the rate and in what it says of the time left.
    """

    def __init__(self, total: int, done: int, level: int, clock: Callable[[], float]):
        self._total, self._level, self._clock = total, level, clock
        self._done_before = self._told = done
        self._began, self._told_at = clock(), -math.inf

    def tell(self, done: int, overall: Callable[[], str]) -> None:
        """Log a line if one is due; `done` questions are finished now."""
        now = self._clock()
        enough = done - self._told >= LINE_EVERY_SHARE * self._total and now - self._told_at >= LINE_REST_S
        due = enough or now - max(self._began, self._told_at) >= LINE_EVERY_S
        if not due or self._total == 1 or done == self._told == self._total:
            return
        self._told, self._told_at = done, now
        parts = [f"{done} of {self._total} questions", overall()]
        if finished := done - self._done_before:
            hourly = 3600 * finished / max(now - self._began, 1e-3)
            left = _time_in_words((self._total - done) / hourly)
            parts += [f"{hourly:.0f} an hour" if hourly >= 10 else f"{hourly:.2g} an hour", f"{left} left"]
        log.log(self._level, "%s", ", ".join(filter(None, parts)))


def _time_in_words(hours: float) -> str:
    """A time as "6.2 hours", "12 minutes" or "30 seconds"."""
    if hours >= 1:
        return f"{hours:.1f} hours"
    minutes = round(60 * hours)
    return counted(minutes, "minute") if minutes else counted(round(3600 * hours), "second")


class Progress:
    """Counts turns; on a terminal or in a notebook, shows a bar with the remaining time and the benchmark's overall.

    Elsewhere, as in a file, `tell` logs lines; beside a bar, and if they are not to be `shown`, only run.log has them.
    A question counts as `turns_each` turns, however few it takes; if that is 1, the bar counts questions. Without a
    `benchmark` it shows no overall. `total` counts questions.
    """

    def __init__(
        self,
        total: int,
        rows: Sequence[ResultRow],
        shown: bool = True,
        turns_each: int = 1,
        benchmark: Benchmark | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.total, self.done = total, len(rows)
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
            disable=not (shown and console.can_redraw),
        )
        self._has_bar = not self._bar.disable or self._in_notebook is not None
        level = logging.INFO if shown and not self._has_bar else logging.DEBUG
        self._lines = _ProgressLines(total, self.done, level, clock)
        for row in rows:
            self._count(row)
        done = len(rows) * turns_each
        self._task = self._bar.add_task("questions", total=total * turns_each, completed=done, score=self._beside_bar)

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
        self.done += 1
        left = self._turns_each - row.turns if self._turns_each > 1 else 1
        self._bar.update(self._task, advance=left, score=self._beside_bar)
        self._draw_in_notebook()

    def tell(self) -> None:
        """Log how far the run is, if that is due; call it often."""
        self._lines.tell(self.done, self._overall)

    def _count(self, row: ResultRow) -> None:
        self._failed += row.failed
        if self._scores is not None:
            self._scores.add(row)

    def _draw_in_notebook(self) -> None:
        if self._in_notebook is not None:
            self._in_notebook.draw(self._bar.tasks[0])

    @property
    def _beside_bar(self) -> str:
        return self._overall() if self._has_bar else ""

    def _overall(self) -> str:
        """The overall of the finished questions, as the final table has it, and how many failed; empty without any."""
        try:
            percents = self._scores.percents() if self._scores else {}
        except BenchmarkError:  # some aggregates need every type; the final table reports those that fail even then
            percents = {}
        overall = f"overall {percents['overall']:.1f} %" if percents else ""
        return ", ".join(filter(None, [overall, f"{self._failed} failed" if self._failed else ""]))
