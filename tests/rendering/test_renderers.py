import logging
import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from simple_rooms import BLUE, GREEN, GREY, RED, box, closed_room, landmark_room, scene_of

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.geometry import NO_FACES, Geometry, Texturing
from roomscout.rendering.renderers import BACKGROUND_RGB, RenderError, make_renderer
from roomscout.rendering.renderers.child import ChildRenderer
from roomscout.rendering.renderers.raycast import RaycastRenderer, sample
from roomscout.rendering.scene import make_scene
from roomscout.rendering.views import project

VIEW = Intrinsics(160, 128, 80.0)
POSE = CameraPose(3, 2.5, 1.3, 0)
RAYCAST = make_renderer("raycast")


@pytest.fixture(scope="session")
def child_of():
    """The renderer of a name, started once."""
    started: dict[str, ChildRenderer] = {}

    def child(name: str) -> ChildRenderer:
        if name not in started:
            with skip_if_unavailable():
                started[name] = ChildRenderer(name).started()
        return started[name]

    yield child
    for each in started.values():
        each.close()


@pytest.fixture(scope="module", params=["raycast", "pyrender"])
def renderer(request, child_of):
    return RAYCAST if request.param == "raycast" else child_of(request.param)


@contextmanager
def skip_if_unavailable():
    """Skip the test if a renderer does not start here; with ALL_RENDERERS in the environment, fail."""
    try:
        yield
    except RenderError as error:
        if os.environ.get("ALL_RENDERERS"):
            raise
        pytest.skip(str(error))


def centre_of(image: np.ndarray, colour: tuple[int, int, int]) -> tuple[float, float]:
    """Mean column and row of the pixels with about this colour."""
    rows, columns = np.nonzero(np.abs(image.astype(int) - colour).max(axis=2) < 40)
    assert len(rows), "the landmark is not in view"
    return columns.mean() + 0.5, rows.mean() + 0.5


@pytest.mark.parametrize(
    ("heading", "pitch", "colour", "point"),
    [
        (15, 5, RED, (5.7, 3.0, 1.3)),
        (70, -10, GREEN, (3.0, 4.7, 1.3)),
        (185, -20, BLUE, (0.3, 2.5, 0.3)),
    ],
)
def test_a_landmark_is_rendered_where_it_projects_to(renderer, heading, pitch, colour, point):
    pose = CameraPose(3, 2.5, 1.3, heading, pitch)
    (expected,), _ = project(np.array([point]), pose, VIEW)
    assert centre_of(renderer.render(landmark_room(), pose, VIEW), colour) == pytest.approx(expected, abs=1.0)


def test_a_left_strafe_and_a_left_turn_move_a_landmark_right(renderer):
    scene = landmark_room()
    column, row = centre_of(renderer.render(scene, POSE, VIEW), RED)
    strafed, turned, risen = POSE.moved(0, 0, 0.5, 0), POSE.turned(10), POSE.moved(0, 0, 0, 0.4)
    assert centre_of(renderer.render(scene, strafed, VIEW), RED)[0] > column + 5
    assert centre_of(renderer.render(scene, turned, VIEW), RED)[0] > column + 5
    assert centre_of(renderer.render(scene, risen, VIEW), RED)[1] > row + 5


def test_depth_is_measured_along_the_optical_axis(renderer):
    depth = renderer.depth(closed_room(), CameraPose(3, 2.5, 1.25, 0), VIEW)
    assert depth.dtype == np.float32
    assert depth.shape == (128, 160)
    assert depth[64, 40:120] == pytest.approx(np.full(80, 3.0), abs=0.01)


def test_the_blind_renderer_renders_grey_and_real_depth():
    blind, scene = make_renderer("blind"), landmark_room()
    view = blind.render(scene, POSE, VIEW)
    assert view.shape == (128, 160, 3) and (view == 128).all()
    assert np.array_equal(blind.depth(scene, POSE, VIEW), RaycastRenderer().depth(scene, POSE, VIEW))


def test_empty_pixels_are_background_with_infinite_depth(renderer):
    scene = scene_of(box((5, 2, 1), (5.5, 3, 1.5), RED))
    image, depth = renderer.render(scene, POSE, VIEW), renderer.depth(scene, POSE, VIEW)
    assert tuple(image[2, 2]) == BACKGROUND_RGB
    assert np.isinf(depth[2, 2])
    assert depth[64, 80] == pytest.approx(2.0, abs=0.01)


def test_faces_are_unlit_and_visible_from_both_sides(renderer):
    scene = scene_of(box((0, 0, 0), (6, 5, 2.5), (200, 100, 50)))
    assert np.abs(renderer.render(scene, POSE, VIEW).astype(int) - (200, 100, 50)).max() <= 1
    outside = renderer.render(scene, CameraPose(-3, 2.5, 1.3, 0), VIEW)
    assert np.abs(outside[64, 80].astype(int) - (200, 100, 50)).max() <= 1


def assert_matches_raycast(renderer, scene, pose, view=VIEW) -> None:
    """Compare image and depth with those of raycast, except at edges."""
    image, expected = (r.render(scene, pose, view).astype(int) for r in (renderer, RAYCAST))
    apart = np.abs(image - expected).max(axis=2)
    assert np.quantile(apart, 0.9) <= 2
    assert (apart > 40).mean() < 0.03
    depth, expected_depth = (r.depth(scene, pose, view) for r in (renderer, RAYCAST))
    assert (np.isfinite(depth) != np.isfinite(expected_depth)).mean() < 0.02
    # An anti-aliased depth is that of any point in the pixel, so it may differ as much as neighbouring pixels do.
    depth, expected_depth = (np.nan_to_num(d, posinf=100.0) for d in (depth, expected_depth))
    inner = expected_depth[1:-1, 1:-1]
    shifts = [(slice(0, -2), slice(1, -1)), (slice(2, None), slice(1, -1)), (slice(1, -1), slice(0, -2))]
    neighbours = [expected_depth[shift] for shift in [*shifts, (slice(1, -1), slice(2, None))]]
    allowed = np.max([np.abs(near - inner) for near in neighbours], axis=0) + 0.002
    assert (np.abs(depth[1:-1, 1:-1] - inner) > allowed).mean() < 0.02


def test_a_mesh_without_colours_is_shaded(renderer):
    plain = box((0, 0, 0), (6, 5, 2.5))
    scene = make_scene("plain", Geometry(plain.vertices, plain.faces))
    pose = CameraPose(1, 1, 1.3, 40, -10)
    assert_matches_raycast(renderer, scene, pose)
    assert len(np.unique(renderer.render(scene, pose, VIEW)[::4, ::4, 0])) >= 3


def textured_wall(width: int, shade=(255, 255, 255)):
    """A wall at x = 2 with a texture of four colours, repeated twice from left to right, beside an untextured wall.

    Vertex colours of `shade` multiply the texture.
    """
    half = width // 2
    image = np.zeros((width, width, 3), dtype=np.uint8)
    image[:half, :half], image[:half, half:], image[half:, :half] = RED, GREEN, BLUE
    image[half:, half:] = (90, 60, 30)
    left = [[2, 2, 0], [2, -2, 0], [2, -2, 2], [2, 2, 2]]
    right = [[2, -2, 0], [2, -4, 0], [2, -4, 2], [2, -2, 2]]
    faces = np.int32([[0, 1, 2], [0, 2, 3], [4, 5, 6], [4, 6, 7]])
    corner_uv = np.float32([[0, 0], [2, 0], [2, 1], [0, 1], *[[0, 0]] * 4])
    texturing = Texturing(corner_uv[faces], np.int32([0, 0, -1, -1]), (image,))
    colours = np.uint8([shade] * 4 + [GREY] * 4)
    return make_scene("textured", Geometry(np.float32(left + right), faces, colours, texturing=texturing))


ON_THE_WALL = {
    (2, 1.5, 1.5): RED,
    (2, 0.5, 1.5): GREEN,
    (2, 1.5, 0.5): BLUE,
    (2, 0.5, 0.5): (90, 60, 30),
    (2, -0.5, 1.5): RED,
    (2, -1.5, 0.5): (90, 60, 30),
    (2, -3, 1): GREY,
}
"""Colours of points on the textured wall, and of one beside its texture."""


@pytest.mark.parametrize(
    ("width", "shade"), [(64, (255, 128, 51)), *((width, (255, 255, 255)) for width in (61, 62, 63))]
)
def test_a_texture_is_upright_repeats_and_is_multiplied_by_vertex_colours(renderer, width, shade):
    pose = CameraPose(-1, -0.5, 1, 0)
    pixels, _ = project(np.array(list(ON_THE_WALL)), pose, VIEW)
    columns, rows = pixels.astype(int).T
    shown = renderer.render(textured_wall(width, shade), pose, VIEW)[rows, columns].astype(int)
    expected = np.array(list(ON_THE_WALL.values())) * ([np.array(shade) / 255] * 6 + [np.ones(3)])
    assert np.abs(shown - expected).max(axis=1) == pytest.approx(0, abs=3)


def room_cloud(points: int, seed: int = 0) -> Geometry:
    """Random points on the walls, floor and ceiling of the closed room, with 3 mm of noise; red where x > 5.9."""
    rng = np.random.default_rng(seed)
    size = np.array([6.0, 5.0, 2.5])
    areas = np.array([size[1] * size[2], size[0] * size[2], size[0] * size[1]])
    axis = rng.choice(3, points, p=areas / areas.sum())
    positions = rng.random((points, 3)) * size
    positions[np.arange(points), axis] = rng.integers(0, 2, points) * size[axis]
    positions += rng.normal(0, 0.003, positions.shape)
    colours = np.where(positions[:, :1] > 5.9, RED, GREY).astype(np.uint8)
    return Geometry(positions.astype(np.float32), NO_FACES, colours)


def test_a_cloud_of_40000_points_has_no_holes(renderer):
    scene = make_scene("cloud", room_cloud(40_000))
    for heading in (0, 130):
        depth = renderer.depth(scene, CameraPose(3, 2.5, 1.3, heading), VIEW)
        assert np.isinf(depth).mean() < 0.001
    image = renderer.render(scene, POSE, VIEW).astype(int)
    assert (np.abs(image[40:90, 60:100] - RED).max(axis=2) < 10).mean() > 0.99


@pytest.mark.parametrize(
    ("scene", "pose", "view"),
    [
        (landmark_room, CameraPose(2, 2, 1.5, 30, -10), VIEW),
        (landmark_room, CameraPose(2, 2, 1.5, 30, -10), Intrinsics(101, 67, 50.0)),  # no multiples of four
        (lambda: textured_wall(61), CameraPose(0, 0, 1, -20), VIEW),
        (lambda: make_scene("cloud", room_cloud(5_000)), POSE.turned(20), VIEW),
    ],
)
def test_a_scan_looks_the_same_in_every_renderer(renderer, scene, pose, view):
    assert_matches_raycast(renderer, scene(), pose, view)


def test_auto_falls_back_to_raycast_and_logs_why(monkeypatch, caplog):
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere")
    with caplog.at_level(logging.DEBUG):
        assert isinstance(make_renderer("auto"), RaycastRenderer)
    reason = caplog.text[caplog.text.index("renderer auto: raycast, because") :]
    assert "pyrender" in reason and "apt-get install" in reason and "libgl1-mesa-dri" in reason


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_view_is_retried_when_the_child_dies_or_hangs_and_else_an_error(gl_name, caplog, number):
    with closing(ChildRenderer(gl_name, view_limit_s=5.0)) as child:
        before, pid = child.render(landmark_room(), POSE, VIEW), child.process.pid
        os.kill(pid, number)
        assert (child.render(landmark_room(), POSE, VIEW) == before).all()
        assert child.process.pid != pid and caplog.text.count("retrying this view") == 1
        child.view_limit_s = 0.0
        os.kill(child.process.pid, signal.SIGSTOP)  # else it may have answered before it is waited for
        with pytest.raises(RenderError, match=f"{gl_name} did not answer within 0 s.*the renderer raycast"):
            child.render(landmark_room(), POSE, VIEW)
        assert child.process is None


@pytest.fixture(scope="module")
def gl_name(child_of) -> str:
    """The name of a renderer that runs in a child process and works here."""
    child_of("pyrender")
    return "pyrender"


def test_bilinear_sampling_repeats_with_v_up():
    image = np.uint8([[[0, 0, 0], [100, 100, 100]], [[200, 200, 200], [40, 40, 40]]])
    uv = np.array([[0.25, 0.75], [0.75, 0.75], [0.25, 0.25], [0.5, 0.75], [1.25, -0.25], [0.0, 0.75]])
    assert sample(image, uv)[:, 0] == pytest.approx([0, 100, 200, 50, 0, 50])


def test_importing_loads_no_graphics_library():
    modules = "scene, motion, views, renderers, discs, readers, ply, renderers.pyrender_egl"
    imports = "; ".join(f"import roomscout.rendering.{name}" for name in modules.split(", "))
    check = "print([m for m in ('open3d', 'trimesh', 'pyrender', 'OpenGL', 'torch', 'scipy') if m in sys.modules])"
    assert run_python(f"import sys; {imports}; {check}") == "[]"


def run_python(code: str, environment: dict[str, str] | None = None) -> str:
    """The output of Python code run in a new process with these additional environment variables."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
