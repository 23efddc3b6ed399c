"""Reads a run folder: takes no lock, changes nothing, and can read a run in progress."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from roomscout.base.record import Record, adapter_of, reasons
from roomscout.base.shots import VIEW, is_whole_png
from roomscout.base.text import did_you_mean, json_in, on_disk
from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.judged import label_of_judge
from roomscout.data.questions import Question, QuestionError, fingerprint, load_saved
from roomscout.data.sources import named_by
from roomscout.runs import NEWEST, RunError
from roomscout.runs.hardware import HARDWARE_FILE, GpuSamples, Session
from roomscout.runs.recorded_benchmarks import benchmark_of
from roomscout.runs.records import SCHEMA, Baselines, RecordedMessage, RunFacts, SavedShot, ScanRecord, Turn, image_name
from roomscout.runs.sights import Sight
from roomscout.runs.summary import Summary
from roomscout.scoring.agreement import dealt
from roomscout.scoring.baselines import Guesses
from roomscout.scoring.scores import EpisodeId, Mark, Marks, ResultRow

Value = TypeVar("Value")
Line = TypeVar("Line", bound=Record)
QUESTIONS_FILE = "questions.jsonl"  # the copy of a run's questions in its folder
BASELINES_FILE = "baselines.json"  # what the most-frequent-answer baseline answers, in a run's folder
MARKS_FILE = "marks.jsonl"  # what a judge makes of answers in free text, in a run's folder
SIGHTS_FILE = "seen.jsonl"  # what was in view in each answer, in a run's folder
PARTS_FOLDER = "parts"  # the folder with the parts of a run on Ray, in its folder


class RunReader:
    """A run folder so far, read at each access without a torn end of a journal; RunError names a damaged file."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def facts(self) -> RunFacts:
        """The contents of run.json; raises RunError also if it is missing or has another schema."""
        path = self.folder / "run.json"
        try:
            values = json_in(path.read_bytes())
            schema = values.get("schema", SCHEMA)
            if schema == SCHEMA:
                return RunFacts.from_json(values)
        except (FileNotFoundError, NotADirectoryError):
            inside = run_folders(self.folder)
            fix = f"; name a run in it, such as {inside[-1]}" if inside else ""
            raise RunError(f"{self.folder} is not a run folder: it has no run.json{fix}") from None
        except (OSError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is damaged ({error}); restore it, or start a new run") from None
        raise RunError(
            f"{path} has schema {schema}, but this version writes {SCHEMA}: use the version that began the run"
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of run.json and results.jsonl, which grow when the run is resumed and with each result."""
        files = (self.folder / "run.json", self.folder / "results.jsonl")
        return tuple(file.stat().st_size if file.exists() else 0 for file in files)

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark of the run, with labels and title for its questions, and its judge in the label. Executes no
        code that the run names, see `benchmark_of`. Raises RunError if it is not known."""
        benchmark = self._recorded_benchmark
        facts = self.facts
        marks = self.marks
        if facts.source is not None and not facts.of_one_scan:
            benchmark = named_by(facts.source, benchmark)
        if marks is None:
            return benchmark
        return replace(benchmark, label=label_of_judge(benchmark.label, marks.judge, marks.prompts_sha256))

    @property
    def _recorded_benchmark(self) -> Benchmark:
        try:
            return benchmark_of(self.facts)
        except QuestionError as error:
            raise RunError(f"{self.folder}: {error}") from None

    @property
    def questions(self) -> list[Question]:
        """All questions of the run by number, those of the other parts too."""
        try:
            return load_saved(self.folder / QUESTIONS_FILE, self._recorded_benchmark)
        except QuestionError as error:
            raise RunError(str(error)) from None

    def require_questions(self, questions: Sequence[Question], whole: Sequence[Question]) -> None:
        """Raise RunError unless the run was begun with these questions, of these `whole` ones of all parts."""
        facts = self.facts
        same = facts.questions_sha256 == fingerprint(questions)
        if not same or (facts.part and facts.part.questions_sha256 != fingerprint(whole)):
            raise RunError(f"{self.folder} was begun with other questions; resume it with those, or start a new run")

    @property
    def people(self) -> dict[EpisodeId, str]:
        """To whom each answer was dealt; empty without people."""
        names = self.facts.setting("annotator")
        if not names:
            return {}
        return dealt(names, self.questions, self._recorded_benchmark, self.facts.samples)

    @property
    def marks(self) -> Marks | None:
        """The marks of the answers in free text; None if no judge has marked one."""
        marks = self._records(self.folder / MARKS_FILE, Mark)
        if not marks:
            return None
        judges = list(dict.fromkeys((mark.judge, mark.prompts_sha256) for mark in marks))
        if len(judges) > 1:
            raise RunError(f"{self.folder / MARKS_FILE} has marks of several judges: keep the lines of one")
        return Marks(*judges[0], marks)

    @property
    def rows(self) -> list[ResultRow]:
        """The last result of each finished episode, in their order; answers in free text with their judge's scores."""
        marks = self.marks
        return self.recorded_rows if marks is None else list(map(marks.scored, self.recorded_rows))

    @property
    def recorded_rows(self) -> list[ResultRow]:
        """The last result of each finished episode, in their order, as recorded."""
        last = {(row.id, row.sample): row for row in self._records(self.folder / "results.jsonl", ResultRow)}
        unnamed = any(row.person is None for row in last.values())  # of a model, or from before rows named it
        if unnamed and (people := self.people):
            last = {key: replace(row, person=people.get(row.episode)) for key, row in last.items()}
        return sorted(last.values(), key=lambda row: row.episode)

    @property
    def summary(self) -> Summary | None:
        """The contents of summary.json; None before the first export."""
        return self._read(self.folder / "summary.json", Summary.from_json, "resuming the run writes it again")

    @property
    def sessions(self) -> Sequence[Session]:
        """The figures of the processes that worked on the run; empty before the first export."""
        summary = self.summary
        return () if summary is None else summary.sessions

    @property
    def guesses(self) -> Guesses | None:
        """The most frequent answer for each question; None for a run of a single question."""
        fix = "remove it, and the run has no such baseline"
        baselines = self._read(self.folder / BASELINES_FILE, Baselines.from_json, fix)
        return None if baselines is None else baselines.most_frequent

    @property
    def sights(self) -> dict[EpisodeId, Sight]:
        """What was in view in each answer; empty unless it was computed, see `roomscout.analysis.seeing`."""
        return {sight.episode: sight for sight in self._records(self.folder / SIGHTS_FILE, Sight)}

    @property
    def gpu_samples(self) -> list[GpuSamples]:
        """What the GPUs did in the processes that worked on the run, and on its parts."""
        folders = [self.folder, *parts_of_run(self.folder)]
        return [line for folder in folders for line in self._records(folder / HARDWARE_FILE, GpuSamples)]

    @property
    def begun(self) -> list[EpisodeId]:
        """The episodes with a finished turn, in their order."""
        episodes = (EpisodeId.parse(path.parent.name) for path in self.folder.glob("q*/turns.jsonl"))
        return sorted(episode for episode in episodes if episode is not None)

    def turns(self, episode: EpisodeId) -> list[Turn]:
        """An episode's finished turns; empty if it has not begun."""
        folder = self.folder / str(episode)
        turns = []
        for turn in self._records(journal_path(self.folder, episode), Turn):
            names = (VIEW, *turn.see)
            shots = tuple(SavedShot(name, folder / image_name(turn.turn, name)) for name in names)
            turns.append(replace(turn, shots=shots))
        return turns

    def lacks_images(self, row: ResultRow) -> bool:
        """Whether an image of an answer is incomplete, as after a crash. One that is not there may be unwanted."""
        images = (self.folder / str(row.episode)).glob("render_*.png")
        return not row.failed and any(image.is_file() and not is_whole_png(image) for image in images)

    def scan(self, episode: EpisodeId) -> ScanRecord | None:
        """The scan recorded with an episode's turn 0; None if it has not begun or no scan was recorded."""
        first = self._records(journal_path(self.folder, episode), Turn, at_most=1)
        return first[0].scan if first else None

    def all_turns(self) -> Iterator[Turn]:
        """The turns of all episodes."""
        for episode in self.begun:
            yield from self.turns(episode)

    def messages(self, episode: EpisodeId) -> list[RecordedMessage]:
        """The conversation as sent."""
        path = self.folder / str(episode) / "messages.json"
        return (
            self._read(path, adapter_of(list[RecordedMessage]).validate_python, "resuming the question writes it again")
            or []
        )

    def _read(self, path: Path, record_of: Callable[[Any], Value], fix: str) -> Value | None:
        """The record in a JSON file; None if there is no file. Raises RunError, which says how to `fix` it."""
        try:
            return record_of(json_in(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            why = reasons(error) if isinstance(error, ValidationError) else error
            raise RunError(f"{path} is damaged ({why}); {fix}") from None

    def _records(self, path: Path, kind: type[Line], at_most: int | None = None) -> list[Line]:
        """The records of a journal's complete lines, or of the first `at_most`; empty if the file is missing."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunError(f"{path} cannot be read ({error.strerror})") from None
        records = []
        for number, line in enumerate(whole_lines(content)[:at_most], start=1):
            try:
                records.append(kind.from_json(json_in(line)))
            except ValueError as error:
                raise RunError(f"{path}, line {number} is damaged ({error}); fix or remove that line") from None
        return records


def whole_lines(content: bytes) -> list[bytes]:
    """The lines of a journal without what a crash leaves at its end: half a line, or lines with NULs, which JSON never
    has, where a file system had not written what the file's size says."""
    lines = content.splitlines(keepends=True)
    while lines and (b"\0" in lines[-1] or not lines[-1].endswith(b"\n")):
        lines.pop()
    return lines


def journal_path(run: Path, episode: EpisodeId) -> Path:
    """The file of an episode's turns."""
    return run / str(episode) / "turns.jsonl"


def run_folders(log_root: Path) -> list[Path]:
    """The folders of all runs directly below `log_root`, by name."""
    return sorted(path.parent for path in log_root.glob("*/run.json"))


def runs_by_start(log_root: Path, batched_only: bool = False) -> list[Path]:
    """The runs directly below `log_root`, the last begun at the end; if `batched_only`, not of single questions."""
    begun = {}
    for folder in run_folders(log_root):
        try:
            facts = RunReader(folder).facts
            is_batched = not facts.of_one_scan
            began = datetime.fromisoformat(facts.started).timestamp()
        except RunError:  # run.json is damaged: guess
            is_batched = folder.name.endswith("_batched")
            began = (folder / "run.json").stat().st_mtime
        if is_batched or not batched_only:
            begun[folder] = (began, folder.name)
    return sorted(begun, key=begun.__getitem__)


def newest_run(log_root: Path, batched_only: bool = False) -> Path:
    """The last of `runs_by_start`; raises RunError if there is none."""
    runs = runs_by_start(log_root, batched_only)
    if not runs:
        raise RunError(f"no run below {log_root}; start one with roomscout eval, or name a run")
    return runs[-1]


def named_run(named: Path, log_root: Path) -> Path:
    """The run that a user names by path or by name below `log_root`, or another path that exists; else RunError."""
    path = on_disk(named.expanduser())
    for place in (path, log_root / path):
        if (place / "run.json").is_file():
            return place
    if path.exists():
        return path
    fix = did_you_mean(path.name, [run.name for run in run_folders(log_root)], "check the path", f"{log_root}/")
    raise RunError(f"{path} does not exist, and {log_root} has no run of that name: {fix}")


def find_run(continue_from: str, log_root: Path, batched_only: bool = False) -> Path:
    """The run to resume, NEWEST or named by path or name below `log_root`; raises RunError for none."""
    try:
        newest = continue_from == NEWEST
        folder = newest_run(log_root, batched_only) if newest else named_run(Path(continue_from), log_root)
        if not (folder / "run.json").is_file():
            raise RunError(f"{folder} is not a run folder: it has no run.json")
        return folder
    except RunError as error:
        raise RunError(str(error), setting="continue_from") from None


def find_part(log_root: Path, number: int, of: int, name: str | None = None) -> Path | None:
    """The newest run of a part directly below `log_root`, or of a run's `name`; None if no undamaged one exists."""
    return _newest_parts(log_root, name).get((number, of))


def parts_of_run(folder: Path) -> list[Path]:
    """The newest run folder of each part below a run, in the order of the parts. Skips damaged ones."""
    return [part for _, part in sorted(_newest_parts(folder / PARTS_FOLDER).items())]


def _newest_parts(log_root: Path, name: str | None = None) -> dict[tuple[int, int], Path]:
    """The newest run of each part directly below `log_root`, perhaps of one `name`, by number and total."""
    newest = {}
    for folder in runs_by_start(log_root):
        with suppress(RunError):
            facts = RunReader(folder).facts
            if facts.part is not None and name in (None, facts.name):
                newest[facts.part.number, facts.part.of] = folder
    return newest


def load_code_of(folders: Iterable[Path]) -> None:
    """Execute the code that runs name as their benchmark, which readers of this process then use; raises RunError."""
    for folder in folders:
        try:
            find_benchmark(RunReader(folder).facts.setting("benchmark"))
        except QuestionError as error:
            raise RunError(f"{folder}: {error}") from None
