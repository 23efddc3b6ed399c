"""Reads a run into the plain values that a report shows; writes nothing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

from roomscout.data.answers import with_unit
from roomscout.data.benchmark import Benchmark, BenchmarkError
from roomscout.data.boxes import ObjectBox, named_in
from roomscout.data.questions import Question, QuestionError
from roomscout.runs import RunError
from roomscout.runs.baselines import with_blind
from roomscout.runs.costs import Cost, costs, total
from roomscout.runs.hardware import GpuSamples, Hardware, Session, hardware_of
from roomscout.runs.reader import RunReader, parts_of_run
from roomscout.runs.records import EpisodeId, RecordedMessage, ResultRow, RunFacts, Turn
from roomscout.runs.sights import Sight
from roomscout.runs.summary import Summary
from roomscout.scoring.by_dataset import scores_by_dataset
from roomscout.scoring.intervals import intervals_of
from roomscout.scoring.summary import summarize

OUTCOMES = {
    "right": "full score",
    "partly": "a score between 0 and 1",
    "wrong": "score 0",
    "unscored": "answered, without a ground truth",
    "awaiting": "answered, and not scored before a judge marks it",
    "exhausted": "out of turns without an answer",
    "failed": "ended by an error",
    "unfinished": "in progress, or interrupted",
    "pending": "not begun",
}
"""The outcomes of a question, with their meaning."""
Content = TypeVar("Content")
LARGEST_SHOWN = 1e15
"""No plot has room for larger numbers."""


@dataclass(frozen=True)
class Entry:
    """An answer without its turns: what the table and the plots show.

    `numbers` are the answer and the truth if both are numbers that a plot can show, in `unit`. `cost` is its share of
    the run's seconds and tokens, as `costs` returns them.
    """

    name: str
    question_type: str
    scene: str
    question: str
    outcome: str
    score: float | None
    answer: str
    truth: str
    numbers: tuple[float, float] | None
    unit: str
    turns: int
    distance_m: float
    cost: Cost
    sight: str | None = None
    """What was in view, a key of SIGHTS; None if that is not known."""


@dataclass(frozen=True)
class QuestionContents:
    """What a run has recorded of one answer to a question.

    `row` is None until it is finished. `unit` is that of a number, `kind` the kind of its answers; both are empty if
    they are unknown.
    """

    episode: EpisodeId
    id: str
    dataset: str
    scene: str
    question_type: str
    question: str
    options: tuple[str, ...]
    truth: str | None
    kind: str
    unit: str
    row: ResultRow | None
    turns: tuple[Turn, ...]
    messages: tuple[RecordedMessage, ...]
    sight: Sight | None = None
    """What was in view in the turns; None if that is not known."""

    @property
    def outcome(self) -> str:
        """A key of OUTCOMES."""
        if self.row is None:
            return "unfinished" if self.turns else "pending"
        if self.row.status in ("failed", "exhausted"):
            return self.row.status
        if self.row.score is None:
            return "unscored" if self.row.ground_truth is None else "awaiting"
        return "right" if self.row.score == 1 else "partly" if self.row.score else "wrong"

    def named(self, boxes: Iterable[ObjectBox]) -> list[ObjectBox]:
        """Those of a scan's boxes whose objects the question or its options name."""
        return named_in(" ".join([self.question, *self.options]), boxes)

    @property
    def distance_m(self) -> float:
        """The length of the camera's path in metres."""
        return sum(turn.move.moved_m for turn in self.turns if turn.move is not None)

    @cached_property
    def entry(self) -> Entry:
        """What the table and the plots show of it."""
        row = self.row
        answer, truth = (row.answer if row else None), self.truth
        return Entry(
            name=str(self.episode),
            question_type=self.question_type,
            scene=self.scene,
            question=self.question,
            outcome=self.outcome,
            score=row.score if row else None,
            answer=self.in_words(answer, row.answer_text if row else ""),
            truth=self.in_words(truth, row.ground_truth_text if row else ""),
            numbers=self._numbers(answer, truth),
            unit=self.unit,
            turns=len(self.turns),
            distance_m=self.distance_m,
            cost=costs(self.turns, None),
            sight=self.sight.verdict if self.sight else None,
        )

    def in_words(self, answer: str | None, text: str) -> str:
        """An answer with the `text` of its option, or with its unit; empty without one."""
        if answer is None:
            return ""
        return f"{answer}. {text}" if text else with_unit(answer, self.unit)

    def _numbers(self, answer: str | None, truth: str | None) -> tuple[float, float] | None:
        """The answer and the truth as numbers; None if either is not one."""
        if self.kind != "number" or answer is None or truth is None:
            return None
        try:
            numbers = float(answer), float(truth)
        except ValueError:
            return None
        return numbers if all(abs(each) < LARGEST_SHOWN for each in numbers) else None


@dataclass(frozen=True)
class RunContents:
    """A run, read for a report.

    `benchmark` is None if it cannot be loaded. `questions` are those by number that could be read, in a part also those
    of the others. `begun` has the answers with a turn, and who reads each: of a run on Ray in progress, `rows` and
    `begun` include what its `parts` have, except of the answers that are `final` in the run itself. `summary` describes
    the rows; it is summary.json if that is up to date. `missing` says what could not be read, a sentence each; reading
    a question may append to it.
    """

    reader: RunReader
    parts: tuple[RunReader, ...]
    final: frozenset[EpisodeId]
    facts: RunFacts
    benchmark: Benchmark | None
    questions: dict[int, Question]
    rows: dict[EpisodeId, ResultRow]
    begun: dict[EpisodeId, RunReader]
    summary: Summary
    missing: list[str] = field(default_factory=list)
    sights: dict[EpisodeId, Sight] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, earlier: Self | None = None) -> Self:
        """Read a run folder without its turns; raises RunError if run.json is missing, damaged or of another schema.

        Takes the questions, which never change, and what was missing from an `earlier` reading of the same folder.
        """
        missing = list(dict.fromkeys(earlier.missing)) if earlier else []
        reader = RunReader(folder)
        facts = reader.facts
        benchmark = _benchmark(reader, missing)
        questions = earlier.questions if earlier and earlier.questions else _questions(reader, missing)
        rows = {row.episode: row for row in reader.rows}
        final = frozenset(episode for episode, row in rows.items() if not row.failed)  # workers may retry failed ones
        parts: tuple[RunReader, ...] = ()
        if len(final) < facts.episodes:
            parts = tuple(RunReader(part) for part in parts_of_run(folder))
        for part in parts:
            rows |= {row.episode: row for row in part.rows if row.episode not in final}
        begun = _begun(reader, parts, final)
        summary = _summary(reader, facts, benchmark, rows, missing)
        return cls(reader, parts, final, facts, benchmark, questions, rows, begun, summary, missing, reader.sights)

    def with_begun(self) -> Self:
        """A copy that also lists answers begun since; they have no rows yet."""
        return replace(self, begun=_begun(self.reader, self.parts, self.final))

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.reader.folder

    def reader_of(self, episode: EpisodeId) -> RunReader:
        """Who reads an answer: the run's reader, or that of a part."""
        return self.begun.get(episode, self.reader)

    def folder_of(self, episode: EpisodeId) -> Path:
        """The folder of an answer's turns and views."""
        return self.reader_of(episode).folder / str(episode)

    @property
    def pending(self) -> int:
        """How many answers have no result yet."""
        return self.facts.episodes - len(self.rows)

    @cached_property
    def episodes(self) -> list[EpisodeId]:
        """All answers of the run in their order; of a part, only those that it has begun."""
        asked: set[EpisodeId] = set()
        if self.facts.part is None:
            samples = range(1, self.facts.samples + 1)
            asked = {EpisodeId(number, sample) for number in self.questions for sample in samples}
        return sorted(asked | self.begun.keys() | self.rows.keys())

    def question(self, episode: EpisodeId) -> QuestionContents:
        """Read the turns and the conversation of an answer."""
        row, question = self.rows.get(episode), self.questions.get(episode.number)
        known = row or question
        name = known.question_type if known else ""
        of_benchmark = self.benchmark.type_of(name) if self.benchmark and not question else None
        kind = question.kind if question else of_benchmark and of_benchmark.kind
        turns, sight = self._read(episode, RunReader.turns), self.sights.get(episode)
        return QuestionContents(
            episode,
            id=known.id if known else "",
            dataset=known.dataset if known else "",
            scene=known.scene_name if known else "",
            question_type=name,
            question=known.question if known else "",
            options=question.options if question else row.options if row else (),
            truth=known.ground_truth if known else None,
            kind=kind.name if kind else "",
            unit=kind.unit if kind else "",
            row=row,
            turns=turns,
            messages=self._read(episode, RunReader.messages),
            sight=sight if sight is not None and len(sight.surface) == len(turns) else None,
        )

    def _read(
        self, episode: EpisodeId, content_of: Callable[[RunReader, EpisodeId], list[Content]]
    ) -> tuple[Content, ...]:
        try:
            return tuple(content_of(self.reader_of(episode), episode))
        except RunError as error:
            self.missing.append(f"{error}.")
            return ()


def _begun(reader: RunReader, parts: Sequence[RunReader], final: frozenset[EpisodeId]) -> dict[EpisodeId, RunReader]:
    """The answers with a turn, and who reads each."""
    in_parts = {episode: part for part in parts for episode in part.begun if episode not in final}
    return dict.fromkeys(reader.begun, reader) | in_parts


def _benchmark(reader: RunReader, missing: list[str]) -> Benchmark | None:
    try:
        return reader.benchmark
    except RunError as error:
        missing.append(f"{error}. Scores come from summary.json, and units are unknown.")
        return None


def _questions(reader: RunReader, missing: list[str]) -> dict[int, Question]:
    """The questions by number; none if an earlier version began the run and their source is gone."""
    try:
        return dict(enumerate(reader.questions, start=1))
    except (RunError, QuestionError) as error:
        missing.append(f"{error}. Only questions with a result are listed with their text.")
        return {}


def _summary(
    reader: RunReader,
    facts: RunFacts,
    benchmark: Benchmark | None,
    rows: dict[EpisodeId, ResultRow],
    missing: list[str],
) -> Summary:
    """The contents of summary.json; without one, or if it is older than the rows, what it would say of their scores."""
    pending = facts.episodes - len(rows)
    try:
        written = reader.summary
    except RunError as error:
        missing.append(f"{error}.")
        written = None
    if written is not None and (benchmark is None or written.pending == pending):
        return with_blind(written, reader)
    written = written or Summary(pending=pending)
    if benchmark is None:
        return written
    part = str(facts.part).replace(" ", "_") if facts.part else ""
    try:
        of_rows = list(rows.values())
        found = summarize(of_rows, benchmark, pending, part)
        return replace(
            written,
            pending=pending,
            asked=found.asked,
            with_scan=found.with_scan,
            finished=found.finished,
            types=found.types,
            intervals=intervals_of(of_rows, benchmark),
            datasets=scores_by_dataset(of_rows, benchmark),
        )
    except BenchmarkError as error:
        missing.append(f"{error}.")
        return written


def totals(entries: Sequence[Entry], batch_size: int | None = None) -> Cost:
    """The sums of the answers' costs."""
    return total([entry.cost for entry in entries], batch_size)


def hardware_shown(
    entries: Sequence[Entry], sessions: Sequence[Session], samples: Sequence[GpuSamples]
) -> Hardware | None:
    """What `hardware_of` says of the turns so far, also while a run goes on."""
    return hardware_of(totals(entries, sessions[-1].batch_size if sessions else None), sessions, samples)
