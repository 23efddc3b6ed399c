"""Cost and fault tolerance of --engine openai, measured with servers on loopback that reply at once.

    python -m roomscout.speed.engines faults     64 questions in flight while a fifth of all requests fail
    python -m roomscout.speed.engines overhead   time of a turn, excluding the model
    python -m roomscout.speed.engines workers    turns per second of 1, 2 and 4 processes with one server

A script writes the replies. `faults` and `workers` are whole runs on procedural rooms; `overhead` needs no room.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from roomscout.agent.config import RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.conversation import Conversation, Message, View
from roomscout.models.openai.backend import OpenAIBackend
from roomscout.models.scripted import ScriptedBackend, random_policy
from roomscout.rooms import QUESTIONS_FILE, write_rooms
from roomscout.runs.reader import RunReader, run_folders
from roomscout.speed.servers import FaultyServer, scripted, sometimes

SERVER = "from roomscout.speed.engines import serve; serve()"
LOOK = 'I look on.\n{"rotation_angle_degrees": 30, "forward_meters": 0.5, "answer": null, "done": false}'
"""Never answers, so that every question takes all its turns and all workers have the same work."""
REPLY = scripted(lambda conversation: LOOK)(b'{"messages": []}')


def main() -> None:
    """Run one measurement and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("faults", "overhead", "workers"))
    parser.add_argument("--questions", type=int, default=64, help="questions in flight at once, for faults")
    parser.add_argument("--share", type=float, default=0.2, help="share of requests that fail, for faults")
    parser.add_argument("--turns", type=int, default=9, help="views of a conversation, for overhead and workers")
    parser.add_argument("--image-size", type=int, nargs=2, default=(640, 480), metavar=("W", "H"))
    parser.add_argument("--repeats", type=int, default=5, help="conversations, for overhead")
    parser.add_argument("--seconds", type=float, default=15, help="seconds for each number of workers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"faults": faults, "overhead": overhead, "workers": workers}[args.what](args, Path(folder))


def faults(args: argparse.Namespace, folder: Path) -> None:
    """Compare a run through faults with the same run in this process."""
    config = room_config(folder, args)
    here = turns_of(config.having(log_root=folder / "here"), ModelPolicy(ScriptedBackend(random_policy())))
    started = time.perf_counter()
    with FaultyServer(scripted(random_policy()), sometimes(args.share)) as server:
        asked = config.having(
            log_root=folder / "there", engine="openai", model="served", base_url=(server.url,),
            concurrency=args.questions, request_timeout=2.0,
        )  # fmt: skip
        there = turns_of(asked)
        requests = sum(request.turn >= 0 for request in server.requests)
    seconds, turns = time.perf_counter() - started, sum(map(len, here.values()))
    same = sum(here[number] == there.get(number) for number in here)
    print(f"{len(here)} questions, {turns} turns, {requests} requests ({requests - turns} failed): {seconds:.1f} s")
    print(f"{len(there)} of {len(here)} questions have a result, {same} with every turn as without faults")


def turns_of(config: RunConfig, policy: ModelPolicy | None = None) -> dict[int, list[Any]]:
    """Run, and return every turn of each finished question by its number; its answer is in the last one's action."""
    main_vsi_bench_loop(config, policy=policy)
    (run,) = run_folders(config.output.log_root)
    reader = RunReader(run)
    lines = (run / "results.jsonl").read_text().count("\n")
    assert lines == len(reader.rows), f"{lines} results of {len(reader.rows)} questions"
    return {
        row.number: [(turn.pose, turn.reply.text, turn.action) for turn in reader.turns(row.episode)]
        for row in reader.rows
        if not row.failed
    }


def room_config(folder: Path, args: argparse.Namespace) -> RunConfig:
    """A run over --questions questions about procedural rooms, with small views that render fast."""
    write_rooms(folder, rooms=8, seed=0)
    return RunConfig.of(
        batch=True, questions=folder / QUESTIONS_FILE, scan_root=folder, num_questions=args.questions,
        renderer="raycast", image_size=(160, 96), focal=75.0,
    )  # fmt: skip


def overhead(args: argparse.Namespace, folder: Path) -> None:
    """Time of generate() by turn, for views of smooth surfaces and of noise, whose PNGs differ in size."""
    with server_process() as url:
        backend = OpenAIBackend("served", ModelOptions(), ServerOptions((url,)))
        for name, view in (("smooth", smooth), ("noise", noise)):
            size = len(View(view(0, 0, *args.image_size)).png) / 1e3
            for cpu in (False, True):
                seeds = range(args.repeats + 1)
                millis = np.array([conversation_millis(backend, args, view, seed, cpu) for seed in seeds][1:])
                means, by_turn = millis.mean(axis=1), " ".join(f"{t:.1f}" for t in np.median(millis, axis=0))
                print(
                    f"{name}, {size:.0f} kB a view, {'CPU' if cpu else 'wall'}: {np.median(means):.2f} ms a turn "
                    f"(fastest conversation {means.min():.2f}); by turn {by_turn}"
                )


def conversation_millis(
    backend: OpenAIBackend, args: argparse.Namespace, view: Any, seed: int, cpu: bool
) -> list[float]:
    """Milliseconds of each turn of a conversation, as CPU time of this process or as wall time.

    Excludes encoding PNGs, which the run folder needs anyway.
    """
    conversation = Conversation(str(seed))
    conversation.append(Message("system", "Look around. " * 150))
    millis = []
    for turn in range(args.turns):
        conversation.append(Message("user", "You moved. " * 30, view(seed, turn, *args.image_size)))
        _ = conversation.views[-1].png
        started = time.process_time() if cpu else time.perf_counter()
        (reply,) = backend.generate([conversation], action_format())
        millis.append(1e3 * ((time.process_time() if cpu else time.perf_counter()) - started))
        conversation.append(Message("assistant", reply.text))
    backend.release(conversation)
    return millis


def smooth(seed: int, turn: int, width: int, height: int) -> np.ndarray:
    """Gradients like those of walls, with slight noise: the PNG has about a third of the pixels' bytes."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    draw = np.random.default_rng((seed, turn))
    layers = [np.sin(x / draw.uniform(20, 90)) * 60 + y * draw.uniform(0, 0.2) + 100 for _ in range(3)]
    return (np.stack(layers, axis=-1) + draw.normal(0, 2, (height, width, 1))).clip(0, 255).astype(np.uint8)


def noise(seed: int, turn: int, width: int, height: int) -> np.ndarray:
    """Random pixels, which PNG cannot compress."""
    return np.random.default_rng((seed, turn)).integers(0, 256, (height, width, 3), dtype=np.uint8)


def workers(args: argparse.Namespace, folder: Path) -> None:
    """Print turns per second of 1, 2 and 4 processes, each an ordinary run on separate rooms."""
    width, height = map(str, args.image_size)
    print("| workers | turns per second | ms of wall time a turn |\n|---|---|---|")
    with server_process() as url:
        for count in (1, 2, 4):
            commands = []
            for worker in range(count):
                rooms = folder / f"rooms_{worker}"
                if not rooms.exists():
                    write_rooms(rooms, rooms=4, seed=worker)
                commands.append([
                    sys.executable, "render_point_cloud_qwen_angle_batched.py", "--batch",
                    "--questions", str(rooms / QUESTIONS_FILE), "--scan-root", str(rooms),
                    "--log-root", str(folder / f"logs_{count}_{worker}"), "--renderer", "raycast",
                    "--image-size", width, height, "--steps", str(args.turns - 1),
                    "--engine", "openai", "--base-url", url, "--model", "served",
                ])  # fmt: skip
            rate = turns_per_second(commands, [folder / f"logs_{count}_{worker}" for worker in range(count)], args)
            print(f"| {count} | {rate:.1f} | {1e3 / rate:.0f} |", flush=True)


def turns_per_second(commands: list[list[str]], logs: list[Path], args: argparse.Namespace) -> float:
    """Turns per second of all commands together, counted for --seconds once each has recorded a turn."""
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    try:
        while not all(recorded(log) for log in logs):
            assert not any(each.poll() for each in running), "a worker failed"
            time.sleep(0.05)
        started, before = time.perf_counter(), sum(map(recorded, logs))
        time.sleep(args.seconds)
        assert not any(each.poll() is not None for each in running), "a worker ended early: give fewer --seconds"
        return (sum(map(recorded, logs)) - before) / (time.perf_counter() - started)
    finally:
        for each in running:
            each.kill()
            each.wait()


def recorded(log_root: Path) -> int:
    """The number of turns recorded in all run folders below a log root."""
    return sum(path.read_bytes().count(b"\n") for path in log_root.glob("*/q*/turns.jsonl"))


@contextmanager
def server_process() -> Iterator[str]:
    """Run a server that replies at once in a separate process; yields its URL."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


def serve() -> None:
    """Reply at once until killed."""
    with FaultyServer(lambda body: REPLY, watching=False) as server:
        print(server.url, flush=True)
        time.sleep(1e9)


if __name__ == "__main__":
    main()
