"""What a run prints: log lines, on the console and in the log file of each run, and views on the terminal."""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from roomscout.base.text import LogFormatter, escaped, replace_unencodable
from roomscout.base.waiting import show_steps
from roomscout.runs import RunError

if TYPE_CHECKING:
    from roomscout.agent.state import QuestionState

log = logging.getLogger(__name__)

OUR_LOGGER = "roomscout"
TURNS_LOGGER = "roomscout.agent.turns"  # logs each reply and its action, at level DEBUG


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


def redraws() -> bool:
    """Whether lines can be drawn again: not in a file, also with FORCE_COLOR, nor where TERM is dumb."""
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


def _has_size() -> bool:
    return 0 not in os.get_terminal_size(sys.stdout.fileno())


class _WaitingLine:
    """The step that a command waits for: on a terminal a line that is replaced, elsewhere a log line for each step."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._logged: set[str] = set()

    def begin(self) -> None:
        """Show steps from now on."""
        self._logged.clear()
        if redraws() and _has_size():
            # What libraries print meanwhile is above the line; stderr in a file stays there.
            self._live = Live(console=console, transient=True, redirect_stderr=sys.stderr.isatty())
        show_steps(self._show)

    def end(self) -> None:
        """Erase the line, and show no more steps."""
        show_steps(None)
        if self._live is not None:
            self._live.stop()
        self._live = None

    def _show(self, what: str, about: str) -> None:
        words = f"{what} {about}".rstrip()
        if self._live is not None:
            self._live.start()
            self._live.update(Spinner("line", Text(escaped(words), overflow="ellipsis", no_wrap=True)), refresh=True)
        elif what not in self._logged:  # of many scans, the first
            self._logged.add(what)
            log.info("%s", words)


waiting_line = _WaitingLine()


class _ConsoleHandler(logging.Handler):
    """Prints log lines, with outside text escaped, above the progress bar if there is one."""

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
    """Print log lines of the package from a level on to standard output: DEBUG adds those of run.log, RESULT leaves out
    all but results, warnings and errors. Characters that the encoding lacks are escaped."""
    replace_unencodable(sys.stdout)
    formatter = RunLogFormatter() if level == logging.DEBUG else LogFormatter()
    _print_lines_of("", level, formatter)
    logging.getLogger(OUR_LOGGER).setLevel(logging.DEBUG)


def log_turns_to_console() -> None:
    """Also print each reply and its action from now on; not for a console that prints DEBUG anyway."""
    _print_lines_of(TURNS_LOGGER, logging.DEBUG, LogFormatter())


def _print_lines_of(name: str, level: int, formatter: LogFormatter) -> None:
    """Print a logger's lines from now on, instead of those that an earlier call in this process asked for."""
    logger = logging.getLogger(name)
    for earlier in [each for each in logger.handlers if isinstance(each, _ConsoleHandler)]:
        logger.removeHandler(earlier)
    handler = _ConsoleHandler(level)
    handler.setFormatter(formatter)
    logger.addHandler(handler)


class RunLogFormatter(LogFormatter):
    """Formats the lines of run.log: the time, the level of a warning or an error, and the message. If a message begins
    with a question's label, such as "[Q003] ", all its lines do, so that `grep` finds them."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text of one line or several."""
        first, *later = super().format(record).split("\n")
        found = re.match(r"\[Q\d+[^]]*\] ", first)
        time = self.formatTime(record, "%m-%d %H:%M:%S")
        level = f"{record.levelname} " if record.levelno >= logging.WARNING else ""
        return "\n".join([f"{time} {level}{first}", *(f"{time} {found[0]}{line}" if found else line for line in later)])


class _RunLog(logging.Handler):
    """The log of one run: keeps its lines until its file is open, then appends them, with outside text escaped. Several
    runs can share a process. A record belongs to the run of the context that logs it. Threads start without a context,
    so the package starts those that log with `copy_context().run`. What any other thread logs is written if this is the
    only run in progress. Failed writes are ignored: if the disk is full, RunWriter ends the run."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(RunLogFormatter())
        self.file: TextIO | None = None
        self._early: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record belongs to this run."""
        run = _run_log.get()
        if run is None and self.file is not None:
            return not any(isinstance(each, _RunLog) and each is not self for each in logging.getLogger().handlers)
        return run is self

    def emit(self, record: logging.LogRecord) -> None:
        """Keep or write a line."""
        self._early.append(self.format(record) + "\n")
        if self.file is not None:
            with suppress(OSError):
                self.file.writelines(self._early)
                self.file.flush()
            self._early.clear()


_run_log: ContextVar[_RunLog | None] = ContextVar("run_log", default=None)  # the log of the current context's run


@contextmanager
def lines_kept_for_log() -> Iterator[None]:
    """Keep this run's log lines inside this block until `log_to_file` opens its log file, which begins with them."""
    handler = _RunLog()
    before = _run_log.set(handler)
    logging.getLogger().addHandler(handler)
    logging.getLogger(OUR_LOGGER).setLevel(logging.DEBUG)
    try:
        yield
    finally:
        _run_log.reset(before)
        logging.getLogger().removeHandler(handler)


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append this run's log lines with timestamps to its log file inside this block; see `_RunLog`."""
    run = _run_log.get()
    if run is None or run.file is not None:
        with lines_kept_for_log(), log_to_file(path):
            yield
        return
    try:
        file = path.open("a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{path} cannot be opened for writing ({error.strerror})") from None
    run.file = file
    try:
        yield
    finally:
        run.file = None
        with suppress(OSError):
            file.close()


@cache
def shows_pictures() -> bool:
    """Whether the terminal shows pictures: as pixels, or as coloured half blocks."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and console.is_terminal):  # it is asked how it shows them
        return False
    return _has_size() and os.environ.get("TERM") != "dumb" and console.color_system in ("256", "truecolor")


def show_turn(state: "QuestionState", path: Path) -> None:
    """Print the view of the turn that a question takes next, or where no pictures are shown the path of its file."""
    what = f"[{state.label}] turn {state.turn} sees"
    if not shows_pictures():
        print_to_console(f"{what} {path}")
        return
    from PIL import Image
    from textual_image.renderable import Image as Picture  # asks the terminal what it can show, so not before

    logging.getLogger("textual_image").setLevel(logging.ERROR)  # it warns if a terminal hides its cell size
    print_to_console(f"{what}:")
    view = Image.fromarray(state.observation.view)
    print_to_console(Picture(view, width=min(80, console.width), height="auto"))
