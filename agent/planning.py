"""Plans batch size, memory and time of a run from sizes alone, before any weights are loaded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.config import ConfigError
from agent.policies.prompts import opening_text
from data.questions import Question
from models import CONCURRENCY, KV_SHARE, ModelError, weight_copies
from models.engines import checkpoint_of
from models.gpus import FLOP_SHARE, GPUS, MEMORY_SHARE, RESERVED_BYTES
from models.transformers.shapes import CHECKPOINTS
from models.views import own_view_settings

if TYPE_CHECKING:  # the module itself loads torch
    from agent.config import RunConfig
    from models.transformers.footprint import Footprint, Rates, Work

LARGEST_BATCH = 64
"""Larger batches gain little, since a turn lasts as long as its longest reply."""


TURN_TEXT_TOKENS = 160
"""Tokens of a turn's message with Qwen's tokenizer if it reports an error, a clamped value and a blocked move."""

CHARACTERS_PER_TOKEN = 3.7
"""For the text before the first reply, when planning without the tokenizer. With Qwen's vocabulary it is 3.79 to 3.97
for the question types of procedural rooms (docs/notes.md, 2026-11-22); rounded down so as not to underestimate."""

EXPECTED_REPLY_TOKENS = 200
"""Mean length of a reply: a few sentences, then the action object of 50 to 60 tokens. An assumption: no real checkpoint
has been run yet."""
LONGER_PER_DOUBLING = 0.1
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

    def prefill_seconds(self, work: "Work", rates: "Rates", tokens: float, patches: float) -> float:
        """Seconds to compute `tokens` and `patches`, in total over all rows, before the first new token."""
        computing = work.least_prefill_seconds(rates, tokens, patches) / self.prefill_share
        return max(computing, self.prefill_layer_s * (work.layers + work.encoder_layers))

    def step_seconds(self, work: "Work", rates: "Rates", rows: float, held_tokens: float) -> float:
        """Seconds of one decoding step of `rows` with `held_tokens` in total in their caches."""
        at_roofline = work.least_step_seconds(rates, rows, held_tokens)
        return self.step_s + max(self.step_factor * at_roofline, self.step_layer_s * work.layers)

    def call_seconds(
        self,
        work: "Work",
        rates: "Rates",
        rows: float,
        tokens: float,
        patches: float,
        held_tokens: float,
        reply_tokens: float,
    ) -> float:
        """Seconds of one call. Takes the arguments of `Work.least_seconds`; with `ROOFLINE`, the results are equal."""
        held = held_tokens + rows * reply_tokens / 2  # the mean over the reply
        prefill = self.prefill_seconds(work, rates, tokens, patches)
        return prefill + reply_tokens * self.step_seconds(work, rates, rows, held)


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
- On a CPU, with 45 million parameters (docs/notes.md, 2026-11-22): steps take 3.9 to 4.3 times the roofline, compiled
  2.4 with 8 rows and 3.9 with one; prefill reaches 0.7 to 1.1 of the measured rate.
"""


@dataclass(frozen=True)
class ConversationSize:
    """The largest number of tokens in a question's conversation, and its parts.

    `estimated` is True if the text was not counted with the model's tokenizer.
    """

    first_text_tokens: int
    turn_text_tokens: int
    image_tokens: int
    reply_tokens: int
    turns: int
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens if every turn is taken and every reply has the maximal length."""
        later = (self.turns - 1) * self.turn_text_tokens
        return self.first_text_tokens + later + self.turns * (self.image_tokens + self.reply_tokens)


def fitting_batch(budget_bytes: int, question_bytes: int, questions: int) -> int:
    """The largest batch that fits in the memory budget: at least 1, at most LARGEST_BATCH and `questions`."""
    fitting = budget_bytes // question_bytes if question_bytes else LARGEST_BATCH
    return max(1, min(fitting, LARGEST_BATCH, questions))


@dataclass(frozen=True)
class Course:
    """Lengths of a run's questions and replies.

    `shares` is the fraction of questions that take each turn; `reply_tokens` and `most_tokens` are the mean and the
    maximal length of a reply. With each doubling of a batch, its longest reply grows by `longer` times the mean.
    """

    shares: tuple[float, ...]
    reply_tokens: float
    most_tokens: int
    longer: float = 0.0

    @property
    def turns(self) -> float:
        """Mean number of turns per question."""
        return sum(self.shares)

    def steps(self, rows: float) -> float:
        """Decoding steps of a call with `rows` rows, i.e. tokens of its longest reply."""
        return min(self.most_tokens, self.reply_tokens * (1 + self.longer * math.log2(max(1, rows))))


def longest_course(conversation: ConversationSize) -> Course:
    """Every question takes every turn, and every reply has the maximal length."""
    return Course((1.0,) * conversation.turns, conversation.reply_tokens, conversation.reply_tokens)


def expected_course(conversation: ConversationSize) -> Course:
    """Questions end at each turn with equal probability, so they take (turns + 1) / 2 turns on average: 5 of 9.

    Replies have EXPECTED_REPLY_TOKENS on average. Both are assumptions.
    """
    turns, most = conversation.turns, conversation.reply_tokens
    shares = tuple((turns - turn) / turns for turn in range(turns))
    return Course(shares, min(EXPECTED_REPLY_TOKENS, most), most, LONGER_PER_DOUBLING)


@dataclass(frozen=True)
class Calls:
    """`count` calls of the model with `rows` questions each, at the same turn. Both are means and may be fractional."""

    turn: int
    rows: float
    count: float


def scheduled_calls(config: "RunConfig", questions: int, batch: int, shares: Sequence[float]) -> list[Calls]:
    """The calls that agent/scheduler.py makes if these shares of the questions take each turn.

    A cohort of `batch` questions takes its batched turns together, shrinking as questions end, and its later turns
    --concurrency at a time. With --refill, the batch is always full.
    """
    if config.refill:
        full = min(batch, questions)
        return [Calls(turn, full, questions * share / full) for turn, share in enumerate(shares)]
    calls = []
    for cohort, cohorts in ((batch, questions // batch), (questions % batch, 1)):
        for turn, share in enumerate(shares if cohort and cohorts else ()):
            going_on = cohort * share
            few = cohort if config.concurrency == "auto" else config.concurrency
            most = cohort if turn <= config.last_batched_turn else few
            rows = max(1, min(going_on, most))
            calls.append(Calls(turn, rows, cohorts * going_on / rows))
    return calls


def run_seconds(
    model: "Footprint",
    rates: "Rates",
    pace: Pace,
    conversation: ConversationSize,
    course: Course,
    calls: Sequence[Calls],
    kv_reuse: bool = True,
) -> float:
    """Seconds of all calls of a run, excluding loading and compiling.

    Without `kv_reuse`, each turn recomputes the whole conversation and encodes all its images again.
    """
    first, later, image = conversation.first_text_tokens, conversation.turn_text_tokens, conversation.image_tokens
    seconds = 0.0
    for call in calls:
        whole = first + image + call.turn * (image + later + course.reply_tokens)
        tokens, images = (image + (later if call.turn else first), 1) if kv_reuse else (whole, call.turn + 1)
        patches = images * image * model.patches_per_token
        rows = call.rows
        taken = pace.call_seconds(
            model.work, rates, rows, rows * tokens, rows * patches, rows * whole, course.steps(rows)
        )
        seconds += call.count * (taken + rows * pace.view_s)
    return seconds


@dataclass(frozen=True)
class Plan:
    """The batch size of a run, its derivation in words (`why`), and the sizes behind it, None without a model.

    `kv_bytes` is the memory for keys and values. `fits` is False if the weights are too large for their GPU.
    """

    batch_size: int
    why: str
    model: "Footprint | None" = None
    conversation: ConversationSize | None = None
    kv_bytes: int | None = None
    fits: bool = True


def conversation_size(config: "RunConfig", questions: Sequence[Question], model: "Footprint") -> ConversationSize:
    """The size of the longest possible conversation.

    With --plan, estimates the text of a known checkpoint whose tokenizer is not on this machine. Raises ModelError if
    the tokenizer is needed and cannot be loaded.
    """
    from models.transformers.footprint import count_tokens
    from models.transformers.loading import is_here

    longest = max((opening_text(question) for question in questions), key=len)
    name = checkpoint_of(config.model)
    estimated = config.plan and name in CHECKPOINTS and not is_here(name, "tokenizer.json")
    opening = math.ceil(len(longest) / CHARACTERS_PER_TOKEN) if estimated else count_tokens(name, longest)
    return ConversationSize(
        first_text_tokens=opening + TURN_TEXT_TOKENS,
        turn_text_tokens=TURN_TEXT_TOKENS,
        image_tokens=model.image_tokens(*config.view.image_size),
        reply_tokens=config.view.max_new_tokens,
        turns=config.steps + 1,
        estimated=estimated,
    )


def plan_without_model(config: "RunConfig", questions: Sequence[Question]) -> Plan:
    """The plan for a policy without keys and values."""
    size = min(LARGEST_BATCH, len(questions)) if config.batch_size == "auto" else config.batch_size
    return Plan(size, f"Batch size {size}: {config.model} needs no memory for keys and values")


def plan_for_server(config: "RunConfig", questions: Sequence[Question]) -> Plan:
    """The plan for a model behind a server, whose memory and speed are unknown."""
    size = min(CONCURRENCY if config.concurrency == "auto" else config.concurrency, len(questions))
    return Plan(size, f"{size} questions at a time at {' '.join(config.base_url)}, which decides how they are batched")


def plan_for_vllm(config: "RunConfig", questions: Sequence[Question], model: "Footprint") -> Plan:
    """The plan for a vLLM server, which allocates memory to conversations itself."""
    size = min(CONCURRENCY if config.concurrency == "auto" else config.concurrency, len(questions))
    budget = max(0, int((model.free_bytes - model.weight_bytes) * KV_SHARE))
    why = f"{size} questions at a time in a vLLM server, which decides how they are batched"
    return Plan(size, why, model, conversation_size(config, questions, model), budget)


def suited(config: "RunConfig") -> "RunConfig":
    """`config` with the model family's default view size, unless a flag or the checkpoint sets one.

    Raises ConfigError if the family does not take views of this size, ModelError if the checkpoint's configuration
    cannot be loaded. Servers and policies take any size.
    """
    if config.policy is not None or config.model.startswith("scripted:") or config.engine == "openai":
        return config
    from models.transformers.footprint import checkpoint_family

    family = checkpoint_family(checkpoint_of(config.model))
    if config.image_size == "auto" and own_view_settings(config.model) is None:
        config = replace(config, image_size=family.default_view)
    if reason := family.why_not(*config.view.image_size):
        raise ConfigError(f"--image-size: {reason}")
    return config


def plan_run(config: "RunConfig", questions: Sequence[Question]) -> Plan:
    """Plan with the given batch size, or with as many questions as fit in memory beside the weights.

    Loads no weights. Raises ModelError if the model's configuration or tokenizer, or a requirement of --constrained or
    --compile, is missing, and if a GPU is too small for the weights, which --plan only reports. The view size must be
    resolved: see `suited`.
    """
    if config.policy is not None or config.model.startswith("scripted:"):
        return plan_without_model(config, questions)
    if config.engine == "openai":
        return plan_for_server(config, questions)
    from models.transformers.footprint import footprint, footprint_on
    from models.transformers.kv_cache import buffer_columns

    if config.plan_device is not None:
        model = footprint_on(config.plan_device, checkpoint_of(config.model), config.dtype, config.tiles_per_view)
    else:
        require_packages(config)
        model = footprint(checkpoint_of(config.model), config.dtype, config.device, config.tiles_per_view)
    if config.engine == "vllm":
        return plan_for_vllm(config, questions, model)
    too_large = why_too_large(config.model, model)
    if too_large and not config.plan:
        raise ModelError(too_large)
    conversation = conversation_size(config, questions, model)
    copied = model.weight_bytes * weight_copies(config.compile, model.device)
    budget = max(0, int((model.free_bytes - model.weight_bytes - copied) * KV_SHARE))
    question = model.work.kv_bytes_per_token * buffer_columns(conversation.tokens) + model.work.state_bytes
    fitting = fitting_batch(budget, question, len(questions))
    size = fitting if config.batch_size == "auto" else config.batch_size
    why = f"Batch size {size}: {as_bytes(budget)} for keys and values, {as_bytes(question)} a question"
    if copied:
        why += f", {as_bytes(copied)} for the weights' copies of compiled programs"
    if config.batch_size == "auto":
        why += f", at most {LARGEST_BATCH}"
    if too_large:
        return Plan(size, f"Cannot run: {too_large}", model, conversation, budget, fits=False)
    if min(size, len(questions)) * question > budget:
        why += "; MORE than fits: some questions will be recomputed each turn, or memory will run out"
    return Plan(size, why, model, conversation, budget)


def why_too_large(name: str, model: "Footprint") -> str | None:
    """Why a model's weights do not fit on its GPU; None if they do, and on a CPU, where weights may stay on disk."""
    if model.device.startswith("cpu") or model.weight_bytes <= model.free_bytes:
        return None
    return (
        f"{name} needs {as_bytes(model.weight_bytes)} for its weights and {model.device} has "
        f"{as_bytes(model.free_bytes)} free: the model must fit on one GPU; use a smaller checkpoint, a larger GPU, or "
        "--device cpu"
    )


def require_packages(config: "RunConfig") -> None:
    """Raise ModelError if this machine lacks a requirement of --constrained or --compile."""
    if config.constrained and config.engine == "transformers":
        from models.transformers.grammar import require_xgrammar

        require_xgrammar()
    if config.compile:
        from models.transformers.loading import resolve_device
        from models.transformers.steps import require_compiler

        require_compiler(resolve_device(config.device))


def plan_lines(config: "RunConfig", questions: Sequence[Question]) -> list[str]:
    """The lines that --plan prints, at rates measured here or those of --plan-device; raises ModelError."""
    config = suited(config)
    plan = plan_run(config, questions)
    scans = {question.scene for question in questions}
    turns, (width, height) = config.steps + 1, config.view.image_size
    lines = [
        f"Questions: {len(questions)} on {len(scans)} scans, {turns} turns each at most",
        f"Images: {len(questions) * turns} of {width}x{height} at most",
    ]
    if plan.model is None or plan.conversation is None or config.engine == "vllm":
        return [*lines, plan.why]
    from models.transformers.footprint import measure_rates, rates_of

    model, conversation = plan.model, plan.conversation
    reserved = f" beside {as_bytes(RESERVED_BYTES)} for CUDA" if config.plan_device else ""
    estimated = f", text at {CHARACTERS_PER_TOKEN:g} characters a token" if conversation.estimated else ""
    lines += [
        f"Tokens: {conversation.tokens} a question, {conversation.tokens * len(questions)} in all, at most "
        f"({conversation.image_tokens} an image, {conversation.reply_tokens} a reply{estimated})",
        f"Memory on {model.device}: {as_bytes(model.free_bytes)} free{reserved}, {as_bytes(model.weight_bytes)} for "
        f"{model.parameters / 1e6:,.1f} million parameters in {model.dtype}",
        plan.why,
    ]
    if not plan.fits:
        return lines
    if config.plan_device is None:
        rates, source = measure_rates(config.device, config.dtype), "measured here"
    else:
        rates, title = rates_of(config.plan_device), GPUS[config.plan_device].title
        source = f"{MEMORY_SHARE:g} and {FLOP_SHARE:g} of the {title}'s peaks"
    return lines + time_lines(config, len(questions), plan.batch_size, model, conversation, rates, source)


def time_lines(
    config: "RunConfig",
    questions: int,
    batch: int,
    model: "Footprint",
    conversation: ConversationSize,
    rates: "Rates | None",
    source: str,
) -> list[str]:
    """The expected time, that of the longest possible run, the rooflines of both, and the assumptions.

    `source` says where the rates come from.
    """
    if rates is None:
        return [f"Time: unknown, too little memory is free on {model.device} to measure its speed"]
    pace = PACES["cpu" if model.device.startswith("cpu") else "cuda", config.compile]

    def seconds(course: Course, pace: Pace) -> str:
        calls = scheduled_calls(config, questions, batch, course.shares)
        reused = config.kv_reuse and model.keeps_kv
        return as_time(run_seconds(model, rates, pace, conversation, course, calls, reused))

    expected, longest = expected_course(conversation), longest_course(conversation)
    floor = f" and at least {1e3 * pace.step_layer_s:g} ms a layer" if pace.step_layer_s else ""
    extra = f" and {1e3 * pace.step_s:g} ms more" if pace.step_s else ""
    return [
        f"Time expected: {seconds(expected, pace)}, with {expected.turns:g} of {conversation.turns} turns a question "
        f"and {expected.reply_tokens:g} tokens a reply",
        f"Time at most: {seconds(longest, pace)}, with all turns taken and {conversation.reply_tokens} tokens in every "
        "reply",
        f"Time at least: {seconds(expected, ROOFLINE)} for the expected run and {seconds(longest, ROOFLINE)} for the "
        "longest, if the model ran at the rates below and everything else took no time (roofline)",
        f"Assumed: {rates.bytes_per_s / 1e9:,.0f} GB/s and {rates.flop_per_s / 1e12:,.2f} TFLOP/s ({source}); "
        f"prefill at {pace.prefill_share:g} of the TFLOP/s; a decoding step {pace.step_factor:g} times its "
        f"roofline{floor}{extra}; the longest of 64 replies {1 + 6 * LONGER_PER_DOUBLING:g} times the mean; "
        f"{1e3 * pace.view_s:g} ms a view; loading and compiling not counted",
    ]


def as_bytes(size: float) -> str:
    """A size in GiB or MiB."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.2f} MiB"


def as_time(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} seconds"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.{0 if minutes >= 10 else 1}f} minutes" if minutes < 100 else f"{hours:.1f} hours"
