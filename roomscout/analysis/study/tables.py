"""The results of a study: scores and differences of its cells, as tables, a CSV file and Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from roomscout.analysis.compare.answers import Answers, QuestionKey, key_of, read_answers
from roomscout.analysis.compare.comparison import Comparison, compare
from roomscout.analysis.compare.conditions import PROTOCOL
from roomscout.analysis.study.presets import Cell, Preset
from roomscout.analysis.verbs import markdown_text
from roomscout.base.tables import Table, decimal, interval_in_words, p_in_words, with_interval
from roomscout.base.text import counted, escaped
from roomscout.runs import RunError
from roomscout.runs.sights import SightSplit
from roomscout.scoring.intervals import INTERVAL, Difference, Estimate, estimates

OVERALL = "overall"
Losses = Mapping[str, tuple[Estimate, ...]]
"""For each score, the percentage points that each step loses; together with the first cell's percent they are 100."""


@dataclass(frozen=True)
class CellResult:
    """The scores of a cell and what else its run tells."""

    cell: Cell  # how its run differs from the others
    answers: Answers  # without those to questions that failed in any cell
    scores: Mapping[str, Estimate]  # by task, with the overall last
    gains: Mapping[str, Difference]  # each score minus that of the first cell; empty in the first
    moves: float | None  # the mean number of moves of an answer; None if it is unknown
    never_saw: float | None  # see `never_saw`
    failed: int  # how many of its questions failed
    by_turn: tuple[Estimate, ...] = ()  # the overall by turn, if each were the last; empty if it is not known

    @property
    def overall(self) -> Estimate | None:
        """The overall; None if nothing is scored."""
        return self.scores.get(OVERALL)


@dataclass(frozen=True)
class Results:
    """The results of a study. All scores are over the questions that every cell finished."""

    preset: Preset  # what is compared
    cells: tuple[CellResult, ...]  # in their order
    label: str  # what the overall is, in words
    questions: int  # that every cell finished
    scenes: int  # of these questions
    left_out: int  # how many questions failed in a cell
    losses: Losses = field(default_factory=dict)  # of a ladder, else empty

    @property
    def knows_sight(self) -> bool:
        """Whether any cell knows what was in view."""
        return any(cell.never_saw is not None for cell in self.cells)

    @property
    def turns(self) -> int:
        """The largest number of turns of a cell that has the overall by turn; 0 if none has it."""
        return max(len(cell.by_turn) for cell in self.cells)


def results_of(preset: Preset, runs: Sequence[Path]) -> Results:
    """The results of finished runs, one for each cell; raises RunError if they cannot be compared."""
    answered = read_answers(runs)
    failed = frozenset[QuestionKey]().union(*(answers.failed for answers in answered))
    named = []
    for cell, answers in zip(preset.cells, answered, strict=True):
        rows = tuple(row for row in answers.rows if key_of(row) not in failed)
        answers = replace(answers, name=cell.name, rows=rows)
        named.append(answers)
        if not answers.by_question:
            raise RunError(
                f"{answers.path}: no question is finished in every cell; the same command with --retry-failed asks "
                "those again that failed"
            )
    comparison = compare(named, (PROTOCOL,))
    cells = tuple(_cell_result(cell, place, comparison) for place, cell in enumerate(preset.cells))
    first = comparison.pairs[0]
    losses = losses_of(preset.steps, named[: len(preset.steps)]) if preset.steps else {}
    label = (first.partial or str(first.label)) + first.without
    return Results(preset, cells, label, comparison.questions, comparison.scenes, len(failed), losses)


def losses_of(steps: Sequence[str], runs: Sequence[Answers]) -> Losses:
    """The losses of a ladder's runs, which must have the same questions; intervals are paired by scene."""
    pairs = [compare(neighbours, (PROTOCOL,)).pairs[0] for neighbours in pairwise(runs)]
    last = {score.name: score for score in estimates(runs[-1].rows, runs[-1].benchmark)}
    losses: dict[str, tuple[Estimate, ...]] = {}
    for place, score in enumerate(pairs[0].differences):
        rest = last[score.name]
        interval = (100 - rest.interval[1], 100 - rest.interval[0]) if rest.interval else None
        gained = [pair.differences[place] for pair in pairs]
        all_steps = [*gained, Estimate("", 100 - rest.percent, rest.scenes, interval)]
        losses[score.name] = tuple(replace(loss, name=step) for loss, step in zip(all_steps, steps, strict=True))
    return losses


def most_in(of_score: Sequence[Estimate]) -> str:
    """The step that loses most, if its interval and that of the next one do not overlap."""
    first, second = sorted(of_score, key=lambda loss: -loss.percent)[:2]
    apart = first.interval and second.interval and first.interval[0] > second.interval[1]
    return first.name if apart else "not separable"


def _cell_result(cell: Cell, place: int, comparison: Comparison) -> CellResult:
    answers = comparison.runs[place]
    compared = comparison.pairs[place - 1].differences if place else ()
    names = [score.name for score in comparison.pairs[0].differences]
    scores = {score.name: score for score in estimates(answers.rows, answers.benchmark)}
    everything = answers.summary.types["all"]
    turns = answers.summary.anytime.by_turn if answers.summary.anytime else ()
    if any(turn.percent is None for turn in turns):
        turns = ()
    scenes = scores[OVERALL].scenes if OVERALL in scores else 0
    return CellResult(
        cell,
        answers,
        {name: scores[name] for name in names},
        {score.name: score for score in compared},
        moves=None if everything.mean_turns is None else everything.mean_turns - 1,
        never_saw=never_saw(answers.summary.sight),
        failed=everything.failed,
        by_turn=tuple(Estimate(f"turn {turn.turn}", turn.percent or 0.0, scenes, turn.interval) for turn in turns),
    )


def never_saw(split: SightSplit | None) -> float | None:
    """The percentage of answers that never saw an object, of those to questions that need one with a known box."""
    groups = split.types.get("all", {}) if split else {}
    need_one = sum(group.answers for verdict, group in groups.items() if verdict != "no_object")
    if not need_one:
        return None
    return 100 * groups["never_saw"].answers / need_one if "never_saw" in groups else 0.0


def csv_of(results: Results) -> str:
    """All scores as CSV, a row for each cell and task, with the mean number of moves, the percentage of answers that
    never saw an object, and failures in the rows of the overall, and what each cell of a ladder lacks to the next."""
    rows = []
    for place, result in enumerate(results.cells):
        for task, score in result.scores.items():
            gain = result.gains.get(task)
            row = {
                **{"cell": result.cell.name, "task": task},
                **_cells(score, "percent", "low", "high"),
                **_cells(gain, "difference", "difference_low", "difference_high"),
                "p": _rounded(gain.p_value) if gain else "",
                "p_holm": _rounded(gain.p_holm) if gain else "",
                "scenes": score.scenes,
                **dict.fromkeys(("moves", "never_saw", "failed"), ""),
            }
            if task == OVERALL:
                row["moves"] = _rounded(result.moves)
                row["never_saw"] = _rounded(result.never_saw)
                row["failed"] = result.failed
            for loss in results.losses.get(task, ())[place : place + 1]:
                row |= {"step": loss.name, **_cells(loss, "loss", "loss_low", "loss_high")}
            rows.append(row)
    return Table.of(rows).csv()


def _cells(score: Estimate | None, *names: str) -> dict[str, str]:
    """The percent and both edges of the interval, under these names; empty texts for what there is not."""
    values = [] if score is None else [score.percent, *(score.interval or ())]
    return dict.fromkeys(names, "") | dict(zip(names, map(_rounded, values), strict=False))


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def in_words(estimate: Estimate) -> str:
    """The percent with its interval."""
    return with_interval(estimate.percent, estimate.interval)


def tables_of(results: Results) -> dict[str, Table]:
    """The tables of a study by their headings: cells, by turn and steps if it has them, and tasks."""
    tables = {"Cells": _cell_table(results)}
    if results.turns:
        tables["By turn"] = turn_table(results)
    if results.losses:
        tables["Steps"] = loss_table(results)
    rows = [[task, *(in_words(result.scores[task]) for result in results.cells)] for task in results.cells[0].scores]
    heads = ["percent", *(result.cell.name for result in results.cells)]
    return tables | {"Tasks": Table(heads, rows, overall=results.cells[0].overall is not None)}


def _cell_table(results: Results) -> Table:
    any_failed = any(result.failed for result in results.cells)
    rows = []
    for result in results.cells:
        score = result.overall
        cells = ["-"] * 5
        if score is not None:
            cells = [f"{score.percent:.1f}", interval_in_words(score.interval), "-", "-", "-"]
        if (gain := result.gains.get(OVERALL)) is not None:
            cells[2:] = [f"{gain.percent:+.1f}", interval_in_words(gain.interval, "+.1f"), p_in_words(gain.p_holm)]
        row = [result.cell.name, *cells, decimal(result.moves)]
        if results.knows_sight:
            share = "-" if result.never_saw is None else f"{result.never_saw:.1f} %"
            row.append(share)
        if any_failed:
            row.append(str(result.failed))
        rows.append(row)
    heads = ["cell", "overall", INTERVAL, f"minus {results.cells[0].cell.name}", INTERVAL, "p (Holm)", "mean moves"]
    heads += ["never saw"] if results.knows_sight else []
    heads += ["failed"] if any_failed else []
    return Table(heads, rows)


def turn_table(results: Results) -> Table:
    """The overall by turn, if each were the last, of each cell that has it. The last columns count the answers that
    came too early or too late, of those that could, and the worsened ones."""
    rows = []
    for result in results.cells:
        anytime = result.answers.summary.anytime
        if result.by_turn and anytime is not None:
            early = anytime.too_early
            late = anytime.too_late
            scores = [*map(in_words, result.by_turn), *["-"] * (results.turns - len(result.by_turn))]
            too_early = f"{early.below_full} of {early.with_moves_left}" if early else "-"
            too_late = f"{late.as_good_earlier} of {late.above_zero}"
            better = f"{anytime.better_earlier} of {anytime.answers}"
            rows.append([result.cell.name, *scores, too_early, too_late, better])
    turns = [f"turn {turn}" for turn in range(results.turns)]
    return Table(["overall", *turns, "too early", "too late", "better earlier"], rows)


def loss_table(results: Results) -> Table:
    """The steps of a ladder by task; a row adds up to 100."""
    first = results.cells[0]
    rows = [
        [task, f"{first.scores[task].percent:.1f}", *map(in_words, of_task), most_in(of_task)]
        for task, of_task in results.losses.items()
    ]
    return Table(
        ["points lost", first.cell.name, *results.preset.steps, "most in"], rows, overall=OVERALL in results.losses
    )


def notes_of(results: Results) -> list[str]:
    """What a reader of the tables must know, a sentence each."""
    first = results.cells[0].cell.name
    notes = [f"Intervals are over scenes; differences are paired by scene, in percentage points, to “{first}”."]
    if results.preset.also:
        notes.append(f"What else differs: {results.preset.also}")
    if results.left_out:
        whole = "“mean moves” and “never saw” are" if results.knows_sight else "“mean moves” is"
        notes.append(
            f"Scores and differences leave out {counted(results.left_out, 'question')} that failed in a cell: an error "
            "of the scan, the renderer or the server says nothing of the model. The same command with --retry-failed "
            f"asks them again. {whole} over all questions of a cell."
        )
        if results.turns:
            notes.append("In the table by turn, failed questions score 0.")
    scores = [score for result in results.cells for score in result.scores.values()]
    if missing := dict.fromkeys(score.missing for score in scores if score.missing and not score.interval):
        notes.append(f"Some scores have no interval: {'; '.join(missing)}.")
    if results.knows_sight:
        notes.append(
            "“never saw”: the share of the answers that never had an object of their question in view, of those to "
            "questions that name objects with known boxes."
        )
    if results.losses:
        notes.append(
            f"A row of the steps adds up to 100: the score with “{first}”, then what each truth adds to that, "
            "and what is lacking at the end. A negative step: with that truth, the model scores less. “most in” names "
            "a step only if its interval lies above that of the next one."
        )
    if results.turns:
        notes.append(
            "By turn: the overall if each turn were the last; a question that has ended before keeps its answer. “too "
            "early”: perhaps so, answers below full score, of those with moves left. “too late”: answers as good at an "
            "earlier turn, of those above 0. “better earlier”: answers that score less than at an earlier turn."
        )
    return notes


def markdown_of(results: Results, title: str) -> str:
    """The tables as Markdown."""
    lines = [f"# {title}", "", results.preset.does, "", f"{about(results)}.", ""]
    for table in tables_of(results).values():
        lines += [*table.markdown(), ""]
    lines += [f"- {note}" for note in notes_of(results)]
    return markdown_text(lines)


def about(results: Results) -> str:
    """What was asked, in a line."""
    which = f" that every cell finished ({results.left_out:,} failed in one)" if results.left_out else " in each cell"
    label = results.label or "no overall"
    return f"{counted(results.questions, 'question')} about {counted(results.scenes, 'scene')}{which}; {label}"


def lines_of(results: Results) -> list[str]:
    """All tables but that of the tasks as text for a terminal."""
    *tables, _ = tables_of(results).values()
    lines = [line for table in tables for line in ("", *table.lines())]
    return [escaped(line) for line in [about(results), *lines[1:], *notes_of(results)[1:]]]
