"""All settings of a run. Flags, YAML files and run.json are derived from RunConfig."""

import json
import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from annotated_types import Ge, Gt, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent.parts import Part
from data.benchmarks import DEFAULT
from data.text import argument_text, on_disk
from models import EMBEDDED
from models.gpus import GpuName
from models.views import ViewSettings, view_settings_of
from rendering.registry import RENDERER_NAMES

MAX_BATCHED_TURNS = 4
NUM_STEPS = 8
CAMERA_HEIGHT_M = 1.6
COMMAND = Path(__file__).parents[1] / "render_point_cloud_qwen_angle_batched.py"
CAMERA_PITCH_DEG = -15.0
"""Slightly downward: a level camera at eye height sees the floor only beyond 2 m, and in small rooms mostly walls."""
if TYPE_CHECKING:
    RendererName = str
else:
    RendererName = Literal[*RENDERER_NAMES]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
EngineName = Literal["transformers", "openai", "vllm"]
API_KEY_ENV = "OPENAI_API_KEY"
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
PLAIN_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConfigError(ValueError):
    """An invalid flag, YAML key or combination of them. The message names it and says what is valid."""


class MayChange:
    """Marks a setting that may change when a run is resumed.

    It affects speed or locations, and answers only through rounding, which depends on device, kernels and batch size.
    """


Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class RunConfig:
    """Let a vision-language model explore 3D scans of rooms and answer spatial questions.

    Choose what to run: --batch (many questions), --ply with --question (one question about one scan), --demo (generated
    rooms and the included small model), or --continue (an earlier run).
    """

    __pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    batch: bool = False
    """Answer the questions of --questions, or those of the benchmark without it."""
    demo: bool = False
    """Compare the included small model, with and without sight, on generated rooms."""
    continue_from: Annotated[str | None, tyro.conf.arg(name="continue", metavar="recent|FOLDER"), MayChange] = None
    """Resume the newest run below --log-root, or the run in this folder."""
    retry_failed: Annotated[bool, MayChange] = False
    """With --continue, also retry failed questions."""
    check_data: Annotated[bool, MayChange] = False
    """Print how many questions have a scan, then stop."""
    plan: Annotated[bool, MayChange] = False
    """Print the size, memory, batch size and expected time of the run, then stop; loads no weights."""
    plan_device: Annotated[GpuName | None, MayChange] = None
    """With --plan, plan for this GPU in bfloat16 from its datasheet instead of measuring this machine."""

    ply: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The scan to ask about: a .ply, .pcd, .glb, .gltf or .obj file."""
    question: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """The question to ask about --ply."""
    options: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT ...")] = ()
    """The choices of --question; without them the answer is a number or free text."""
    question_type: Annotated[str | None, tyro.conf.arg(metavar="TYPE")] = None
    """The benchmark's type of --question, otherwise inferred from its wording."""
    ground_truth: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """The correct answer to --question, for scoring."""

    benchmark: Annotated[str, tyro.conf.arg(metavar="NAME|FILE.py:NAME")] = DEFAULT
    """The benchmark that defines question types, scores and their label: vsi-bench, or your own Benchmark record as
    path/to/file.py:NAME."""
    questions: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), MayChange] = None
    """A .jsonl, .json, .csv or .parquet file with the benchmark's columns, instead of its source on the hub."""
    scan_root: Annotated[Path, tyro.conf.arg(metavar="DIR"), MayChange] = Path("scans")
    """The folder of arkitscenes/, scannet/ and scannetpp/, one of these, or a flat folder of <scene>.ply files."""
    datasets: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ()
    """Only questions of these datasets."""
    question_types: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TYPE ...")] = ()
    """Only questions of these types; types that a scan cannot answer are left out unless named here."""
    scenes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SCENE ...")] = ()
    """Only questions of these scenes."""
    ids: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID ...")] = ()
    """Only questions with these ids."""
    num_questions: Annotated[Count | None, tyro.conf.arg(metavar="N")] = None
    """Only the first N questions that pass the other filters."""

    model: Annotated[str, tyro.conf.arg(metavar="NAME|PATH")] = "Qwen/Qwen3-VL-8B-Instruct"
    """Hub id or folder of a Qwen3-VL, Qwen2.5-VL, Qwen3.5, InternVL3.5 or LLaVA-OneVision checkpoint, "embedded" (the
    included small model), "scripted:random" (no model), or with --engine openai the server's name for a model."""
    prompts: Annotated[Path | None, tyro.conf.arg(metavar="FILE.yaml")] = None
    """The words that the model reads, as templates in YAML, otherwise the checkpoint's own from its prompts.yaml, else
    the default ones."""
    policy: Annotated[str | None, tyro.conf.arg(metavar="NAME|MODULE:CLASS")] = None
    """A policy to use instead of a model: random, or your own class as module:Class or path/to/file.py:Class."""
    dtype: DtypeName = "auto"
    """Data type of the weights; auto is bfloat16 on CUDA and float32 elsewhere."""
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE"), MayChange] = "auto"
    """The device of the model: auto, cpu, cuda or cuda:N."""
    attention: Annotated[Literal["auto", "sdpa", "eager", "flash_attention_2"], MayChange] = "auto"
    """Attention kernels; auto is sdpa, and flash_attention_2 applies to the image encoder only and needs CUDA."""
    max_new_tokens: Annotated[Count | Literal["auto"], tyro.conf.arg(metavar="N|auto")] = "auto"
    """Maximal length of a reply in tokens; auto is the checkpoint's own from its views.json, else 512."""
    temperature: Annotated[float, Ge(0)] = 0.0
    """Sampling temperature; 0 decodes greedily, and --seed makes samples reproducible on the same type of device."""
    constrained: bool = False
    """Constrain replies to well-formed actions, by xgrammar in this process or by a JSON schema at a server."""
    compile: Annotated[bool, MayChange] = False
    """Compile decoding steps, which can take minutes and pays off in long runs; needs a C++ compiler, and Triton on
    CUDA."""
    seed: Annotated[int, Ge(0)] = 0
    """Random seed of sampling, of --demo's rooms and of scripted:random."""

    engine: EngineName = "transformers"
    """Run the model in this process (transformers), ask servers at --base-url (openai), or start a vLLM server for the
    run (vllm)."""
    base_url: Annotated[tuple[str, ...], tyro.conf.arg(metavar="URL ..."), MayChange] = ()
    """With --engine openai, base URLs of one or more servers, such as http://localhost:8000/v1."""
    api_key_env: Annotated[str, tyro.conf.arg(metavar="NAME"), MayChange] = API_KEY_ENV
    """With --engine openai, the environment variable that holds the API key, if the server needs one."""
    request_timeout: Annotated[float, Gt(0), MayChange] = 600.0
    """With --engine openai, seconds after which a request is retried."""

    vllm_python: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), MayChange] = None
    """With --engine vllm, the Python of the environment with vLLM, otherwise that of scripts/install_vllm.sh."""
    tensor_parallel_size: Annotated[Count, MayChange] = 1
    """With --engine vllm, the number of GPUs to split the model over."""
    gpu_memory_utilization: Annotated[float | None, Gt(0), Lt(1), tyro.conf.arg(metavar="FLOAT"), MayChange] = None
    """With --engine vllm, the fraction of each GPU's memory for the server, otherwise vLLM's default; with a CPU
    build, the fraction of the machine's memory, otherwise half of what is free."""
    max_model_len: Annotated[Count | None, tyro.conf.arg(metavar="N"), MayChange] = None
    """With --engine vllm, the maximal length of a conversation in tokens, otherwise what --steps may need."""

    renderer: RendererName = "auto"
    """Renderer of the views (blind draws grey); auto is pyrender if it finds a GPU, else raycast on the CPU."""
    first_view: Literal["visibility", "sharpness"] = "visibility"
    """Choose the first of four headings by how much surface it shows, or by how sharp its image is."""
    up_axis: Literal["auto", "y", "z"] = "auto"
    """The axis of the scan files that points up; auto is y for GLB and glTF and z for all others."""
    image_size: Annotated[tuple[Count, Count] | Literal["auto"], tyro.conf.arg(metavar="W H|auto")] = "auto"
    """Width and height of the views in pixels; auto is the checkpoint's own from its views.json, else a size that suits
    its family, 640 480 for Qwen3-VL."""
    focal: Annotated[Annotated[float, Ge(1)] | Literal["auto"], tyro.conf.arg(metavar="FLOAT|auto")] = "auto"
    """Focal length in pixels; auto is the checkpoint's own from its views.json, else 300."""
    camera_height: Annotated[float, Gt(0)] = CAMERA_HEIGHT_M
    """Initial height of the camera above the floor in metres, lower in low rooms."""
    camera_pitch: Annotated[float, Gt(-90), Lt(90)] = CAMERA_PITCH_DEG
    """Pitch of the camera in degrees; negative looks down."""
    scene_cache_gib: Annotated[float, Ge(0), MayChange] = 4.0
    """Memory in GiB for scans that no question in progress uses."""

    steps: Annotated[int, Ge(0)] = NUM_STEPS
    """Maximal number of moves per question; the turn after the last one must answer."""
    max_batched_turns: Annotated[Annotated[int, Ge(0)] | Literal["all"], tyro.conf.arg(metavar="N|all"), MayChange] = (
        MAX_BATCHED_TURNS
    )
    """Number of turns in lockstep batches; later turns run --concurrency questions at a time."""
    batch_size: Annotated[Count | Literal["auto"], tyro.conf.arg(metavar="N|auto"), MayChange] = "auto"
    """Questions per batch; auto is as many as fit in memory, at most 64."""
    refill: Annotated[bool, MayChange] = False
    """Replace each finished question of a batch with a waiting one; needs --max-batched-turns all."""
    concurrency: Annotated[Count | Literal["auto"], tyro.conf.arg(metavar="N|auto"), MayChange] = "auto"
    """Questions at a time after the batched turns (auto is the whole batch), or at every turn with --engine openai or
    vllm (auto is 32)."""
    tiles_per_view: Count = 1
    """Maximal number of tiles that InternVL cuts a view into, at 256 tokens each."""
    kv_reuse: Annotated[bool, MayChange] = True
    """Keep keys and values between turns, so that each turn computes only new tokens."""
    log_root: Annotated[Path, tyro.conf.arg(metavar="DIR"), MayChange] = Path("experiment_logs")
    """The folder in which to create run folders."""

    shard: Annotated[str | None, tyro.conf.arg(metavar="I/N")] = None
    """Answer only part I of N, which consists of whole scenes; "python -m runs merge" makes one run of the parts."""
    ray: Annotated[bool, MayChange] = False
    """Answer the parts of the run on a Ray cluster that shares --log-root and the scans; needs requirements-ray.txt."""
    ray_address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT|auto"), MayChange] = None
    """With --ray, the address of the cluster, otherwise one is started on this machine."""
    replicas: Annotated[Count | Literal["auto"], tyro.conf.arg(metavar="N|auto"), MayChange] = "auto"
    """With --ray, the number of workers; auto is one per GPU (per --tensor-parallel-size GPUs), or per machine
    if the model needs none."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            _check_bounds(name, getattr(self, name), hint)
        if not DEVICE.fullmatch(self.device):
            raise ConfigError(f"--device takes one device, which is auto, cpu, cuda or cuda:N, got {self.device}")
        if self.shard is not None:
            try:
                Part.parse(self.shard)
            except ValueError as error:
                raise ConfigError(f"--shard {error}") from None
        for url in self.base_url:
            if not PLAIN_URL.fullmatch(url):
                raise ConfigError(
                    "--base-url takes http:// or https:// URLs such as http://localhost:8000/v1, without user names, "
                    "keys and parameters; a key belongs in the environment variable of --api-key-env"
                )
        if not VARIABLE_NAME.fullmatch(self.api_key_env):
            raise ConfigError("--api-key-env takes the name of an environment variable, not the key itself")

    def checked(self) -> "RunConfig":
        """This configuration; raises ConfigError if settings conflict. Call it once all of them are known."""
        if self.batch and self.question is not None and Path(self.question).suffix in QUESTION_FILES:
            raise ConfigError(f"--question asks one question; did you mean --questions {self.question}?")
        if (self.ply is None) != (self.question is None):
            if self.ply is None:
                raise ConfigError("--question needs a scan to ask about: add --ply FILE")
            raise ConfigError("--ply needs a question to ask: add --question TEXT")
        if self.prompts is not None and not self.asks_model:
            raise ConfigError("--prompts are the words that a model reads: leave it out without a model")
        if self.refill and self.max_batched_turns != "all":
            raise ConfigError("--refill keeps the batch full at every turn: it needs --max-batched-turns all")
        if (self.renderer == "blind" or self.demo) and self.first_view == "sharpness":
            raise ConfigError(
                "--first-view sharpness cannot choose among grey views: leave it out with --renderer blind and --demo"
            )
        if self.compile and self.attention == "eager":
            raise ConfigError("--compile does not work with --attention eager: use sdpa")
        if self.check_data and (self.plan or self.ply is not None):
            raise ConfigError("--check-data checks the scans of a benchmark: leave it out with --plan and with --ply")
        if self.plan and self.continue_from is not None:
            raise ConfigError("--plan describes a run before it begins: leave it out with --continue")
        if self.plan_device is not None:
            if not self.plan:
                raise ConfigError("--plan-device selects the GPU to plan for: it needs --plan")
            if self.device != "auto" or self.dtype == "float32":
                raise ConfigError(
                    "--plan-device plans for that GPU in bfloat16: leave out --device and --dtype float32"
                )
            if self.model.startswith("scripted:"):
                raise ConfigError(f"--plan-device plans for a model on a GPU: {self.model} needs none")
        if self.engine == "openai":
            if not self.base_url:
                raise ConfigError(
                    "--engine openai asks a server: it needs --base-url, such as http://localhost:8000/v1"
                )
            if self.model.startswith("scripted:"):
                raise ConfigError(f"--engine openai asks a server: leave it out with --model {self.model}")
            if self.plan_device is not None:
                raise ConfigError("--plan-device cannot plan for a server: leave it out with --engine openai")
            if unused := self._changed(ONLY_TRANSFORMERS):
                raise ConfigError(f"leave out {', '.join(unused)} with --engine openai: the server controls that")
        elif self.engine == "vllm":
            if self.model.startswith("scripted:"):
                raise ConfigError(f"--engine vllm serves a checkpoint: leave it out with --model {self.model}")
            if self.plan_device is not None:
                raise ConfigError("--plan-device plans for --engine transformers: leave it out with --engine vllm")
            if unused := self._changed(UNUSED_BY_VLLM):
                raise ConfigError(f"leave out {', '.join(unused)} with --engine vllm: vLLM controls that")
        if self.engine != "vllm" and (unused := self._changed(ONLY_VLLM)):
            raise ConfigError(f"{', '.join(unused)} configure a vLLM server: add --engine vllm, or leave them out")
        if self.engine != "openai" and self.base_url:
            raise ConfigError("--base-url needs --engine openai: add that, or leave it out")
        if self.retry_failed and self.continue_from is None:
            raise ConfigError("--retry-failed retries failed questions of an earlier run: it needs --continue")
        if [self.batch, self.demo, self.ply is not None].count(True) > 1:
            raise ConfigError("choose one of --batch, --demo and --ply with --question")
        filters = any(getattr(self, name) for name in (*FILTERS, "num_questions"))
        if self.ply is not None and (self.questions is not None or filters):
            raise ConfigError("--ply asks one question: leave out --questions and its filters")
        if self.shard is not None and (self.ply is not None or self.demo):
            raise ConfigError("--shard is for --batch: leave it out with --ply and --demo")
        if self.ray:
            if self.ply is not None or self.demo:
                raise ConfigError("--ray is for --batch: leave it out with --ply and --demo")
            if self.shard is not None:
                raise ConfigError("--ray splits the run into parts itself: leave out --shard")
            if self.device.startswith("cuda:"):
                raise ConfigError(f"--ray gives each worker a GPU: leave out --device {self.device}")
        elif self.continue_from is None and (self.ray_address is not None or self.replicas != "auto"):
            raise ConfigError("--ray-address and --replicas need --ray")
        if self.demo and self.questions is not None:
            raise ConfigError("--demo makes its own questions: leave out --questions, or use --batch")
        if self.ply is None and (self.options or self.question_type or self.ground_truth):
            raise ConfigError("--options, --question-type and --ground-truth need --ply with --question")
        return self

    def _changed(self, names: Sequence[str]) -> list[str]:
        """The flags of the named settings that differ from their defaults."""
        defaults = {each.name: each.default for each in fields(self)}
        return [flag(name) for name in names if getattr(self, name) != defaults[name]]

    @property
    def view(self) -> ViewSettings:
        """The settings of views and replies, with the model's own in place of "auto".

        Raises ModelError if the checkpoint's views.json is damaged.
        """
        own = view_settings_of(self.model)
        return ViewSettings(
            own.image_size if self.image_size == "auto" else self.image_size,
            own.focal if self.focal == "auto" else self.focal,
            own.max_new_tokens if self.max_new_tokens == "auto" else self.max_new_tokens,
        )

    @property
    def asks_model(self) -> bool:
        """Whether a model decides, rather than a policy of code."""
        return self.policy is None and not self.model.startswith("scripted:")

    @property
    def last_batched_turn(self) -> int:
        """Index of the last batched turn; -1 if there is none."""
        return self.steps if self.max_batched_turns == "all" else min(self.max_batched_turns - 1, self.steps)

    @property
    def has_work(self) -> bool:
        """Whether the settings say what to run."""
        shows = self.check_data or self.plan
        asks_one = self.ply is not None or self.question is not None
        return self.batch or self.demo or asks_one or shows or self.continue_from is not None


RESOLVED_ONCE = ("renderer", "dtype", "image_size", "focal", "max_new_tokens")
"""Settings whose "auto" is resolved when a run begins, and saved as resolved."""
ONLY_TRANSFORMERS = ("dtype", "attention", "compile", "kv_reuse", "batch_size", "refill")
"""Settings of models that run in this process."""

UNUSED_BY_VLLM = ("attention", "compile", "batch_size", "refill")
ONLY_VLLM = ("vllm_python", "tensor_parallel_size", "gpu_memory_utilization", "max_model_len")


QUESTION_FILES = (".jsonl", ".json", ".csv", ".parquet")
FILTERS = ("datasets", "question_types", "scenes", "ids")
"""Settings that filter questions."""


def flag(name: str) -> str:
    """The command-line flag of a RunConfig field."""
    return "--continue" if name == "continue_from" else "--" + name.replace("_", "-")


def config_from_dict(values: dict[str, Any], source: str = "") -> RunConfig:
    """A RunConfig from plain values (YAML, JSON or keyword arguments).

    Raises ConfigError naming each invalid key, and `source`, if given.
    """
    try:
        return TypeAdapter(RunConfig).validate_python(values)
    except ValidationError as error:
        problems = dict.fromkeys(_in_words(problem, values) for problem in error.errors())  # a union has one per member
        raise ConfigError(f"{source}: {'; '.join(problems)}" if source else "; ".join(problems)) from None


def _in_words(problem: Any, values: dict[str, Any]) -> str:
    """What is wrong with a setting, in the words of the command line; suggests a similar name for an unknown one."""
    if not problem["loc"]:  # raised by RunConfig itself
        return problem["msg"].removeprefix("Value error, ")
    field = str(problem["loc"][0])
    name = flag(field).removeprefix("--").replace("-", "_")
    if problem["type"] != "unexpected_keyword_argument":
        hint = get_type_hints(RunConfig, include_extras=True)[field]
        return f"{name} takes {accepted(hint)}, got {values[field]!r}"
    names = [flag(each.name).removeprefix("--").replace("-", "_") for each in fields(RunConfig)]
    near = get_close_matches(name, names, n=1)
    return f"there is no setting {name}; " + (f"did you mean {near[0]}?" if near else "--help lists all of them")


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """The configuration as JSON values, which `config_from_dict` reads back."""
    return json.loads(json.dumps(asdict(config), default=argument_text))


def changed_settings(begun: RunConfig, now: RunConfig) -> dict[str, Any]:
    """The settings of `now` that differ from `begun`, as JSON values."""
    before = config_to_dict(begun)
    return {name: value for name, value in config_to_dict(now).items() if value != before[name]}


def changed_answers(saved: RunConfig, wanted: RunConfig) -> list[str]:
    """The flags that differ between two configurations and could change an answer."""
    return [flag(name) for name in answer_settings() if _as_compared(name, saved) != _as_compared(name, wanted)]


def answer_settings() -> list[str]:
    """Names of the settings that must not change when a run is resumed."""
    hints = get_type_hints(RunConfig, include_extras=True)
    return [name for name in hints if MayChange not in getattr(hints[name], "__metadata__", ())]


def _as_compared(name: str, config: RunConfig) -> Any:
    """A setting's value; filters compare as sets, since questions are asked in the order of their source."""
    value = getattr(config, name)
    return frozenset(value) if name in FILTERS else value


def as_begun(saved: RunConfig, wanted: RunConfig) -> RunConfig:
    """`wanted` with absolute paths, and with each "auto" as resolved when the run began.

    Raises ConfigError naming the flags that would change answers.
    """
    wanted = located(wanted)
    autos: dict[str, Any] = {name: getattr(saved, name) for name in RESOLVED_ONCE if getattr(wanted, name) == "auto"}
    wanted = replace(wanted, **autos)
    if changed := changed_answers(located(saved), wanted):
        raise ConfigError(
            f"{', '.join(changed)} would change answers of this run; leave them out to resume it, or start a new run"
        )
    return wanted


def located(config: RunConfig) -> RunConfig:
    """The configuration with absolute paths and `~` expanded, so that the run can be resumed from any folder."""
    is_name = config.model == EMBEDDED or config.model.startswith("scripted:")
    model = _absolute(Path(config.model))
    return replace(
        config,
        questions=config.questions and _absolute(config.questions),
        ply=config.ply and _absolute(config.ply),
        prompts=config.prompts and _absolute(config.prompts),
        scan_root=_absolute(config.scan_root),
        log_root=_absolute(config.log_root),
        vllm_python=config.vllm_python and _absolute(config.vllm_python),
        model=str(model) if model.is_dir() and not is_name and config.engine != "openai" else config.model,
        policy=config.policy and _located_file(config.policy),
        benchmark=_located_file(config.benchmark),
    )


def _located_file(named: str) -> str:
    """`path/to/file.py:NAME` with an absolute path; any other name as it is."""
    source, _, name = named.rpartition(":")
    return f"{_absolute(Path(source))}:{name}" if source.endswith(".py") else named


def _absolute(path: Path) -> Path:
    return on_disk(path.expanduser().absolute())


def _check_bounds(name: str, value: Any, hint: Any) -> None:
    """Raise ConfigError if a number is out of its type's bounds. Unions and tuples are checked member by member."""
    numbers = [each for each in (value if isinstance(value, tuple) else [value]) if isinstance(each, int | float)]
    if not all(map(math.isfinite, numbers)):
        raise ConfigError(f"{flag(name)} takes a finite number, got {value}")
    if not all(_within(number, rule) for number in numbers for rule in _bounds(hint)):
        raise ConfigError(f"{flag(name)} takes {accepted(hint)}, got {value}")


def _bounds(hint: Any) -> list[Any]:
    """The bounds in a type hint, including those of its members."""
    found = [rule for rule in getattr(hint, "__metadata__", ()) if isinstance(rule, Ge | Gt | Lt)]
    for member in getattr(hint, "__args__", ()):
        found += _bounds(member)
    return found


def _within(value: Any, rule: Any) -> bool:
    match rule:
        case Ge(ge=bound):
            return value >= bound
        case Gt(gt=bound):
            return value > bound
        case _:
            return value < rule.lt


def accepted(hint: Any) -> str:
    """The values of a setting's type in words, such as "a whole number of at least 1 or auto"."""
    words = _alternatives(hint, ())
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _alternatives(hint: Any, bounds: tuple[Any, ...]) -> list[str]:
    """The members of a union in words. `bounds` are those of the union."""
    if get_origin(hint) is Annotated:
        hint, *rules = get_args(hint)
        bounds += tuple(rule for rule in rules if isinstance(rule, Ge | Gt | Lt))
    if get_origin(hint) in (Union, UnionType):
        return [words for member in get_args(hint) for words in _alternatives(member, bounds)]
    if get_origin(hint) is Literal:
        return list(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return ["a list of texts"] if get_args(hint)[-1] is ... else ["two whole numbers of at least 1"]
    if hint is NoneType:  # the default, which means that the setting is not given
        return []
    kind = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}[hint]
    return [" ".join(filter(None, [kind, " and ".join(map(_bound_in_words, bounds))]))]


def _bound_in_words(rule: Any) -> str:
    match rule:
        case Ge(ge=bound):
            return f"of at least {bound}"
        case Gt(gt=bound):
            return f"above {bound}"
        case _:
            return f"below {rule.lt}"


def resume_command(folder: Path, begun: RunConfig, now: RunConfig) -> str:
    """The command that resumes a run from any folder, with every setting of `now` that differs from `begun`."""
    words = [sys.executable, str(COMMAND), "--continue", str(folder.resolve())]
    for name, value in changed_settings(begun, now).items():
        if name not in ("continue_from", "log_root"):
            switch = flag(name) if value is not False else flag(f"no_{name}")
            given = value if isinstance(value, list) else [value]
            words += [switch] if isinstance(value, bool) else [switch, *map(str, given)]
    return shlex.join(words)
