"""The results of a study: scores and differences of its cells, as tables, a CSV file and Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from roomscout.analysis.compare.answers import Answers, QuestionKey, read_answers
from roomscout.analysis.compare.comparison import Comparison, compare
from roomscout.analysis.compare.conditions import PROTOCOL
from roomscout.analysis.study.presets import Cell, Preset
from roomscout.base.tables import Table, decimal, interval_in_words, p_in_words, with_interval
from roomscout.base.text import counted, escaped, in_markdown
from roomscout.runs import RunError
from roomscout.runs.anytime import Anytime
from roomscout.runs.sights import SightSplit
from roomscout.scoring.intervals import INTERVAL, Difference, Estimate, estimates

OVERALL = "overall"
Losses = Mapping[str, tuple[Estimate, ...]]
"""For each score, the percentage points that each step loses; together with the first cell's percent they are 100."""


@dataclass(frozen=True)
class Score:
    """A score of a cell, in percent, and its difference to the same score of the first cell; None in the first."""

    estimate: Estimate
    difference: Difference | None
    p_holm: float | None


@dataclass(frozen=True)
class CellResult:
    """The scores of a cell by task, with the overall last. `moves` and `never_saw` are None if they are unknown.
    `by_turn` has the overall by turn, if each were the last (--anytime); empty if it is not known."""

    cell: Cell
    answers: Answers
    scores: Mapping[str, Score]
    moves: float | None
    never_saw: float | None
    failed: int
    by_turn: tuple[Estimate, ...] = ()

    @property
    def overall(self) -> Score | None:
        """The overall; None if nothing is scored."""
        return self.scores.get(OVERALL)


@dataclass(frozen=True)
class Results:
    """The cells of a study in their order. All scores are over `questions` questions that every cell finished.
    `left_out` counts those that failed in a cell. `losses` are those of a ladder, else empty."""

    preset: Preset
    cells: tuple[CellResult, ...]
    label: str
    questions: int
    scenes: int
    left_out: int
    losses: Losses = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        """The names of the scores, the overall last."""
        return list(self.cells[0].scores)

    @property
    def knows_sight(self) -> bool:
        """Whether any cell knows what was in view."""
        return any(each.never_saw is not None for each in self.cells)

    @property
    def turns(self) -> int:
        """The largest number of turns of a cell that has the overall by turn; 0 if none has it."""
        return max(len(each.by_turn) for each in self.cells)


def results_of(preset: Preset, runs: Sequence[Path]) -> Results:
    """The results of finished runs, one for each cell; raises RunError if they cannot be compared."""
    named = [replace(answers, name=cell.name) for cell, answers in zip(preset.cells, read_answers(runs), strict=True)]
    failed = frozenset[QuestionKey]().union(*(each.failed for each in named))
    named = [each.without(failed) for each in named]
    for each in named:
        if not each.by_question:
            raise RunError(
                f"{each.path}: no question is finished in every cell; the same command with --retry-failed asks those "
                "again that failed"
            )
    found = compare(named, (PROTOCOL,))
    cells = tuple(
        _cell_result(cell, place, answers, found)
        for place, (cell, answers) in enumerate(zip(preset.cells, named, strict=True))
    )
    overall = found.pairs[0].partial or str(found.pairs[0].label)
    losses = losses_of(preset.steps, named[: len(preset.steps)]) if preset.steps else {}
    return Results(preset, cells, overall, found.questions, found.scenes, len(failed), losses)


def losses_of(steps: Sequence[str], runs: Sequence[Answers]) -> Losses:
    """The losses of a ladder's runs, which must have the same questions; intervals are paired by scene."""
    pairs = [compare(neighbours, (PROTOCOL,)).pairs[0] for neighbours in pairwise(runs)]
    last = {each.name: each for each in estimates(runs[-1].rows, runs[-1].benchmark)}
    found: dict[str, tuple[Estimate, ...]] = {}
    for place, score in enumerate(pairs[0].differences):
        rest = last[score.name]
        interval = (100 - rest.interval[1], 100 - rest.interval[0]) if rest.interval else None
        gained = [pair.differences[place] for pair in pairs]
        all_steps = [*gained, Estimate("", 100 - rest.percent, rest.scenes, interval)]
        found[score.name] = tuple(replace(each, name=step) for each, step in zip(all_steps, steps, strict=True))
    return found


def most_in(of_score: Sequence[Estimate]) -> str:
    """The step that loses most, if its interval and that of the next one do not overlap."""
    first, second = sorted(of_score, key=lambda each: -each.percent)[:2]
    apart = first.interval and second.interval and first.interval[0] > second.interval[1]
    return first.name if apart else "not separable"


def _cell_result(cell: Cell, place: int, answers: Answers, found: Comparison) -> CellResult:
    pair = found.pairs[place - 1] if place else None
    names = [each.name for each in found.pairs[0].differences]
    known = {each.name: each for each in estimates(answers.rows, answers.benchmark)}
    gained = {each.name: each for each in pair.differences} if pair else {}
    adjusted = pair.adjusted if pair else {}
    summary = answers.summary
    everything = summary.types["all"]
    return CellResult(
        cell,
        answers,
        {name: Score(known[name], gained.get(name), adjusted.get(name)) for name in names},
        None if everything.mean_turns is None else everything.mean_turns - 1,
        never_saw(summary.sight),
        everything.failed,
        _by_turn(summary.anytime, known[OVERALL].scenes if OVERALL in known else 0),
    )


def _by_turn(found: Anytime | None, scenes: int) -> tuple[Estimate, ...]:
    if found is None or any(each.percent is None for each in found.by_turn):
        return ()
    return tuple(Estimate(f"turn {each.turn}", each.percent or 0.0, scenes, each.interval) for each in found.by_turn)


def never_saw(found: SightSplit | None) -> float | None:
    """The percentage of answers that never saw an object, of those to questions that need one with a known box."""
    groups = found.types.get("all", {}) if found else {}
    need_one = sum(each.answers for verdict, each in groups.items() if verdict != "no_object")
    if not need_one:
        return None
    return 100 * groups["never_saw"].answers / need_one if "never_saw" in groups else 0.0


def csv_of(results: Results) -> str:
    """All scores as CSV, a row for each cell and task, with the mean number of moves, the percentage of answers that
    never saw an object, and failures in the rows of the overall, and what each cell of a ladder lacks to the next."""
    rows = []
    for place, each in enumerate(results.cells):
        for task, score in each.scores.items():
            gain = score.difference
            row = {
                **{"cell": each.cell.name, "task": task},
                **_cells(score.estimate, "percent", "low", "high"),
                **_cells(gain, "difference", "difference_low", "difference_high"),
                **{"p": _rounded(gain.p_value if gain else None), "p_holm": _rounded(score.p_holm)},
                "scenes": score.estimate.scenes,
                **dict.fromkeys(("moves", "never_saw", "failed"), ""),
            }
            if task == OVERALL:
                row |= {"moves": _rounded(each.moves), "never_saw": _rounded(each.never_saw), "failed": each.failed}
            for loss in results.losses.get(task, ())[place : place + 1]:
                row |= {"step": loss.name, **_cells(loss, "loss", "loss_low", "loss_high")}
            rows.append(row)
    return Table.of(rows).csv()


def _cells(of: Estimate | None, *names: str) -> dict[str, str]:
    """The percent and both edges of the interval, under these names."""
    low, high = of.interval if of and of.interval else (None, None)
    return dict(zip(names, map(_rounded, (of.percent if of else None, low, high)), strict=True))


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def in_words(estimate: Estimate) -> str:
    """The percent with its interval."""
    return with_interval(estimate.percent, estimate.interval)


def tables_of(results: Results) -> dict[str, Table]:
    """The tables of a study by their headings: cells, by turn and steps if it has them, and tasks."""
    found = {"Cells": _cell_table(results)}
    if results.turns:
        found["By turn"] = turn_table(results)
    if results.losses:
        found["Steps"] = loss_table(results)
    rows = [[task, *(in_words(each.scores[task].estimate) for each in results.cells)] for task in results.tasks]
    return found | {"Tasks": Table(["percent", *(each.cell.name for each in results.cells)], rows)}


def _cell_table(results: Results) -> Table:
    any_failed = any(each.failed for each in results.cells)
    rows = []
    for each in results.cells:
        score = each.overall
        cells = ["-"] * 5
        if score is not None:
            gain = score.difference
            difference = [f"{gain.percent:+.1f}", interval_in_words(gain.interval, "+.1f")] if gain else ["-", "-"]
            scored = f"{score.estimate.percent:.1f}", interval_in_words(score.estimate.interval)
            cells = [*scored, *difference, p_in_words(score.p_holm)]
        seen = ["-" if each.never_saw is None else f"{each.never_saw:.1f} %"] if results.knows_sight else []
        failed = [str(each.failed)] if any_failed else []
        rows.append([each.cell.name, *cells, decimal(each.moves), *seen, *failed])
    heads = ["cell", "overall", INTERVAL, f"minus {results.cells[0].cell.name}", INTERVAL, "p (Holm)", "mean moves"]
    heads += (["never saw"] if results.knows_sight else []) + (["failed"] if any_failed else [])
    return Table(heads, rows)


def turn_table(results: Results) -> Table:
    """The overall by turn, if each were the last, of each cell that has it. The last columns count the answers that
    came too early or too late, of those that could, and the worsened ones."""
    rows = []
    for each in results.cells:
        if each.by_turn and (found := each.answers.summary.anytime) is not None:
            early = found.too_early
            late = found.too_late
            rows.append(
                [
                    each.cell.name, *map(in_words, each.by_turn), *["-"] * (results.turns - len(each.by_turn)),
                    f"{early.below_full} of {early.with_moves_left}" if early else "-",
                    f"{late.as_good_earlier} of {late.above_zero}",
                    f"{found.better_earlier} of {found.answers}",
                ]
            )  # fmt: skip
    turns = [f"turn {turn}" for turn in range(results.turns)]
    return Table(["overall", *turns, "too early", "too late", "better earlier"], rows)


def loss_table(results: Results) -> Table:
    """The steps of a ladder by task; a row adds up to 100."""
    first = results.cells[0]
    rows = [
        [task, f"{first.scores[task].estimate.percent:.1f}", *map(in_words, of_task), most_in(of_task)]
        for task, of_task in results.losses.items()
    ]
    return Table(["points lost", first.cell.name, *results.preset.steps, "most in"], rows)


def conditions_of_cells(results: Results) -> list[tuple[str, str]]:
    """The protocol of the cells in pairs of a name and a text: what all have in common once, then the rest of each."""
    parts = {each.cell.name: each.answers.protocol.split(", ") for each in results.cells}
    first, *others = parts.values()
    common = [part for part in first if all(part in other for other in others)]
    own = {name: ", ".join(part for part in of_cell if part not in common) for name, of_cell in parts.items()}
    return [("all cells", ", ".join(common)), *((name, text) for name, text in own.items() if text)]


def notes_of(results: Results) -> list[str]:
    """What a reader of the tables must know, a sentence each."""
    first = results.cells[0].cell.name
    notes = [f"Intervals are over scenes; differences are paired by scene, in percentage points, to “{first}”."]
    if results.preset.also:
        notes.append(f"What else differs: {results.preset.also}")
    if results.left_out:
        whole = "“mean moves” and “never saw” are" if results.knows_sight else "“mean moves” is"
        these = "1 question" if results.left_out == 1 else f"{results.left_out:,} questions"
        notes.append(
            f"Scores and differences leave out {these} that failed in a cell: an error of the scan, the renderer or "
            "the server says nothing of the model. The same command with --retry-failed asks them "
            f"again. {whole} over all questions of a cell."
        )
        if results.turns:
            notes.append("In the table by turn, failed questions score 0.")
    if missing := dict.fromkeys(
        each.estimate.missing
        for result in results.cells
        for each in result.scores.values()
        if each.estimate.missing and not each.estimate.interval
    ):
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
    return "".join(f"{in_markdown(line)}\n" for line in lines)


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
