"""The report of a run that may be in progress: reads only what is new, and knows what changed since a version."""

import re
import secrets
import threading
import time
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from roomscout.analysis.replay.lookup import replay_of
from roomscout.analysis.replay.page import page as replay_page
from roomscout.analysis.report.contents import OUTCOMES, Entry, RunContents
from roomscout.analysis.report.maps import FloorPlans
from roomscout.analysis.report.pages import index_of, page_of, script
from roomscout.analysis.report.writer import SCRIPTS, STYLES, assets, linked_page, page_values, template
from roomscout.base.text import counted
from roomscout.base.web import JAVASCRIPT, PNG, Page, Site
from roomscout.data.scans import ScanNotFound
from roomscout.rendering.scene import SceneError
from roomscout.runs import RunError
from roomscout.runs.hardware import HARDWARE_FILE
from roomscout.runs.reader import MARKS_FILE, PARTS_FOLDER, SIGHTS_FILE, journal_path, run_folders
from roomscout.runs.records import EpisodeId, SavedShot

BLOCKS = ("title", "about", "missing", "scores", "cautions", "hardware", "plots")
"""The blocks of the template that change while a run goes on."""
REST_S = 1.0  # the shortest time between two looks at the disk
LOOKING_SHARE = 0.1
"""The largest share of the time that looking at the disk may take, so that it does not slow down the run."""
VIEW_FILE = re.compile(r"render_[0-9]{2,6}(_[a-z][a-z0-9]{0,39})?\.png")
QUIET_S = 120.0  # a run that has written nothing for so long is reported as quiet
FILES = ("run.json", "results.jsonl", "summary.json", SIGHTS_FILE, MARKS_FILE, HARDWARE_FILE)
"""What tells whether a run has changed, apart from the turns of unfinished answers."""

Stamp = tuple[int, int] | None  # a file's size and its time of modification in ns; None if it is missing


def stamp_of(path: Path) -> Stamp:
    """What changes when a file is appended to or replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def stamps_of(folder: Path, names: Iterable[str] = FILES) -> dict[Path, Stamp]:
    """The stamps of files of a run and of its parts."""
    runs = [folder, *run_folders(folder / PARTS_FOLDER)]
    return {run / name: stamp_of(run / name) for run in runs for name in names}


def journals_of(run: RunContents) -> dict[EpisodeId, Path]:
    """The journals of the answers that have begun and not finished."""
    unfinished = {episode: reader for episode, reader in run.begun.items() if episode not in run.rows}
    return {episode: journal_path(reader.folder, episode) for episode, reader in unfinished.items()}


@dataclass(frozen=True)
class Progress:
    """`state` is "finished", "running" or "quiet"; `words` say it in a sentence."""

    state: str
    words: str

    @classmethod
    def of(cls, folder: Path, answers: int, pending: int, journals: Iterable[Path]) -> "Progress":
        """The progress of a run of so many answers, of which some are pending; `journals` are those in progress."""
        done = answers - pending
        of_all = counted(answers, "answer")
        if pending == 0:
            return cls("finished", f"Finished: {of_all}.")
        stamps = [*stamps_of(folder, (*FILES, "run.log")).values(), *map(stamp_of, journals)]
        written = max(stamp[1] for stamp in stamps if stamp is not None) / 1e9
        if time.time() - written < QUIET_S:
            return cls("running", f"In progress: {done:,} of {of_all}.")
        at = datetime.fromtimestamp(written).strftime("%Y-%m-%d %H:%M")
        why = "the run was stopped, or a turn is taking long"
        return cls("quiet", f"{done:,} of {of_all}. Nothing written since {at}: {why}.")


def asset(name: str) -> Page | None:
    """A file that the pages load; None if they load none of this name."""
    files = {Path(file).name: assets() / file for file in (*STYLES, *SCRIPTS)}
    files["live.js"] = resources.files("roomscout.analysis.serve") / "assets" / "live.js"
    kind = JAVASCRIPT if name.endswith(".js") else "text/css; charset=utf-8"
    return Page(files[name].read_bytes(), kind) if name in files else None


@dataclass
class _Known:
    """What was read of an answer: its entry, its row or the stamp of its turns, and the version that it came with."""

    entry: Entry
    seen: Hashable
    version: int


class LiveRun(Site):
    """A run and its report. Its methods may be called from several threads, and raise these `errors`."""

    errors = (RunError, SceneError, ScanNotFound)

    def __init__(self, folder: Path, maps: Path, home: str = ""):
        """`maps` is a folder for the floor plans, `home` the address of a page with all runs; raises RunError."""
        self._folder = folder
        self._maps = maps
        self._home = home
        self._lock = threading.Lock()
        self._drawing = threading.Lock()
        self._run = RunContents.read(folder)
        self._plans = FloorPlans(maps, self._run.facts)
        self._stamps: Any = None
        self._known: dict[EpisodeId, _Known] = {}
        self._begun = secrets.token_hex(4)
        self._version = 0
        self._look_at = 0.0

    def page(self, path: list[str], query: dict[str, str]) -> Page | None:
        """See `Site`. No address is a path on the disk."""
        match path:
            case [""]:
                return Page(self.report().encode())
            case ["state.json"]:
                return Page.of_json(self.changes(query.get("since", "")))
            case ["data", "index.js"]:
                return Page(script("index", self.index()).encode(), JAVASCRIPT)
            case ["assets", file]:
                return asset(file)
            case ["maps", file] if re.fullmatch(r"[0-9a-f]{16}\.png", file) and (self._maps / file).is_file():
                return Page((self._maps / file).read_bytes(), PNG)
            case ["data" | "replays" | "views", name, *_]:
                return self._page_of(path, name.partition(".")[0])
        return None

    def _page_of(self, path: list[str], name: str) -> Page | None:
        """The data, the replay or a view of an answer, as it is now. Draws the floor plan if there is none yet."""
        with self._lock:
            self._look()
            run = self._run
            episode = EpisodeId.parse(name)
            if episode is None or episode not in self._known or str(episode) != name:
                return None
        if path == ["data", f"{name}.js"]:
            with self._drawing:
                values = page_of(run.answer(episode), run, self._plans, self._address)
            values["replay"] = f"replays/{name}.html" if values["turns"] else None
            return Page(script("question", name, values).encode(), JAVASCRIPT)
        if path == ["replays", f"{name}.html"]:
            with self._drawing:
                return Page(replay_page(replay_of(run, name)).encode())
        match path:
            case ["views", folder, file] if folder == name and VIEW_FILE.fullmatch(file):
                view = SavedShot(file, run.folder_of(episode) / file).file
                return Page(view.read_bytes(), PNG) if view else None
        return None

    def report(self) -> str:
        """The page of the report."""
        with self._lock:
            self._look()
            return linked_page(self._values(), "", "assets/live.js")

    def index(self) -> dict[str, Any]:
        """All rows of the table."""
        with self._lock:
            self._look()
            return index_of(self._entries(), self._run)

    def changes(self, since: str) -> dict[str, Any]:
        """The rows and the blocks of the table that have changed since a version, all for an unknown one."""
        with self._lock:
            self._look()
            run = self._run
            progress = Progress.of(run.folder, run.facts.episodes, run.pending, journals_of(run).values())
            news = {"version": self._version_name, **asdict(progress)}
            if since == self._version_name:
                return news
            begun, _, number = since.partition(".")
            known = int(number) if begun == self._begun and re.fullmatch(r"[0-9]{1,9}", number) else 0
            page = template()
            context = page.new_context(self._values())
            blocks = {name: "".join(page.blocks[name](context)) for name in BLOCKS}
            return news | {"answers": index_of(self._entries(known), run), "blocks": blocks}

    @property
    def _version_name(self) -> str:
        return f"{self._begun}.{self._version}"

    def _entries(self, after: int = 0) -> list[Entry]:
        return [known.entry for _, known in sorted(self._known.items()) if known.version > after]

    def _values(self) -> dict[str, Any]:
        values = page_values(self._run, self._entries())
        return values | {"outcomes": OUTCOMES, "live": self._version_name, "home": self._home}

    def _look(self) -> None:
        """Read what has changed into the next version, unless that was done a moment ago."""
        started = time.monotonic()
        if started < self._look_at:
            return
        stamps = stamps_of(self._folder)
        changed = stamps != self._stamps
        run = RunContents.read(self._folder, self._run) if changed else self._run.with_begun()
        self._run = run
        stamps_of_turns = {episode: stamp_of(journal) for episode, journal in journals_of(run).items()}
        version = self._version + 1
        for episode in run.episodes:
            written = run.rows.get(episode) or stamps_of_turns.get(episode)
            seen = (written, run.sights.get(episode))
            known = self._known.get(episode)
            if known is None or known.seen != seen:
                self._known[episode] = _Known(run.answer(episode).entry, seen, version)
                changed = True
        self._version += changed
        self._stamps = stamps
        ended = time.monotonic()
        self._look_at = ended + max(REST_S, (ended - started) / LOOKING_SHARE)

    def _address(self, path: Path) -> str:
        if path.parent == self._maps:
            return f"maps/{path.name}"
        return quote(f"views/{path.parent.name}/{path.name}")
