"""The explorer before training: a small Qwen3-VL and a tokenizer of phrases, as one checkpoint folder."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from agent.backends.embedded import ModelSizes, make_config, make_processor
from training.vocabulary import make_tokenizer

SIZES = ModelSizes(
    hidden=160, layers=4, heads=5, kv_heads=5, head_dim=32, mlp=448,
    vision_hidden=160, vision_layers=4, vision_heads=5, vision_mlp=448, deepstack=(1,),
    max_positions=8192, tie_embeddings=True, initial_std=0.03,
)  # fmt: skip


def write_untrained(folder: Path, corpus: Iterable[str], seed: int, sizes: ModelSizes = SIZES) -> None:
    """Write a fresh checkpoint whose tokenizer knows the phrases of `corpus`; `sizes.vocab` is what they come to."""
    import torch
    from transformers import GenerationConfig, Qwen3VLForConditionalGeneration

    processor = make_processor(512)
    processor.tokenizer = make_tokenizer(corpus, processor.tokenizer)
    sizes = replace(sizes, vocab=-(-len(processor.tokenizer) // 64) * 64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(make_config(sizes, processor.tokenizer))
    tokenizer = processor.tokenizer
    ends = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[1], do_sample=False)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
