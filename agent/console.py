"""What a person sees of a run: log lines, and a progress bar where the output is a terminal."""

import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from runs import RunError
from runs.records import ResultRow

OUR_LOGGERS = ("agent", "envs", "models", "runs", "rendering", "data")


class _Console(Console):
    """A console that falls silent when its reader goes away (`| head`): the run goes on, and run.log has it all."""

    def on_broken_pipe(self) -> None:
        """Send what would be printed nowhere."""
        self.quiet = True
        print_nowhere()


def print_nowhere() -> None:
    """Send standard output nowhere, since its reader has gone; the interpreter would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


console = _Console(highlight=False)


class ConsoleHandler(logging.Handler):
    """Prints log lines as they are: above the progress bar on a terminal, plain elsewhere."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line; nothing in it is read as markup."""
        console.print(self.format(record), markup=False, emoji=False, highlight=False, soft_wrap=True)


def log_to_console(every_turn: bool) -> None:
    """Send our log lines to standard output; with `every_turn` also what each reply said and did.

    What the output's encoding does not have is printed as its number."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    handler = ConsoleHandler()
    handler.setLevel(logging.DEBUG if every_turn else logging.INFO)
    logging.getLogger().addHandler(handler)
    _log_everything()


def _log_everything() -> None:
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG)


class _RunLogFile(logging.FileHandler):
    """A log file whose failed writes are left to the journal's writer, which ends the run when the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Drop the line."""

    def close(self) -> None:
        """Close the file, whether or not its last lines could be written."""
        with suppress(OSError):
            super().close()


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append all our log lines, with their time, to a run's log file while the context lasts."""
    try:
        handler = _RunLogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{path} cannot be opened ({error.strerror}): a file that can be written is needed") from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    _log_everything()
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


class Progress:
    """Counts finished questions and their mean score; draws a bar with the time left on a terminal."""

    def __init__(self, total: int, rows: Sequence[ResultRow], shown: bool = True):
        self._scores = [row.score for row in rows if row.score is not None]
        self._bar = RichProgress(
            TextColumn("questions"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._bar.add_task("questions", total=total, completed=len(rows), score=self._score)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def finished(self, row: ResultRow) -> None:
        """One more question has its result."""
        if row.score is not None:
            self._scores.append(row.score)
        self._bar.update(self._task, advance=1, score=self._score)

    @property
    def _score(self) -> str:
        """The mean over the questions so far: a running figure, not the benchmark's mean over tasks."""
        return f"mean score {100 * sum(self._scores) / len(self._scores):.1f}" if self._scores else ""
