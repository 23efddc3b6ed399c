"""The batch size and the memory of a run, planned before any weights are loaded."""

import logging
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from roomscout.agent.policies.messages import opening_text
from roomscout.agent.policies.prompts import MAP_PROBE, Prompts
from roomscout.agent.spec import QuestionSpec
from roomscout.base.errors import ConfigError
from roomscout.base.extras import require
from roomscout.base.text import counted
from roomscout.data.benchmark import VideoProtocol
from roomscout.data.video_frames import FrameSize
from roomscout.edge.sections import ModelSettings
from roomscout.edge.settings import Settings
from roomscout.edge.types import CHECKPOINT, NOTHING
from roomscout.models import CONCURRENCY, KV_SHARE, ModelError, ModelOptions
from roomscout.models.adapters import require_adapter
from roomscout.models.checkpoint_files import ViewSettings
from roomscout.models.gpus import first_gpu, visible_gpus
from roomscout.models.transformers.families.family import Squares
from roomscout.rendering.camera import Intrinsics

if TYPE_CHECKING:  # the module itself loads torch
    from roomscout.models.transformers.footprint import Checkpoint, Footprint

log = logging.getLogger(__name__)

TURN_TEXT_TOKENS = 160
"""Tokens of a turn's message with Qwen's tokenizer if it reports an error, a clamped value and a blocked move."""
TIME_TOKENS = 16  # tokens of the time of two frames of a video in Qwen3-VL, such as "<123.4 seconds>"
LEAST_VIDEO_TOKENS = 128  # tokens of two frames at least: the video processor of Qwen2.5-VL enlarges smaller ones
OBJECTS_TOKENS = 4000
"""Tokens of 80 objects that --given tells, and of the text around them in each turn; few rooms have more."""
PICTURE_TOKENS = 32  # tokens of the sentence on a picture of a question
SERVED_SIDE = 32  # pixels of the square that is a token of Qwen3-VL, for images of models behind servers
CHARACTERS_PER_TOKEN = 3.7
"""For the text before the first reply, when planning without the tokenizer. With Qwen's vocabulary it is 3.79 to 3.97
for the question types of procedural rooms; rounded down so as not to underestimate."""


@dataclass(frozen=True)
class ConversationSize:
    """The most tokens of a conversation, and its parts; with `keep_views`, of the first and that many last views."""

    first_text_tokens: int  # of the text before the first reply
    turn_text_tokens: int  # of the text of each later message
    image_tokens: int  # of the images of a turn
    reply_tokens: int  # of a reply
    turns: int  # how many turns are taken
    keep_views: int | None = None  # how many turns beside the first keep their images; None for all
    probe_tokens: int = 0  # of the words that ask for a map after a turn; 0 without

    @property
    def tokens(self) -> int:
        """Tokens if every turn is taken and every reply has the maximum length."""
        later = (self.turns - 1) * self.turn_text_tokens
        turns = self.turns
        shown = turns if self.keep_views is None else min(turns, self.keep_views + 1)
        asked = self.first_text_tokens + later + self.probe_tokens
        return asked + shown * self.image_tokens + turns * self.reply_tokens


@dataclass(frozen=True)
class MemoryPlan:
    """The batch size of a run, and the sizes behind it."""

    batch_size: int  # how many questions take a turn together
    why: str  # the reason, in words
    model: "Footprint | None" = None  # the model's sizes; None without a model here
    conversation: ConversationSize | None = None  # the longest conversation; None without a model here
    kv_bytes: int | None = None  # the memory for keys and values
    question_bytes: int = 0  # what a question takes of it
    fits: bool = True  # whether the weights fit on their device
    exceeds_memory: bool = False  # whether a given batch size is larger than what fits
    tensor_parallel: int = 1  # over how many GPUs vLLM splits the model


def fitting_batch(budget_bytes: int, question_bytes: int, most: int) -> int:
    """The largest batch that fits in the memory budget: at least 1, and at most `most`."""
    return max(1, min(budget_bytes // question_bytes, most)) if question_bytes else most


def frame_size(view_size: tuple[int, int], views: object) -> FrameSize:
    """How large frames of videos are shown: as a family's or backend's `views`, at most the pixels of --image-size."""
    width, height = view_size
    if not isinstance(views, Squares):
        return FrameSize(width * height)
    return FrameSize(width * height, views.side, views.squares[0] * views.side**2)


def suited_to_model(
    settings: Settings,
    own: ViewSettings | None,
    video: VideoProtocol | None,
    checkpoint: "Checkpoint | None",
    loaded: Any = None,
) -> dict[str, Any]:
    """What "auto" means for a model: its view size, focal length, longest reply, what prompts reveal, data type and
    temperature. Those of its `own` views.json come first, then the model family's view size. Without a `checkpoint` any
    size is taken. --generation checkpoint is resolved from `checkpoint` or `loaded`, a model or its name, if one of
    them is given. Raises ConfigError if the family does not take views of this size, ModelError without published
    generation settings."""
    views = own or ViewSettings()
    found: dict[str, Any] = {"image_size": views.image_size, "tell": views.tell or (NOTHING,)}
    found["max_new_tokens"] = views.max_new_tokens if video is None else video.max_new_tokens
    if video is not None:
        found = {name: found[name] for name in ("image_size", "max_new_tokens")} | {"frames": video.frames}
    if checkpoint is not None and own is None:
        found["image_size"] = checkpoint.family.default_view
    size = found["image_size"] if settings.image_size == "auto" else settings.image_size
    if video is None:
        found["focal"] = views.focal_at(size[0])
    if checkpoint is not None:
        family = checkpoint.family
        if reason := family.why_not(*size):
            raise ConfigError(f"--image-size: {reason}")
        if family.by_processor:
            log.info("Views of %dx%d pixels, of which the processor of %s makes what it takes", *size, family.name)
        found["dtype"] = checkpoint.dtype_name
    if settings.generation != CHECKPOINT:
        found["temperature"] = ModelOptions.temperature
    elif checkpoint or loaded:
        from roomscout.models.transformers.loading import published_sampling

        model = loaded if checkpoint is None else checkpoint.name
        found["temperature"], found["generation"] = published_sampling(model)
        require_random(settings.samples, found["temperature"])
    return {name: value for name, value in found.items() if getattr(settings, name) in ("auto", CHECKPOINT)}


def require_random(samples: int, temperature: object) -> None:
    """Raise ConfigError for several answers that would all be the same."""
    if samples > 1 and temperature in (0, "auto"):
        raise ConfigError(
            f"--samples {samples} would repeat one answer {samples} times, since replies at --temperature 0 are always "
            "the same: add --temperature, such as 0.7"
        )


@dataclass(frozen=True)
class Planner:
    """Plans the memory of a run whose model, of the settings, is in this process or in a vLLM server: with the given
    batch size, or with as many questions as fit in memory beside the weights of the `checkpoint`."""

    settings: Settings  # those of the run
    checkpoint: "Checkpoint | None"  # the model's; None behind a server, of which only the `conversation` is planned
    questions: QuestionSpec  # what is asked
    prompts: Prompts  # what the model reads
    video: VideoProtocol | None  # how frames of videos are shown, if they are
    native: bool  # whether the frames of a video are one input
    previews: bool = False  # whether weights that are too large are only reported

    def plan(self) -> MemoryPlan:
        """The plan, without weights. Raises ModelError without the configuration, tokenizer or a requirement of
        --constrained or --compile, and if a GPU is too small for the weights, which --plan only reports."""
        settings = self.settings
        assert self.checkpoint is not None, "a server plans its own memory"
        _require_packages(settings, self.checkpoint.name)
        if not self._estimates_text:
            checked = self.checkpoint.checked  # raises ModelError for what loading would
            log.debug("%s: %s", self.checkpoint.name, checked)
        model = self.checkpoint.footprint(settings.tiles_per_view, settings.quantize, settings.memory_fraction)
        conversation = self.conversation(model)
        if settings.engine == "vllm":
            return self._in_vllm(model, conversation)
        too_large = _why_too_large(settings.model, model)
        if too_large and not self.previews:
            raise ModelError(too_large)
        return self._here(model, conversation, too_large)

    def _in_vllm(self, model: "Footprint", conversation: ConversationSize) -> MemoryPlan:
        split = self.settings.tensor_parallel_size
        at_a_time = at_once(self.settings.concurrency, self.questions)
        if split == "auto":
            visible = len(visible_gpus()) - (first_gpu(self.settings.device) or 0)
            split = gpus_to_split(self.settings.model, model, conversation, visible)
        # A CPU build allocates all of it at the start. With twice the need, no turn evicts what another one will reuse.
        needed = 2 * at_a_time * (conversation.tokens * model.kv_bytes_per_token + model.state_bytes)
        budget = min(needed, max(0, int((model.free_bytes - model.weight_bytes) * KV_SHARE)))
        on = f" on {counted(split, 'GPU')}" if split > 1 or self.settings.tensor_parallel_size == "auto" else ""
        why = f"{counted(at_a_time, 'question')} at a time in a vLLM server{on}, which forms the batches"
        return MemoryPlan(at_a_time, why, model, conversation, budget, tensor_parallel=split)

    def _here(self, model: "Footprint", conversation: ConversationSize, too_large: str | None) -> MemoryPlan:
        """The plan for a model in this process, on the device of its footprint."""
        from roomscout.models.transformers.kv_cache import buffer_columns

        settings = self.settings
        episodes = self.questions.episodes
        budget = max(0, int((model.free_bytes - model.weight_bytes) * KV_SHARE))
        question = model.kv_bytes_per_token * buffer_columns(conversation.tokens) + model.state_bytes
        fitting = fitting_batch(budget, question, min(settings.max_batch_size, episodes))
        size = fitting if settings.batch_size == "auto" else settings.batch_size
        why = f"{batch_words(size, episodes)}{as_bytes(budget)} for keys and values, {as_bytes(question)} a question"
        if settings.batch_size == "auto" and episodes > 1:
            why += f", at most {settings.max_batch_size}"
        plan = MemoryPlan(size, why, model, conversation, budget, question)
        if too_large:
            return replace(plan, why=f"Cannot run: {too_large}", fits=False)
        if min(size, episodes) * question <= budget:
            return plan
        more = "; MORE than fits: conversations will be recomputed each turn, or memory will run out"
        return replace(plan, why=why + more, exceeds_memory=True)

    def conversation(self, model: "Footprint | None" = None) -> ConversationSize:
        """The size of the longest possible conversation; raises ModelError if the tokenizer is needed and cannot be
        loaded. --plan estimates the text of a known checkpoint that is not on this machine, and all behind a server."""
        settings = self.settings
        asked = self.questions.here
        if self.video is not None:
            texts = [self.video.prompt(each.question, each.options) for each in asked]
        else:
            camera = Intrinsics(*settings.view_size, float(settings.focal))
            texts = [opening_text(self.prompts, each, camera, settings.camera_pitch) for each in asked]
        longest = max(texts, key=len)
        if self.checkpoint is None or self._estimates_text:
            opening = math.ceil(len(longest) / CHARACTERS_PER_TOKEN)
        else:
            opening = self.checkpoint.count_tokens(longest)
        squares = math.prod(math.ceil(side / SERVED_SIDE) for side in settings.view_size)
        of_one = squares if model is None else model.image_tokens(*settings.view_size)
        images = of_one * settings.images_a_turn
        if self.native:  # a video has as many for two frames and a time
            images = (max(of_one, LEAST_VIDEO_TOKENS) + TIME_TOKENS) * math.ceil(settings.images_a_turn / 2)
        pictures = self.questions.pictures * (of_one + PICTURE_TOKENS)
        return ConversationSize(
            first_text_tokens=opening + TURN_TEXT_TOKENS + OBJECTS_TOKENS * bool(settings.boxes) + pictures,
            turn_text_tokens=TURN_TEXT_TOKENS,
            image_tokens=images,
            reply_tokens=int(settings.max_new_tokens),
            turns=settings.most_moves + 1,
            keep_views=settings.keep_views,
            probe_tokens=math.ceil(len(MAP_PROBE) / CHARACTERS_PER_TOKEN) * (settings.probe == "map"),
        )

    @property
    def _estimates_text(self) -> bool:
        """Whether a known checkpoint is planned for that is not on this machine."""
        return self.previews and self.checkpoint is not None and self.checkpoint.lacks_tokenizer


def at_once(concurrency: int | Literal["auto"], questions: QuestionSpec) -> int:
    """The number of questions that a server is asked at a time."""
    most = CONCURRENCY if concurrency == "auto" else concurrency
    return min(most, questions.episodes)


def batch_words(size: int, episodes: int) -> str:
    """The beginning of a plan's reason; a single question has no batch."""
    return "Memory: " if episodes == 1 else f"Batch size {size}: "


def gpus_to_split(name: str, model: "Footprint", conversation: ConversationSize, visible: int) -> int:
    """The smallest power of two of the `visible` GPUs that divides the attention heads, and that has memory for the
    weights and one conversation; 1 on a CPU. Raises ModelError if there is none."""
    if model.device.startswith("cpu"):
        return 1
    needed = model.weight_bytes + conversation.tokens * model.kv_bytes_per_token + model.state_bytes
    for gpus in (2**power for power in range(visible.bit_length())):
        if needed <= gpus * model.free_bytes and model.attention_heads % gpus == 0:
            return gpus
    raise ModelError(
        f"--tensor-parallel-size auto: {name} needs {as_bytes(needed)} with one question, and no power of two of "
        f"{counted(visible, 'GPU')} with {as_bytes(model.free_bytes)} each has that and divides its "
        f"{model.attention_heads} attention heads: use more or larger GPUs, or a smaller checkpoint"
    )


def _why_too_large(name: str, model: "Footprint") -> str | None:
    """Why a model's weights do not fit on its GPU; None if they do, and on a CPU, where weights may stay on disk."""
    if model.device.startswith("cpu") or model.weight_bytes <= model.free_bytes:
        return None
    return (
        f"{name} needs {as_bytes(model.weight_bytes)} for its weights and {model.device} has "
        f"{as_bytes(model.free_bytes)} free: the model must fit on one GPU; use a smaller checkpoint, a larger GPU, or "
        "--device cpu"
    )


def _require_packages(settings: ModelSettings, checkpoint: str) -> None:
    """Raise ModelError if this machine lacks what --adapter, --quantize, --constrained or --compile (CUDA) needs."""
    if settings.adapter is not None:
        require_adapter(settings.adapter, checkpoint)
    if settings.quantize is not None:
        require("--quantize", "bitsandbytes", error=ModelError)
    if settings.constrained and settings.engine == "transformers":
        from roomscout.models.transformers.decoding import require_xgrammar

        require_xgrammar()
    if settings.compile:
        from roomscout.models.transformers.devices import resolve_device
        from roomscout.models.transformers.steps import require_compiler

        require_compiler(resolve_device(settings.device))


def as_bytes(size: float) -> str:
    """A size in GiB or MiB."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.2f} MiB"
