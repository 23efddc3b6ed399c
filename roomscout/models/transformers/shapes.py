"""Sizes of Qwen3-VL checkpoints and of smaller models, for plans, tests and benchmarks without downloads."""

from dataclasses import replace

from roomscout.models.transformers.untrained import ModelSizes

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
CHECKPOINTS = {
    "Qwen/Qwen3-VL-2B-Instruct": SHAPES["2b"],
    "Qwen/Qwen3-VL-4B-Instruct": SHAPES["4b"],
    "Qwen/Qwen3-VL-8B-Instruct": SHAPES["8b"],
}
"""Sizes by hub id, with the hub's spelling."""
