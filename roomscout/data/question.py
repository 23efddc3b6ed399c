"""A question about a scan, and its kind of answer."""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from roomscout import UpAxis
from roomscout.base.loading import code_of_others
from roomscout.base.text import listed
from roomscout.data.answers import AnswerKind
from roomscout.data.benchmark import RESERVED, Benchmark
from roomscout.data.options import Options
from roomscout.data.pictures import Picture
from roomscout.data.question_files import COLUMNS, QuestionError
from roomscout.data.scan_frames import ScanFrame, Start


class AnswerKindError(QuestionError):
    """The code of a kind of answer raised an error. The message names the method, the error, the file and the line."""


@dataclass(frozen=True)
class Question:
    """A question about a scan: columns of question files, and the kind. `load_questions` and `normalized` validate."""

    id: str  # unique in its file
    dataset: str  # of its scan
    scene_name: str  # of its scan
    question_type: str  # a name of a type of the benchmark, or of its own
    question: str  # its text
    options: tuple[str, ...] = ()  # with their letters ("A. Turn Back"); empty unless the answer is a letter
    ground_truth: str | None = None  # a letter, number, yes or no, or text; None if unknown: then it is not scored
    kind: AnswerKind = field(default_factory=lambda: UNDECLARED)  # by default that of its type in the benchmark
    declares_kind: bool = False  # whether the kind was declared with the question instead
    scan: str = ""  # the path of the scan file, also below the scan root; if empty, dataset and scene name locate it
    start: Start | None = None  # where the camera starts; None for the first view of the scan
    extra_answers: tuple[str, ...] = ()  # right as well; only a judge reads them
    scale: float | None = None  # the scan's unit in metres; None for that of the run
    up_axis: UpAxis | None = None  # the scan's axis that points up; None for that of the run
    images: tuple[Picture, ...] = ()  # pictures that come before the first view

    @property
    def frame(self) -> ScanFrame:
        """The unit and the up axis of the scan, as far as they are not those of the run."""
        return ScanFrame(self.scale, self.up_axis)

    @property
    def scene(self) -> tuple[str, str]:
        """The dataset and the scene's name, which identify a scan."""
        return self.dataset, self.scene_name

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the options, in order."""
        return Options(self.options).letters

    @property
    def row(self) -> dict[str, Any]:
        """The question as a row of a question file."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        if self.declares_kind:
            columns |= {"answer_kind": self.kind.name, "unit": self.kind.unit}
        further = {
            "start": self.start and self.start.to_json(),
            "extra_answers": self.extra_answers,
            "images": [asdict(image) if isinstance(image, Picture) else image for image in self.images],
            **vars(self.frame),
        }
        return columns | {name: value for name, value in further.items() if value not in (None, (), [])}

    def parse_answer(self, value: object) -> str | None:
        """A value as an answer to this question in plain form ("B", "2.5", text); None if it is not a valid answer. As
        the other methods about answers, raises AnswerKindError for an error in the code of its kind."""
        with self.kind_code("parse"):
            return self.kind.parse(value, self.letters)

    def text_of(self, letter: str | None) -> str:
        """The text of the option with this letter, in either case; empty if there is none."""
        return dict(Options(self.options).texts).get((letter or "").upper(), "")

    def text_beside(self, answer: str | None, is_truth: bool = False) -> str:
        """What people read beside an answer: the text of its option, or the answer with its unit, or how far it is from
        the ground truth; empty if that is the answer itself. `is_truth` reads the ground truth."""
        if answer is None or self.options:
            return self.text_of(answer)
        beside = None if is_truth else self.ground_truth
        with self.kind_code("in_words"):
            words = self.kind.in_words(answer, beside)
        return "" if words == answer else words

    def in_words(self, answer: str | None, is_truth: bool = False) -> str:
        """An answer, or the ground truth, as people read it; empty for None."""
        return in_words(answer, self.text_beside(answer, is_truth), bool(self.options))

    def guess(self, draw: random.Random, near: Sequence[float] = ()) -> str:
        """A random valid answer, for answers that are places `near` one of the floor, (3,) metres, if it is given."""
        with self.kind_code("guess"):
            if self.kind.in_scan_coordinates and near:
                return self.kind.guess_near(draw, self.letters, near)
            return self.kind.guess(draw, self.letters)

    def score(self, answer: str | None) -> float | None:
        """The score of an answer, 0 to 1 (0 for None); None without a ground truth, or if it needs a judge."""
        if self.ground_truth is None or self.kind.needs_judge:
            return None
        with self.kind_code("score"):
            return self.kind.score(answer, self.ground_truth)

    def more_scores(self, answer: str | None) -> dict[str, float]:
        """Further scores of an answer by name; none without a ground truth."""
        with self.kind_code("more_scores"):
            return {} if self.ground_truth is None else self.kind.more_scores(answer, self.ground_truth)

    def why_invalid(self, shown: str) -> str:
        """Why an answer, as it is shown in messages, is not valid."""
        with self.kind_code("why_invalid"):
            return self.kind.why_invalid(shown, self.letters)

    def kind_code(self, method: str) -> AbstractContextManager[None]:
        """`kind_code` of the question's kind."""
        return kind_code(self.kind, method)


def kind_code(kind: AnswerKind, method: str) -> AbstractContextManager[None]:
    """Names errors of a kind's method, perhaps a user's, as AnswerKindError; read_truth may raise ValueErrors."""
    what = f"the {method} of {type(kind).__name__}"
    passed = (QuestionError, ValueError) if method == "read_truth" else QuestionError
    return code_of_others(what, lambda why: AnswerKindError(f"{why}: fix it"), passed)


def in_words(answer: str | None, text: str, has_options: bool) -> str:
    """An answer with the text beside it as people read it: "A. chair", "2.5 m"; empty for None."""
    if answer is None:
        return ""
    return f"{answer}. {text}" if text and has_options else text or answer


def why_no_truth(question: Question) -> str | None:
    """Why the ground truth of a question cannot be one; None if it can: without a judge, it must score 1 as answer."""
    truth = question.ground_truth or ""
    try:
        with question.kind_code("wrong_truth"):
            wrong = question.kind.wrong_truth(truth, question.letters)
        if wrong is not None:
            return wrong
        answer = question.parse_answer(truth)
        answer = truth if answer is None else answer
        score = question.score(answer)
    except AnswerKindError as error:
        return f"not one that can be scored: {error}"
    if score is not None and score < 1:
        return f"not one that can be right: as an answer, it scores {score:g} by {type(question.kind).__name__}, not 1"
    return None


class _Undeclared:
    """The kind of a question whose type has not been looked up in its benchmark yet."""

    def __repr__(self) -> str:
        return "undeclared"

    def __reduce__(self) -> str:
        """The one object of this class, also after a copy or a pickle."""
        return "UNDECLARED"

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # what copy and pickle look for
            raise AttributeError(attribute)
        raise QuestionError("this Question has no kind of answer yet: pass `kind`, or look its type up by `with_kind`")


UNDECLARED: Any = _Undeclared()


def with_kind(question: Question, benchmark: Benchmark) -> Question:
    """The question with the kind of answer of its type; raises QuestionError for an unknown type. A kind that the
    question has already is kept, and must be that of the type if the type is known."""
    own = benchmark.type_of(question.question_type)
    if question.kind is UNDECLARED:
        if own is None:
            raise QuestionError(
                f"unknown question_type {question.question_type!r}; the types of {benchmark.title} are "
                f"{listed(benchmark.by_name)}; for a type of your own, declare its answers in the columns answer_kind "
                "and unit"
            )
        return replace(question, kind=own.kind)
    if question.question_type in RESERVED:
        raise QuestionError(f"question_type cannot be {question.question_type}: summaries use that name")
    if own is None:
        return replace(question, declares_kind=True)
    if own.kind != question.kind:
        kinds = [f"{kind.name} in {kind.unit}" if kind.unit else kind.name for kind in (own.kind, question.kind)]
        raise QuestionError(
            f"question_type {question.question_type} has answers of kind {kinds[0]}, not {kinds[1]}: leave out "
            "answer_kind and unit, or rename the type"
        )
    return question
