"""All settings, by section: flags, YAML files, run.json and Python's arguments are derived from them.

To add a setting, declare it in a section below: its type with its bounds, `setting(default, role, ...)` with what it
needs and excludes, and its help as the docstring, where {choices} stands for those of its registry. Read it where a
part of a run is planned. Its role says whether it may change when a run is resumed, and whether runs that differ in it
are comparable.

Every setting has a name of its own, so `Settings`, flags, YAML files and run.json leave sections out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from roomscout import UpAxis
from roomscout.agent import MAX_BATCHED_TURNS
from roomscout.agent.actions import SPACES
from roomscout.agent.play import LANGUAGES
from roomscout.agent.policies import CONTROLS
from roomscout.base.shots import VIEW
from roomscout.data.benchmark_names import DEFAULT, benchmark_names
from roomscout.edge import types
from roomscout.edge.declaring import EngineName, Role, Rules, Section, setting
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.vllm import VllmOptions
from roomscout.rendering.modalities import MODALITY_NAMES
from roomscout.rendering.registry import RENDERER_NAMES, RENDERERS
from roomscout.runs import LOG_ROOT
from roomscout.runs.movers import MOVERS, TURNS_ONLY

NUM_STEPS = 8
HERE_OR_VLLM: tuple[EngineName, ...] = ("transformers", "vllm")
FILTERS = ("datasets", "question_types", "scenes", "ids", "num_questions")  # settings that filter questions
VIDEO = ("present=video",)  # with what settings of exploring a scan have no meaning
WITHOUT_MODEL = ("policy!=human",)  # what decides without reading a prompt
ONE_TURN = ("steps=0", "moves=none", "present=once", *VIDEO)  # with what a question has one turn only
ABOUT_MODELS = (
    *("engine", "dtype", "quantize", "device", "temperature!=0.0", "constrained", "memory_fraction", "compile"),
    *("tiles_per_view", "logprobs", "max_batched_turns", "batch_size", "max_batch_size", "concurrency"),
    *("base_url", "api_key_env", "request_timeout", "extra_body", "tensor_parallel_size"),
)
"""Settings that mean nothing to a person. The length of replies is one of the conditions."""


def family_names() -> Iterable[str]:
    """The supported model families."""
    from roomscout.models.transformers.families import FAMILIES

    return (each.name for each in FAMILIES)


@dataclass(frozen=True)
class QuestionSettings(Section):
    """Which questions of a benchmark to ask."""

    title: ClassVar = "question"
    benchmark: str = setting(DEFAULT, Role.SCORING, "NAME|FOLDER|FILE.py:NAME", choices=benchmark_names)
    """The benchmark that defines question types, scores and their label: {choices}, a folder with a benchmark.yaml, or
    your own Benchmark record as path/to/file.py:NAME."""
    questions: Path | None = setting(None, Role.PLACE, "FILE", for_many=True)
    """A .jsonl, .json, .csv, .tsv or .parquet file with the benchmark's columns, instead of its source on the hub."""
    datasets: tuple[str, ...] = setting((), Role.QUESTION, "NAME", for_many=True)
    """Only questions of these datasets."""
    question_types: tuple[str, ...] = setting((), Role.QUESTION, "TYPE", for_many=True)
    """Only questions of these types; types that a scan cannot answer are left out unless named here."""
    scenes: tuple[str, ...] = setting((), Role.QUESTION, "SCENE", for_many=True)
    """Only questions of these scenes."""
    ids: tuple[str, ...] = setting((), Role.QUESTION, "ID", for_many=True)
    """Only questions with these ids."""
    num_questions: types.Count | None = setting(None, Role.QUESTION, "N", for_many=True)
    """Only the first N questions that pass the other filters."""
    samples: types.Count = setting(1, Role.SCORING, "K")
    """Answer every question K times with different random seeds; the summary adds pass@k and the majority vote."""


@dataclass(frozen=True)
class RenderSettings(Section):
    """Where the scans are, and how views of them are drawn."""

    title: ClassVar = "scan and view"
    scan_root: Path = setting(Path("scans"), Role.PLACE, "DIR")
    """The folder of arkitscenes/, scannet/ and scannetpp/, one of these, or a flat folder of <scene>.ply files."""
    renderer: Literal[*RENDERER_NAMES] = setting(  # type: ignore[valid-type]
        "auto",
        Role.ANSWER,
        resolved=True,
        when={"blind": Rules(unless=VIDEO)},
        choices=lambda: [f"{name} ({each.words})" for name, each in RENDERERS.items()],
    )
    """Renderer of the views: {choices}; auto is pyrender if it finds a GPU, else raycast; for Gaussian splats, gsplat
    or, on the CPU, splats."""
    up_axis: UpAxis = setting("auto", Role.ANSWER, unless=VIDEO)
    """The axis of the scan files that points up, -y if y points down; auto is y for GLB and glTF, z for others."""
    scale: Annotated[float, Gt(0)] = setting(1.0, Role.ANSWER, unless=VIDEO)
    """Metres per unit of the scan files, such as 0.001 if they are in millimetres."""
    image_size: types.ImageSize = setting("auto", Role.ANSWER, "PIXELS", resolved=True)
    """Width and height of the views in pixels; auto is the checkpoint's own from its views.json, else a size that suits
    its family, 640 480 for Qwen3-VL. Frames of a video have at most as many pixels."""
    focal: Annotated[float, Ge(1)] | Literal["auto"] = setting(
        "auto", Role.ANSWER, "FLOAT|auto", resolved=True, unless=VIDEO
    )
    """Focal length in pixels; auto is the checkpoint's own, else 300 at a width of 640: both follow the width."""
    camera_height: Annotated[float, Gt(0)] = setting(1.6, Role.ANSWER, unless=VIDEO)
    """Initial height of the camera above the floor in metres, lower in low rooms."""
    camera_pitch: Annotated[float, Gt(-90), Lt(90)] = setting(-15.0, Role.ANSWER, unless=VIDEO)
    """Pitch of the camera in degrees; negative looks down."""
    # A level camera at eye height sees the floor only beyond 2 m, and in small rooms mostly walls.
    see: types.See = setting((VIEW,), Role.ANSWER, "NAME", choices=lambda: MODALITY_NAMES, unless=VIDEO)
    """The images of each turn: the view (rgb), always the first, and {choices}, in the order given."""


@dataclass(frozen=True)
class ModelSettings(Section):
    """The model or policy that decides, and how it generates."""

    title: ClassVar = "model"
    model: str = setting("Qwen/Qwen3-VL-8B-Instruct", Role.ANSWERER, "NAME|PATH", choices=family_names)
    """Hub id or folder of a checkpoint of {choices} or another image-text-to-text model, "embedded" (the included small
    model), or with --engine openai the server's name for a model."""
    engine: EngineName = setting("transformers", Role.ANSWERER, when={"openai": Rules(needs=("base_url",))})
    """Run the model in this process (transformers), ask servers at --base-url (openai), or start a vLLM server for the
    run (vllm)."""
    revision: types.RevisionName | None = setting(None, Role.ANSWERER, "NAME", engines=HERE_OR_VLLM, unless=("policy",))
    """The branch, tag or commit of a hub checkpoint, for weights, configuration, tokenizer and chat template."""
    adapter: Path | None = setting(None, Role.ANSWERER, "FOLDER", engines=HERE_OR_VLLM, unless=("policy",))
    """A PEFT adapter of the model, as "roomscout train" writes it, whose weights are added to those of the model."""
    prompts: Path | None = setting(None, Role.ANSWER, "FILE.yaml", unless=(*WITHOUT_MODEL, *VIDEO))
    """A YAML file with templates of what the model reads; by default the checkpoint's own prompts.yaml, else the
    built-in ones."""
    policy: str | None = setting(
        None,
        Role.ANSWERER,
        "NAME|MODULE:CLASS",
        unless=VIDEO,
        choices=lambda: CONTROLS,
        when={"human": Rules(unless=("ray", "gpus", "log_level=debug", *ABOUT_MODELS))},
    )
    """A policy to use instead of a model: {choices}, human (a person, as by "roomscout play"), or your own class as
    module:Class or path/to/file.py:Class."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", Role.ANSWERER, resolved=True, engines=HERE_OR_VLLM
    )
    """Data type of the weights; auto is bfloat16 on CUDA and float32 elsewhere."""
    quantize: Literal["4bit", "8bit"] | None = setting(
        None, Role.ANSWERER, engines=("transformers",), unless=("adapter", "compile", "policy")
    )
    """Quantize the weights as they are loaded, to a quarter or half of bfloat16 (needs bitsandbytes); saves memory, not
    time."""
    device: types.Device = setting("auto", Role.SPEED, "DEVICE")
    """The device of the model: auto, cpu, cuda or cuda:N."""
    max_new_tokens: types.Count | Literal["auto"] = setting("auto", Role.ANSWER, "N|auto", resolved=True)
    """Maximum length of a reply in tokens; auto is the checkpoint's own from its views.json, else 512, and with
    --present video that of the benchmark's official code, 16 for VSI-Bench."""
    temperature: Annotated[float, Ge(0)] | Literal["auto"] = setting("auto", Role.ANSWER, "FLOAT|auto", resolved=True)
    """Sampling temperature; 0 decodes greedily, and --seed makes samples reproducible on the same type of device; auto
    is 0, or that of --generation checkpoint."""
    generation: types.Generation = setting(
        (), Role.ANSWER, "NAME=VALUE|checkpoint", resolved=True, unless=("policy",), choices=lambda: types.GENERATION
    )
    """Further parameters of sampling, such as top_p=0.8 top_k=20, of {choices}; or checkpoint, for those of its
    generation_config.json."""
    seed: Annotated[int, Ge(0)] = setting(ModelOptions.seed, Role.ANSWERER)
    """Random seed of sampling, of --demo's rooms and of --policy random."""
    constrained: bool = setting(ServerOptions.constrained, Role.ANSWER, unless=VIDEO)
    """Constrain replies to well-formed actions, by xgrammar in this process or by a JSON schema at a server."""
    memory_fraction: types.Share = setting(ModelOptions.memory_fraction, Role.SPEED, "FLOAT", engines=HERE_OR_VLLM)
    """The fraction of each GPU's memory that the run may take in all; on a CPU, of the machine's memory."""
    compile: bool = setting(ModelOptions.compile, Role.SPEED, engines=("transformers",))
    """Compile one layer for decoding steps, on CUDA, and use it for all; needs a C++ compiler and Triton."""
    tiles_per_view: types.Count = setting(ModelOptions.tiles_per_view, Role.ANSWERER)
    """Maximum number of tiles into which InternVL cuts a view, at 256 tokens each."""
    logprobs: bool = setting(ModelOptions.logprobs, Role.RECORD, engines=("transformers",), unless=("policy",))
    """Record the log-probability of each token of a reply, as the model gives it before --temperature and grammars."""


@dataclass(frozen=True)
class ScheduleSettings(Section):
    """How many turns a question has, and which questions take theirs together."""

    title: ClassVar = "batch"
    steps: Annotated[int, Ge(0)] = setting(NUM_STEPS, Role.ANSWER)
    """Maximum number of moves per question; the turn after the last one must answer."""
    max_batched_turns: Annotated[int, Ge(0)] | Literal["all"] = setting(MAX_BATCHED_TURNS, Role.SPEED, "N|all")
    """Number of turns in lockstep batches; later turns run --concurrency questions at a time."""
    batch_size: types.Count | Literal["auto"] = setting("auto", Role.SPEED, "N|auto", engines=("transformers",))
    """Questions per batch; auto is as many as fit in memory, at most --max-batch-size."""
    max_batch_size: types.Count = setting(64, Role.SPEED, "N", engines=("transformers",), unless=("batch_size",))
    """The largest batch that --batch-size auto makes."""
    # Larger ones gain little, since a turn lasts as long as its longest reply.
    refill: bool = setting(False, Role.SPEED, engines=("transformers",), needs=("max_batched_turns=all",))
    """Replace each finished question of a batch by the next, so that the batch stays full."""
    concurrency: types.Count | Literal["auto"] = setting("auto", Role.SPEED, "N|auto")
    """Questions at a time after the batched turns (auto is the whole batch), or at every turn with --engine openai or
    vllm (auto is 32)."""


@dataclass(frozen=True)
class ControlSettings(Section):
    """Who moves the camera, and what the model is shown and told: controls, with which a score can be compared."""

    title: ClassVar = "control"
    advice: ClassVar = "To compare a score with: see docs/controls.md."
    moves: Literal["model", *MOVERS] = setting(  # type: ignore[valid-type]
        "model",
        Role.ANSWER,
        unless=("moves_of", *VIDEO),
        choices=lambda: [f"{name} ({each.title})" for name, each in MOVERS.items()],
    )
    """Who moves the camera: the model, or {choices}."""
    moves_of: Path | None = setting(None, Role.ANSWER, "RUN", unless=VIDEO)
    """Repeat the camera's moves in another run, up to --steps of each question."""
    present: Literal["turns", "once", "video"] = setting(
        "turns",
        Role.ANSWER,
        when={"once": Rules(needs=("moves!=none|moves_of|given=path",)), "video": Rules(needs=("videos",))},
    )
    """Present one view per turn, all views in one message after the last move (once), or instead of views of the scan
    frames of the benchmark's video, with its official prompt (video)."""
    videos: Path | None = setting(None, Role.PLACE, "DIR", needs=("present=video",), for_many=True)
    """With --present video, the folder of the benchmark's videos, such as <dataset>/<scene>.mp4, or of their frames:
    the images in <dataset>/<scene>/, by natural order of their names."""
    frames: types.Count | Literal["auto"] = setting(
        "auto", Role.ANSWER, "N|auto", resolved=True, needs=("present=video",)
    )
    """With --present video, how many frames are shown, evenly spaced with the first and the last; auto is as many as
    the benchmark's official code shows, 32 for VSI-Bench."""
    keep_views: types.Count | None = setting(None, Role.ANSWER, "K", unless=(*WITHOUT_MODEL, *ONE_TURN))
    """Show the images of the first turn and of the last K turns only; of earlier turns, say what the move did and where
    the camera was."""
    given: types.Given = setting(
        (), Role.ANSWER, "NAME", unless=VIDEO, when={"path": Rules(unless=("moves", "moves_of"))}
    )
    """Replace parts of the task by the truth: the camera's path, which shows what each question needs (path), and as
    text the boxes of the objects in view so far (boxes-seen) or of all (boxes); needs known boxes."""
    min_turns: Annotated[int, Ge(0)] = setting(0, Role.ANSWER, "N", unless=("moves", "moves_of", "given=path", *VIDEO))
    """Count no answer before turn N, the first of which is turn 0."""
    actions: str = setting(
        "metric", Role.ANSWER, "NAME|FILE.py:NAME", unless=(*WITHOUT_MODEL, *VIDEO), choices=lambda: SPACES
    )
    """How the model says how to move the camera: {choices}, or by your own ActionSpace as path/to/file.py:NAME."""
    translation: bool = setting(
        True, Role.ANSWER, unless=("moves_of", *(f"moves={name}" for name in sorted(TURNS_ONLY)), *VIDEO)
    )
    """Let the camera move; --no-translation lets it only turn in place."""
    tell: types.Tell = setting("auto", Role.ANSWER, "NAME", resolved=True, unless=VIDEO)
    """What the prompts reveal: some of pose, extent (of the room) and turns (left), or nothing; auto is the
    checkpoint's own from its views.json, else pose turns."""
    anytime: bool = setting(False, Role.RECORD, unless=ONE_TURN)
    """After each turn, also ask for the answer as if it were the last, outside the conversation; the summary adds the
    score by turn."""
    probe: Literal["none", "map"] = setting("none", Role.RECORD, unless=("present=once", *VIDEO))
    """After each turn, also ask outside the conversation for the objects seen so far and where they are (map); the
    summary adds how right that is by turn, where the boxes of objects are known."""


@dataclass(frozen=True)
class ServerSettings(Section):
    """The servers of --engine openai, and the one that --engine vllm starts."""

    title: ClassVar = "server"
    advice: ClassVar = "Advanced: only with --engine openai or vllm."
    base_url: tuple[types.ServerUrl, ...] = setting((), Role.PLACE, "URL", engines=("openai",))
    """With --engine openai, base URLs of one or more servers, such as http://localhost:8000/v1."""
    api_key_env: types.VariableName = setting(ServerOptions.key_env, Role.PLACE, "NAME")
    """With --engine openai, the environment variable that holds the API key, if the server needs one."""
    request_timeout: types.Seconds = setting(ServerOptions.timeout_s, Role.SPEED, "SECONDS")
    """With --engine openai, seconds after which a request is asked again, and for which a run waits for an answer."""
    extra_body: types.ExtraBody = setting("", Role.ANSWER, "JSON", engines=("openai",))
    """With --engine openai, further parameters of each request as a JSON object, such as {"enable_thinking": false}."""
    tensor_parallel_size: types.Count | Literal["auto"] = setting(
        VllmOptions.tensor_parallel_size,
        Role.SPEED,
        "N|auto",
        engines=("vllm",),
        when={"auto": Rules(unless=("ray", "gpus"))},
    )
    """With --engine vllm, the number of GPUs to split the model over; auto is the smallest power of two that fits."""


@dataclass(frozen=True)
class PlaySettings(Section):
    """The people who answer, and the page on which they do."""

    title: ClassVar = "people"
    advice: ClassVar = "Only with --policy human."
    annotator: types.Annotators = setting((), Role.ANSWERER, "NAME", study="never", needs=("policy=human",))
    """The people who answer, by names without blanks, such as initials. Whole scenes are dealt out to them: with as
    many --samples as people, everybody answers each question; with 1, each scene goes to one of them."""
    instructions: Path | None = setting(None, Role.ANSWERER, "FILE.md", study="never", needs=("policy=human",))
    """A Markdown file that people read before the first question: welcome, consent, examples."""
    thanks: Path | None = setting(None, Role.PLACE, "FILE.md", study="never", needs=("policy=human",))
    """A Markdown file that people read when all is answered: thanks, a code; {person} in it is the person's name."""
    words: str = setting(
        "en", Role.ANSWERER, "NAME|FILE.yaml", study="never", needs=("policy=human",), choices=lambda: LANGUAGES
    )
    """The sentences of the page of people: {choices}, or a YAML file with all of them: a changed copy of theirs."""
    address: types.Address = setting("127.0.0.1:8766", Role.PLACE, "HOST:PORT", study="never", needs=("policy=human",))
    """The address at which the page is served; port 0 is any free one. At an address such as 0.0.0.0, for all of this
    computer's, or with several people, the page needs the token in the address that is printed."""


@dataclass(frozen=True)
class OutputSettings(Section):
    """Where the run folder goes, its name, its report and judge, and what it may cost."""

    title: ClassVar = "output"
    log_root: Path = setting(LOG_ROOT, Role.OUTPUT, "DIR", study="never")
    """The folder in which to create run folders."""
    name: types.RunName | None = setting(None, Role.OUTPUT, "NAME", study="never")
    """Name the run: its folder below --log-root, and its title in pages; by default the folder is named by the time."""
    report: bool = setting(True, Role.OUTPUT)
    """At the end of a run of several questions or of --ply, write report.html into its folder, for a browser."""
    judge: str | None = setting(None, Role.OUTPUT, "MODEL")
    """At the end of the run, have this model mark the answers in free text that have no mark yet, at the server that
    the environment variable OPENAI_BASE_URL names, else at OpenAI's; "roomscout rescore" does so later, at any."""
    prices: Path | None = setting(None, Role.OUTPUT, "FILE.yaml", unless=("policy",))
    """A YAML file with prices per million tokens, such as MODEL: {input: 1.0, output: 4.0, cached_input: 0.1}: the
    summary and the report then say what the run costs."""
    budget: Annotated[float, Gt(0)] | None = setting(
        None, Role.OUTPUT, "AMOUNT", needs=("prices",), unless=("ray", "gpus")
    )
    """With --prices, begin no more turns once the run has cost this much; resume it with a larger amount."""
    log_level: Literal["debug", "info", "result"] = setting("info", Role.DISPLAY, study="never")
    """What is printed: all that run.log has, with times (debug), the progress of the run (info), or only results,
    warnings and errors (result)."""


@dataclass(frozen=True)
class ClusterSettings(Section):
    """Which part of the run to answer, or the cluster that answers all parts."""

    title: ClassVar = "cluster"
    advice: ClassVar = "Advanced: for runs on several machines."
    shard: types.PartName | None = setting(None, Role.QUESTION, "I/N", study="call", for_many=True)
    """Answer only part I of N, which consists of whole scenes; "roomscout merge" makes one run of the parts."""
    gpus: types.Gpus = setting(
        (types.NO_GPUS,), Role.SPEED, "GPU", unless=("ray", "shard", "device=cuda:*"), for_many=True
    )
    """Answer parts of the run in one process for each of these GPUs (by number, as PyTorch counts, or UUID), or with
    --device cpu in as many processes on the CPU, and merge them."""
    ray: bool = setting(False, Role.SPEED, unless=("shard", "device=cuda:*"), for_many=True)
    """Answer the parts of the run on a Ray cluster that shares --log-root and the scans: the one that the environment
    variable RAY_ADDRESS names, else one that is started on this machine; needs the extra "ray"."""
    replicas: types.Count | Literal["auto"] = setting("auto", Role.SPEED, "N|auto", needs=("ray",))
    """With --ray, the number of workers; auto is one per GPU (per --tensor-parallel-size GPUs), or per machine if the
    model needs none."""
