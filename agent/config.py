"""All settings of a run. Flags, YAML files and run.json are derived from RunConfig."""

import ast
import inspect
import json
import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, make_dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro
import yaml
from annotated_types import Ge, Gt, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent.parts import Part
from models import EMBEDDED
from models.gpus import GpuName
from models.views import ViewSettings, view_settings_of

MAX_BATCHED_TURNS = 4
NUM_STEPS = 8
CAMERA_HEIGHT_M = 1.6
COMMAND = Path(__file__).parents[1] / "render_point_cloud_qwen_angle_batched.py"
CAMERA_PITCH_DEG = -15.0
"""Slightly downward: a level camera at eye height sees the floor only beyond 2 m, and in small rooms mostly walls."""
RendererName = Literal["auto", "raycast", "pyrender", "open3d", "blind"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
EngineName = Literal["transformers", "openai", "vllm"]
API_KEY_ENV = "OPENAI_API_KEY"


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
    """Put a vision-language model inside 3D scans of rooms and let it answer spatial questions.

    Choose what to run: --batch (a benchmark), --ply with --question (one question on one scan), --demo (generated
    rooms and the small model that ships), or --continue (resume an earlier run).
    """

    __pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    batch: bool = False
    """Answer all questions of the benchmark or of --questions."""
    demo: bool = False
    """Answer questions about generated rooms with the small model that ships, with views and blind."""
    continue_from: Annotated[str | None, tyro.conf.arg(name="continue", metavar="recent|FOLDER"), MayChange] = None
    """Resume the newest run below --log-root, or the run in this folder."""
    retry_failed: Annotated[bool, MayChange] = False
    """With --continue: retry all failed questions."""
    check_data: Annotated[bool, MayChange] = False
    """Print how many questions have a scan, then stop."""
    plan: Annotated[bool, MayChange] = False
    """Print questions, scans, images, tokens, memory, batch size and estimated time of the run, then stop; loads no
    weights."""

    plan_device: Annotated[GpuName | None, MayChange] = None
    """With --plan: plan for one GPU of this type in bfloat16 from its datasheet, instead of measuring this machine."""

    ply: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """One scan: .ply, .pcd, .glb, .gltf or .obj."""
    question: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """The question to ask on --ply."""
    options: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT ...")] = ()
    """Options of --question; none: the answer is a number or free text."""
    question_type: Annotated[str | None, tyro.conf.arg(metavar="TYPE")] = None
    """VSI-Bench type of --question; none: inferred from its wording."""
    ground_truth: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """The correct answer to --question, for scoring."""

    questions: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), MayChange] = None
    """Questions as .jsonl, .json, .csv or .parquet with VSI-Bench's columns; none: VSI-Bench from the hub."""
    scan_root: Annotated[Path, tyro.conf.arg(metavar="DIR"), MayChange] = Path("scans")
    """Folder of arkitscenes/, scannet/ and scannetpp/, root of one of them, or a flat folder of <scene>.ply."""
    datasets: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ()
    """Only questions of these datasets."""
    question_types: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TYPE ...")] = ()
    """Only questions of these types; obj_appearance_order, which needs a video, is excluded unless named here."""
    scenes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SCENE ...")] = ()
    """Only questions of these scenes."""
    ids: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID ...")] = ()
    """Only questions with these ids."""
    num_questions: Count | None = None
    """Only this many questions, the first that pass the other filters."""

    model: Annotated[str, tyro.conf.arg(metavar="NAME|PATH")] = "Qwen/Qwen3-VL-8B-Instruct"
    """A checkpoint of Qwen3-VL, Qwen2.5-VL, Qwen3.5, InternVL3.5 or LLaVA-OneVision by hub id or path; "embedded": the
    small model that ships; "scripted:random": no model. With --engine openai: the model's name at the server."""
    policy: Annotated[str | None, tyro.conf.arg(metavar="MODULE:CLASS")] = None
    """Your own policy class, used instead of a model: module:Class or path/to/file.py:Class."""
    dtype: DtypeName = "auto"
    """Data type of the weights; auto: bfloat16 on CUDA, float32 elsewhere."""
    device: Annotated[str, MayChange] = "auto"
    """Where the model runs: auto, cpu, cuda, cuda:1, ..."""
    attention: Annotated[Literal["auto", "sdpa", "eager", "flash_attention_2"], MayChange] = "auto"
    """Attention kernel; auto: sdpa. sdpa shares keys and values among query heads without copying them; eager is the
    plain one of transformers; flash_attention_2 applies to the image encoder only, needs CUDA and flash-attn."""
    max_new_tokens: Count | Literal["auto"] = "auto"
    """Maximal length of a reply, tokens; auto: from the checkpoint's views.json, else 512."""
    temperature: Annotated[float, Ge(0)] = 0.0
    """0: greedy decoding; above 0: sampling, reproducible with --seed on the same type of device."""
    constrained: bool = False
    """Constrain decoding to well-formed JSON objects, with answers of at most 80 characters without quotation marks;
    needs xgrammar. With --engine openai: have the server constrain replies to a JSON schema."""
    compile: Annotated[bool, MayChange] = False
    """Compile decoding steps, once for a single row and once for more, each when first needed; on CUDA also replay them
    as CUDA graphs. Takes seconds for a small model, a minute or more for 36 layers: use it for long runs. Needs a C++
    compiler, on CUDA also Triton, and on a CPU memory for two more copies of the weights."""
    seed: Annotated[int, Ge(0)] = 0
    """Random seed for sampling, --demo's rooms and scripted:random."""

    engine: EngineName = "transformers"
    """What runs the model. transformers: this process; openai: OpenAI-compatible servers at --base-url, such as vLLM,
    SGLang, transformers serve or hosted models; vllm: a vLLM server that starts and stops with the run."""
    base_url: Annotated[tuple[str, ...], tyro.conf.arg(metavar="URL ..."), MayChange] = ()
    """With --engine openai: the base URL of one or more servers, such as http://localhost:8000/v1; each question stays
    on one of them."""
    api_key_env: Annotated[str, tyro.conf.arg(metavar="NAME"), MayChange] = API_KEY_ENV
    """With --engine openai: the environment variable with the API key, if the server needs one."""
    request_timeout: Annotated[float, Gt(0), MayChange] = 600.0
    """With --engine openai: timeout of a request, seconds; it is then retried."""

    vllm_python: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), MayChange] = None
    """With --engine vllm: Python of the environment with vLLM; none: the environment of scripts/install_vllm.sh."""
    tensor_parallel_size: Annotated[Count, MayChange] = 1
    """With --engine vllm: number of GPUs to split the model over."""
    gpu_memory_utilization: Annotated[float | None, Gt(0), Lt(1), MayChange] = None
    """With --engine vllm: fraction of each GPU's memory for the server, of the machine's memory with a CPU build; none:
    vLLM's default on GPUs, half the free memory on a CPU."""
    max_model_len: Annotated[Count | None, MayChange] = None
    """With --engine vllm: maximal length of a conversation including replies, tokens; none: as --steps may need."""

    renderer: RendererName = "auto"
    """Renderer; auto: pyrender if a GPU can render, else raycast on the CPU."""
    first_view: Literal["visibility", "sharpness"] = "visibility"
    """How to choose the first view among four headings: most visible surface, or sharpest image."""
    up_axis: Literal["auto", "y", "z"] = "auto"
    """Which axis of the scan files points up; auto: y for GLB and glTF, z for all others."""
    image_size: Annotated[tuple[Count, Count] | Literal["auto"], tyro.conf.arg(metavar="W H|auto")] = "auto"
    """Width and height of a view, pixels, multiples of 32 for Qwen3-VL; auto: from the checkpoint's views.json, else
    the default of its family, 640 480 for Qwen3-VL."""
    focal: Annotated[float, Ge(1)] | Literal["auto"] = "auto"
    """Focal length, pixels; auto: from the checkpoint's views.json, else 300."""
    camera_height: Annotated[float, Gt(0)] = CAMERA_HEIGHT_M
    """Initial height of the camera above the floor, metres; lower in low rooms."""
    camera_pitch: Annotated[float, Gt(-90), Lt(90)] = CAMERA_PITCH_DEG
    """Pitch of the camera, degrees; negative looks down."""
    scene_cache_gib: Annotated[float, Ge(0), MayChange] = 4.0
    """Memory for cached scans, GiB, in addition to those of the current batch."""

    steps: Annotated[int, Ge(0)] = NUM_STEPS
    """Moves per question; turns are 0 to this number, and the last must answer."""
    max_batched_turns: Annotated[Annotated[int, Ge(0)] | Literal["all"], MayChange] = MAX_BATCHED_TURNS
    """Number of turns in lockstep batches; later turns run --concurrency questions at a time."""
    batch_size: Annotated[Count | Literal["auto"], MayChange] = "auto"
    """Questions per batch; auto: as many as fit in memory beside the weights, at most 64."""
    refill: Annotated[bool, MayChange] = False
    """Replace each finished question of a batch by a waiting one; needs --max-batched-turns all."""
    concurrency: Annotated[Count | Literal["auto"], MayChange] = "auto"
    """Questions at a time after the batched turns; auto: as many as in a batch; 1: strictly one after another. With
    --engine openai or vllm: questions in flight at any turn; auto: 32."""
    tiles_per_view: Count = 1
    """Maximal number of tiles per view for InternVL, 256 tokens each. It chooses the grid closest to the view's aspect
    ratio and adds the whole view as another tile if there are several. 1: only the whole view."""
    kv_reuse: Annotated[bool, MayChange] = True
    """Keep keys and values between turns, so that each turn computes only new tokens."""
    log_root: Annotated[Path, tyro.conf.arg(metavar="DIR"), MayChange] = Path("experiment_logs")
    """Folder in which to create run folders."""

    shard: Annotated[str | None, tyro.conf.arg(metavar="I/N")] = None
    """Answer only part I of N, from 1. Parts consist of whole scenes and are balanced by number of questions. For SLURM
    arrays: --array=1-8 with --shard $SLURM_ARRAY_TASK_ID/8. With --batch --continue recent, resumes the newest run of
    this part below --log-root, or begins one. "python -m runs merge" merges the parts into one run."""
    ray: Annotated[bool, MayChange] = False
    """Answer the parts of the run on the workers of a Ray cluster and merge them; needs "pip install -r
    requirements-ray.txt". --log-root and the scans must be the same folders on all machines."""
    ray_address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT|auto"), MayChange] = None
    """Address of the cluster for --ray; none: start one on this machine for this run."""
    replicas: Annotated[Count | Literal["auto"], MayChange] = "auto"
    """Concurrent workers of --ray; auto: one per GPU, or one per machine if the model needs no GPU."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            _check_bounds(name, getattr(self, name, None), hint)
        if self.image_size != "auto" and min(self.image_size) < 1:
            raise ConfigError(f"--image-size takes two numbers of at least 1, got {self.image_size}")
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
        """This configuration, once all settings are known; raises ConfigError if they conflict."""
        if self.batch and self.question is not None and Path(self.question).suffix in QUESTION_FILES:
            raise ConfigError(f"--question asks one question; did you mean --questions {self.question}?")
        if (self.ply is None) != (self.question is None):
            if self.ply is None:
                raise ConfigError("--question needs a scan to ask about: add --ply FILE")
            raise ConfigError("--ply needs a question to ask: add --question TEXT")
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
                raise ConfigError(f"--engine openai asks a server for --model: {self.model} needs no engine")
            if self.plan_device is not None:
                raise ConfigError("--plan-device plans for a GPU of this machine: leave it out with --engine openai")
            if unused := self._changed(ONLY_TRANSFORMERS):
                raise ConfigError(f"leave out {', '.join(unused)} with --engine openai: the server controls that")
        elif self.engine == "vllm":
            if self.model.startswith("scripted:"):
                raise ConfigError(f"--engine vllm serves a checkpoint: {self.model} needs no engine")
            if self.plan_device is not None:
                raise ConfigError("--plan-device plans for --engine transformers: leave it out with --engine vllm")
            if unused := self._changed(UNUSED_BY_VLLM):
                raise ConfigError(f"leave out {', '.join(unused)} with --engine vllm: vLLM controls that")
        if self.engine != "vllm" and (unused := self._changed(ONLY_VLLM)):
            raise ConfigError(f"{', '.join(unused)} configure a vLLM server: add --engine vllm, or leave them out")
        if self.engine != "openai" and self.base_url:
            raise ConfigError("--base-url is the server of --engine openai: add that, or leave it out")
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
    def last_batched_turn(self) -> int:
        """Index of the last batched turn; -1 if there is none."""
        return self.steps if self.max_batched_turns == "all" else min(self.max_batched_turns - 1, self.steps)

    @property
    def has_work(self) -> bool:
        """Whether the settings say what to run."""
        shows = self.check_data or self.plan
        asks_one = self.ply is not None or self.question is not None
        return self.batch or self.demo or asks_one or shows or self.continue_from is not None


SECTIONS = {
    "what_to_run": (
        "batch", "demo", "continue_from", "retry_failed", "check_data", "plan", "plan_device",
        "ply", "question", "options", "question_type", "ground_truth",
    ),
    "questions": ("questions", "datasets", "question_types", "scenes", "ids", "num_questions"),
    "scans_and_camera": (
        "scan_root", "renderer", "first_view", "up_axis", "image_size", "focal", "camera_height", "camera_pitch",
        "scene_cache_gib",
    ),
    "model": (
        "model", "policy", "dtype", "device", "attention", "max_new_tokens", "temperature", "seed", "constrained",
        "compile", "tiles_per_view", "kv_reuse",
    ),
    "schedule": ("steps", "max_batched_turns", "batch_size", "refill", "concurrency"),
    "engine": (
        "engine", "base_url", "api_key_env", "request_timeout", "vllm_python", "tensor_parallel_size",
        "gpu_memory_utilization", "max_model_len",
    ),
    "output": ("log_root",),
    "parts": ("shard", "ray", "ray_address", "replicas"),
}  # fmt: skip
"""How --help groups the flags."""

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


@dataclass(frozen=True)
class Given:
    """A parsed command line: the values of its --config file, by RunConfig field, and its other flags."""

    flags: list[str]
    values: dict[str, Any]
    source: str

    def over(self, base: RunConfig) -> RunConfig:
        """`base` overridden by the file's values, then by the flags.

        Raises ConfigError for an invalid file. Invalid flags end the process with status 2, as usual for command-line
        tools.
        """
        return apply_flags(config_from_dict(config_to_dict(base) | self.values, self.source), self.flags)


def parse_command_line(argv: list[str]) -> Given:
    """Parse the arguments, and the YAML file of --config if given.

    Raises ConfigError if the file cannot be read or a filter of questions has no value.
    """
    config_file, flags = _split_config_file(argv)
    for given, following in pairwise([*flags, "--"]):
        if given.replace("_", "-") in map(flag, FILTERS) and following.startswith("--"):
            raise ConfigError(f"{given} is given without a value: leave it out to ask all questions")
    return Given(flags, _read_yaml(config_file) if config_file else {}, str(config_file))


def apply_flags(default: RunConfig, flags: list[str]) -> RunConfig:
    """`default` overridden by the flags. Each switch has a `--no-` form that turns it off."""
    about = inspect.cleandoc(RunConfig.__doc__ or "")
    sections = _sections()
    grouped: Any = make_dataclass("Flags", zip(SECTIONS, sections, strict=True))
    defaults = [section(*(getattr(default, each.name) for each in fields(section))) for section in sections]
    given = tyro.cli(
        grouped,
        default=grouped(*defaults),
        args=flags,
        prog="render_point_cloud_qwen_angle_batched.py",
        description=f"{about}\n\n--config FILE.yaml takes the same names; flags override it.",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    parts = (getattr(given, part.name) for part in fields(given))
    return RunConfig(**{each.name: getattr(part, each.name) for part in parts for each in fields(part)})


def _sections() -> list[Any]:
    """A dataclass per section of SECTIONS, with its RunConfig fields."""
    hints, helps = get_type_hints(RunConfig, include_extras=True), _field_docs()
    sections = []
    for title, names in SECTIONS.items():
        members = [(name, Annotated[hints[name], tyro.conf.arg(help=helps[name])]) for name in names]
        section = make_dataclass(title, members)
        section.__doc__ = ""  # else tyro prints the generated signature
        sections.append(section)
    return sections


def _field_docs() -> dict[str, str]:
    """The docstring of each field of RunConfig."""
    (declared,) = ast.parse(inspect.getsource(RunConfig)).body
    assert isinstance(declared, ast.ClassDef)
    docs = {}
    for line, following in pairwise(declared.body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(following, ast.Expr):
            docs[line.target.id] = " ".join(ast.literal_eval(following.value).split())
    return docs


def config_from_dict(values: dict[str, Any], source: str) -> RunConfig:
    """A RunConfig from plain values (YAML or JSON); raises ConfigError naming `source` and each invalid key."""
    try:
        return TypeAdapter(RunConfig).validate_python(values)
    except ValidationError as error:
        problems = "; ".join(
            ": ".join([*(str(problem["loc"][0]) for _ in problem["loc"][:1]), _what_is_wrong(problem)])
            for problem in error.errors()
        )
        raise ConfigError(f"{source}: {problems}") from None


def _what_is_wrong(problem: Any) -> str:
    """pydantic's message; for an unknown name, a similar one as suggestion."""
    if problem["type"] != "unexpected_keyword_argument":
        return problem["msg"].removeprefix("Value error, ")
    names = [flag(field.name).removeprefix("--").replace("-", "_") for field in fields(RunConfig)]
    near = get_close_matches(str(problem["loc"][0]), names, n=1)
    return f"unknown name; did you mean {near[0]}?" if near else "unknown name; --help lists all names"


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """The configuration as JSON values, which `config_from_dict` reads back."""
    return json.loads(json.dumps(asdict(config), default=str))


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


def resumed(saved: RunConfig, given: Given) -> RunConfig:
    """The configuration of a resumed run: the saved one, overridden by what is given now.

    Ignores --batch and --demo. "auto" keeps the value that it was resolved to when the run began. Raises ConfigError
    naming the flags that would change answers.
    """
    flags = [flag for flag in given.flags if flag not in ("--batch", "--demo")]
    values = {name: value for name, value in given.values.items() if name not in ("batch", "demo")}
    return as_begun(saved, replace(given, flags=flags, values=values).over(saved)).checked()


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
    model = Path(config.model).expanduser()
    return replace(
        config,
        questions=config.questions and _absolute(config.questions),
        ply=config.ply and _absolute(config.ply),
        scan_root=_absolute(config.scan_root),
        log_root=_absolute(config.log_root),
        vllm_python=config.vllm_python and _absolute(config.vllm_python),
        model=str(model.absolute()) if model.is_dir() and not is_name and config.engine != "openai" else config.model,
        policy=config.policy and _located_policy(config.policy),
    )


def _located_policy(policy: str) -> str:
    source, _, name = policy.rpartition(":")
    return f"{_absolute(Path(source))}:{name}" if source.endswith(".py") else policy


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _check_bounds(name: str, value: Any, hint: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{flag(name)} takes a finite number, got {value}")
    for rule in _rules(hint):
        if value is None or not isinstance(value, int | float):
            continue
        good, words = _judge(value, rule)
        if not good:
            raise ConfigError(f"{flag(name)} takes a number {words}, got {value}")


def _rules(hint: Any) -> list[Any]:
    """The bounds in a type hint, including those of union members."""
    found = [rule for rule in getattr(hint, "__metadata__", ()) if isinstance(rule, Ge | Gt | Lt)]
    for member in getattr(hint, "__args__", ()):
        found += _rules(member)
    return found


def _judge(value: Any, rule: Any) -> tuple[bool, str]:
    """Whether a value is within a bound, and the bound in words."""
    match rule:
        case Ge(ge=bound):
            return value >= bound, f"of at least {bound}"
        case Gt(gt=bound):
            return value > bound, f"above {bound}"
        case _:
            return value < rule.lt, f"below {rule.lt}"


def _split_config_file(argv: list[str]) -> tuple[Path | None, list[str]]:
    """Separate `--config FILE` (or `--config=FILE`) from the other arguments."""
    rest, path, waiting = [], None, False
    for argument in argv:
        if argument.startswith("--config") and (waiting or path):
            raise ConfigError("--config is given twice: put all settings in one YAML file")
        if waiting:
            path, waiting = Path(argument), False
        elif argument == "--config":
            waiting = True
        elif argument.startswith("--config="):
            path = Path(argument.partition("=")[2])
        else:
            rest.append(argument)
    if waiting:
        raise ConfigError("--config takes a YAML file")
    return path, rest


def _read_yaml(path: Path) -> dict[str, Any]:
    """The YAML file with keys as RunConfig fields. Values stay text, to be converted by each field's type."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_TextIds)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path}: cannot be read as YAML: {' '.join(str(error).split())}") from None
    values = {} if values is None else values  # an empty file, or one of comments
    if not isinstance(values, dict):
        raise ConfigError(f"--config {path}: expected a mapping of names to values, such as `batch_size: 8`")
    names = {str(key).replace("-", "_"): value for key, value in values.items()}
    if "continue" in names:
        names["continue_from"] = names.pop("continue")
    return names


class _TextIds(yaml.SafeLoader):
    """Reads all values except null as text, to be converted by each field's type.

    A scene name such as 0042 or 12_3 thus keeps every character, and an option may be called yes.
    """


_TextIds.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def resume_command(folder: Path, begun: RunConfig, now: RunConfig) -> str:
    """The command that resumes a run from any folder, with every setting of `now` that differs from `begun`."""
    words = [sys.executable, str(COMMAND), "--continue", str(folder.resolve())]
    for name, value in changed_settings(begun, now).items():
        if name not in ("continue_from", "log_root"):
            switch = flag(name) if value is not False else flag(f"no_{name}")
            given = value if isinstance(value, list) else [value]
            words += [switch] if isinstance(value, bool) else [switch, *map(str, given)]
    return shlex.join(words)
