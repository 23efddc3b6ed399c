"""The GPUs of this machine, and memory and datasheet peaks of others, for planning a run there."""

import os
from dataclasses import dataclass
from typing import Literal

from roomscout.base.extras import require
from roomscout.models import ModelError

GpuName = Literal["h200", "h100", "a100-80", "a100-40", "l40s", "rtx4090", "rtx4080"]

RESERVED_BYTES = 3 * 2**29
"""Memory not available to tensors: about 0.5 GiB each for the driver, the CUDA context with its kernels, and cuBLAS and
cuDNN workspaces. An estimate."""
MEMORY_SHARE = 0.9
"""Fraction of the datasheet's memory bandwidth that large copies reach. An assumption."""
FLOP_SHARE = 0.8
"""Fraction of the datasheet's bfloat16 FLOP/s that large matrix products reach; the power limit costs most of the rest.
An assumption, optimistic for a warm GPU."""


@dataclass(frozen=True)
class Gpu:
    """A GPU's memory in bytes, peak memory bandwidth in bytes/s, and peak dense bfloat16 FLOP/s with float32
    accumulation."""

    title: str
    memory_bytes: int
    peak_bytes_per_s: float
    peak_flop_per_s: float

    def usable_bytes(self, memory_fraction: float) -> int:
        """Memory that a model may take on an otherwise idle GPU within this fraction of all."""
        return min(self.memory_bytes - RESERVED_BYTES, int(memory_fraction * self.memory_bytes))


GPUS: dict[GpuName, Gpu] = {
    "h200": Gpu("H200 SXM", 143771 * 2**20, 4.8e12, 989e12),
    "h100": Gpu("H100 SXM 80 GB", 81559 * 2**20, 3.35e12, 989e12),
    "a100-80": Gpu("A100 SXM 80 GB", 81920 * 2**20, 2.039e12, 312e12),
    "a100-40": Gpu("A100 40 GB", 40960 * 2**20, 1.555e12, 312e12),
    "l40s": Gpu("L40S", 46068 * 2**20, 0.864e12, 362e12),
    "rtx4090": Gpu("GeForce RTX 4090", 24564 * 2**20, 1.008e12, 165.2e12),
    "rtx4080": Gpu("GeForce RTX 4080", 16376 * 2**20, 0.7168e12, 97.5e12),
}
"""Memory as `nvidia-smi` reports it, with ECC on if the card has it: a datasheet's "141 GB" is closer to 141 GiB.

Peaks are NVIDIA's. Bfloat16 figures "with sparsity" are halved:

- H200: "NVIDIA H200 Tensor Core GPU" datasheet, SXM: 4.8 TB/s, 1,979 TFLOPS with sparsity.
- H100: "NVIDIA H100 Tensor Core GPU" datasheet, SXM5 with HBM3: 3.35 TB/s, 1,979 TFLOPS with sparsity.
- A100: "NVIDIA A100 Tensor Core GPU" datasheet: 2,039 GB/s (80 GB, SXM) and 1,555 GB/s (40 GB), 312 TFLOPS dense.
- L40S: "NVIDIA L40S" datasheet: 864 GB/s, 362 TFLOPS dense (733 with sparsity).
- RTX 4090, 4080: "NVIDIA Ada GPU Architecture" whitepaper, appendix A: 1,008 and 716.8 GB/s, 165.2 and 97.5 TFLOPS
  dense with FP32 accumulate (twice that is with FP16 accumulate or with sparsity).
"""
CARDS: dict[str, GpuName] = {
    "16 GB": "rtx4080",
    "24 GB": "rtx4090",
    "40 GB": "a100-40",
    "80 GB": "h100",
    "141 GB": "h200",
}
"""A usual GPU of each size."""


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
