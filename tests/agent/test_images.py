"""--see: several named images per turn, in the loop, the run folder and what is made of it."""

import json
import shutil
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
from roomscout.analysis.exports import messages
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.writer import write_report
from roomscout.base.errors import ConfigError
from roomscout.edge.settings import Settings
from roomscout.models import ModelOptions
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.modalities import draw_shots, find_modality
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
    return rooms.config(root, **{"see": SEE, "steps": 1, "num_questions": 2, **changes})


def tiny(checkpoint: str, kv_reuse: bool = True) -> ModelPolicy:
    options = ModelOptions(device="cpu", max_new_tokens=8, temperature=1.5, kv_reuse=kv_reuse)
    return ModelPolicy(TransformersBackend.from_checkpoint(checkpoint, options))


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
    return run_in_process(config_of(rooms, tmp_path_factory.mktemp("two")), tiny(checkpoint))


def test_batches_and_reuse_change_no_token(rooms: RoomScans, two: Path, checkpoint: str, tmp_path: Path):
    assert len(tokens(two)) == 2
    config = config_of(rooms, tmp_path / "alone", max_batched_turns=0, concurrency=1)
    alone = run_in_process(config, tiny(checkpoint))
    assert tokens(alone) == tokens(two) and pictures(alone) == pictures(two)
    assert tokens(run_in_process(config_of(rooms, tmp_path / "fresh"), tiny(checkpoint, False))) == tokens(two)


def test_a_resumed_run_shows_the_same_images(rooms: RoomScans, two: Path, checkpoint: str, tmp_path: Path):
    folder = Path(shutil.copytree(two, tmp_path / two.name))
    for later in interrupted(folder, 1).glob("q*/render_0[1-9]*"):
        later.unlink()
    run_settings(config_of(rooms, tmp_path), folder, tiny(checkpoint))
    assert tokens(folder) == tokens(two)
    assert pictures(folder) == pictures(two)
    with pytest.raises(ConfigError, match="see"):
        run_settings(config_of(rooms, tmp_path, see=("rgb",)), folder, tiny(checkpoint))


def test_all_views_at_once_have_the_maps_of_the_same_moves(rooms: RoomScans, tmp_path: Path):
    spin, once = (
        run_in_process(config_of(rooms, tmp_path / present, moves="spin", present=present, see="map"), scripted())
        for present in ("turns", "once")
    )
    assert pictures(spin) == pictures(once) and len({*pictures(spin).values()}) > 2


def test_a_run_folder_has_all_images_and_their_legend(two: Path):
    reader = RunReader(two)
    first = reader.begun[0]
    folder = two / str(first)
    system, user, *_ = reader.messages(first)
    assert " ".join(find_modality(name).sentence for name in SEE[1:]) in system["text"]
    assert user["images"] == FILES
    trajectory = load_trajectories(two)[0]
    assert [len(each["images"]) for each in trajectory.messages[:2]] == [0, len(SEE)]
    assert list(trajectory.turns[0].images) == list(SEE)
    assert all((folder / name).is_file() for name in FILES)


def test_exports_and_reports_have_all_images(two: Path, tmp_path: Path):
    contents = RunContents.read(two)
    messages.write_as_text(contents, tmp_path / "run.jsonl")
    line = json.loads((tmp_path / "run.jsonl").read_text().split("\n")[0])
    assert line["messages"][1]["content"].count("<image>") == len(SEE)
    assert [Path(path).name for path in line["images"][: len(SEE)]] == FILES
    write_report(two, tmp_path / "report.html")
    shown = next(tmp_path.glob("report_files/data/q*.js")).read_text()
    assert all(name in shown for name in FILES)


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
