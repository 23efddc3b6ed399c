"""Reads a run into what a report shows; writes nothing."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from roomscout.data.answers import with_unit
from roomscout.data.benchmark import Benchmark, BenchmarkError
from roomscout.data.boxes import ObjectBox, named_in
from roomscout.data.questions import Question
from roomscout.runs import RunError
from roomscout.runs.baselines import with_blind
from roomscout.runs.costs import Cost, costs
from roomscout.runs.reader import RunReader, parts_of_run
from roomscout.runs.records import EpisodeId, RecordedMessage, ResultRow, RunFacts, Turn, image_files
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
LOGGED_WARNING = re.compile(r"^\d\d-\d\d [\d:]{8} (?:WARNING|ERROR) (?!\[Q)(.+)$", re.MULTILINE)
"""A line of run.log with a warning or an error that is not about one question."""
LARGEST_SHOWN = 1e15
"""No plot has room for larger numbers."""


@dataclass(frozen=True)
class Entry:
    """An answer without its turns: what the table and the plots show. `numbers` are the answer and the truth if both
    are numbers that a plot can show, in `unit`. `cost` is its share of the run's seconds and tokens. `sight` is what
    was in view, a key of SIGHTS; None if that is not known."""

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
    sight: str | None
    person: str = ""


@dataclass(frozen=True)
class AnswerContents:
    """What is recorded of an answer: `row` once it is finished, `sight` if it is known what was in view, and in a run
    of several people the `person` to whom it was dealt."""

    episode: EpisodeId
    question: Question
    row: ResultRow | None
    turns: tuple[Turn, ...]
    messages: tuple[RecordedMessage, ...]
    sight: Sight | None = None
    person: str = ""

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
        return named_in(" ".join([self.question.question, *self.question.options]), boxes)

    @cached_property
    def entry(self) -> Entry:
        """What the table and the plots show of it."""
        row = self.row
        question = self.question
        return Entry(
            name=str(self.episode),
            question_type=question.question_type,
            scene=question.scene_name,
            question=question.question,
            outcome=self.outcome,
            score=row.score if row else None,
            answer=self.in_words(row.answer if row else None),
            truth=self.in_words(question.ground_truth),
            numbers=self._numbers,
            unit=question.kind.unit,
            turns=len(self.turns),
            distance_m=sum(turn.move.moved_m for turn in self.turns if turn.move is not None),
            cost=costs(self.turns, None),
            sight=self.sight.verdict if self.sight else None,
            person=self.person,
        )

    def in_words(self, answer: str | None) -> str:
        """An answer with the text of its option, or with its unit; empty without one."""
        if answer is None:
            return ""
        text = self.question.text_of(answer)
        return f"{answer}. {text}" if text else with_unit(answer, self.question.kind.unit)

    @property
    def _numbers(self) -> tuple[float, float] | None:
        """The answer and the truth as numbers; None if either is not one."""
        answer = self.row.answer if self.row else None
        truth = self.question.ground_truth
        if self.question.kind.name != "number" or answer is None or truth is None:
            return None
        try:
            numbers = float(answer), float(truth)
        except ValueError:
            return None
        return numbers if all(abs(each) < LARGEST_SHOWN for each in numbers) else None


@dataclass(frozen=True)
class RunContents:
    """A run, read for a report. `questions` are by number, also those of other parts. `begun` has the answers with a
    turn and who reads each; on Ray, `rows` and `begun` include those of `parts` that are not `final` in the run."""

    reader: RunReader
    parts: tuple[RunReader, ...]
    final: frozenset[EpisodeId]
    facts: RunFacts
    benchmark: Benchmark
    questions: dict[int, Question]
    rows: dict[EpisodeId, ResultRow]
    begun: dict[EpisodeId, RunReader]
    summary: Summary
    sights: dict[EpisodeId, Sight]

    @classmethod
    def read(cls, folder: Path, earlier: Self | None = None) -> Self:
        """Read a run folder without its turns; raises RunError naming a file that is missing or damaged. Takes the
        questions, which never change, from an `earlier` reading of the same folder."""
        reader = RunReader(folder)
        facts = reader.facts
        rows = {row.episode: row for row in reader.rows}
        final = frozenset(episode for episode, row in rows.items() if not row.failed)  # workers may retry failed ones
        parts: tuple[RunReader, ...] = ()
        if len(final) < facts.episodes:
            parts = tuple(map(RunReader, parts_of_run(folder)))
        for part in parts:
            rows |= {row.episode: row for row in part.rows if row.episode not in final}
        return cls(
            reader,
            parts,
            final,
            facts,
            reader.benchmark,
            earlier.questions if earlier else dict(enumerate(reader.questions, start=1)),
            rows,
            _begun(reader, parts, final),
            _summary(reader, rows),
            reader.sights,
        )

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

    @cached_property
    def people(self) -> dict[EpisodeId, str]:
        """To whom each answer was dealt; empty without people."""
        return self.reader.people

    @cached_property
    def logged(self) -> list[str]:
        """The warnings and errors in run.log, each once, those about the scan's side first."""
        try:
            text = (self.folder / "run.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        found = dict.fromkeys(LOGGED_WARNING.findall(text))
        return sorted(found, key=lambda line: "up axis" not in line.replace("-", " "))

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

    def finished(self) -> Iterator[AnswerContents]:
        """The answers that have a result, in their order; reads one at a time."""
        return map(self.answer, sorted(self.rows))

    def images(self, episode: EpisodeId, message: RecordedMessage) -> list[Path]:
        """The files of a message's images in order, or the one of a video's frames; RunError for a link outside."""
        names = image_files(message) or ([message["frames"]] if "frames" in message else [])
        paths = [self.folder_of(episode) / name for name in names]
        for path in paths:
            if not path.resolve().is_relative_to(self.reader_of(episode).folder.resolve()):
                raise RunError(f"{path} is a link out of the run folder: replace it by a file")
        return paths

    def answer(self, episode: EpisodeId) -> AnswerContents:
        """Read the turns and the conversation of an answer; raises RunError, also if the run does not ask for it."""
        question = self.questions.get(episode.number)
        samples = self.facts.samples
        if question is None or episode.sample > samples:
            further = f", with q001_s2 to q001_s{samples} for further answers" if samples > 1 else ""
            last = EpisodeId(len(self.questions))
            raise RunError(f"{self.folder} has no {episode}: its questions are q001 to {last}{further}")
        reader = self.reader_of(episode)
        sight = self.sights.get(episode)
        turns = tuple(reader.turns(episode))
        return AnswerContents(
            episode,
            question,
            self.rows.get(episode),
            turns,
            tuple(reader.messages(episode)),
            sight if sight is not None and len(sight.surface) == len(turns) else None,
            self.people.get(episode, ""),
        )


def _begun(reader: RunReader, parts: Sequence[RunReader], final: frozenset[EpisodeId]) -> dict[EpisodeId, RunReader]:
    """The answers with a turn, and who reads each."""
    in_parts = {episode: part for part in parts for episode in part.begun if episode not in final}
    return dict.fromkeys(reader.begun, reader) | in_parts


def _summary(reader: RunReader, rows: dict[EpisodeId, ResultRow]) -> Summary:
    """summary.json; without one, or if it is older than the rows, with what it would say of their scores."""
    facts = reader.facts
    benchmark = reader.benchmark
    written = reader.summary
    pending = facts.episodes - len(rows)
    if written is not None and written.pending == pending:
        return with_blind(written, reader)
    written = written or Summary(pending=pending)
    of_rows = list(rows.values())
    try:
        found = summarize(of_rows, benchmark, pending, str(facts.part or "").replace(" ", "_"))
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
    except BenchmarkError as error:  # the benchmark's own code, which may fail on some of the answers alone
        return replace(written, errors=(*written.errors, str(error)))
