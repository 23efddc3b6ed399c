"""Gaussian splats: how they are read, drawn exactly by their formula, and stood for by surfaces."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from roomscout.command.main import main
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.motion import move
from roomscout.rendering.readers import read_geometry
from roomscout.rendering.renderers import make_renderer
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.renderers.splats import (
    ALPHA_MAX,
    ALPHA_MIN,
    BLUR_PX2,
    DARK,
    NEAR_M,
    GsplatRenderer,
    SplatRenderer,
    rasterised,
    real_harmonics,
)
from roomscout.rendering.scene import SceneCache, SceneError, load_scene
from roomscout.rendering.splats import Splats
from roomscout.rendering.tables import SH_C0
from roomscout.rendering.views import first_view
from roomscout.rendering.visibility import surface_in_view

CAMERA = Intrinsics(48, 36, 30.0)
RED, GREEN, BLUE, GREY = (200, 40, 30), (30, 180, 60), (40, 60, 210), (128, 128, 128)


def random_splats(count: int, degree: int = 3) -> Splats:
    rng = np.random.default_rng(1)
    turns = rng.normal(size=(count, 4))
    arrays = (
        rng.uniform([-2, -2, -1], [3, 2, 1], (count, 3)),
        turns / np.linalg.norm(turns, axis=1, keepdims=True),
        np.exp(rng.normal(-2.5, 0.8, (count, 3))),
        rng.uniform(0.01, 0.999, count),
        rng.normal(size=(count, (degree + 1) ** 2, 3)) * 0.4,
    )
    return Splats(*(each.astype(np.float32) for each in arrays), np.eye(3))


def by_the_formula(splats: Splats, pose: CameraPose, camera: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
    """The sums and alpha of `rasterised`, one Gaussian after the other over the whole image."""
    sums, light = np.zeros((camera.height, camera.width, 4)), np.ones((camera.height, camera.width))
    done = np.zeros(light.shape, dtype=bool)
    turn, position, focal = pose.world_to_camera[:3, :3], pose.position, camera.focal_px
    columns, rows = np.meshgrid(np.arange(camera.width) + 0.5, np.arange(camera.height) + 0.5)
    placed = [(turn @ (mean - position), index) for index, mean in enumerate(splats.means.astype(np.float64))]
    for (x, y, z), index in sorted(placed, key=lambda each: each[0][2]):
        if z <= NEAR_M:
            continue
        a, b, c, d = splats.quaternions[index].astype(np.float64)
        rotation = np.array([
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d],
        ])  # fmt: skip
        covariance = turn @ rotation @ np.diag(splats.deviations[index] ** 2.0) @ rotation.T @ turn.T
        u, v = (np.clip(s / z, -0.65 * n / focal, 0.65 * n / focal) for s, n in ((x, camera.width), (y, camera.height)))
        jacobian = focal / z * np.array([[1, 0, -u], [0, 1, -v]])
        inverse = np.linalg.inv(jacobian @ covariance @ jacobian.T + BLUR_PX2 * np.eye(2))
        offset = np.stack([columns - focal * x / z - camera.width / 2, rows - focal * y / z - camera.height / 2], -1)
        alpha = splats.opacities[index] * np.exp(-0.5 * np.einsum("hwi,ij,hwj->hw", offset, inverse, offset))
        alpha = np.where(alpha < ALPHA_MIN, 0, np.minimum(alpha, ALPHA_MAX))
        done |= light * (1 - alpha) <= DARK
        alpha[done] = 0
        way = splats.means[index] - position
        basis = real_harmonics(*(way / np.linalg.norm(way))[:, None])[0, : splats.harmonics.shape[1]]
        colour = np.maximum(0.5 + basis @ splats.harmonics[index], 0)
        sums += (alpha * light)[..., None] * [*colour, z]
        light *= 1 - alpha
    return sums, 1 - light


@pytest.mark.parametrize(("heading", "pitch"), [(10, -5), (190, 20)])
def test_views_are_those_of_the_formula_at_every_pixel(heading: float, pitch: float):
    splats, pose = random_splats(300), CameraPose(-1.5, 0.1, 0.2, heading, pitch)
    sums, alpha = rasterised(splats, pose.world_to_camera, CAMERA)
    expected, expected_alpha = by_the_formula(splats, pose, CAMERA)
    assert expected_alpha.max() > 0.8
    assert np.abs(sums - expected).max() < 2e-5 and np.abs(alpha - expected_alpha).max() < 1e-5


def columns_of(rows: int, degree: int = 0) -> dict[str, np.ndarray]:
    """The columns of a file of splats in their order: grey, opaque, round, 5 cm in radius."""
    names = [*"xyz", *(f"f_dc_{i}" for i in range(3)), *(f"f_rest_{i}" for i in range(3 * ((degree + 1) ** 2 - 1)))]
    names += ["opacity", *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))]
    columns = {name: np.zeros(rows) for name in names}
    return columns | {f"scale_{i}": np.full(rows, np.log(0.05)) for i in range(3)} | {
        "opacity": np.full(rows, 4.0), "rot_0": np.full(rows, 2.0)
    }  # fmt: skip


def write(path: Path, columns: dict[str, np.ndarray], kind: str = "float") -> Path:
    rows = np.column_stack(list(columns.values())).astype({"float": "<f4", "double": "<f8"}[kind])
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}"]
    header += [f"property {kind} {name}" for name in columns]
    path.write_bytes("\n".join([*header, "end_header", ""]).encode() + rows.tobytes())
    return path


def room_columns(step: float = 0.1) -> dict[str, np.ndarray]:
    """A room of 4 x 3 x 2.4 m from the origin: a floor and four walls, of which +x is red, +y green and -x blue."""
    x, y, z = (np.arange(step / 2, side, step) for side in (4, 3, 2.4))
    faces = []
    for axis, at, colour in ((2, 0, GREY), (0, 4, RED), (1, 3, GREEN), (0, 0, BLUE), (1, 0, GREY)):
        ranges = [x, y, z]
        ranges[axis] = np.array([float(at)])
        points = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, 3)
        sizes = np.full((len(points), 3), 0.7 * step)
        sizes[:, axis] = 0.001
        faces.append(np.column_stack([points, np.tile(colour, (len(points), 1)), sizes]))
    rows = np.concatenate(faces)
    columns = columns_of(len(rows))
    columns |= dict(zip("xyz", rows.T[:3], strict=True))
    columns |= {f"f_dc_{i}": (rows[:, 3 + i] / 255 - 0.5) / SH_C0 for i in range(3)}
    return columns | {f"scale_{i}": np.log(rows[:, 6 + i]) for i in range(3)}


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("splats") / "room.ply", room_columns())


MIDDLE = CameraPose(2.0, 1.5, 1.2, 0.0)


def test_a_room_of_splats_is_upright_in_place_and_in_its_colours(room: Path):
    scene, renderer = load_scene(room), make_renderer("splats")
    for heading, colour, away_m in ((0, RED, 2.0), (90, GREEN, 1.5), (180, BLUE, 2.0)):
        pose = MIDDLE.turned(heading)
        image, depth = renderer.render(scene, pose, CAMERA), renderer.depth(scene, pose, CAMERA)
        assert np.abs(image[18, 24].astype(int) - colour).max() < 4
        assert depth[18, 24] == pytest.approx(away_m, abs=0.02)
    up, down = (CameraPose(2.0, 1.5, 1.2, 0.0, pitch) for pitch in (30, -30))
    assert (renderer.render(scene, up, CAMERA)[0, 24] == 255).all(), "there is no ceiling"
    assert np.isinf(renderer.depth(scene, up, CAMERA)[0, 24])
    assert np.abs(renderer.render(scene, down, CAMERA)[30, 24].astype(int) - GREY).max() < 4, "the floor is below"
    assert scene.main_storey.floor_z_m == pytest.approx(0, abs=0.02)
    assert np.allclose(scene.bounds.extent, [4, 3, 2.4], atol=0.15)
    first = first_view(scene, renderer, CAMERA, 1.5, 0.0)
    assert np.allclose(first.pose.position, [2, 1.5, 1.5], atol=0.2)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_harmonics_of_red_come_first_and_change_with_the_direction(tmp_path: Path, degree: int):
    columns = columns_of(3, degree)
    columns["x"] = np.array([0.0, 1.0, 2.0])
    per_channel = (degree + 1) ** 2 - 1
    columns["f_rest_0"][:], columns[f"f_rest_{2 * per_channel + 2}"][:] = 0.25, 0.5
    splats = read_geometry(write(tmp_path / "a.ply", columns)).splats
    assert splats.harmonics.shape == (3, per_channel + 1, 3)
    assert splats.harmonics[0, 1].tolist() == [0.25, 0, 0] and splats.harmonics[0, 3].tolist() == [0, 0, 0.5]
    scene = load_scene(write(tmp_path / "b.ply", columns))
    from_x = SplatRenderer().render(scene, CameraPose(-1, 0, 0, 0), CAMERA)[18, 24]
    from_y = SplatRenderer().render(scene, CameraPose(0, -1, 0, 90), CAMERA)[18, 24]
    assert from_x[2] < from_x[0] - 20 and from_y[0] < from_y[2] - 20


def turned(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with y down, as COLMAP has it: (x, y, z) becomes (x, -z, y), and the Gaussians with it."""
    half = np.sqrt(0.5)
    w, x, y, z = (columns[f"rot_{i}"] for i in range(4))
    rotation = {"rot_0": half * (w - x), "rot_1": half * (x + w), "rot_2": half * (y - z), "rot_3": half * (z + y)}
    return columns | rotation | {"y": -columns["z"], "z": columns["y"]}


def test_up_axis_and_scale_move_splats_and_what_they_look_like_from_a_side(tmp_path: Path, room: Path):
    columns = room_columns()
    millimetres = {name: 1000 * columns[name] for name in "xyz"}
    millimetres |= {f"scale_{i}": columns[f"scale_{i}"] + np.log(1000) for i in range(3)}
    path = write(tmp_path / "turned.ply", turned(columns | millimetres))
    scene, straight = load_scene(path, "-y", 0.001), load_scene(room)
    for heading in (0, 90):
        pose = MIDDLE.turned(heading)
        images = [SplatRenderer().render(each, pose, CAMERA).astype(int) for each in (scene, straight)]
        assert np.abs(images[0] - images[1]).max() <= 2
    with pytest.raises(SceneError, match=r"the scale to 0\.001"):
        load_scene(path, "-y")


def test_splats_block_the_camera_but_faint_ones_and_floaters_do_not(tmp_path: Path):
    columns = room_columns()
    rng = np.random.default_rng(0)
    fog, floater = 400, 1
    extra = columns_of(fog + floater)
    extra["x"], extra["y"], extra["z"] = rng.uniform([2.5, 0.5, 0.5], [3.5, 2.5, 2], (fog + floater, 3)).T
    extra["x"][-1], extra["y"][-1], extra["z"][-1] = 3.0, 1.5, 1.2
    extra["opacity"][:fog] = -3
    extra |= {f"scale_{i}": np.full(fog + floater, np.log(0.03)) for i in range(3)}
    both = {name: np.concatenate([columns[name], extra[name]]) for name in columns}
    scene = load_scene(write(tmp_path / "fog.ply", both))
    outcome = move(scene, MIDDLE, MIDDLE.moved(0, 5, 0, 0))
    assert outcome.blocked or outcome.clipped
    assert outcome.pose.x_m == pytest.approx(3.8, abs=0.1)


def test_large_gaussians_close_the_surface_between_their_centres(tmp_path: Path):
    columns = room_columns()
    wide = columns["x"] == 4
    sparse = wide & (np.round(columns["y"] / 0.1 - 0.5) % 5 == 2) & (np.round(columns["z"] / 0.1 - 0.5) % 5 == 2)
    for i in (1, 2):
        columns[f"scale_{i}"] = np.where(sparse, np.log(0.35), columns[f"scale_{i}"])
    scene = load_scene(
        write(tmp_path / "sparse.ply", {name: column[~wide | sparse] for name, column in columns.items()})
    )
    y, z = np.meshgrid(np.linspace(0.4, 2.6, 20), np.linspace(0.4, 2.0, 20))
    origins = np.column_stack([np.full(400, 2.0), y.ravel(), z.ravel()])
    assert (scene.cast(origins, np.tile([1.0, 0, 0], (400, 1))) < 2.1).mean() > 0.97


def mesh_of_the_room(path: Path, colour: str = "") -> Path:
    """Floor and walls as a box without a lid, 5 cm inside the splats."""
    corners = [(x, y, z) for x in (0.05, 3.95) for y in (0.05, 2.95) for z in (0.05, 2.4)]
    quads = [(0, 2, 6, 4), (0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6)]
    lines = [f"v {x} {y} {z} {colour}".strip() for x, y, z in corners]
    lines += [f"f {' '.join(str(1 + corner) for corner in quad)}" for quad in quads]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_mesh_beside_the_file_stands_for_its_surfaces(tmp_path: Path):
    path = write(tmp_path / "room.ply", room_columns())
    mesh_of_the_room(tmp_path / "room_mesh.obj", "0.2 0.4 0.6")
    scene = load_scene(path)
    assert len(scene.faces) == 10 and scene.splats is not None
    assert np.abs(SplatRenderer().render(scene, MIDDLE, CAMERA)[18, 24].astype(int) - RED).max() < 4
    assert RaycastRenderer().depth(scene, MIDDLE, CAMERA)[18, 24] == pytest.approx(1.95, abs=1e-3)
    assert surface_in_view(scene, MIDDLE, CAMERA)[18, 24, 0] == pytest.approx(3.95, abs=1e-3)
    assert move(scene, MIDDLE, MIDDLE.moved(0, 5, 0, 0)).pose.x_m == pytest.approx(3.75, abs=0.01)
    assert scene.nbytes > scene.splats.nbytes


@pytest.mark.parametrize("origin", [(5e5, 4.6e6, 120.0), (-3e6, 2e6, 0.0)])
def test_far_splats_and_the_mesh_beside_them_are_where_their_file_says(room: Path, tmp_path: Path, origin):
    columns = room_columns()
    far = {name: columns[name] + start for name, start in zip("xyz", origin, strict=True)}
    write(tmp_path / "room.ply", columns | far, "double")
    near_mesh = mesh_of_the_room(tmp_path / "near.obj").read_text().splitlines()
    moved = [
        [float(value) + start for value, start in zip(line.split()[1:], origin, strict=True)] for line in near_mesh[:8]
    ]
    lines = [f"v {x:.4f} {y:.4f} {z:.4f}" for x, y, z in moved] + near_mesh[8:]
    (tmp_path / "room_mesh.obj").write_text("\n".join(lines) + "\n")
    scene = load_scene(tmp_path / "room.ply")
    assert scene.splats is not None
    pose = MIDDLE.at(MIDDLE.position + origin)
    view = SplatRenderer().render(scene, pose, CAMERA).astype(int)
    usual = SplatRenderer().render(load_scene(room), MIDDLE, CAMERA)
    assert np.abs(view - usual).mean() < 0.5
    assert surface_in_view(scene, pose, CAMERA)[18, 24, 0] == pytest.approx(origin[0] + 3.95, abs=2e-3)


def test_other_renderers_draw_splats_as_points_and_say_so(room: Path, caplog):
    scene = SceneCache(2**30, as_points=True).get(room)
    assert scene.splats is None and len(scene.vertices) == len(room_columns()["x"])
    assert "drawing its Gaussian splats as points; the renderer splats draws them" in caplog.text


def test_gsplat_is_asked_as_its_interface_is_documented(room: Path, monkeypatch):
    """A stand-in for the library draws with our own formula what it is given, so that the views must be equal."""
    torch = pytest.importorskip("torch")

    def rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width, height, **more):
        assert more == {"near_plane": NEAR_M, "eps2d": BLUR_PX2, "sh_degree": 0, "render_mode": "RGB+D"}
        assert viewmats.shape == (1, 4, 4) and Ks.shape == (1, 3, 3) and colors.shape[1:] == (1, 3)
        given = Splats(*(each.numpy() for each in (means, quats, scales, opacities, colors)), np.eye(3))
        sums, alpha = rasterised(given, viewmats[0].double().numpy(), Intrinsics(width, height, float(Ks[0, 0, 0])))
        return torch.tensor(sums)[None], torch.tensor(alpha)[None, ..., None], {}

    monkeypatch.setitem(sys.modules, "gsplat", SimpleNamespace(rasterization=rasterization))
    monkeypatch.setattr("roomscout.rendering.renderers.splats.why_no_gsplat", lambda: None)
    renderer = GsplatRenderer()
    renderer._device = "cpu"
    scene = load_scene(room)
    assert np.array_equal(renderer.render(scene, MIDDLE, CAMERA), SplatRenderer().render(scene, MIDDLE, CAMERA))
    assert np.allclose(renderer.depth(scene, MIDDLE, CAMERA), SplatRenderer().depth(scene, MIDDLE, CAMERA), rtol=1e-6)


def test_a_run_draws_splats_as_such_and_records_it(room: Path, tmp_path: Path, capsys):
    asked = [str(room), "How many chair(s) are in this room?", "--policy", "random", "--steps", "1"]
    views = ["--image-size", "48", "36", "--focal", "30", "--log-root", str(tmp_path)]
    assert main(["ask", *asked, *views]) == 0, capsys.readouterr().err
    run = json.loads(next(tmp_path.glob("*/run.json")).read_text())
    assert run["config"]["renderer"] == "splats"
    with Image.open(next(tmp_path.rglob("render_00.png"))) as view:
        counts = [np.abs(np.array(view).astype(int) - colour).max(axis=-1).min() for colour in (RED, GREEN, BLUE)]
    assert min(counts) < 6, "it looks at a wall"
    assert main(["ask", *asked, *views, "--renderer", "gsplat"]) == 2
    assert "pip install gsplat" in capsys.readouterr().err
