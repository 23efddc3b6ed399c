"""What a GPU measurement was taken on: versions, the device and its attention kernels."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch.utils import collect_env


def machine(device: torch.device) -> dict[str, Any]:
    """Facts about this machine; call it before anything changes PyTorch's settings."""
    is_cuda = device.type == "cuda"
    cuda = torch.backends.cuda
    facts: dict[str, Any] = {
        "device": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: _version(name) for name in ("transformers", "triton", "flash_attn")},
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if is_cuda else None,
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        "threads": torch.get_num_threads(),
        "attention_flags": {
            "flash": cuda.flash_sdp_enabled(),
            "efficient": cuda.mem_efficient_sdp_enabled(),
            "cudnn": cuda.cudnn_sdp_enabled(),
            "math": cuda.math_sdp_enabled(),
        },
    }
    if is_cuda:
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "device": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 2),
            "free_gib": round(torch.cuda.mem_get_info(device)[0] / 2**30, 2),
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "driver": collect_env.get_nvidia_driver_version(collect_env.run),
            "attention_usable": _usable_kernels(device),
        }
    return facts


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _usable_kernels(device: torch.device) -> dict[str, list[str]]:
    """The kernels of PyTorch's own attention that accept one query a row in bfloat16, without and with a mask."""
    cuda = torch.backends.cuda
    query = torch.zeros(2, 8, 4, 128, device=device, dtype=torch.bfloat16)
    key = torch.zeros(2, 8, 64, 128, device=device, dtype=torch.bfloat16)
    masks = {
        "unmasked": None,
        "masked": torch.zeros(2, 1, 1, 64, device=device, dtype=torch.bfloat16).expand(2, 8, 4, 64),
    }
    kernels = {
        "flash": cuda.can_use_flash_attention,
        "efficient": cuda.can_use_efficient_attention,
        "cudnn": cuda.can_use_cudnn_attention,
    }
    usable = {}
    for name, mask in masks.items():
        call = cuda.SDPAParams(query, key, key, mask, 0.0, False, False)
        usable[name] = [kernel for kernel, can_use in kernels.items() if can_use(call)]
    return usable
