"""Exports a run as a log of Inspect (https://inspect.aisi.org.uk), for `inspect view` and its data frames.

An .eval file is a zip archive: header.json, summaries.json, and a file per sample in samples/. `write_eval_log` of
inspect-ai itself writes the header, but keeps all samples in memory, so they are written here, one at a time, from
inspect-ai's own records (tested with inspect-ai 0.3.285).
"""

import base64
import re
import zipfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from pydantic_core import to_json

from roomscout.analysis.report.contents import AnswerContents, RunContents
from roomscout.base.extras import importing
from roomscout.base.grouping import grouped
from roomscout.base.text import escaped, escaped_text
from roomscout.runs import RunError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalSampleSummary, EvalScore
    from inspect_ai.model import ChatMessage

SCORE = "score"
KEPT = ("turn", "pose", "action", "clamped", "parse_error", "move")
"""What a log keeps of each turn: where the camera was, and what it did."""


def write(run: RunContents, out: Path) -> tuple[int, list[str]]:
    """Write an .eval file with images, replies and scores; missing images are named. RunError without inspect-ai."""
    with importing("inspect_ai", "--to inspect", RunError):
        from inspect_ai.log import condense_sample, write_eval_log
    missing: list[Path] = []
    summaries = []
    zstandard = zipfile.ZIP_ZSTANDARD  # type: ignore[attr-defined]  # before Python 3.14, inspect-ai adds it
    with zipfile.ZipFile(out, "w", zstandard) as file:
        for answer in run.finished():
            sample = condense_sample(_sample(run, answer, missing))
            content = sample.model_dump_json(exclude_none=True)
            file.writestr(f"samples/{sample.id}_epoch_{sample.epoch}.json", content)
            summaries.append(sample.summary())
        file.writestr("summaries.json", to_json(summaries, exclude_none=True))
    write_eval_log(_header(run, summaries), out, format="eval", header_only=True)
    lacking = f"views that are missing, as their messages say: {len(missing)}; first: {missing[0]}" if missing else ""
    return len(summaries), [lacking] if lacking else []


def _header(run: RunContents, summaries: "Sequence[EvalSampleSummary]") -> "EvalLog":
    """The log without its samples, of which it has the totals."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats
    from inspect_ai.model import ModelUsage

    facts = run.facts
    model = _model(run)
    task = run.benchmark.title
    seconds = sum(session.seconds for session in run.summary.sessions)
    usages = (usage for summary in summaries for usage in summary.model_usage.values())
    return EvalLog(
        status="cancelled" if run.pending else "success",
        eval=EvalSpec(
            eval_id=run.folder.name,
            run_id=run.folder.name,
            created=facts.started,
            task=task,
            task_id=facts.questions_sha256[:16],
            dataset=EvalDataset(
                name=task, samples=facts.questions, sample_ids=list(dict.fromkeys(summary.id for summary in summaries))
            ),
            model=f"roomscout/{model}",
            config=EvalConfig(epochs=facts.samples),
            packages={name: version for name, version in facts.last_versions.packages.items() if version},
            metadata={
                "protocol": facts.protocol,
                "run_folder": str(run.folder),
                "git_revision": facts.last_versions.git_revision,
                "config": facts.config,
            },
        ),
        results=EvalResults(
            total_samples=facts.episodes,
            completed_samples=sum(summary.error is None for summary in summaries),
            scores=_scores_of_run(run),
        ),
        stats=EvalStats(
            started_at=facts.started,
            completed_at=(datetime.fromisoformat(facts.started) + timedelta(seconds=seconds)).isoformat(),
            model_usage={model: sum(usages, ModelUsage())},
        ),
    )


def _model(run: RunContents) -> str:
    return str(run.facts.setting("policy") or run.facts.setting("model"))


def _id(answer: AnswerContents) -> int | str:
    """The id of a question, a number where it is a whole one, as in VSI-Bench; as text it names a file."""
    if re.fullmatch("0|[1-9][0-9]{0,17}", answer.question.id):
        return int(answer.question.id)
    return escaped(answer.question.id).replace("/", "%2F").replace("\\", "%5C")


def _sample(run: RunContents, answer: AnswerContents, missing: list[Path]) -> "EvalSample":
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    row = answer.row
    model = _model(run)
    assert row is not None, "a finished answer has a result"
    messages = _messages(run, answer, missing)
    cost = answer.entry.cost
    usage = ModelUsage(
        input_tokens=cost.prefilled_tokens,
        input_tokens_cache_read=cost.reused_tokens,
        output_tokens=cost.generated_tokens,
        total_tokens=cost.prefilled_tokens + cost.reused_tokens + cost.generated_tokens,
    )
    replies = [message for message in messages if isinstance(message, ChatMessageAssistant)]
    clipped = bool(answer.turns) and answer.turns[-1].reply.finish_reason == "length"
    stop_reason = "max_tokens" if clipped else "stop"
    choices = [ChatCompletionChoice(message=reply, stop_reason=stop_reason) for reply in replies[-1:]]
    scores = {}
    if row.score is not None:
        scores[SCORE] = Score(value=row.score, answer=row.answer, explanation=row.status)
        scores |= {name: Score(value=value, answer=row.answer) for name, value in row.scores.items()}
    return EvalSample(
        id=_id(answer),
        epoch=answer.episode.sample,
        input=escaped_text(answer.question.question),
        choices=[escaped(option) for option in answer.question.options] or None,
        target=answer.question.ground_truth or "",
        messages=messages,
        output=ModelOutput(model=model, choices=choices, usage=usage),
        scores=scores or None,
        metadata={
            "dataset": answer.question.dataset,
            "scene_name": answer.question.scene_name,
            "question_type": answer.question.question_type,
            "status": row.status,
            "parse_errors": row.parse_errors,
            "folder": str(answer.episode),
            "turns": [{key: value for key, value in turn.to_json().items() if key in KEPT} for turn in answer.turns],
        },
        model_usage={model: usage},
        total_time=row.seconds,
        error=EvalError(message=escaped_text(row.error or ""), traceback="", traceback_ansi="") if row.failed else None,
    )


def _messages(run: RunContents, answer: AnswerContents, missing: list[Path]) -> "list[ChatMessage]":
    """The conversation; without a model, the images of each turn and what the policy did. Adds to `missing` images."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, ContentImage, ContentText

    def seen(text: str, paths: Iterable[Path]) -> ChatMessageUser:
        images = []
        for path in paths:
            try:
                address = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
                images.append(ContentImage(image=address))
            except FileNotFoundError:
                missing.append(path)
                text = f"[{path.name} is missing]\n{text}"
        return ChatMessageUser(content=[*images, ContentText(text=text)] if images else text)

    messages: list[ChatMessage] = []
    for message in answer.messages:
        text = escaped_text(message["text"])
        if message["role"] == "system":
            messages.append(ChatMessageSystem(content=text))
        elif message["role"] == "user":
            messages.append(seen(text, run.images(answer.episode, message)))
        else:
            messages.append(ChatMessageAssistant(content=text, model=_model(run)))
    if not messages:
        for turn in answer.turns:
            messages.append(seen(f"turn {turn.turn}", [shot.path for shot in turn.shots]))
            messages.append(ChatMessageAssistant(content=turn.action.in_words, model=_model(run)))
    return messages


def _scores_of_run(run: RunContents) -> "list[EvalScore]":
    """The means of the run's summary, from 0 to 1: the overall under its label, then the tasks. Then the mean of each
    further score, such as relative_error, over the answers that have it."""
    from inspect_ai.log import EvalMetric, EvalScore

    asked = run.summary.asked
    percents = ({str(asked.label): asked.overall} if asked.overall is not None else {}) | asked.tasks
    metrics = {name: EvalMetric(name=name, value=round(percent / 100, 6)) for name, percent in percents.items()}
    scores = [EvalScore(name=SCORE, scorer=SCORE, scored_samples=asked.scored, metrics=metrics)]
    values = grouped(score for row in run.rows.values() for score in row.scores.items())
    for name, of_answers in values.items():
        metrics = {"mean": EvalMetric(name="mean", value=mean(of_answers))}
        scores.append(EvalScore(name=name, scorer=name, scored_samples=len(of_answers), metrics=metrics))
    return scores
