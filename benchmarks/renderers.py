"""Milliseconds per view of each renderer, compared with rebuilding everything for every view ("rebuild").

    python -m benchmarks.renderers [--faces 200000 600000] [--views 12] [--size 640 480] [--json FILE]

The baseline, "rebuild", creates an Open3D renderer and its geometry for each view, then writes the view to a PNG file
and reads it back. The package's renderers cache what they build for a scene in the first view, which is reported
separately.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from multiprocessing import TimeoutError, get_context
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import new_file
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.renderers import RENDERER_NAMES, RenderError, make_renderer
from roomscout.rendering.renderers.child import ChildRenderer
from roomscout.rendering.scene import Scene, make_scene

REBUILD = "rebuild"
REBUILD_LIMIT_S = 300


@dataclass(frozen=True)
class Row:
    """Times of one renderer on one mesh."""

    faces: int  # of the mesh
    renderer: str  # its name, or REBUILD
    device: str  # what it draws on
    first_view_ms: float  # which also builds what is kept for a scene
    view_ms: float  # the median of later views
    ratio: float | None = None  # the speed-up over REBUILD, None if that does not work here


def room(faces: int) -> Scene:
    """A room of 6 x 5 x 2.5 m with twelve boxes, about `faces` faces, and noisy vertex colours as in a scan."""
    random = np.random.default_rng(0)
    boxes = [(np.zeros(3), np.array([6.0, 5.0, 2.5]))]
    for corner in random.uniform([0.3, 0.3, 0], [5, 4, 0.1], (12, 3)):
        boxes.append((corner, corner + random.uniform(0.3, 1.0, 3)))
    area = sum(2 * (w * d + d * h + h * w) for w, d, h in (upper - lower for lower, upper in boxes))
    cell_m = (2 * area / faces) ** 0.5
    sides = [(box, axis, end) for box in boxes for axis in range(3) for end in range(2)]
    grids = [_side(*box, axis, end, cell_m) for box, axis, end in sides]
    first = np.cumsum([0, *(len(vertices) for vertices, _ in grids[:-1])])
    vertices = np.concatenate([vertices for vertices, _ in grids]).astype(np.float32)
    triangles = np.concatenate([part + at for (_, part), at in zip(grids, first, strict=True)])
    paints = np.repeat(random.uniform(40, 215, (len(grids), 3)), [len(vertices) for vertices, _ in grids], axis=0)
    colours = (paints + random.normal(0, 10, paints.shape)).clip(0, 255).astype(np.uint8)
    return make_scene("room", Geometry(vertices, triangles, colours))


def _side(lower: np.ndarray, upper: np.ndarray, axis: int, end: int, cell_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of one side of a box as a grid."""
    u, v = (other for other in range(3) if other != axis)
    across = np.linspace(lower[u], upper[u], 2 + int((upper - lower)[u] / cell_m))
    along = np.linspace(lower[v], upper[v], 2 + int((upper - lower)[v] / cell_m))
    vertices = np.empty((len(across), len(along), 3))
    vertices[..., u] = across[:, None]
    vertices[..., v] = along
    vertices[..., axis] = (lower, upper)[end][axis]
    index = np.arange(vertices[..., 0].size).reshape(len(across), len(along))
    a, b, c, d = (corner.ravel() for corner in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    return vertices.reshape(-1, 3), np.concatenate([np.column_stack([a, b, c]), np.column_stack([a, c, d])])


def poses(count: int) -> list[CameraPose]:
    """Poses at the middle of the room, facing all directions."""
    return [CameraPose(3.0, 2.5, 1.6, 360.0 * i / count, -10.0) for i in range(count)]


def milliseconds(draw: Callable[[CameraPose], object], views: list[CameraPose]) -> list[float]:
    """The duration of each call."""
    times = []
    for pose in views:
        begin = time.perf_counter()
        draw(pose)
        times.append(1000 * (time.perf_counter() - begin))
    return times


def rebuilding_times(faces: int, intrinsics: Intrinsics, views: list[CameraPose]) -> list[float]:
    """Milliseconds per view with the method of the script that this package replaces."""
    import open3d as o3d
    from open3d.visualization import rendering

    scene = room(faces)
    mesh = o3d.geometry.TriangleMesh(
        o3d.utility.Vector3dVector(scene.vertices.astype(np.float64)), o3d.utility.Vector3iVector(scene.faces)
    )
    mesh.vertex_colors = o3d.utility.Vector3dVector(scene.colours / 255.0)
    material = rendering.MaterialRecord()
    material.shader = "defaultUnlit"

    def draw(pose: CameraPose) -> np.ndarray:
        canvas = rendering.OffscreenRenderer(intrinsics.width, intrinsics.height)
        canvas.scene.add_geometry("scan", mesh, material)
        canvas.setup_camera(intrinsics.matrix, pose.world_to_camera, intrinsics.width, intrinsics.height)
        path = Path(folder) / "view.png"
        o3d.io.write_image(str(path), canvas.render_to_image())
        return np.asarray(Image.open(path).convert("RGB"))

    with tempfile.TemporaryDirectory() as folder:
        return milliseconds(draw, views)


def _silence() -> None:
    """Suppress Filament's output for every new renderer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def measure_rebuilding(faces: int, intrinsics: Intrinsics, views: list[CameraPose]) -> Row:
    """Measure rebuilding in a separate process, because Open3D on a software driver may hang; raises RenderError."""
    with get_context("spawn").Pool(1, initializer=_silence) as pool:
        try:
            times = pool.apply_async(rebuilding_times, (faces, intrinsics, views)).get(REBUILD_LIMIT_S)
        except TimeoutError as error:
            raise RenderError(f"{REBUILD}: no answer within {REBUILD_LIMIT_S} s") from error
        except RuntimeError as error:
            raise RenderError(f"{REBUILD}: {error}") from error
    return Row(faces, REBUILD, "Open3D", times[0], statistics.median(times[1:]))


def measure(name: str, scene: Scene, intrinsics: Intrinsics, views: list[CameraPose]) -> Row:
    """Measure one of the package's renderers; raises RenderError if it does not work here."""
    renderer = make_renderer(name)
    device = renderer.device if isinstance(renderer, ChildRenderer) else "CPU, Embree"
    times = milliseconds(lambda pose: renderer.render(scene, pose, intrinsics), views)
    renderer.close()
    return Row(len(scene.faces), name, device, times[0], statistics.median(times[1:]))


def measure_all(faces: int, intrinsics: Intrinsics, views: list[CameraPose]) -> list[Row]:
    """A row for each renderer that works here; prints why others were skipped."""
    scene = room(faces)
    # Load Open3D first, so that the first view only builds Embree's BVH, as in a run.
    room(1000).hits(np.zeros((1, 6), dtype=np.float32))
    cases: list[Callable[[], Row]] = [
        lambda: replace(measure_rebuilding(faces, intrinsics, views), faces=len(scene.faces)),
        *(partial(measure, name, scene, intrinsics, views) for name in RENDERER_NAMES if name not in ("auto", "blind")),
    ]
    rows = []
    for case in cases:
        try:
            rows.append(case())
        except RenderError as error:
            print(f"skipped: {error}")
    baseline = next((row.view_ms for row in rows if row.renderer == REBUILD), None)
    return [replace(row, ratio=baseline / row.view_ms if baseline else None) for row in rows]


def print_table(rows: list[Row]) -> None:
    """One line per renderer and mesh."""
    print(f"{'faces':>9}  {'renderer':<10} {'first view':>10} {'a view':>10} {'times faster':>13}  device")
    for row in rows:
        ratio = f"{row.ratio:.1f}" if row.ratio else "-"
        times = f"{row.first_view_ms:7.0f} ms {row.view_ms:7.1f} ms"
        print(f"{row.faces:>9,}  {row.renderer:<10} {times} {ratio:>13}  {row.device}")


def main() -> None:
    """Measure, print the table, and write it to --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faces", type=int, nargs="+", default=[200_000, 600_000], help="mesh sizes")
    parser.add_argument("--views", type=int, default=12, help="views per renderer, including the first")
    parser.add_argument("--size", type=int, nargs=2, default=[640, 480], metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--json", type=new_file, help="file to write the results to")
    arguments = parser.parse_args()
    if min(arguments.faces) < 1000 or arguments.views < 2:
        parser.error("--faces takes 1000 or more, --views 2 or more")
    width, height = arguments.size
    intrinsics = Intrinsics(width, height, focal_px=300.0 * width / 640)
    rows = [row for faces in arguments.faces for row in measure_all(faces, intrinsics, poses(arguments.views))]
    print_table(rows)
    if arguments.json:
        record = {
            "date": datetime.now().isoformat(timespec="seconds"),
            "machine": f"{platform.platform()}, {os.cpu_count()} cores",
            "size": arguments.size,
            "views": arguments.views,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
