"""The addresses that the server knows, and what is at each. No address is a path on the disk."""

from functools import lru_cache
from importlib import resources
from itertools import count
from pathlib import Path

from roomscout.analysis.report.pages import script
from roomscout.analysis.report.writer import SCRIPTS, STYLES, assets
from roomscout.analysis.serve.live import LiveRun
from roomscout.analysis.serve.runs import RunList, address_of
from roomscout.base.web import JAVASCRIPT, PNG, Page, Site
from roomscout.runs import RunError
from roomscout.runs.reader import run_folders

MOST_OPENED = 4
"""The most runs of a folder whose questions and answers are kept in memory; others are read again."""
TYPES = {".css": "text/css; charset=utf-8", ".js": JAVASCRIPT}


class RunSite(Site):
    """The report of one run."""

    errors = (RunError,)

    def __init__(self, run: LiveRun):
        self._run = run

    def page(self, path: list[str], query: dict[str, list[str]]) -> Page | None:
        """See `Site`."""
        match path:
            case [""]:
                return Page(self._run.page().encode())
            case ["state.json"]:
                return Page.of_json(self._run.changes(query.get("since", [""])[0]))
            case ["data", "index.js"]:
                return Page(script("index", self._run.index()).encode(), JAVASCRIPT)
            case ["data", file] if file.endswith(".js"):
                name = file.removesuffix(".js")
                found = self._run.question(name)
                return Page(script("question", name, found).encode(), JAVASCRIPT) if found else None
            case ["replays", file] if file.endswith(".html"):
                replay = self._run.replay(file.removesuffix(".html"))
                return Page(replay.encode()) if replay else None
            case ["views", name, file]:
                return _png(self._run.view(name, file))
            case ["maps", file]:
                return _png(self._run.map(file))
            case ["assets", file]:
                return _asset(file)
        return None


class FolderSite(Site):
    """The list of the runs in a folder, and the report of each, which is read when it is opened."""

    errors = (RunError,)

    def __init__(self, runs: RunList, drafts: Path):
        self._runs = runs
        numbers = count()
        self._site = lru_cache(MOST_OPENED)(
            lambda folder: RunSite(LiveRun(folder, drafts / str(next(numbers)), home="../../"))
        )

    def page(self, path: list[str], query: dict[str, list[str]]) -> Page | None:
        """See `Site`."""
        match path:
            case [""]:
                return Page(self._runs.page().encode())
            case ["state.json"]:
                return Page.of_json(self._runs.changes(query.get("since", [""])[0]))
            case ["assets", file]:
                return _asset(file)
            case ["runs", name, *rest]:
                folder = next((each for each in run_folders(self._runs.folder) if each.name == name), None)
                if folder is None:
                    return None
                return self._site(folder).page(rest, query) if rest else Page(moved=f"{address_of(folder)}/")
        return None


def site_of(folder: Path, drafts: Path) -> Site:
    """The report of a run, or the list of the runs in a folder, with floor plans below `drafts`; raises RunError."""
    if not (folder / "run.json").exists() and run_folders(folder):
        return FolderSite(RunList(folder), drafts)
    return RunSite(LiveRun(folder, drafts))


def _png(path: Path | None) -> Page | None:
    return Page(path.read_bytes(), PNG) if path else None


def _asset(name: str) -> Page | None:
    files = {Path(known).name: assets() / known for known in (*STYLES, *SCRIPTS)}
    files["live.js"] = resources.files("roomscout.analysis.serve") / "assets" / "live.js"
    return Page(files[name].read_bytes(), TYPES[Path(name).suffix]) if name in files else None
