"""The report of a run that may be in progress: reads only what is new, and knows what changed since a version."""

import re
import secrets
import threading
import time
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from roomscout.analysis.replay.lookup import replay_of
from roomscout.analysis.replay.page import page as replay_page
from roomscout.analysis.report.contents import OUTCOMES, Entry, RunContents
from roomscout.analysis.report.pages import index_of, page_of
from roomscout.analysis.report.writer import SCRIPTS, page_values, plans_of, style_addresses, template
from roomscout.analysis.serve.progress import Progress, stamps_of, turn_stamps
from roomscout.data.scans import ScanNotFound
from roomscout.rendering.scene import SceneError
from roomscout.runs import RunError
from roomscout.runs.reader import journal_path
from roomscout.runs.records import EpisodeId, SavedShot

BLOCKS = ("title", "about", "missing", "scores", "cautions", "hardware", "plots")
"""The blocks of the template that change while a run goes on."""
REST_S = 1.0
"""The shortest time between two looks at the disk."""
LOOKING_SHARE = 0.1
"""The largest share of the time that looking at the disk may take, so that it does not slow down the run."""


@dataclass
class _Known:
    """What was read of an answer: its entry, its row or the stamp of its turns, and the version that it came with."""

    entry: Entry
    seen: Hashable
    version: int


class LiveRun:
    """A run and its report. Its methods may be called from several threads, and raise RunError."""

    def __init__(self, folder: Path, maps: Path, home: str = ""):
        """`maps` is a folder for the floor plans, `home` the address of a page with all runs; raises RunError."""
        self._folder, self._maps, self._home = folder, maps, home
        self._lock, self._drawing = threading.Lock(), threading.Lock()
        self._run = RunContents.read(folder)
        self._plans = plans_of(self._run, maps)
        self._stamps: Any = None
        self._known: dict[EpisodeId, _Known] = {}
        self._begun, self._version = secrets.token_hex(4), 0
        self._look_at = 0.0

    def page(self) -> str:
        """The page of the report."""
        with self._lock:
            self._look()
            return template().render(
                **self._values(),
                data="data",
                nonce="",
                styles=style_addresses(),
                scripts=[*(f"assets/{Path(name).name}" for name in SCRIPTS), "data/index.js", "assets/live.js"],
            )

    def index(self) -> dict[str, Any]:
        """All rows of the table."""
        with self._lock:
            self._look()
            return index_of(self._entries())

    def question(self, name: str) -> dict[str, Any] | None:
        """The page of an answer; None if the run has none of this name. Draws the floor plan if there is none yet."""
        run, episode = self._find(name)
        if episode is None:
            return None
        with self._drawing:
            values = page_of(run.answer(episode), run, self._plans, self._address)
        return values | {"replay": f"replays/{name}.html" if values["turns"] else None}

    def replay(self, name: str) -> str | None:
        """The page of an answer in 3D; None if the run has none of this name. Raises RunError without a scan."""
        run, episode = self._find(name)
        if episode is None:
            return None
        try:
            with self._drawing:
                return replay_page(replay_of(run, name))
        except (SceneError, ScanNotFound) as error:
            raise RunError(str(error)) from None

    def changes(self, since: str) -> dict[str, Any]:
        """The rows and the blocks of the table that have changed since a version, all for an unknown one."""
        with self._lock:
            self._look()
            run = self._run
            progress = Progress.of(run.folder, run.facts.episodes, run.pending, turn_stamps(run))
            news = {"version": self._version_name, **asdict(progress)}
            if since == self._version_name:
                return news
            begun, _, number = since.partition(".")
            known = int(number) if begun == self._begun and re.fullmatch(r"[0-9]{1,9}", number) else 0
            page = template()
            context = page.new_context(self._values())
            blocks = {name: "".join(page.blocks[name](context)) for name in BLOCKS}
            return news | {"answers": index_of(self._entries(known)), "blocks": blocks}

    def view(self, name: str, file: str) -> Path | None:
        """The file of an image; None if it is not one of this run's."""
        run, episode = self._find(name)
        if episode is None or not re.fullmatch(r"render_[0-9]{2,6}(_[a-z][a-z0-9]{0,39})?\.png", file):
            return None
        return SavedShot(file, run.folder_of(episode) / file).file

    def map(self, file: str) -> Path | None:
        """The file of a floor plan; None if it is not drawn."""
        path = self._maps / file
        return path if re.fullmatch(r"[0-9a-f]{16}\.png", file) and path.is_file() else None

    def _find(self, name: str) -> tuple[RunContents, EpisodeId | None]:
        """The run as it is now, and its answer of a name; None if it has none."""
        with self._lock:
            self._look()
            episode = EpisodeId.parse(name)
            known = episode in self._known and str(episode) == name
            return self._run, episode if known else None

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
        run = self._run = RunContents.read(self._folder, self._run) if changed else self._run.with_begun()
        turns, version = turn_stamps(run), self._version + 1
        for episode in run.episodes:
            written = run.rows.get(episode) or turns.get(journal_path(run.reader_of(episode).folder, episode))
            seen, known = (written, run.sights.get(episode)), self._known.get(episode)
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
