"""The verb `roomscout serve`: a run, or the list of the runs in a folder, with the report of each when it is opened."""

import argparse
import hashlib
import logging
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.scores import lead_of
from roomscout.analysis.report.writer import style_addresses, templates
from roomscout.analysis.serve.live import LiveRun, Progress, Stamp, asset, journals_of, stamps_of
from roomscout.analysis.titles import answering, asked_in_words, controls_of
from roomscout.analysis.verbs import add_run, chosen_run
from roomscout.base.interrupts import acted_on_interrupt
from roomscout.base.tables import interval_in_words
from roomscout.base.text import counted, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.base.web import ADDRESS, Page, Site, server_on
from roomscout.runs import RunError
from roomscout.runs.prices import in_money
from roomscout.runs.reader import run_folders

log = logging.getLogger(__name__)

DEFAULT_PORT = 8765
MOST_OPENED = 4  # the most runs of a folder whose questions and answers are kept in memory; others are read again


@dataclass(frozen=True)
class ListedRun:
    """A run in the list."""

    name: str  # of its folder
    address: str  # of its report
    trouble: str = ""  # why it cannot be read; only the fields above are then known
    title: str = ""  # its name, or what answered which questions
    about: str = ""  # what answered, its folder and cost, as far as the title lacks them
    badges: tuple[str, ...] = ()  # its controls, and which part of a run it is
    started: str = ""  # day and minute
    questions: str = ""  # which they are
    number: str = ""  # how many
    fingerprint: str = ""  # of its questions, shortened
    overall: str = ""  # in percent; empty if nothing is scored
    interval: str = ""  # of the overall; empty without one
    label: str = ""  # what the overall is
    baselines: tuple[tuple[str, str], ...] = ()  # their names and overalls in percent
    progress: Progress | None = None  # as it is now


class RunList(Site):
    """The runs directly below a folder, newest first. Its methods may be called from several threads."""

    errors = LiveRun.errors

    def __init__(self, folder: Path, drafts: Path):
        """`drafts` is a folder for the floor plans of the reports."""
        self._folder = folder
        self._lock = threading.Lock()
        numbers = count()
        # neither questions nor answers of a run, which may take gigabytes
        self._read: dict[Path, tuple[dict[Path, Stamp], ListedRun, partial[Progress]]] = {}
        self._report = lru_cache(MOST_OPENED)(
            lambda folder: LiveRun(folder, drafts / str(next(numbers)), home="../../")
        )

    def page(self, path: list[str], query: dict[str, str]) -> Page | None:
        """See `Site`. No address is a path on the disk."""
        match path:
            case [""]:
                runs = self.runs()
                values = {"title": self._folder.name, "runs": runs, "live": _version(runs)}
                return Page(_template().render(**values, styles=style_addresses()).encode())
            case ["state.json"]:
                return Page.of_json(self._changes(query.get("since", "")))
            case ["assets", file]:
                return asset(file)
            case ["runs", name, *rest]:
                folder = next((run for run in run_folders(self._folder) if run.name == name), None)
                if folder is None:
                    return None
                return self._report(folder).page(rest, query) if rest else Page(moved=f"{_address_of(folder)}/")
        return None

    def runs(self) -> list[ListedRun]:
        """The runs as they are now."""
        with self._lock:
            runs = [self._listed(folder) for folder in run_folders(self._folder)]
        return sorted(runs, key=lambda run: (run.started, run.name), reverse=True)

    def _changes(self, since: str) -> dict[str, Any]:
        """The list, if it is not that of a version; see `LiveRun.changes`."""
        runs = self.runs()
        version = _version(runs)
        page = _template()
        news: dict[str, Any] = {"version": version, "state": "", "words": ""}
        if version != since:
            news["blocks"] = {"runs": "".join(page.blocks["runs"](page.new_context({"runs": runs})))}
        return news

    def _listed(self, folder: Path) -> ListedRun:
        """A run as it is now; reads it only if it has changed."""
        stamps = stamps_of(folder)
        address = f"runs/{_address_of(folder)}/"
        if folder not in self._read or self._read[folder][0] != stamps:
            try:
                run = RunContents.read(folder)
            except RunError as error:
                return ListedRun(folder.name, address, str(error))
            progress = partial(Progress.of, folder, run.facts.episodes, run.pending, tuple(journals_of(run).values()))
            self._read[folder] = stamps, _row_of(run, address), progress
        _, listed, progress = self._read[folder]
        return replace(listed, progress=progress())


def _row_of(run: RunContents, address: str) -> ListedRun:
    facts = run.facts
    headline = run.headline
    interval = run.summary.interval("overall")
    lead = lead_of(run)
    folder = run.folder.name
    cost = run.summary.cost
    money = f"cost {in_money(cost.money)}" if cost and cost.money is not None else ""
    about = (answering(facts) if facts.name else "", "" if folder == facts.name else folder, money)
    return ListedRun(
        folder,
        address,
        title=facts.name or f"{answering(facts)} · {asked_in_words(facts, run.benchmark)}",
        about=" · ".join(filter(None, about)),
        badges=tuple(filter(None, (*controls_of(facts), str(facts.part or "")))),
        started=facts.started[:16].replace("T", " "),
        questions=asked_in_words(facts, run.benchmark),
        number=counted(facts.questions, "question"),
        fingerprint=facts.questions_sha256[:8],
        overall=f"{headline.percent:.1f}" if headline else "",
        interval=interval_in_words(interval) if interval else "",
        label=headline.label + headline.without if headline else "",
        baselines=tuple(lead["beside"]) if lead else (),
    )


def site_of(folder: Path, drafts: Path) -> Site:
    """The report of a run, or the list of the runs in a folder, with floor plans below `drafts`; raises RunError."""
    if not (folder / "run.json").exists() and run_folders(folder):
        return RunList(folder, drafts)
    return LiveRun(folder, drafts)


def _address_of(folder: Path) -> str:
    return quote(bytes(Path(folder.name)), safe="")


def _version(runs: list[ListedRun]) -> str:
    return hashlib.sha256(repr([asdict(run) for run in runs]).encode()).hexdigest()[:16]


def _template() -> Any:
    return templates("roomscout.analysis.serve").get_template("runs.html.j2")


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C or SIGTERM, then return 0. Raises RunError, or PortError if the port cannot be used."""
    parser = Parser(prog="roomscout serve")
    add_run(parser, "a run folder, a folder of run folders")
    parser.add_argument(
        "--port", metavar="N", type=_port, default=DEFAULT_PORT, help=f"0 for any free port ({DEFAULT_PORT})"
    )
    given = parser.parse_intermixed_args(arguments)
    log_to_stream(sys.stdout)
    try:
        folder = chosen_run(given).absolute()
        with (
            tempfile.TemporaryDirectory(prefix="roomscout_serve_") as drafts,
            server_on(given.port, site_of(folder, Path(drafts))) as server,
        ):
            log.info("Serving %s at http://%s:%d/ (Ctrl-C ends it)", folder, ADDRESS, server.server_port)
            server.serve_forever()
    except KeyboardInterrupt:
        acted_on_interrupt()
        log.info("Stopped serving; the run is not affected.")
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: name one between 0 and 65535")
    return int(text)
