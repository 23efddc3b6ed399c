"""A comparison as lines of text, as JSON values, as Markdown and as a page that looks like a run's report."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from roomscout.analysis.compare.answers import Answers
from roomscout.analysis.compare.comparison import PASSING, Comparison, Flip, Pair
from roomscout.analysis.compare.conditions import in_words, value_in_words
from roomscout.analysis.report.svg import Dot, dot_plot
from roomscout.base.tables import Table, decimal, interval_in_words, p_in_words
from roomscout.base.text import capitalized, counted, escaped, in_markdown
from roomscout.scoring.intervals import INTERVAL, LEVEL, POWER, Difference
from roomscout.scoring.rows import ResultRow
from roomscout.scoring.summary import BASELINES

SHOWN_FLIPS = 5
"""How many flips each way the console shows."""
SHOWN_SETTINGS = ("model", "revision", "policy", "engine", "dtype", "quantize")
"""What the first lines say of a run, before its controls."""


def letter(place: int) -> str:
    """The short name of a run by its place: A, B, C."""
    return chr(ord("A") + place) if place < 26 else f"run {place + 1}"


def lines_of(found: Comparison) -> list[str]:
    """The comparison as text for a terminal."""
    lines = [f"{letter(place)}: {_about(run)}" for place, run in enumerate(found.runs)]
    lines += ["", _questions_in_words(found)]
    for place, pair in enumerate(found.pairs, start=1):
        second = letter(place)
        head = f"{second} - A" if len(found.pairs) == 1 else f"{second} - A ({pair.second.name})"
        lines += ["", f"{head}: {_conditions(pair)}", *coverage_lines(pair, second, found)]
        lines += [*_table(pair, second).lines(), *missing_lines(pair), *power_lines(pair)]
        lines += _flip_lines(pair.lost, f"right in A, wrong in {second}")
        lines += _flip_lines(pair.gained, f"wrong in A, right in {second}")
    return [escaped(line) for line in lines]


def markdown_of(found: Comparison) -> str:
    """The comparison as Markdown, for a paper's notes or an issue."""
    lines = [f"- {letter(place)}: {_about(run)}" for place, run in enumerate(found.runs)]
    lines += ["", f"{_questions_in_words(found)}."]
    for place, pair in enumerate(found.pairs, start=1):
        second = letter(place)
        notes = [_conditions(pair), *coverage_lines(pair, second, found), *missing_lines(pair), *power_lines(pair)]
        notes.append(f"{len(pair.lost):,} questions right in A and wrong in {second}, {len(pair.gained):,} the reverse")
        lines += ["", *_table(pair, second).markdown(), "", *(f"- {capitalized(note)}." for note in notes)]
    return "".join(f"{in_markdown(line)}\n" for line in lines)


def _about(run: Answers) -> str:
    """A run in a line: its folder, its model and how it ran."""
    known = [f"{name} {run.about[name]}" for name in SHOWN_SETTINGS if run.about.get(name) is not None]
    return f"{run.path} ({', '.join(filter(None, [*known, run.about.get('controls')]))})"


def _questions_in_words(found: Comparison) -> str:
    words = f"{counted(found.questions, 'question')} about {counted(found.scenes, 'scene')} in all runs"
    return words + (f"; {found.left_out:,} that only some have are left out" if found.left_out else "")


def _conditions(pair: Pair) -> str:
    return f"conditions differ in {in_words(pair.differs)}" if pair.differs else "same conditions"


def coverage_lines(pair: Pair, second: str, found: Comparison) -> list[str]:
    """What a pair's scores cover: the failed questions, apart from what both runs finished, and the partial overall."""
    lines = []
    if any(pair.failed):
        counts = zip(pair.failed, ("A", second), strict=True)
        named = " and ".join(f"{count:,} of {found.questions:,} questions in {name}" for count, name in counts if count)
        if found.failed_as_wrong:
            lines.append(f"failed: {named}, counted as wrong answers")
        else:
            line = (
                f"failed: {named}; left out, so all below is over the {counted(pair.questions, 'question')} that both "
                "finished"
            )
            if pair.as_wrong:
                before, after = pair.as_wrong
                line += f" (counted as wrong answers: A {before:.1f}, {second} {after:.1f}, {after - before:+.1f})"
            lines.append(line)
    return [*lines, *([f"the overall is a {pair.partial}"] if pair.partial else [])]


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


def _flip_lines(flips: Sequence[Flip], what: str) -> list[str]:
    lines = [f"{counted(len(flips), 'question')} {what}" + (":" if flips else "")]
    for flip in flips[:SHOWN_FLIPS]:
        folders = dict.fromkeys(row.folder or f"id {flip.key.id}" for row in (flip.first, flip.second))
        answers = f"{_answer(flip.first)} ({flip.before:g}) -> {_answer(flip.second)} ({flip.after:g})"
        where = f"{' / '.join(folders)}  {flip.key.question_type}  {flip.key.scene_name}"
        lines.append(f"  {where}  {answers}, right {flip.key.ground_truth}")
    if len(flips) > SHOWN_FLIPS:
        lines.append(f"  and {len(flips) - SHOWN_FLIPS:,} more: --out FILE.html lists them with links")
    return lines


def _answer(row: ResultRow) -> str:
    return "none" if row.answer is None else row.answer


def _name(each: Difference, pair: Pair) -> str:
    """The name of a row: the label of the overall unless it is partial, since that is long."""
    return str(pair.label) if each is pair.overall and not pair.partial else each.name


def _table(pair: Pair, second: str) -> Table:
    """The differences; the last columns are the baselines that cover all questions that are compared."""
    first, other = (_baselines(run, pair) for run in (pair.first, pair.second))
    baselines = {
        BASELINES["most_frequent"]: first.get("most_frequent") or other.get("most_frequent"),
        "blind A": first.get("blind"),
        f"blind {second}": other.get("blind"),
    }
    known = {name: percents for name, percents in baselines.items() if percents}
    rows = [
        [
            _name(each, pair), f"{each.first:.1f}", f"{each.second:.1f}", f"{each.percent:+.1f}",
            interval_in_words(each.interval, "+.1f"), p_in_words(each.p_value),
            p_in_words(pair.adjusted.get(each.name)), *(decimal(of.get(each.name)) for of in known.values()),
        ]
        for each in pair.differences
    ]  # fmt: skip
    return Table(["percent", "A", second, f"{second} - A", INTERVAL, "p", "p (Holm)", *known], rows)


def _baselines(run: Answers, pair: Pair) -> dict[str, dict[str, float]]:
    """The percent by task and "overall" of the baselines of a run, if they cover the questions that are compared."""
    if len(run.by_question) != pair.questions:
        return {}
    return {
        name: each.tasks | ({} if each.overall is None else {"overall": each.overall})
        for name, each in run.summary.baselines.items()
    }


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


def page_values(found: Comparison, out: Path) -> dict[str, Any]:
    """What the template shows. Links are relative to the folder of `out`."""
    titles = titles_of(found.runs)
    return {
        "title": " against ".join(reversed(titles)) if len(titles) == 2 else ", ".join(titles),
        "about": _questions_in_words(found),
        "level": round(100 * LEVEL),
        "passing": PASSING,
        "runs": [
            {
                "letter": letter(place),
                "title": titles[place],
                "name": run.name,
                "about": _about(run),
                "protocol": run.protocol,
                "report": _link(run.report, out) if run.report else "",
            }
            for place, run in enumerate(found.runs)
        ],
        "pairs": [_pair_values(found, place, titles[place], out) for place in range(1, len(found.runs))],
    }


def titles_of(runs: Sequence[Answers]) -> list[str]:
    """The titles of runs, with the name of the folder where two have the same."""
    titles = [run.title for run in runs]
    return [
        f"{run.title}, {run.name}" if titles.count(run.title) > 1 and run.name != run.title else run.title
        for run in runs
    ]


def _pair_values(found: Comparison, place: int, title: str, out: Path) -> dict[str, Any]:
    pair = found.pairs[place - 1]
    second = letter(place)
    table = _table(pair, second)
    heads = ["Task", "A (%)", f"{second} (%)", f"{second} − A", *table.heads[4:]]
    rows: list[Sequence[str]] = [list(row) for row in table.rows]
    if pair.overall is not None:
        name, *cells = rows[-1]
        rows[-1] = [
            Markup("Overall") + (Markup(" <small>{}</small>").format(name) if name != "overall" else ""),
            *cells,
        ]
    sides = ((f"Right in A, wrong in {second}", pair.lost), (f"Wrong in A, right in {second}", pair.gained))
    return {
        "second": second,
        "name": title,
        "differs": _differing(pair, second),
        "conditions": ", ".join(pair.differs),
        "lead": _lead(pair, second),
        "covers": [f"{capitalized(line)}." for line in coverage_lines(pair, second, found)],
        "table": replace(table, heads=heads, rows=rows).html("scores stack", overall=pair.overall is not None),
        "notes": [f"{capitalized(note)}." for note in (*missing_lines(pair), *power_lines(pair))],
        "plot": forest(pair, second),
        "flips": [(heading, len(flips), _flip_table(flips, pair, second, out)) for heading, flips in sides],
    }


def _differing(pair: Pair, second: str) -> Table:
    """What answers in the two runs and their conditions, as far as they differ; hashes of prompts say nothing."""
    first = pair.first.about
    other = pair.second.about
    found = {
        name: (first[name], other.get(name)) for name in first if name != "controls" and first[name] != other.get(name)
    }
    rows = [
        [name.replace("_", " "), value_in_words(one), Markup("<mark>{}</mark>").format(escaped(value_in_words(two)))]
        for name, (one, two) in {**found, **pair.differs}.items()
        if name != "prompts"
    ]
    return Table(["What differs", "A", second], rows)


def _lead(pair: Pair, second: str) -> dict[str, str] | None:
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


def _flip_table(flips: Sequence[Flip], pair: Pair, second: str, out: Path) -> Table:
    def answer(run: Answers, row: ResultRow, score: float) -> Markup:
        folder = escaped(row.folder)
        text = f"{row.answer}. {row.answer_text}" if row.answer_text else _answer(row)
        if run.report and folder:
            folder = Markup('<a href="{}#{}">{}</a>').format(_link(run.report, out), folder, folder)
        return Markup("{} {} <small>({:g})</small>").format(folder, escaped(text), score)

    rows = []
    for flip in flips:
        key = flip.key
        truth = flip.first.ground_truth_text
        right = f"{key.ground_truth}. {truth}" if truth else key.ground_truth
        answers = answer(pair.first, flip.first, flip.before), answer(pair.second, flip.second, flip.after)
        rows.append([key.question, key.question_type, key.scene_name, right, *answers])
    return Table(["Question", "Type", "Scene", "Right", "A", second], rows)


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
    label = f"Differences {second} - A with their intervals"
    axis = f"{second} - A, percentage points"
    return dot_plot(dots, (min(edges) - space, max(edges) + space), label, axis, 196, 26, (0, "axis"))
