"""Times several schedules of the same conversations in one process."""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from benchmarks import new_file
from roomscout.base.extras import importing

with importing("torch", "this measurement", SystemExit):
    import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel, ProcessorMixin, Qwen3VLForConditionalGeneration

from benchmarks.roofline import Rates, measure_rates, work_of
from explorer.untrained import config_for, make_processor
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.runner import ModelRunner, Steps
from roomscout.models.transformers.shapes import CHECKPOINTS, ModelSizes
from roomscout.models.transformers.weights import load_checkpoint

SHAPES = {
    "tiny": ModelSizes(),
    "45m": ModelSizes(
        hidden=512, layers=8, heads=8, kv_heads=2, head_dim=64, mlp=1536, vocab=4096,
        vision_hidden=384, vision_layers=5, vision_heads=6, vision_mlp=1536, deepstack=(1,),
    ),
    **{name.split("-")[2].lower(): sizes for name, sizes in CHECKPOINTS.items()},
}  # fmt: skip
"""Models to measure, by name: "2b", "4b" and "8b" have the sizes of Qwen3-VL's checkpoints."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

SYSTEM = (
    "You are inside the 3D scan of a real room and see it through a camera. You are asked one question about the room. "
    "In each turn you get the view from where the camera is now, then either move the camera to see more, or answer. "
    "Reply with a short thought in plain words, then exactly one JSON object with these six keys."
)
QUESTION = "Measuring from the closest point of each object, what is the distance between the sofa and the door? "
OPTIONS = "Options: A. back-left B. front-left C. front-right D. back-right "
OUTCOME = "You moved 0.5 m forward. You are at x = 0.50, y = -1.20, z = 1.60 m, heading 90 degrees, turn 3 of 8. "
BLOCKED = "The move was blocked by a surface. "
HALF = 4  # batched turns of the "first4" schedules: --max-batched-turns 4 --concurrency 1


@dataclass
class Measured:
    """Results of one schedule. Lists have an entry per turn, summed over questions, unless they say otherwise."""

    turn_seconds: list[float] = field(default_factory=list)  # of all
    turn_prefill_seconds: list[float] = field(default_factory=list)  # in the model, of prompts and views
    turn_decode_seconds: list[float] = field(default_factory=list)  # in the model, of replies
    turn_prompt_tokens: list[int] = field(default_factory=list)  # computed or reused
    turn_computed_tokens: list[int] = field(default_factory=list)  # of the prompts
    prefill_seconds: float = 0.0  # of all turns, as are the next ones
    decode_seconds: float = 0.0  # in the model, of replies
    tokens_computed: int = 0  # of the prompts
    tokens_reused: int = 0  # of the prompts
    images_encoded: int = 0  # again each time, without reuse
    image_patches: int = 0  # of these images
    replies: list[list[tuple[int, ...]]] = field(default_factory=list)  # tokens by question, then turn

    @property
    def seconds(self) -> float:
        """Total seconds."""
        return sum(self.turn_seconds)


@dataclass(frozen=True)
class Schedule:
    """A schedule: the number of batched turns, whether keys and values are reused, whether steps are compiled."""

    name: str
    batched_turns: int
    reuse: bool
    compiled: bool = False


SCHEDULES = {
    "alone": Schedule("one at a time, re-encoding", 0, False),
    "first4": Schedule(f"{HALF} turns batched, then alone, re-encoding", HALF, False),
    "first4-kv": Schedule(f"{HALF} turns batched, then alone, KV reuse", HALF, True),
    "lockstep-plain": Schedule("all turns batched, re-encoding", sys.maxsize, False),
    "lockstep": Schedule("all turns batched, KV reuse", sys.maxsize, True),
}
"""By short name, slowest first."""


class Workload:
    """Reproducible conversations: views and text depend only on question and turn."""

    def __init__(self, questions: int, turns: int, image_size: tuple[int, int]) -> None:
        self.questions = questions
        self.turns = turns
        self.patches = (image_size[0] // 16) * (image_size[1] // 16)
        self._image_size = image_size

    def begin(self) -> list[Conversation]:
        """New conversations with their first turn; questions differ in length."""
        conversations = []
        for number in range(self.questions):
            conversation = Conversation(f"q{number}", [Message("system", SYSTEM)])
            conversation.append(Message.of_views(QUESTION + OPTIONS * (number % 2), self._view(number, 0)))
            conversations.append(conversation)
        return conversations

    def proceed(self, conversation: Conversation, tokens: tuple[int, ...], turn: int) -> None:
        """Append the reply to turn `turn` and, unless it was the last turn, the next view."""
        number = int(conversation.id[1:])
        conversation.append(Message("assistant", "", tokens=tokens))
        if turn + 1 < self.turns:
            text = OUTCOME + BLOCKED * ((number + turn) % 3 == 0)
            conversation.append(Message.of_views(text, self._view(number, turn + 1)))

    def _view(self, number: int, turn: int) -> np.ndarray:
        width, height = self._image_size
        return np.random.default_rng([number, turn]).integers(0, 256, (height, width, 3), dtype=np.uint8)


def measure(
    schedule: Schedule,
    workload: Workload,
    make_runner: Callable[[Schedule], tuple[ConversationEncoder, ModelRunner]],
    constrained: bool = False,
) -> Measured:
    """Run all turns of all questions in one schedule."""
    encoder, runner = make_runner(schedule)
    reply_format = action_format(constrained)
    runner.prepare(reply_format)
    conversations = workload.begin()
    measured = Measured(
        turn_seconds=[0.0] * workload.turns,
        turn_prefill_seconds=[0.0] * workload.turns,
        turn_decode_seconds=[0.0] * workload.turns,
        turn_prompt_tokens=[0] * workload.turns,
        turn_computed_tokens=[0] * workload.turns,
        replies=[[] for _ in conversations],
    )

    def run_turn(rows: Sequence[int], turn: int) -> None:
        started = time.perf_counter()
        replies = runner.run([encoder.encode(conversations[row]) for row in rows], reply_format)
        for row, generated in zip(rows, replies, strict=True):
            prompt_tokens = len(encoder.encode(conversations[row]).ids)
            measured.replies[row].append(generated.tokens)
            measured.turn_prompt_tokens[turn] += prompt_tokens
            measured.tokens_reused += generated.reused_tokens
            measured.turn_computed_tokens[turn] += prompt_tokens - generated.reused_tokens
            measured.tokens_computed += prompt_tokens - generated.reused_tokens
            measured.images_encoded += generated.images_encoded
            measured.image_patches += generated.images_encoded * workload.patches
            workload.proceed(conversations[row], generated.tokens, turn)
            measured.prefill_seconds += generated.prefill_seconds / len(rows)
            measured.turn_prefill_seconds[turn] += generated.prefill_seconds / len(rows)
            measured.decode_seconds += generated.decode_seconds / len(rows)
            measured.turn_decode_seconds[turn] += generated.decode_seconds / len(rows)
        measured.turn_seconds[turn] += time.perf_counter() - started

    all_rows = range(workload.questions)
    for turn in range(min(schedule.batched_turns, workload.turns)):
        run_turn(all_rows, turn)
    for row in all_rows:
        for turn in range(schedule.batched_turns, workload.turns):
            run_turn([row], turn)
        encoder.release(conversations[row].key)
        runner.release(conversations[row].key)
    return measured


def best_of(runs: Sequence[Measured]) -> Measured:
    """The fastest run, with each turn's minimum time over all runs, to reduce the effect of other load."""
    fastest = min(runs, key=lambda run: run.seconds)
    turns = zip(*(run.turn_seconds for run in runs), strict=True)
    return replace(fastest, turn_seconds=[min(seconds) for seconds in turns])


def build(shape: str, device: torch.device, dtype: torch.dtype, seed: int) -> tuple[PreTrainedModel, ProcessorMixin]:
    """A model of this shape with random weights, created on the device, and its processor."""
    sizes = SHAPES[shape]
    processor = make_processor(sizes.vocab)
    tokenizer = processor.tokenizer
    torch.manual_seed(seed)
    with device:
        model = Qwen3VLForConditionalGeneration._from_config(config_for(tokenizer, sizes), dtype=dtype)
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id], pad_token_id=tokenizer.pad_token_id, do_sample=False
    )
    return model.eval(), processor


def equal_share(first: Measured, second: Measured) -> float:
    """The fraction of replies that are equal, token for token."""
    pairs = [pair for rows in zip(first.replies, second.replies, strict=True) for pair in zip(*rows, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


def roofline_s(model: PreTrainedModel, rates: Rates, done: Measured, tokens: int) -> float:
    """The lower bound in seconds of a lockstep schedule at these rates; see `Work.least_seconds`."""
    work = work_of(model, model.dtype.itemsize)
    rows = len(done.replies)
    prefill = work.least_seconds(rates, rows, done.tokens_computed, done.image_patches, 0, 0)
    return prefill + sum(work.least_seconds(rates, rows, 0, 0, held, tokens) for held in done.turn_prompt_tokens)


def report(results: dict[str, Measured]) -> str:
    """A table with a line per schedule; ratios are relative to the last."""
    last = list(results.values())[-1]
    lines = [
        f"{'':44} {'seconds':>8} {'prefill':>8} {'decode':>8} {'computed':>9} {'images':>7} {'ratio':>6} {'equal':>6}"
    ]
    for name, one in results.items():
        lines.append(
            f"{name:44} {one.seconds:8.2f} {one.prefill_seconds:8.2f} {one.decode_seconds:8.2f} "
            f"{one.tokens_computed:9d} {one.images_encoded:7d} {one.seconds / last.seconds:6.2f} "
            f"{equal_share(one, last):6.1%}"
        )
    lines.append("seconds of each turn, all questions together, and its prompt tokens computed:")
    for name, one in results.items():
        lines.append(f"{name:44} " + " ".join(f"{seconds:6.2f}" for seconds in one.turn_seconds))
        lines.append(f"{'':44} " + " ".join(f"{tokens:6d}" for tokens in one.turn_computed_tokens))
    return "\n".join(lines)


def as_json(args: argparse.Namespace, results: dict[str, Measured], best_s: float | None) -> str:
    """All results and settings as JSON."""
    last = list(results.values())[-1]
    schedules = {}
    for name, one in results.items():
        schedules[name] = {key: value for key, value in asdict(one).items() if key != "replies"}
        schedules[name] |= {
            "seconds": one.seconds,
            "ratio": one.seconds / last.seconds,
            "equal": equal_share(one, last),
        }
    machine = {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
    figures = {"settings": vars(args), "machine": machine, "schedules": schedules, "roofline_s": best_s}
    return json.dumps(figures, indent=2, default=str) + "\n"


def arguments() -> argparse.Namespace:
    """Parse the command line and fill in defaults that depend on shape and device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="45m")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="measure this checkpoint in place of a --shape")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32, help="length of every reply")
    parser.add_argument(
        "--image-size", type=int, nargs=2, metavar=("W", "H"), help="default: 224 160 for tiny and 45m, else 640 480"
    )
    parser.add_argument("--repeats", type=int, default=1, help="of all schedules; each turn's minimum time counts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="default: bfloat16 on CUDA, else float32")
    parser.add_argument("--constrained", action="store_true", help="constrain replies to valid action objects")
    parser.add_argument(
        "--ways",
        dest="schedules",
        nargs="+",
        choices=SCHEDULES,
        default=[name for name in SCHEDULES if name != "lockstep-plain"],
        help="; ".join(f"{name}: {schedule.name}" for name, schedule in SCHEDULES.items())
        + " (default: all but lockstep-plain)",
    )
    parser.add_argument(
        "--compile", action="store_true", help="also measure alone and lockstep with compiled steps; needs CUDA"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=new_file, help="also write the results here")
    args = parser.parse_args()
    if args.compile and not args.device.startswith("cuda"):
        parser.error("--compile needs --device cuda")
    args.image_size = tuple(args.image_size or ((224, 160) if args.shape in ("tiny", "45m") else (640, 480)))
    args.dtype = args.dtype or ("bfloat16" if args.device.startswith("cuda") else "float32")
    return args


def schedules_of(names: Sequence[str], compiled: bool) -> list[Schedule]:
    """The named schedules, slowest first; with `compiled`, then those of "alone" and "lockstep" with compiled steps."""
    schedules = [schedule for name, schedule in SCHEDULES.items() if name in names]
    if compiled:
        eager = [SCHEDULES[name] for name in ("alone", "lockstep") if name in names]
        schedules += [replace(schedule, name=f"{schedule.name}, compiled", compiled=True) for schedule in eager]
    return schedules


def main() -> None:
    """Measure and print."""
    args = arguments()
    if args.checkpoint:
        model, processor = load_checkpoint(args.checkpoint, DTYPES[args.dtype], torch.device(args.device))
    else:
        model, processor = build(args.shape, torch.device(args.device), DTYPES[args.dtype], args.seed)

    def make_runner(schedule: Schedule) -> tuple[ConversationEncoder, ModelRunner]:
        encoder = ConversationEncoder(processor, model.config, model.dtype)
        options = ModelOptions(max_new_tokens=args.tokens)
        kv_bytes = 2**60 if schedule.reuse else 0
        steps: Steps = "compiled" if schedule.compiled else "eager"
        return encoder, ModelRunner(model, encoder, options, kv_bytes, steps, forced=True)

    print(
        f"{args.checkpoint or args.shape}, {model.num_parameters() / 1e6:.1f} M parameters, "
        f"{args.questions} questions x {args.turns} turns x {args.tokens} tokens, "
        f"{args.image_size[0]}x{args.image_size[1]}, {args.dtype}, {args.device}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, transformers {transformers.__version__}",
        flush=True,
    )
    schedules = schedules_of(args.schedules, args.compile)
    for schedule in schedules:  # warm up: first calls load kernels or compile
        first = measure(schedule, Workload(2, 2, args.image_size), make_runner, args.constrained)
        if schedule.compiled:
            print(f"first calls, {schedule.name}: {first.seconds:.1f} s", flush=True)
    workload = Workload(args.questions, args.turns, args.image_size)
    runs = [
        [measure(schedule, workload, make_runner, args.constrained) for schedule in schedules]
        for _ in range(args.repeats)
    ]
    results = {
        schedule.name: best_of(measured) for schedule, measured in zip(schedules, zip(*runs, strict=True), strict=True)
    }
    in_lockstep = schedules[-1].reuse and schedules[-1].batched_turns >= args.turns
    rates = measure_rates(args.device, args.dtype) if in_lockstep and not args.checkpoint else None
    best_s = roofline_s(model, rates, results[schedules[-1].name], args.tokens) if rates else None
    print(report(results))
    if not in_lockstep or args.checkpoint:
        print("roofline: only available for a --shape in lockstep")
    elif best_s is None:
        print("roofline of the last schedule: unknown, because memory ran out while measuring the device's rates")
    else:
        print(f"roofline of the last schedule, at the copy and matrix rates measured here: {best_s:.2f} s")
    if args.json:
        args.json.write_text(as_json(args, results, best_s))


if __name__ == "__main__":
    main()
