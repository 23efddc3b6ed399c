"""What a turn costs: several ways through the same conversations, timed side by side in one process."""

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel, ProcessorMixin, Qwen3VLForConditionalGeneration

from agent.backends.encoding import ConversationEncoder, as_it_is
from agent.backends.footprint import Rates, measure_rates, work_of
from agent.backends.runner import GenerationOptions, ModelRunner
from agent.backends.untrained import ModelSizes, make_config, make_processor
from agent.conversation import Conversation, Message

QWEN = ModelSizes(kv_heads=8, head_dim=128, vocab=151936, max_positions=262144, tie_embeddings=True, initial_std=0.02)
SHAPES = {
    "tiny": ModelSizes(),
    "45m": ModelSizes(
        hidden=512, layers=8, heads=8, kv_heads=2, head_dim=64, mlp=1536, vocab=4096,
        vision_hidden=384, vision_layers=5, vision_heads=6, vision_mlp=1536, deepstack=(1,),
    ),
    "2b": replace(
        QWEN, hidden=2048, layers=28, heads=16, mlp=6144,
        vision_hidden=1024, vision_layers=24, vision_heads=16, vision_mlp=4096, deepstack=(5, 11, 17),
    ),
    "4b": replace(
        QWEN, hidden=2560, layers=36, heads=32, mlp=9728,
        vision_hidden=1024, vision_layers=24, vision_heads=16, vision_mlp=4096, deepstack=(5, 11, 17),
    ),
    "8b": replace(
        QWEN, hidden=4096, layers=36, heads=32, mlp=12288, tie_embeddings=False,
        vision_hidden=1152, vision_layers=27, vision_heads=16, vision_mlp=4304, deepstack=(8, 16, 24),
    ),
}  # fmt: skip
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
HALF = 4  # turns that the second way batches, as the package's default does


@dataclass
class Measured:
    """One way through all turns: seconds and prompt tokens of each turn (all questions together), what was computed,
    and what every question was replied in each turn."""

    turn_seconds: list[float] = field(default_factory=list)
    turn_prompt_tokens: list[int] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    tokens_computed: int = 0
    tokens_reused: int = 0
    images_encoded: int = 0
    image_patches: int = 0
    replies: list[list[tuple[int, ...]]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds of all turns."""
        return sum(self.turn_seconds)


@dataclass(frozen=True)
class Way:
    """A schedule: how many of the turns are batched, whether keys and values are kept, and whether decoding steps are
    compiled."""

    name: str
    batched_turns: int
    reuse: bool
    compiled: bool = False


class Workload:
    """Conversations that are the same each time they are begun: views and words depend on question and turn alone."""

    def __init__(self, questions: int, turns: int, image_size: tuple[int, int]) -> None:
        self.questions = questions
        self.turns = turns
        self.patches = (image_size[0] // 16) * (image_size[1] // 16)
        self._image_size = image_size

    def begin(self) -> list[Conversation]:
        """The conversations at their first turn; questions differ in length."""
        conversations = []
        for number in range(self.questions):
            conversation = Conversation(f"q{number}", [Message("system", SYSTEM)])
            conversation.append(Message("user", QUESTION + OPTIONS * (number % 2), self._view(number, 0)))
            conversations.append(conversation)
        return conversations

    def proceed(self, conversation: Conversation, tokens: tuple[int, ...], turn: int) -> None:
        """Append the reply to turn `turn` and, if another is due, the next view."""
        number = int(conversation.id[1:])
        conversation.append(Message("assistant", "", tokens=tokens))
        if turn + 1 < self.turns:
            text = OUTCOME + BLOCKED * ((number + turn) % 3 == 0)
            conversation.append(Message("user", text, self._view(number, turn + 1)))

    def _view(self, number: int, turn: int) -> np.ndarray:
        width, height = self._image_size
        return np.random.default_rng([number, turn]).integers(0, 256, (height, width, 3), dtype=np.uint8)


def measure(
    way: Way, workload: Workload, make_runner: Callable[[Way], tuple[ConversationEncoder, ModelRunner]]
) -> Measured:
    """Take all turns of all questions in one way."""
    encoder, runner = make_runner(way)
    conversations = workload.begin()
    measured = Measured(
        turn_seconds=[0.0] * workload.turns,
        turn_prompt_tokens=[0] * workload.turns,
        replies=[[] for _ in conversations],
    )

    def take(rows: Sequence[int], turn: int) -> None:
        started = time.perf_counter()
        result = runner.run([encoder.encode(conversations[row]) for row in rows])
        for row, generated in zip(rows, result.rows, strict=True):
            prompt_tokens = len(encoder.encode(conversations[row]).ids)
            measured.replies[row].append(generated.tokens)
            measured.turn_prompt_tokens[turn] += prompt_tokens
            measured.tokens_reused += generated.reused
            measured.tokens_computed += prompt_tokens - generated.reused
            measured.images_encoded += generated.images
            measured.image_patches += generated.images * workload.patches
            workload.proceed(conversations[row], generated.tokens, turn)
        measured.prefill_seconds += result.prefill_s
        measured.decode_seconds += result.decode_s
        measured.turn_seconds[turn] += time.perf_counter() - started

    everyone = range(workload.questions)
    for turn in range(min(way.batched_turns, workload.turns)):
        take(everyone, turn)
    for row in everyone:
        for turn in range(way.batched_turns, workload.turns):
            take([row], turn)
        encoder.release(conversations[row].id)
        runner.release(conversations[row].id)
    return measured


def best_of(runs: Sequence[Measured]) -> Measured:
    """The run with the least seconds, each of its turns as fast as in the fastest: what the machine did beside counts
    least."""
    fastest = min(runs, key=lambda run: run.seconds)
    turns = zip(*(run.turn_seconds for run in runs), strict=True)
    return replace(fastest, turn_seconds=[min(seconds) for seconds in turns])


def build(shape: str, device: torch.device, dtype: torch.dtype, seed: int) -> tuple[PreTrainedModel, ProcessorMixin]:
    """A model of this shape with random weights, made on the device, and a processor for it."""
    sizes = SHAPES[shape]
    processor = make_processor(sizes.vocab)
    tokenizer = processor.tokenizer
    torch.manual_seed(seed)
    with device:
        model = Qwen3VLForConditionalGeneration._from_config(make_config(sizes, tokenizer), dtype=dtype)
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id], pad_token_id=tokenizer.pad_token_id, do_sample=False
    )
    return model.eval(), processor


def equal_share(first: Measured, second: Measured) -> float:
    """The share of replies that are equal, token for token."""
    pairs = [pair for rows in zip(first.replies, second.replies, strict=True) for pair in zip(*rows, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


def roofline_s(model: PreTrainedModel, rates: Rates, done: Measured, tokens: int) -> float:
    """The least seconds that a lockstep way can take at these rates, as `Work.least_seconds` has it."""
    work, rows = work_of(model, model.dtype.itemsize), len(done.replies)
    prefill = work.least_seconds(rates, rows, done.tokens_computed, done.image_patches, 0, 0)
    return prefill + sum(work.least_seconds(rates, rows, 0, 0, held, tokens) for held in done.turn_prompt_tokens)


def report(results: dict[str, Measured]) -> str:
    """A table with a line for each way; ratios are against the last."""
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
    lines.append("seconds of each turn, all questions together:")
    for name, one in results.items():
        lines.append(f"{name:44} " + " ".join(f"{seconds:6.2f}" for seconds in one.turn_seconds))
    return "\n".join(lines)


def as_json(args: argparse.Namespace, results: dict[str, Measured], best_s: float | None) -> str:
    """All figures with what they were measured with, for a program to read."""
    last = list(results.values())[-1]
    ways = {}
    for name, one in results.items():
        ways[name] = {key: value for key, value in asdict(one).items() if key != "replies"}
        ways[name] |= {"seconds": one.seconds, "ratio": one.seconds / last.seconds, "equal": equal_share(one, last)}
    machine = {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
    figures = {"settings": vars(args), "machine": machine, "ways": ways, "roofline_s": best_s}
    return json.dumps(figures, indent=2, default=str) + "\n"


def arguments() -> argparse.Namespace:
    """The command line, with what depends on the device filled in."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="45m")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32, help="length of every reply")
    parser.add_argument(
        "--image-size", type=int, nargs=2, metavar=("W", "H"), help="default: 224 160 for tiny and 45m, else 640 480"
    )
    parser.add_argument(
        "--repeats", type=int, default=1, help="of all ways in turn; the least time of each turn counts"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="default: bfloat16 on CUDA, else float32")
    parser.add_argument("--constrained", action="store_true", help="rule out what would spoil the action object")
    parser.add_argument("--compile", action="store_true", help="also with compiled decoding steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    args.image_size = tuple(args.image_size or ((224, 160) if args.shape in ("tiny", "45m") else (640, 480)))
    args.dtype = args.dtype or ("bfloat16" if args.device.startswith("cuda") else "float32")
    return args


def main() -> None:
    """Measure and print."""
    args = arguments()
    model, processor = build(args.shape, torch.device(args.device), DTYPES[args.dtype], args.seed)

    def make_runner(way: Way) -> tuple[ConversationEncoder, ModelRunner]:
        encoder = ConversationEncoder(model, processor, as_it_is)
        options = GenerationOptions(
            args.tokens, min_new_tokens=args.tokens, constrained=args.constrained, compiled=way.compiled
        )
        return encoder, ModelRunner(model, processor.tokenizer, encoder, options, 2**60 if way.reuse else 0)

    print(
        f"{args.shape} shape, {model.num_parameters() / 1e6:.1f} M parameters, {args.questions} questions x "
        f"{args.turns} turns x {args.tokens} tokens, {args.image_size[0]}x{args.image_size[1]}, {args.dtype}, "
        f"{args.device}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        flush=True,
    )
    ways = [
        Way("one at a time, re-encoding", 0, False),
        Way(f"{HALF} turns batched, then alone, re-encoding", HALF, False),
        Way(f"{HALF} turns batched, then alone, KV reuse", HALF, True),
        Way("all turns batched, KV reuse", args.turns, True),
    ]
    if args.compile:
        ways += [replace(way, name=f"{way.name}, compiled", compiled=True) for way in (ways[0], ways[-1])]
    for way in ways:  # first calls load kernels, or make programs
        first = measure(way, Workload(2, 2, args.image_size), make_runner)
        if way.compiled:
            print(f"first calls, {way.name}: {first.seconds:.1f} s", flush=True)
    workload = Workload(args.questions, args.turns, args.image_size)
    runs = [[measure(way, workload, make_runner) for way in ways] for _ in range(args.repeats)]
    results = {way.name: best_of(measured) for way, measured in zip(ways, zip(*runs, strict=True), strict=True)}
    rates = measure_rates(args.device, args.dtype)
    best_s = roofline_s(model, rates, results[ways[-1].name], args.tokens) if rates else None
    print(report(results))
    if best_s is None:
        print("roofline of the last way: not known, too little memory is free to measure the device's rates")
    else:
        print(f"roofline of the last way, at the copy and matrix rates measured here: {best_s:.2f} s")
    if args.json:
        args.json.write_text(as_json(args, results, best_s))


if __name__ == "__main__":
    main()
