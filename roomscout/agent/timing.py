"""Estimates how long a run takes, from a roofline of the model and assumptions about its replies."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.agent.config import ModelSettings, ScheduleSettings
from roomscout.models.roofline import Rates, Work

if TYPE_CHECKING:  # the module itself loads torch
    from roomscout.models.transformers.footprint import Footprint

EXPECTED_REPLY_TOKENS = 200
"""Mean length of a reply: a few sentences, then the action object of 50 to 60 tokens. An assumption: no real checkpoint
has been run yet. Thoughts of models that reason come before it, and are expected to fill the rest of the limit."""
_NAMES_OF_REASONERS = re.compile(r"(?<!non)(?<!non[-_])think|reason|q[wv]q|\br1\b|\bo[134]\b|gpt-5", re.IGNORECASE)
GROWTH_PER_DOUBLING = 0.1
"""Growth of a batch's longest reply per doubling of the batch, relative to the mean: 1.6 times the mean at 64 rows, the
expected maximum of 64 normally distributed lengths whose standard deviation is a quarter of the mean."""


@dataclass(frozen=True)
class Pace:
    """How much slower than the roofline a run is; `ROOFLINE` is the roofline itself.

    A decoding step takes `step_s` plus the larger of `step_factor` times its roofline and `step_layer_s` per layer.
    Prefill reaches `prefill_share` of a device's FLOP/s, but takes at least `prefill_layer_s` per layer of the language
    model and the image encoder. A view takes `view_s` to render.
    """

    step_factor: float = 1.0
    step_s: float = 0.0
    step_layer_s: float = 0.0
    prefill_share: float = 1.0
    prefill_layer_s: float = 0.0
    view_s: float = 0.0

    def call_seconds(
        self,
        work: Work,
        rates: Rates,
        rows: float,
        tokens: float,
        patches: float,
        held_tokens: float,
        reply_tokens: float,
    ) -> float:
        """Seconds of one call. Takes the arguments of `Work.least_seconds`; with `ROOFLINE`, the results are equal."""
        computing = work.least_prefill_seconds(rates, tokens, patches) / self.prefill_share
        prefill = max(computing, self.prefill_layer_s * (work.layers + work.encoder_layers))
        held = held_tokens + rows * reply_tokens / 2  # the mean over the reply
        step = max(self.step_factor * work.least_step_seconds(rates, rows, held), self.step_layer_s * work.layers)
        return prefill + reply_tokens * (self.step_s + step)


ROOFLINE = Pace()
_ON_CUDA = Pace(step_factor=1.5, step_layer_s=0.75e-3, prefill_share=0.5, prefill_layer_s=0.75e-3, view_s=6e-3)
_ON_CPU = Pace(step_factor=4.0, step_layer_s=0.57e-3, prefill_share=0.9, prefill_layer_s=0.57e-3, view_s=60e-3)
PACES = {
    ("cuda", False): _ON_CUDA,
    ("cuda", True): replace(_ON_CUDA, step_factor=1.3, step_s=1e-3, step_layer_s=0.0),
    ("cpu", False): _ON_CPU,
    ("cpu", True): replace(_ON_CPU, step_factor=2.5, step_layer_s=0.0),
}
"""Paces by device type and whether decoding steps are compiled. Those for CUDA are estimates: nothing has been
measured on a GPU yet.

- An eager step is bound by Python and kernel launches: 0.57 ms per layer measured on a CPU (20.4 ms for the 36 layers
  of the 8B), 0.75 with CUDA's launches. Its unfused kernels take 1.5 times the roofline.
- A compiled step is assumed to be a replayed CUDA graph: 1.3 times the roofline, plus 1 ms to choose tokens and detect
  finished rows.
- Prefill is always eager and reaches half the rate of a large matrix product.
- A view takes 6 ms if several are rendered in parallel on a machine with a GPU, 60 ms on two cores.
- On a CPU, with 45 million parameters (docs/development/notes.md, 2026-11-22): steps take 3.9 to 4.3 times the
  roofline, compiled 2.4 with 8 rows and 3.9 with one; prefill reaches 0.7 to 1.1 of the measured rate.
"""


@dataclass(frozen=True)
class ConversationSize:
    """The largest number of tokens in a question's conversation, and its parts.

    `estimated` is True if the text was not counted with the model's tokenizer, `reasons` if the model seems to reason
    before it replies. With `keep_views`, a conversation shows the images of that many last turns and of the first.
    """

    first_text_tokens: int
    turn_text_tokens: int
    image_tokens: int
    reply_tokens: int
    turns: int
    estimated: bool = False
    reasons: bool = False
    keep_views: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens if every turn is taken and every reply has the maximum length."""
        later = (self.turns - 1) * self.turn_text_tokens
        images = self.shown(self.turns - 1) * self.image_tokens
        return self.first_text_tokens + later + images + self.turns * self.reply_tokens

    def shown(self, turn: int) -> int:
        """The number of turns whose images the conversation of a turn shows."""
        return turn + 1 if self.keep_views is None else min(turn, self.keep_views) + 1

    def computed(self, turn: int, reply_tokens: float) -> tuple[float, int]:
        """The tokens that a turn computes, and of how many turns the images, if keys and values are kept."""
        if self.keep_views is not None and turn > self.keep_views:  # all from the turn on that is no longer shown
            again = self.turn_text_tokens + self.image_tokens + self.kept(reply_tokens)
            return self.keep_views * again + self.turn_text_tokens, self.keep_views
        text = self.turn_text_tokens if turn else self.first_text_tokens
        return text + self.image_tokens + (self.kept(reply_tokens) if self.reasons and turn else 0), 1

    def kept(self, reply_tokens: float) -> float:
        """Tokens of a reply that later turns read: chat templates and servers leave out its thought."""
        return min(EXPECTED_REPLY_TOKENS, reply_tokens) if self.reasons else reply_tokens


@dataclass(frozen=True)
class RunShape:
    """Lengths of a run's questions and replies.

    `shares` is the fraction of questions that take each turn; `reply_tokens` and `most_tokens` are the mean and the
    maximum length of a reply. With each doubling of a batch, its longest reply grows by `growth_per_doubling` times the
    mean.
    """

    shares: tuple[float, ...]
    reply_tokens: float
    most_tokens: int
    growth_per_doubling: float = 0.0

    @property
    def turns(self) -> float:
        """Mean number of turns per question."""
        return sum(self.shares)

    def steps(self, rows: float) -> float:
        """Decoding steps of a call with `rows` rows, i.e. tokens of its longest reply."""
        return min(self.most_tokens, self.reply_tokens * (1 + self.growth_per_doubling * math.log2(max(1, rows))))


def seems_to_reason(model: str) -> bool:
    """Whether a model has the name of one that reasons at length before it replies, as far as names say it."""
    return _NAMES_OF_REASONERS.search(Path(model).name) is not None


def longest_run_shape(conversation: ConversationSize) -> RunShape:
    """Every question takes every turn, and every reply has the maximum length."""
    return RunShape((1.0,) * conversation.turns, conversation.reply_tokens, conversation.reply_tokens)


def expected_run_shape(conversation: ConversationSize) -> RunShape:
    """Questions end at each turn with equal probability, so they take (turns + 1) / 2 turns on average: 5 of 9.

    Replies have EXPECTED_REPLY_TOKENS on average, and of models that reason the maximum length. These are assumptions.
    """
    turns, most = conversation.turns, conversation.reply_tokens
    shares = tuple((turns - turn) / turns for turn in range(turns))
    expected = most if conversation.reasons else min(EXPECTED_REPLY_TOKENS, most)
    return RunShape(shares, expected, most, GROWTH_PER_DOUBLING)


@dataclass(frozen=True)
class CallGroup:
    """`count` calls of the model with `rows` questions each, at the same turn. Both are means and may be fractional."""

    turn: int
    rows: float
    count: float


def sent_tokens(conversation: ConversationSize, shape: RunShape, anytime: bool = False) -> tuple[float, float]:
    """The tokens of a question that a server reads and writes, which gets the whole conversation with each request."""
    read = written = 0.0
    later = conversation.turn_text_tokens + conversation.kept(shape.reply_tokens)
    for turn, share in enumerate(shape.shares):
        asked = 2 * share if anytime and turn < len(shape.shares) - 1 else share
        images = conversation.shown(turn) * conversation.image_tokens
        read += asked * (conversation.first_text_tokens + images + turn * later)
        written += asked * shape.reply_tokens
    return read, written


def repeated_tokens(conversation: ConversationSize, shape: RunShape, anytime: bool = False) -> float:
    """How many of the tokens that `sent_tokens` counts as read were read before: what a perfect cache would serve."""
    later = conversation.turn_text_tokens + conversation.image_tokens + shape.reply_tokens
    begun = conversation.first_text_tokens + conversation.image_tokens
    last = len(shape.shares) - 1
    again = sum(share * (begun + (turn - 1) * later) for turn, share in enumerate(shape.shares) if turn)
    forced = sum(share * (begun + turn * later) for turn, share in enumerate(shape.shares[:last]))
    return again + (forced if anytime else 0)


def scheduled_calls(
    schedule: ScheduleSettings, questions: int, batch: int, shares: Sequence[float], mixes_turns: bool = True
) -> list[CallGroup]:
    """The calls that agent/scheduler.py makes if these shares of the questions take each turn.

    A cohort of `batch` questions takes its batched turns together, shrinking as questions end, and its later turns
    --concurrency at a time. The last cohort fills the places that the one before it leaves, if --concurrency is "auto"
    and the model `mixes_turns`. With --refill, the batch is always full.
    """
    if schedule.refill:
        full = min(batch, questions)
        return [CallGroup(turn, full, questions * share / full) for turn, share in enumerate(shares)]
    calls, cohorts_of = [], [(batch, float(questions // batch)), (questions % batch, 1.0)]
    if schedule.concurrency == "auto" and mixes_turns and questions > batch:
        cohorts_of = [(batch, questions / batch)]
    for cohort, cohorts in cohorts_of:
        for turn, share in enumerate(shares if cohort and cohorts else ()):
            active = cohort * share
            few = cohort if schedule.concurrency == "auto" else schedule.concurrency
            most = cohort if turn <= schedule.last_batched_turn else few
            rows = max(1, min(active, most))
            calls.append(CallGroup(turn, rows, cohorts * active / rows))
    return calls


def run_seconds(
    model: "Footprint",
    rates: Rates,
    pace: Pace,
    conversation: ConversationSize,
    shape: RunShape,
    calls: Sequence[CallGroup],
    kv_reuse: bool = True,
    anytime: bool = False,
) -> float:
    """Seconds of all calls of a run, excluding loading and compiling.

    Without `kv_reuse`, each turn recomputes the whole conversation and encodes all its images again. With `anytime`,
    questions that take another turn are asked once more after the one before it.
    """
    first, later, image = conversation.first_text_tokens, conversation.turn_text_tokens, conversation.image_tokens
    seconds = 0.0
    for call in calls:
        turn, rows = call.turn, call.rows
        asked = [(turn, *conversation.computed(turn, shape.reply_tokens))]  # at which turn, with what is new
        if anytime and turn:
            asked.append((turn - 1, later, 0))
        for at, new, images in asked:
            shown = conversation.shown(at)
            whole = first + shown * image + at * (later + conversation.kept(shape.reply_tokens))
            tokens, images = (new, images) if kv_reuse else (whole, shown)
            patches = images * image * model.patches_per_token
            taken = pace.call_seconds(
                model.work, rates, rows, rows * tokens, rows * patches, rows * whole, shape.steps(rows)
            )
            seconds += call.count * taken
        seconds += call.count * rows * pace.view_s
    return seconds


def expected_time(
    settings: ModelSettings,
    schedule: ScheduleSettings,
    questions: int,
    batch: int,
    model: "Footprint",
    conversation: ConversationSize,
    rates: Rates | None,
    source: str,
    anytime: bool = False,
) -> tuple[str, list[str]]:
    """The expected time, "-" without rates; and in lines also that of the longest possible run, the rooflines of both,
    and the assumptions.

    `source` says where the rates come from.
    """
    if rates is None:
        return "-", [f"Time: unknown, too little memory is free on {model.device} to measure its speed"]
    pace = PACES["cpu" if model.device.startswith("cpu") else "cuda", settings.compile]

    def seconds(shape: RunShape, pace: Pace) -> str:
        calls = scheduled_calls(schedule, questions, batch, shape.shares, model.mixes_turns)
        reused = settings.kv_reuse and model.keeps_kv
        return as_time(run_seconds(model, rates, pace, conversation, shape, calls, reused, anytime))

    expected, longest = expected_run_shape(conversation), longest_run_shape(conversation)
    floor = f", at least {1e3 * pace.step_layer_s:g} ms a layer" if pace.step_layer_s else ""
    extra = f" plus {1e3 * pace.step_s:g} ms" if pace.step_s else ""
    time = seconds(expected, pace)
    return time, [
        f"Time expected: {time} ({expected.turns:g} of {conversation.turns} turns a question, "
        f"{expected.reply_tokens:g} tokens a reply)",
        f"Time at most: {seconds(longest, pace)} (all turns, {conversation.reply_tokens} tokens in every reply)",
        f"Lower bounds of the two (roofline): {seconds(expected, ROOFLINE)} and {seconds(longest, ROOFLINE)}",
        f"Assumed: {rates.bytes_per_s / 1e9:,.0f} GB/s and {rates.flop_per_s / 1e12:,.2f} TFLOP/s ({source}), "
        f"{pace.prefill_share:g} of the latter in prefill; decoding steps of {pace.step_factor:g} times their roofline"
        f"{extra}{floor}; the longest of 64 replies {1 + 6 * GROWTH_PER_DOUBLING:g} times the mean; "
        f"{1e3 * pace.view_s:g} ms a view; no loading or compiling",
    ]


def as_time(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} seconds"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.{0 if minutes >= 10 else 1}f} minutes" if minutes < 100 else f"{hours:.1f} hours"
