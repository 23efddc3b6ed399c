"""The baseline of a policy that always gives the most frequent answer of the question's type."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from roomscout.base.grouping import grouped
from roomscout.data.benchmark import Benchmark
from roomscout.data.questions import Question, Selection
from roomscout.scoring.pairs import scores_in_pairs
from roomscout.scoring.scores import Baseline
from roomscout.scoring.summary import percents_of, rounded


@dataclass(frozen=True)
class Guesses:
    """The most frequent answer for each question that counts towards the overall."""

    source: str  # where they were counted
    answers: Mapping[str, str | None]  # by id; None without a question of the type in another room
    what: str = "most frequent answer of the type"  # which answers they are


def frequent_guesses(questions: Iterable[Question], asked: Selection, benchmark: Benchmark) -> Guesses:
    """The guesses for `questions`, which are all of those `asked` or a part of them. They are the benchmark's
    `frequent_answers` if it has some. Otherwise the guess for a question is the most frequent ground truth of its type
    in the other rooms of the source, the first one on a tie: never in its own room, whose questions share objects with
    it. This is VSI-Bench's frequency baseline (arXiv:2412.14171, section 4) with the question's room held out."""
    scored = [row for row in questions if row.question_type in benchmark.by_name and row.ground_truth is not None]
    if frequent := benchmark.frequent_answers:
        guesses = {question.id: frequent.answer_to(question.question_type, question.question) for question in scored}
        return Guesses(frequent.source, guesses, frequent.what)
    truths = grouped(
        (question.question_type, (benchmark.room_of(*question.scene), question.ground_truth))
        for question in asked.source.questions
        if question.ground_truth is not None
    )

    @cache
    def most_frequent(question_type: str, room: tuple[str, str]) -> str | None:
        elsewhere = Counter(truth for other, truth in truths.get(question_type, ()) if other != room)
        return elsewhere.most_common(1)[0][0] if elsewhere else None

    name = "/".join(asked.source.name.split("/")[-2:])
    answers = {row.id: most_frequent(row.question_type, benchmark.room_of(*row.scene)) for row in scored}
    return Guesses(f"other scenes of {name}", answers)


def frequency_baseline(guesses: Guesses, questions: Iterable[Question], benchmark: Benchmark) -> Baseline | None:
    """The scores of the guesses over the questions with one; None if there is none that is scored without a judge."""
    answers = guesses.answers
    guessed = [question for question in questions if question.id in answers and not question.kind.needs_judge]
    own_scores = {question.id: question.score(answers[question.id]) or 0.0 for question in guessed}
    score_of = scores_in_pairs(own_scores, benchmark)
    scored = [question for question in guessed if question.id in score_of]
    unknown = [question for question in scored if answers[question.id] is None]
    if len(unknown) == len(scored):
        return None
    without = {benchmark.task_of(question.question_type) for question in unknown}
    scores = grouped((question.question_type, score_of[question.id]) for question in scored)
    percents = {name: rounded(percent) for name, percent in percents_of(scores, benchmark).items()}
    return Baseline(
        source=f"{guesses.what} in {guesses.source}",
        questions=len(scored) - len(unknown),
        tasks={name: percent for name, percent in percents.items() if name not in {*without, "overall"}},
        overall=None if without else percents["overall"],
    )
