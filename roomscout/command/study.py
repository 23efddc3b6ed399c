"""The verb `roomscout study`: runs the cells of a comparison one after the other, and writes their tables."""

import argparse
import json
import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from roomscout.analysis.compare.comparison import protocols_of
from roomscout.analysis.compare.conditions import value_in_words
from roomscout.analysis.report.pdf import PDF_NEEDS, write_plot
from roomscout.analysis.report.writer import page_alone
from roomscout.analysis.study import tables
from roomscout.analysis.study.plots import drawing_of, plot_of
from roomscout.analysis.study.presets import GIVEN, PRESETS, Cell, Preset
from roomscout.analysis.verbs import write_text
from roomscout.base.errors import ConfigError, Refusal, UsageError, flag, in_words
from roomscout.base.extras import is_installed, needs
from roomscout.base.interrupts import acted_on_interrupt
from roomscout.base.processes import environment
from roomscout.base.tables import latex_text
from roomscout.base.text import either, json_in, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.cluster.in_parts import Workers
from roomscout.command import eval as evaluation
from roomscout.command import resume, words
from roomscout.command.demo import demo_settings
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import fingerprint
from roomscout.edge.basis import selected
from roomscout.edge.flags import flags_parser, read_flags
from roomscout.edge.record import script_words
from roomscout.edge.resolve import located, read_saved, resolve
from roomscout.edge.settings import ANSWER_SETTINGS, SETTINGS, VERB_WORDS, flags_giving
from roomscout.runs import RunError
from roomscout.runs.locks import locked
from roomscout.runs.reader import RunReader, find_part, run_folders

log = logging.getLogger(__name__)

TAKES = ("batch", "demo", "retry_failed")
STUDY_FILE = "study.json"  # the preset, the settings and the fingerprint of the questions of a study, in its folder
SCHEMA = 1
PAGE, TABLE, CSV, LATEX, PLOT = "study.html", "study.md", "study.csv", "study.tex", "study"
"""What a study writes in its folder; the plot as .svg and .pdf."""


@dataclass(frozen=True)
class Given:
    """What a command line gives: settings by name, as JSON values, the `part` of --shard as its number and how many
    there are, and whether failed questions of finished cells are retried."""

    settings: dict[str, Any]
    part: tuple[int, int] | None = None
    retry_failed: bool = False


class StudiedCommand:
    """The main command of this package, and what its flags mean."""

    def __init__(self) -> None:
        self.words: Sequence[str] = script_words()
        self._workers = Workers()

    def start(self, flags: Sequence[str]) -> int:
        """Run it with these flags, in a process of its own, or on workers that stay for the next run that asks for the
        same; returns its exit status. Raises KeyboardInterrupt once it has saved its answers."""
        verb, *arguments = words.in_verbs(flags) if flags[0].startswith("-") else flags
        carries_out: dict[str, Callable[..., int]] = {"eval": evaluation.main, "resume": resume.main}
        if verb not in carries_out or not {"--ray", "--gpus"} & set(arguments):
            return started([*self.words, *flags])
        try:
            status = carries_out[verb](arguments, workers=self._workers)
        except (ConfigError, UsageError, Refusal) as error:
            log.error("error: %s", in_words(error))
            return 2
        if status == 130:
            raise KeyboardInterrupt
        return status

    def close(self) -> None:
        """End the workers, if there are any."""
        self._workers.close()

    def read(self, flags: Sequence[str], folder: Path) -> Given:
        """What flags give to a study in a folder; --demo makes its rooms there. Raises ConfigError or UsageError."""
        parser = flags_parser(usage="roomscout study PRESET FOLDER")
        words.add_words(parser, TAKES)
        typed = read_flags(parser, flags, "study", TAKES)
        unused = [flag(name) for name in typed.settings if SETTINGS[name].study == "never"]
        if unused:
            raise UsageError(f"a study has many questions, in runs in its own folder: leave out {', '.join(unused)}")
        names = set(typed.settings)
        if typed.words["demo"]:
            settings = demo_settings(replace(typed, settings={**typed.settings, "log_root": folder}))
            names |= {"model", "max_batched_turns", "questions", "scan_root"}
        else:
            settings = located(read_saved(typed.settings, typed.sources))  # a preset may add what they need
        values = settings.as_json
        of_cells = {name: values[name] for name in names if SETTINGS[name].study == "cell"}
        return Given(of_cells, settings.part, bool(typed.words["retry_failed"]))

    def completed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a run, from some of them; raises ConfigError."""
        return resolve({name: value for name, value in settings.items() if name not in VERB_WORDS}).as_json

    def questions_sha256(self, settings: Mapping[str, Any]) -> str:
        """The fingerprint of the questions; raises QuestionError if they cannot be read."""
        chosen = resolve(settings)
        return fingerprint(selected(chosen, find_benchmark(chosen.benchmark)).questions)


def started(words: Sequence[str]) -> int:
    """Run a command to its end, on the same terminal; returns its exit status, as a shell gives it after a signal. An
    interrupt ends the command as Ctrl-C does, and is raised when it has ended."""
    with subprocess.Popen(words, env=environment()) as process:
        try:
            status = process.wait()
            return 128 - status if status < 0 else status
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise


@dataclass(frozen=True)
class Study:
    """A study in its folder. `settings` are all settings that its cells share."""

    folder: Path
    name: str
    settings: Mapping[str, Any]
    questions_sha256: str

    @property
    def preset(self) -> Preset:
        """The comparison that it makes."""
        return PRESETS[self.name]

    def place_of(self, cell: Cell) -> Path:
        """The folder below which a cell's run is."""
        return self.folder / "runs" / cell.folder

    def run_of(self, cell: Cell, part: tuple[int, int] | None = None) -> Path | None:
        """The run folder of a cell, or of a part of it; None if it has not begun."""
        if part is not None:
            return find_part(self.place_of(cell), *part)
        return next(iter(reversed(run_folders(self.place_of(cell)))), None)

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """The settings of a cell's run."""
        changed = dict(cell.settings)
        if self.preset.takes_moves_of and cell.moves_of != GIVEN:
            changed["moves_of"] = None
        if cell.moves_of and cell.moves_of != GIVEN:
            other = next(other for other in self.preset.cells if other.name == cell.moves_of)
            changed["moves_of"] = str(self.run_of(other) or self.place_of(other))
        return {**self.settings, **changed}


def open_study(folder: Path, name: str, given: Given, command: StudiedCommand) -> Study:
    """Begin a study, or open the one in a folder with what is `given` over its settings; raises RunError if that is
    another study, or cannot be one of the preset or written, and what the command raises."""
    preset = PRESETS[name]
    path = folder / STUDY_FILE
    begun = _read(path)
    if (folder / "run.json").exists():
        raise RunError(f"{folder} is a run folder: name another folder for the study")
    decided = preset.sets - ({"moves_of"} if preset.takes_moves_of else set())
    if taken := [flag(name) for name in given.settings if name in decided]:
        raise RunError(f"the study {name} sets {', '.join(taken)} itself: leave that out")
    if begun is not None:
        _require_same(begun, folder, name, given)
    settings = command.completed({**(begun["settings"] if begun else {}), **given.settings, **preset.shared})
    if preset.takes_moves_of and settings["moves_of"] is None:
        raise RunError(f"{name} also shows the model another's path: add --moves-of RUN, a run over the same questions")
    if given.part is not None and any(cell.moves_of not in ("", GIVEN) for cell in preset.cells):
        raise RunError(f"{name} repeats the moves of whole runs: leave out --shard")
    questions_sha256 = command.questions_sha256(settings)
    if begun is not None and begun["questions_sha256"] != questions_sha256:
        raise RunError(f"{folder} was begun with other questions: name those, or another folder for a new study")
    study = Study(folder, name, settings, questions_sha256)
    for cell in preset.cells:
        try:
            command.completed(study.settings_of(cell))
        except ValueError as error:
            raise RunError(f"{name}, cell {cell.name}: {error}") from None
    _require_same_division(study, given.part)
    if begun is None:
        record = {"schema": SCHEMA, "preset": name, "settings": settings, "questions_sha256": questions_sha256}
        write_text(path, json.dumps(record, indent=2) + "\n")
    return study


def _read(path: Path) -> dict[str, Any] | None:
    try:
        values = json_in(path.read_text(encoding="utf-8"))
        if values["schema"] != SCHEMA:
            raise RunError(f"{path} is of another version: name another folder for a new study")
        return {name: values[name] for name in ("preset", "settings", "questions_sha256")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged ({error}): name another folder for a new study") from None


def _require_same(begun: Mapping[str, Any], folder: Path, name: str, given: Given) -> None:
    """Raise RunError naming the first difference if a study was begun with another preset or other settings."""
    if begun["preset"] != name:
        raise RunError(f"{folder} is a study of {begun['preset']}, not {name}: name another folder")
    for setting in ANSWER_SETTINGS:
        before = begun["settings"].get(setting)
        now = given.settings.get(setting, before)
        if before != now:
            raise RunError(
                f"{folder} was begun with {flag(setting)} {value_in_words(before)}, not {value_in_words(now)}: leave "
                "that out to resume the study, or name another folder for a new one"
            )


def _require_same_division(study: Study, part: tuple[int, int] | None) -> None:
    """Raise RunError if the runs of a study are parts and this call asks whole runs, or the other way round."""
    of = part[1] if part else None
    for cell in study.preset.cells:
        for run in run_folders(study.place_of(cell)):
            begun = RunReader(run).facts.part
            if (begun.of if begun else None) == of:
                continue
            if begun is None:
                raise RunError(f"{study.folder} was begun without --shard: leave that out to resume the study")
            raise RunError(
                f"{study.folder} was begun in {begun.of} parts: add --shard I/{begun.of}, with I the part to resume"
            )


@contextmanager
def only_one(study: Study, part: tuple[int, int] | None) -> Iterator[None]:
    """Hold the lock of a study, or of a part of it, inside this block: two processes would resume each other's cells.
    Raises RunInUse if another process has it, and RunError if that began another study in the folder meanwhile."""
    name = "study.lock" if part is None else f"study_shard{part[0]}of{part[1]}.lock"
    with closing(locked(study.folder / name, "name another folder")):
        begun = _read(study.folder / STUDY_FILE)
        if begun is None or (begun["preset"], begun["questions_sha256"]) != (study.name, study.questions_sha256):
            raise RunError(f"{study.folder} has another study now: name another folder")
        yield


def done_file(run: Path) -> Path:
    """The empty file beside a run folder that says that the command ended normally: answers, report and all."""
    return run.parent / f"{run.name}.done"


def run_cells(study: Study, given: Given, command: StudiedCommand) -> int:
    """Run what is missing of each cell. Returns 0, 1 if a question failed, or the exit status of the run that stopped;
    raises KeyboardInterrupt after the running cell has saved its answers."""
    worst = 0
    cells = study.preset.cells
    for number, cell in enumerate(cells, start=1):
        run = study.run_of(cell, given.part)
        which = f"Cell {number} of {len(cells)}, {cell.name}"
        flags = ["--batch", *flags_giving(study.settings_of(cell)), "--log-root", str(study.place_of(cell))]
        flags += ["--shard", f"{given.part[0]}/{given.part[1]}"] if given.part else []
        if run is not None:
            if done_file(run).exists():
                failed = any(row.failed for row in RunReader(run).rows)
                if not (failed and given.retry_failed):
                    log.info("%s: finished before, in %s", which, run)
                    worst = max(worst, int(failed))
                    continue
            flags += ["--continue", str(run), *(["--retry-failed"] if given.retry_failed else [])]
        what = "begins" if run is None else f"resumes {run}"
        log.info("%s: %s", which, what)
        status = command.start(flags)
        if status not in (0, 1):
            log.error("%s: stopped with exit status %d; to resume, run the same command again", which, status)
            return status
        ended = study.run_of(cell, given.part)
        assert ended is not None, "a command that ends normally leaves a run folder"
        done_file(ended).touch()
        worst = max(worst, status)
    return worst


def finished_runs(study: Study, given: Given, command: StudiedCommand) -> list[Path] | None:
    """The finished run of each cell, merged from its parts if it has some; None while other parts are pending."""
    if given.part is None:
        return [run for run in map(study.run_of, study.preset.cells) if run is not None]
    of = given.part[1]
    parts = {
        cell.name: [study.run_of(cell, (number, of)) for number in range(1, of + 1)] for cell in study.preset.cells
    }
    pending = {
        number
        for runs in parts.values()
        for number, run in enumerate(runs, start=1)
        if run is None or not done_file(run).exists()
    }
    if pending:
        numbers = ", ".join(map(str, sorted(pending)))
        log.info("Pending: parts %s of %d. The last one to finish writes the table.", numbers, of)
        return None
    merged = []
    for cell in study.preset.cells:
        target = study.folder / "merged" / cell.folder
        runs = [run for run in parts[cell.name] if run is not None]
        if not _is_merged(target, runs):
            status = command.start(["merge", str(target), *map(str, runs)])
            if status:
                raise RunError(f"the parts of {cell.name} cannot be merged (exit status {status}); see the line above")
        merged.append(target)
    return merged


def _is_merged(target: Path, parts: Sequence[Path]) -> bool:
    """Whether a folder has these parts merged; removes it if they have changed. RunError if marks would be lost."""
    if not (target / "summary.json").exists():
        return False
    now = [row for part in parts for row in RunReader(part).recorded_rows]
    if RunReader(target).recorded_rows == sorted(now, key=lambda row: row.episode):
        return True
    if RunReader(target).marks and not any(RunReader(part).marks for part in parts):
        raise RunError(f"the parts of {target} have changed, and only it has the marks of its judge: move it away")
    _ = RunReader(target).facts  # raises RunError for a folder that is no run of ours
    log.info("Merged again, since its parts have changed: %s", target)
    shutil.rmtree(target)
    return False


def main(arguments: Sequence[str]) -> int:
    """Run the verb. Returns 0; 1 if a question failed; else the exit status of the run that stopped, such as 130 after
    an interrupt. Raises ConfigError, UsageError, RunError, BenchmarkError or QuestionError if the study cannot run."""
    presets = "\n".join(f"  {name:<10}{preset.does}" for name, preset in PRESETS.items())
    parser = Parser(
        prog="roomscout study",
        usage="roomscout study PRESET FOLDER [FLAGS]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"presets:\n{presets}\n\nAll other flags are those of a run, such as --model, --questions, --scan-root, "
        "--engine and\n--shard; --demo asks about the four rooms of the demo. roomscout --help lists them.",
    )
    parser.add_argument("preset", metavar="PRESET", help=f"{', '.join(PRESETS)}")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder of the study")
    options = parser.parse_args(arguments[:2])
    flags = arguments[2:]
    log_to_stream(sys.stdout)
    folder = options.folder.expanduser().absolute()
    command = StudiedCommand()
    try:
        if options.preset not in PRESETS:
            raise RunError(f"there is no study {options.preset}; use {either(PRESETS)}")
        changes = command.read(flags, folder)
        study = open_study(folder, options.preset, changes, command)
        with only_one(study, changes.part):
            status = run_cells(study, changes, command)
            if status > 1:
                return status
            with ExitStack() as stack:
                if changes.part is not None:  # else this process has that lock; another part may merge and write now
                    lock = locked(study.folder / "study.lock", "name another folder", wait=True)
                    stack.enter_context(closing(lock))
                runs = finished_runs(study, changes, command)
                if runs is None:
                    return status
                results = tables.results_of(study.preset, runs)
                about_model = results.cells[0].answers.about
                title = f"Study of {study.name}: {about_model['policy'] or about_model['model']}"
                write_text(folder / CSV, tables.csv_of(results))
                write_text(folder / TABLE, tables.markdown_of(results, title))
                captioned = {f"{title}: {heading}": table for heading, table in tables.tables_of(results).items()}
                write_text(folder / LATEX, latex_text(captioned))
                write_text(folder / PAGE, _page(results, title, folder))
                plotted = _write_plot(results, folder)
    except KeyboardInterrupt:
        acted_on_interrupt()
        log.warning("Interrupted; to resume, run the same command again.")
        return 130
    finally:
        command.close()
    for line in [*tables.lines_of(results), f"Written: {folder / PAGE}, {TABLE}, {CSV} and {LATEX} beside it{plotted}"]:
        log.info("%s", line)
    return status


def _write_plot(results: tables.Results, folder: Path) -> str:
    """Write the plot as SVG, and as PDF where that can be written; returns what to say of it."""
    drawing = drawing_of(results)
    if drawing is None:
        return ""
    if is_installed(PDF_NEEDS):
        write_plot(drawing, folder / PLOT)
        return f", {PLOT}.svg and {PLOT}.pdf"
    write_text(folder / f"{PLOT}.svg", drawing.svg_alone)
    return f", {PLOT}.svg; {needs(f'{PLOT}.pdf', PDF_NEEDS)}"


def _page(results: tables.Results, title: str, folder: Path) -> str:
    parts = tables.tables_of(results)
    cells = parts["Cells"]
    linked = []
    for row, result in zip(cells.rows, results.cells, strict=True):
        name = row[0]
        if address := result.answers.report_from(folder):
            name = Markup('<a href="{}">{}</a>').format(address, name)
        linked.append([name, *row[1:]])
    return page_alone(
        "roomscout.analysis.study",
        "study.html.j2",
        title=title,
        about=f"{results.preset.does} {tables.about(results)}.",
        plot=plot_of(results),
        tables=parts | {"Cells": replace(cells, rows=linked)},
        notes=tables.notes_of(results),
        protocols=protocols_of({result.cell.name: result.answers for result in results.cells}, "all cells"),
    )
