"""The NVIDIA GPUs of this process, with utilisation, memory and power once a second by NVIDIA's library NVML."""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from datetime import datetime
from functools import partial
from itertools import takewhile
from threading import Event, Thread
from typing import Any

from roomscout.base.extras import require
from roomscout.models import ModelError

log = logging.getLogger(__name__)

EVERY_S = 1.0
SAMPLES_PER_LINE = 60
PATIENCE_S = 2.0  # how long a hanging driver may delay the end of a run
READ = {  # NVML's function for each figure, and what makes the figure of its result
    "utilisation_percent": ("nvmlDeviceGetUtilizationRates", lambda rates: rates.gpu),
    "memory_mib": ("nvmlDeviceGetMemoryInfo", lambda memory: memory.used >> 20),
    "power_w": ("nvmlDeviceGetPowerUsage", lambda milliwatts: round(milliwatts / 1000)),
}
Samples = dict[str, Any]  # a line of hardware.jsonl


@contextmanager
def sampled_gpus(device: str, count: int, write: Callable[[Samples], None]) -> Iterator[None]:
    """Sample `count` GPUs from `device` ("auto", "cuda:1") on inside this block, and give the samples to `write` each
    minute and at the end. Nothing for "cpu"; without a GPU or NVIDIA's package, run.log says so."""
    stop = Event()
    arguments = _sample, chosen_gpus(device, count), write, stop
    thread = Thread(target=copy_context().run, args=arguments, name="gpu-sampler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)


def chosen_gpus(device: str, count: int) -> list[str]:
    """The entries of CUDA_VISIBLE_DEVICES, by default indices, of `count` GPUs from `device` on, as far as they exist.
    None on the CPU. As in CUDA, the first invalid entry hides all behind it."""
    if device == "cpu":
        return []
    first = first_gpu(device) or 0
    if (mask := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return [str(number) for number in range(first, first + count)]
    entries = map(str.strip, mask.split(","))
    valid = takewhile(lambda entry: entry.isdecimal() or entry.startswith(("GPU-", "MIG-")), entries)
    return list(valid)[first : first + count]


def _sample(entries: Sequence[str], write: Callable[[Samples], None], stop: Event) -> None:
    if not entries:
        return
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        log.debug("No figures of GPUs: nvidia-ml-py is not installed")
        return
    except pynvml.NVMLError as error:
        log.debug("No figures of GPUs: %s", error)
        return
    failed = set[str]()

    def ask(function: str, *arguments: Any) -> Any:
        """What a function of NVML returns; None, with a line in run.log at the first time, if it fails."""
        try:
            return getattr(pynvml, function)(*arguments)
        except (pynvml.NVMLError, AttributeError) as error:  # the package or the driver may be older
            if function not in failed:
                log.debug("%s: %s", function, error)
            failed.add(function)
            return None

    gpus = []
    for entry in entries:
        if (handle := _handle_of(entry, ask)) is None:
            log.debug("No figures of GPU %s: NVML does not tell which it is", entry)
            continue
        name = ask("nvmlDeviceGetName", handle) or ""
        gpus.append((handle, {"host": socket.gethostname(), "gpu": entry, "name": name}))
    while gpus and not stop.is_set():
        lines = [{"at": datetime.now().astimezone().isoformat(timespec="seconds")} | about for _, about in gpus]
        for _ in range(SAMPLES_PER_LINE):
            for (handle, _), line in zip(gpus, lines, strict=True):
                for figure, (function, value_of) in READ.items():
                    reading = ask(function, handle)
                    value = None if reading is None else value_of(reading)
                    line.setdefault(figure, []).append(value)
            if stop.wait(EVERY_S):
                break
        for line in lines:
            write(line)


def _handle_of(entry: str, ask: Callable[..., Any]) -> Any:
    """NVML's handle of an entry of CUDA_VISIBLE_DEVICES, perhaps the beginning of a UUID; None if unknown, as for
    numbers of unlike GPUs unless CUDA_DEVICE_ORDER is PCI_BUS_ID, NVML's order."""
    if entry.startswith("MIG-"):
        return ask("nvmlDeviceGetHandleByUUID", entry)
    handles = [ask("nvmlDeviceGetHandleByIndex", number) for number in range(ask("nvmlDeviceGetCount") or 0)]
    if entry.startswith("GPU-"):
        matching = [handle for handle in handles if str(ask("nvmlDeviceGetUUID", handle)).startswith(entry)]
        return matching[0] if len(matching) == 1 else None
    if len({ask("nvmlDeviceGetName", handle) for handle in handles}) > 1:
        order = "CUDA_DEVICE_ORDER"
        if os.environ.get(order) != "PCI_BUS_ID":
            log.info("GPU figures are not recorded: to tell these different GPUs apart, set %s=PCI_BUS_ID", order)
            return None
    return handles[int(entry)] if int(entry) < len(handles) else None


def visible_gpus() -> list[str]:
    """The GPUs that PyTorch sees, by the names in CUDA_VISIBLE_DEVICES, else by number."""
    require("a run on several GPUs", "torch", error=partial(ModelError, setting="gpus"))
    import torch

    return chosen_gpus("auto", torch.cuda.device_count())


def first_gpu(device: str) -> int | None:
    """The number in a device's name, as in "cuda:1"; None without one."""
    _, _, number = device.partition(":")
    return int(number) if number.isdecimal() else None
