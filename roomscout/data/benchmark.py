"""What a benchmark is: where its questions come from, what its types ask, how it asks about frames of a video, and how
scores are combined and labelled."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roomscout.base.grouping import grouped
from roomscout.base.text import listed
from roomscout.data.answers import LETTER_KIND, TEXT_KIND, AnswerKind, Number, first_word
from roomscout.data.question_files import COLUMNS, HubDataset, JsonReader, QuestionError, QuestionRow

if TYPE_CHECKING:
    from roomscout.data.question import Question

ADVICE_NEEDS = ("pose", "extent", "turns", "translation", "moves")
"""What advice may build on: what prompts tell, a model that moves the camera from its place, and one that moves it."""


@dataclass(frozen=True)
class VideoProtocol:
    """The words and the limits of a benchmark's official protocol on frames of a video. A prompt has the opening, the
    question, the options if there are some, and an ending, each on lines of its own."""

    source: str  # where they were read
    opening: str  # the first line of a prompt
    options: str  # the line above the options
    choice_ending: str  # of a question with options
    number_ending: str  # of a question without options
    frames: int  # how many are shown by default
    max_new_tokens: int  # of a reply, by default
    file: str = "{dataset}/{scene}.mp4"  # of a scene's video, below the folder of videos

    def prompt(self, question: str, options: Sequence[str]) -> str:
        """All text that a model reads."""
        if not options:
            return "\n".join([self.opening, question, self.number_ending])
        return "\n".join([self.opening, question, self.options, *options, self.choice_ending])

    def read(self, reply: str, kind: AnswerKind, letters: Sequence[str]) -> str | None:
        """The answer in a reply: its first word without final periods, if that is the letter of an option in either
        case, or a number that `float` takes; None for any other, which scores 0. Other kinds read the whole reply.
        White space around it does not count: thinking-in-space strips each reply (lmms_eval/api/task.py)."""
        word = first_word(reply.strip())
        if kind.takes_options:
            return next((letter for letter in letters if letter.lower() == word.lower()), None)
        if not isinstance(kind, Number):
            return kind.parse(reply.strip(), letters)
        try:
            number = float(word)
        except ValueError:
            return None
        return kind.parse(word, letters) or kind.parse(number, letters) if math.isfinite(number) else None


class BenchmarkError(QuestionError):
    """A benchmark cannot be loaded. The message names it and says what can be one."""


@dataclass(frozen=True)
class QuestionType:
    """A type of question: its kind of answer, and what a model reads about it."""

    name: str  # as in the column `question_type`
    kind: AnswerKind  # of its answers
    task: str = ""  # the benchmark task that it belongs to, by default the type itself
    advice: str = ""  # ends the system prompt
    wording: str = ""  # pattern of how its questions begin, in any case; user's questions in that wording get the type
    advice_untold: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    """What replaces the advice when prompts do not reveal an item ("pose", "extent" or "turns"), when the camera cannot
    leave its place ("translation") or is moved by others ("moves"); "pose moves" is for both."""
    told_by_extent: bool = field(default=False, kw_only=True)  # whether the room's extent nearly answers it

    def __post_init__(self) -> None:
        for lacking in self.advice_untold:
            if why := wrong_needs(lacking):
                raise ValueError(f"type {self.name!r}: advice_untold {why}")
        object.__setattr__(self, "task", self.task or self.name)


def wrong_needs(lacking: str) -> str | None:
    """Why a key of `advice_untold` is not one or several of ADVICE_NEEDS with blanks between; None if it is."""
    if lacking.split() and set(lacking.split()) <= set(ADVICE_NEEDS):
        return None
    return f"has {lacking!r}: its keys are some of {', '.join(ADVICE_NEEDS)}"


OPEN = QuestionType("open", TEXT_KIND)  # the type of a user's own question without options
OPEN_CHOICE = QuestionType("open_choice", LETTER_KIND)  # the type of a user's own question with options
OWN_TYPES: Mapping[str, QuestionType] = {OPEN.name: OPEN, OPEN_CHOICE.name: OPEN_CHOICE}  # of no benchmark
RESERVED = frozenset(("all", "overall"))  # names that the tables of a summary use beside those of types and tasks


@dataclass(frozen=True)
class Reference:
    """A published score, which a run of a close protocol may be compared with."""

    name: str  # whose score it is
    percent: Mapping[str, float]  # by label
    source: str  # where it was published
    protocol: str = ""  # such as "on video frames"
    means: Mapping[str, float] = field(default_factory=dict)  # of published task scores, by label, without an overall
    frames: int = 0  # of a video; 0 if it is not published how many
    framework: str = ""  # that measured it

    @property
    def origin(self) -> str:
        """Source, protocol and framework in one phrase."""
        protocol = f"{self.frames} video frames" if self.frames else self.protocol
        return ", ".join(filter(None, [self.source, protocol, self.framework]))


@dataclass(frozen=True)
class Origin:
    """Where data comes from, and the terms under which its owners give it. `file` is the one to get there, if any."""

    url: str
    terms: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.url} ({self.terms})"


SCANS_FROM = {  # the owners of the scans of datasets that several benchmarks ask about
    "arkitscenes": Origin("https://github.com/apple/ARKitScenes", "the LICENSE of that repository"),
    "scannet": Origin("https://github.com/ScanNet/ScanNet", "ScanNet Terms of Use, access on request"),
    "scannetpp": Origin("https://kaldir.vc.in.tum.de/scannetpp", "ScanNet++ Terms of Use, access on request"),
}


@dataclass(frozen=True)
class FrequentAnswers:
    """The most frequent ground truths of another set of questions."""

    source: str  # where they were counted, such as "MyBench's training split"
    by_type: Mapping[str, str]  # the answer to each type
    by_category: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of a type: by one such as "chair"
    category_in: Mapping[str, str] = field(default_factory=dict)  # by type: a pattern whose first group is the category
    what: str = "most frequent answer of the type"  # which answers they are

    def answer_to(self, question_type: str, question: str) -> str | None:
        """The answer to a question; None if its type has none."""
        pattern = self.category_in.get(question_type)
        match = re.search(pattern, question) if pattern else None
        category = match[1] if match else ""
        return self.by_category.get(question_type, {}).get(category, self.by_type.get(question_type))


Aggregate = Callable[["Benchmark", Mapping[str, Sequence[float]]], dict[str, float]]
"""Combines the scores (0 to 1) of each type present, in the order of the types, into percent per task and "overall"."""


def mean_over_tasks(benchmark: "Benchmark", scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Percent per task and their unweighted mean as "overall" (a macro average). A task's value is the mean of the
    means of its types, those present. Sums have the order of `benchmark.summed_last`, on which their floats depend."""
    by_task = grouped((benchmark.by_name[name].task, mean(values)) for name, values in scores.items())
    means = {task: sum(parts) / len(parts) for task, parts in by_task.items()}
    last = {task: place for place, task in enumerate(benchmark.summed_last, start=1)}
    order = sorted(means, key=lambda task: (last.get(task, 0), task))
    overall = sum(means[task] for task in order) / len(means)
    return {task: 100 * value for task, value in means.items()} | {"overall": 100 * overall}


def mean_over_questions(benchmark: "Benchmark", scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Percent per task and the mean over all questions as "overall" (a micro average)."""
    by_task = grouped((benchmark.task_of(name), score) for name, values in scores.items() for score in values)
    percents = {task: 100 * mean(values) for task, values in by_task.items()}
    return percents | {"overall": 100 * mean([score for values in by_task.values() for score in values])}


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, summed as NumPy does, like the official scorers."""
    return float(np.mean(values))


SCANNET_ROOM = r"(scene\d{4})_\d{2}"  # ScanNet's name of a scan: scene0000_00 and scene0000_01 are scans of one room


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Everything that RoomScout knows about a benchmark."""

    name: str  # what the setting benchmark takes
    title: str  # what messages call it
    types: tuple[QuestionType, ...]  # in the order of its tables
    excluded: Mapping[str, str] = field(default_factory=dict)  # types, and why they are asked only if they are named
    apart: Mapping[str, QuestionType] = field(default_factory=dict)  # likewise, by the label of their separate scores
    source: HubDataset | None = None  # where the questions come from; None if a file must be given
    columns: tuple[str, ...] = COLUMNS  # that a row must have
    more_columns: tuple[str, ...] = ()  # that a row may have
    read_json: JsonReader | None = None  # the rows from a .json file's content and path; None if that is a list of rows
    read_row: Callable[[QuestionRow], QuestionRow] = lambda row: row  # into COLUMNS and OWN_COLUMNS, or QuestionError
    leaves_out: Callable[[QuestionRow], str] = lambda row: ""
    """Why a row is not asked, to follow "left out since"; empty if it is. Raises ValueError if that is unclear."""
    folder: Callable[[], Path] | None = None
    """Instead of a source: makes or finds a folder of questions.jsonl (.json, .csv, ...) and scans; QuestionError."""
    make_scans: Callable[[Iterable[tuple[str, str]]], None] | None = None
    """Makes the scans of these scenes (dataset and name), if they are not given. A run calls it for what it asks about,
    once its model can be asked. Raises QuestionError, as `make_pictures` does."""
    make_pictures: Callable[[Iterable[tuple[str, str]]], None] | None = None  # likewise, of questions about scenes
    questions_from: Origin | None = None  # where the questions come from
    scans_from: Mapping[str, Origin] = field(default_factory=dict)  # where the scans come from, by dataset
    aggregate: Aggregate = mean_over_tasks  # combines scores
    label: str = ""  # the word for what that returns: with "overall", a mean over seven tasks is "overall_7_task"
    summed_last: tuple[str, ...] = ()  # tasks whose means come last in the sum, in their order
    datasets: tuple[str, ...] = ()
    """All datasets of a fixed set of questions, in the order of tables. An overall over only some of them, or over
    another number of questions than in `sizes`, is then partial, and its label says so. If empty, labels do not."""
    scan_layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by dataset, see `roomscout.data.scans`
    rescans: Mapping[str, str] = field(default_factory=lambda: {"scannet": SCANNET_ROOM})
    """By dataset with several scans of a room: a regular expression of their names, whose first group is the room."""
    pairs: str = ""
    """A regular expression of question ids, whose first group is the pair: one question about two rooms with unlike
    answers. Only pairs count then, each with the smaller of its two scores, see `roomscout.scoring.pairs`."""
    references: tuple[Reference, ...] = ()  # published scores
    sizes: Mapping[str, int] = field(default_factory=dict)  # numbers of questions that published scores cover, by label
    video: VideoProtocol | None = None  # its official protocol on frames of videos; None if it has none
    frequent_answers: FrequentAnswers | None = None  # of a training split; if None, a run counts those in other scenes
    # The next three tell a file with all of its own rows from other questions, see `roomscout.data.sources`.
    counts: Mapping[str, int] = field(default_factory=dict)  # questions by type
    scenes: Mapping[str, int] = field(default_factory=dict)  # their number by dataset
    hashes: frozenset[str] = frozenset()  # of its rows, see `roomscout.data.sources.content_hash`
    scored_as: str = ""  # for other questions than its own: the title of the benchmark whose rules score them

    def __post_init__(self) -> None:
        names = [question_type.name for question_type in self.types]
        tasks = [question_type.task for question_type in self.types]
        if not names:
            raise ValueError("it has no types")
        if twice := [name for name, number in Counter(names).items() if number > 1]:
            raise ValueError(f"several types have the name {twice[0]!r}")
        if taken := {*names, *tasks} & RESERVED:
            raise ValueError(f"no type or task can be called {sorted(taken)[0]!r}: summaries use that name")
        for pattern in self.rescans.values():
            _check_pattern("rescans", pattern, "the room")
        if self.pairs:
            _check_pattern("pairs", self.pairs, "the pair")
        object.__setattr__(self, "label", self.label or f"{self.name.replace('-', '_')}_overall")

    @cached_property
    def by_name(self) -> dict[str, QuestionType]:
        """The types by name, in order."""
        return {question_type.name: question_type for question_type in self.types}

    @cached_property
    def apart_by_name(self) -> dict[str, QuestionType]:
        """The types that are `apart`, by name."""
        return {question_type.name: question_type for question_type in self.apart.values()}

    @property
    def scan_types(self) -> list[str]:
        """Names of the types that are asked by default."""
        return [name for name in self.by_name if name not in self.excluded]

    def type_of(self, name: str) -> QuestionType | None:
        """The benchmark's type of this name, or that of a user's own questions; None for any other name."""
        return self.by_name.get(name) or self.apart_by_name.get(name) or OWN_TYPES.get(name)

    def in_overall(self, types: Iterable[str]) -> list[str]:
        """Which of some types their overall covers: the benchmark's, or without any those that are apart, or else
        all."""
        names = list(dict.fromkeys(types))
        for own in (self.by_name, self.apart_by_name):
            if found := [name for name in own if name in names]:
                return found
        return names

    def make(self, questions: "Sequence[Question]") -> None:
        """Make what these questions are about, as far as it is made and not there yet; raises QuestionError."""
        if self.make_scans is not None:
            self.make_scans({question.scene for question in questions})
        if self.make_pictures is not None:
            self.make_pictures({question.scene for question in questions if question.images})

    def task_of(self, question_type: str) -> str:
        """The task of a type; a type of a user's own is a task of its own."""
        own = self.by_name.get(question_type)
        return own.task if own else question_type

    def room_of(self, dataset: str, scene_name: str) -> tuple[str, str]:
        """The dataset and the room of a scan: those of one room are one scene in statistics."""
        pattern = self.rescans.get(dataset)
        match = re.fullmatch(pattern, scene_name) if pattern else None
        return dataset, match[1] if match else scene_name

    def undivided(self, question: "Question") -> tuple[str, str]:
        """What stays together when a run is cut into parts or dealt out to people: the questions of a scan, and with
        pairs those of both scans of a room."""
        return self.room_of(*question.scene) if self.pairs else question.scene

    def pair_of(self, question_id: str) -> str | None:
        """The pair of a question; None if it belongs to none."""
        match = re.fullmatch(self.pairs, question_id) if self.pairs else None
        return match[1] if match else None

    def type_of_wording(self, question: str, has_options: bool) -> QuestionType:
        """The type whose wording a question has, or that of a user's own questions."""
        for question_type in self.types:
            fits = question_type.wording and question_type.kind.takes_options == has_options
            if fits and re.match(question_type.wording, question.strip(), re.IGNORECASE | re.DOTALL):
                return question_type
        return OPEN_CHOICE if has_options else OPEN


def _check_pattern(name: str, pattern: str, what: str) -> None:
    """Raise ValueError unless a pattern of the field `name` is a regular expression with a group for `what`."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{name}: {pattern!r} is not a regular expression ({error})") from None
    if not groups:
        raise ValueError(f"{name}: {pattern!r} has no group that names {what}")


def origin_lines(benchmark: Benchmark, datasets: Sequence[str]) -> list[str]:
    """Where the questions and the scans of these datasets come from, and under which terms; a line for each origin."""
    parts = [(benchmark.questions_from, "questions")] if benchmark.questions_from else []
    parts += [(benchmark.scans_from[name], f"scans of {name}") for name in datasets if name in benchmark.scans_from]
    return [f"{listed(of_origin)}: {origin}" for origin, of_origin in grouped(parts).items()]
