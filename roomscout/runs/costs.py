"""The costs of a run: time by part, tokens and images, summed over turns.jsonl."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from roomscout.base.record import LookedUp, NotRecorded, OmittedIfEmpty, OmittedIfNone
from roomscout.runs.prices import Price
from roomscout.runs.records import ForcedAnswer, Turn

MODEL_PARTS = ("preprocess", "prefill", "decode")
"""Parts of a generate() call, which all questions of a batch share."""

WAITS = ("wait_views", "wait_other")
"""What an engine that takes batches waited before a generate() call, for views and for all else."""

PART_NAMES = {
    "preprocess": "preparing inputs",
    "prefill": "prefill",
    "decode": "decoding",
    "replies": "waiting for replies",
    "wait_views": "waiting for views",
    "wait_other": "other waiting",
    "render": "moving and rendering",
    "write": "writing",
}
"""The parts of a run's time in words."""

OWN_PARTS = ("render", "write")
"""Parts of each question alone; those of a batch run in parallel."""

TOKENS = ("prefilled_tokens", "reused_tokens", "generated_tokens")

COST_COLUMNS = (*TOKENS, "money")
"""The columns that results.csv has if the tokens of a run have a price."""

COUNTED = ("prompt_tokens", "reused_tokens", "generated_tokens", "images_encoded", "retries")


@dataclass(frozen=True, kw_only=True)
class ForcedCost(LookedUp):
    """What the forced answers after the turns cost, as in `Cost`."""

    answers: int
    generate_calls: int
    mean_batch: float
    generate_seconds: float
    prefilled_tokens: int
    reused_tokens: int
    generated_tokens: int
    images_encoded: int
    retries: int


@dataclass(frozen=True, kw_only=True)
class AnswerCost(LookedUp):
    """The tokens and the seconds of one answer, its share of batched calls and those of forced answers included, and
    their money; None without a price."""

    prefilled_tokens: int
    reused_tokens: int
    generated_tokens: int
    seconds: float
    money: OmittedIfNone[float | None] = None


@dataclass(frozen=True, kw_only=True)
class TaskCost(AnswerCost):
    """The sums of the costs of the `answers` of a task."""

    answers: int


@dataclass(frozen=True, kw_only=True)
class Cost(LookedUp):
    """The sums over all turns.

    `seconds` by part: those of a batched call and of the wait before it count once, those of render and write add up
    although they overlap. "replies" are those of calls whose engine does not tell prefill and decoding apart, as
    servers do not; they overlap too where questions are asked one by one.
    `prefilled_tokens` counts prompt tokens that were computed rather than reused. `mean_batch` is the mean number of
    questions per call, `batch_fill` its ratio to the batch size, `turn_seconds` has the wall seconds of each turn.
    `anytime` has the same of the forced answers after the turns, which nothing else includes.
    """

    turns: int
    generate_calls: int
    mean_batch: float | None
    batch_fill: float | None
    generate_seconds: float
    turn_seconds: NotRecorded[tuple[float, ...]] = ()
    seconds: dict[str, float]
    prefilled_tokens: int
    reused_tokens: int
    generated_tokens: int
    images_encoded: int
    retries: int
    anytime: OmittedIfNone[ForcedCost | None] = None
    money: OmittedIfNone[float | None] = None
    price: OmittedIfNone[Price | None] = None
    tasks: OmittedIfEmpty[dict[str, TaskCost]] = field(default_factory=dict)

    @property
    def worked_seconds(self) -> float:
        """The seconds of all parts in which something was done."""
        return sum(value for part, value in self.seconds.items() if part not in WAITS)

    @property
    def tokens(self) -> tuple[int, int, int]:
        """The tokens that were computed, reused and generated, those of forced answers included."""
        computed, reused, generated = self.prefilled_tokens, self.reused_tokens, self.generated_tokens
        if self.anytime is None:
            return computed, reused, generated
        return (
            computed + self.anytime.prefilled_tokens,
            reused + self.anytime.reused_tokens,
            generated + self.anytime.generated_tokens,
        )

    def priced(self, price: Price | None) -> "Cost":
        """The costs with their money at a price."""
        return self if price is None else replace(self, money=round(price.of(*self.tokens), 6), price=price)


def costs(turns: Iterable[Turn], batch_size: int | None) -> Cost:
    """The sums over all turns."""
    seconds = dict.fromkeys((*MODEL_PARTS, "replies", *WAITS, *OWN_PARTS), 0.0)
    counts = dict.fromkeys(COUNTED, 0)
    rows, calls, generate_s = 0, 0.0, 0.0
    forced, turn_seconds = list[ForcedAnswer](), list[float]()
    for turn in turns:
        if turn.forced is not None:
            forced.append(turn.forced)
        share = 1 / len(turn.batch)
        rows, calls = rows + 1, calls + share
        generate_s += share * turn.reply.seconds
        turn_seconds.append(turn.elapsed_s)
        for part in (*MODEL_PARTS, *WAITS):
            seconds[part] += share * getattr(turn.seconds, part)
        if not turn.seconds.prefill + turn.seconds.decode:
            seconds["replies"] += share * max(0.0, turn.reply.seconds - turn.seconds.preprocess)
        for part in OWN_PARTS:
            seconds[part] += getattr(turn.seconds, part)
        for name in COUNTED:
            counts[name] += getattr(turn.reply, name)
    mean_batch = round(rows / calls, 3) if rows else None
    return Cost(
        turns=rows,
        generate_calls=round(calls),
        mean_batch=mean_batch,
        batch_fill=_fill(mean_batch, batch_size),
        generate_seconds=round(generate_s, 3),
        turn_seconds=tuple(turn_seconds),
        seconds={part: round(value, 3) for part, value in seconds.items()},
        prefilled_tokens=counts["prompt_tokens"] - counts["reused_tokens"],
        reused_tokens=counts["reused_tokens"],
        generated_tokens=counts["generated_tokens"],
        images_encoded=counts["images_encoded"],
        retries=counts["retries"],
        anytime=_of_forced(forced) if forced else None,
    )


def _fill(mean_batch: float | None, batch_size: int | None) -> float | None:
    return round(mean_batch / batch_size, 3) if mean_batch and batch_size else None


def total(found: Iterable[Cost], batch_size: int | None = None) -> Cost:
    """The sums of costs, those of forced answers left out."""
    found = list(found)
    turns = sum(each.turns for each in found)
    calls = sum(each.turns / (each.mean_batch or 1) for each in found)
    mean_batch = round(turns / calls, 3) if calls else None
    parts = dict.fromkeys(part for each in found for part in each.seconds)

    def sum_of(name: str) -> int:
        return sum(getattr(each, name) for each in found)

    return Cost(
        turns=turns,
        generate_calls=round(calls),
        mean_batch=mean_batch,
        batch_fill=_fill(mean_batch, batch_size),
        generate_seconds=sum(each.generate_seconds for each in found),
        turn_seconds=tuple(seconds for each in found for seconds in each.turn_seconds),
        seconds={part: sum(each.seconds[part] for each in found) for part in parts},
        prefilled_tokens=sum_of("prefilled_tokens"),
        reused_tokens=sum_of("reused_tokens"),
        generated_tokens=sum_of("generated_tokens"),
        images_encoded=sum_of("images_encoded"),
        retries=sum_of("retries"),
    )


def of_answer(turns: Sequence[Turn], price: Price | None) -> AnswerCost:
    """What one answer cost."""
    found = costs(turns, None)
    computed, reused, generated = found.tokens
    seconds = found.worked_seconds + (found.anytime.generate_seconds if found.anytime else 0.0)
    return AnswerCost(
        prefilled_tokens=computed,
        reused_tokens=reused,
        generated_tokens=generated,
        seconds=round(seconds, 3),
        money=None if price is None else round(price.of(*found.tokens), 9),
    )


def by_task(answers: Iterable[tuple[str, AnswerCost]]) -> dict[str, TaskCost]:
    """The sums of the costs of answers by task, from answers with the name of their task."""
    by_name: dict[str, list[AnswerCost]] = {}
    for task, cost in answers:
        by_name.setdefault(task, []).append(cost)
    return {
        task: TaskCost(
            answers=len(found),
            prefilled_tokens=sum(each.prefilled_tokens for each in found),
            reused_tokens=sum(each.reused_tokens for each in found),
            generated_tokens=sum(each.generated_tokens for each in found),
            seconds=round(sum(each.seconds for each in found), 6),
            money=None if found[0].money is None else round(sum(each.money or 0 for each in found), 6),
        )
        for task, found in by_name.items()
    }


def _of_forced(forced: Sequence[ForcedAnswer]) -> ForcedCost:
    counts = {name: sum(getattr(each.reply, name) for each in forced) for name in COUNTED}
    calls = sum(1 / len(each.batch) for each in forced)
    return ForcedCost(
        answers=len(forced),
        generate_calls=round(calls),
        mean_batch=round(len(forced) / calls, 3),
        generate_seconds=round(sum(each.reply.seconds / len(each.batch) for each in forced), 3),
        prefilled_tokens=counts.pop("prompt_tokens") - counts["reused_tokens"],
        **counts,
    )
