"""Small procedural rooms and runs on them, for all tests that need scans."""

import contextlib
import fcntl
import gc
import io
import json
import logging
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from browsing import CHROMIUM
from PIL import Image
from planned import run_settings, settings_of
from scripted_model import ScriptedBackend, random_policy

from roomscout.agent.console import OUR_LOGGER, TURNS_LOGGER
from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.base.interrupts import INTERRUPTS
from roomscout.command.main import main
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.question import with_kind
from roomscout.data.questions import Question
from roomscout.edge.settings import Settings
from roomscout.rooms import ScanStyle, write_rooms
from roomscout.runs.reader import RunReader, run_folders
from roomscout.runs.records import EpisodeId

COMMAND = Path(__file__).parents[1] / "render_point_cloud_qwen_angle_batched.py"
SMALL_VIEW = (160, 96)
# No example fails for being slow: a busy machine is slow now and then.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> Iterator[None]:
    """Undo what a command inside this process changes: see `process_restored`.

    A shell starts its background jobs with SIGINT ignored, so signal handlers are set before the first test too.
    """
    for each in INTERRUPTS:
        signal.signal(each, signal.default_int_handler if each is signal.SIGINT else signal.SIG_DFL)
    with process_restored():
        yield


@contextlib.contextmanager
def process_restored() -> Iterator[None]:
    """At the end of this block, remove the handlers of log lines that it added, and restore those of signals.

    A command ignores signals at its end, and processes that a test starts would inherit that.
    """
    handlers = {logger: [*logger.handlers] for logger in map(logging.getLogger, ("", OUR_LOGGER, TURNS_LOGGER))}
    signals = {each: signal.getsignal(each) for each in INTERRUPTS}
    try:
        yield
    finally:
        for logger, before in handlers.items():
            for added in [each for each in logger.handlers if each not in before]:
                logger.removeHandler(added)
        for number, handler in signals.items():
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Collect garbage neither while the tests' modules are imported nor, later, among what they imported.

    That takes 10 s of CPU time of each process, and 0.7 s of each full collection afterwards.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter collect what `pytest_collection` kept, of which Triton's binding would say that it leaked."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[Any]:
    """Escape surrogates in a report, as in a logged path, which pytest-xdist cannot send to another process."""
    return encodable((yield))


def encodable(value: Any) -> Any:
    """A report's value with escapes for characters that UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(each) for key, each in value.items()}
    return type(value)(map(encodable, value)) if type(value) in (list, tuple) else value


@dataclass(frozen=True)
class RoomScans:
    """A scan root of procedural rooms with the questions about them."""

    root: Path
    questions: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the question file."""
        return [json.loads(line) for line in self.questions.read_text().splitlines()]

    def config(self, log_root: Path, **changes: Any) -> Settings:
        """A run with small views over questions of both rooms, of random moves unless a model is named."""
        values: dict[str, Any] = {
            "questions": self.questions,
            "scan_root": self.root,
            "log_root": log_root,
            "renderer": "raycast",
            "image_size": SMALL_VIEW,
            "focal": 75.0,
            **({} if "model" in changes else {"policy": "random"}),
        }
        return settings_of(**{**values, **changes})

    def flags(self, log_root: Path, *more: str) -> list[str]:
        """The same run as flags of the command; without its report, and without the search for objects in its views."""
        width, height = (str(side) for side in SMALL_VIEW)
        return [
            "--batch", "--questions", str(self.questions), "--scan-root", str(self.root), "--log-root", str(log_root),
            *(() if "--model" in more or "--policy" in more else ("--policy", "random")),
            "--renderer", "raycast", "--image-size", width, height, "--focal", "75",
            "--no-report", *more,
        ]  # fmt: skip

    def command(self, log_root: Path, *more: str) -> list[str]:
        """The same run as a command line."""
        return [sys.executable, str(COMMAND), *self.flags(log_root, *more)]


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills, once for all processes of pytest-xdist; nobody may change it."""
    shared = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    folder, finished = shared / name, shared / f"{name}.finished"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder


def room_scans(
    factory: pytest.TempPathFactory, name: str, chosen: Callable[[list[list[Any]]], list[Any]], **arguments: Any
) -> RoomScans:
    """Rooms, written once for all processes, with the questions that are chosen from the rows of each scene."""

    def make(root: Path) -> None:
        write_rooms(root, **arguments)
        scenes: dict[str, list[Any]] = {}
        for row in map(json.loads, (root / "questions.jsonl").read_text().splitlines()):
            scenes.setdefault(row["scene_name"], []).append(row)
        (root / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen([*scenes.values()])))

    root = made_once(factory, name, make)
    return RoomScans(root, root / "few.jsonl")


@pytest.fixture(scope="session")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> RoomScans:
    """Two rooms with four questions each; coarse, so that they load fast."""

    def four(scenes: list[list[Any]]) -> list[Any]:
        return [row for rows in scenes for row in rows[::4][:4]]

    return room_scans(tmp_path_factory, "rooms", four, rooms=2, seed=5, style=ScanStyle(resolution_m=0.2))


@pytest.fixture(scope="session")
def six_rooms(tmp_path_factory: pytest.TempPathFactory) -> RoomScans:
    """Six rooms with one to six questions each, interleaved."""

    def interleaved(scenes: list[list[Any]]) -> list[Any]:
        return [rows[turn] for turn in range(len(scenes)) for place, rows in enumerate(scenes) if turn <= place]

    return room_scans(tmp_path_factory, "six_rooms", interleaved, rooms=6, seed=7, style=ScanStyle(resolution_m=0.2))


@pytest.fixture(scope="session")
def one_run(six_rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes of the six rooms; nobody may change it."""
    return only_run(made_once(tmp_path_factory, "one_run", lambda root: run_in_process(six_rooms.config(root))))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, headless."""
    if CHROMIUM is None:
        if os.environ.get("ALL_RENDERERS"):
            pytest.fail("Chromium is not installed: sudo apt-get install -y chromium")
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads slow down models as small as those of the tests, above all on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def traced(backend: Any) -> Any:
    """A backend with compiled layers, traced as on CUDA, but without kernels."""
    from roomscout.models.transformers.steps import compiled_layers

    return decoding(backend, compiled=compiled_layers(backend._runner._model, "eager"))


def decoding(backend: Any, **how: Any) -> Any:
    """A backend whose steps are captured or compiled, as on CUDA."""
    from roomscout.models.transformers.steps import DecodingSteps

    runner = backend._runner
    runner._steps = DecodingSteps(runner._model, runner._pool, runner._column_bytes, runner._always, **how)
    return backend


def vsi_question(*columns: Any, **more: Any) -> Question:
    """A question of VSI-Bench."""
    return with_kind(Question(*columns, **more), BENCHMARK)


def only_run(log_root: Path) -> Path:
    """The only run folder below a log root."""
    (folder,) = run_folders(log_root)
    return folder


def run_in_process(config: Settings, policy: Policy | None = None) -> Path:
    """Run the evaluation loop and return its folder."""
    run_settings(config, policy=policy)
    return only_run(config.log_root)


def scripted(seed: int = 0) -> ModelPolicy:
    """A model that replies with random moves and answers; about one reply in six is malformed."""
    return ModelPolicy(ScriptedBackend(random_policy(seed)))


def results(folder: Path) -> list[dict[str, Any]]:
    """The last result row of each question, by number, without times."""
    rows = map(asdict, RunReader(folder).rows)
    times = ("seconds", "seconds_share")
    return [{key: value for key, value in row.items() if key not in times} for row in rows]


def scores(folder: Path) -> dict:
    """What a summary says of the answers."""
    kept = ("protocol", "model", "questions", "pending", "asked", "with_scan", "types")
    found = RunReader(folder).summary.to_json()
    assert found is not None
    return {key: found[key] for key in kept}


def pixels(image: Path) -> tuple[tuple[int, int], bytes]:
    """An image file's size and decoded pixels."""
    with Image.open(image) as opened:
        return opened.size, opened.convert("RGB").tobytes()


def interrupted(folder: Path, turns: int, copy_to: Path | None = None) -> Path:
    """A run, or a copy of it, with the first turns of each question and no result, as after an interrupt."""
    folder = Path(shutil.copytree(folder, copy_to)) if copy_to else folder
    (folder / "results.jsonl").write_text("")
    for journal in folder.glob("q*/turns.jsonl"):
        journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:turns]))
    return folder


def trajectories(folder: Path) -> dict[EpisodeId, list[Any]]:
    """By episode: each turn's pose, reply, action and move; the conversation; and the images' pixels.

    Not the files' bytes: ISA-L now and then compresses the same pixels into other bytes.
    """
    reader = RunReader(folder)
    return {
        episode: [
            *((t.turn, t.pose, t.reply.text, t.action, t.parse_error, t.move) for t in reader.turns(episode)),
            reader.messages(episode),
            *(pixels(image) for image in sorted((folder / str(episode)).glob("render_*.png"))),
        ]
        for episode in reader.begun
    }


def run_main(flags: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the command inside this process and capture its output.

    That takes a fifth of the CPU time of `run_command`, which is for what needs a process: signals, terminals, pipes,
    the environment of the interpreter, and modules that must be imported again.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with process_restored(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(list(flags))
        except SystemExit as ended:  # as argparse ends after its help
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(list(flags), status, text_of(out), text_of(err))


def text_of(stream: io.TextIOWrapper) -> str:
    """What was written to a stream in memory."""
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def run_command(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and capture its output."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@contextlib.contextmanager
def served_by_the_command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process of a command that serves a page, and the line that says at which address, or an error."""
    command = [sys.executable, str(COMMAND), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, next(line for line in process.stdout if "http://" in line or "error" in line)
        finally:
            process.kill()


def on_a_terminal(command: list[str]) -> str:
    """What a command prints on a terminal, both streams."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                printed += os.read(ours, 65536)
            except OSError:  # the process has closed the terminal
                break
    os.close(ours)
    assert process.returncode in (0, 1, 3)
    return printed.decode().replace("\r\n", "\n")
