"""vLLM as an engine: a server of its own process and environment, asked by token ids."""

from dataclasses import dataclass
from pathlib import Path

VLLM_PYTHON = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
"""The Python of the environment that scripts/install_vllm.sh makes."""


@dataclass(frozen=True)
class VllmOptions:
    """How a vLLM server is started.

    `python` belongs to the environment that has vLLM. A conversation has at most `images` images. `memory_share` is the
    share of each GPU's memory that the server may take, or of the machine's memory with a CPU build; None leaves it to
    vLLM on GPUs, and on a CPU takes `ModelOptions.kv_cache_bytes` for keys and values. `max_model_len` is the longest
    conversation in tokens with its reply, None the checkpoint's own limit.
    """

    images: int
    python: Path = VLLM_PYTHON
    tensor_parallel_size: int = 1
    memory_share: float | None = None
    max_model_len: int | None = None
