"""The plots of a report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from roomscout.analysis.report.contents import Entry, totals
from roomscout.analysis.report.scores import interval_of, percent_by_baseline
from roomscout.analysis.report.svg import Dot, Drawing, Scale, number, steps_axis, ticks, x_axis, y_axis
from roomscout.analysis.tables import counted
from roomscout.base.text import escaped
from roomscout.runs.costs import PART_NAMES
from roomscout.runs.hardware import GpuSamples

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 26, 44
ROW = 26
BASELINE_MARKS = {"blind": "blind", "most_frequent": "most frequent answer"}
"""The baselines that a plot shows, and their names in its legend."""
GPU_PLOTS = {
    "utilisation_percent": ("GPU utilisation", "%"),
    "memory_mib": ("GPU memory", "MiB"),
    "power_w": ("GPU power", "W"),
}
MOST_POINTS = 240
"""The most points of a curve over time; others are averaged."""
TOKENS = {"reused_tokens": "prompt, reused", "prefilled_tokens": "prompt, computed", "generated_tokens": "generated"}
MOST_BINS = 24


@dataclass(frozen=True)
class Plot:
    """A plot with its title and a sentence below it, which says what it covers."""

    title: str
    drawing: Drawing
    note: str


def plots_of(entries: Sequence[Entry], summary: Mapping[str, Any], samples: Sequence[GpuSamples] = ()) -> list[Plot]:
    """The plots of a run's answers and GPUs, without those that have nothing to show. One answer alone has none."""
    finished = [entry for entry in entries if entry.outcome not in ("unfinished", "pending")]
    if len(finished) < 2:
        return []
    ended = [entry for entry in finished if entry.outcome != "failed"]
    scored = [entry for entry in ended if entry.score is not None]
    found = [
        _score_per_type(summary),
        _turns_used(ended),
        _score_by_turns(scored),
        _score_if_last(summary),
        _distance(ended),
        *_numbers(scored),
        _bars(
            "Seconds by part",
            {name: value for part, name in PART_NAMES.items() if (value := totals(entries)["seconds"].get(part))},
            "seconds",
            "Summed over all turns. The seconds of a batched call, and those that it waited before, count once; those "
            "of moving, rendering and writing overlap with others.",
        ),
        _bars(
            "Tokens by kind",
            {name: totals(entries).get(kind, 0) for kind, name in TOKENS.items()},
            "tokens",
            f"Summed over {counted(totals(entries).get('turns', 0), 'turn')}.",
        ),
        *(_over_time(figure, samples) for figure in GPU_PLOTS),
    ]
    return [plot for plot in found if plot is not None]


def _score_per_type(summary: Mapping[str, Any]) -> Plot | None:
    types = {name: counts for name, counts in summary.get("types", {}).items() if counts.get("percent") is not None}
    if not types:
        return None
    baselines = {key: percent_by_baseline(summary, key) for key in BASELINE_MARKS}
    shown = {key: percents for key, percents in baselines.items() if percents.keys() & types.keys()}
    left, bottom = 214, TOP + ROW * len(types) + 4
    width = WIDTH + 160
    drawing = Drawing(width, bottom + BOTTOM, "Score per question type in percent")
    scale = Scale(0, 100, left, width - 92)
    x_axis(drawing, scale, ticks(0, 100, 5), TOP - 4, bottom, "score (%)")
    for row, (name, counts) in enumerate(types.items()):
        middle = TOP + ROW * (row + 0.5)
        percent, scored = counts["percent"], counts["questions"]
        drawing.text(left - 8, middle + 4, escaped(name), "name end")
        drawing.rect(left, middle - 8, scale(percent) - left, 16, "bar", f"{name}: {percent:.1f} %, n = {scored}")
        if (interval := interval_of(summary, name)) is not None:
            drawing.whisker(scale, interval, middle, f"{interval[0]:.1f} to {interval[1]:.1f} %")
        for key, percents in shown.items():
            if name in percents:
                drawing.diamond(
                    scale(percents[name]), middle, 5, f"mark {key}", f"{BASELINE_MARKS[key]}: {percents[name]:.1f} %"
                )
        drawing.text(scale.end + 8, middle + 4, f"{percent:.1f}", "value start")
        drawing.text(width - 2, middle + 4, f"n={scored}", "tick end")
    x = float(left)
    for key in shown:
        drawing.diamond(x + 5, 10, 5, f"mark {key}")
        drawing.text(x + 14, 14, BASELINE_MARKS[key], "tick start")
        x += 30 + 7 * len(BASELINE_MARKS[key])
    note = "Mean score of each type; numbers score by their relative error. n counts its answers."
    if any(interval_of(summary, name) for name in types):
        note += " Whiskers are 95 % intervals over scenes."
    return Plot("Score per type", drawing, note)


def _turns_used(entries: Sequence[Entry]) -> Plot | None:
    if not entries:
        return None
    longest = max(entry.turns for entry in entries)
    drawing = Drawing(WIDTH, HEIGHT, "Histogram of the turns per question")
    counts = {turn: [entry for entry in entries if entry.turns == turn] for turn in range(1, longest + 1)}
    across = Scale(0.5, longest + 0.5, LEFT, WIDTH - RIGHT)
    up = _upwards(max(map(len, counts.values()), default=1))
    y_axis(drawing, up, _whole(ticks(0, up.high, 5)), LEFT, WIDTH - RIGHT, "answers")
    for turn, of_turn in counts.items():
        answered = sum(entry.outcome != "exhausted" for entry in of_turn)
        left, width = across(turn - 0.4), across(turn + 0.4) - across(turn - 0.4)
        drawing.rect(left, up(answered), width, up(0) - up(answered), "bar", f"{turn} turns: {answered} answered")
        drawing.rect(
            left, up(len(of_turn)), width, up(answered) - up(len(of_turn)), "bar exhausted",
            f"{turn} turns: {len(of_turn) - answered} exhausted",
        )  # fmt: skip
    steps_axis(drawing, across, _named(range(1, longest + 1)), up(0), "turns")
    exhausted = sum(entry.outcome == "exhausted" for entry in entries)
    note = f"n = {len(entries)}, mean {fmean(entry.turns for entry in entries):.1f}"
    note += f"; hatched: {exhausted} exhausted." if exhausted else "; none was exhausted."
    return Plot("Turns used", drawing, note)


def _score_by_turns(entries: Sequence[Entry]) -> Plot | None:
    if not entries:
        return None
    longest = max(entry.turns for entry in entries)
    drawing = Drawing(WIDTH, HEIGHT, "Mean score by the number of turns")
    across = Scale(0.5, longest + 0.5, LEFT, WIDTH - RIGHT)
    up = Scale(0, 100, HEIGHT - BOTTOM, TOP + 8)
    y_axis(drawing, up, ticks(0, 100, 5), LEFT, WIDTH - RIGHT, "mean score (%)")
    for turn in range(1, longest + 1):
        scores = [100 * entry.score for entry in entries if entry.turns == turn and entry.score is not None]
        if not scores:
            continue
        left, width, mean = across(turn - 0.4), across(turn + 0.4) - across(turn - 0.4), fmean(scores)
        drawing.rect(left, up(mean), width, up(0) - up(mean), "bar", f"{turn} turns: {mean:.1f} %, n = {len(scores)}")
        if longest <= 20:
            drawing.text(
                across(turn), up(mean) - 4, f"n={len(scores)}" if longest <= 10 else f"{len(scores)}", "tick middle"
            )
    steps_axis(drawing, across, _named(range(1, longest + 1)), up(0), "turns")
    note = f"n = {len(entries)} scored answers; exhausted ones score 0. Hard questions take more turns, so this does "
    note += "not show what one more turn is worth."
    return Plot("Score by number of turns", drawing, note)


def _score_if_last(summary: Mapping[str, Any]) -> Plot | None:
    """The overall by turn of a run with --anytime."""
    by_turn = summary.get("anytime", {}).get("by_turn", [])
    if len(by_turn) < 2 or any(each["percent"] is None for each in by_turn):
        return None
    drawing = Drawing(WIDTH, HEIGHT, "The overall if each turn were the last")
    across, up = Scale(-0.5, len(by_turn) - 0.5, LEFT, WIDTH - RIGHT), Scale(0, 100, HEIGHT - BOTTOM, TOP)
    y_axis(drawing, up, ticks(0, 100, 5), LEFT, WIDTH - RIGHT, "overall (%)")
    points = []
    for each in by_turn:
        about = f"turn {each['turn']}: {each['percent']:.1f} %, {each['forced']} forced answers"
        points.append((across(each["turn"]), Dot("", each["percent"], each["interval"], about)))
    drawing.curve(up, points, "whisker", "dot")
    steps_axis(drawing, across, _named(range(len(by_turn))), up(0), "turn")
    note = f"n = {summary['anytime']['answers']} answers. After each turn, the answer that the model gives when it has "
    note += "to; a question that has ended keeps its own. The last point is the overall of the run."
    if any(each["interval"] for each in by_turn):
        note += " Lines are 95 % intervals over scenes."
    return Plot("Overall if each turn were the last", drawing, note)


def _distance(entries: Sequence[Entry]) -> Plot | None:
    values = [entry.distance_m for entry in entries]
    if not values or max(values) < 0.01:
        return None
    return _histogram(
        "Distance moved", values, "metres", f"median {median(values):.1f} m, longest {max(values):.1f} m."
    )


def _histogram(title: str, values: Sequence[float], label: str, note: str) -> Plot:
    steps = ticks(0, max(values), MOST_BINS)
    width = steps[1] - steps[0]
    bins = int(max(values) / width) + 1
    counts = [0] * bins
    for value in values:
        counts[min(int(value / width + 1e-9), bins - 1)] += 1
    drawing = Drawing(WIDTH, HEIGHT, f"Histogram: {title.lower()} per question")
    across = Scale(0, bins * width, LEFT, WIDTH - RIGHT)
    up = _upwards(max(counts))
    y_axis(drawing, up, _whole(ticks(0, up.high, 5)), LEFT, WIDTH - RIGHT, "answers")
    for place, count in enumerate(counts):
        low, high = place * width, (place + 1) * width
        about = f"{number(low)} to {number(high)} {label}: {count}"
        drawing.rect(across(low) + 0.5, up(count), across(high) - across(low) - 1, up(0) - up(count), "bar", about)
    steps_axis(drawing, across, [(value, number(value)) for value in ticks(0, bins * width, 6)], up(0), label)
    return Plot(title, drawing, f"n = {len(values)}, {note}")


def _numbers(entries: Sequence[Entry]) -> list[Plot]:
    """A plot of answer against truth for each type whose answers are numbers."""
    by_type: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.numbers is not None:
            by_type.setdefault(entry.question_type, []).append(entry)
    return [_answer_against_truth(name, of_type) for name, of_type in by_type.items()]


def _answer_against_truth(name: str, entries: Sequence[Entry]) -> Plot:
    numbers = [entry.numbers for entry in entries if entry.numbers is not None]
    limit = max(truth for _, truth in numbers)
    high = 1.05 * max(1e-6, min(max(answer for answer, _ in numbers), 2 * limit), limit)
    side = 250
    drawing = Drawing(LEFT + side + RIGHT, TOP + side + BOTTOM, f"Answer against truth: {escaped(name)}")
    across, up = Scale(0, high, LEFT, LEFT + side), Scale(0, high, TOP + side, TOP)
    unit = f" ({entries[0].unit})" if entries[0].unit else ""
    y_axis(drawing, up, ticks(0, high, 5), LEFT, LEFT + side, f"answer{unit}")
    x_axis(drawing, across, ticks(0, high, 5), TOP, TOP + side, f"truth{unit}")
    drawing.line(across(0), up(0), across(high), up(high), "ideal")
    beyond = 0
    for entry in entries:
        if entry.numbers is None:
            continue
        answer, truth = entry.numbers
        outside = not 0 <= answer <= high
        beyond += outside
        drawing.circle(
            across(truth), up(min(max(answer, 0), high)), 4, "dot outside" if outside else "dot",
            f"{entry.name}: answer {number(answer)}, truth {number(truth)}",
        )  # fmt: skip
    note = f"n = {len(numbers)}; the line is a perfect answer."
    if beyond:
        note += f" {counted(beyond, 'answer')} beyond the axis, drawn hollow at its edge."
    return Plot(f"Answer and truth: {escaped(name)}", drawing, note)


def _bars(title: str, values: Mapping[str, float], unit: str, note: str) -> Plot | None:
    total = sum(values.values())
    if total <= 0:
        return None
    left, bottom = 150, TOP + ROW * len(values) + 4
    drawing = Drawing(WIDTH, bottom + BOTTOM, title)
    scale = Scale(0, 1.0 * max(values.values()), left, WIDTH - 92)
    x_axis(drawing, scale, ticks(0, scale.high, 4), TOP - 4, bottom, unit)
    for row, (name, value) in enumerate(values.items()):
        middle = TOP + ROW * (row + 0.5)
        drawing.text(left - 8, middle + 4, name, "name end")
        drawing.rect(left, middle - 8, scale(value) - left, 16, "bar", f"{name}: {_amount(value)} {unit}")
        drawing.text(WIDTH - 2, middle + 4, f"{_amount(value)} ({100 * value / total:.0f} %)", "value end")
    return Plot(title, drawing, note)


def _over_time(figure: str, samples: Sequence[GpuSamples]) -> Plot | None:
    """A figure of the GPUs by the minutes that they worked on the run, as a mean over them."""
    by_gpu: dict[tuple[str, str], list[float | None]] = {}
    for each in samples:
        by_gpu.setdefault((each.host, each.gpu), []).extend(getattr(each, figure))
    longest = max(map(len, by_gpu.values()), default=0)
    step = max(1, math.ceil(longest / MOST_POINTS))
    points = []
    for first in range(0, longest, step):
        known = [value for values in by_gpu.values() for value in values[first : first + step] if value is not None]
        points += [((first + min(step, longest - first) / 2) / 60, fmean(known))] if known else []
    if len(points) < 2:
        return None
    title, unit = GPU_PLOTS[figure]
    drawing = Drawing(WIDTH, HEIGHT, f"{title} over time")
    across = Scale(0, longest / 60, LEFT, WIDTH - RIGHT)
    up = Scale(0, 100, HEIGHT - BOTTOM, TOP) if unit == "%" else _upwards(max(value for _, value in points))
    y_axis(drawing, up, ticks(0, up.high, 5), LEFT, WIDTH - RIGHT, unit)
    for (x, value), (next_x, following) in pairwise(points):
        drawing.line(across(x), up(value), across(next_x), up(following), "whisker")
    steps_axis(drawing, across, [(value, number(value)) for value in ticks(0, longest / 60, 6)], up(0), "minutes")
    gpus = f"Mean over {len(by_gpu)} GPUs, sampled" if len(by_gpu) > 1 else "Sampled"
    return Plot(title, drawing, f"{gpus} once a second while the run worked.")


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _upwards(most: float) -> Scale:
    return Scale(0, max(most, 1) * 1.08, HEIGHT - BOTTOM, TOP)


def _whole(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == int(value)]


def _named(turns: range) -> list[tuple[int, str]]:
    """The turns that an axis names."""
    return [(turn, str(turn)) for turn in turns if len(turns) <= 20 or turn % 5 == 0]
