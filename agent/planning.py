"""How large a batch can be and what a run will cost: arithmetic on sizes, before any weights are loaded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.backends import KV_SHARE, checkpoint_of, weight_copies
from agent.config import RunConfig
from agent.prompts import opening_text
from data.questions import Question

if TYPE_CHECKING:  # the module itself loads torch
    from agent.backends.footprint import Footprint, Rates

LARGEST_BATCH = 64
"""More questions at once gain little: a turn lasts as long as its longest reply."""


TURN_TEXT_TOKENS = 160
"""Text of a turn's message with Qwen's tokenizer, when it tells of an error, a cut value and a blocked move."""


@dataclass(frozen=True)
class ConversationSize:
    """Tokens of one question's conversation at its longest, and the numbers they come from."""

    first_text_tokens: int
    turn_text_tokens: int
    image_tokens: int
    reply_tokens: int
    turns: int

    @property
    def tokens(self) -> int:
        """All tokens, if every turn is taken and every reply is as long as allowed."""
        later = (self.turns - 1) * self.turn_text_tokens
        return self.first_text_tokens + later + self.turns * (self.image_tokens + self.reply_tokens)


def fitting_batch(budget_bytes: int, question_bytes: int, questions: int) -> int:
    """The largest batch whose questions fit into a budget of memory: 1 to LARGEST_BATCH, and no more than there are."""
    fitting = budget_bytes // question_bytes if question_bytes else LARGEST_BATCH
    return max(1, min(fitting, LARGEST_BATCH, questions))


def best_seconds(
    model: "Footprint", rates: "Rates", conversation: ConversationSize, rows_of_turn: Sequence[int], questions: int
) -> float:
    """The least time a run can take, as `Work.least_seconds` has it for each call: with everything beside the model for
    free, and keys and values kept. `rows_of_turn` says how many questions share each turn."""
    seconds, held = 0.0, 0
    for turn, rows in enumerate(rows_of_turn):
        new = conversation.image_tokens + (conversation.turn_text_tokens if turn else conversation.first_text_tokens)
        held += new
        patches = model.patches_per_token * conversation.image_tokens
        call = model.work.least_seconds(rates, rows, rows * new, rows * patches, rows * held, conversation.reply_tokens)
        seconds += math.ceil(questions / rows) * call
        held += conversation.reply_tokens
    return seconds


@dataclass(frozen=True)
class Plan:
    """The batch size of a run, the sum behind it in words, and the sizes it comes from; None for scripted models."""

    batch_size: int
    why: str
    model: "Footprint | None" = None
    conversation: ConversationSize | None = None


def conversation_size(config: RunConfig, questions: Sequence[Question], model: "Footprint") -> ConversationSize:
    """The size of the longest conversation that a run can have; raises ModelError without the model's tokenizer."""
    from agent.backends.footprint import count_tokens

    longest = max((opening_text(question) for question in questions), key=len)
    return ConversationSize(
        first_text_tokens=count_tokens(checkpoint_of(config.model), longest) + TURN_TEXT_TOKENS,
        turn_text_tokens=TURN_TEXT_TOKENS,
        image_tokens=model.image_tokens(*config.image_size),
        reply_tokens=config.max_new_tokens,
        turns=config.steps + 1,
    )


def plan_run(config: RunConfig, questions: Sequence[Question]) -> Plan:
    """The batch size that was asked for, or as many questions as the memory beside the weights will hold.

    Loads no weights. Raises ModelError where the model's configuration or tokenizer or what --constrained or --compile
    needs cannot be had.
    """
    if config.model.startswith("scripted:"):
        size = min(LARGEST_BATCH, len(questions)) if config.batch_size == "auto" else config.batch_size
        return Plan(size, f"Batch size {size}: a script needs no memory")
    from agent.backends.footprint import footprint

    if config.constrained:
        from agent.backends.grammar import require_xgrammar

        require_xgrammar()
    if config.compile:
        from agent.backends.compiled import require_compiler
        from agent.backends.loading import resolve_device

        require_compiler(resolve_device(config.device))
    model = footprint(checkpoint_of(config.model), config.dtype, config.device)
    conversation = conversation_size(config, questions, model)
    copied = model.weight_bytes * weight_copies(config.compile, model.device)
    budget = max(0, int((model.free_bytes - model.weight_bytes - copied) * KV_SHARE))
    question = model.work.kv_bytes_per_token * conversation.tokens
    fitting = fitting_batch(budget, question, len(questions))
    size = fitting if config.batch_size == "auto" else config.batch_size
    why = f"Batch size {size}: {as_bytes(budget)} for keys and values, {as_bytes(question)} a question"
    if copied:
        why += f", {as_bytes(copied)} for the weights' copies of compiled programs"
    if config.batch_size == "auto":
        why += f", at most {LARGEST_BATCH}"
    if min(size, len(questions)) * question > budget:
        why += "; MORE than fits, so some questions are computed anew each turn, or memory runs out"
    return Plan(size, why, model, conversation)


def plan_lines(config: RunConfig, questions: Sequence[Question]) -> list[str]:
    """What a run will take, line by line, and a least time from rates measured here; raises ModelError."""
    plan = plan_run(config, questions)
    scans = {(question.dataset, question.scene_name) for question in questions}
    turns = config.steps + 1
    lines = [
        f"Questions: {len(questions)} on {len(scans)} scans, {turns} turns each at most",
        f"Images: {len(questions) * turns} of {config.image_size[0]}x{config.image_size[1]} at most",
    ]
    if plan.model is None or plan.conversation is None:
        return [*lines, plan.why]
    from agent.backends.footprint import measure_rates

    model, conversation = plan.model, plan.conversation
    rates = measure_rates(config.device, config.dtype)
    batch, few = min(plan.batch_size, len(questions)), min(config.concurrency, plan.batch_size, len(questions))
    rows = [batch if turn <= config.last_batched_turn else few for turn in range(turns)]
    if rates is None:
        time = f"Time: not known, too little memory is free on {model.device} to measure its speed"
    else:
        seconds = best_seconds(model, rates, conversation, rows, len(questions))
        time = (
            f"Time: {as_time(seconds)} at best, if every reply is as long as allowed and nothing but the model takes "
            f"time (measured here: {rates.bytes_per_s / 1e9:.0f} GB/s, {rates.flop_per_s / 1e12:.2f} TFLOP/s)"
        )
    return [
        *lines,
        f"Tokens: {conversation.tokens} a question, {conversation.tokens * len(questions)} in all, at most "
        f"({conversation.image_tokens} an image, {conversation.reply_tokens} a reply)",
        f"Memory on {model.device}: {as_bytes(model.free_bytes)} free, {as_bytes(model.weight_bytes)} for "
        f"{model.parameters / 1e6:,.1f} million parameters",
        plan.why,
        time,
    ]


def as_bytes(size: float) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.2f} MiB"


def as_time(seconds: float) -> str:
    """Seconds for people."""
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
