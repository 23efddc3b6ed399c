"""Writes the report of a run: a page that opens from disk and the folder of its data, or one file with all."""

import logging
import os
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from roomscout.analysis.report import scores
from roomscout.analysis.report.contents import OUTCOMES, Entry, RunContents
from roomscout.analysis.report.maps import FloorPlans
from roomscout.analysis.report.pages import Link, index_of, page_of, replay_file, script, script_json
from roomscout.analysis.report.plots import plots_of
from roomscout.analysis.report.sharing import Sharing
from roomscout.analysis.titles import controls_of, title_of
from roomscout.analysis.verbs import require_outside_runs
from roomscout.base.files import replace_bytes, replace_text, replacing
from roomscout.base.pictures import PictureError, data_url, opened
from roomscout.base.text import RESULT, capitalized, escaped_text, listed
from roomscout.runs import RunError
from roomscout.runs.costs import total
from roomscout.runs.export import ONLY_WITH
from roomscout.runs.hardware import hardware_of
from roomscout.runs.sights import SIGHTS, sight_table
from roomscout.scoring.agreement import agreement_lines, people_table
from roomscout.scoring.by_dataset import dataset_table
from roomscout.scoring.pairs import in_pairs, sensitivity_lines

log = logging.getLogger(__name__)

REPORT_FILE = "report.html"
EMBEDDED_FILE = "report_embedded.html"
STYLES = ("tabulator/tabulator.min.css", "palette.css", "report.css")  # that a page loads, in their order
SCRIPTS = ("tabulator/tabulator.min.js", "report.js")  # likewise
JPEG_QUALITY = 88
MAIN_FACTS = 9  # how many facts the head of a report shows before it folds the others


@dataclass(frozen=True)
class Written:
    """A report that was written: its page, and what it could not show, a sentence each."""

    path: Path
    missing: tuple[str, ...]


def log_report(written: Written) -> None:
    """Log where a report is, and how much of the run it could not show."""
    if written.missing:
        log.warning("The report lacks what could not be read: %s", written.missing[0])
        if len(written.missing) > 1:
            log.warning("It names %d more at its top and on the pages of the questions", len(written.missing) - 1)
    log.log(RESULT, "Report: %s", written.path)


def write_report(folder: Path, out: Path | None = None, embed: bool = False) -> Written:
    """Write the report of a run, by default into its folder, and change nothing else there: with the data in a folder
    beside the page, `report_files` for `report.html`, or with `embed` all in the page. Raises RunError for a folder
    that is no run, damaged files, a name that is not that of a page or that is a run's own, or a report that cannot be
    written."""
    run = RunContents.read(folder.absolute())
    out = (out or run.folder / (EMBEDDED_FILE if embed else REPORT_FILE)).absolute()
    if out.suffix.lower() not in (".html", ".htm"):
        raise RunError(f"--out {out}: name a file that ends in .html")
    require_outside_runs(out, prefix="report")
    files = files_folder(out)
    for folder in (files, *(files / name for name in ("data", "assets", "maps"))):
        if folder.is_symlink():
            raise RunError(f"{folder} is a link, and a report writes beside its page only: remove it, or use --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        missing = (_write_embedded if embed else _write_linked)(run, out)
    except OSError as error:
        raise RunError(f"{error.filename or out} cannot be written ({error.strerror or error})") from None
    return Written(out, tuple(missing))


def files_folder(out: Path) -> Path:
    """The folder of a page's data, named as browsers name those of saved pages."""
    return out.with_name(f"{out.stem}_files")


def _write_linked(run: RunContents, out: Path) -> list[str]:
    """Write a page and its data; returns what they lack. Raises OSError."""

    def link(path: Path) -> str:
        return quote(os.path.relpath(path, out.parent))

    files = files_folder(out)
    data = files / "data"
    data.mkdir(parents=True, exist_ok=True)
    for name in (*STYLES, *SCRIPTS, "tabulator/LICENSE"):
        (files / "assets").mkdir(exist_ok=True)
        replace_bytes(files / "assets" / Path(name).name, (assets() / name).read_bytes())
    entries = list[Entry]()
    missing = list[str]()
    for entry, page in _pages(run, FloorPlans(files / "maps", run.facts), link, missing):
        replay = replay_file(run.folder, entry.name)
        page["replay"] = link(replay) if replay.is_file() else None
        replace_text(data / f"{entry.name}.js", script("question", entry.name, page))
        entries.append(entry)
    replace_text(data / "index.js", script("index", index_of(entries, run)))
    replace_text(out, linked_page(page_values(run, entries, missing), f"{quote(files.name)}/"))
    return missing


def linked_page(values: dict[str, Any], prefix: str = "", *more_scripts: str) -> str:
    """The page of `page_values`, which loads its data and assets from folders below an address."""
    scripts = [f"{prefix}assets/{Path(name).name}" for name in SCRIPTS]
    return template().render(
        **values,
        data=f"{prefix}data",
        nonce="",
        styles=style_addresses(prefix),
        scripts=[*scripts, f"{prefix}data/index.js", *more_scripts],
    )


def _write_embedded(run: RunContents, out: Path) -> list[str]:
    """Write a page with everything in it; returns what it lacks. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="roomscout_maps_") as folder:
        maps = Path(folder)
        missing = list[str]()
        answers = list(_pages(run, FloorPlans(maps, run.facts), str, missing))
        entries = [entry for entry, _ in answers]
        shared = Sharing(run.reader)
        texts = template().generate(
            **page_values(run, entries, missing),
            data="",
            nonce=secrets.token_urlsafe(),
            inline_styles=[(assets() / name).read_text(encoding="utf-8") for name in STYLES],
            inline_scripts=[(assets() / name).read_text(encoding="utf-8") for name in SCRIPTS],
            index=script_json(index_of(entries, run)),
            maps=((path.stem, _data_address(str(path), "PNG")) for path in sorted(maps.glob("*.png"))),
            pages=_embedded(answers),
        )
        with replacing(out) as draft, draft.open("w", encoding="utf-8") as file:
            file.writelines(map(shared.text, texts))
    return missing


def _pages(
    run: RunContents, plans: FloorPlans, link: Link, missing: list[str]
) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """The entry and the page of each answer, one at a time; adds to `missing` what they lack at the end."""
    lacking: dict[str, list[str]] = {}
    for episode in run.episodes:
        answer = run.answer(episode)
        page = page_of(answer, run, plans, link)
        for sentence in page["missing"]:
            lacking.setdefault(sentence, []).append(str(episode))
        yield answer.entry, page
    missing += [f"{listed(names)}: {sentence}" for sentence, names in lacking.items()]


def _embedded(answers: list[tuple[Entry, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """The names and the pages of answers with images as data, and the name of their floor plan in place of its file."""
    for entry, page in answers:
        turns = [
            turn
            | {"view": _data_address(turn["view"])}
            | ({"more": [[name, _data_address(path)] for name, path in turn["more"]]} if "more" in turn else {})
            for turn in page["turns"]
        ]
        plan = page["map"]
        if plan and plan["image"]:
            plan = plan | {"image": f"#{Path(plan['image']).stem}"}
        yield entry.name, script_json(page | {"turns": turns, "map": plan})


def _data_address(path: str | None, form: str = "JPEG") -> str | None:
    """The image in a file as a data: URL; None without a file, or if it is damaged."""
    if path is None:
        return None
    try:
        return data_url(opened(Path(path).read_bytes()).convert("RGB"), form, JPEG_QUALITY)
    except (OSError, PictureError):
        return None


def page_values(run: RunContents, entries: list[Entry], missing: Sequence[str] = ()) -> dict[str, Any]:
    """What the template shows of a run, apart from the addresses of its assets."""
    facts = scores.facts_in_words(run)
    summary = run.summary
    comparability = [line for line in summary.warnings if ONLY_WITH in line]
    outcomes = {entry.outcome for entry in entries}
    sights = {entry.sight for entry in entries}
    sessions = summary.sessions
    batch_size = sessions[-1].batch_size if sessions else None
    counted = [row for row in in_pairs(run.rows.values(), run.benchmark) if row.score is not None]
    cost = total([entry.cost for entry in entries], batch_size)
    return {
        "title": title_of(run.facts, run.benchmark, run.headline),
        "about": scores.about_in_words(run),
        "controls": controls_of(run.facts),
        "run": run,
        "facts": facts[:MAIN_FACTS],
        "more_facts": facts[MAIN_FACTS:],
        "command": shlex.join(["roomscout", *run.facts.flags]),
        "lead": scores.lead_of(run),
        "scores": scores.score_table(run),
        "datasets": dataset_table(summary),
        "further": scores.further_tables(run),
        "by_sight": sight_table(summary.sight) if summary.sight and summary.sight.types else None,
        "warnings": [capitalized(line) for line in (*summary.warnings, *summary.errors) if line not in comparability],
        "judge_command": scores.judge_command(run),
        "no_truth": bool(run.rows) and all(row.ground_truth is None for row in run.rows.values()),
        "scored": summary.asked.scored,
        "below": sum((run.rows[row.episode].score or 0) < 1 for row in counted),
        "cautions": [*(f"{line}." for line in comparability), *scores.cautions(run)],
        "missing": missing,
        "logged": [line for line in run.logged if capitalized(line) not in map(capitalized, summary.warnings)],
        "agreement": agreement_lines(replace(summary, annotators={})),
        "pairs": [capitalized(line) for line in sensitivity_lines(summary)],
        "people": people_table(summary),
        "hardware": (
            [] if run.facts.by_people else scores.hardware_in_words(hardware_of(cost, sessions, run.reader.gpu_samples))
        ),
        "plots": plots_of(entries, summary, cost),
        "outcomes": {name: meaning for name, meaning in OUTCOMES.items() if name in outcomes},
        "sights": {name: meaning for name, meaning in SIGHTS.items() if name in sights},
        "only": entries[0].name if entries and run.facts.episodes == 1 else "",
        "live": "",
        "home": "",
    }


def assets() -> Any:
    """The folder of the files that pages load."""
    return resources.files("roomscout.analysis.report") / "assets"


def template() -> Any:
    """The template of a report, for `page_values`."""
    return templates("roomscout.analysis.report").get_template("report.html.j2")


def style_addresses(prefix: str = "") -> list[str]:
    """The addresses of the style sheets in a folder `assets`."""
    return [f"{prefix}assets/{Path(name).name}" for name in STYLES]


def page_alone(package: str, name: str, **values: Any) -> str:
    """A page of a template of a package, like a report, that loads no files."""
    styles = [(assets() / name).read_text(encoding="utf-8") for name in ("palette.css", "report.css")]
    return str(templates(package).get_template(name).render(inline_styles=styles, **values))


def templates(package: str) -> Any:
    """The templates of a package and the report's, which escape all text for HTML and for display."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("roomscout.analysis.report")]),
        autoescape=True,
        finalize=lambda value: escaped_text(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
