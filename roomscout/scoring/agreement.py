"""How much several answers to a question agree, and what each person of a run of people scores."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import median

from roomscout.data.answers import AnswerKind
from roomscout.data.benchmark import Benchmark, mean
from roomscout.data.question import Question, kind_code
from roomscout.scoring.intervals import scored_alone
from roomscout.scoring.rows import ResultRow
from roomscout.scoring.scores import Agreement, PersonScores, Scores
from roomscout.scoring.summary import rounded


def agreement_of(rows: Iterable[ResultRow], questions: Mapping[str, Question]) -> dict[str, Agreement]:
    """The mean pairwise agreement of the answers to each question, in percent by kind. Two answers agree by the score
    of one if the other were the truth, both ways round; where one cannot be (a number of 0, or with a judge), if they
    are equal. Questions with two answers or more count once. Raises AnswerKindError."""
    answers: dict[str, list[str]] = {}
    for row in rows:
        if row.answer is not None:
            answers.setdefault(row.id, []).append(row.answer)
    found: dict[str, list[float]] = {}
    for id, given in answers.items():
        if len(given) > 1:
            question = questions[id]
            pairs = [_agree(question, *pair) for pair in combinations(given, 2)]
            found.setdefault(question.kind.name, []).append(mean(pairs))
    return {
        name: Agreement(questions=len(of_kind), percent=rounded(100 * mean(of_kind))) for name, of_kind in found.items()
    }


def _agree(question: Question, first: str, second: str) -> float:
    kind = question.kind
    with kind_code(kind, "wrong_truth"):
        scored = not kind.needs_judge and not any(kind.wrong_truth(each, question.letters) for each in (first, second))
    with kind_code(kind, "score"):
        score = kind.score if scored else lambda answer, truth: AnswerKind.score(kind, answer, truth)
        return (score(first, second) + score(second, first)) / 2


def by_annotator(rows: Sequence[tuple[str, ResultRow]], benchmark: Benchmark) -> dict[str, PersonScores]:
    """The scores by person. Each row comes with the name of its person."""
    found = {}
    for name in dict.fromkeys(name for name, _ in rows):
        own = [row for each, row in rows if each == name]
        percents, intervals = scored_alone(own, benchmark)
        found[name] = PersonScores(
            answers=sum(row.answer is not None for row in own),
            failed=sum(row.failed for row in own),
            percent=rounded(percents["overall"]) if percents else None,
            interval=intervals.percent.get("overall") if intervals else None,
            seconds=round(median(row.seconds for row in own), 1),
        )
    return found


def agreement_lines(scores: Scores) -> list[str]:
    """The agreement and the scores of people, as lines of text."""
    lines = [
        f"Agreement of answers, {name}: {each.percent:.1f} % (pairwise; questions: {each.questions})"
        for name, each in scores.agreement.items()
    ]
    for name, person in scores.annotators.items():
        interval = " ({:.1f} to {:.1f})".format(*person.interval) if person.interval else ""
        score = "" if person.percent is None else f"{person.percent:.1f} %{interval}, "
        failed = f" ({person.failed} more failed and score 0)" if person.failed else ""
        lines.append(f"{name}: {score}{person.answers} answers{failed}, {person.seconds:g} s each (median)")
    return lines
