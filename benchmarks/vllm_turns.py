"""Compares --engine vllm with transformers on the conversations of `turns`: seconds and prompt tokens."""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roomscout.base.extras import importing

with importing("torch", "this measurement", SystemExit):
    import torch
from benchmarks.turns import SHAPES, Workload, build
from roomscout.models import Backend, ModelOptions, Reply, ReplyFormat
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.devices import resolve_device, resolve_dtype
from roomscout.models.transformers.loading import end_tokens
from roomscout.models.vllm import VllmOptions, vllm_python
from roomscout.models.vllm.backend import VllmBackend


@dataclass(frozen=True)
class Turn:
    """One turn of all questions."""

    seconds: float
    replies: Sequence[Reply]

    @property
    def computed(self) -> int:
        """Prompt tokens that were neither cached nor kept from the turn before, as the engine reports them."""
        return sum(reply.prompt_tokens - reply.reused_tokens for reply in self.replies)


def main() -> None:
    """Measure both engines and print a line for each turn."""
    args = arguments()
    workload = Workload(args.questions, args.turns, tuple(args.image_size))
    options = ModelOptions(device=args.device, max_new_tokens=args.tokens, kv_cache_bytes=args.kv_gib * 2**30)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), args.shape, args.device)
        server = VllmBackend(folder, options, VllmOptions(args.turns, args.vllm_python, max_model_len=8192))
        try:
            theirs = measure(server, workload)
        finally:
            server.close()  # frees the device for the other engine
        ours = measure(TransformersBackend.from_checkpoint(folder, options), workload)
    print(report(ours, theirs))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_turns", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="45m")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32, help="length of every reply")
    parser.add_argument("--image-size", type=int, nargs=2, metavar=("W", "H"), default=(224, 160))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kv-gib", type=int, default=1, help="GiB for keys and values; vLLM on GPUs ignores it")
    python = vllm_python()
    parser.add_argument("--vllm-python", type=Path, default=python, help="Python of vLLM's environment")
    return parser.parse_args()


def write_checkpoint(folder: Path, shape: str, device: str) -> None:
    """Save a model of this shape with random weights, whose end tokens are never the likeliest."""
    where = resolve_device(device)
    model, processor = build(shape, where, resolve_dtype("auto", where), seed=0)
    with torch.no_grad():
        model.get_output_embeddings().weight[end_tokens(model.generation_config, processor.tokenizer)] = 0
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def measure(backend: Backend, workload: Workload) -> list[Turn]:
    """Run all turns of all questions in lockstep, after a warm-up that shares no token with them."""
    warm_up = Conversation(
        "warm-up", [Message("system", "Warm up."), Message.of_views("?", np.zeros((64, 64, 3), np.uint8))]
    )
    backend.generate([warm_up], ReplyFormat())
    conversations = workload.begin()
    turns = []
    for number in range(workload.turns):
        started = time.perf_counter()
        replies = backend.generate(conversations, ReplyFormat())
        turns.append(Turn(time.perf_counter() - started, replies))
        for conversation, reply in zip(conversations, replies, strict=True):
            workload.proceed(conversation, reply.tokens, number)
    return turns


def report(ours: Sequence[Turn], theirs: Sequence[Turn]) -> str:
    """A line for each turn with both engines' seconds and computed prompt tokens, and one for all turns."""
    pairs = [
        (a.tokens, b.tokens)
        for turn, other in zip(ours, theirs, strict=True)
        for a, b in zip(turn.replies, other.replies, strict=True)
    ]
    lines = [f"{'':5} {'seconds':>24} {'prompt tokens computed':>30}", f"{'turn':5} {'transformers':>14} {'vllm':>9} "]
    lines[1] += f"{'transformers':>20} {'vllm':>9} {'ratio':>6}"
    rows = [(str(n), [a], [b]) for n, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    for name, our_turns, their_turns in [*rows, ("all", ours, theirs)]:
        seconds = [sum(turn.seconds for turn in turns) for turns in (our_turns, their_turns)]
        computed = [sum(turn.computed for turn in turns) for turns in (our_turns, their_turns)]
        lines.append(
            f"{name:5} {seconds[0]:14.2f} {seconds[1]:9.2f} {computed[0]:20,} {computed[1]:9,} "
            f"{computed[1] / computed[0]:6.3f}"
        )
    lines.append(f"equal replies: {sum(a == b for a, b in pairs)} of {len(pairs)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
