"""What concerns the engine fails no question: the run waits, or ends and resumes to the same results."""

import email.utils
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, results, run_main, trajectories
from faulty_servers import FaultyServer, Request, Response, no_fault, scripted
from planned import run_settings
from scripted_model import ScriptedBackend, random_policy

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.session import Outcome
from roomscout.edge.settings import Settings
from roomscout.models import EngineLost, ModelError, ModelOptions, Reply, ReplyFormat, ServerOptions
from roomscout.models.conversation import Conversation
from roomscout.models.judge import Judge
from roomscout.runs.reader import RunReader

BUSY = b'{"error": {"message": "slow down"}}'
SCHEDULES: dict[str, dict[str, Any]] = {
    "at once": {"concurrency": 32},
    "one by one": {"concurrency": 1},
    "anytime": {"concurrency": 32, "anytime": True},
}
LOCKSTEP: dict[str, dict[str, Any]] = {
    "batched": {"batch_size": 3, "max_batched_turns": "all"},
    "sequential": {"batch_size": 3, "max_batched_turns": 1, "concurrency": 1},
    "refill": {"batch_size": 2, "refill": True, "max_batched_turns": "all"},
    "anytime": {"batch_size": 3, "anytime": True},
    "independent": {"concurrency": 2},
}


def busy(status: int, asked: str | None = None, body: bytes = BUSY) -> Callable[[], Response]:
    """A refusal with a Retry-After in seconds, or at a date so many seconds ahead ("+2")."""

    def refusal() -> Response:
        late = asked is not None and asked.startswith("+")
        when = email.utils.formatdate(time.time() + float(asked or 0), usegmt=True) if late else asked
        return Response(status, body, {"Content-Type": "application/json"} | ({"Retry-After": when} if when else {}))

    return refusal


PASSING: dict[str, Callable[[], str | Response]] = {
    "429 for a second": busy(429, "1"),
    "429 until a date": busy(429, "+2"),
    "503": busy(503),
    "error in 200": busy(200, body=b'{"error": {"message": "upstream overloaded", "code": 502}}'),
    "closed": lambda: "hang",
    "maintenance page": lambda: "html",
}
LASTING: dict[str, tuple[Callable[[], str | Response], str]] = {
    "revoked key": (busy(401), "OPENAI_API_KEY"),
    "no access": (busy(403), "another model"),
    "model gone": (busy(404), "slow down"),
    "no money": (busy(402), "402"),
    "no quota": (busy(429, body=b'{"error": {"message": "no", "code": "insufficient_quota"}}'), "429: no);"),
    "a day": (busy(429, "86400"), "asks to wait 86,400 s"),
    "down": (lambda: "hang", "did not answer"),
}


class Window:
    """A fault of all requests about a question from the third one on, for so many seconds."""

    def __init__(self, fault: Callable[[], str | Response], seconds: float) -> None:
        self._fault, self._seconds = fault, seconds
        self._asked, self._until = 0, 0.0
        self._lock = threading.Lock()
        self.failed: list[float] = []

    def __call__(self, request: Request) -> str | Response | None:
        with self._lock:
            self._asked += request.turn >= 0
            now = time.monotonic()
            if self._asked == 3:
                self._until = now + self._seconds
            if self._asked < 3 or now >= self._until:
                return None
            self.failed.append(now)
            return self._fault()


def behind(rooms: RoomScans, log_root: Path, server: FaultyServer, **changes: Any) -> Settings:
    about = {"model": "served", "engine": "openai", "base_url": (server.url,), "num_questions": 4, "steps": 2}
    return rooms.config(log_root, **(about | changes))


def paired(troubles: Iterable[str]) -> list[Any]:
    """Each trouble with a schedule, in turn; every second one is for the slow tests."""
    pairs = enumerate(zip(troubles, cycle(SCHEDULES), strict=False))
    return [pytest.param(*pair, marks=pytest.mark.slow) if number % 2 else pair for number, pair in pairs]


@pytest.fixture(scope="module")
def undisturbed(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each schedule without trouble."""
    return {name: here(rooms, tmp_path_factory.mktemp("here"), SCHEDULES[name]).folder for name in SCHEDULES}


def here(rooms: RoomScans, log_root: Path, schedule: dict[str, Any], backend: Any = None, **more: Any) -> Outcome:
    policy = ModelPolicy(backend or ScriptedBackend(random_policy()), prompts=Prompts())
    return run_settings(rooms.config(log_root, num_questions=4, steps=2, **schedule), policy=policy, **more)


def require_same(folder: Path, undisturbed: Path) -> None:
    assert results(folder) == results(undisturbed)
    assert trajectories(folder) == trajectories(undisturbed)


@pytest.mark.parametrize(("trouble", "schedule"), paired(PASSING))
def test_trouble_that_passes_is_waited_for_by_all_and_said_once(
    rooms: RoomScans, tmp_path: Path, undisturbed: dict[str, Path], trouble: str, schedule: str, caplog
):
    window = Window(PASSING[trouble], 0.7)
    with FaultyServer(scripted(random_policy()), window, hang_s=0) as server:
        outcome = run_settings(behind(rooms, tmp_path, server, **SCHEDULES[schedule]))
    assert (outcome.status, window.failed != []) == (0, True)
    require_same(outcome.folder, undisturbed[schedule])
    said = [message for message in caplog.messages if "all wait, at most 600 s in all" in message]
    assert len(said) <= 1
    if "429" in trouble:
        assert len(said) == 1
        assert window.failed[-1] - window.failed[0] < 0.6, "nobody asks in between"


@pytest.mark.parametrize(("trouble", "schedule"), paired(LASTING))
def test_trouble_that_lasts_ends_the_run_which_resumes_to_the_same(
    rooms: RoomScans, tmp_path: Path, undisturbed: dict[str, Path], trouble: str, schedule: str, caplog
):
    fault, words = LASTING[trouble]
    with FaultyServer(scripted(random_policy()), Window(fault, 60), hang_s=0) as server:
        limit = {"request_timeout": 0.3} if trouble == "down" else {}
        config = behind(rooms, tmp_path, server, **SCHEDULES[schedule], **limit)
        started = time.monotonic()
        outcome = run_settings(config)
        assert time.monotonic() - started < 30
        assert (outcome.status, type(outcome.error)) == (3, EngineLost)
        assert not any(row.failed for row in outcome.rows)
        *_, why, command = caplog.messages
        assert words in why and "; finished turns are on disk. To resume:" in why
        assert "The traceback of the error:" not in caplog.text
        assert command.endswith(str(outcome.folder))
        server.fault = no_fault
        assert run_settings(config, outcome.folder).status == 0
    require_same(outcome.folder, undisturbed[schedule])


class Lost(ScriptedBackend):
    """Is lost at its third call."""

    def __init__(self, concurrent: bool) -> None:
        super().__init__(random_policy())
        self.concurrent, self.calls = concurrent, 0

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        self.calls += 1
        if self.calls >= 3:
            raise EngineLost("the GPU has fallen off the bus")
        return super().generate(conversations, reply_format)


@pytest.mark.parametrize("name", LOCKSTEP)
def test_an_engine_of_any_schedule_that_is_lost_fails_no_question(rooms: RoomScans, tmp_path: Path, name: str, caplog):
    schedule = LOCKSTEP[name]
    whole = here(rooms, tmp_path / "whole", schedule)
    outcome = here(rooms, tmp_path / "lost", schedule, Lost(name == "independent"))
    assert outcome.status == 3 and not any(row.failed for row in outcome.rows)
    assert "fallen off the bus; finished turns are on disk. To resume:" in caplog.text
    again = here(rooms, tmp_path / "lost", schedule, folder=outcome.folder)
    assert again.status == 0
    require_same(outcome.folder, whole.folder)


def test_a_server_that_is_gone_and_comes_back_costs_no_question(rooms: RoomScans, tmp_path: Path):
    def gone(request: Request) -> str | None:
        if request.turn == 1 and not server.closing.is_set():
            server.__exit__()
        return "hang" if server.closing.is_set() else None

    with FaultyServer(scripted(random_policy()), gone) as server:
        outcome = run_settings(behind(rooms, tmp_path, server, request_timeout=1.0))
    assert outcome.status == 3 and not any(row.failed for row in outcome.rows)
    with FaultyServer(scripted(random_policy())) as moved:
        assert run_settings(behind(rooms, tmp_path, moved), outcome.folder).status == 0
    whole = here(rooms, tmp_path / "whole", {})
    require_same(outcome.folder, whole.folder)


@pytest.mark.parametrize(("share", "status", "failed"), [(1, 3, 20), (2, 1, 16)])
def test_a_run_ends_once_20_questions_in_a_row_are_refused(
    rooms: RoomScans, tmp_path: Path, share: int, status: int, failed: int, caplog
):
    names: dict[str, int] = {}

    def refused(request: Request) -> str | None:
        number = names.setdefault(request.conversation, len(names))
        return "400" if request.turn == 0 and number % share == 0 else None

    with FaultyServer(scripted(random_policy()), refused) as server:
        config = behind(rooms, tmp_path, server, num_questions=None, steps=1, samples=4, temperature=0.7)
        outcome = run_settings(config)
        assert outcome.status == status
        rows = RunReader(outcome.folder).rows
        assert sum(row.failed_part == "model" for row in rows) == failed
        assert ("20 questions failed in a row, the last one with: " in caplog.text) == (status == 3)
        server.fault = no_fault
        assert run_settings(config, outcome.folder, retry_failed=True).status == 0


def test_one_question_has_the_same_end(rooms: RoomScans, tmp_path: Path):
    scan = min(rooms.root.rglob("*.ply"))
    with FaultyServer(scripted(random_policy()), lambda each: "401" if each.turn >= 0 else None) as server:
        ended = run_main([
            *("ask", str(scan), "How many chairs?", "--engine", "openai", "--model", "served"),
            *("--base-url", server.url, "--log-root", str(tmp_path), "--renderer", "raycast"),
        ])  # fmt: skip
    assert ended.returncode == 3, ended.stderr
    assert "set the environment variable OPENAI_API_KEY" in ended.stderr + ended.stdout
    assert "To resume:" in ended.stderr + ended.stdout


def test_a_judge_waits_too():
    def mark(body: bytes) -> bytes:
        message = {"role": "assistant", "content": "1"}
        return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()

    with FaultyServer(mark) as server:
        judge = Judge("judge", ModelOptions(), ServerOptions((server.url,), timeout_s=5.0))
        server.fault = lambda request: busy(503, "1")() if len(server.requests) < 3 else None
        assert [mark for mark, _ in judge.ask(["a", "b", "c"], str)] == ["1", "1", "1"]
        server.fault = lambda request: busy(429, "86400")()
        with pytest.raises(EngineLost, match="asks to wait 86,400 s"):
            list(judge.ask(["a"], str))
        server.fault = lambda request: "400:The prompt was refused"
        with pytest.raises(ModelError, match="refused"):
            list(Judge("judge", ModelOptions(), ServerOptions((server.url,))).ask(["a"], str))


@pytest.mark.parametrize(("asked", "status"), [("1", 0), ("130", 2)])
def test_the_check_of_a_server_waits_as_long_as_it_asks(rooms: RoomScans, tmp_path: Path, asked: str, status: int):
    checks: list[Request] = []

    def limited(request: Request) -> Response | None:
        checks.extend([request] if request.turn < 0 else [])
        return busy(429, asked)() if len(checks) < 5 else None

    with FaultyServer(scripted(random_policy()), limited) as server:
        model = ["--model", "served", "--engine", "openai", "--base-url", server.url]
        ended = run_main(
            rooms.flags(tmp_path, *model, "--num-questions", "2", "--request-timeout", "100", "--steps", "1")
        )
    said = ended.stdout + ended.stderr
    assert ended.returncode == status, said
    assert ("it asks to wait 130 s, and a run waits no longer" in said) is (status == 2)
