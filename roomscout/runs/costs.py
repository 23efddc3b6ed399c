"""The costs of a run: time by part, tokens and images, summed over turns.jsonl."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roomscout.base.grouping import grouped
from roomscout.base.record import NotRecorded, OmittedIfEmpty, OmittedIfNone, Record
from roomscout.models import Reply
from roomscout.runs.prices import Price
from roomscout.runs.records import Turn

MODEL_PARTS = ("preprocess", "prefill", "decode")  # parts of a generate() call, which all questions of a batch share
WAITS = ("wait_views", "wait_other")  # what an engine that takes batches waited before a call: for views, and all else
PART_NAMES = {  # the parts of a run's time in words
    "preprocess": "preparing inputs",
    "prefill": "prefill",
    "decode": "decoding",
    "replies": "waiting for replies",
    "wait_views": "waiting for views",
    "wait_other": "other waiting",
    "render": "moving and rendering",
    "write": "writing",
}
OWN_PARTS = ("render", "write")  # parts of each question alone; those of a batch run in parallel
TOKENS = ("prefilled_tokens", "reused_tokens", "generated_tokens")
COST_COLUMNS = (*TOKENS, "money")  # the columns that results.csv has if the tokens of a run have a price
COUNTED = ("prompt_tokens", "reused_tokens", "generated_tokens", "images_encoded", "retries")


@dataclass(frozen=True, kw_only=True)
class TaskCost(Record):
    """The sums of the costs of the answers of a task, with their shares of batched calls, forced answers and maps."""

    prefilled_tokens: int  # of prompts, computed rather than reused
    reused_tokens: int  # of prompts
    generated_tokens: int  # of replies
    seconds: float  # of all parts in which something was done
    money: OmittedIfNone[float | None] = None  # None without a price
    answers: int  # of the task


@dataclass(frozen=True, kw_only=True)
class CallCost(Record):
    """What calls of generate() cost."""

    generate_calls: int  # a batch is one
    mean_batch: float | None  # questions per call; None without one
    generate_seconds: float  # those of a batch count once
    prefilled_tokens: int  # of prompts, computed rather than reused
    reused_tokens: int  # of prompts
    generated_tokens: int  # of replies
    images_encoded: int  # that went through the image encoder
    retries: int  # of requests to servers


@dataclass(frozen=True, kw_only=True)
class ForcedCost(CallCost):
    """What the forced answers, or the maps, after the turns cost."""

    answers: int


@dataclass(frozen=True, kw_only=True)
class Cost(CallCost):
    """The sums over all turns. Only `anytime` and `probe`, and `tokens` of both, include what is outside the
    conversation."""

    turns: int  # of all answers
    batch_fill: float | None  # mean_batch over the batch size; None where one of them is not known
    turn_seconds: NotRecorded[tuple[float, ...]] = ()  # of each turn, with the whole of its call
    seconds: dict[str, float]
    """By part of PART_NAMES. Batched calls and waits count once; render and write add up although they overlap, as do
    "replies", those of calls without prefill and decoding, where questions are asked one by one."""
    anytime: OmittedIfNone[ForcedCost | None] = None  # None without forced answers
    probe: OmittedIfNone[ForcedCost | None] = None  # None without maps
    money: OmittedIfNone[float | None] = None  # of all tokens; None without a price
    price: OmittedIfNone[Price | None] = None  # of the model's tokens
    tasks: OmittedIfEmpty[dict[str, TaskCost]] = field(default_factory=dict)  # by task of the benchmark

    @property
    def worked_seconds(self) -> float:
        """The seconds of all parts in which something was done."""
        return sum(value for part, value in self.seconds.items() if part not in WAITS)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens that were computed, reused and generated (TOKENS), those outside the conversation included."""
        return tuple(sum(getattr(part, name) for part in (self, *self.beside)) for name in TOKENS)

    @property
    def beside(self) -> list[CallCost]:
        """The costs of what was asked outside the conversation."""
        return [part for part in (self.anytime, self.probe) if part is not None]


class _Calls:
    """Sums over replies, each of which has a share of a call."""

    def __init__(self) -> None:
        self.replies = 0
        self.calls = 0.0
        self.seconds = 0.0
        self.counts = dict.fromkeys(COUNTED, 0)

    def add(self, reply: Reply, share: float) -> None:
        self.replies += 1
        self.calls += share
        self.seconds += share * reply.seconds
        for name in COUNTED:
            self.counts[name] += getattr(reply, name)

    @property
    def sums(self) -> dict[str, Any]:
        prompted = self.counts["prompt_tokens"]
        return {
            "generate_calls": round(self.calls),
            "mean_batch": round(self.replies / self.calls, 3) if self.replies else None,
            "generate_seconds": round(self.seconds, 3),
            "prefilled_tokens": prompted - self.counts["reused_tokens"],
            **{name: self.counts[name] for name in COUNTED[1:]},
        }


def costs(turns: Iterable[Turn], batch_size: int | None = None) -> Cost:
    """The sums over all turns."""
    seconds = dict.fromkeys((*MODEL_PARTS, "replies", *WAITS, *OWN_PARTS), 0.0)
    made = _Calls()
    forced = _Calls()
    maps = _Calls()
    turn_seconds = list[float]()
    for turn in turns:
        if turn.forced is not None:
            forced.add(turn.forced.reply, 1 / len(turn.forced.batch))
        if turn.belief is not None:
            maps.add(turn.belief.reply, 1 / len(turn.belief.batch))
        share = 1 / len(turn.batch)
        made.add(turn.reply, share)
        turn_seconds.append(turn.elapsed_s)
        for part in (*MODEL_PARTS, *WAITS):
            seconds[part] += share * getattr(turn.seconds, part)
        if not turn.seconds.prefill + turn.seconds.decode:
            seconds["replies"] += share * max(0.0, turn.reply.seconds - turn.seconds.preprocess)
        for part in OWN_PARTS:
            seconds[part] += getattr(turn.seconds, part)
    return Cost(
        **made.sums,
        turns=made.replies,
        batch_fill=_fill(made.sums["mean_batch"], batch_size),
        turn_seconds=tuple(turn_seconds),
        seconds={part: round(value, 3) for part, value in seconds.items()},
        anytime=ForcedCost(**forced.sums, answers=forced.replies) if forced.replies else None,
        probe=ForcedCost(**maps.sums, answers=maps.replies) if maps.replies else None,
    )


def _fill(mean_batch: float | None, batch_size: int | None) -> float | None:
    return round(mean_batch / batch_size, 3) if mean_batch and batch_size else None


def total(parts: Sequence[Cost], batch_size: int | None = None) -> Cost:
    """The sums of costs, those outside the conversation left out."""
    turns = sum(part.turns for part in parts)
    calls = sum(part.turns / (part.mean_batch or 1) for part in parts)
    mean_batch = round(turns / calls, 3) if calls else None
    summed = ("generate_seconds", "prefilled_tokens", *COUNTED[1:])
    return Cost(
        turns=turns,
        generate_calls=round(calls),
        mean_batch=mean_batch,
        batch_fill=_fill(mean_batch, batch_size),
        turn_seconds=tuple(seconds for part in parts for seconds in part.turn_seconds),
        seconds={name: sum(part.seconds[name] for part in parts) for name in PART_NAMES},
        **{name: sum(getattr(part, name) for part in parts) for name in summed},
    )


def by_task(answers: Iterable[tuple[str, Cost]], price: Price | None) -> dict[str, TaskCost]:
    """The sums of the costs of answers by task, from answers with the name of their task."""
    tasks = {}
    for task, of_task in grouped(answers).items():
        tokens = [sum(counts) for counts in zip(*(cost.tokens for cost in of_task), strict=True)]
        beside = sum(part.generate_seconds for cost in of_task for part in cost.beside)
        tasks[task] = TaskCost(
            answers=len(of_task),
            **dict(zip(TOKENS, tokens, strict=True)),
            seconds=round(sum(cost.worked_seconds for cost in of_task) + beside, 6),
            money=None if price is None else round(price.of(*tokens), 6),
        )
    return tasks
