"""The vLLM engine: a server in its own process and environment, asked by token ids."""

from dataclasses import dataclass
from pathlib import Path

VLLM_PYTHON = Path(__file__).parents[3] / ".venv-vllm" / "bin" / "python"
"""The Python of the environment that scripts/install_vllm.sh makes in a checkout."""


@dataclass(frozen=True)
class VllmOptions:
    """How a vLLM server is started.

    `python` is the Python of an environment with vLLM. A conversation has at most `images` images.
    `max_model_len` is the longest conversation in tokens, including its reply; None is the checkpoint's own limit. On a
    CPU, keys and values get `ModelOptions.kv_cache_bytes`.
    """

    images: int
    python: Path = VLLM_PYTHON
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
