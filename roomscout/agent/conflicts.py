"""Which settings go not together, and what to do then."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from roomscout.base.wording import Worded, named
from roomscout.data.question_files import QUESTION_FILES
from roomscout.runs.movers import TURNS_ONLY
from roomscout.runs.setting_types import EXAMPLE_URL, NO_GPUS
from roomscout.runs.settings import FILTERS, SECTIONS, SETTINGS, default_of

Given = Any
"""All settings as attributes by name, and those that `_described` adds."""

IN_A_SCAN = (
    *("ply", "demo", "check_data", "policy", "prompts", "moves", "moves_of", "min_turns", "given", "actions", "tell"),
    *("translation", "anytime", "constrained", "keep_views", "see"),
    *("focal", "camera_height", "camera_pitch", "up_axis", "scale"),
)
"""Settings that have no meaning for frames of a video; --renderer, --scan-root and --steps are not looked at."""

OF_MODEL = tuple(
    name
    for section in ("model", "schedule", "server", "vllm")
    for name in SECTIONS[section]
    if name not in ("model", "policy", "prompts", "seed", "steps", "max_new_tokens")
)
"""Settings that mean nothing to a person. The length of replies is a part of the protocol."""

CONFLICTS: tuple[tuple[Callable[[Given], object], str], ...] = (
    (
        lambda s: s.batch and s.question is not None and Path(s.question).suffix in QUESTION_FILES,
        "{question} asks one question; did you mean {questions} {s.question}?",
    ),
    (lambda s: s.ply is None and s.question is not None, "{question} needs a scan to ask about: add {ply=FILE}"),
    (lambda s: s.ply is None and s.interactive, "{interactive} needs a scan to ask about: add {ply=FILE}"),
    (
        lambda s: s.ply is not None and s.question is None and not s.interactive,
        "{ply} needs a question to ask: add {question=TEXT}, or {interactive} to type it",
    ),
    (lambda s: s.of_play and not s.human, "{of_play} is about people who answer: add {policy=human}, or leave it out"),
    (lambda s: s.human and s.on_video, "{policy=human} shows views of a scan: leave out {present=video}"),
    (lambda s: s.human and s.in_parts, "{policy=human} has one page for all of a run: leave out {in_parts}"),
    (lambda s: s.human and s.interactive, "{policy=human} has one page for all of a run: leave out {interactive}"),
    (lambda s: s.human and s.verbose, "{verbose} prints truths while people answer: leave it out; run.log has it all"),
    (
        lambda s: s.human and s.of_model and not s.resumes,
        "{of_model} is about a model: leave it out with {policy=human}",
    ),
    (
        lambda s: s.prompts is not None and s.unread,
        "{prompts} are the words that a model reads: leave it out without a model",
    ),
    (
        lambda s: s.quantize is not None and s.engine == "vllm",
        "{quantize} is for {engine=transformers}: leave it out, or serve a checkpoint with quantized weights",
    ),
    (
        lambda s: s.quantize is not None and (s.adapter is not None or s.compile),
        "{adapter} and {compile} need weights that are not quantized: leave out {quantize=}",
    ),
    (
        lambda s: s.tensor_parallel_size == "auto" and s.in_parts,
        "{in_parts} needs to know how many GPUs each worker takes: give {tensor_parallel_size=N}",
    ),
    (
        lambda s: s.of_answerer and (s.policy is not None or s.scripted),
        "{of_answerer} has no meaning without a model: leave it out",
    ),
    (
        lambda s: s.actions != default_of("actions") and s.unread,
        "{actions} is how a model says how to move the camera: leave it out without a model",
    ),
    (
        lambda s: s.refill and s.max_batched_turns != "all",
        "{refill} keeps the batch full at every turn: it needs {max_batched_turns=all}",
    ),
    (
        lambda s: s.batch_size != "auto" and s.max_batch_size != default_of("max_batch_size"),
        "{max_batch_size} limits {batch_size=auto}: leave out one of {max_batch_size} and {batch_size=}",
    ),
    (
        lambda s: (s.renderer == "blind" or s.demo) and s.first_view == "sharpness",
        "{first_view=sharpness} cannot choose among grey views: leave it out with {renderer=blind} and {demo}",
    ),
    (lambda s: s.compile and s.attention == "eager", "{compile} does not work with {attention=eager}: use sdpa"),
    (
        lambda s: s.moves_of is not None and s.moves != "model",
        "{moves=} and {moves_of} both say who moves the camera: choose one",
    ),
    (
        lambda s: "path" in s.given and (s.moves != "model" or s.moves_of is not None),
        "{given=path} and {mover} both say who moves the camera: choose one",
    ),
    (
        lambda s: s.at_once and s.model_moves,
        "{present=once} does not work with {mover}, since the model cannot move before it has seen a view: add {moves} "
        "spin, random or coverage, or {moves_of=RUN}",
    ),
    (
        lambda s: s.at_once and s.moves == "none",
        "{present=once} does not work with {mover}, since there is one view only: add {moves=spin}, random or "
        "coverage, or {moves_of=RUN}",
    ),
    (
        lambda s: s.of_video and not s.on_video,
        "{of_video} is about frames of a video: add {present=video}, or leave it out",
    ),
    (
        lambda s: s.on_video and s.videos is None and s.frames_of is None,
        "{present=video} shows frames of videos: add {videos=DIR}, or {frames_of=DIR}",
    ),
    (
        lambda s: s.video_input == "native" and s.engine != "transformers",
        "{video_input=native} needs {engine=transformers}: leave it out",
    ),
    (lambda s: s.frames == 1 and s.video_input == "native", "{video_input=native} needs two frames: use more {frames}"),
    (
        lambda s: s.frames_of is not None and s.video_input == "native",
        "{video_input=native} needs to know how fast frames follow each other: use {videos=DIR} instead of {frames_of}",
    ),
    (lambda s: s.videos is not None and s.frames_of is not None, "choose one of {videos} and {frames_of}"),
    (
        lambda s: s.on_video and s.in_scan,
        "{present=video} shows a model frames of videos, with the benchmark's own words: leave out {in_scan}",
    ),
    (
        lambda s: s.keep_views is not None and s.unread,
        "{keep_views} is how many turns a model sees again: leave it out without a model",
    ),
    (
        lambda s: s.keep_views is not None and s.only_turn,
        "{keep_views} hides the views of earlier turns, and with {only_turn} there is one only: leave it out",
    ),
    (
        lambda s: s.min_turns and not s.model_moves,
        "with {mover} only the answer in the last turn counts: leave out {min_turns}",
    ),
    (
        lambda s: s.min_turns > s.steps,
        "{min_turns=} is after the last turn, which is turn {s.steps}: make it smaller, or {steps} larger",
    ),
    (
        lambda s: s.anytime and s.only_turn,
        "{anytime} asks after each turn but the last, and with {only_turn} there is one only: leave it out",
    ),
    (
        lambda s: not s.translation and (s.moves in TURNS_ONLY or s.moves_of is not None),
        "{translation=False} has no effect with {mover}: leave it out",
    ),
    (
        lambda s: s.check_data and (s.plan or s.ply is not None),
        "{check_data} checks the scans of a benchmark: leave it out with {plan} and with {ply}",
    ),
    (lambda s: s.plan and s.resumes, "{plan} describes a run before it begins: leave it out with {continue_from}"),
    (lambda s: s.plan_device and not s.plan, "{plan_device} selects the GPU to plan for: it needs {plan}"),
    (
        lambda s: s.plan_device and (s.device != "auto" or s.dtype == "float32"),
        "{plan_device} plans for that GPU in bfloat16: leave out {device} and {dtype=float32}",
    ),
    (lambda s: s.plan_device and s.scripted, "{plan_device} plans for a model on a GPU: {s.model} needs none"),
    (
        lambda s: s.engine == "openai" and not s.base_url,
        "{engine=openai} asks a server: it needs {base_url}, such as " + EXAMPLE_URL,
    ),
    (lambda s: s.engine == "openai" and s.scripted, "{engine=openai} asks a server: leave it out with {model=}"),
    (
        lambda s: s.engine == "openai" and s.plan_device,
        "{plan_device} cannot plan for a server: leave it out with {engine=openai}",
    ),
    (lambda s: s.engine == "openai" and s.unused, "leave out {unused} with {engine=openai}: the server controls that"),
    (
        lambda s: s.engine == "vllm" and s.scripted,
        "{engine=vllm} serves a checkpoint: leave it out with {model=}",
    ),
    (
        lambda s: s.engine == "vllm" and s.plan_device,
        "{plan_device} plans for {engine=transformers}: leave it out with {engine=vllm}",
    ),
    (lambda s: s.engine == "vllm" and s.unused, "leave out {unused} with {engine=vllm}: vLLM controls that"),
    (lambda s: s.only_vllm, "{only_vllm}: only for a vLLM server: add {engine=vllm}, or leave it out"),
    (lambda s: s.only_server, "{only_server} needs {engine=openai}: add that, or leave it out"),
    (
        lambda s: s.judge is None and s.of_judge,
        "{of_judge} is about a judge of answers in free text: add {judge=MODEL}, or leave it out",
    ),
    (
        lambda s: s.retry_failed and not s.resumes,
        "{retry_failed} retries failed questions of an earlier run: it needs {continue_from}",
    ),
    (
        lambda s: [s.batch, s.demo, s.ply is not None].count(True) > 1,
        "choose one of {batch}, {demo} and {ply} with {question}",
    ),
    (
        lambda s: s.ply is not None and s.filters and s.resumes,
        "the run asks one question, given with {ply}: leave out {questions} and its filters",
    ),
    (lambda s: s.ply is not None and s.filters, "{ask} asks one question: leave out {questions} and its filters"),
    (
        lambda s: s.demo and s.questions is not None,
        "{demo} makes its own questions: leave out {questions}, or use {batch}",
    ),
    (
        lambda s: s.question is None and (s.options or s.question_type or s.ground_truth),
        "{options}, {question_type} and {ground_truth} need {ply} with {question}",
    ),
    (
        lambda s: s.interactive and (s.plan or s.resumes),
        "{interactive} asks about {ply}: leave it out with {plan} and {continue_from}",
    ),
    (
        lambda s: s.name is not None and (s.demo or s.interactive),
        "{name} names one run: leave it out with {demo} and {interactive}, which make several",
    ),
    (
        lambda s: s.interactive and s.moves_of is not None,
        "{moves_of} repeats the moves of questions asked before: leave it out with {interactive}",
    ),
    (lambda s: s.verbose and s.quiet, "{verbose} prints more and {quiet} less: choose one"),
    (lambda s: s.budget is not None and s.prices is None, "{budget} counts what tokens cost: add {prices=FILE}"),
    (
        lambda s: s.budget is not None and s.in_parts,
        "{budget} is of one process, and the workers of {in_parts} do not know what the others spend: leave it out, or "
        "give each part its own with {shard=I/N}",
    ),
    (lambda s: s.shard is not None and not s.batched, "{shard} is for {batch}: leave it out with {ask_or_demo}"),
    (lambda s: s.ray and s.on_gpus, "{ray} and {gpus} both say who answers the parts of the run: choose one"),
    (lambda s: s.in_parts and not s.batched, "{in_parts} is for {batch}: leave it out with {ask_or_demo}"),
    (lambda s: s.in_parts and s.shard is not None, "{in_parts} splits the run into parts itself: leave out {shard}"),
    (
        lambda s: s.in_parts and s.device.startswith("cuda:"),
        "{in_parts} gives each worker a GPU: leave out {device=}",
    ),
    (
        lambda s: s.on_gpus and s.engine == "openai" and s.device != "cpu",
        "{engine=openai} needs no GPU here: leave out {gpus}, or add {device=cpu} for so many processes on the CPU",
    ),
    (
        lambda s: not s.ray and not s.resumes and (s.ray_address is not None or s.replicas != "auto"),
        "{ray_address} and {replicas} need {ray}",
    ),
)
"""Settings that conflict, and the message, a template for `Worded` with all settings in `s`. The first is reported."""


def conflict_in(settings: Mapping[str, Any]) -> str | None:
    """The message of the first conflict between these settings; None if there is none."""
    given = SimpleNamespace(**settings, **_described(settings))
    facts = Worded(_described(settings) | {"s": given}, settings)
    return next((why.format_map(facts) for conflicts, why in CONFLICTS if conflicts(given)), None)


def _described(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What several conflicts ask about the settings."""
    s, engine = SimpleNamespace(**settings), settings["engine"]
    mover = named(moves=s.moves) if s.moves_of is None else named(moves_of=s.moves_of)
    if "path" in s.given and s.moves == "model" and s.moves_of is None:
        mover = named(given="path")
    at_once = s.present == "once"
    only_turn = named(present="once") if at_once else mover if s.moves == "none" else ""
    only_turn = only_turn or (named(steps=0) if s.steps == 0 else "")
    of_engine = {name: each.engines for name, each in SETTINGS.items() if each.engines and engine not in each.engines}

    def changed(names: Sequence[str]) -> list[str]:
        return [named(name) for name in names if settings[name] != default_of(name)]

    scripted = s.model.startswith("scripted:")
    no_model, blind = [named(model=s.model)] * scripted, [named(renderer="blind")] * (s.renderer == "blind")
    return {
        "scripted": scripted,
        "resumes": s.continue_from is not None,
        "batched": s.ply is None and not s.demo,
        "filters": s.questions is not None or any(settings[name] for name in FILTERS),
        "at_once": at_once,
        "model_moves": s.moves == "model" and s.moves_of is None and "path" not in s.given,
        "mover": mover,
        "only_turn": only_turn,
        "on_video": s.present == "video",
        "of_video": "".join(changed(("videos", "frames_of", "frames", "video_input"))[:1]),
        "in_scan": ", ".join([*changed(IN_A_SCAN), *no_model, *blind]),
        "unused": ", ".join(changed([name for name, those in of_engine.items() if "transformers" in those])),
        "only_vllm": ", ".join(changed([name for name, those in of_engine.items() if those == ("vllm",)])),
        "only_server": "".join(changed([name for name, those in of_engine.items() if those == ("openai",)])[:1]),
        "on_gpus": s.gpus != (NO_GPUS,),
        "in_parts": named("ray") if s.ray else named(gpus=",".join(s.gpus)) if s.gpus != (NO_GPUS,) else "",
        "human": s.policy == "human",
        "unread": scripted or s.policy not in (None, "human"),
        "of_play": "".join(changed(SECTIONS["play"])[:1]),
        "of_model": "".join(changed(OF_MODEL)[:1]),
        "of_answerer": "".join(changed(("adapter", "revision", "quantize", "logprobs", "prices"))[:1]),
        "of_judge": "".join(changed(SECTIONS["judge"])[:1]),
    }
