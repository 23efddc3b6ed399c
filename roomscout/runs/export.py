"""What a run says at its end: in summary.json, in the rows of results.json and results.csv, and in lines of text."""

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from roomscout.base.text import csv_cell, listed
from roomscout.data.benchmark import Benchmark, mean_over_questions
from roomscout.data.question import AnswerKindError
from roomscout.rendering.modalities import MODALITY_NAMES, find_modality
from roomscout.runs.anytime import Forced, anytime, anytime_lines, forced_in
from roomscout.runs.baselines import known_baselines
from roomscout.runs.beliefs import BELIEF_COLUMNS, Maps, belief_columns, belief_lines, beliefs_of
from roomscout.runs.costs import COST_COLUMNS, Cost, by_task, costs
from roomscout.runs.hardware import Session, hardware_of
from roomscout.runs.prices import Price, in_money
from roomscout.runs.provenance import hashes_of
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, ResultRow, RunFacts, Turn
from roomscout.runs.sights import SIGHT_COLUMNS, columns_of, split
from roomscout.runs.summary import Judge, PartCount, QuestionCount, Summary
from roomscout.scoring.agreement import agreement_lines, agreement_of, by_annotator
from roomscout.scoring.by_dataset import dataset_table, scores_by_dataset
from roomscout.scoring.intervals import intervals_of, uneven_scenes
from roomscout.scoring.pairs import below_full, counted_once
from roomscout.scoring.samples import format_samples, summarize_samples
from roomscout.scoring.scores import Agreement, SampleScores, Scores, TypeScores
from roomscout.scoring.summary import AggregateError, format_summary, part_lines, reference_lines, summarize

UNREADABLE_SHARE = 0.1  # from this share of all replies on, those that could not be read are a warning of the run
LABEL_WITHOUT_AGGREGATE = "mean_over_questions"  # of the overall if the `aggregate` of a benchmark fails
ONLY_WITH = "compare only with runs that"
_NO_BASELINE = "blind: not known; the same run with the renderer blind measures it, and roomscout report then shows it"


def exports_of(
    reader: RunReader, rows: Sequence[ResultRow], sessions: Sequence[Session]
) -> tuple[Summary, list[dict[str, Any]]]:
    """What a run exports: its summary, and what columns results.csv has of each row beside its record."""
    facts = reader.facts
    benchmark = reader.benchmark
    forced: Forced = {}
    if facts.setting("anytime"):
        forced = {row.episode: forced_in(reader.turns(row.episode)) for row in rows}
    maps: Maps = {}
    if facts.config.get("probe", "none") != "none":
        maps = {row.episode: [turn.belief for turn in reader.turns(row.episode) if turn.belief] for row in rows}
    try:
        summary = _scored(reader, rows, benchmark, forced)
    except AggregateError as error:
        plain = replace(benchmark, aggregate=mean_over_questions, label=LABEL_WITHOUT_AGGREGATE)
        summary = _scored(reader, rows, plain, forced, str(error))
    spent = dict[EpisodeId, Cost]()
    scans = set[str]()
    price = facts.price

    def all_turns() -> Iterator[Turn]:
        """All turns, each read once; notes what each answer took, and the SHA-256 of the scans."""
        for episode in reader.begun:
            turns = reader.turns(episode)
            spent[episode] = costs(turns)
            scans.update(turn.scan.sha256 for turn in turns if turn.scan is not None)
            yield from turns

    batch_size = sessions[-1].batch_size if sessions else None
    cost = costs(all_turns(), batch_size)
    money = round(price.of(*cost.tokens), 6) if price else None
    tasks = ((benchmark.task_of(row.question_type), spent[row.episode]) for row in rows if row.episode in spent)
    summary = replace(
        summary,
        cost=replace(cost, money=money, price=price, tasks=by_task(tasks, price)),
        sessions=tuple(sessions),
        hardware=hardware_of(cost, sessions, reader.gpu_samples),
        provenance=hashes_of(facts, scans),
        beliefs=beliefs_of(counted_once(rows, benchmark), maps) if maps else None,
    )
    more: dict[EpisodeId, dict[str, Any]] = {row.episode: {} for row in rows}
    for episode, sight in reader.sights.items():
        more.setdefault(episode, {}).update(columns_of(sight))
    for episode, answers in forced.items():
        more[episode]["forced_answers"] = json.dumps([answer for answer, _ in answers], ensure_ascii=False)
        more[episode]["forced_scores"] = json.dumps([score for _, score in answers])
    for episode, of_episode in maps.items():
        more[episode].update(belief_columns(of_episode))
    if price:
        for episode, of_answer in spent.items():
            values = (*of_answer.tokens, round(price.of(*of_answer.tokens), 9))
            more.setdefault(episode, {}).update(zip(COST_COLUMNS, values, strict=True))
    return summary, [more[row.episode] for row in rows]


def scores_of_run(reader: RunReader, rows: Sequence[ResultRow], benchmark: Benchmark) -> Scores:
    """The scores of a run's rows, with what their label must say of the run; also of an unfinished run. Raises
    AggregateError."""
    facts = reader.facts
    label_of_part = str(facts.part or "").replace(" ", "_")
    scores = summarize(rows, benchmark, facts.episodes - len(rows), label_of_part)
    asked = scores.asked
    if facts.frames is not None:
        asked = replace(asked, shown=f"video protocol, {facts.frames} frame{'' if facts.frames == 1 else 's'}")
    if asked.label is not None:
        asked = replace(asked, label=replace(asked.label, told=tuple(_given(facts))))
    if facts.of_one_scan:
        return replace(scores, asked=asked)
    intervals = intervals_of(rows, benchmark)
    return replace(scores, asked=asked, intervals=intervals, datasets=scores_by_dataset(rows, benchmark))


def _scored(
    reader: RunReader, rows: Sequence[ResultRow], benchmark: Benchmark, forced: Forced, error: str = ""
) -> Summary:
    """The summary without its costs; `error` is one of code of a user's. Raises AggregateError."""
    facts = reader.facts
    who = reader.people
    marks = reader.marks
    part = facts.part
    scores = scores_of_run(reader, rows, benchmark)
    errors = [error] if error else []
    samples = None
    agreement = dict[str, Agreement]()
    if facts.samples > 1:
        samples, agreement = _of_samples(reader, rows, benchmark, errors)
    by_person = [(who.get(row.episode, "one person"), row) for row in rows] if facts.by_people else []
    scores = replace(
        scores,
        samples=samples,
        agreement=agreement,
        annotators=by_annotator(by_person, benchmark),
        baselines=known_baselines(reader, benchmark),
    )
    uneven = uneven_scenes(rows, benchmark) if scores.intervals else ""
    warnings = [*errors, *_cautions(rows, facts, scores.types, benchmark), uneven]
    return Summary(
        **vars(scores),
        protocol=facts.protocol,
        model=facts.setting("model"),
        questions=QuestionCount(count=facts.questions, sha256=facts.questions_sha256),
        part=PartCount(number=part.number, of=part.of, of_questions=part.questions) if part else None,
        judge=Judge.of(marks, facts.judge_price) if marks else None,
        sight=split(counted_once(rows, benchmark), reader.sights),
        anytime=anytime(rows, forced, benchmark, facts) if facts.setting("anytime") else None,
        errors=tuple(errors),
        warnings=tuple(filter(None, warnings)),
    )


def _of_samples(
    reader: RunReader, rows: Sequence[ResultRow], benchmark: Benchmark, errors: list[str]
) -> tuple[SampleScores | None, dict[str, Agreement]]:
    """What several answers to a question score, and how much they agree; appends the `errors` of their kinds' code."""
    samples = None
    agreement = dict[str, Agreement]()
    questions = {question.id: question for question in reader.questions}
    try:
        kinds = {id: question.kind for id, question in questions.items()}
        samples = summarize_samples(rows, kinds, benchmark, reader.facts.samples)
    except AnswerKindError as error:
        errors.append(f"no scores over the samples: {error}")
    try:
        agreement = agreement_of(rows, questions, reader.people)
    except AnswerKindError as error:
        errors.append(f"no agreement of the samples: {error}")
    return samples, agreement


def _cautions(
    rows: Sequence[ResultRow], facts: RunFacts, types: Mapping[str, TypeScores], benchmark: Benchmark
) -> Iterator[str]:
    """A sentence for each reason why scores look better than they are, or say little about the model's answers."""
    replies = sum(row.turns for row in rows)
    unread = sum(row.parse_errors for row in rows)
    if unread and unread >= UNREADABLE_SHARE * replies:
        lost = "an action, and each cost its turn" if facts.frames is None else "an answer and score 0"
        yield f"{unread} of {replies} replies could not be read as {lost}"
    measured = [row.measurements for row in rows if row.measurements]
    if measured:
        answers = f"{len(measured)} of {len(rows)} answers"
        yield f"The model measured {sum(measured)} distances in scans for {answers}: {ONLY_WITH} measured too"
    if truths := _given(facts):
        yield f"The model was given {listed(truths.values())}: {ONLY_WITH} had it too"
    names = [kind.name for kind in benchmark.types if kind.told_by_extent and kind.name in types]
    easier = [name for name in names if types[name].percent is not None]
    if easier and (told := _told(facts)):
        yield f"The model was told {told} {', '.join(easier)}: {ONLY_WITH} were told it too"


def _given(facts: RunFacts) -> dict[str, str]:
    """What the conditions of a run give of the truth, in a label's words and in a sentence's."""
    words = {
        "path": "a path on which everything that is asked about is seen",
        "boxes": "the boxes of all objects",
        "boxes-seen": "the boxes of the objects in view",
    }
    truths = facts.setting("given")
    if facts.is_blind and "boxes" not in truths:
        return {}
    in_words = {f"given_{name}": words[name] for name in truths}
    return in_words | {f"with_{name}": f"the whole room as a {name}" for name in _drawings_of_room(facts)}


def _drawings_of_room(facts: RunFacts) -> list[str]:
    """The images that show how large the whole room is."""
    names = () if facts.is_blind else facts.setting("see")
    return [name for name in names if name in MODALITY_NAMES and find_modality(name).tells_extent]


def _told(facts: RunFacts) -> str:
    """What the model was told of the room's size; empty for nothing."""
    templates = facts.prompts.templates if facts.prompts else {}
    if templates.get("extent") or _drawings_of_room(facts):
        return "the room's extent, which nearly gives away"
    if re.search(r"\{[xy][:}]", templates.get("position", "")):
        # The first view is near the middle of the room, and many scans have a corner at 0, 0.
        return "the camera's position in the scan's coordinates, which often gives away"
    return ""


def as_csv(rows: Sequence[dict[str, Any]], more: Sequence[str] = ()) -> str:
    """Result rows as results.csv, with keys of `more`, and of further scores, forced answers, BELIEF_COLUMNS,
    SIGHT_COLUMNS, COST_COLUMNS and measurements those that any row has; options are a JSON list."""
    names = sorted({name for row in rows for name in row.get("scores", ())})
    columns = [field.name for field in fields(ResultRow) if field.name not in ("scores", "measurements")]
    columns += [*more, *(f"scores.{name}" for name in names)]
    rare = ("forced_answers", "forced_scores", *BELIEF_COLUMNS, *SIGHT_COLUMNS, "measurements", *COST_COLUMNS)
    columns += [name for name in rare if any(name in row for row in rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        scores = {f"scores.{name}": value for name, value in row.get("scores", {}).items()}
        options = {"options": json.dumps(row["options"], ensure_ascii=False)} if row.get("options") else {}
        writer.writerow({name: csv_cell(value) for name, value in (row | options | scores).items()})
    return text.getvalue()


def closing_lines(
    folder: Path, facts: RunFacts, summary: Summary, rows: Sequence[ResultRow], benchmark: Benchmark
) -> list[str]:
    """The scores of a run in the words of its benchmark, or of a single question, and where the run is."""
    if not facts.of_one_scan:
        lines = format_summary(summary, benchmark)
        by_dataset = dataset_table(summary)
        may_have_blind = not (facts.is_blind or facts.by_people or facts.frames is not None)
        if may_have_blind and "blind" not in summary.baselines and summary.asked.label is not None:
            lines.append(_NO_BASELINE)
        lines += [
            *format_samples(summary),
            *agreement_lines(summary),
            *(["", *by_dataset.lines()] if by_dataset else []),
            *anytime_lines(summary.anytime),
            *belief_lines(summary.beliefs),
            *reference_lines(summary, benchmark, facts.frames),
            *part_lines(facts.setting, summary, benchmark),
            *summary.warnings,
        ]
        below, how_many = below_full(rows, benchmark)
        if below:
            lines.append(f"{how_many}; to list them: roomscout wrong {shlex.quote(str(folder))}")
    else:
        lines = [
            f"Score: {row.score:g} of 1 (correct answer: {row.ground_truth})" for row in rows if row.score is not None
        ]
    if summary.cost is not None and facts.setting("engine") == "openai":
        computed, cached, written = summary.cost.tokens
        of_cache = f" ({cached:,} of them cached)" if cached else ""
        counts = f", as the server counts: {cached + computed:,} read{of_cache}, {written:,} written"
        lines.append(f"Tokens{counts if cached + computed + written else ': the server reports none'}")
    lines += money_lines(summary, len(rows), facts.price)
    if not facts.of_one_scan:
        lines.append(f"Identified by: {summary.provenance}")
    return [*lines, f"Run folder: {folder}"]


def money_lines(summary: Summary, answers: int, price: Price | None) -> list[str]:
    """What a run cost at a price, and its judge, as lines; none without one."""
    cost = summary.cost
    judge = summary.judge
    of_judge = [f"Cost of the judge: {in_money(judge.money)}"] if judge and judge.money is not None else []
    if cost is None or cost.money is None or price is None:
        return of_judge
    of_answer = f", {in_money(cost.money / answers)} an answer" if answers else ""
    return [f"Cost: {in_money(cost.money)}{of_answer}, at {price}", *of_judge]
