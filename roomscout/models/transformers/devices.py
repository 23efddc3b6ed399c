"""Devices, data types, memory and products."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from roomscout.base.interrupts import deferred_interrupts
from roomscout.models import ModelError

# The CPU allocator raises plain RuntimeErrors, as do cuBLAS and cuDNN if they cannot allocate a handle or a workspace.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # from cublasCreate() when out of memory
    "CUDNN_STATUS_ALLOC_FAILED",
)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
KEPT_BYTES = 2**30
# The numbers of a weight from which on oneDNN's product takes less time than MKL's, also for a single row.
_LARGE_WEIGHT = 2**18
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(name: str) -> torch.device:
    """The device of a name; "auto" is the first CUDA device, else the CPU. Raises ModelError."""
    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"{name} is not available: torch sees {torch.cuda.device_count()} CUDA devices; use cpu", setting="device"
        )
    return torch.device("cuda", 0) if device == torch.device("cuda") else device  # torch.cuda often needs an index


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of a name; "auto" is bfloat16 on CUDA and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return DTYPES[name]


def usable_bytes(device: torch.device, memory_fraction: float) -> int:
    """Memory that this process may still take: what is free on the device (CPU: the machine), within this fraction."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        taken = torch.cuda.memory_allocated(device)
        free += torch.cuda.memory_reserved(device) - taken  # unused in PyTorch's allocator
        return max(0, min(free, int(memory_fraction * total) - taken))
    import psutil  # GPU machines may lack it

    memory = psutil.virtual_memory()
    taken = psutil.Process().memory_info().rss
    return max(0, min(memory.available, int(memory_fraction * memory.total) - taken))


def keep_freed_memory() -> None:
    """Let glibc reuse up to KEPT_BYTES of freed memory: returning large tensors took a tenth of the time on a CPU."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        if not library.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES):
            library.mallopt(_M_MMAP_THRESHOLD, 2**25)  # the most that older versions take


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one in its context as at the end of a CUDA graph's capture, is one of a device's memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in str(error) for words in _OUT_OF_MEMORY):
        return True
    return error.__context__ is not None and is_out_of_memory(error.__context__)


@contextmanager
def onednn_products(model: torch.nn.Module) -> Iterator[None]:
    """Inside this block, large linear layers in float32 on a CPU compute by oneDNN in place of MKL, PyTorch's choice:
    on two cores with AVX-512, 8 rows took half the time. Weights stay where they are."""
    layers = [module for module in model.modules() if _is_for_onednn(module)]
    try:
        for layer in layers:
            vars(layer)["forward"] = partial(_onednn_product, layer)
        yield
    finally:
        with deferred_interrupts():
            for layer in layers:
                vars(layer).pop("forward", None)


def _is_for_onednn(module: torch.nn.Module) -> bool:
    if type(module) is not torch.nn.Linear or "forward" in vars(module) or not torch.backends.mkldnn.is_available():
        return False
    weight = module.weight
    is_plain = type(weight) is torch.nn.Parameter  # quantized ones call themselves float32
    return is_plain and weight.dtype == torch.float32 and weight.is_cpu and weight.numel() >= _LARGE_WEIGHT


def _onednn_product(layer: torch.nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(inputs, layer.weight, layer.bias, "none", [], "")
