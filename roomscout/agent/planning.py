"""Plans the batch size and memory of a run, and prints --plan, before any weights are loaded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roomscout.agent.budget import cost_lines
from roomscout.agent.config import (
    ConfigError,
    ModelSettings,
    RunConfig,
    ScheduleSettings,
    ServerSettings,
    VllmSettings,
)
from roomscout.agent.policies import Policy
from roomscout.agent.policies.messages import opening_text
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Prompts, run_prompts
from roomscout.agent.timing import (
    ConversationSize,
    expected_run_shape,
    expected_time,
    longest_run_shape,
    seems_to_reason,
    sent_tokens,
)
from roomscout.base.extras import require
from roomscout.base.text import counted
from roomscout.base.wording import named
from roomscout.data.questions import Question
from roomscout.data.video_frames import FrameSize
from roomscout.models import CONCURRENCY, KV_SHARE, ModelError, weight_copies
from roomscout.models.adapters import require_adapter
from roomscout.models.engines import checkpoint_of
from roomscout.models.gpus import CARDS, FLOP_SHARE, GPUS, MEMORY_SHARE, first_gpu, visible_gpus
from roomscout.models.transformers.families.family import Squares
from roomscout.models.transformers.shapes import CHECKPOINTS
from roomscout.models.transformers.source import require_libraries
from roomscout.models.views import own_view_settings
from roomscout.rendering.camera import Intrinsics
from roomscout.runs.prices import Price

if TYPE_CHECKING:  # the module itself loads torch
    from roomscout.models.transformers.footprint import Footprint

TURN_TEXT_TOKENS = 160
"""Tokens of a turn's message with Qwen's tokenizer if it reports an error, a clamped value and a blocked move."""

OBJECTS_TOKENS = 4000
"""Tokens of 80 objects that --given tells, and of the text around them in each turn; few rooms have more."""

IMAGE_TOKEN_SIDE = 32
"""Side in pixels of the square that is one token of Qwen3-VL, for models behind servers."""

TIME_TOKENS = 16
"""Tokens of the time of two frames of a video in Qwen3-VL, such as "<123.4 seconds>"."""

CHARACTERS_PER_TOKEN = 3.7
"""For the text before the first reply, when planning without the tokenizer. With Qwen's vocabulary it is 3.79 to 3.97
for the question types of procedural rooms (docs/development/notes.md, 2026-11-22); rounded down so as not to
underestimate."""


def fitting_batch(budget_bytes: int, question_bytes: int, most: int) -> int:
    """The largest batch that fits in the memory budget: at least 1, and at most `most`."""
    return max(1, min(budget_bytes // question_bytes, most)) if question_bytes else most


@dataclass(frozen=True)
class Plan:
    """The batch size of a run, its derivation in words (`why`), and the sizes behind it, None without a model.

    `kv_bytes` is the memory for keys and values, `question_bytes` what a question takes of it. `fits` is False if the
    weights are too large for their GPU, and `exceeds_memory` is True if the batch size was given and needs more memory
    than there is for keys and values.
    """

    batch_size: int
    why: str
    model: "Footprint | None" = None
    conversation: ConversationSize | None = None
    kv_bytes: int | None = None
    question_bytes: int = 0
    fits: bool = True
    exceeds_memory: bool = False
    tensor_parallel: int = 1
    """The number of GPUs over which vLLM splits the model."""


def first_texts(config: RunConfig, questions: Sequence[Question], prompts: Prompts) -> list[str]:
    """All that a model reads of each question before its first reply, but the camera's pose and the moves left."""
    if (video := config.video) is not None:
        return [video.prompt(question.question, question.options) for question in questions]
    camera, pitch_deg = Intrinsics(*config.view.image_size, config.view.focal), config.views.camera_pitch
    return [opening_text(prompts, question, camera, pitch_deg) for question in questions]


def frame_size(config: RunConfig, policy: Policy | None) -> FrameSize:
    """How large frames of videos are shown: as large as the model takes, with at most the pixels of --image-size.

    The view size must be resolved.
    """
    width, height = config.view.image_size
    if policy is not None:
        views = getattr(policy.backend, "views", None) if isinstance(policy, ModelPolicy) else None
    elif config.model.loads_weights:
        from roomscout.models.transformers.footprint import checkpoint_family

        views = checkpoint_family(checkpoint_of(config.model.model, config.model.revision)).views
    else:
        views = None
    if not isinstance(views, Squares):
        return FrameSize(width * height)
    return FrameSize(width * height, views.side, views.squares[0] * views.side**2)


def _image_tokens(config: RunConfig, of_one: int) -> int:
    """The tokens of the images of a turn, of which each has `of_one`; a video has as many for two frames and a time."""
    images = config.images_a_turn
    return (
        of_one * images if config.controls.video_input == "frames" else (of_one + TIME_TOKENS) * math.ceil(images / 2)
    )


def conversation_size(
    config: RunConfig, questions: Sequence[Question], model: "Footprint", prompts: Prompts
) -> ConversationSize:
    """The size of the longest possible conversation.

    With --plan, estimates the text of a known checkpoint whose tokenizer is not on this machine. Raises ModelError if
    the tokenizer is needed and cannot be loaded.
    """
    from roomscout.models.transformers.footprint import count_tokens
    from roomscout.models.transformers.loading import is_here

    longest = max(first_texts(config, questions, prompts), key=len)
    name = checkpoint_of(config.model.model, config.model.revision)
    estimated = config.what_to_run.plan and name in CHECKPOINTS and not is_here(name, "tokenizer.json")
    opening = math.ceil(len(longest) / CHARACTERS_PER_TOKEN) if estimated else count_tokens(name, longest)
    return ConversationSize(
        first_text_tokens=opening + TURN_TEXT_TOKENS + OBJECTS_TOKENS * bool(config.controls.boxes),
        turn_text_tokens=TURN_TEXT_TOKENS,
        image_tokens=_image_tokens(config, model.image_tokens(*config.view.image_size)),
        reply_tokens=config.view.max_new_tokens,
        turns=config.most_moves + 1,
        estimated=estimated,
        reasons=seems_to_reason(config.model.model),
        keep_views=config.controls.keep_views,
    )


def plan_without_model(name: str, schedule: ScheduleSettings, episodes: int) -> Plan:
    """The plan for a policy without keys and values, called `name`."""
    size = min(schedule.max_batch_size, episodes) if schedule.batch_size == "auto" else schedule.batch_size
    return Plan(size, f"{_batch_size(size, episodes)}{name} needs no memory for keys and values")


def _batch_size(size: int, episodes: int) -> str:
    """The beginning of a plan's reason; a single question has no batch."""
    return "Memory: " if episodes == 1 else f"Batch size {size}: "


def plan_for_server(server: ServerSettings, schedule: ScheduleSettings, questions: int) -> Plan:
    """The plan for a model behind a server, whose memory and speed are unknown."""
    size = _at_a_time(schedule, questions)
    return Plan(size, f"{counted(size, 'question')} at a time at {' '.join(server.base_url)}, which forms the batches")


def _at_a_time(schedule: ScheduleSettings, questions: int) -> int:
    """The number of questions in flight with an engine that batches requests itself."""
    return min(CONCURRENCY if schedule.concurrency == "auto" else schedule.concurrency, questions)


def gpus_to_split(name: str, model: "Footprint", conversation: ConversationSize, visible: int) -> int:
    """The smallest power of two of the `visible` GPUs that divides the attention heads, and that has memory for the
    weights and one conversation; 1 on a CPU. Raises ModelError if there is none."""
    if model.device.startswith("cpu"):
        return 1
    needed = model.weight_bytes + conversation.tokens * model.work.kv_bytes_per_token + model.work.state_bytes
    for gpus in (2**power for power in range(visible.bit_length())):
        if needed <= gpus * model.free_bytes and model.attention_heads % gpus == 0:
            return gpus
    raise ModelError(
        f"{named(tensor_parallel_size='auto')}: {name} needs {as_bytes(needed)} with one question, and no power of two "
        f"of {counted(visible, 'GPU')} with {as_bytes(model.free_bytes)} each has that and divides its "
        f"{model.attention_heads} attention heads: use more or larger GPUs, or a smaller checkpoint"
    )


def plan_for_vllm(
    vllm: VllmSettings,
    schedule: ScheduleSettings,
    questions: int,
    model: "Footprint",
    conversation: ConversationSize,
    split: int,
) -> Plan:
    """The plan for a vLLM server on `split` GPUs, which allocates memory to conversations itself.

    Raises ConfigError if --max-model-len is too short for a single turn.
    """
    size = _at_a_time(schedule, questions)
    first = conversation.first_text_tokens + conversation.image_tokens + conversation.reply_tokens
    if vllm.max_model_len is not None and vllm.max_model_len < first:
        raise ConfigError(
            f"{named(max_model_len=vllm.max_model_len)} is too short for one turn, which takes {first} tokens "
            f"(question {conversation.first_text_tokens}, view {conversation.image_tokens}, reply "
            f"{conversation.reply_tokens}): "
            f"use {conversation.tokens} for {conversation.turns} turns, or leave it out"
        )
    longest = max(conversation.tokens, vllm.max_model_len or 0)
    # A CPU build allocates all of it at the start. With twice the need, no turn evicts what another one will reuse.
    needed = 2 * size * (longest * model.work.kv_bytes_per_token + model.work.state_bytes)
    budget = min(needed, max(0, int((model.free_bytes - model.weight_bytes) * KV_SHARE)))
    on = f" on {counted(split, 'GPU')}" if split > 1 or vllm.tensor_parallel_size == "auto" else ""
    why = f"{counted(size, 'question')} at a time in a vLLM server{on}, which forms the batches"
    return Plan(size, why, model, conversation, budget, tensor_parallel=split)


def fitted_to_model(config: RunConfig, policy: Policy | None = None) -> RunConfig:
    """`config` with the view size, the focal length, the longest reply and the data type of its model for "auto".

    Those of the checkpoint's views.json come first, then the model family's view size. With a `policy`, no checkpoint
    is loaded.

    Raises ConfigError if the family does not take views of this size, ModelError if the checkpoint's configuration
    cannot be loaded or its views.json is damaged. Servers and policies take any size.
    """
    model, view = config.model, config.view
    if policy is not None or not model.loads_weights:
        return config.having_view(view)
    require_libraries(model.model)
    from roomscout.models.transformers.footprint import checkpoint_family, dtype_on

    family = checkpoint_family(checkpoint_of(model.model, model.revision))
    if config.views.image_size == "auto" and own_view_settings(model.model) is None:
        view = replace(view, image_size=family.default_view)
    if reason := family.why_not(*view.image_size):
        raise ConfigError(f"{named('image_size')}: {reason}")
    if config.controls.video_input == "native" and family.video is None:
        raise ConfigError(f"{named(video_input='native')}: {family.name} sees no videos, only frames: leave it out")
    planned = config.what_to_run.plan_device is not None  # for a GPU that this machine need not have
    return config.having_view(view).having(dtype=model.dtype if planned else dtype_on(model.device, model.dtype))


def plan_run(config: RunConfig, questions: Sequence[Question], prompts: Prompts) -> Plan:
    """Plan with the given batch size, or with as many questions as fit in memory beside the weights.

    Loads no weights. Raises ModelError if the model's configuration or tokenizer, or a requirement of --constrained or
    --compile, is missing, and if a GPU is too small for the weights, which --plan only reports. The view size must be
    resolved: see `fitted_to_model`.
    """
    settings, schedule, plan_device = config.model, config.schedule, config.what_to_run.plan_device
    episodes = len(questions) * config.questions.samples
    if not settings.asks_model:
        return plan_without_model(settings.model, schedule, episodes)
    if settings.engine == "openai":
        return plan_for_server(config.server, schedule, episodes)
    from roomscout.models.transformers.footprint import footprint, footprint_on

    checkpoint, tiles = checkpoint_of(settings.model, settings.revision), settings.tiles_per_view
    limits = settings.quantize, settings.memory_fraction
    if plan_device is not None:
        model = footprint_on(plan_device, checkpoint, settings.dtype, tiles, *limits)
    else:
        require_packages(settings)
        model = footprint(checkpoint, settings.dtype, settings.device, tiles, *limits)
    if settings.engine == "vllm":
        conversation, split = conversation_size(config, questions, model, prompts), config.vllm.tensor_parallel_size
        if split == "auto":
            visible = len(visible_gpus()) - (first_gpu(settings.device) or 0)
            split = gpus_to_split(settings.model, model, conversation, visible)
        return plan_for_vllm(config.vllm, schedule, episodes, model, conversation, split)
    too_large = why_too_large(settings.model, model)
    if too_large and not config.what_to_run.plan:
        raise ModelError(too_large)
    return plan_on(model, conversation_size(config, questions, model, prompts), settings, schedule, episodes)


def plan_on(
    model: "Footprint",
    conversation: ConversationSize,
    settings: ModelSettings,
    schedule: ScheduleSettings,
    episodes: int,
) -> Plan:
    """The plan for a model in this process, on the device of its footprint."""
    from roomscout.models.transformers.kv_cache import buffer_columns

    too_large = why_too_large(settings.model, model)
    copied = model.weight_bytes * weight_copies(settings.compile, model.device)
    budget = max(0, int((model.free_bytes - model.weight_bytes - copied) * KV_SHARE))
    question = model.work.kv_bytes_per_token * buffer_columns(conversation.tokens) + model.work.state_bytes
    fitting = fitting_batch(budget, question, min(schedule.max_batch_size, episodes))
    size = fitting if schedule.batch_size == "auto" else schedule.batch_size
    why = f"{_batch_size(size, episodes)}{as_bytes(budget)} for keys and values, {as_bytes(question)} a question"
    if copied:
        why += f", {as_bytes(copied)} for the weights' copies of compiled programs"
    if schedule.batch_size == "auto" and episodes > 1:
        why += f", at most {schedule.max_batch_size}"
    if too_large:
        return Plan(size, f"Cannot run: {too_large}", model, conversation, budget, question, fits=False)
    exceeds = min(size, episodes) * question > budget
    if exceeds:
        why += "; MORE than fits: conversations will be recomputed each turn, or memory will run out"
    return Plan(size, why, model, conversation, budget, question, exceeds_memory=exceeds)


def why_too_large(name: str, model: "Footprint") -> str | None:
    """Why a model's weights do not fit on its GPU; None if they do, and on a CPU, where weights may stay on disk."""
    if model.device.startswith("cpu") or model.weight_bytes <= model.free_bytes:
        return None
    return (
        f"{name} needs {as_bytes(model.weight_bytes)} for its weights and {model.device} has "
        f"{as_bytes(model.free_bytes)} free: the model must fit on one GPU; use a smaller checkpoint, a larger GPU, or "
        f"{named(device='cpu')}"
    )


def require_packages(model: ModelSettings) -> None:
    """Raise ModelError if this machine lacks a requirement of --adapter, --quantize, --constrained or --compile."""
    if model.adapter is not None:
        require_adapter(model.adapter, checkpoint_of(model.model, model.revision))
    if model.quantize is not None:
        require(named("quantize"), "bitsandbytes", error=ModelError)
    if model.constrained and model.engine == "transformers":
        from roomscout.models.transformers.grammar import require_xgrammar

        require_xgrammar()
    if model.compile:
        from roomscout.models.transformers.loading import resolve_device
        from roomscout.models.transformers.steps import require_compiler

        require_compiler(resolve_device(model.device))


def plan_lines(config: RunConfig, questions: Sequence[Question], price: Price | None = None) -> list[str]:
    """The lines that --plan prints, at rates measured here or those of --plan-device; raises ModelError.

    With the `price` of the model's tokens, also what the run costs.
    """
    asked, config = config.model.dtype, fitted_to_model(config)
    settings, plan_device = config.model, config.what_to_run.plan_device
    plan = plan_run(config, questions, run_prompts(config))
    scans, what = {question.scene for question in questions}, "video" if config.controls.on_video else "scan"
    turns, images, (width, height) = config.most_moves + 1, config.images_a_turn, config.view.image_size
    samples = config.questions.samples
    episodes, times = len(questions) * samples, f", {samples} times each" if samples > 1 else ""
    lines = [
        f"Questions: {len(questions)} on {counted(len(scans), what)}{times}, at most {counted(turns, 'turn')} each",
        f"Images: at most {episodes * config.most_images} of {width}x{height}",
    ]
    if settings.asks_model and settings.engine == "openai":
        lines += server_token_lines(config, questions, price)
    if plan.conversation is not None:
        lines += cost_lines(config, episodes, plan.conversation, price)
    if plan.model is None or plan.conversation is None or settings.engine == "vllm":
        return [*lines, plan.why]
    from roomscout.models.transformers.footprint import measure_rates, rates_of

    model, conversation = plan.model, plan.conversation
    estimated = f", text at {CHARACTERS_PER_TOKEN:g} characters a token" if conversation.estimated else ""
    lines += [
        f"Tokens: at most {conversation.tokens} a question, {conversation.tokens * episodes} in all "
        f"({conversation.image_tokens // images} an image, {conversation.reply_tokens} a reply{estimated})",
        f"Memory on {model.device}: {as_bytes(model.free_bytes)} usable with "
        f"{named(memory_fraction=settings.memory_fraction)}, {as_bytes(model.weight_bytes)} for "
        f"{model.parameters / 1e6:,.1f} million parameters in {settings.quantize or model.dtype}",
        plan.why,
    ]
    cards = card_lines(config, asked, conversation, episodes)
    if not plan.fits:
        return [*lines, *cards]
    if plan_device is None:
        rates, source = measure_rates(settings.device, settings.dtype), "measured here"
    else:
        rates, title = rates_of(plan_device), GPUS[plan_device].title
        source = f"{MEMORY_SHARE:g} and {FLOP_SHARE:g} of the {title}'s peaks"
    size = settings, config.schedule, episodes, plan.batch_size, model, conversation
    return [*lines, *expected_time(*size, rates, source, config.controls.anytime)[1], *cards]


def card_lines(config: RunConfig, dtype: str, conversation: ConversationSize, episodes: int) -> list[str]:
    """A table of the run's plan on one GPU of each usual size, in bfloat16 unless another `dtype` is asked for."""
    from roomscout.models.transformers.footprint import footprint_on, rates_of

    settings, schedule, fraction = config.model, config.schedule, config.model.memory_fraction
    checkpoint = checkpoint_of(settings.model, settings.revision)
    model = footprint_on("h200", checkpoint, dtype, settings.tiles_per_view, settings.quantize)
    kind = settings.quantize or model.dtype
    rows = [[f"On one GPU, {kind}", "usable", "weights", "a question", "batch size", "time expected"]]
    for card, gpu in CARDS.items():
        model = replace(model, device=gpu, free_bytes=GPUS[gpu].usable_bytes(fraction))
        plan = plan_on(model, conversation, settings, schedule, episodes)
        rates = rates_of(gpu) if dtype != "float32" else None  # datasheets have no such peaks for it
        size = settings, schedule, episodes, plan.batch_size, model, conversation
        time, _ = expected_time(*size, rates, "", config.controls.anytime)
        fits = [f"{plan.batch_size}{' (too many)' * plan.exceeds_memory}", time]
        known = [as_bytes(each) for each in (model.free_bytes, model.weight_bytes, plan.question_bytes)]
        rows.append([f"{card} ({GPUS[gpu].title})", *known, *(fits if plan.fits else ["does not fit", "-"])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def server_token_lines(config: RunConfig, questions: Sequence[Question], price: Price | None = None) -> list[str]:
    """Estimates of the tokens that a server reads and writes, as hosted models bill them: its tokenizer is unknown."""
    (width, height), turns = config.view.image_size, config.most_moves + 1
    side = IMAGE_TOKEN_SIDE
    image = math.ceil(width / side) * math.ceil(height / side)
    images = image * config.images_a_turn
    texts = first_texts(config, questions, run_prompts(config))
    first = math.ceil(max(map(len, texts)) / CHARACTERS_PER_TOKEN) + TURN_TEXT_TOKENS
    first += OBJECTS_TOKENS * bool(config.controls.boxes)
    reasons, kept = seems_to_reason(config.model.model), config.controls.keep_views
    size = ConversationSize(first, TURN_TEXT_TOKENS, images, config.view.max_new_tokens, turns, True, reasons, kept)
    if config.controls.at_once:  # one request with all views
        first += (turns - 1) * (TURN_TEXT_TOKENS + images)
        size = replace(size, first_text_tokens=first, turns=1)
    episodes, lines = len(questions) * config.questions.samples, []
    for words, shape in (("about", expected_run_shape(size)), ("at most", longest_run_shape(size))):
        read, written = sent_tokens(size, shape, config.controls.anytime)
        lines.append(
            f"Tokens: {words} {episodes * read:,.0f} read and {episodes * written:,.0f} written ({shape.turns:g} of "
            f"{size.turns} turns a question, {shape.reply_tokens:g} tokens a reply)"
        )
    return [
        *lines,
        f"Assumed: {image} tokens an image, one for {side}x{side} pixels, and {CHARACTERS_PER_TOKEN:g} characters a "
        "token, which the server may count otherwise; each request has the whole conversation, of which a cache may "
        "make a part cheaper. A run of a few questions ends with the tokens that the server counts",
        *cost_lines(config, episodes, size, price),
    ]


def as_bytes(size: float) -> str:
    """A size in GiB or MiB."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.2f} MiB"
