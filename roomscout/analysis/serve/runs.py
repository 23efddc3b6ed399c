"""The list of the runs in a folder, with their scores."""

import hashlib
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.scores import about_in_words
from roomscout.analysis.report.writer import style_addresses, templates
from roomscout.analysis.serve.progress import Progress, Stamp, stamps_of, turn_stamps
from roomscout.analysis.titles import answering, asked_in_words, controls_of
from roomscout.base.tables import interval_in_words
from roomscout.runs import RunError
from roomscout.runs.reader import run_folders


@dataclass(frozen=True)
class ListedRun:
    """A run in the list. `trouble` says why it cannot be read; only `name` and `address` are then known."""

    name: str
    address: str
    trouble: str = ""
    title: str = ""
    about: str = ""
    badges: tuple[str, ...] = ()
    started: str = ""
    fingerprint: str = ""
    overall: str = ""
    interval: str = ""
    label: str = ""
    progress: Progress | None = None


@dataclass(frozen=True)
class _Known:
    """What the list keeps of a run that it has read: not its questions and answers, which may take gigabytes."""

    stamps: dict[Path, Stamp]
    listed: ListedRun
    episodes: int
    pending: int
    journals: tuple[Path, ...]


class RunList:
    """The runs directly below a folder, newest first. Its methods may be called from several threads."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = threading.Lock()
        self._read: dict[Path, _Known] = {}

    def page(self) -> str:
        """The page that lists them."""
        found = self._runs()
        return _template().render(title=self.folder.name, runs=found, live=_version(found), styles=style_addresses())

    def changes(self, since: str) -> dict[str, Any]:
        """The list, if it is not that of a version; see `LiveRun.changes`."""
        found = self._runs()
        version, page = _version(found), _template()
        news: dict[str, Any] = {"version": version, "state": "", "words": ""}
        if version != since:
            news["blocks"] = {"runs": "".join(page.blocks["runs"](page.new_context({"runs": found})))}
        return news

    def _runs(self) -> list[ListedRun]:
        with self._lock:
            found = [self._listed(folder) for folder in run_folders(self.folder)]
        return sorted(found, key=lambda run: (run.started, run.name), reverse=True)

    def _listed(self, folder: Path) -> ListedRun:
        """A run as it is now; reads it only if it has changed."""
        stamps, known = stamps_of(folder), self._read.get(folder)
        if known is None or known.stamps != stamps:
            try:
                known = _read(folder, stamps)
            except RunError as error:
                return ListedRun(folder.name, f"runs/{address_of(folder)}/", str(error))
            self._read[folder] = known
        return replace(known.listed, progress=Progress.of(folder, known.episodes, known.pending, known.journals))


def _read(folder: Path, stamps: dict[Path, Stamp]) -> _Known:
    run = RunContents.read(folder)
    facts, asked, interval = run.facts, run.summary.asked, run.summary.interval("overall")
    listed = ListedRun(
        folder.name,
        f"runs/{address_of(folder)}/",
        title=facts.name or f"{answering(facts)} · {asked_in_words(facts, run.benchmark)}",
        about=about_in_words(run),
        badges=tuple(filter(None, (*controls_of(facts), str(facts.part or "")))),
        started=facts.started[:16].replace("T", " "),
        fingerprint=facts.questions_sha256[:8],
        overall="" if asked.overall is None else f"{asked.overall:.1f}",
        interval=interval_in_words(interval) if interval else "",
        label=str(asked.label or ""),
    )
    return _Known(stamps, listed, facts.episodes, run.pending, tuple(turn_stamps(run)))


def address_of(folder: Path) -> str:
    """A folder's name in an address."""
    return quote(bytes(Path(folder.name)), safe="")


def _version(found: list[ListedRun]) -> str:
    return hashlib.sha256(repr([asdict(run) for run in found]).encode()).hexdigest()[:16]


def _template() -> Any:
    return templates("roomscout.analysis.serve").get_template("runs.html.j2")
