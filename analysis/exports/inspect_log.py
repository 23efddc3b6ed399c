"""Exports a run as a log of Inspect (https://inspect.aisi.org.uk), for `inspect view` and its data frames.

Written by inspect_ai's own `write_eval_log` from its own records (inspect_ai 0.3: `inspect_ai/log/_log.py`).
"""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.analysis.episodes import Episode
from roomscout.analysis.exports.finished_run import FinishedRun, conversation, facts_of_turns
from roomscout.data.scoring import summarize
from roomscout.runs import RunError

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample, EvalScore
    from inspect_ai.model import ChatMessage, ModelUsage

SCORE = "score"


def write(run: FinishedRun, out: Path) -> list[str]:
    """Write an .eval file that stands alone: it has the views, the replies and the scores. Returns what to know of it.

    Raises RunError without inspect_ai. Keeps all views in memory while it writes.
    """
    try:
        from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats, write_eval_log
    except ImportError:
        raise RunError('--to inspect needs the package inspect-ai: pip install "roomscout[report]"') from None
    facts = run.facts
    samples = [_sample(run, episode) for episode in run.episodes]
    log = EvalLog(
        status="cancelled" if run.pending else "success",
        eval=EvalSpec(
            eval_id=run.folder.name,
            run_id=run.folder.name,
            created=facts.started,
            task=run.benchmark.title,
            task_id=facts.questions_sha256[:16],
            dataset=EvalDataset(
                name=run.benchmark.title,
                samples=facts.questions,
                sample_ids=list(dict.fromkeys(episode.question.id for episode in run.episodes)),
            ),
            model=f"roomscout/{run.model}",
            config=EvalConfig(epochs=facts.samples),
            packages={name: version for name, version in facts.packages.items() if version},
            metadata={"protocol": facts.protocol, "run_folder": run.folder.name, "config": facts.config},
        ),
        results=EvalResults(
            total_samples=facts.episodes,
            completed_samples=sum(sample.error is None for sample in samples),
            scores=[_scores(run)],
        ),
        stats=EvalStats(
            started_at=facts.started,
            completed_at=(datetime.fromisoformat(facts.started) + timedelta(seconds=run.seconds)).isoformat(),
            model_usage={run.model: _usage(run.episodes)},
        ),
        samples=samples,
    )
    write_eval_log(log, out.absolute(), format="eval")
    return [f"to look at it: inspect view --log-dir {out.absolute().parent}"]


def _sample(run: FinishedRun, episode: Episode) -> "EvalSample":
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput
    from inspect_ai.scorer import Score

    row, question, messages = episode.row, episode.question, _messages(run, episode)
    assert row is not None, "a finished episode has a result"
    replies = [message for message in messages if isinstance(message, ChatMessageAssistant)]
    cut = bool(episode.turns) and episode.turns[-1].reply.finish_reason == "length"
    choices = (
        [ChatCompletionChoice(message=replies[-1], stop_reason="max_tokens" if cut else "stop")] if replies else []
    )
    value = 0.0 if row.score is None else row.score
    score = Score(value=value, answer=row.answer, explanation=row.status, metadata=dict(row.scores) or None)
    return EvalSample(
        id=question.id,
        epoch=episode.id.sample,
        input=question.question,
        choices=list(question.options) or None,
        target=question.ground_truth or "",
        messages=messages,
        output=ModelOutput(model=run.model, choices=choices, usage=_usage([episode])),
        scores=None if row.score is None else {SCORE: score},
        metadata={
            "dataset": question.dataset,
            "scene_name": question.scene_name,
            "question_type": question.question_type,
            "status": row.status,
            "parse_errors": row.parse_errors,
            "folder": str(episode.id),
            "turns": facts_of_turns(episode),
        },
        model_usage={run.model: _usage([episode])},
        total_time=row.seconds,
        error=EvalError(message=row.error or "", traceback="", traceback_ansi="") if row.failed else None,
    )


def _messages(run: FinishedRun, episode: Episode) -> "list[ChatMessage]":
    """The conversation; for a policy without a model, each view and what the policy did."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, ContentImage, ContentText

    def seen(text: str, view: Path | None) -> ChatMessageUser:
        if view is None:
            return ChatMessageUser(content=text)
        try:
            image = "data:image/png;base64," + base64.b64encode(view.read_bytes()).decode("ascii")
        except FileNotFoundError:
            return ChatMessageUser(content=f"[{view.name} is missing]\n{text}")
        return ChatMessageUser(content=[ContentImage(image=image), ContentText(text=text)])

    found: list[ChatMessage] = []
    for message in conversation(run, episode):
        if message.role == "system":
            found.append(ChatMessageSystem(content=message.text))
        elif message.role == "user":
            found.append(seen(message.text, message.view))
        else:
            found.append(ChatMessageAssistant(content=message.text, model=run.model))
    if not found:
        for turn in episode.turns:
            found.append(seen(f"turn {turn.turn}", turn.seen.path))
            found.append(ChatMessageAssistant(content=turn.action.in_words, model=run.model))
    return found


def _usage(episodes: Sequence[Episode]) -> "ModelUsage":
    from inspect_ai.model import ModelUsage

    tokens: Counter[str] = Counter()
    for turn in (turn for episode in episodes for turn in episode.turns):
        tokens["new"] += turn.reply.prompt_tokens - turn.reply.reused_tokens
        tokens["reused"] += turn.reply.reused_tokens
        tokens["generated"] += turn.reply.generated_tokens
    return ModelUsage(
        input_tokens=tokens["new"],
        input_tokens_cache_read=tokens["reused"],
        output_tokens=tokens["generated"],
        total_tokens=tokens.total(),
    )


def _scores(run: FinishedRun) -> "EvalScore":
    """The means that the run's summary has, from 0 to 1; the overall under its label."""
    from inspect_ai.log import EvalMetric, EvalScore

    rows = [asdict(episode.row) for episode in run.episodes if episode.row is not None]
    part = "_".join(str(run.facts.part).split()) if run.facts.part else ""
    asked = summarize(rows, run.benchmark, run.pending, part)["asked"]
    overall = asked["overall_label"]
    percents = ({overall: asked[overall]} if overall else {}) | asked["tasks"]
    metrics = {name: EvalMetric(name=name, value=round(percent / 100, 6)) for name, percent in percents.items()}
    return EvalScore(name=SCORE, scorer=SCORE, scored_samples=asked["scored"], metrics=metrics)
