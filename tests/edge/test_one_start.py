"""A run has one start: each way to one shows the same pictures, and nothing behind the edge names a flag."""

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RoomScans, only_run, run_main
from planned import spec_of
from scripted_model import ScriptedBackend

from roomscout import RoomEnv, VectorEnv, explore
from roomscout.agent.loop import main_vsi_bench_loop
from roomscout.agent.opening import open_run
from roomscout.agent.policies.model import ModelPolicy
from roomscout.base.errors import flag
from roomscout.edge.declaring import Role
from roomscout.edge.dividing import as_asked, divide
from roomscout.edge.plan import again
from roomscout.edge.sections import RenderSettings
from roomscout.edge.settings import SETTINGS, VERB_WORDS, names_in, names_of
from roomscout.runs.reader import RunReader

ROOT = Path(__file__).parents[2]
SMALL = {"renderer": "raycast", "image_size": (64, 48), "focal": 32.0}
CHANGES: dict[str, Any] = {
    "renderer": "blind",
    "up_axis": "-z",
    "scale": 1.25,
    "image_size": (72, 48),
    "focal": 45.0,
    "camera_height": 1.1,
    "camera_pitch": -40.0,
    "see": ("depth",),
}
"""Another value of each setting that changes a picture."""
BEHIND = ("agent", "data", "envs", "models", "rendering", "rooms", "runs", "scoring")


def pictures(images: Any) -> list[np.ndarray]:
    return [np.asarray(image) for image in images]


def in_a_folder(rooms: RoomScans, tmp_path: Path, settings: dict[str, Any]) -> list[np.ndarray]:
    """The first views of a run by the command."""
    words = {name: value if isinstance(value, tuple) else (value,) for name, value in settings.items()}
    flags = [word for name, value in words.items() for word in (flag(name), *map(str, value))]
    asked = ["--questions", str(rooms.questions), "--scan-root", str(rooms.root), "--num-questions", "1"]
    about = ["--steps", "0", "--policy", "stay", "--no-report", "--log-root", str(tmp_path / "logs")]
    assert run_main(["eval", *asked, *about, *flags]).returncode == 0
    reader = RunReader(only_run(tmp_path / "logs"))
    (turn,) = reader.turns(next(iter(reader.begun)))
    return pictures(shot.image for shot in turn.shots)


def in_memory(rooms: RoomScans, tmp_path: Path, settings: dict[str, Any]) -> list[np.ndarray]:
    seen: list[np.ndarray] = []

    def reply(conversation: Any) -> str:
        seen.extend(shot.image for shot in conversation.shots)
        return '{"answer": 1, "done": true}'

    policy = ModelPolicy(ScriptedBackend(reply))
    explore(rooms.questions, policy=policy, scan_root=rooms.root, num_questions=1, steps=0, **settings)
    return pictures(seen)


def in_a_session(rooms: RoomScans, tmp_path: Path, settings: dict[str, Any]) -> list[np.ndarray]:
    """The first view of a further question about a scan that is open already, as `ask` asks it."""
    more = {key: value for key, value in settings.items() if key not in SMALL} | {"policy": "stay", "steps": 0}
    config = rooms.config(tmp_path / "asked", **{**SMALL, **settings, **more}, num_questions=1)
    spec = spec_of(config)
    with closing(open_run(spec)) as opened:
        further = again(spec, spec.questions.here[0])
        main_vsi_bench_loop(further, show_progress=False, opened=opened)
    reader = RunReader(only_run(tmp_path / "asked"))
    (turn,) = reader.turns(next(iter(reader.begun)))
    return pictures(shot.image for shot in turn.shots)


def in_an_environment(rooms: RoomScans, tmp_path: Path, settings: dict[str, Any]) -> list[np.ndarray]:
    with RoomEnv(rooms.questions, scan_root=rooms.root, **settings) as env:
        return pictures(env.reset(0)[-1].images)


def in_a_vector(rooms: RoomScans, tmp_path: Path, settings: dict[str, Any]) -> list[np.ndarray]:
    with VectorEnv(1, rooms.questions, scan_root=rooms.root, **settings) as env:
        (messages,) = env.reset([0])
        return pictures(messages[-1].images)


def in_endless_rooms(rooms: RoomScans, tmp_path: Path, settings: dict[str, Any]) -> list[np.ndarray]:
    with RoomEnv(endless=True, datasets=["bare"], **settings) as env:
        return pictures(env.reset(3)[-1].images)


def in_a_vector_of_endless_rooms(rooms: RoomScans, tmp_path: Path, settings: dict[str, Any]) -> list[np.ndarray]:
    with VectorEnv(1, endless=True, datasets=["bare"], **settings) as env:
        (messages,) = env.reset([3])
        return pictures(messages[-1].images)


OF_FILES = [in_a_folder, in_memory, in_a_session, in_an_environment, in_a_vector]
WAYS = [*OF_FILES, in_endless_rooms, in_a_vector_of_endless_rooms]
Way = Callable[[RoomScans, Path, dict[str, Any]], list[np.ndarray]]


def test_every_setting_that_changes_a_picture_has_another_value_here():
    drawing = set(names_in(RenderSettings)) & set(names_of(Role.ANSWER))
    assert drawing == CHANGES.keys()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_setting_that_changes_a_picture_changes_it_in_each_way(rooms: RoomScans, tmp_path: Path, way: Way):
    usual = way(rooms, tmp_path / "usual", dict(SMALL))
    assert [image.shape for image in usual] == [(48, 64, 3)]
    for name, value in CHANGES.items():
        images = way(rooms, tmp_path / name, {**SMALL, name: value})
        is_same = len(images) == len(usual) and all(map(np.array_equal, images, usual))
        assert not is_same, name


@pytest.mark.parametrize("way", OF_FILES, ids=lambda way: way.__name__)
def test_each_way_to_a_scan_file_shows_the_same_view(rooms: RoomScans, tmp_path: Path, way: Way):
    (view,) = way(rooms, tmp_path, dict(SMALL))
    (expected,) = in_an_environment(rooms, tmp_path, dict(SMALL))
    assert np.array_equal(view, expected)


def literals(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


OF_OTHERS = {"models/vllm/server.py", "rooms/command.py", "envs/import_boxes.py"}
"""Files with flags of vLLM's command, and of verbs that take no settings, which are spelt alike."""


@pytest.mark.parametrize("package", BEHIND)
def test_no_literal_behind_the_edge_names_a_flag(package: str):
    names = [*SETTINGS, *VERB_WORDS]
    flags = {flag(name) for name in names} | {flag(name, False) for name in names}
    folder = ROOT / "roomscout"
    naming = [
        f"{path.relative_to(folder)}:{line}"
        for path in (folder / package).rglob("*.py")
        if str(path.relative_to(folder)) not in OF_OTHERS
        for line, text in literals(path)
        if flags.intersection(re.findall(r"--[a-z][a-z-]*", text))
    ]
    assert not naming


def test_only_the_edge_raises_the_error_of_settings():
    raising = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "roomscout").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise) and "ConfigError(" in ast.unparse(node)
    ]
    assert {Path(path).parts[1] for path in raising} == {"edge"}


def test_flags_give_what_was_asked_for_and_settings_the_renderer_that_draws(rooms: RoomScans, tmp_path: Path):
    settings = rooms.config(tmp_path, policy="stay", num_questions=1, renderer="auto")
    spec = spec_of(settings)
    further = again(spec, spec.questions.here[0])
    for record in (spec.record, further.record, as_asked(divide(settings), spec.record)):
        assert "--renderer" not in record.flags
        assert record.settings["renderer"] == spec.world.renderer != "auto"
