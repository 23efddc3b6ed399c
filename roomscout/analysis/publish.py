"""The verb `roomscout publish`: a folder of pages about runs that any web server shows, without what must not leave."""

import html
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from PIL import Image

from roomscout.analysis.compare.leaderboard import runs_in, sections_of, standing_of, tables_of
from roomscout.analysis.outputs import require_outside_runs
from roomscout.analysis.replay.lookup import find_answer, replay_of
from roomscout.analysis.replay.page import page as replay_page
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.sharing import Sharing
from roomscout.analysis.report.writer import files_folder, style_of, templates, write_linked
from roomscout.analysis.run_argument import add_log_root
from roomscout.analysis.titles import answering, controls_of
from roomscout.base.text import escaped, log_to_stream
from roomscout.base.verbs import parser_of, refusing
from roomscout.data.benchmarks import SCANS_FROM, true_dataset
from roomscout.data.questions import Question
from roomscout.data.scans import ScanNotFound
from roomscout.rendering.scene import SceneError
from roomscout.runs import RunError
from roomscout.runs.allow_code import add_allow_code, load_code_of
from roomscout.runs.reader import named_run
from roomscout.runs.records import ResultRow

log = logging.getLogger(__name__)

JPEG_QUALITY = 88
CELL = re.compile(r'<a href="([^"]+)">(.*?)</a>')
MARK = ".nojekyll"
"""A file of every published folder; hosts of pages then show all others as they are."""


@refusing(RunError, SceneError, ScanNotFound)
def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0, or 2 after an error."""
    parser = parser_of(
        "publish",
        "Write a folder that any web server shows: a table of runs, their reports, and replays. Paths, names of "
        "machines and users, and keys are left out.",
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN",
        help="run folders, folders of runs, and names of runs below --log-root",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="the folder to write")
    parser.add_argument(
        "--replay", nargs="*", metavar="Q", help="the answers to replay, of each run that has them, or none "
        "(by default the first with full score and the first without)",
    )  # fmt: skip
    parser.add_argument("--study", type=Path, nargs="+", default=(), metavar="FOLDER", help="add the page of studies")
    parser.add_argument(
        "--restricted-views", action="store_true",
        help="also publish views, plans and replays of scans whose owners give access on request: read their terms",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace a folder that roomscout publish has written")
    add_log_root(parser)
    add_allow_code(parser)
    given = parser.parse_args(arguments)
    log_to_stream(sys.stdout)
    out = given.output.expanduser().absolute()
    require_outside_runs(out / "index.html", flag="--output")
    if out.exists() and not (given.force and (out / MARK).is_file()) and (out.is_file() or any(out.iterdir())):
        why = "or replace it with --force" if (out / MARK).is_file() else "as it is not one that publish wrote"
        raise RunError(f"--output {out} exists: choose another, {why}")
    folders, _ = runs_in(named_run(folder, given.log_root.expanduser()) for folder in given.runs)
    if given.allow_code:
        load_code_of(folders)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as draft:
            Publication(Path(draft) / out.name, folders, given.restricted_views).write(given.replay, given.study)
            if out.exists():
                shutil.rmtree(out)
            (Path(draft) / out.name).rename(out)
    except OSError as error:
        raise RunError(f"--output {out} cannot be written ({error.strerror or error})") from None
    log.info("Published: %s", out / "index.html")
    return 0


class Publication:
    """A folder of pages about runs."""

    def __init__(self, out: Path, folders: Sequence[Path], restricted_views: bool):
        self._out, self._runs = out, [RunContents.read(folder.absolute()) for folder in folders]
        self._sharing = Sharing([run.reader for run in self._runs])
        self._restricted_views = restricted_views
        self._names: dict[Path, str] = {}
        self._studies: list[str] = []
        for run in self._runs:
            self._names[run.folder] = _free_name(run.folder.resolve().name, self._names.values())

    def write(self, replays: Sequence[str] | None, studies: Sequence[Path]) -> None:
        """Write all pages; raises RunError, and for named replays SceneError and ScanNotFound."""
        shown = [self._run(run, replays) for run in self._runs]
        scored, unscored = [], []
        for run in self._runs:
            try:
                scored.append(standing_of(run.folder))
            except RunError as error:
                unscored.append(f"No overall: {escaped(str(error))}.")
        if replays and (lacking := set(replays) - {name for each in shown for name, _ in each["asked"]}):
            raise RunError(f"--replay {sorted(lacking)[0]}: no run has an answer of this name that can be shown")
        sections = []
        for each, table in zip(sections_of(tables := tables_of(scored)), tables, strict=True):
            links = [f"runs/{quote(self._names[standing.folder])}.html" for standing in table]
            sections.append({**vars(each), "rows": list(zip(links, each.rows, strict=True))})
        self._page(
            "index.html",
            templates("roomscout.analysis.compare").get_template("published.html.j2").render(
                style=style_of("palette.css", "report.css"),
                sections=sections,
                runs=shown,
                unscored=unscored,
                studies=[self._study(folder.expanduser().absolute()) for folder in studies],
            ),
        )  # fmt: skip
        (self._out / MARK).touch()

    def _page(self, name: str, text: str) -> None:
        path = self._out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._sharing.text(text), encoding="utf-8")

    def _run(self, run: RunContents, replays: Sequence[str] | None) -> dict[str, Any]:
        """Write the report and the replays of a run; returns what the index says of it."""
        name, terms = self._names[run.folder], [] if self._restricted_views else restricted(run)
        asked = [] if terms else self._replays(run, replays)
        known = {about["name"]: about["address"] for _, about in asked}
        report = self._out / "runs" / f"{name}.html"
        views = files_folder(report) / "views"

        def link(path: Path) -> str | None:
            if terms:
                return None
            if path.is_relative_to(files_folder(report)):  # a floor plan
                return quote(str(path.relative_to(report.parent)))
            copy = (views / path.parent.name / path.name).with_suffix(".jpg")
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                with Image.open(path) as image:
                    image.convert("RGB").save(copy, quality=JPEG_QUALITY)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # Pillow's own for broken chunks
                return None
            return quote(str(copy.relative_to(report.parent)))

        def link_to_replay(answer: str) -> str | None:
            return f"../{known[answer]}" if answer in known else None

        write_linked(run, report, link, link_to_replay, self._sharing.text)
        if terms:
            shutil.rmtree(files_folder(report) / "maps", ignore_errors=True)
        title, address = ", ".join([answering(run.facts), *controls_of(run.facts)]), f"runs/{quote(name)}.html"
        return {"name": name, "title": escaped(title), "address": address, "terms": terms, "asked": asked}

    def _replays(self, run: RunContents, named: Sequence[str] | None) -> list[tuple[str, dict[str, str]]]:
        """Write the replays of a run's answers; returns their names as asked for, and what the index says of them."""
        found = []
        for name in default_replays(run) if named is None else named:
            try:
                answer = find_answer(run, name)
            except RunError:  # another run may have it
                continue
            try:
                text = replay_page(replay_of(run, name))
            except (RunError, SceneError, ScanNotFound) as error:
                if named is not None:
                    raise
                log.warning("No replay of %s in %s: %s", name, run.folder, error)
                continue
            file = f"replays/{self._names[run.folder]}_{answer.episode}.html"
            self._page(file, text)
            about = f"{answer.question} – {answer.entry.answer or 'no answer'} ({answer.outcome})"
            found.append((name, {"address": quote(file), "name": str(answer.episode), "about": escaped(about)}))
        return found

    def _study(self, folder: Path) -> dict[str, str]:
        """Write the page of a study, with links to the reports that are published; raises RunError."""
        try:
            text = (folder / "study.html").read_text(encoding="utf-8")
        except OSError as error:
            raise RunError(f"--study {folder} has no page ({error.strerror}): finish it with roomscout study") from None
        known = {run.resolve(): name for run, name in self._names.items()}

        def link(cell: re.Match[str]) -> str:
            name = known.get((folder / unquote(html.unescape(cell[1]))).parent.resolve())
            return f'<a href="../runs/{quote(name)}.html">{cell[2]}</a>' if name else cell[2]

        self._studies.append(page := _free_name(folder.name, self._studies))
        self._page(f"studies/{page}.html", CELL.sub(link, text))
        return {"address": f"studies/{quote(page)}.html", "name": escaped(page)}


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name, or the first of name-2, name-3, ... that is not taken."""
    return next(each for each in chain([name], (f"{name}-{number}" for number in count(2))) if each not in taken)


def restricted(run: RunContents) -> list[str]:
    """The datasets of a run's scans whose owners give access on request, with their terms."""
    known = {**SCANS_FROM, **(run.benchmark.scans_from if run.benchmark else {})}
    asked: list[Question | ResultRow] = [*run.rows.values(), *run.questions.values()]
    datasets = dict.fromkeys(true_dataset(each.dataset, each.scene_name) for each in asked)
    return [f"{name} ({known[name].terms})" for name in datasets if name in known and "request" in known[name].terms]


def default_replays(run: RunContents) -> list[str]:
    """The first answer with full score and the first below it, as far as a run has them."""
    firsts: dict[bool, str] = {}
    for episode, row in sorted(run.rows.items()):
        if row.score is not None and episode in run.begun:
            firsts.setdefault(row.score == 1, str(episode))
    return list(firsts.values())
