"""The plots of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from roomscout.analysis.report import svg
from roomscout.analysis.report.contents import Entry
from roomscout.analysis.report.scores import BASELINES
from roomscout.analysis.report.svg import (
    BOTTOM,
    HEIGHT,
    TOP,
    WIDEST,
    Dot,
    Drawing,
    Scale,
    number,
    row_plot,
    ticks,
    width_of,
    words_of,
)
from roomscout.base.grouping import grouped
from roomscout.base.tables import interval_in_words
from roomscout.base.text import counted
from roomscout.runs.anytime import Anytime
from roomscout.runs.beliefs import Beliefs
from roomscout.runs.costs import PART_NAMES, Cost
from roomscout.runs.summary import Summary

RIGHT = 12
LEGEND = 18  # the height of a line above a plot
MOST_BINS = 24


@dataclass(frozen=True)
class Plot:
    """A plot with its title and a sentence below it, which says what it covers."""

    title: str
    drawing: Drawing
    note: str


def plots_of(entries: Sequence[Entry], summary: Summary, cost: Cost) -> list[Plot]:
    """The plots of answers that have a `cost` in all, without those that show nothing. One answer alone has none."""
    finished = [entry for entry in entries if entry.outcome not in ("unfinished", "pending")]
    if len(finished) < 2:
        return []
    ended = [entry for entry in finished if entry.outcome != "failed"]
    numbers = [(entry, *entry.numbers) for entry in ended if entry.score is not None and entry.numbers is not None]
    by_type = grouped((answer[0].question.question_type, answer) for answer in numbers)
    plots = [
        _score_per_type(summary),
        _turns_used(ended),
        _score_if_last(summary.anytime),
        _beliefs(summary.beliefs),
        _score_by_map(summary.beliefs),
        _distance([entry.distance_m for entry in ended]),
        *(_answer_against_truth(name, of_type) for name, of_type in by_type.items()),
        _bars(
            "Seconds by part",
            {name: value for part, name in PART_NAMES.items() if (value := cost.seconds.get(part))},
            "seconds",
            "Summed over all turns. The seconds of a batched call, and those that it waited before, count once; those "
            "of moving, rendering and writing overlap with others.",
        ),
        _bars(
            "Tokens by kind",
            {
                "prompt, reused": cost.reused_tokens,
                "prompt, computed": cost.prefilled_tokens,
                "generated": cost.generated_tokens,
            },
            "tokens",
            f"Summed over {counted(cost.turns, 'turn')}.",
        ),
    ]
    return [plot for plot in plots if plot is not None]


def _score_per_type(summary: Summary) -> Plot | None:
    types = [(name, counts) for name, counts in summary.types.items() if counts.percent is not None]
    if not types:
        return None
    rows = [(words_of(name), f"{counts.percent:.1f} (n={counts.questions:,})") for name, counts in types]
    label = "Score per question type in percent"
    drawing, scale, middles = row_plot(rows, (0, 100), label, "score (%)", TOP + LEGEND)
    for middle, (name, text), (key, counts) in zip(middles, rows, types, strict=True):
        percent = counts.percent or 0.0
        _bar(drawing, scale, middle, percent, f"{name}: {text}")
        if (interval := summary.interval(key)) is not None:
            drawing.whisker(scale, interval, middle, f"{interval_in_words(interval)} %")
    x = 8.0
    for key, words in BASELINES.items():
        percents = summary.baselines[key].tasks if key in summary.baselines else {}
        marks = [(middles[row], percents[name]) for row, (name, _) in enumerate(types) if name in percents]
        for middle, percent in marks:
            about = f"{words.lower()}: {percent:.1f} %"
            drawing.diamond(scale(percent), middle, 5, f"mark {key}", about)
        if marks:
            drawing.diamond(x, 10, 5, f"mark {key}")
            drawing.text(x + 10, 14, words.lower())
            x += 34 + width_of([words])
    note = "Mean score of each type; numbers score by their relative error. n counts its answers."
    if any(summary.interval(name) for name, _ in types):
        note += " Whiskers are 95 % intervals over scenes."
    return Plot("Score per type", drawing, note)


def _turns_used(entries: Sequence[Entry]) -> Plot | None:
    if not entries:
        return None
    longest = max(entry.turns for entry in entries)
    counts = {turn: [entry for entry in entries if entry.turns == turn] for turn in range(1, longest + 1)}
    drawing, up, left = _counting("Histogram of the turns per question", max(map(len, counts.values()), default=1))
    across = Scale(0.5, longest + 0.5, left, WIDEST - RIGHT)
    for turn, of_turn in counts.items():
        answered = sum(entry.outcome != "exhausted" for entry in of_turn)
        start = across(turn - 0.4)
        width = across(turn + 0.4) - start
        drawing.rect(start, up(answered), width, up(0) - up(answered), "bar", f"{turn} turns: {answered} answered")
        if left_over := len(of_turn) - answered:
            about = f"{turn} turns: {left_over} exhausted"
            drawing.rect(start, up(len(of_turn)), width, up(answered) - up(len(of_turn)), "bar exhausted", about)
    every = 1 if longest <= 20 else 5
    named = [(turn, str(turn)) for turn in counts if turn % every == 0]
    svg.steps_axis(drawing, across, named, up(0), "turns of a question")
    exhausted = sum(entry.outcome == "exhausted" for entry in entries)
    if exhausted:
        drawing.rect(left, 2, 12, 9, "bar exhausted")
        drawing.text(left + 18, 11, "out of turns without an answer")
    note = f"n = {len(entries)}, mean {fmean(entry.turns for entry in entries):.1f}"
    note += f"; dashed: {exhausted} exhausted." if exhausted else "; none was exhausted."
    return Plot("Turns used", drawing, note)


def _score_if_last(anytime: Anytime | None) -> Plot | None:
    by_turn = anytime.by_turn if anytime else ()
    scores = [(score, score.percent) for score in by_turn if score.percent is not None]
    if anytime is None or len(scores) < max(2, len(by_turn)):
        return None
    dots = {
        place: Dot("", percent, score.interval, f"turn {score.turn}: {percent:.1f} %, {score.forced} forced answers")
        for place, (score, percent) in enumerate(scores)
    }
    turns = [str(score.turn) for score, _ in scores]
    drawing = svg.curve_plot({"": dots}, turns, (0, 100), ("last turn", "overall (%)"))
    note = (
        f"n = {anytime.answers} answers. After each turn, the answer that the model gives when it has to; a question "
        "that has ended keeps its own. The last point is the overall of the run."
    )
    if any(score.interval for score, _ in scores):
        note += " Lines are 95 % intervals over scenes."
    return Plot("Overall if each turn were the last", drawing, note)


def _beliefs(beliefs: Beliefs | None) -> Plot | None:
    if beliefs is None or len(beliefs.by_turn) < 2:
        return None
    curves: dict[str, dict[int, Dot]] = {"precision": {}, "recall": {}, "coverage": {}}
    for place, after in enumerate(beliefs.by_turn):
        for name, dots in curves.items():
            value = getattr(after, name)
            if value is not None:
                about = f"{name} after turn {after.turn}: {100 * value:.1f} %, {after.of.get(name, after.answers)} maps"
                dots[place] = Dot("", 100 * value, None, about)
    turns = [str(after.turn) for after in beliefs.by_turn]
    shown = {name: dots for name, dots in curves.items() if dots}
    drawing = svg.curve_plot(shown, turns, (0, 100), ("after turn", "objects (%)"))
    note = (
        f"n = {beliefs.maps} maps, of which {beliefs.unread} could not be read. Objects rightly placed, of those that "
        "the map has (precision), those seen so far (recall) and all of the scan (coverage). A question that has ended "
        "counts no longer, so later turns are those of fewer questions."
    )
    return Plot("Beliefs by turn", drawing, note)


def _score_by_map(beliefs: Beliefs | None) -> Plot | None:
    groups = {"right": beliefs.right_map, "not right": beliefs.wrong_map} if beliefs else {}
    known = {words: group for words, group in groups.items() if group is not None}
    if not known:
        return None
    rows = [(words, f"{group.percent:.1f} (n={group.answers:,})") for words, group in known.items()]
    drawing, scale, middles = row_plot(rows, (0, 100), "Score by the last map in percent", "score (%)")
    for middle, (words, text), group in zip(middles, rows, known.values(), strict=True):
        _bar(drawing, scale, middle, group.percent, f"{words}: {text}")
    note = (
        "Mean score of the answers whose last map has all objects that the question needs at their places, and of the "
        "others, without those whose question names none."
    )
    return Plot("Score by the last map", drawing, note)


def _distance(metres: Sequence[float]) -> Plot | None:
    longest = max(metres, default=0)
    if longest < 0.01:
        return None
    steps = ticks(0, longest, MOST_BINS)
    width = steps[1] - steps[0]
    bins = int(longest / width) + 1
    counts = Counter(min(int(distance / width + 1e-9), bins - 1) for distance in metres)
    drawing, up, left = _counting("Histogram: distance moved per question", max(counts.values()))
    across = Scale(0, bins * width, left, WIDEST - RIGHT)
    for place in range(bins):
        low = place * width
        high = (place + 1) * width
        count = counts[place]
        about = f"{number(low)} to {number(high)} metres: {count}"
        drawing.rect(across(low) + 0.5, up(count), across(high) - across(low) - 1, up(0) - up(count), "bar", about)
    svg.steps_axis(
        drawing, across, [(value, number(value)) for value in ticks(0, bins * width, 6)], up(0), "distance moved (m)"
    )
    note = f"n = {len(metres)}, median {median(metres):.1f} m, longest {longest:.1f} m."
    return Plot("Distance moved", drawing, note)


def _answer_against_truth(name: str, answers: Sequence[tuple[Entry, float, float]]) -> Plot:
    limit = max(truth for _, _, truth in answers)
    high = 1.05 * max(1e-6, min(max(answer for _, answer, _ in answers), 2 * limit), limit)
    side = 250
    marks = ticks(0, high, 5)
    left = svg.left_of(marks)
    drawing = Drawing(left + side + RIGHT, TOP + side + BOTTOM, f"Answer against truth: {words_of(name)}")
    across = Scale(0, high, left, left + side)
    up = Scale(0, high, TOP + side, TOP)
    unit = answers[0][0].question.kind.unit
    unit = f" ({unit})" if unit else ""
    svg.y_axis(drawing, up, marks, left, left + side, f"answer{unit}")
    svg.x_axis(drawing, across, TOP, TOP + side, f"truth{unit}")
    drawing.line(across(0), up(0), across(high), up(high), "ideal")
    beyond = 0
    for entry, answer, truth in answers:
        outside = not 0 <= answer <= high
        beyond += outside
        css = "dot outside" if outside else "dot"
        about = f"{entry.name}: answer {number(answer)}, truth {number(truth)}"
        drawing.circle(across(truth), up(min(max(answer, 0), high)), 4, css, about)
    note = f"n = {len(answers)}; the line is a perfect answer."
    if beyond:
        note += f" {counted(beyond, 'answer')} beyond the axis, drawn hollow at its edge."
    return Plot(f"Answer and truth: {words_of(name)}", drawing, note)


def _bars(title: str, values: Mapping[str, float], unit: str, note: str) -> Plot | None:
    total = sum(values.values())
    if total <= 0:
        return None
    rows = [(name, f"{_amount(value)} ({100 * value / total:.0f} %)") for name, value in values.items()]
    drawing, scale, middles = row_plot(rows, (0, max(values.values())), title, unit)
    for middle, (name, value) in zip(middles, values.items(), strict=True):
        _bar(drawing, scale, middle, value, f"{name}: {_amount(value)} {unit}")
    return Plot(title, drawing, note)


def _bar(drawing: Drawing, scale: Scale, middle: float, value: float, about: str) -> None:
    drawing.rect(scale(0), middle - 8, scale(value) - scale(0), 16, "bar", about)


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def _counting(label: str, most: float) -> tuple[Drawing, Scale, float]:
    """A drawing with a vertical axis of whole numbers of answers, its scale, and where it stands."""
    drawing = Drawing(WIDEST, HEIGHT, label)
    up = Scale(0, max(most, 1) * 1.08, HEIGHT - BOTTOM, TOP + LEGEND)
    whole = [value for value in ticks(0, up.high, 5) if value == int(value)]
    left = svg.left_of(whole)
    svg.y_axis(drawing, up, whole, left, WIDEST - RIGHT, "answers")
    return drawing, up, left
