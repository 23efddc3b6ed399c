"""The costs of a run: time by part, tokens and images, summed over turns.jsonl."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

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


def costs(turns: Iterable[Turn], batch_size: int | None) -> dict[str, Any]:
    """The sums over all turns, for summary.json.

    `seconds` by part: those of a batched call and of the wait before it count once, those of render and write add up
    although they overlap. "replies" are those of calls whose engine does not tell prefill and decoding apart, as
    servers do not; they overlap too where questions are asked one by one.
    `prefilled_tokens` counts prompt tokens that were computed rather than reused. `mean_batch` is the mean number of
    questions per call, `batch_fill` its ratio to `batch_size`, `turn_seconds` a list of the wall seconds of each turn.
    "anytime" has the same of the forced answers after the turns, which nothing else includes; absent if there are none.
    """
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
    prefilled = counts.pop("prompt_tokens") - counts["reused_tokens"]
    return {
        "turns": rows,
        "generate_calls": round(calls),
        "mean_batch": mean_batch,
        "batch_fill": round(mean_batch / batch_size, 3) if mean_batch and batch_size else None,
        "generate_seconds": round(generate_s, 3),
        "turn_seconds": turn_seconds,
        "seconds": {part: round(value, 3) for part, value in seconds.items()},
        "prefilled_tokens": prefilled,
        **counts,
        **({"anytime": _of_forced(forced)} if forced else {}),
    }


def seconds_of(cost: Mapping[str, Any]) -> float:
    """The seconds of all parts of `costs` in which something was done."""
    return sum(value for part, value in cost["seconds"].items() if part not in WAITS)


def of_answer(turns: Sequence[Turn], price: Price | None) -> dict[str, Any]:
    """The tokens and the seconds of one answer, its share of batched calls, and with a `price` its money.

    Unlike in `costs`, the tokens and the seconds of forced answers are among them.
    """
    found = costs(turns, None)
    forced = found.get("anytime", {})
    tokens = {name: found[name] + forced.get(name, 0) for name in TOKENS}
    seconds = seconds_of(found) + forced.get("generate_seconds", 0.0)
    return {**tokens, "seconds": round(seconds, 3), **({"money": round(price.of(tokens), 9)} if price else {})}


def by_task(answers: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The sums of `of_answer` by task, from answers with the name of their task, and the number of "answers"."""
    found: dict[str, dict[str, Any]] = {}
    for task, cost in answers:
        sums = found.setdefault(task, dict.fromkeys(("answers", *cost), 0))
        for name, value in {"answers": 1, **cost}.items():
            sums[name] += value
    return {task: {name: round(value, 6) for name, value in sums.items()} for task, sums in found.items()}


def in_money_of(cost: Mapping[str, Any], price: Price | None) -> dict[str, Any]:
    """The money of a run with these costs, and the price behind it; empty without a price."""
    return {"money": round(price.of(cost), 6), "price": asdict(price)} if price else {}


def _of_forced(forced: Sequence[ForcedAnswer]) -> dict[str, Any]:
    """What forced answers cost."""
    counts = {name: sum(getattr(each.reply, name) for each in forced) for name in COUNTED}
    prefilled = counts.pop("prompt_tokens") - counts["reused_tokens"]
    calls = sum(1 / len(each.batch) for each in forced)
    return {
        "answers": len(forced),
        "generate_calls": round(calls),
        "mean_batch": round(len(forced) / calls, 3),
        "generate_seconds": round(sum(each.reply.seconds / len(each.batch) for each in forced), 3),
        "prefilled_tokens": prefilled,
        **counts,
    }
