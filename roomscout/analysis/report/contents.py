"""Reads a run into what a report shows; writes nothing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from roomscout.base.grouping import grouped
from roomscout.data.benchmark import Benchmark, BenchmarkError
from roomscout.data.boxes import ObjectBox, named_in
from roomscout.data.questions import Question
from roomscout.runs import RunError
from roomscout.runs.baselines import with_blind
from roomscout.runs.costs import Cost, costs
from roomscout.runs.export import scores_of_run
from roomscout.runs.reader import RunReader, parts_of_run
from roomscout.runs.records import EpisodeId, RecordedMessage, ResultRow, RunFacts, Turn, image_files
from roomscout.runs.sights import Sight
from roomscout.runs.summary import Summary
from roomscout.scoring.headline import Headline, headline_of

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
STOPPED = "; finished turns are on disk"  # a line has it that says why a process stopped before the end of its run
LARGEST_SHOWN = 1e15  # no plot has room for larger numbers


@dataclass(frozen=True)
class Entry:
    """An answer without its turns: what the table and the plots show."""

    name: str  # of its folder, such as q012
    question: Question  # with its truth
    outcome: str  # a key of OUTCOMES
    score: float | None  # from 0 to 1; None if it is not scored
    answer: str  # in words; empty without one
    truth: str  # in words; empty without one
    numbers: tuple[float, float] | None  # answer and truth, if both are numbers that a plot can show
    turns: int  # that it took
    distance_m: float  # that the camera moved
    cost: Cost  # its share of the run's seconds and tokens
    sight: str | None  # what was in view, a key of SIGHTS; None if that is not known
    person: str = ""  # to whom it was dealt; empty without people


@dataclass(frozen=True)
class AnswerContents:
    """What is recorded of an answer."""

    episode: EpisodeId  # which answer to which question it is
    question: Question  # with its truth
    row: ResultRow | None  # None before it is finished
    turns: tuple[Turn, ...]  # with the views; empty before it begins
    messages: tuple[RecordedMessage, ...]  # the conversation; empty without a model
    sight: Sight | None = None  # what was in view; None if that is not known
    person: str = ""  # to whom it was dealt, in a run of several people
    by_person: bool = False  # whether a person replied, so that the text of a reply is what the page wrote

    @property
    def outcome(self) -> str:
        """A key of OUTCOMES."""
        if self.row is None:
            return "unfinished" if self.turns else "pending"
        if self.row.status in ("failed", "exhausted"):
            return self.row.status
        if self.row.score is None:
            return "unscored" if self.row.ground_truth is None else "awaiting"
        if self.row.score == 1:
            return "right"
        return "partly" if self.row.score else "wrong"

    @property
    def places(self) -> list[tuple[str, list[float]]]:
        """Where the "right" answer and the "given" one are, if its kind has places; see `AnswerKind.place`."""
        given = self.row.answer if self.row else None
        answers = {"right": self.question.ground_truth, "given": given}
        with self.question.kind_code("place"):
            places = [(name, self.question.kind.place(text)) for name, text in answers.items() if text is not None]
        return [(name, place) for name, place in places if place is not None]

    def named(self, boxes: Sequence[ObjectBox]) -> list[ObjectBox]:
        """Those of a scan's boxes whose objects the question or its options name."""
        return named_in(" ".join([self.question.question, *self.question.options]), boxes)

    @cached_property
    def clearest_view(self) -> Path | None:
        """The view that shows most of what the question names, or the last one; None without a file."""
        sizes = [0] * len(self.turns)
        for by_turn in (pixels for named in self.sight.objects for pixels in named.pixels) if self.sight else ():
            sizes = [size + count for size, count in zip(sizes, by_turn, strict=True)]
        order = sorted(range(len(sizes)), key=lambda turn: (sizes[turn], turn))
        return self.turns[order[-1]].shots[0].file if order else None

    @cached_property
    def entry(self) -> Entry:
        """What the table and the plots show of it."""
        row = self.row
        return Entry(
            name=str(self.episode),
            question=self.question,
            outcome=self.outcome,
            score=row.score if row else None,
            answer=row.answer_in_words if row else "",
            truth=row.truth_in_words if row else self.question.in_words(self.question.ground_truth, is_truth=True),
            numbers=self._numbers,
            turns=len(self.turns),
            distance_m=sum(turn.move.moved_m for turn in self.turns if turn.move is not None),
            cost=costs(self.turns, None),
            sight=self.sight.verdict if self.sight else None,
            person=self.person,
        )

    @property
    def _numbers(self) -> tuple[float, float] | None:
        answer = self.row.answer if self.row else None
        truth = self.question.ground_truth
        if self.question.kind.name != "number" or answer is None or truth is None:
            return None
        try:
            numbers = float(answer), float(truth)
        except ValueError:
            return None
        return numbers if all(abs(number) < LARGEST_SHOWN for number in numbers) else None


@dataclass(frozen=True)
class RunContents:
    """A run, read for a report; on Ray, with what its parts have and it has not yet."""

    reader: RunReader  # of the run folder
    parts: tuple[RunReader, ...]  # of what the workers of a run in progress write
    final: frozenset[EpisodeId]  # the finished answers of the run itself that did not fail
    facts: RunFacts  # what run.json says
    benchmark: Benchmark  # of the questions
    questions: dict[int, Question]  # by number, also those of other parts
    rows: dict[EpisodeId, ResultRow]  # of the finished answers
    begun: dict[EpisodeId, RunReader]  # the answers with a turn, and who reads each
    summary: Summary  # of these rows
    sights: dict[EpisodeId, Sight]  # what was in view, where that is known

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
        questions = earlier.questions if earlier else dict(enumerate(reader.questions, start=1))
        return cls(
            reader,
            parts,
            final,
            facts,
            reader.benchmark,
            questions,
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
        """The warnings and errors in run.log, each once, those about the scan's side first; of a finished run without
        what stopped it on the way."""
        try:
            text = (self.folder / "run.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        lines = [line for line in dict.fromkeys(LOGGED_WARNING.findall(text)) if self.pending or STOPPED not in line]
        return sorted(lines, key=lambda line: "up axis" not in line.replace("-", " "))

    @cached_property
    def headline(self) -> Headline | None:
        """The overall and what it covers; None if nothing is scored."""
        return headline_of(self.summary, self.benchmark)

    @property
    def left_out(self) -> list[str]:
        """The types that it leaves out."""
        return list(self.headline.left_out) if self.headline else []

    @cached_property
    def twins(self) -> dict[int, int]:
        """The number of the other question of a pair, by that of each."""
        pairs = grouped((self.benchmark.pair_of(question.id), number) for number, question in self.questions.items())
        both = [numbers for pair, numbers in pairs.items() if pair is not None and len(numbers) == 2]
        return {number: sum(numbers) - number for numbers in both for number in numbers}

    def twin_of(self, name: str) -> str | None:
        """The folder of the other answer of a pair, by the name of one; None without a pair."""
        episode = EpisodeId.parse(name)
        twin = self.twins.get(episode.number) if episode else None
        return str(EpisodeId(twin, episode.sample)) if episode and twin else None

    @property
    def pending(self) -> int:
        """How many answers have no result yet."""
        return self.facts.episodes - len(self.rows)

    @cached_property
    def episodes(self) -> list[EpisodeId]:
        """All answers of the run in their order; of a part, only those that it has begun."""
        episodes = {*self.begun, *self.rows}
        if self.facts.part is None:
            samples = range(1, self.facts.samples + 1)
            episodes |= {EpisodeId(number, sample) for number in self.questions for sample in samples}
        return sorted(episodes)

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
        turns = tuple(reader.turns(episode))
        messages = tuple(reader.messages(episode))
        sight = self.sights.get(episode)
        if sight is not None and len(sight.surface) != len(turns):
            sight = None
        person = self.people.get(episode, "")
        by_person = self.facts.by_people
        return AnswerContents(episode, question, self.rows.get(episode), turns, messages, sight, person, by_person)


def _begun(reader: RunReader, parts: Sequence[RunReader], final: frozenset[EpisodeId]) -> dict[EpisodeId, RunReader]:
    in_parts = {episode: part for part in parts for episode in part.begun if episode not in final}
    return dict.fromkeys(reader.begun, reader) | in_parts


def _summary(reader: RunReader, rows: dict[EpisodeId, ResultRow]) -> Summary:
    """summary.json; without one, or if it is older than the rows, with what it would say of their scores."""
    written = reader.summary
    pending = reader.facts.episodes - len(rows)
    if written is not None and written.pending == pending:
        return with_blind(written, reader)
    written = written or Summary(pending=pending)
    try:
        scores = scores_of_run(reader, list(rows.values()), reader.benchmark)
    except BenchmarkError as error:  # the benchmark's own code, which may fail on some of the answers alone
        return replace(written, errors=(*written.errors, str(error)))
    return replace(written, **vars(scores))
