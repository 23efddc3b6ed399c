"""Errors of the Python API name arguments and settings, where the command names flags."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL_VIEW, RoomScans

from roomscout import ask, explore, load_policy
from roomscout.agent.config import ConfigError
from roomscout.data.questions import QuestionError
from roomscout.data.scans import ScanNotFound
from roomscout.models import ModelError
from roomscout.runs import RunError

VIEW = {"image_size": SMALL_VIEW, "focal": 75.0, "renderer": "raycast"}
Call = Callable[[RoomScans], Any]


def scan_of(rooms: RoomScans) -> Path:
    return min(rooms.root.rglob("*.ply"))


MISTAKES: list[tuple[Call, type[Exception], str]] = [
    (lambda _: ask("nowhere.ply", "Where?"), ConfigError, r"^scan \S*nowhere.ply does not exist: check the path$"),
    (lambda rooms: ask("Where?", str(scan_of(rooms))), ConfigError, "^ask takes the scan before the question: ask"),
    (lambda rooms: ask(scan_of(rooms), 3), ConfigError, "^question takes a text, got 3$"),  # type: ignore[arg-type]
    (lambda rooms: explore(rooms.questions, limit=3), ConfigError, "no setting limit; did you mean num_questions"),
    (lambda rooms: explore(rooms.questions, num_processes=8), ConfigError, "did you mean gpus of `roomscout eval`, or"),
    (
        lambda rooms: explore(rooms.questions, use_vllm=True),
        ConfigError,
        'no setting use_vllm; did you mean engine="vllm"',
    ),
    (lambda _: ask(3, "Where?"), ConfigError, "^scan takes the path of a scan file, got 3$"),  # type: ignore[arg-type]
    (lambda rooms: ask(scan_of(rooms), "Where?", options=["left"]), QuestionError, "^options: .* at least two, got 1$"),
    (
        lambda rooms: ask(scan_of(rooms), "Where?", question_type="place"),
        QuestionError,
        "^question_type 'place' is ",
    ),
    (lambda rooms: ask(scan_of(rooms), "Where?", device="gpu"), ConfigError, "^device takes one device, .* got gpu$"),
    (
        lambda rooms: ask(scan_of(rooms), "Where?", model="m", engine="openai"),
        ConfigError,
        '^engine="openai" asks a server: it needs base_url, such as http://',
    ),
    (
        lambda rooms: ask(scan_of(rooms), "Where?", model="embeded"),
        ModelError,
        '^there is no checkpoint folder embeded: did you mean model="embedded"',
    ),
    (
        lambda rooms: ask(scan_of(rooms), "Where?", model="embedded", compile=True, attention="eager"),
        ConfigError,
        '^compile does not work with attention="eager": use sdpa$',
    ),
    (
        lambda rooms: ask(scan_of(rooms), "Where?", model="scripted:random", log_root=rooms.questions),
        RunError,
        r"^log_root \S*few.jsonl: cannot make a folder there",
    ),
    (
        lambda rooms: ask(scan_of(rooms), "Where?", questions=rooms.questions),
        ConfigError,
        "^ask asks one question: leave out questions and its filters$",
    ),
    (
        lambda rooms: explore(rooms.questions, scan_root="nowhere", model="scripted:random"),
        ScanNotFound,
        "is not a folder; scan_root takes the folder with the scans$",
    ),
    (
        lambda rooms: explore(rooms.questions, ids=["first"], model="scripted:random"),
        QuestionError,
        "^ids: .* has no first; it has ",
    ),
    (
        lambda rooms: explore(rooms.questions, scan_root=rooms.root, model="embedded", samples=2),
        ConfigError,
        "^samples=2 would repeat one answer 2 times, .* at temperature=0 are always the same: add temperature, such",
    ),
    (
        lambda rooms: explore(rooms.questions, scan_root=rooms.root, model="scripted:random", refill=True),
        ConfigError,
        'needs max_batched_turns="all"$',
    ),
    (
        lambda _: load_policy("embedded", device="cuda:99"),
        ModelError,
        '^device="cuda:99" is not available: .* use device="cpu"$',
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), MISTAKES, ids=[words for *_, words in MISTAKES])
def test_a_mistake_in_python_is_named_in_its_words(rooms: RoomScans, call: Call, kind: type[Exception], words: str):
    with pytest.raises(kind, match=words) as caught:
        call(rooms)
    assert "--" not in str(caught.value)


def test_an_error_keeps_its_cause(rooms: RoomScans):
    with pytest.raises(QuestionError, match=r"cannot read \S*nowhere.jsonl: .*; check questions$") as caught:
        explore("nowhere.jsonl", scan_root=rooms.root, model="scripted:random")
    assert isinstance(caught.value.__cause__, OSError)


def test_a_failed_question_says_why_in_pythons_words(rooms: RoomScans):
    long = "Where? " * 9000
    with pytest.warns(UserWarning, match="the wording is unknown"):
        failed = ask(scan_of(rooms), long, model="embedded", renderer="raycast", steps=0)
    assert failed.error is not None
    assert failed.error.endswith("use a shorter question, a smaller image_size or fewer max_new_tokens")


def test_a_path_that_looks_like_a_flag_stays_as_it_is(rooms: RoomScans, tmp_path: Path):
    folder = tmp_path / "my --steps 3 and --ply"
    folder.symlink_to(rooms.root)
    with pytest.raises(QuestionError, match=r"my --steps 3 and --ply is a folder; questions takes a file"):
        explore(folder)
