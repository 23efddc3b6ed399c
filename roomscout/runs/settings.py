"""All settings of a run, by section: flags, YAML files, run.json and Python's arguments are derived from them.

To add a setting, declare it in a section below: its type with its bounds, `setting(default, role, ...)`, and its help
as the docstring. Read it where it has an effect, and if it goes not with others, add a line to CONFLICTS in
agent/conflicts.py. Nothing else has to be told: its role says whether it may change when a run is resumed, and whether
runs that differ in it are comparable.

Every setting has a name of its own, so flags, YAML files, run.json and Python leave sections out.
"""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_type_hints

from annotated_types import Ge, Gt, Lt
from pydantic import ConfigDict

from roomscout import UpAxis
from roomscout.base.shots import VIEW
from roomscout.base.wording import flag
from roomscout.data.benchmarks import DEFAULT
from roomscout.data.judged import JUDGE_URL
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.gpus import GpuName
from roomscout.models.vllm import VllmOptions
from roomscout.rendering.registry import RENDERER_NAMES
from roomscout.runs import LOG_ROOT
from roomscout.runs.movers import MOVERS
from roomscout.runs.setting_types import (
    NO_GPUS,
    Annotators,
    Count,
    Device,
    ExtraBody,
    Given,
    Gpus,
    JudgeUrl,
    PartName,
    RevisionName,
    RunName,
    See,
    ServerUrl,
    Share,
    Tell,
    VariableName,
)

MAX_BATCHED_TURNS = 4
MAX_BATCH_SIZE = 64
"""Larger batches gain little, since a turn lasts as long as its longest reply."""
NUM_STEPS = 8
CAMERA_HEIGHT_M = 1.6
CAMERA_PITCH_DEG = -15.0
"""Slightly downward: a level camera at eye height sees the floor only beyond 2 m, and in small rooms mostly walls."""
LONGEST_TIMEOUT_S = 2_000_000
"""The operating system waits no longer."""
if TYPE_CHECKING:
    RendererName = str
    MoverName = str
else:
    RendererName = Literal[*RENDERER_NAMES]
    MoverName = Literal["model", *MOVERS]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
EngineName = Literal["transformers", "openai", "vllm"]
HERE_OR_VLLM: tuple[EngineName, ...] = ("transformers", "vllm")


class Role(Enum):
    """What a setting decides. Only CALL, DISPLAY, SPEED, PLACE and OUTPUT may change when a run is resumed.

    SPEED changes answers only through rounding, which depends on device, kernels and batch size.
    """

    CALL = "what one call of the command does"
    DISPLAY = "what one call of the command prints: a resumed run does not keep it"
    QUESTION = "which questions are asked"
    SCORING = "how answers are counted and scored"
    ANSWERER = "what answers: runs may differ in it, since that is what one compares"
    ANSWER = "under which conditions it answers: only runs with equal ones are comparable"
    RECORD = "what is recorded, and no answer: comparable, but a run has one kind of records"
    SPEED = "speed and memory"
    PLACE = "where something is"
    OUTPUT = "what is written of the answers at the end, and where"


CALL, DISPLAY, QUESTION, SCORING, ANSWERER, ANSWER, RECORD, SPEED, PLACE, OUTPUT = Role


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its type, default and help."""

    role: Role
    values: str = ""
    """How the help shows its values."""
    engines: tuple[EngineName, ...] = ()
    """The engines that use it, and without which it is refused; empty if it goes with all."""
    study: Literal["cell", "call", "never"] = "cell"
    """Whether a study passes it to its runs, takes it for one call, or refuses it."""
    resolved: bool = False
    """Whether its "auto" is resolved when a run begins, and saved as resolved."""
    earlier: Any = None
    """What runs of versions without it ran with, as a JSON value, if that is not its default."""


def setting(default: Any, role: Role, values: str = "", **more: Any) -> Any:
    """The field of a setting; `more` are further fields of Setting."""
    return field(default=default, metadata={"setting": Setting(role, values, **more)})


@dataclass(frozen=True)
class Section:
    """Settings that are used together, with a title, and advice on when to use them, for the help."""

    __pydantic_config__: ClassVar = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False)
    title: ClassVar[str]
    advice: ClassVar[str] = ""

    @classmethod
    def helps(cls) -> dict[str, str]:
        """The help of each setting by name: the docstrings below them."""
        (parsed,) = ast.parse(inspect.getsource(cls)).body
        assert isinstance(parsed, ast.ClassDef)
        return {
            ast.unparse(each.target): " ".join(ast.literal_eval(below.value).split())
            for each, below in pairwise(parsed.body)
            if isinstance(each, ast.AnnAssign) and isinstance(below, ast.Expr)
        }


@dataclass(frozen=True)
class WhatToRun(Section):
    """What the command does, and the question of --ply."""

    title: ClassVar = "main"
    batch: bool = setting(False, QUESTION, study="call")
    """Answer the questions of --questions, or those of the benchmark without it."""
    demo: bool = setting(False, QUESTION, study="call")
    """Compare the included small model, with and without sight, on generated rooms."""
    continue_from: str | None = setting(None, CALL, "recent|FOLDER", study="never")
    """Resume the newest run below --log-root, or the run in this folder."""
    retry_failed: bool = setting(False, CALL, study="call")
    """With --continue, also retry failed questions."""
    check_data: bool = setting(False, CALL, study="never")
    """Print how many questions have a scan, then stop."""
    plan: bool = setting(False, CALL, study="never")
    """Print the size, memory, batch size and expected time of the run, then stop; loads no weights."""
    plan_device: GpuName | None = setting(None, CALL, "|".join(get_args(GpuName)), study="never")
    """With --plan, plan for this GPU in bfloat16 from its datasheet instead of measuring this machine."""
    ply: Path | None = setting(None, QUESTION, "FILE", study="never")
    """The scan to ask about: a .ply, .pcd, .glb, .gltf or .obj file."""
    question: str | None = setting(None, QUESTION, "TEXT", study="never")
    """The question to ask about --ply."""
    options: tuple[str, ...] = setting((), QUESTION, "TEXT ...", study="never")
    """The choices of --question; without them the answer is a number or free text."""
    question_type: str | None = setting(None, QUESTION, "TYPE", study="never")
    """The benchmark's type of --question; by default inferred from its wording."""
    ground_truth: str | None = setting(None, QUESTION, "TEXT", study="never")
    """The correct answer to --question, for scoring."""
    interactive: bool = setting(False, CALL, study="never")
    """Ask about --ply question after question, with the model and the scan kept in memory."""

    @property
    def has_work(self) -> bool:
        """Whether the settings say what to run."""
        shows = self.check_data or self.plan
        asks_one = self.ply is not None or self.question is not None
        return self.batch or self.demo or asks_one or shows or self.continue_from is not None


@dataclass(frozen=True)
class QuestionSettings(Section):
    """Which questions of a benchmark to ask."""

    title: ClassVar = "question"
    benchmark: str = setting(DEFAULT, SCORING, "NAME|FOLDER|FILE.py:NAME")
    """The benchmark that defines question types, scores and their label: rooms (made on this machine), vsi-bench,
    vsi-bench-debiased, revsi, sqa3d, openeqa, a folder with a benchmark.yaml, or your own Benchmark record as
    path/to/file.py:NAME."""
    questions: Path | None = setting(None, PLACE, "FILE")
    """A .jsonl, .json, .csv, .tsv or .parquet file with the benchmark's columns, instead of its source on the hub."""
    datasets: tuple[str, ...] = setting((), QUESTION, "NAME ...")
    """Only questions of these datasets."""
    question_types: tuple[str, ...] = setting((), QUESTION, "TYPE ...")
    """Only questions of these types; types that a scan cannot answer are left out unless named here."""
    scenes: tuple[str, ...] = setting((), QUESTION, "SCENE ...")
    """Only questions of these scenes."""
    ids: tuple[str, ...] = setting((), QUESTION, "ID ...")
    """Only questions with these ids."""
    num_questions: Count | None = setting(None, QUESTION, "N")
    """Only the first N questions that pass the other filters."""
    samples: Count = setting(1, SCORING, "K")
    """Answer every question K times with different random seeds; the summary adds pass@k and the majority vote."""


@dataclass(frozen=True)
class RenderSettings(Section):
    """Where the scans are, and how views of them are drawn."""

    title: ClassVar = "scan and view"
    scan_root: Path = setting(Path("scans"), PLACE, "DIR")
    """The folder of arkitscenes/, scannet/ and scannetpp/, one of these, or a flat folder of <scene>.ply files."""
    renderer: RendererName = setting("auto", ANSWER, resolved=True)
    """Renderer of the views (blind draws grey); auto is pyrender if it finds a GPU, else raycast on the CPU; for
    Gaussian splats, gsplat or, on the CPU, splats."""
    first_view: Literal["visibility", "sharpness"] = setting("visibility", ANSWER)
    """Choose the first of four headings by how much surface it shows, or by how sharp its image is."""
    up_axis: UpAxis = setting("auto", ANSWER)
    """The axis of the scan files that points up, -y if y points down; auto is y for GLB and glTF and z for all others.
    """
    scale: Annotated[float, Gt(0)] = setting(1.0, ANSWER)
    """Metres per unit of the scan files, such as 0.001 if they are in millimetres."""
    image_size: tuple[Count, Count] | Literal["auto"] = setting("auto", ANSWER, "W H|auto", resolved=True)
    """Width and height of the views in pixels; auto is the checkpoint's own from its views.json, else a size that suits
    its family, 640 480 for Qwen3-VL. Frames of a video have at most as many pixels."""
    focal: Annotated[float, Ge(1)] | Literal["auto"] = setting("auto", ANSWER, "FLOAT|auto", resolved=True)
    """Focal length in pixels; auto is the checkpoint's own from its views.json, else 300."""
    camera_height: Annotated[float, Gt(0)] = setting(CAMERA_HEIGHT_M, ANSWER)
    """Initial height of the camera above the floor in metres, lower in low rooms."""
    camera_pitch: Annotated[float, Gt(-90), Lt(90)] = setting(CAMERA_PITCH_DEG, ANSWER)
    """Pitch of the camera in degrees; negative looks down."""
    see: See = setting((VIEW,), ANSWER, "NAME ...")
    """The images of each turn: the view (rgb), always the first, and depth, map (what was seen so far, from above),
    plan (the whole room from above) or marks (numbers on surfaces, which actions may name), in the order given."""
    scene_cache_gib: Annotated[float, Ge(0)] = setting(4.0, SPEED)
    """Memory in GiB for scans that no question in progress uses."""


@dataclass(frozen=True)
class ModelSettings(Section):
    """The model or policy that decides, and how it generates."""

    title: ClassVar = "model"
    model: str = setting("Qwen/Qwen3-VL-8B-Instruct", ANSWERER, "NAME|PATH")
    """Hub id or folder of a Qwen3-VL, Qwen2.5-VL, Qwen3.5, InternVL3.5 or LLaVA-OneVision checkpoint, "embedded" (the
    included small model), "scripted:random" (no model), or with --engine openai the server's name for a model."""
    engine: EngineName = setting("transformers", ANSWERER)
    """Run the model in this process (transformers), ask servers at --base-url (openai), or start a vLLM server for the
    run (vllm)."""
    revision: RevisionName | None = setting(None, ANSWERER, "NAME", engines=HERE_OR_VLLM)
    """The branch, tag or commit of a hub checkpoint, for weights, configuration, tokenizer and chat template."""
    adapter: Path | None = setting(None, ANSWERER, "FOLDER", engines=HERE_OR_VLLM)
    """A PEFT adapter of the model, as "roomscout train" writes it, whose weights are added to those of the model."""
    prompts: Path | None = setting(None, ANSWER, "FILE.yaml")
    """A YAML file with templates of what the model reads; by default the checkpoint's own prompts.yaml, else the
    built-in ones."""
    policy: str | None = setting(None, ANSWERER, "NAME|MODULE:CLASS")
    """A policy to use instead of a model: random, human (a person, as by "roomscout play"), or your own class as
    module:Class or path/to/file.py:Class."""
    dtype: DtypeName = setting("auto", ANSWERER, resolved=True, engines=HERE_OR_VLLM)
    """Data type of the weights; auto is bfloat16 on CUDA and float32 elsewhere."""
    quantize: Literal["4bit", "8bit"] | None = setting(None, ANSWERER, engines=("transformers",))
    """Quantize the weights as they are loaded, to a quarter or half of bfloat16 (needs bitsandbytes); saves memory, not
    time."""
    device: Device = setting("auto", SPEED, "DEVICE")
    """The device of the model: auto, cpu, cuda or cuda:N."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = setting("auto", SPEED, engines=("transformers",))
    """Attention kernels; auto is sdpa, and flash_attention_2 applies to the image encoder only and needs CUDA."""
    max_new_tokens: Count | Literal["auto"] = setting("auto", ANSWER, "N|auto", resolved=True)
    """Maximum length of a reply in tokens; auto is the checkpoint's own from its views.json, else 512, and with
    --present video that of the benchmark's official code, 16 for VSI-Bench."""
    temperature: Annotated[float, Ge(0)] = setting(ModelOptions.temperature, ANSWER)
    """Sampling temperature; 0 decodes greedily, and --seed makes samples reproducible on the same type of device."""
    seed: Annotated[int, Ge(0)] = setting(ModelOptions.seed, ANSWERER)
    """Random seed of sampling, of --demo's rooms and of scripted:random."""
    constrained: bool = setting(ServerOptions.constrained, ANSWER)
    """Constrain replies to well-formed actions, by xgrammar in this process or by a JSON schema at a server."""
    memory_fraction: Share = setting(ModelOptions.memory_fraction, SPEED, "FLOAT", engines=HERE_OR_VLLM)
    """The fraction of each GPU's memory that the run may take in all; on a CPU, of the machine's memory."""
    compile: bool = setting(ModelOptions.compile, SPEED, engines=("transformers",))
    """Compile decoding steps, which can take minutes and pays off in long runs; needs a C++ compiler, and Triton on
    CUDA."""
    tiles_per_view: Count = setting(ModelOptions.tiles_per_view, ANSWERER)
    """Maximum number of tiles into which InternVL cuts a view, at 256 tokens each."""
    kv_reuse: bool = setting(ModelOptions.kv_reuse, SPEED, engines=HERE_OR_VLLM)
    """Keep keys and values between turns, so that each turn computes only new tokens."""

    logprobs: bool = setting(ModelOptions.logprobs, RECORD, engines=("transformers",))
    """Record the log-probability of each token of a reply, as the model gives it before --temperature and grammars."""

    @property
    def asks_model(self) -> bool:
        """Whether a model decides, rather than a policy of code."""
        return self.policy is None and not self.model.startswith("scripted:")

    @property
    def loads_weights(self) -> bool:
        """Whether a checkpoint is loaded on this machine, in this process or by vLLM."""
        return self.asks_model and self.engine != "openai"


@dataclass(frozen=True)
class ScheduleSettings(Section):
    """How many turns a question has, and which questions take theirs together."""

    title: ClassVar = "batch"
    steps: Annotated[int, Ge(0)] = setting(NUM_STEPS, ANSWER)
    """Maximum number of moves per question; the turn after the last one must answer."""
    max_batched_turns: Annotated[int, Ge(0)] | Literal["all"] = setting(MAX_BATCHED_TURNS, SPEED, "N|all")
    """Number of turns in lockstep batches; later turns run --concurrency questions at a time."""
    batch_size: Count | Literal["auto"] = setting("auto", SPEED, "N|auto", engines=("transformers",))
    """Questions per batch; auto is as many as fit in memory, at most --max-batch-size."""
    max_batch_size: Count = setting(MAX_BATCH_SIZE, SPEED, "N", engines=("transformers",))
    """The largest batch that --batch-size auto makes."""
    refill: bool = setting(False, SPEED, engines=("transformers",))
    """Replace each finished question of a batch with a waiting one; needs --max-batched-turns all."""
    concurrency: Count | Literal["auto"] = setting("auto", SPEED, "N|auto")
    """Questions at a time after the batched turns (auto is the whole batch), or at every turn with --engine openai or
    vllm (auto is 32)."""

    @property
    def last_batched_turn(self) -> int:
        """Index of the last batched turn; -1 if there is none."""
        return self.steps if self.max_batched_turns == "all" else min(self.max_batched_turns - 1, self.steps)


@dataclass(frozen=True)
class ControlSettings(Section):
    """Who moves the camera, and what the model is shown and told: controls, with which a score can be compared."""

    title: ClassVar = "control"
    advice: ClassVar = "To compare a score with: see docs/comparing.md."
    moves: MoverName = setting("model", ANSWER)
    """Who moves the camera: the model, equal turns in place (spin), random moves, moves to the pose that shows the most
    new surface (coverage), or nobody (none, the first view only)."""
    moves_of: Path | None = setting(None, ANSWER, "RUN")
    """Repeat the camera's moves in another run, up to --steps of each question."""
    present: Literal["turns", "once", "video"] = setting("turns", ANSWER)
    """Present one view per turn, all views in one message after the last move (once), or instead of views of the scan
    frames of the benchmark's video, with its official prompt (video)."""
    videos: Path | None = setting(None, PLACE, "DIR")
    """With --present video, the folder of the benchmark's videos, such as <dataset>/<scene>.mp4."""
    frames_of: Path | None = setting(None, PLACE, "DIR")
    """With --present video, a folder of frames instead of videos: the images in <dataset>/<scene>/, by natural order of
    their names."""
    frames: Count | Literal["auto"] = setting("auto", ANSWER, "N|auto", resolved=True)
    """With --present video, how many frames are shown, evenly spaced with the first and the last; auto is as many as
    the benchmark's official code shows, 32 for VSI-Bench."""
    keep_views: Count | None = setting(None, ANSWER, "K")
    """Show the images of the first turn and of the last K turns only; of earlier turns, say what the move did and where
    the camera was."""
    given: Given = setting((), ANSWER, "NAME ...")
    """Replace parts of the task by the truth: the camera's path, which shows what each question needs (path), and as
    text the boxes of the objects in view so far (boxes-seen) or of all (boxes); needs known boxes."""
    video_input: Literal["frames", "native"] = setting("frames", ANSWER)
    """With --present video and --engine transformers, show frames as images, or as one video to models that have such
    an input (native)."""
    min_turns: Annotated[int, Ge(0)] = setting(0, ANSWER, "N")
    """Count no answer before turn N, the first of which is turn 0."""
    actions: str = setting("metric", ANSWER, "NAME|FILE.py:NAME")
    """How the model says how to move the camera: in degrees and metres (metric, or metric-pitch to look up and down
    too), in steps of a fixed size (discrete), by points of the view to turn to, look at or go to (pixel), in any of
    these with measuring between points (tools, tools-metric-pitch, tools-discrete, tools-pixel), or by your own
    ActionSpace as path/to/file.py:NAME."""
    translation: bool = setting(True, ANSWER)
    """Let the camera move; --no-translation lets it only turn in place."""
    tell: Tell = setting("auto", ANSWER, "NAME ...|auto", resolved=True, earlier=["pose", "extent", "turns"])
    """What the prompts reveal: some of pose, extent (of the room) and turns (left), or nothing; auto is the
    checkpoint's own from its views.json, else pose turns."""
    anytime: bool = setting(False, RECORD)
    """After each turn, also ask for the answer as if it were the last, outside the conversation; the summary adds the
    score by turn."""

    @property
    def model_moves(self) -> bool:
        """Whether the model moves the camera."""
        return self.moves == "model" and self.moves_of is None and "path" not in self.given

    @property
    def boxes(self) -> str:
        """Which boxes of objects the model reads, boxes or boxes-seen; empty if none."""
        return next((name for name in self.given if name != "path"), "")

    @property
    def on_video(self) -> bool:
        """Whether frames of a video are presented instead of views of a scan."""
        return self.present == "video"

    @property
    def at_once(self) -> bool:
        """Whether all views are presented in one message."""
        return self.present == "once"


@dataclass(frozen=True)
class ServerSettings(Section):
    """The servers of --engine openai."""

    title: ClassVar = "server"
    advice: ClassVar = "Advanced: only with --engine openai."
    base_url: tuple[ServerUrl, ...] = setting((), PLACE, "URL ...", engines=("openai",))
    """With --engine openai, base URLs of one or more servers, such as http://localhost:8000/v1."""
    api_key_env: VariableName = setting(ServerOptions.key_env, PLACE, "NAME")
    """With --engine openai, the environment variable that holds the API key, if the server needs one."""
    request_timeout: Annotated[float, Gt(0), Lt(LONGEST_TIMEOUT_S)] = setting(ServerOptions.timeout_s, SPEED)
    """With --engine openai, seconds after which a request is retried."""
    extra_body: ExtraBody = setting("", ANSWER, "JSON", engines=("openai",))
    """With --engine openai, further parameters of each request as a JSON object, such as {"enable_thinking": false}."""
    system_role: bool = setting(ServerOptions.system_role, ANSWER, engines=("openai",))
    """With --engine openai, send the system prompt as a system message; --no-system-role puts it at the beginning of
    the first user message."""


@dataclass(frozen=True)
class VllmSettings(Section):
    """The server that --engine vllm starts."""

    title: ClassVar = "vLLM"
    advice: ClassVar = "Advanced: only with --engine vllm."
    vllm_python: Path | None = setting(None, PLACE, "FILE", engines=("vllm",))
    """With --engine vllm, the Python of the environment with vLLM; by default that of scripts/install_vllm.sh."""
    tensor_parallel_size: Count | Literal["auto"] = setting(
        VllmOptions.tensor_parallel_size, SPEED, "N|auto", engines=("vllm",)
    )
    """With --engine vllm, the number of GPUs to split the model over; auto is the smallest power of two that fits."""
    max_model_len: Count | None = setting(None, SPEED, "N", engines=("vllm",))
    """With --engine vllm, the maximum context length in tokens; by default enough for --steps."""


@dataclass(frozen=True)
class JudgeSettings(Section):
    """The language model that marks answers in free text at the end of a run."""

    title: ClassVar = "judge"
    advice: ClassVar = "For benchmarks with answers in free text."
    judge: str | None = setting(None, OUTPUT, "MODEL")
    """At the end of the run, have this model mark the answers in free text that have no mark yet; "roomscout rescore"
    does so later."""
    judge_url: JudgeUrl = setting(JUDGE_URL, OUTPUT, "URL")
    """With --judge, the base URL of its OpenAI-compatible server."""
    judge_key_env: VariableName = setting(ServerOptions.key_env, OUTPUT, "NAME")
    """With --judge, the environment variable that holds the API key, if the server needs one."""


@dataclass(frozen=True)
class PlaySettings(Section):
    """The people who answer, and the page on which they do."""

    title: ClassVar = "people"
    advice: ClassVar = "Only with --policy human."
    annotator: Annotators = setting((), ANSWERER, "NAME ...", study="never")
    """The people who answer, by names without blanks, such as initials. The answers are dealt out to them: with as many
    --samples as people, everybody answers each question; with 1, each question goes to one of them."""
    host: str = setting("127.0.0.1", PLACE, "ADDRESS", study="never")
    """The address at which the page is served, such as 0.0.0.0 for all of this computer's; the page then needs a token,
    which is in the address that is printed."""
    port: Annotated[int, Ge(0), Lt(65536)] = setting(8766, PLACE, study="never")
    """The port of the page; 0 for any free one."""


@dataclass(frozen=True)
class OutputSettings(Section):
    """Where the run folder goes, its name, its report, and what it may cost."""

    title: ClassVar = "output"
    log_root: Path = setting(LOG_ROOT, OUTPUT, "DIR", study="never")
    """The folder in which to create run folders."""
    name: RunName | None = setting(None, OUTPUT, "NAME", study="never")
    """Name the run: its folder below --log-root, and its title in pages; by default the folder is named by the time."""
    report: bool = setting(True, OUTPUT)
    """At the end of a run of several questions or of --ply, write report.html into its folder, to look at in a browser.
    """
    failures: bool = setting(True, OUTPUT)
    """At the end of a run about scans with known boxes of objects, work out whether wrong answers ever saw the objects
    of their questions."""
    prices: Path | None = setting(None, OUTPUT, "FILE.yaml")
    """A YAML file with prices per million tokens, such as MODEL: {input: 1.0, output: 4.0, cached_input: 0.1}: the
    summary, the report and --plan then say what the run costs."""
    budget: Annotated[float, Gt(0)] | None = setting(None, OUTPUT, "AMOUNT")
    """With --prices, begin no more questions once the run has cost this much; resume it with a larger amount."""
    verbose: bool = setting(False, DISPLAY, study="never")
    """Print all that run.log has, with times: each reply and move too."""
    quiet: bool = setting(False, DISPLAY, study="never")
    """Print only results, warnings and errors, and where the run folder is; show no progress."""


@dataclass(frozen=True)
class ClusterSettings(Section):
    """Which part of the run to answer, or the cluster that answers all parts."""

    title: ClassVar = "cluster"
    advice: ClassVar = "Advanced: for runs on several machines."
    shard: PartName | None = setting(None, QUESTION, "I/N", study="call")
    """Answer only part I of N, which consists of whole scenes; "roomscout merge" makes one run of the parts."""
    gpus: Gpus = setting((NO_GPUS,), SPEED, "all|0,1|none")
    """Answer parts of the run in one process for each of these GPUs (by number, as PyTorch counts, or UUID), or with
    --device cpu in as many processes on the CPU, and merge them."""
    ray: bool = setting(False, SPEED)
    """Answer the parts of the run on a Ray cluster that shares --log-root and the scans; needs the extra "ray" (pip
    install -e ".[ray]")."""
    ray_address: str | None = setting(None, PLACE, "HOST:PORT|auto")
    """With --ray, the address of the cluster; by default one is started on this machine."""
    replicas: Count | Literal["auto"] = setting("auto", SPEED, "N|auto")
    """With --ray, the number of workers; auto is one per GPU (per --tensor-parallel-size GPUs), or per machine if the
    model needs none."""

    @property
    def on_gpus(self) -> bool:
        """Whether processes on this machine answer parts of the run."""
        return self.gpus != (NO_GPUS,)


SECTION_TYPES: dict[str, type[Section]] = {
    "what_to_run": WhatToRun,
    "questions": QuestionSettings,
    "views": RenderSettings,
    "model": ModelSettings,
    "schedule": ScheduleSettings,
    "controls": ControlSettings,
    "server": ServerSettings,
    "vllm": VllmSettings,
    "judge": JudgeSettings,
    "play": PlaySettings,
    "output": OutputSettings,
    "cluster": ClusterSettings,
}
"""The sections by their name in RunConfig, in the order of the help."""
_FIELDS = {each.name: each for kind in SECTION_TYPES.values() for each in fields(kind)}
SETTINGS: dict[str, Setting] = {name: each.metadata["setting"] for name, each in _FIELDS.items()}
SECTIONS = {section: tuple(each.name for each in fields(kind)) for section, kind in SECTION_TYPES.items()}
"""The names of the settings in each section."""
SECTION_OF = {name: section for section, names in SECTIONS.items() for name in names}
HINTS = {
    name: hint
    for kind in SECTION_TYPES.values()
    for name, hint in get_type_hints(kind, include_extras=True).items()
    if name in SETTINGS
}
"""The type of each setting, with its bounds."""


def names_of(*roles: Role) -> tuple[str, ...]:
    """The names of the settings with these roles, as declared."""
    return tuple(name for name, each in SETTINGS.items() if each.role in roles)


ANSWER_SETTINGS = names_of(QUESTION, SCORING, ANSWERER, ANSWER)
"""Settings that could change an answer or its score."""
RECORD_SETTINGS = names_of(RECORD)
DISPLAY_SETTINGS = names_of(DISPLAY)
FILTERS = tuple(name for name in SECTIONS["questions"] if SETTINGS[name].role is QUESTION)
"""Settings that filter questions."""


def default_of(name: str) -> Any:
    """The default of a setting."""
    return _FIELDS[name].default


def earlier(name: str) -> Any:
    """What runs of versions without a setting ran with, as a JSON value; None for a name that is not a setting."""
    if name not in SETTINGS:
        return None
    return _as_json(default_of(name)) if SETTINGS[name].earlier is None else SETTINGS[name].earlier


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """The flags that give these settings, without those that name or place a run folder."""
    words = []
    for name, value in settings.items():
        if name not in ("continue_from", "log_root", "name"):
            switch = flag(name, value if isinstance(value, bool) else None)
            given = value if isinstance(value, list) else [value]
            words += [switch] if isinstance(value, bool) else [switch, *map(str, given)]
    return words


def flags_giving(saved: Mapping[str, Any]) -> list[str]:
    """The flags that give the settings of a run.json, without those that have their defaults.

    Raises ValueError if this version does not know one of them.
    """
    if unknown := [name for name, value in saved.items() if name not in SETTINGS and value is not None]:
        raise ValueError(f"run.json: there is no setting {unknown[0]}")
    values = {name: saved.get(name, earlier(name)) for name in SETTINGS}
    return flags_of({name: value for name, value in values.items() if value != _as_json(default_of(name))})
