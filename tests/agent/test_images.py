"""--see: several named images per turn, in the loop, the run folder and what is made of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RoomScans, interrupted, run_in_process, scripted
from planned import run_settings
from simple_rooms import box, scene_of
from untrained_checkpoints import write_untrained_checkpoint

from roomscout import load_trajectories
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Controls, Prompts
from roomscout.analysis.exports import inspect_log, messages
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.scores import facts_in_words
from roomscout.analysis.report.writer import write_report
from roomscout.base.errors import ConfigError
from roomscout.base.shots import Shot
from roomscout.edge.planning import plan
from roomscout.edge.reading import changed
from roomscout.edge.settings import Settings
from roomscout.models import ModelOptions
from roomscout.models.conversation import Message
from roomscout.models.openai.dialect import chat_message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.modalities import MODALITIES, draw_shots
from roomscout.rendering.modalities.modality import Sight
from roomscout.rendering.renderers import Renderer
from roomscout.rendering.renderers.raycast import BlindRenderer, RaycastRenderer
from roomscout.rendering.scene import Scene
from roomscout.runs.reader import RunReader

pytestmark = pytest.mark.usefixtures("one_thread")
SEE = ("rgb", "depth", "map", "plan")
FILES = ["render_00.png", *(f"render_00_{name}.png" for name in SEE[1:])]
CAMERA = Intrinsics(32, 24, 20.0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny"))


def config_of(rooms: RoomScans, root: Path, **changes: Any) -> Settings:
    return rooms.config(root, **{"see": SEE, "steps": 2, "num_questions": 3, **changes})


def run(rooms: RoomScans, root: Path, checkpoint: str, kv_reuse: bool = True, **changes: Any) -> Path:
    options = ModelOptions(device="cpu", max_new_tokens=8, temperature=1.5, kv_reuse=kv_reuse)
    policy = ModelPolicy(TransformersBackend.from_checkpoint(checkpoint, options))
    return run_in_process(config_of(rooms, root, **changes), policy)


def tokens(folder: Path) -> dict[str, list[Any]]:
    """The tokens that the model wrote in each turn."""
    reader = RunReader(folder)
    return {str(each): [turn.reply.tokens for turn in reader.turns(each)] for each in reader.begun}


def sight_of(scene: Scene, *path: CameraPose, renderer: Renderer | None = None, camera: Intrinsics = CAMERA) -> Sight:
    renderer = renderer or RaycastRenderer()
    return Sight(renderer, scene, camera, path, renderer.render(scene, path[-1], camera))


def pictures(folder: Path) -> dict[str, bytes]:
    """The files of all images."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("q*/*.png")}


@pytest.fixture(scope="module")
def two(rooms: RoomScans, checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(rooms, tmp_path_factory.mktemp("two"), checkpoint)


def test_batches_and_reuse_change_no_token(rooms: RoomScans, two: Path, checkpoint: str, tmp_path: Path):
    assert len(tokens(two)) == 3
    alone = run(rooms, tmp_path / "alone", checkpoint, max_batched_turns=0, concurrency=1)
    assert tokens(alone) == tokens(two) and pictures(alone) == pictures(two)
    assert tokens(run(rooms, tmp_path / "fresh", checkpoint, kv_reuse=False)) == tokens(two)


def test_a_resumed_run_shows_the_same_images(rooms: RoomScans, two: Path, checkpoint: str, tmp_path: Path):
    folder = run(rooms, tmp_path, checkpoint)
    for later in interrupted(folder, 1).glob("q*/render_0[1-9]*"):
        later.unlink()
    options = ModelOptions(device="cpu", max_new_tokens=8, temperature=1.5)
    policy = ModelPolicy(TransformersBackend.from_checkpoint(checkpoint, options))
    run_settings(config_of(rooms, tmp_path, continue_from=str(folder)), folder, policy)
    assert tokens(folder) == tokens(two)
    assert pictures(folder) == pictures(two)
    with pytest.raises(ConfigError, match="see"):
        run_settings(config_of(rooms, tmp_path, continue_from=str(folder), see=("rgb",)), folder, policy)


def test_all_views_at_once_have_the_maps_of_the_same_moves(rooms: RoomScans, tmp_path: Path):
    spin, once = (
        run_in_process(config_of(rooms, tmp_path / present, moves="spin", present=present, see="map"), scripted())
        for present in ("turns", "once")
    )
    assert pictures(spin) == pictures(once) and len({*pictures(spin).values()}) > 3


def test_a_run_folder_has_all_images_and_their_legend(two: Path):
    reader = RunReader(two)
    first = reader.begun[0]
    folder = two / str(first)
    system, user, *_ = reader.messages(first)
    assert " ".join(MODALITIES[name].sentence for name in SEE[1:]) in system["text"]
    assert user["images"] == FILES
    assert ", with depth, with map, with plan, " in reader.facts.protocol
    trajectory = load_trajectories(two)[0]
    assert [len(each["images"]) for each in trajectory.messages[:2]] == [0, len(SEE)]
    assert list(trajectory.turns[0].images) == list(SEE)
    turns = range(len(trajectory.turns))
    assert all((folder / f"render_{turn:02d}_{name}.png").is_file() for turn in turns for name in SEE[1:])


def test_exports_and_reports_have_all_images(two: Path, tmp_path: Path):
    contents = RunContents.read(two)
    messages.write_as_text(contents, tmp_path / "run.jsonl")
    line = json.loads((tmp_path / "run.jsonl").read_text().split("\n")[0])
    assert line["messages"][1]["content"].count("<image>") == len(SEE)
    assert [Path(path).name for path in line["images"][: len(SEE)]] == FILES
    sent = inspect_log._messages(contents, contents.answer(min(contents.rows)), [])[1]
    assert [part.type for part in sent.content] == [*["image"] * len(SEE), "text"]
    write_report(two, tmp_path / "report.html")
    shown = next(tmp_path.glob("report_files/data/q*.js")).read_text()
    assert all(name in shown for name in FILES)
    setup = dict(facts_in_words(contents))
    assert setup["Images"] == "rgb and depth and map and plan" and setup["Moves"] == "at most 2 per question"


def test_a_model_that_was_trained_on_views_alone_is_named(rooms: RoomScans, tmp_path: Path, caplog):
    plan(rooms.config(tmp_path, model="embedded"))
    assert "trained on views alone" not in caplog.text
    plan(rooms.config(tmp_path, model="embedded", see=("depth", "map")))
    assert "embedded was trained on views alone, without depth and map: do not rely on its answers" in caplog.text


def test_a_server_gets_all_images():
    shots = tuple(Shot(name, np.full((4, 4, 3), shade, np.uint8)) for name, shade in (("rgb", 0), ("depth", 9)))
    parts = json.loads(chat_message(Message("user", "look", shots)))["content"]
    assert [part["type"] for part in parts] == ["image_url", "image_url", "text"]
    assert parts[0] != parts[1]


@pytest.mark.parametrize("pitch_deg", [-30.0, 0.0, 20.0])
def test_depth_is_in_metres_along_the_viewing_direction(pitch_deg: float):
    wall = scene_of(box((4, -100, -100), (5, 100, 100)))  # seen by a camera at the origin
    shots = draw_shots(("rgb", "depth"), sight_of(wall, CameraPose(0.0, 0.0, 0.0, 0.0, pitch_deg)))
    depth = shots[1].image[12, 16, 0] / 30
    down = (12.5 - 12) / 20  # the pixel's offset from the centre, in units of the focal length
    pitch = np.radians(pitch_deg)
    assert depth == pytest.approx(4 / (np.cos(pitch) + np.sin(pitch) * down), abs=0.03)
    behind = draw_shots(SEE, sight_of(wall, CameraPose(0.0, 0.0, 0.0, 180.0, pitch_deg)))
    assert (behind[1].image == 255).all()
    blind = draw_shots(SEE, sight_of(wall, CameraPose(0.0, 0.0, 0.0, 0.0), renderer=BlindRenderer()))
    assert all((each.image == 128).all() for each in blind)


def test_no_prompt_changes_without_it():
    plain, more = Prompts().under(Controls()), Prompts().under(Controls(see=("rgb", "depth")))
    assert more.system == f"{plain.system} {MODALITIES['depth'].sentence}"
    config = changed(Settings(), image_size=(32, 24))
    assert config.most_images * 2 == changed(config, see="depth").most_images
