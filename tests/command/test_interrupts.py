"""Tests that an interrupt ends a command in each of its phases, however it is raised and whatever it waits for."""

import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RoomScans, only_run, results, run_in_process, run_main, scripted, trajectories
from faulty_servers import FaultyServer, Request, no_fault
from faulty_servers import scripted as serving
from losing_interrupts import LOSSES
from scripted_model import random_policy

from roomscout.base.interrupts import INTERRUPTS
from roomscout.runs.reader import run_folders

POLICY = '''
import json
from contextlib import contextmanager
from pathlib import Path
import losing_interrupts
from roomscout.agent.policies.controls import RandomPolicy

ORDER = Path(__file__).with_name("order.json")

def reached(phase):
    """Interrupt this process once if that is ordered for this phase."""
    if ORDER.exists():
        ordered, loss, how = json.loads(ORDER.read_text())
        if ordered == phase:
            ORDER.unlink()
            getattr(losing_interrupts, loss)(how)

reached("planning")

class Ordered(RandomPolicy):
    @contextmanager
    def open(self):
        reached("loading")
        yield
        reached("closing")

    def begin(self, state):
        reached("beginning")

    def decide(self, states):
        reached("lockstep turn" if len(states) > 1 else "sequential turn" if states[0].turn > 1 else "")
        return super().decide(states)

    def forget(self, state):
        reached("writing")
'''
PHASES = ("planning", "loading", "beginning", "lockstep turn", "sequential turn", "writing", "closing")
BEFORE = ("planning", "loading")  # there is a run folder
MOST_S = 5.0
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("phase", "loss"),
    [
        pytest.param(phase, loss, marks=[] if (number + place) % len(LOSSES) == 0 or number == 3 else SLOW)
        for number, phase in enumerate(PHASES)
        for place, loss in enumerate(LOSSES)
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_ends_a_run_in_each_phase_and_it_can_be_resumed(
    rooms: RoomScans, undisturbed: Path, tmp_path: Path, loss: Callable[[signal.Signals], None], phase: str
):
    how = INTERRUPTS[(LOSSES.index(loss) + PHASES.index(phase)) % 2]
    (tmp_path / "policies.py").write_text(POLICY)
    (tmp_path / "order.json").write_text(json.dumps([phase, loss.__name__, how]))
    flags = [
        "--batch-size",
        "3",
        "--max-batched-turns",
        "2",
        "--concurrency",
        "1",
        "--steps",
        "3",
        "--num-questions",
        "3",
    ]
    flags = rooms.flags(tmp_path / "logs", "--policy", f"{tmp_path / 'policies.py'}:Ordered", *flags)
    began = time.monotonic()
    ended = run_main(flags)
    assert (ended.returncode, time.monotonic() - began < MOST_S) == (130, True), ended.stderr
    assert not (tmp_path / "order.json").exists()
    if phase in BEFORE:
        assert "run the same command again" in ended.stdout and not run_folders(tmp_path / "logs")
        resumed = run_main(flags)
    else:
        assert "To resume:" in ended.stdout
        resumed = run_main(shlex.split(ended.stdout.splitlines()[-1])[2:])
    assert resumed.returncode == 0, resumed.stderr
    assert results(only_run(tmp_path / "logs")) == results(undisturbed)
    assert trajectories(only_run(tmp_path / "logs")) == trajectories(undisturbed)


@pytest.mark.parametrize(
    ("turn", "fault"),
    [
        pytest.param(turn, fault, marks=SLOW if fault == "interim" else [])
        for turn in (-1, 0, 2)  # -1: the request that checks the server
        for fault in ("hang", "headers", "interim", "drip")
    ],
)
def test_an_interrupt_ends_a_run_whatever_its_server_does(
    rooms: RoomScans, served: Path, tmp_path: Path, fault: str, turn: int
):
    how = INTERRUPTS[(turn + len(fault)) % 2]

    def hang(request: Request) -> str | None:
        if request.turn != turn:
            return None
        if not sent:
            sent.append(time.monotonic())
            threading.Timer(0.2, os.kill, (os.getpid(), how)).start()
        return fault

    sent: list[float] = []
    with FaultyServer(serving(random_policy()), hang, hang_s=99, drip_s=99) as server:
        flags = ["--model", "served", "--engine", "openai", "--base-url", server.url, "--num-questions", "3"]
        flags = rooms.flags(tmp_path, "--steps", "3", *flags)
        ended = run_main(flags)
        assert (ended.returncode, time.monotonic() - sent[0] < MOST_S) == (130, True), ended.stdout
        server.fault = no_fault
        again = flags if turn < 0 else shlex.split(ended.stdout.splitlines()[-1])[2:]
        assert run_main(again).returncode == 0
    assert results(only_run(tmp_path)) == results(served)
    assert trajectories(only_run(tmp_path)) == trajectories(served)


@pytest.fixture(scope="module")
def undisturbed(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run makes that nobody interrupts."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("undisturbed"), steps=3, batch_size=3, num_questions=3))


@pytest.fixture(scope="module")
def served(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the replies of a model."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("served"), steps=3, num_questions=3), scripted())
