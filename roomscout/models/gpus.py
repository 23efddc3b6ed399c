"""The GPUs that this process sees."""

import os

from roomscout.base.extras import require
from roomscout.models import ModelError


def visible_gpus() -> list[str]:
    """The GPUs that this process sees, by the names in its CUDA_VISIBLE_DEVICES, else by number."""
    require("--gpus", "torch", error=ModelError)
    import torch

    count = torch.cuda.device_count()
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(number) for number in range(count)] if mask is None else mask.replace(" ", "").split(",")[:count]


def first_gpu(device: str) -> int | None:
    """The number in a `--device` value, None without one."""
    _, _, number = device.partition(":")
    return int(number) if number.isdecimal() else None
