"""How much several answers to a question agree, and what each person of a run of people scores."""

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median
from typing import NamedTuple

import numpy as np

from roomscout.base.grouping import grouped
from roomscout.base.tables import Table, decimal, interval_in_words
from roomscout.base.text import counted, listed
from roomscout.data.answers import AnswerKind, Number, matched_text
from roomscout.data.benchmark import Benchmark, mean
from roomscout.data.question import Question, kind_code
from roomscout.scoring.intervals import FEWEST_SCENES, INTERVAL, LEVEL, SEED, scored_alone
from roomscout.scoring.scores import Agreement, EpisodeId, PersonScores, ResultRow, Scores, scores_of
from roomscout.scoring.summary import rounded

DEAL_SEED = 0
RESAMPLES = 1999


def dealt(
    people: Sequence[str], questions: Sequence[Question], benchmark: Benchmark, samples: int
) -> dict[EpisodeId, str]:
    """Who of several people gives which answer, if each question has `samples` answers. Whole scenes, or for fewer
    scenes than people questions, are dealt out in a random order, always the same, so that everybody gets all types.
    With as many samples as people, everybody answers each question once. The second question of a pair, whose scenes
    are dealt out together, goes to others than the first if there are twice as many people as samples."""
    scenes = list(map(benchmark.undivided, questions))
    pairs = [benchmark.pair_of(question.id) for question in questions]
    units: Sequence[Hashable] = scenes
    if len(set(scenes)) < len(people):
        units = [pair or place for place, pair in enumerate(pairs)]
    order = list(dict.fromkeys(units))
    random.Random(DEAL_SEED).shuffle(order)
    first = {unit: place * samples for place, unit in enumerate(order)}
    names = {}
    begun = set[str]()
    for number, (unit, pair) in enumerate(zip(units, pairs, strict=True), start=1):
        place = first[unit]
        if pair in begun:
            place += samples
        elif pair is not None:
            begun.add(pair)
        for sample in range(samples):
            names[EpisodeId(number, sample + 1)] = people[(place + sample) % len(people)]
    return names


def agreement_of(
    rows: Iterable[ResultRow], questions: Mapping[str, Question], people: Mapping[EpisodeId, str]
) -> dict[str, Agreement]:
    """How far the answers to each question agree, by kind of answer, over those with answers of two `people` or more,
    of each person the first one; without people, of two samples or more. Raises AnswerKindError.

    `percent` is the mean agreement of pairs: the score of one if the other were the truth, both ways round; where one
    cannot be (a number of 0, or with a judge), whether they are equal. `alpha` is Krippendorff's, which corrects for
    chance: nominal, or of ratios for numbers ("Computing Krippendorff's Alpha-Reliability", 2011), over scenes."""
    by_question: dict[str, dict[Hashable, ResultRow]] = {}
    missing = Counter[str]()
    for row in sorted(rows, key=lambda row: row.sample):
        if row.answer is None:
            missing[questions[row.id].kind.name] += 1
        else:
            by_question.setdefault(row.id, {}).setdefault(people.get(row.episode, row.sample), row)
    by_kind: dict[str, list[_Unit]] = {}
    for id, answers in by_question.items():
        if len(answers) > 1:
            question = questions[id]
            texts = [str(row.answer) for row in answers.values()]
            pairs = [_agree(question, *pair) for pair in combinations(texts, 2)]
            by_kind.setdefault(question.kind.name, []).append(_Unit(question, texts, mean(pairs)))
    return {name: _agreement(units, missing[name]) for name, units in by_kind.items()}


class _Unit(NamedTuple):
    """The answers of different people to a question, and their mean agreement."""

    question: Question
    answers: list[str]
    agreed: float


def _agreement(units: Sequence[_Unit], missing: int) -> Agreement:
    percent = rounded(100 * mean([unit.agreed for unit in units]))
    agreement = Agreement(questions=len(units), missing=missing, percent=percent)
    alphas = _alphas(units)
    if alphas is None:
        return agreement
    interval = None
    if len(alphas) > 1:
        low, high = np.nanpercentile(alphas[1:], [100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2])
        interval = (round(float(low), 3), round(float(high), 3))
    return replace(agreement, alpha=round(float(alphas[0]), 3), interval=interval)


def _alphas(units: Sequence[_Unit]) -> np.ndarray | None:
    """Alpha, and if the questions are about FEWEST_SCENES scenes or more, that of each resample of these; None for
    points and poses, for which it has no metric, and for answers that are all the same, for which it is not defined."""
    kind = units[0].question.kind
    if kind.in_scan_coordinates or kind.judges_camera:
        return None
    normal = [list(map(matched_text, unit.answers)) for unit in units]
    values = sorted({answer for answers in normal for answer in answers})
    if len(values) < 2:
        return None
    unlike = 1.0 - np.eye(len(values))
    if isinstance(kind, Number):
        numbers = np.array([float(value) for value in values])
        total = np.abs(numbers[:, None]) + np.abs(numbers)
        unlike = np.square((numbers[:, None] - numbers) / np.where(total == 0, 1, total))
    scenes = list(dict.fromkeys(unit.question.scene for unit in units))
    counts = np.zeros((len(scenes), len(values)))
    observed = np.zeros(len(scenes))
    for unit, answers in zip(units, normal, strict=True):
        scene = scenes.index(unit.question.scene)
        own = np.bincount([values.index(answer) for answer in answers], minlength=len(values)).astype(float)
        counts[scene] += own
        observed[scene] += own @ unlike @ own / (len(answers) - 1)
    weights = np.ones((1, len(scenes)))
    if len(scenes) >= FEWEST_SCENES:
        drawn = np.random.default_rng(SEED).multinomial(len(scenes), [1 / len(scenes)] * len(scenes), RESAMPLES)
        weights = np.concatenate([weights, drawn])
    drawn_counts = weights @ counts
    n = drawn_counts.sum(axis=1)
    expected = np.einsum("bi,ij,bj->b", drawn_counts, unlike, drawn_counts, optimize=True) / (n - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected > 0, 1 - weights @ observed / expected, np.nan)


def _agree(question: Question, first: str, second: str) -> float:
    kind = question.kind
    with kind_code(kind, "wrong_truth"):
        letters = question.letters
        unscored = kind.needs_judge or kind.wrong_truth(first, letters) or kind.wrong_truth(second, letters)
    if unscored:
        return AnswerKind.score(kind, first, second)
    with kind_code(kind, "score"):
        return (kind.score(first, second) + kind.score(second, first)) / 2


def by_annotator(rows: Sequence[tuple[str, ResultRow]], benchmark: Benchmark) -> dict[str, PersonScores]:
    """The scores by person, of single answers also for a benchmark with pairs, which people share. Each row comes with
    the name of its person."""
    benchmark = replace(benchmark, pairs="")
    scores = {}
    for name, own in grouped(rows).items():
        percents, intervals = scored_alone(own, benchmark)
        by_type = grouped((row.question_type, row) for row in own)
        found = {key: scores_of(each) for key, each in by_type.items()}
        scores[name] = PersonScores(
            answers=sum(row.answer is not None for row in own),
            by_type={key: (len(each), rounded(100 * mean(each)) if each else None) for key, each in found.items()},
            failed=sum(row.failed for row in own),
            percent=percents.get("overall"),
            interval=intervals.percent.get("overall") if intervals else None,
            seconds=round(median(row.seconds for row in own), 1),
            covers=benchmark.in_overall(key for key, each in found.items() if each) if percents else [],
        )
    return scores


def people_table(scores: Scores) -> Table | None:
    """What each person scores, a column each: by type over how many answers, the mean and what it covers, and the time
    of an answer; None without people."""
    people = scores.annotators
    if not people:
        return None
    rows = [
        [name, *(_of_type(person, name) for person in people.values())]
        for name in scores.types
        if any(name in person.by_type for person in people.values())
    ]
    facts = {
        "mean": [decimal(person.percent) for person in people.values()],
        INTERVAL: [interval_in_words(person.interval) for person in people.values()],
        "which covers": [_covered(person) for person in people.values()],
        "and leaves out": [_left_out(person) for person in people.values()],
        "answers": [str(person.answers) for person in people.values()],
        "failed, scored 0": [str(person.failed or "") for person in people.values()],
        "seconds an answer, median": [f"{person.seconds:g}" for person in people.values()],
    }
    rows += [[fact, *cells] for fact, cells in facts.items() if any(cell not in ("", "-") for cell in cells)]
    return Table(["percent (answers)", *people], rows)


def _of_type(person: PersonScores, name: str) -> str:
    return "{1:.1f} ({0})".format(*person.by_type[name]) if person.by_type.get(name, (0, None))[0] else ""


def _covered(person: PersonScores) -> str:
    """How many answers of which types the mean of a person covers; empty without a mean."""
    answers = sum(person.by_type[name][0] for name in person.covers)
    types = person.covers[0] if len(person.covers) == 1 else f"{len(person.covers)} types"
    return f"{counted(answers, 'answer')} of {types}" if person.covers else ""


def _left_out(person: PersonScores) -> str:
    """The scored types that the mean of a person leaves out."""
    return listed(name for name, (scored, _) in person.by_type.items() if scored and name not in person.covers)


def agreement_lines(scores: Scores) -> list[str]:
    """The agreement and the scores of people, as lines of text."""
    lines = []
    for name, of_kind in scores.agreement.items():
        interval = ", {:.2f} to {:.2f}".format(*of_kind.interval) if of_kind.interval else ""
        alpha = "" if of_kind.alpha is None else f"; Krippendorff's alpha {of_kind.alpha:.2f}{interval}"
        missing = f", missing answers: {of_kind.missing}" if of_kind.missing else ""
        counts = f"questions: {of_kind.questions}{missing}"
        lines.append(f"Agreement of answers, {name}: {of_kind.percent:.1f} % of pairs{alpha} ({counts})")
    table = people_table(scores)
    return [*lines, "", *table.lines(), ""] if table else lines
