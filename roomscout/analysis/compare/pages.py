"""A comparison as lines of text, as JSON values, as Markdown and as a page that looks like a run's report."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from roomscout.analysis.compare.answers import Answers
from roomscout.analysis.compare.comparison import PASSING, Comparison, Flip, Pair
from roomscout.analysis.compare.conditions import in_words, value_in_words
from roomscout.analysis.report.svg import Dot, dot_plot
from roomscout.analysis.tables import INTERVAL, counted, decimal, interval_in_words, markdown_table, p_in_words
from roomscout.base.text import escaped, escaped_text, in_markdown
from roomscout.scoring.intervals import LEVEL, POWER, Difference
from roomscout.scoring.rows import ResultRow
from roomscout.scoring.summary import BASELINES

SHOWN_FLIPS = 5
"""How many flips each way the console shows."""


def letter(place: int) -> str:
    """The short name of a run by its place: A, B, C."""
    return chr(ord("A") + place) if place < 26 else f"run {place + 1}"


def lines_of(found: Comparison) -> list[str]:
    """The comparison as text for a terminal."""
    lines = [f"{letter(place)}: {_about(run)}" for place, run in enumerate(found.runs)]
    lines += ["", _questions_in_words(found)]
    for place, pair in enumerate(found.pairs, start=1):
        lines += ["", *_pair_lines(pair, letter(place), found)]
    return [escaped(line) for line in lines]


def _about(run: Answers) -> str:
    """A run in a line: its folder, its model and how it ran."""
    known = [f"{name} {run.about[name]}" for name in ABOUT if run.about.get(name) is not None]
    controls = run.about.get("controls")
    return f"{run.path} ({', '.join([*known, *([controls] if controls else [])])})"


ABOUT = ("model", "revision", "policy", "engine", "dtype", "quantize")
"""What the first lines say of a run, before its controls."""


def titles_of(runs: Sequence[Answers]) -> list[str]:
    """The titles of runs, with the name of the folder where two have the same."""
    titles = [run.title for run in runs]
    return [
        f"{run.title}, {run.name}" if titles.count(run.title) > 1 and run.name != run.title else run.title
        for run in runs
    ]


def _differing(pair: Pair) -> list[dict[str, str]]:
    """What answers in the two runs and their conditions, as far as they differ: a name and both values.

    Leaves out the hashes of prompts, which say nothing to a reader.
    """
    first, second = (
        {name: value for name, value in run.about.items() if name != "controls"} for run in (pair.first, pair.second)
    )
    found = {name: (value, second.get(name)) for name, value in first.items() if value != second.get(name)}
    return [
        {"name": escaped(name), "first": escaped(value_in_words(one)), "second": escaped(value_in_words(other))}
        for name, (one, other) in {**found, **pair.differs}.items()
        if name != "prompts"
    ]


def _lead(pair: Pair, second: str) -> dict[str, Any] | None:
    """The difference of the overalls, and which run is better if its interval and its p-value agree."""
    if (overall := pair.overall) is None:
        return None
    verdict = ""
    p_value = pair.adjusted.get(overall.name)
    if overall.interval and (overall.interval[0] <= 0 <= overall.interval[1]) == (p_value is None or p_value >= 0.05):
        low, high = overall.interval  # if they disagree, a note says so
        verdict = f"{second} is better." if low > 0 else "A is better." if high < 0 else "The interval includes 0."
    return {
        "first": f"{overall.first:.1f}",
        "second": f"{overall.second:.1f}",
        "difference": f"{overall.percent:+.1f}",
        "interval": interval_in_words(overall.interval, "+.1f") if overall.interval else "",
        "verdict": verdict,
    }


def _questions_in_words(found: Comparison) -> str:
    words = f"{counted(found.questions, 'question')} about {counted(found.scenes, 'scene')} in all runs"
    return words + (f"; {found.left_out:,} that only some have are left out" if found.left_out else "")


def _name(each: Difference, pair: Pair) -> str:
    """The name of a row: the label of the overall unless it is partial, since that is long."""
    return str(pair.label) if each is pair.overall and not pair.partial else each.name


def coverage_lines(pair: Pair, second: str, found: Comparison) -> list[str]:
    """What a pair's scores cover: the failed questions, apart from what both runs finished, and the partial overall."""
    lines, both = [], found.questions
    if any(pair.failed):
        named = [
            f"{count:,} of {both:,} questions in {name}"
            for count, name in zip(pair.failed, ("A", second), strict=True)
            if count
        ]
        if found.failed_as_wrong:
            lines.append(f"failed: {' and '.join(named)}, counted as wrong answers")
        else:
            over = "question that both" if pair.questions == 1 else "questions that both"
            line = (
                f"failed: {' and '.join(named)}; left out, so all below is over the {pair.questions:,} {over} finished"
            )
            if pair.as_wrong:
                before, after = pair.as_wrong
                line += f" (counted as wrong answers: A {before:.1f}, {second} {after:.1f}, {after - before:+.1f})"
            lines.append(line)
    return [*lines, *([f"the overall is a {pair.partial}"] if pair.partial else [])]


def _pair_lines(pair: Pair, second: str, found: Comparison) -> list[str]:
    head = f"{second} - A" if len(found.pairs) == 1 else f"{second} - A ({pair.second.name})"
    lines = [f"{head}: conditions differ in {in_words(pair.differs)}" if pair.differs else f"{head}: same conditions"]
    lines += coverage_lines(pair, second, found)
    (_, *heads), rows = _table(pair, second)
    for row in [["percent", *heads], *rows]:
        lines.append(_LINE.format(*row[:7]) + "".join(f"{cell:>11}" for cell in row[7:]))
    lines += missing_lines(pair) + power_lines(pair)
    for flips, what in ((pair.lost, f"right in A, wrong in {second}"), (pair.gained, f"wrong in A, right in {second}")):
        lines.append(f"{counted(len(flips), 'question')} {what}" + (":" if flips else ""))
        lines += [f"  {_flip_line(flip, pair)}" for flip in flips[:SHOWN_FLIPS]]
        if len(flips) > SHOWN_FLIPS:
            lines.append(f"  and {len(flips) - SHOWN_FLIPS:,} more: --out FILE.html lists them with links")
    return lines


_LINE = "{:<30}{:>7}{:>7}{:>8}{:>16}{:>8}{:>10}"


def _flip_line(flip: Flip, pair: Pair) -> str:
    key = flip.key
    answers = f"{_answer(flip.first)} ({flip.before:g}) -> {_answer(flip.second)} ({flip.after:g})"
    return f"{_folders(flip)}  {key.question_type}  {key.scene_name}  {answers}, right {key.ground_truth}"


def _folders(flip: Flip) -> str:
    """The folders of a question in the two runs, one if they are the same; its id where there is none."""
    names = [row.folder or f"id {flip.key.id}" for row in (flip.first, flip.second)]
    return " / ".join(dict.fromkeys(names))


def _answer(row: ResultRow) -> str:
    return "none" if row.answer is None else row.answer


def missing_lines(pair: Pair) -> list[str]:
    """What is wrong with the intervals of differences, or why there are none; a line for each reason."""
    if not any(each.interval for each in pair.differences):
        return [f"no intervals: {max(pair.differences, key=lambda each: each.scenes).missing}"]
    lines = [pair.uneven] if pair.uneven else []
    if doubtful := [each.name for each in pair.differences if each.contradicts]:
        lines.append(
            f"interval and p disagree at 5 % for {', '.join(doubtful)}: the interval includes 0 although p is below "
            "0.05, so the evidence is borderline"
        )
    reasons: dict[str, list[str]] = {}
    for each in pair.differences:
        if each.missing:
            reasons.setdefault(each.missing, []).append(each.name)
    return [*lines, *(f"no interval of {', '.join(names)}: {why}" for why, names in reasons.items())]


def power_lines(pair: Pair) -> list[str]:
    """What differences in the overall can be detected, and how many scenes this one takes."""
    overall = pair.overall
    if overall is None or overall.detectable is None:
        return []
    line = (
        f"overall: {overall.scenes} scenes detect a true difference of {overall.detectable:.1f} points with "
        f"{100 * POWER:.0f} % power"
    )
    if (needed := overall.scenes_needed) is not None:
        line += f"; one of {abs(overall.percent):.1f} points takes about {counted(needed, 'scene')}"
    return [line]


def _baseline_columns(pair: Pair, second: str) -> list[tuple[str, Mapping[str, float]]]:
    """The baselines of the runs by column; only those over all questions that are compared."""
    first, other = (_baselines(run, pair) for run in (pair.first, pair.second))
    columns = [(BASELINES["most_frequent"], first.get("most_frequent") or other.get("most_frequent"))]
    columns += [("blind A", first.get("blind")), (f"blind {second}", other.get("blind"))]
    return [(name, percents) for name, percents in columns if percents]


def _baselines(run: Answers, pair: Pair) -> dict[str, dict[str, float]]:
    if len(run.by_question) != pair.questions:
        return {}
    return {
        name: dict(baseline["tasks"]) | ({"overall": baseline["overall"]} if "overall" in baseline else {})
        for name, baseline in run.summary.get("baselines", {}).items()
    }


def _table(pair: Pair, second: str) -> tuple[list[str], list[list[str]]]:
    """The differences: the heads of the columns, of which the last are baselines, and a row for each difference."""
    columns = _baseline_columns(pair, second)
    heads = ["", "A", second, f"{second} - A", INTERVAL, "p", "p (Holm)", *(name for name, _ in columns)]
    return heads, [
        [
            _name(each, pair), f"{each.first:.1f}", f"{each.second:.1f}", f"{each.percent:+.1f}",
            interval_in_words(each.interval, "+.1f"), p_in_words(each.p_value),
            p_in_words(pair.adjusted.get(each.name)), *(decimal(percents.get(each.name)) for _, percents in columns),
        ]
        for each in pair.differences
    ]  # fmt: skip


def json_of(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON values. Percentages and p-values are as computed."""
    return {
        "questions": found.questions,
        "scenes": found.scenes,
        "left_out": found.left_out,
        "failed_questions": "counted as wrong" if found.failed_as_wrong else "left out",
        "runs": [
            {
                "letter": letter(place),
                "name": run.name,
                "path": str(run.path),
                **run.about,
                "protocol": run.protocol,
                "questions": len(run.by_question),
                "failed": len(run.failed),
            }
            for place, run in enumerate(found.runs)
        ],
        "pairs": [
            {
                "first": "A",
                "second": letter(place),
                "questions": pair.questions,
                "scenes": pair.scenes,
                "overall_label": str(pair.label),
                "uneven_scenes": pair.uneven,
                "failed": {"first": pair.failed[0], "second": pair.failed[1]},
                "overall_with_failed_as_wrong": (
                    {"first": pair.as_wrong[0], "second": pair.as_wrong[1]} if pair.as_wrong else None
                ),
                "differs": {name: list(values) for name, values in pair.differs.items()},
                "tasks": [_json_of_difference(each, pair) for each in pair.tasks],
                "overall": _json_of_difference(pair.overall, pair) if pair.overall else None,
                "gained": [_json_of_flip(flip) for flip in pair.gained],
                "lost": [_json_of_flip(flip) for flip in pair.lost],
            }
            for place, pair in enumerate(found.pairs, start=1)
        ],
    }


def _json_of_difference(each: Difference, pair: Pair) -> dict[str, Any]:
    return {
        "name": each.name,
        "first": each.first,
        "second": each.second,
        "difference": each.percent,
        "interval": list(each.interval) if each.interval else None,
        "standard_error": each.error,
        "p_value": each.p_value,
        "p_holm": pair.adjusted.get(each.name),
        "scenes": each.scenes,
        "detectable": each.detectable,
        "scenes_needed": each.scenes_needed,
        "missing": each.missing,
        "interval_contradicts_p": each.contradicts,
    }


def _json_of_flip(flip: Flip) -> dict[str, Any]:
    rows = flip.first, flip.second
    return {
        **flip.key._asdict(),
        "scores": [flip.before, flip.after],
        "answers": [row.answer for row in rows],
        "folders": [row.folder or None for row in rows],
    }


def markdown_of(found: Comparison) -> str:
    """The comparison as Markdown, for a paper's notes or an issue."""
    lines = [f"- {letter(place)}: {_about(run)}" for place, run in enumerate(found.runs)]
    lines += ["", f"{_questions_in_words(found)}."]
    for place, pair in enumerate(found.pairs, start=1):
        second = letter(place)
        lines += ["", *markdown_table(*_table(pair, second))]
        conditions = f"Conditions differ in {in_words(pair.differs)}" if pair.differs else "Same conditions"
        notes = [conditions, *coverage_lines(pair, second, found), *missing_lines(pair), *power_lines(pair)]
        notes.append(f"{len(pair.lost):,} questions right in A and wrong in {second}, {len(pair.gained):,} the reverse")
        lines += ["", *(f"- {note[0].upper()}{note[1:]}." for note in notes)]
    return "".join(f"{in_markdown(line)}\n" for line in lines)


def page_values(found: Comparison, out: Path) -> dict[str, Any]:
    """What the template shows. Links are relative to the folder of `out`."""
    pairs, titles = [], titles_of(found.runs)
    for place, pair in enumerate(found.pairs, start=1):
        second = letter(place)
        heads, rows = _table(pair, second)
        notes = [*missing_lines(pair), *power_lines(pair)]
        pairs.append(
            {
                "second": second,
                "name": escaped(titles[place]),
                "differs": _differing(pair),
                "conditions": ", ".join(map(escaped, pair.differs)),
                "lead": _lead(pair, second),
                "covers": [escaped(f"{line[0].upper()}{line[1:]}.") for line in coverage_lines(pair, second, found)],
                "columns": heads[7:],
                "rows": [
                    {"name": escaped(name), "overall": each is pair.overall, "cells": cells}
                    for (name, *cells), each in zip(rows, pair.differences, strict=True)
                ],
                "notes": [escaped(f"{note[0].upper()}{note[1:]}.") for note in notes],
                "plot": forest(pair, second),
                "flips": [
                    (f"Right in A, wrong in {second}", [_flip_values(flip, pair, out) for flip in pair.lost]),
                    (f"Wrong in A, right in {second}", [_flip_values(flip, pair, out) for flip in pair.gained]),
                ],
            }
        )
    return {
        "title": " against ".join(map(escaped, reversed(titles)))
        if len(titles) == 2
        else ", ".join(map(escaped, titles)),
        "about": _questions_in_words(found),
        "level": round(100 * LEVEL),
        "passing": PASSING,
        "runs": [
            {
                "letter": letter(place),
                "title": escaped(titles[place]),
                "name": escaped(run.name),
                "about": escaped(_about(run)),
                "protocol": escaped(run.protocol),
                "report": _link(run.report, out) if run.report else "",
            }
            for place, run in enumerate(found.runs)
        ],
        "pairs": pairs,
    }


def _flip_values(flip: Flip, pair: Pair, out: Path) -> dict[str, Any]:
    answers = []
    for run, row, score in ((pair.first, flip.first, flip.before), (pair.second, flip.second, flip.after)):
        folder = row.folder
        link = f"{_link(run.report, out)}#{folder}" if run.report and folder else ""
        text = f"{row.answer}. {row.answer_text}" if row.answer_text else _answer(row)
        answers.append({"answer": escaped(text), "score": f"{score:g}", "link": link, "folder": escaped(folder)})
    truth = flip.first.ground_truth_text
    return {
        "type": escaped(flip.key.question_type),
        "scene": escaped(flip.key.scene_name),
        "question": escaped_text(flip.key.question),
        "truth": escaped(f"{flip.key.ground_truth}. {truth}" if truth else flip.key.ground_truth),
        "answers": answers,
    }


def _link(report: Path, out: Path) -> str:
    return quote(os.path.relpath(report.resolve(), out.resolve().parent))


def forest(pair: Pair, second: str) -> str:
    """A plot of the differences with their intervals, as SVG."""
    dots = [
        Dot(
            _name(each, pair), each.percent, each.interval,
            f"{each.percent:+.1f} ({interval_in_words(each.interval, '+.1f')})", 6 if each is pair.overall else 5,
        )
        for each in pair.differences
        if each.interval
    ]  # fmt: skip
    if not dots:
        return ""
    edges = [edge for each in dots for edge in (*(each.interval or ()), 0.0)]
    space = 0.05 * (max(edges) - min(edges))
    label, axis = f"Differences {second} - A with their intervals", f"{second} - A, percentage points"
    return dot_plot(dots, (min(edges) - space, max(edges) + space), label, axis, 196, 26, (0, "axis"))
