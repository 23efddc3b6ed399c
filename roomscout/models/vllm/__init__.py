"""The vLLM engine: a server in its own process and environment, asked by token ids."""

import os
from dataclasses import dataclass, field
from pathlib import Path


def vllm_python() -> Path:
    """The Python of an environment with vLLM: the environment variable VLLM_PYTHON, else the one of the environment
    that scripts/install_vllm.sh makes in a checkout."""
    of_checkout = Path(__file__).parents[3] / ".venv-vllm" / "bin" / "python"
    return Path(os.environ.get("VLLM_PYTHON") or of_checkout)


@dataclass(frozen=True)
class VllmOptions:
    """How a vLLM server is started. On a CPU, keys and values get `ModelOptions.kv_cache_bytes`."""

    images: int  # of a conversation, at most
    python: Path = field(default_factory=vllm_python)  # that of an environment with vLLM
    tensor_parallel_size: int = 1  # GPUs over which the model is spread
    max_model_len: int | None = None  # tokens of a conversation, reply included; None: the checkpoint's limit
