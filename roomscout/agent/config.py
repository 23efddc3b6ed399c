"""All settings of a run, by section. Flags, YAML files and run.json are derived from RunConfig.

Every setting has a name of its own, so flags, YAML files, run.json and Python leave sections out.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints
from urllib.parse import SplitResult, parse_qsl, urlsplit

import tyro
from annotated_types import Ge, Gt, Lt
from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from roomscout import UpAxis
from roomscout.base.text import argument_text
from roomscout.data.benchmarks import DEFAULT
from roomscout.data.judged import JUDGE_URL
from roomscout.data.parts import Part
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.gpus import GpuName
from roomscout.models.views import TellName, ViewSettings, view_settings_of
from roomscout.models.vllm import VllmOptions
from roomscout.rendering.registry import RENDERER_NAMES
from roomscout.runs import LOG_ROOT, NEWEST

MAX_BATCHED_TURNS = 4
NUM_STEPS = 8
CAMERA_HEIGHT_M = 1.6
CAMERA_PITCH_DEG = -15.0
"""Slightly downward: a level camera at eye height sees the floor only beyond 2 m, and in small rooms mostly walls."""
if TYPE_CHECKING:
    RendererName = str
else:
    RendererName = Literal[*RENDERER_NAMES]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
EngineName = Literal["transformers", "openai", "vllm"]
MoverName = Literal["model", "spin", "random", "coverage", "none"]
TELL_NAMES: tuple[TellName, ...] = get_args(TellName)
NOTHING = "nothing"
"""The value of --tell that reveals nothing."""
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
EXAMPLE_URL = "http://localhost:8000/v1"
SECRET_NAME = re.compile(r"(^|[_-])(key|code|sig|signature|token|secret|password|passwd|authorization)$", re.IGNORECASE)
"""Names of a URL's parameters that hold keys, which would be written into run folders."""
SECRET_FIELD = re.compile(
    r"(api|secret|access)_?-?key$|(secret|password|authorization)$|(access|auth|bearer)_?-?token$", re.I
)
"""The same of a request's body, which has keys of caches and limits of tokens."""
SET_ELSEWHERE = {
    "model": "that is --model",
    "messages": "a run makes them",
    "temperature": "that is --temperature",
    "seed": "that is --seed",
    "max_tokens": "that is --max-new-tokens",
    "max_completion_tokens": "that is --max-new-tokens",
    "response_format": "that is --constrained",
    "n": "that is --samples",
    "stream": "replies are read whole",
    "stream_options": "replies are read whole",
}
"""Parameters of requests that a run sets, and how."""
LONGEST_TIMEOUT_S = 2_000_000
"""The operating system waits no longer."""
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ConfigError(ValueError):
    """An invalid flag, YAML key or combination of them. The message names it and says what is valid."""


class MayChange:
    """Marks a setting that may change when a run is resumed.

    Changes speed or paths; can change answers only through floating-point rounding.
    """


class ChangesRecords:
    """Marks a setting that changes what a run records, and no answer.

    It must not change in a resumed run, and is not part of the protocol: runs that differ in it are comparable.
    """


Count = Annotated[int, Ge(1)]
Share = Annotated[float, Gt(0), Lt(1)]


def _group(name: str, help: str = "") -> Any:
    """How --help shows a section; without a help text it would print the section's docstring."""
    return tyro.conf.arg(name=name, help=help)


def _takes(values: str, name: str | None = None) -> Any:
    """How --help shows a setting's values. Says nothing of a default that is empty or None."""
    return tyro.conf.arg(name=name, metavar=values, help_behavior_hint=_default_in_words)


def _default_in_words(default: str) -> str:
    return "" if default in ("", "None") else f"(default: {default})"


def _device(name: str) -> str:
    if not DEVICE.fullmatch(name):
        raise ValueError(f"--device takes one device, which is auto, cpu, cuda or cuda:N, got {name}")
    return name


def _part(text: str) -> str:
    try:
        Part.parse(text)
    except ValueError as error:
        raise ValueError(f"--shard {error}") from None
    return text


def _server_url(url: str, flag: str = "--base-url", key_flag: str = "--api-key-env") -> str:
    """The root of an API without blanks around it; raises ValueError, which never shows the URL: it may hold a key."""
    url, key = url.strip(), f"a key belongs in the environment variable of {key_flag}"
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValueError(f"{flag} takes URLs without user names and passwords; {key}")
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:  # also a UnicodeError
        parts, port, host = SplitResult("", "", "", "", ""), None, b""
    if parts.scheme not in ("http", "https") or not host or port == 0 or not re.fullmatch(r"[^\s\\<>\0-\x1f]+", url):
        raise ValueError(
            f"{flag} takes http:// or https:// URLs such as {EXAMPLE_URL}, with a valid host (an IPv6 address in "
            "brackets) and a port from 1 to 65535"
        )
    if any(SECRET_NAME.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ValueError(f"{flag} takes URLs without keys in their parameters; {key}")
    if "#" in url:
        raise ValueError(f"{flag} takes URLs without #: leave out # and what is behind it")
    if parts.path.rstrip("/").endswith("/completions"):
        raise ValueError(f"{flag} takes the root of an API, which usually ends in /v1: leave out /chat/completions")
    return url


def _extra_body(value: Any) -> str:
    """A JSON object, given as text or as a dictionary, as the text that run.json has; raises ValueError.

    Messages never show values: a run folder must not hold keys.
    """
    if value == "":
        return ""
    try:
        body = json.loads(value, parse_constant=_no_constant) if isinstance(value, str) else value
        text = json.dumps(body, allow_nan=False, sort_keys=True) if isinstance(body, dict) else ""
    except (ValueError, TypeError, RecursionError):
        text = ""
    if not text:
        raise ValueError("--extra-body takes a JSON object in quotes, such as '{\"enable_thinking\": false}'")
    if mine := [name for name in SET_ELSEWHERE if name in body]:
        raise ValueError(f"--extra-body cannot set {mine[0]}: {SET_ELSEWHERE[mine[0]]}")
    names = re.findall(r'"((?:[^"\\]|\\.)*)": ', text)
    if any(map(SECRET_FIELD.search, names)) or re.search(r'"(sk-|Bearer )', text):
        raise ValueError(
            "--extra-body takes no keys, since run folders record it: a key belongs in the environment variable of "
            "--api-key-env"
        )
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _judge_url(url: str) -> str:
    return _server_url(url, "--judge-url", "--judge-key-env")


def _tell(value: Any) -> Any:
    """--tell in the order of TELL_NAMES, from one text or several, with commas or without."""
    if value == "auto" or not isinstance(value, str | list | tuple):
        return value
    texts = [value] if isinstance(value, str) else value
    names = [name for text in texts for name in str(text).replace(",", " ").split()]
    if names in ([NOTHING], ["auto"]):
        return tuple(names) if names == [NOTHING] else "auto"
    if not names or not set(names) <= set(TELL_NAMES):
        raise ValueError(
            f"--tell takes some of {', '.join(TELL_NAMES)}, or {NOTHING}, or auto; got {' '.join(names) or 'no name'}"
        )
    return tuple(name for name in TELL_NAMES if name in names)


def _run_name(name: str) -> str:
    if not RUN_NAME.fullmatch(name) or name == NEWEST:
        raise ValueError(
            f"--name takes letters, digits, '.', '_' and '-', at most 100 and a letter or a digit first, and not "
            f"{NEWEST}; got {name}"
        )
    return name


def _variable_name(name: str, flag: str = "--api-key-env") -> str:
    if not VARIABLE_NAME.fullmatch(name):
        raise ValueError(f"{flag} takes the name of an environment variable, not the key itself")
    return name


def _judge_key_env(name: str) -> str:
    return _variable_name(name, "--judge-key-env")


class _Section:
    """Settings that are used together, each with its help in one line, since tyro would keep line breaks.

    `RunConfig.of` and `RunConfig.having` check types and bounds.
    """

    __pydantic_config__: ClassVar = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False)


@dataclass(frozen=True)
class WhatToRun(_Section):
    """What the command does, and the question of --ply."""

    batch: bool = False
    """Answer the questions of --questions, or those of the benchmark without it."""
    demo: bool = False
    """Compare the included small model, with and without sight, on generated rooms."""
    continue_from: Annotated[str | None, _takes("recent|FOLDER", name="continue"), MayChange] = None
    """Resume the newest run below --log-root, or the run in this folder."""
    retry_failed: Annotated[bool, MayChange] = False
    """With --continue, also retry failed questions."""
    check_data: Annotated[bool, MayChange] = False
    """Print how many questions have a scan, then stop."""
    plan: Annotated[bool, MayChange] = False
    """Print the size, memory, batch size and expected time of the run, then stop; loads no weights."""
    plan_device: Annotated[GpuName | None, _takes("|".join(get_args(GpuName))), MayChange] = None
    """With --plan, plan for this GPU in bfloat16 from its datasheet instead of measuring this machine."""
    ply: Annotated[Path | None, _takes("FILE")] = None
    """The scan to ask about: a .ply, .pcd, .glb, .gltf or .obj file."""
    question: Annotated[str | None, _takes("TEXT")] = None
    """The question to ask about --ply."""
    options: Annotated[tuple[str, ...], _takes("TEXT ...")] = ()
    """The choices of --question; without them the answer is a number or free text."""
    question_type: Annotated[str | None, _takes("TYPE")] = None
    """The benchmark's type of --question; by default inferred from its wording."""
    ground_truth: Annotated[str | None, _takes("TEXT")] = None
    """The correct answer to --question, for scoring."""
    interactive: Annotated[bool, MayChange] = False
    """Ask about --ply question after question, with the model and the scan kept in memory."""

    @property
    def has_work(self) -> bool:
        """Whether the settings say what to run."""
        shows = self.check_data or self.plan
        asks_one = self.ply is not None or self.question is not None
        return self.batch or self.demo or asks_one or shows or self.continue_from is not None


@dataclass(frozen=True)
class QuestionSettings(_Section):
    """Which questions of a benchmark to ask."""

    benchmark: Annotated[str, _takes("NAME|FOLDER|FILE.py:NAME")] = DEFAULT
    """The benchmark that defines question types, scores and their label: rooms (made on this machine), vsi-bench, vsi-bench-debiased, revsi, sqa3d, openeqa, a folder with a benchmark.yaml, or your own Benchmark record as path/to/file.py:NAME."""
    questions: Annotated[Path | None, _takes("FILE"), MayChange] = None
    """A .jsonl, .json, .csv, .tsv or .parquet file with the benchmark's columns, instead of its source on the hub."""
    datasets: Annotated[tuple[str, ...], _takes("NAME ...")] = ()
    """Only questions of these datasets."""
    question_types: Annotated[tuple[str, ...], _takes("TYPE ...")] = ()
    """Only questions of these types; types that a scan cannot answer are left out unless named here."""
    scenes: Annotated[tuple[str, ...], _takes("SCENE ...")] = ()
    """Only questions of these scenes."""
    ids: Annotated[tuple[str, ...], _takes("ID ...")] = ()
    """Only questions with these ids."""
    num_questions: Annotated[Count | None, _takes("N")] = None
    """Only the first N questions that pass the other filters."""
    samples: Annotated[Count, _takes("K")] = 1
    """Answer every question K times with different random seeds; the summary adds pass@k and the majority vote."""


@dataclass(frozen=True)
class RenderSettings(_Section):
    """Where the scans are, and how views of them are drawn."""

    scan_root: Annotated[Path, _takes("DIR"), MayChange] = Path("scans")
    """The folder of arkitscenes/, scannet/ and scannetpp/, one of these, or a flat folder of <scene>.ply files."""
    renderer: RendererName = "auto"
    """Renderer of the views (blind draws grey); auto is pyrender if it finds a GPU, else raycast on the CPU."""
    first_view: Literal["visibility", "sharpness"] = "visibility"
    """Choose the first of four headings by how much surface it shows, or by how sharp its image is."""
    up_axis: UpAxis = "auto"
    """The axis of the scan files that points up, -y if y points down; auto is y for GLB and glTF and z for all others."""
    scale: Annotated[float, Gt(0)] = 1.0
    """Metres per unit of the scan files, such as 0.001 if they are in millimetres."""
    image_size: Annotated[tuple[Count, Count] | Literal["auto"], _takes("W H|auto")] = "auto"
    """Width and height of the views in pixels; auto is the checkpoint's own from its views.json, else a size that suits its family, 640 480 for Qwen3-VL."""
    focal: Annotated[Annotated[float, Ge(1)] | Literal["auto"], _takes("FLOAT|auto")] = "auto"
    """Focal length in pixels; auto is the checkpoint's own from its views.json, else 300."""
    camera_height: Annotated[float, Gt(0)] = CAMERA_HEIGHT_M
    """Initial height of the camera above the floor in metres, lower in low rooms."""
    camera_pitch: Annotated[float, Gt(-90), Lt(90)] = CAMERA_PITCH_DEG
    """Pitch of the camera in degrees; negative looks down."""
    scene_cache_gib: Annotated[float, Ge(0), MayChange] = 4.0
    """Memory in GiB for scans that no question in progress uses."""


@dataclass(frozen=True)
class ModelSettings(_Section):
    """The model or policy that decides, and how it generates."""

    model: Annotated[str, _takes("NAME|PATH")] = "Qwen/Qwen3-VL-8B-Instruct"
    """Hub id or folder of a Qwen3-VL, Qwen2.5-VL, Qwen3.5, InternVL3.5 or LLaVA-OneVision checkpoint, "embedded" (the included small model), "scripted:random" (no model), or with --engine openai the server's name for a model."""
    engine: EngineName = "transformers"
    """Run the model in this process (transformers), ask servers at --base-url (openai), or start a vLLM server for the run (vllm)."""
    prompts: Annotated[Path | None, _takes("FILE.yaml")] = None
    """A YAML file with templates of what the model reads; by default the checkpoint's own prompts.yaml, else the built-in ones."""
    policy: Annotated[str | None, _takes("NAME|MODULE:CLASS")] = None
    """A policy to use instead of a model: random, or your own class as module:Class or path/to/file.py:Class."""
    dtype: DtypeName = "auto"
    """Data type of the weights; auto is bfloat16 on CUDA and float32 elsewhere."""
    device: Annotated[str, _takes("DEVICE"), AfterValidator(_device), MayChange] = "auto"
    """The device of the model: auto, cpu, cuda or cuda:N."""
    attention: Annotated[Literal["auto", "sdpa", "eager", "flash_attention_2"], MayChange] = "auto"
    """Attention kernels; auto is sdpa, and flash_attention_2 applies to the image encoder only and needs CUDA."""
    max_new_tokens: Annotated[Count | Literal["auto"], _takes("N|auto")] = "auto"
    """Maximum length of a reply in tokens; auto is the checkpoint's own from its views.json, else 512."""
    temperature: Annotated[float, Ge(0)] = ModelOptions.temperature
    """Sampling temperature; 0 decodes greedily, and --seed makes samples reproducible on the same type of device."""
    seed: Annotated[int, Ge(0)] = ModelOptions.seed
    """Random seed of sampling, of --demo's rooms and of scripted:random."""
    constrained: bool = ServerOptions.constrained
    """Constrain replies to well-formed actions, by xgrammar in this process or by a JSON schema at a server."""
    compile: Annotated[bool, MayChange] = ModelOptions.compile
    """Compile decoding steps, which can take minutes and pays off in long runs; needs a C++ compiler, and Triton on CUDA."""
    tiles_per_view: Count = ModelOptions.tiles_per_view
    """Maximum number of tiles into which InternVL cuts a view, at 256 tokens each."""
    kv_reuse: Annotated[bool, MayChange] = ModelOptions.kv_reuse
    """Keep keys and values between turns, so that each turn computes only new tokens."""

    @property
    def asks_model(self) -> bool:
        """Whether a model decides, rather than a policy of code."""
        return self.policy is None and not self.model.startswith("scripted:")

    @property
    def loads_weights(self) -> bool:
        """Whether a checkpoint is loaded on this machine, in this process or by vLLM."""
        return self.asks_model and self.engine != "openai"


@dataclass(frozen=True)
class ScheduleSettings(_Section):
    """How many turns a question has, and which questions take theirs together."""

    steps: Annotated[int, Ge(0)] = NUM_STEPS
    """Maximum number of moves per question; the turn after the last one must answer."""
    max_batched_turns: Annotated[Annotated[int, Ge(0)] | Literal["all"], _takes("N|all"), MayChange] = MAX_BATCHED_TURNS
    """Number of turns in lockstep batches; later turns run --concurrency questions at a time."""
    batch_size: Annotated[Count | Literal["auto"], _takes("N|auto"), MayChange] = "auto"
    """Questions per batch; auto is as many as fit in memory, at most 64."""
    refill: Annotated[bool, MayChange] = False
    """Replace each finished question of a batch with a waiting one; needs --max-batched-turns all."""
    concurrency: Annotated[Count | Literal["auto"], _takes("N|auto"), MayChange] = "auto"
    """Questions at a time after the batched turns (auto is the whole batch), or at every turn with --engine openai or vllm (auto is 32)."""

    @property
    def last_batched_turn(self) -> int:
        """Index of the last batched turn; -1 if there is none."""
        return self.steps if self.max_batched_turns == "all" else min(self.max_batched_turns - 1, self.steps)


@dataclass(frozen=True)
class ControlSettings(_Section):
    """Who moves the camera, and what the model is shown and told: controls, with which a score can be compared."""

    moves: MoverName = "model"
    """Who moves the camera: the model, equal turns in place (spin), random moves, moves to the pose that shows the most new surface (coverage), or nobody (none, the first view only)."""
    moves_of: Annotated[Path | None, _takes("RUN")] = None
    """Repeat the camera's moves in another run, up to --steps of each question."""
    present: Literal["turns", "once"] = "turns"
    """Present one view per turn, or all views in one message after the last move (once)."""
    min_turns: Annotated[int, Ge(0), _takes("N")] = 0
    """Count no answer before turn N, the first of which is turn 0."""
    translation: bool = True
    """Let the camera move; --no-translation lets it only turn in place."""
    tell: Annotated[Literal["auto"] | tuple[str, ...], BeforeValidator(_tell), _takes("NAME ...|auto")] = "auto"
    """What the prompts reveal: some of pose, extent (of the room) and turns (left), or nothing; auto is the checkpoint's own from its views.json, else pose turns."""
    anytime: Annotated[bool, ChangesRecords] = False
    """After each turn, also ask for the answer as if it were the last, outside the conversation; the summary adds the score by turn."""

    @property
    def model_moves(self) -> bool:
        """Whether the model moves the camera."""
        return self.moves == "model" and self.moves_of is None

    @property
    def at_once(self) -> bool:
        """Whether all views are presented in one message."""
        return self.present == "once"


@dataclass(frozen=True)
class ServerSettings(_Section):
    """The servers of --engine openai."""

    base_url: Annotated[tuple[Annotated[str, AfterValidator(_server_url)], ...], _takes("URL ..."), MayChange] = ()
    """With --engine openai, base URLs of one or more servers, such as http://localhost:8000/v1."""
    api_key_env: Annotated[str, AfterValidator(_variable_name), _takes("NAME"), MayChange] = ServerOptions.key_env
    """With --engine openai, the environment variable that holds the API key, if the server needs one."""
    request_timeout: Annotated[float, Gt(0), Lt(LONGEST_TIMEOUT_S), MayChange] = ServerOptions.timeout_s
    """With --engine openai, seconds after which a request is retried."""
    extra_body: Annotated[str, BeforeValidator(_extra_body), _takes("JSON")] = ""
    """With --engine openai, further parameters of each request as a JSON object, such as {"enable_thinking": false}."""
    system_role: bool = ServerOptions.system_role
    """With --engine openai, send the system prompt as a system message; --no-system-role puts it at the beginning of the first user message."""


@dataclass(frozen=True)
class VllmSettings(_Section):
    """The server that --engine vllm starts."""

    vllm_python: Annotated[Path | None, _takes("FILE"), MayChange] = None
    """With --engine vllm, the Python of the environment with vLLM; by default that of scripts/install_vllm.sh."""
    tensor_parallel_size: Annotated[Count, MayChange] = VllmOptions.tensor_parallel_size
    """With --engine vllm, the number of GPUs to split the model over."""
    gpu_memory_utilization: Annotated[Share | None, _takes("FLOAT"), MayChange] = None
    """With --engine vllm, the fraction of each GPU's memory for the server (by default vLLM's own), or on a CPU the fraction of the machine's memory (by default half of what is free)."""
    max_model_len: Annotated[Count | None, _takes("N"), MayChange] = None
    """With --engine vllm, the maximum context length in tokens; by default enough for --steps."""


@dataclass(frozen=True)
class JudgeSettings(_Section):
    """The language model that marks answers in free text at the end of a run."""

    judge: Annotated[str | None, _takes("MODEL"), MayChange] = None
    """At the end of the run, have this model mark the answers in free text that have no mark yet; "roomscout rescore" does so later."""
    judge_url: Annotated[Annotated[str, AfterValidator(_judge_url)], _takes("URL"), MayChange] = JUDGE_URL
    """With --judge, the base URL of its OpenAI-compatible server."""
    judge_key_env: Annotated[str, AfterValidator(_judge_key_env), _takes("NAME"), MayChange] = ServerOptions.key_env
    """With --judge, the environment variable that holds the API key, if the server needs one."""


@dataclass(frozen=True)
class OutputSettings(_Section):
    """Where the run folder goes, its name, and its report."""

    log_root: Annotated[Path, _takes("DIR"), MayChange] = LOG_ROOT
    """The folder in which to create run folders."""
    name: Annotated[Annotated[str, AfterValidator(_run_name)] | None, _takes("NAME"), MayChange] = None
    """Name the run: its folder below --log-root, and its title in pages; by default the folder is named by the time."""
    report: Annotated[bool, MayChange] = True
    """At the end of a run of several questions or of --ply, write report.html into its folder, to look at in a browser."""
    failures: Annotated[bool, MayChange] = True
    """At the end of a run about scans with known boxes of objects, work out whether wrong answers ever saw the objects of their questions."""


@dataclass(frozen=True)
class ClusterSettings(_Section):
    """Which part of the run to answer, or the cluster that answers all parts."""

    shard: Annotated[Annotated[str, AfterValidator(_part)] | None, _takes("I/N")] = None
    """Answer only part I of N, which consists of whole scenes; "roomscout merge" makes one run of the parts."""
    ray: Annotated[bool, MayChange] = False
    """Answer the parts of the run on a Ray cluster that shares --log-root and the scans; needs the extra "ray" (pip install -e ".[ray]")."""
    ray_address: Annotated[str | None, _takes("HOST:PORT|auto"), MayChange] = None
    """With --ray, the address of the cluster; by default one is started on this machine."""
    replicas: Annotated[Count | Literal["auto"], _takes("N|auto"), MayChange] = "auto"
    """With --ray, the number of workers; auto is one per GPU (per --tensor-parallel-size GPUs), or per machine if the model needs none."""


@dataclass(frozen=True)
class RunConfig:
    """Let a vision-language model explore 3D scans of rooms and answer spatial questions.

    Choose what to run: --batch (many questions), --ply with --question (one question about one scan), --demo (generated
    rooms and the included small model), or --continue (an earlier run).
    """

    what_to_run: Annotated[WhatToRun, _group("main")] = field(default_factory=WhatToRun)
    questions: Annotated[QuestionSettings, _group("question")] = field(default_factory=QuestionSettings)
    views: Annotated[RenderSettings, _group("scan and view")] = field(default_factory=RenderSettings)
    model: Annotated[ModelSettings, _group("model")] = field(default_factory=ModelSettings)
    schedule: Annotated[ScheduleSettings, _group("batch")] = field(default_factory=ScheduleSettings)
    controls: Annotated[ControlSettings, _group("control", "To compare a score with: see docs/controls.md.")] = field(
        default_factory=ControlSettings
    )
    server: Annotated[ServerSettings, _group("server", "Advanced: only with --engine openai.")] = field(
        default_factory=ServerSettings
    )
    vllm: Annotated[VllmSettings, _group("vLLM", "Advanced: only with --engine vllm.")] = field(
        default_factory=VllmSettings
    )
    judge: Annotated[JudgeSettings, _group("judge", "For benchmarks with answers in free text.")] = field(
        default_factory=JudgeSettings
    )
    output: Annotated[OutputSettings, _group("output")] = field(default_factory=OutputSettings)
    cluster: Annotated[ClusterSettings, _group("cluster", "Advanced: for runs on several machines.")] = field(
        default_factory=ClusterSettings
    )

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """The configuration with these settings, by name; raises ConfigError with the flag of each invalid one."""
        return cls(**_validated(settings, flag))

    def having(self, **changes: Any) -> Self:
        """This configuration with these settings, by name, changed; raises ConfigError as `of` does."""
        return self.of(**self.settings | changes)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name."""
        return {name: getattr(getattr(self, section), name) for section, names in SECTIONS.items() for name in names}

    def checked(self) -> Self:
        """This configuration; raises ConfigError if settings conflict. Call it once all of them are known."""
        self._check_question()
        self._check_views_and_steps()
        self._check_controls()
        self._check_plan()
        self._check_engine()
        self._check_judge()
        self._check_what_to_run()
        self._check_cluster()
        return self

    def _check_question(self) -> None:
        what = self.what_to_run
        if what.batch and what.question is not None and Path(what.question).suffix in QUESTION_FILES:
            raise ConfigError(f"--question asks one question; did you mean --questions {what.question}?")
        if what.ply is None and what.question is not None:
            raise ConfigError("--question needs a scan to ask about: add --ply FILE")
        if what.ply is None and what.interactive:
            raise ConfigError("--interactive needs a scan to ask about: add --ply FILE")
        if what.ply is not None and what.question is None and not what.interactive:
            raise ConfigError("--ply needs a question to ask: add --question TEXT, or --interactive to type it")

    def _check_views_and_steps(self) -> None:
        model = self.model
        if model.prompts is not None and not model.asks_model:
            raise ConfigError("--prompts are the words that a model reads: leave it out without a model")
        if self.schedule.refill and self.schedule.max_batched_turns != "all":
            raise ConfigError("--refill keeps the batch full at every turn: it needs --max-batched-turns all")
        if (self.views.renderer == "blind" or self.what_to_run.demo) and self.views.first_view == "sharpness":
            raise ConfigError(
                "--first-view sharpness cannot choose among grey views: leave it out with --renderer blind and --demo"
            )
        if model.compile and model.attention == "eager":
            raise ConfigError("--compile does not work with --attention eager: use sdpa")

    def _check_controls(self) -> None:
        controls, steps = self.controls, self.schedule.steps
        mover = f"--moves-of {controls.moves_of}" if controls.moves_of is not None else f"--moves {controls.moves}"
        if controls.moves_of is not None and controls.moves != "model":
            raise ConfigError(f"--moves {controls.moves} and --moves-of both say who moves the camera: choose one")
        if controls.at_once and (controls.model_moves or controls.moves == "none"):
            why = (
                "the model cannot move before it has seen a view" if controls.model_moves else "there is one view only"
            )
            raise ConfigError(
                f"--present once does not work with {mover}, since {why}: add --moves spin, random or coverage, or "
                "--moves-of RUN"
            )
        if controls.min_turns and not controls.model_moves:
            raise ConfigError(f"with {mover} only the answer in the last turn counts: leave out --min-turns")
        if controls.min_turns > steps:
            raise ConfigError(
                f"--min-turns {controls.min_turns} is after the last turn, which is turn {steps}: make it smaller, or "
                "--steps larger"
            )
        if controls.anytime and (controls.at_once or not self.most_moves):
            why = "--present once" if controls.at_once else mover if controls.moves == "none" else "--steps 0"
            raise ConfigError(
                f"--anytime asks after each turn but the last, and with {why} there is one only: leave it out"
            )
        if not controls.translation and (controls.moves in ("spin", "none") or controls.moves_of is not None):
            raise ConfigError(f"--no-translation has no effect with {mover}: leave it out")

    def _check_plan(self) -> None:
        what, model = self.what_to_run, self.model
        if what.check_data and (what.plan or what.ply is not None):
            raise ConfigError("--check-data checks the scans of a benchmark: leave it out with --plan and with --ply")
        if what.plan and what.continue_from is not None:
            raise ConfigError("--plan describes a run before it begins: leave it out with --continue")
        if what.plan_device is None:
            return
        if not what.plan:
            raise ConfigError("--plan-device selects the GPU to plan for: it needs --plan")
        if model.device != "auto" or model.dtype == "float32":
            raise ConfigError("--plan-device plans for that GPU in bfloat16: leave out --device and --dtype float32")
        if model.model.startswith("scripted:"):
            raise ConfigError(f"--plan-device plans for a model on a GPU: {model.model} needs none")

    def _check_engine(self) -> None:
        model, planned = self.model, self.what_to_run.plan_device is not None
        scripted = model.model.startswith("scripted:")
        if model.engine == "openai":
            if not self.server.base_url:
                raise ConfigError(
                    "--engine openai asks a server: it needs --base-url, such as http://localhost:8000/v1"
                )
            if scripted:
                raise ConfigError(f"--engine openai asks a server: leave it out with --model {model.model}")
            if planned:
                raise ConfigError("--plan-device cannot plan for a server: leave it out with --engine openai")
            if unused := self._changed(ONLY_TRANSFORMERS):
                raise ConfigError(f"leave out {', '.join(unused)} with --engine openai: the server controls that")
        elif model.engine == "vllm":
            if scripted:
                raise ConfigError(f"--engine vllm serves a checkpoint: leave it out with --model {model.model}")
            if planned:
                raise ConfigError("--plan-device plans for --engine transformers: leave it out with --engine vllm")
            if unused := self._changed(UNUSED_BY_VLLM):
                raise ConfigError(f"leave out {', '.join(unused)} with --engine vllm: vLLM controls that")
        if model.engine != "vllm" and (unused := self._changed(SECTIONS["vllm"])):
            raise ConfigError(f"{', '.join(unused)} configure a vLLM server: add --engine vllm, or leave them out")
        if model.engine != "openai" and (unused := self._changed(("base_url", "extra_body", "system_role"))):
            raise ConfigError(f"{unused[0]} needs --engine openai: add that, or leave it out")

    def _check_judge(self) -> None:
        if self.judge.judge is None and (unused := self._changed(SECTIONS["judge"])):
            raise ConfigError(
                f"{unused[0]} is about a judge of answers in free text: add --judge MODEL, or leave it out"
            )

    def _check_what_to_run(self) -> None:
        what, asked = self.what_to_run, self.questions
        if what.retry_failed and what.continue_from is None:
            raise ConfigError("--retry-failed retries failed questions of an earlier run: it needs --continue")
        if [what.batch, what.demo, what.ply is not None].count(True) > 1:
            raise ConfigError("choose one of --batch, --demo and --ply with --question")
        filters = any(getattr(asked, name) for name in (*FILTERS, "num_questions"))
        if what.ply is not None and (asked.questions is not None or filters):
            if what.continue_from is not None:
                raise ConfigError("the run asks one question, given with --ply: leave out --questions and its filters")
            raise ConfigError("--ply asks one question: leave out --questions and its filters")
        if what.demo and asked.questions is not None:
            raise ConfigError("--demo makes its own questions: leave out --questions, or use --batch")
        if what.question is None and (what.options or what.question_type or what.ground_truth):
            raise ConfigError("--options, --question-type and --ground-truth need --ply with --question")
        if what.interactive and (what.plan or what.continue_from is not None):
            raise ConfigError("--interactive asks about --ply: leave it out with --plan and --continue")
        if self.output.name is not None and (what.demo or what.interactive):
            raise ConfigError("--name names one run: leave it out with --demo and --interactive, which make several")
        if what.interactive and self.controls.moves_of is not None:
            raise ConfigError("--moves-of repeats the moves of questions asked before: leave it out with --interactive")

    def _check_cluster(self) -> None:
        what, cluster, device = self.what_to_run, self.cluster, self.model.device
        batched = what.ply is None and not what.demo
        if cluster.shard is not None and not batched:
            raise ConfigError("--shard is for --batch: leave it out with --ply and --demo")
        if cluster.ray:
            if not batched:
                raise ConfigError("--ray is for --batch: leave it out with --ply and --demo")
            if cluster.shard is not None:
                raise ConfigError("--ray splits the run into parts itself: leave out --shard")
            if device.startswith("cuda:"):
                raise ConfigError(f"--ray gives each worker a GPU: leave out --device {device}")
        elif what.continue_from is None and (cluster.ray_address is not None or cluster.replicas != "auto"):
            raise ConfigError("--ray-address and --replicas need --ray")

    def _changed(self, names: Sequence[str]) -> list[str]:
        """The flags of the named settings that differ from their defaults."""
        mine, defaults = self.settings, RunConfig().settings
        return [flag(name) for name in names if mine[name] != defaults[name]]

    @property
    def most_moves(self) -> int:
        """The maximum number of moves per question: --steps, or 0 if nobody moves the camera."""
        return 0 if self.controls.moves == "none" else self.schedule.steps

    @property
    def view(self) -> ViewSettings:
        """The settings of views, replies and prompts, with the model's own in place of "auto".

        Raises ModelError if the checkpoint's views.json is damaged.
        """
        own, views, longest = view_settings_of(self.model.model), self.views, self.model.max_new_tokens
        tell = self.controls.tell
        return ViewSettings(
            own.image_size if views.image_size == "auto" else views.image_size,
            own.focal if views.focal == "auto" else views.focal,
            own.max_new_tokens if longest == "auto" else longest,
            own.tell if tell == "auto" else tuple(name for name in TELL_NAMES if name in tell),
        )


_SECTION_TYPES = get_type_hints(RunConfig)
SECTIONS = {section: tuple(each.name for each in fields(kind)) for section, kind in _SECTION_TYPES.items()}
"""The names of the settings in each section."""
SECTION_OF = {name: section for section, names in SECTIONS.items() for name in names}
HINTS = {
    name: hint
    for section in _SECTION_TYPES.values()
    for name, hint in get_type_hints(section, include_extras=True).items()
    if name in SECTION_OF
}
"""The type of each setting, with its bounds and markers."""
ONLY_TRANSFORMERS = ("dtype", "attention", "compile", "kv_reuse", "batch_size", "refill")
"""Settings of models that run in this process."""

UNUSED_BY_VLLM = ("attention", "compile", "batch_size", "refill")
QUESTION_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
FOREIGN = {
    "--limit": "--num-questions",
    "--output-dir": "--log-root",
    "--resume": "--continue",
    "--scan": "--ply",
    "--max-turns": "--steps, which counts moves: a question has one turn more",
    "--max-steps": "--steps",
    "--attn-implementation": "--attention",
    "--tasks": "--benchmark, or --question-types to ask only some types",
    "--task": "--benchmark, or --question-types to ask only some types",
    "--data": "--benchmark, or --questions for a file of your own",
    "--dataset": "--benchmark, or --datasets to ask only some datasets",
    "--output": "--log-root",
    "--output-path": "--log-root",
    "--question-file": "--questions",
    "--results-dir": "--log-root",
    "--save-dir": "--log-root",
    "--log-dir": "--log-root",
    "--mesh": "--ply",
    "--pointcloud": "--ply",
    "--num-steps": "--steps",
    "--max-moves": "--steps",
    "--num-samples": "--num-questions, or --samples for several answers to each",
    "--max-questions": "--num-questions",
    "--max-tokens": "--max-new-tokens",
    "--api-base": "--base-url",
    "--url": "--base-url",
    "--api-key": "--api-key-env, which takes the name of an environment variable",
    "--workers": "--concurrency",
    "--num-workers": "--concurrency",
    "--rooms": "--num-questions, which the demo takes; roomscout rooms FOLDER --rooms N makes rooms",
    "--run-name": "--name",
    "--exp-name": "--name",
    "--work-dir": "--log-root",
    "--tp": "--tensor-parallel-size, with --engine vllm",
    "--width": "--image-size",
    "--height": "--image-size",
    "--gpus": "--tensor-parallel-size, with --engine vllm",
}
"""Flags of other tools, and what has that meaning here."""
FILTERS = ("datasets", "question_types", "scenes", "ids")
"""Settings that filter questions."""


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--continue" if name == "continue_from" else "--" + name.replace("_", "-")


def config_from_dict(values: dict[str, Any], source: str = "") -> RunConfig:
    """A RunConfig from plain values by the names of settings (YAML, JSON or keyword arguments).

    Raises ConfigError naming each invalid key, and `source`, if given.
    """
    try:
        return RunConfig(**_validated(values, _key))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from None


def _key(name: str) -> str:
    """A setting as a key of a YAML file."""
    return flag(name).removeprefix("--").replace("-", "_")


def _validated(values: dict[str, Any], shown: Callable[[str], str]) -> dict[str, Any]:
    """The sections with these values, converted to the types of their settings.

    Raises ConfigError, in which `shown` gives the name of a setting.
    """
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name in values.keys() & SECTION_OF.keys():
        value = values[name]
        is_one = isinstance(value, str | Path) and any(get_origin(each) is tuple for each in alternatives(HINTS[name]))
        keeps = name == "tell" or value == "auto"
        sections[SECTION_OF[name]][name] = (str(value),) if is_one and not keeps else value
    first: dict[str, Any] = {}  # a union has one problem per member
    valid = {}
    for section, given in sections.items():
        try:
            valid[section] = _adapter(section).validate_python(given)
        except ValidationError as error:
            for problem in error.errors():
                first.setdefault(str(problem["loc"][0]), problem)
    problems = [_in_words(problem, name, values[name], shown) for name, problem in first.items()]
    problems += [_unknown(name) for name in values if name not in SECTION_OF]
    if problems:
        raise ConfigError("; ".join(problems))
    return valid


@cache
def _adapter(section: str) -> TypeAdapter[Any]:
    return TypeAdapter(_SECTION_TYPES[section])


def _in_words(problem: Any, name: str, value: Any, shown: Callable[[str], str]) -> str:
    """What is wrong with a setting, in the words of the command line."""
    if problem["type"] == "value_error":  # raised by a function above
        return problem["msg"].removeprefix("Value error, ")
    takes = "a finite number" if problem["type"] == "finite_number" else accepted(HINTS[name])
    got = " ".join(map(str, value)) if isinstance(value, tuple) else value
    return f"{shown(name)} takes {takes}, got {got if shown is flag else repr(value)}"


def _unknown(name: str) -> str:
    """Says that there is no such setting, and suggests a similar name."""
    near = get_close_matches(_key(name), map(_key, SECTION_OF), n=1)
    return f"there is no setting {_key(name)}; " + (f"did you mean {near[0]}?" if near else "--help lists all of them")


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """The settings as JSON values by name, which `config_from_dict` reads back."""
    return json.loads(json.dumps(config.settings, default=argument_text))


def accepted(hint: Any) -> str:
    """The values of a setting's type in words, such as "a whole number of at least 1 or auto"."""
    words = _alternatives(hint, ())
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def alternatives(hint: Any) -> list[Any]:
    """The types of a setting's values: the members of a union, or the type alone, without what annotates them."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [each for member in get_args(hint) for each in alternatives(member)]
    return [hint]


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
        return (
            ["a list of texts"] if get_args(hint)[-1] is ... else ["two whole numbers of at least 1 (width and height)"]
        )
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
