"""A comparison as lines of text, as JSON values, as Markdown, CSV and LaTeX, and as a page like a run's report."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from roomscout.analysis.compare.answers import Answers
from roomscout.analysis.compare.comparison import (
    PASSING,
    Comparison,
    Flip,
    Pair,
    letter_of,
    protocols_of,
    with_twins,
)
from roomscout.analysis.compare.conditions import in_words, value_in_words
from roomscout.analysis.report.svg import Dot, dot_plot, words_of
from roomscout.analysis.report.writer import page_alone
from roomscout.analysis.verbs import markdown_text
from roomscout.base.grouping import grouped
from roomscout.base.tables import Table, decimal, interval_in_words, latex_text, p_in_words
from roomscout.base.text import capitalized, counted, escaped, escaped_text
from roomscout.scoring.intervals import INTERVAL, LEVEL, POWER, Difference
from roomscout.scoring.scores import ResultRow
from roomscout.scoring.summary import BASELINES

MOST_FLIPS = 5  # how many flips each way the console lists
NAMED_SETTINGS = ("model", "revision", "policy", "engine", "dtype", "quantize")
"""What the first lines say of a run, before its controls."""


def lines_of(comparison: Comparison) -> list[str]:
    """The comparison as text for a terminal."""
    lines = [f"{letter_of(place)}: {_about(run)}" for place, run in enumerate(comparison.runs)]
    lines += ["", _questions_in_words(comparison)]
    for pair in comparison.pairs:
        head = f"{pair.letter} - A" if len(comparison.pairs) == 1 else f"{pair.letter} - A ({pair.second.name})"
        lines += ["", f"{head}: {_conditions(pair)}", *_coverage_lines(pair, comparison)]
        lines += [*_table(pair).lines(), *_interval_lines(pair)]
        lines += _flip_lines(pair.lost, f"right in A, wrong in {pair.letter}")
        lines += _flip_lines(pair.gained, f"wrong in A, right in {pair.letter}")
    return [escaped(line) for line in lines]


def markdown_of(comparison: Comparison) -> str:
    """The comparison as Markdown, for a paper's notes or an issue."""
    lines = [f"- {letter_of(place)}: {_about(run)}" for place, run in enumerate(comparison.runs)]
    lines += ["", f"{_questions_in_words(comparison)}."]
    for pair in comparison.pairs:
        notes = [_conditions(pair), *_coverage_lines(pair, comparison), *_interval_lines(pair)]
        notes.append(
            f"{len(pair.lost):,} questions right in A and wrong in {pair.letter}, {len(pair.gained):,} the reverse"
        )
        lines += ["", *_table(pair).markdown(), "", *(f"- {capitalized(note)}." for note in notes)]
    return markdown_text(lines)


def csv_of(comparison: Comparison) -> str:
    """All differences as CSV, a row for each pair and score, with numbers as computed."""
    rows = []
    for pair in comparison.pairs:
        for score in pair.differences:
            low, high = score.interval or (None, None)
            interval = {"interval_low": low, "interval_high": high}
            values = {name: value for name, value in _json_of_difference(score).items() if name != "interval"}
            rows.append({"run_a": pair.first.name, "run_b": pair.second.name, **values, **interval})
    return Table.of(rows).csv()


def latex_of(comparison: Comparison) -> str:
    """The table of each pair as LaTeX, whose caption names the runs."""
    names = _titles(comparison)
    pairs = zip(names[1:], comparison.pairs, strict=True)
    return latex_text({f"{pair.letter} ({name}) against A ({names[0]}), percent": _table(pair) for name, pair in pairs})


def _titles(comparison: Comparison) -> list[str]:
    """The titles of the runs, with their folders where titles are equal."""
    titles = [run.title for run in comparison.runs]
    names = [f"{run.title}, {run.name}" if run.name != run.title else run.title for run in comparison.runs]
    return [name if titles.count(title) > 1 else title for title, name in zip(titles, names, strict=True)]


def _about(run: Answers) -> str:
    """A run in a line: its folder, its model and how it ran."""
    settings = [f"{name} {run.about[name]}" for name in NAMED_SETTINGS if run.about.get(name) is not None]
    return f"{run.path} ({', '.join(filter(None, [*settings, run.about.get('controls')]))})"


def _questions_in_words(comparison: Comparison) -> str:
    questions = counted(comparison.questions, "question")
    words = f"{questions} about {counted(comparison.scenes, 'scene')} in all runs"
    return words + (f"; {comparison.left_out:,} that only some have are left out" if comparison.left_out else "")


def _conditions(pair: Pair) -> str:
    return f"conditions differ in {in_words(pair.differs)}" if pair.differs else "same conditions"


def _failure_lines(pair: Pair, comparison: Comparison) -> list[str]:
    """Which questions failed, and what the scores cover without them; [] if none did."""
    if not any(pair.failed):
        return []
    counts = zip(pair.failed, ("A", pair.letter), strict=True)
    of_all = f"of {comparison.questions:,} questions"
    line = "failed: " + " and ".join(f"{count:,} {of_all} in {letter}" for count, letter in counts if count)
    if comparison.failed_as_wrong:
        return [f"{line}, counted as wrong answers"]
    questions = counted(pair.questions, "question")
    line += f"; left out, so all below is over the {questions} that both finished"
    if pair.as_wrong:
        before, after = pair.as_wrong
        line += f" (counted as wrong answers: A {before:.1f}, {pair.letter} {after:.1f}, {after - before:+.1f})"
    return [line]


def _coverage_lines(pair: Pair, comparison: Comparison) -> list[str]:
    """What a pair's scores cover: the failed questions, apart from what both runs finished, and the partial overall."""
    return _failure_lines(pair, comparison) + _partial_lines(pair)


def _partial_lines(pair: Pair) -> list[str]:
    lines = [f"the overall is a {pair.partial}"] if pair.partial else []
    return [*lines, f"the overall is{pair.without}"] if pair.without else lines


def _interval_lines(pair: Pair) -> list[str]:
    """What is wrong with the intervals of differences, or why there are none, a line for each reason; then what
    differences in the overall can be detected, and how many scenes this one takes."""
    lines = [pair.powerless] if pair.powerless else []
    if any(score.interval for score in pair.differences):
        lines += [pair.uneven] if pair.uneven else []
        if doubtful := [score.name for score in pair.differences if score.contradicts]:
            lines.append(
                f"interval and p disagree at 5 % for {', '.join(doubtful)}: the interval includes 0 although p is "
                "below 0.05, so the evidence is borderline"
            )
        reasons = grouped((score.missing, score.name) for score in pair.differences if score.missing)
        lines += [f"no interval of {', '.join(names)}: {why}" for why, names in reasons.items()]
    elif not pair.powerless:
        lines.append(f"no intervals: {max(pair.differences, key=lambda score: score.scenes).missing}")
    overall = pair.overall
    if overall is not None and overall.detectable is not None:
        detectable = f"a true difference of {overall.detectable:.1f} points with {100 * POWER:.0f} % power"
        line = f"overall: {overall.scenes} scenes detect {detectable}"
        if (needed := overall.scenes_needed) is not None:
            line += f"; one of {abs(overall.percent):.1f} points takes about {counted(needed, 'scene')}"
        lines.append(line)
    return lines


def _flip_lines(flips: Sequence[Flip], what: str) -> list[str]:
    lines = [f"{counted(len(flips), 'question')} {what}" + (":" if flips else "")]
    for flip in flips[:MOST_FLIPS]:
        folders = dict.fromkeys(row.folder or f"id {flip.key.id}" for row in (flip.first, flip.second))
        before = f"{value_in_words(flip.first.answer)} ({flip.before:g})"
        after = f"{value_in_words(flip.second.answer)} ({flip.after:g})"
        where = f"{' / '.join(folders)}  {flip.key.question_type}  {flip.key.scene_name}"
        lines.append(f"  {where}  {before} -> {after}, right {flip.key.ground_truth}")
    if len(flips) > MOST_FLIPS:
        lines.append(f"  and {len(flips) - MOST_FLIPS:,} more: --out FILE.html lists them with links")
    return lines


def _name(score: Difference, pair: Pair) -> str:
    """The name of a row: the label of the overall unless it is partial, since that is long."""
    return str(pair.label) if score is pair.overall and not pair.partial else score.name


def _table(pair: Pair) -> Table:
    """The differences; the last columns are the baselines that cover all questions that are compared."""
    first = _baselines(pair.first, pair)
    second = _baselines(pair.second, pair)
    baselines = {
        BASELINES["most_frequent"]: first.get("most_frequent") or second.get("most_frequent"),
        "blind A": first.get("blind"),
        f"blind {pair.letter}": second.get("blind"),
    }
    columns = {name: percents for name, percents in baselines.items() if percents}
    rows = []
    for score in pair.differences:
        cells = [_name(score, pair), f"{score.first:.1f}", f"{score.second:.1f}", f"{score.percent:+.1f}"]
        cells.append(interval_in_words(score.interval, "+.1f"))
        cells += [p_in_words(score.p_value), p_in_words(score.p_holm)]
        rows.append([*cells, *(decimal(percents.get(score.name)) for percents in columns.values())])
    heads = ["percent", "A", pair.letter, f"{pair.letter} - A", INTERVAL, "p", "p (Holm)", *columns]
    return Table(heads, rows, overall=pair.overall is not None)


def _baselines(run: Answers, pair: Pair) -> dict[str, dict[str, float]]:
    """The percent by task and "overall" of the baselines of a run, if they cover the questions that are compared."""
    if len(with_twins(run.by_question, run)) != pair.questions:
        return {}
    return {
        name: baseline.tasks | ({} if baseline.overall is None else {"overall": baseline.overall})
        for name, baseline in run.summary.baselines.items()
    }


def json_of(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON values. Percentages and p-values are as computed."""
    return {
        "questions": comparison.questions,
        "scenes": comparison.scenes,
        "left_out": comparison.left_out,
        "failed_questions": "counted as wrong" if comparison.failed_as_wrong else "left out",
        "runs": [
            {
                "letter": letter_of(place),
                "name": run.name,
                "path": str(run.path),
                **run.about,
                "protocol": run.protocol,
                "questions": len(run.by_question),
                "failed": len(run.failed),
            }
            for place, run in enumerate(comparison.runs)
        ],
        "pairs": [
            {
                "first": "A",
                "second": pair.letter,
                "questions": pair.questions,
                "scenes": pair.scenes,
                "overall_label": str(pair.label),
                "uneven_scenes": pair.uneven,
                "cannot_show_a_difference": pair.powerless,
                "failed": dict(zip(("first", "second"), pair.failed, strict=True)),
                "overall_with_failed_as_wrong": (
                    dict(zip(("first", "second"), pair.as_wrong, strict=True)) if pair.as_wrong else None
                ),
                "differs": {name: list(values) for name, values in pair.differs.items()},
                "tasks": list(map(_json_of_difference, pair.tasks)),
                "overall": _json_of_difference(pair.overall) if pair.overall else None,
                "gained": [_json_of_flip(flip) for flip in pair.gained],
                "lost": [_json_of_flip(flip) for flip in pair.lost],
            }
            for pair in comparison.pairs
        ],
    }


def _json_of_difference(score: Difference) -> dict[str, Any]:
    return {
        "name": score.name,
        "first": score.first,
        "second": score.second,
        "difference": score.percent,
        "interval": list(score.interval) if score.interval else None,
        "standard_error": score.error,
        "p_value": score.p_value,
        "p_holm": score.p_holm,
        "scenes": score.scenes,
        "detectable": score.detectable,
        "scenes_needed": score.scenes_needed,
        "missing": score.missing,
        "interval_contradicts_p": score.contradicts,
        "scenes_unlike": score.unlike,
    }


def _json_of_flip(flip: Flip) -> dict[str, Any]:
    rows = flip.first, flip.second
    return {
        **flip.key._asdict(),
        "scores": [flip.before, flip.after],
        "answers": [row.answer for row in rows],
        "folders": [row.folder or None for row in rows],
    }


def html_of(comparison: Comparison, out: Path) -> str:
    """The comparison as a page. Its links are relative to the folder of `out`."""
    titles = _titles(comparison)
    by_letter = {letter_of(place): run for place, run in enumerate(comparison.runs)}
    return page_alone(
        "roomscout.analysis.compare",
        "compare.html.j2",
        title=" against ".join(reversed(titles)) if len(titles) == 2 else ", ".join(titles),
        about=_questions_in_words(comparison),
        interval_in_words=interval_in_words,
        level=round(100 * LEVEL),
        passing=PASSING,
        titles=titles,
        runs=[(letter, run, _about(run), run.report_from(out.parent)) for letter, run in by_letter.items()],
        protocols=protocols_of(by_letter, "all runs"),
        pairs=[_pair_values(pair, comparison, out) for pair in comparison.pairs],
    )


def _pair_values(pair: Pair, comparison: Comparison, out: Path) -> dict[str, Any]:
    warnings = _failure_lines(pair, comparison)
    if pair.differs:
        warnings.append(f"The conditions differ in {', '.join(pair.differs)}: the difference is also one of them")
    return {
        "of": pair,
        "differs": _differing(pair),
        "verdict": _verdict(pair),
        "covers": _sentences(_partial_lines(pair)),
        "warnings": _sentences(warnings),
        "table": _table(pair).html("scores stack"),
        "notes": _sentences(line for line in _interval_lines(pair) if line != pair.powerless),
        "plot": _forest(pair),
        "flips": [
            (f"Right in A, wrong in {pair.letter}", len(pair.lost), _flip_table(pair.lost, pair, out)),
            (f"Wrong in A, right in {pair.letter}", len(pair.gained), _flip_table(pair.gained, pair, out)),
        ],
    }


def _sentences(lines: Iterable[str]) -> list[str]:
    return [f"{capitalized(line)}." for line in lines]


def _differing(pair: Pair) -> Table:
    """What answers in the two runs and their conditions, as far as they differ; hashes of prompts say nothing."""
    values = {name: (value, pair.second.about.get(name)) for name, value in pair.first.about.items()}
    values = {name: (one, two) for name, (one, two) in values.items() if name != "controls" and one != two}
    rows = [
        [name.replace("_", " "), value_in_words(one), Markup("<mark>{}</mark>").format(escaped(value_in_words(two)))]
        for name, (one, two) in {**values, **pair.differs}.items()
        if name != "prompts"
    ]
    return Table(["", "A", pair.letter], rows, left=range(3))


def _verdict(pair: Pair) -> str:
    """Which run is better, if interval and p-value of the overall agree; if they disagree, a note says so. Or why these
    scenes cannot say."""
    if pair.powerless:
        return f"{pair.powerless}."
    if pair.overall is None or pair.overall.interval is None:
        return ""
    low, high = pair.overall.interval
    p_value = pair.overall.p_holm
    if (low <= 0 <= high) != (p_value is None or p_value >= 0.05):
        return ""
    if low <= 0 <= high:
        return "The interval includes 0."
    return f"{pair.letter if low > 0 else 'A'} is better."


def _flip_table(flips: Sequence[Flip], pair: Pair, out: Path) -> Table:
    """The questions with both answers, which link to the pages of the reports."""
    reports = [run.report_from(out.parent) for run in (pair.first, pair.second)]
    rows = []
    for flip in flips:
        key = flip.key
        names = " / ".join(dict.fromkeys(filter(None, (flip.first.folder, flip.second.folder))))
        asked = Markup("{} <small>{}</small>").format(escaped_text(key.question), escaped(names))
        right = flip.first.truth_in_words or key.ground_truth
        first = _answer_cell(reports[0], flip.first, flip.before)
        second = _answer_cell(reports[1], flip.second, flip.after)
        rows.append([asked, right, first, second, key.question_type, key.scene_name])
    return Table(["Question", "Right", "A", pair.letter, "Type", "Scene"], rows, left=range(6))


def _answer_cell(report: str, row: ResultRow, score: float) -> Markup:
    said = value_in_words(row.answer)
    if row.answer_text:
        said = row.answer_in_words
    text = escaped(said)
    if report and row.folder:
        text = Markup('<a href="{}#{}">{}</a>').format(report, escaped(row.folder), text)
    return Markup("{} <small>score {:.3g}</small>").format(text, score)


def _forest(pair: Pair) -> str:
    """A plot of the differences with their intervals, as SVG."""
    dots = []
    edges = [0.0]
    for score in pair.differences:
        if score.interval:
            about = f"{score.percent:+.1f} ({interval_in_words(score.interval, '+.1f')})"
            radius = 6 if score is pair.overall else 5
            dots.append(Dot(words_of(_name(score, pair)), score.percent, score.interval, about, radius))
            edges += score.interval
    if not dots:
        return ""
    space = 0.05 * (max(edges) - min(edges))
    label = f"Differences {pair.letter} - A with their intervals"
    axis = f"{pair.letter} - A, percentage points"
    return dot_plot(dots, (min(edges) - space, max(edges) + space), label, axis, (0, "axis")).svg
