"""What several answers to each question say together: their mean, the best of k, and the majority's answer."""

from collections.abc import Iterable, Mapping, Sequence
from math import comb

from roomscout.base.grouping import grouped
from roomscout.base.tables import Table, decimal
from roomscout.data.answers import AnswerKind
from roomscout.data.benchmark import Benchmark, mean
from roomscout.data.question import kind_code
from roomscout.scoring.pairs import in_pairs, scores_in_pairs
from roomscout.scoring.scores import ResultRow, SampleScores, Scores
from roomscout.scoring.summary import percents_of


def summarize_samples(
    rows: Iterable[ResultRow], kinds: Mapping[str, AnswerKind], benchmark: Benchmark, samples: int
) -> SampleScores:
    """The scores of the questions with a ground truth and all of their `samples` answers: the "mean", "pass@k" for k =
    2, 4, 8, ... and `samples`, see `pass_at`, and "majority" by the kind's `vote`. `kinds` are by question id. Of a
    benchmark with pairs, each sample of a pair has one score, and so have its two majorities."""
    by_question = grouped((row.id, row) for row in rows if row.score is not None).items()
    complete = {
        name: sorted(answers, key=lambda row: row.sample) for name, answers in by_question if len(answers) == samples
    }
    counted = in_pairs((row for answers in complete.values() for row in answers), benchmark)
    scores = grouped((row.id, row.score) for row in counted if row.score is not None)
    types = [complete[name][0].question_type for name in scores]
    scored = {"mean": list(map(mean, scores.values()))}
    scored |= {f"pass@{k}": [pass_at(k, of_question) for of_question in scores.values()] for k in _ks(samples)}
    majorities = {name: majority_score(complete[name], kinds[name]) for name in scores}
    scored["majority"] = list(scores_in_pairs(majorities, benchmark).values())
    by_type = {name: grouped(zip(types, of_name, strict=True)) for name, of_name in scored.items()}
    percents = {name: percents_of(groups, benchmark) for name, groups in by_type.items()}
    tasks = [name for name in percents["mean"] if name != "overall"]
    return SampleScores(
        of_each=samples,
        questions=len(scores),
        types={kind: {name: 100 * mean(groups[kind]) for name, groups in by_type.items()} for kind in by_type["mean"]},
        tasks={task: {name: of_name[task] for name, of_name in percents.items()} for task in tasks},
        overall={name: of_name["overall"] for name, of_name in percents.items()} if percents["mean"] else None,
    )


def _ks(samples: int) -> list[int]:
    powers = [2**exponent for exponent in range(1, samples.bit_length())]
    return sorted({*powers, samples} - {1})


def pass_at(k: int, scores: Sequence[float]) -> float:
    """The expected best score of k answers: for scores of 0 and 1, unbiased pass@k (arXiv:2107.03374, section 2.1).
    Raises ValueError unless 1 <= k <= the number of scores."""
    if not 1 <= k <= len(scores):
        raise ValueError(f"pass@{k} needs at least {k} answers and k of at least 1, got {len(scores)}")
    # The i-th smallest score is the best of comb(i, k - 1) draws: itself and k - 1 of the i smaller ones.
    best = sum(score * comb(smaller, k - 1) for smaller, score in enumerate(sorted(scores)))
    return best / comb(len(scores), k)


def majority_score(rows: Sequence[ResultRow], kind: AnswerKind) -> float:
    """The score of the answer that the rows of a question vote for; 0 on a tie or for none. Raises AnswerKindError."""
    answers = [row.answer for row in rows if row.answer is not None]
    if not answers:
        return 0.0
    with kind_code(kind, "vote"):
        voted = kind.vote(answers)
    if voted is None:
        return 0.0
    if kind.needs_judge:
        return next(row.score for row in rows if row.answer == voted and row.score is not None)
    with kind_code(kind, "score"):
        return kind.score(voted, rows[0].ground_truth or "")


def format_samples(scores: Scores) -> list[str]:
    """The scores of samples as lines of text, per task, or per type without an overall; none without any."""
    samples = scores.samples
    if samples is None or not samples.questions:
        return []
    title = f"percent of {samples.questions} questions, {samples.of_each} answers each"
    named = samples.tasks | {"overall": samples.overall} if samples.overall else samples.types
    rows = [[name, *map(decimal, values.values())] for name, values in named.items()]
    heads = next(iter(named.values()))
    return ["", *Table([title, *heads], rows).lines()]
