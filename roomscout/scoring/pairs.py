"""The scores of pairs: the same question about two rooms whose answers differ counts once, with the worse answer."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from roomscout.base.grouping import grouped
from roomscout.base.text import counted
from roomscout.data.answers import AnswerKind, Number, matched_text
from roomscout.data.benchmark import Benchmark
from roomscout.scoring.scores import ResultRow, Scores, Sensitivity


def in_pairs(rows: Iterable[ResultRow], benchmark: Benchmark) -> list[ResultRow]:
    """The rows whose scores count. For a benchmark with pairs: those that have a twin of the same sample with a score,
    each with the smaller of both scores. For any other one: all rows as they are."""
    if not benchmark.pairs:
        return list(rows)
    scored = [row for row in rows if row.score is not None]
    by_sample = grouped((row.sample, (row.id, row.score or 0.0)) for row in scored)
    paired = {sample: scores_in_pairs(dict(scores), benchmark) for sample, scores in by_sample.items()}
    return [replace(row, score=paired[row.sample][row.id]) for row in scored if row.id in paired[row.sample]]


def scores_in_pairs(scores: Mapping[str, float], benchmark: Benchmark) -> dict[str, float]:
    """Scores by question id as they count: the smaller one of the pair, without the questions that lack their twin. All
    as they are for a benchmark without pairs."""
    if not benchmark.pairs:
        return dict(scores)
    pair_of = {name: benchmark.pair_of(name) for name in scores}
    of_pair = grouped((pair, scores[name]) for name, pair in pair_of.items() if pair is not None)
    return {name: min(of_pair[pair]) for name, pair in pair_of.items() if pair is not None and len(of_pair[pair]) > 1}


def by_pair(rows: Iterable[ResultRow], benchmark: Benchmark) -> list[list[ResultRow]]:
    """The rows that did not fail, those together that count as one: the answers of a pair with the same sample, the
    worse first and those without a score last, and each other row by itself."""
    ended = [row for row in rows if not row.failed]
    together = grouped(((benchmark.pair_of(row.id) or (row.id,), row.sample), row) for row in ended)
    return [sorted(answers, key=lambda row: (row.score is None, row.score or 0.0)) for answers in together.values()]


def counted_once(rows: Iterable[ResultRow], benchmark: Benchmark) -> list[ResultRow]:
    """The rows that did not fail, of a pair the worse one."""
    return [answers[0] for answers in by_pair(rows, benchmark)]


def below_full(rows: Iterable[ResultRow], benchmark: Benchmark) -> tuple[list[list[ResultRow]], str]:
    """Of the scored rows, as `by_pair` has them, those that are not fully right, by score and number; and their count
    in words."""
    scored = by_pair((row for row in rows if row.score is not None), benchmark)
    below = [answers for answers in scored if (answers[0].score or 0.0) < 1]
    below.sort(key=lambda answers: (answers[0].score or 0.0, answers[0].episode))
    zero = sum(answers[0].score == 0 for answers in below)
    return below, f"Wrong: {zero} of {len(scored)}, partly right: {len(below) - zero}"


def sensitivity(rows: Iterable[ResultRow], benchmark: Benchmark) -> Sensitivity | None:
    """Whether answers change between the rooms of a pair as the truths do; None without a pair that tells it. A pair
    tells it if both of its questions are scored and answered, and their truths differ; it counts once per sample.
    Numbers change the right way if the signs of both differences are equal, other answers if both are right."""
    scored = by_pair((row for row in rows if row.score is not None), benchmark)
    pairs = [answers for answers in scored if len(answers) == 2]
    changes = [change for first, second in pairs if (change := _change(first, second, benchmark)) is not None]
    if not changes:
        return None
    changed, right_way = map(sum, zip(*changes, strict=True))
    return Sensitivity(pairs=len(changes), changed=changed, right_way=right_way)


def _change(first: ResultRow, second: ResultRow, benchmark: Benchmark) -> tuple[bool, bool] | None:
    """Whether the answers of a pair differ, and whether as the truths do; None if the pair cannot tell it."""
    question_type = benchmark.type_of(first.question_type)
    kind = question_type.kind if question_type else None
    answers = [_value(kind, row.answer, row.answer_text, row) for row in (first, second)]
    truths = [_value(kind, row.ground_truth, row.ground_truth_text, row) for row in (first, second)]
    if None in (*answers, *truths) or truths[0] == truths[1]:
        return None
    changed = answers[0] != answers[1]
    right_way = first.score == second.score == 1
    if isinstance(kind, Number):
        right_way = (answers[0] < answers[1]) == (truths[0] < truths[1])
    return changed, changed and right_way


def _value(kind: AnswerKind | None, answer: str | None, text: str, row: ResultRow) -> Any:
    """What the answers of a pair are compared by: a number, an option's text, or the answer; None without one."""
    if answer is None:
        return None
    if isinstance(kind, Number):
        number = kind.parse(answer, ())
        return None if number is None else float(number)
    of_option = text if row.options else ""
    return matched_text(of_option or answer)


def sensitivity_lines(scores: Scores) -> list[str]:
    """What single answers score beside pairs, and how answers change between two rooms; none without pairs."""
    lines = []
    if scores.asked.single is not None and scores.asked.overall is not None:
        lines.append(f"single answers: {scores.asked.single:.1f} %, pairs: {scores.asked.overall:.1f} %")
    if (found := scores.sensitivity) is not None:
        changed = f"{found.changed} ({100 * found.changed / found.pairs:.1f} %)"
        right_way = f"{found.right_way} ({100 * found.right_way / found.pairs:.1f} %)"
        pairs = counted(found.pairs, "pair")
        lines.append(f"sensitivity: of {pairs}, the answer changes in {changed}, in the right direction in {right_way}")
    return lines
