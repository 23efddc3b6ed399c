"""The page of a replay: one file that opens from disk and requests nothing, with the scan packed in it."""

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage

from roomscout.analysis.report.contents import AnswerContents, RunContents
from roomscout.analysis.report.pages import answer_values, counted_names, script_json, turn_values, unseen_of
from roomscout.analysis.report.writer import assets as report_assets
from roomscout.analysis.report.writer import templates
from roomscout.analysis.titles import short_title
from roomscout.base.pictures import data_url
from roomscout.base.shots import PICTURE
from roomscout.data.boxes import ObjectBox
from roomscout.envs.object_boxes import geometry_of
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.base import BACKGROUND_RGB
from roomscout.rendering.scene import Scene
from roomscout.rendering.simplify import Simplified, simplified
from roomscout.rendering.storeys import Storey
from roomscout.rendering.top_down import cut_z_m
from roomscout.runs.records import Turn

MOST_FACES = 600_000  # the most triangles, or points of a cloud, in a page
MOST_BYTES = 3_700_000  # the most bytes of the views and of the scan in a page
MOST_VIEW_BYTES = 1_600_000  # the most bytes of all views; more and larger views are scaled down
VIEW_WIDTHS_PX = (640, 480, 320, 240, 160)
JPEG_QUALITY = 85
SMALLEST_POINT_M = 0.01
FRUSTUM_SHARE = 0.075  # the length of a drawn camera as a share of the room's longest side
SCRIPTS = ("room.js", "replay.js")
COLUMNS = ("places", "colours", "faces")
FINEST_STEP_M = 1e-3  # places are rounded to steps of this size, or of what makes 16 bits span the mesh
MOST_STEPS = 65535
CELL_M = 0.05  # of the plan that says what is inside a room
GAP = 8  # cells: half of the widest gap between things that is inside as well
CEILING_M = 0.2  # below a flat ceiling, where it is cut
FLAT_SHARE = 0.8  # of a ceiling that must be above that, or it is not flat
SKIRTING_M = 0.1  # above the floor: what is lower hides nothing
BLOCK_BITS = 5  # vertices are ordered by blocks of 2 ** BLOCK_BITS steps


@dataclass(frozen=True)
class Replay:
    """What a replay shows."""

    run: RunContents  # of which the answer is
    answer: AnswerContents  # with at least one turn
    scene: Scene  # the scan
    objects: tuple[ObjectBox, ...]  # the known boxes of what the question names
    missing: list[str]  # what could not be read, a sentence each; making the page appends to it

    @property
    def title(self) -> str:
        """The run and the answer, for a heading."""
        return f"{self.answer.episode} of {short_title(self.run.facts)}"


def page(replay: Replay) -> str:
    """The HTML document. Text of the run is in it as data, which its script shows as text and never as markup."""
    assets = resources.files("roomscout.analysis.replay") / "assets"
    scripts = [(assets / name).read_text(encoding="utf-8") for name in SCRIPTS]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    template = templates("roomscout.analysis.replay").get_template("replay.html.j2")
    return template.render(
        title=replay.title,
        styles=[path.read_text(encoding="utf-8") for path in (report_assets() / "palette.css", assets / "replay.css")],
        scripts=scripts,
        allowed=" ".join(f"'sha256-{hash}'" for hash in hashes),
        data=script_json(page_values(replay)),
    )


def page_values(replay: Replay) -> dict[str, Any]:
    """What the scripts of the page read. All places are in the scene's own coordinates, as single precision needs."""
    turns = replay.answer.turns
    scene = replay.scene
    missing = replay.missing
    views = _jpegs(turns)
    unseen = unseen_of(replay.answer, replay.objects)
    boxes = geometry_of(replay.objects)
    length_m = FRUSTUM_SHARE * float(max(scene.bounds.extent))
    values = [
        turn_values(turn, replay.answer, views.get, missing)
        | {
            "place": _frustum(scene.own_pose(turn.pose), replay.run.facts.intrinsics, length_m),
            "goal": _goal(turn, scene),
            "believed": list(_believed(turn, turns[0].pose, scene)),
        }
        for turn in turns
    ]
    missing += [
        f"The view of turn {turn.turn} is damaged: {shot.path}."
        for turn in turns
        for shot in turn.shots
        if shot.path.is_file() and shot.path not in views
    ]
    return {
        "title": replay.title,
        "question": answer_values(replay.answer),
        "turns": values,
        "run": "" if replay.run.folder.name == replay.run.facts.name else replay.run.folder.name,
        "objects": [
            {
                "name": box.category,
                "corners": list(map(_rounded, scene.own(boxes.corners(place)))),
                "unseen": box in unseen,
            }
            for place, box in enumerate(replay.objects)
        ],  # each with its corners in metres, of which edges join those whose places differ in one bit
        "objects_in_words": counted_names(replay.objects),
        "unseen_in_words": counted_names(unseen),
        "missing": missing,
        "answers": list(_answers(replay, length_m)),
        "photo": next((views.get(shot.path) for shot in turns[0].shots if shot.name.startswith(PICTURE)), None),
        "scan": _scan(scene, turns[0].pose, MOST_BYTES - sum(map(len, views.values()))),
    }


def _frustum(pose: CameraPose, intrinsics: Intrinsics, length_m: float) -> dict[str, Any]:
    """A camera's place, axes and the far corners of its drawing from the upper left clockwise, metres. `half` is
    half the width and height of its view at distance 1."""
    matrix = pose.camera_to_world
    half = np.array([intrinsics.width, intrinsics.height]) / 2 / intrinsics.focal_px
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    corners = np.concatenate([signs * half, np.ones((4, 1))], axis=1) * length_m @ matrix[:3, :3].T + pose.position
    return {
        "eye": _rounded(pose.position),
        "down": _rounded(matrix[:3, 1]),
        "ahead": _rounded(matrix[:3, 2]),
        "corners": [_rounded(corner) for corner in corners],
        "half": _rounded(half),
    }


def places_of(replay: Replay) -> Iterator[tuple[str, CameraPose | np.ndarray]]:
    """Where the "right" and the "given" answer are, in the scene's own coordinates: a camera if it says where that
    looks, else a place (3,), metres, on the floor if it has no height."""
    scene = replay.scene
    floor_z_m = scene.storey_at(replay.answer.turns[0].pose.z_m).floor_z_m
    for name, at in replay.answer.places:
        yield name, scene.own_pose(CameraPose(*at)) if len(at) == 5 else scene.own(np.array([*at, floor_z_m][:3]))


def _answers(replay: Replay, length_m: float) -> Iterator[dict[str, Any]]:
    for name, at in places_of(replay):
        if isinstance(at, CameraPose):
            yield {"name": name, "place": _frustum(at, replay.run.facts.intrinsics, length_m)}
        else:
            yield {"name": name, "point": _rounded(at)}


def _believed(turn: Turn, start: CameraPose, scene: Scene) -> Iterator[dict[str, Any]]:
    """The objects of the turn's map, with where they are believed to stand on the floor."""
    floor_z_m = scene.storey_at(start.z_m).floor_z_m
    for item in turn.belief.objects if turn.belief else ():
        yield {"name": item.object, "foot": _rounded(scene.own(np.array([*item.place(start), floor_z_m])))}


def _goal(turn: Turn, scene: Scene) -> dict[str, list[float]] | None:
    """Where a move was stopped and where it should have gone, metres; None if it was not stopped."""
    if turn.move is None or not turn.stopped:
        return None
    goal = turn.action.goal(turn.pose)
    stopped = scene.own(turn.move.pose.position)
    return {"from": _rounded(stopped), "to": _rounded(scene.own(goal.position))}


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), 4) for value in values]


def _jpegs(turns: Iterable[Turn]) -> dict[Path, str]:
    """The images that can be read as data: URLs, by their file; all are scaled down until they fit."""
    shots = (shot for turn in turns for shot in turn.shots)
    views = {shot.path: image for shot in shots if (image := shot.load()) is not None}
    for width in VIEW_WIDTHS_PX:
        addresses = {path: _jpeg_address(Image.fromarray(view), width) for path, view in views.items()}
        if sum(map(len, addresses.values())) <= MOST_VIEW_BYTES:
            break
    return addresses


def _jpeg_address(image: Image.Image, width: int) -> str:
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    return data_url(image, "JPEG", JPEG_QUALITY)


def _scan(scene: Scene, start: CameraPose, most_bytes: int) -> dict[str, Any]:
    """The scan as the page draws it, and what the page says about it. `hides` is what hides the room from outside."""
    mesh, columns = _fitting(scene, most_bytes)
    made_of = "triangles" if len(scene.faces) else "points"
    simpler = f", drawn as {mesh.size:,} in cells of {100 * mesh.cell_m:.1f} cm" if mesh.cell_m else ""
    return {
        "about": f"{scene.name}: {scene.size} m, {len(scene.faces) or len(scene.vertices):,} {made_of}{simpler}",
        "room_lower": _rounded(scene.own(scene.bounds.lower)),
        "room_upper": _rounded(scene.own(scene.bounds.upper)),
        "hides": hides_of(scene, scene.storey_at(start.z_m)),
        "point_m": max(mesh.point_m, SMALLEST_POINT_M),
        "background": f"rgb{BACKGROUND_RGB}",
        "mesh": columns,
    }


def hides_of(scene: Scene, storey: Storey) -> dict[str, Any]:
    """What hides a storey from outside: all above `cut_z`, metres, and what is above `wall_z` and has nothing of the
    storey before it. That is `inside`: the cells, of a size from a place `lower`, with 255 where there is a floor or
    something on it, by rows of y. The cut is just below a flat ceiling, so that it goes through no furniture."""
    around_m = (GAP + 2) * CELL_M  # or what closes gaps would eat the edges
    lower = storey.bounds.lower[:2] - around_m
    upper = storey.bounds.upper[:2] + around_m
    columns, rows = (np.arange(*edges, CELL_M) for edges in zip(lower, upper, strict=True))
    ground = np.stack(np.meshgrid(columns, rows), axis=-1) + CELL_M / 2
    cut_m = cut_z_m(storey)
    rays = np.zeros((*ground.shape[:2], 6), dtype=np.float32)
    rays[..., :3] = scene.own(np.dstack([ground, np.full(ground.shape[:2], cut_m)]))
    rays[..., 5] = -1
    inside = ndimage.binary_fill_holes(ndimage.binary_closing(np.isfinite(scene.hits(rays)["t_hit"]), iterations=GAP))
    rays[..., 5] = 1
    over_m = scene.hits(rays)["t_hit"][inside]
    ceiling_m = float(np.median(over_m)) if over_m.size else 0.0  # infinite if there is none over most of the room
    under = np.count_nonzero(over_m > ceiling_m - CEILING_M)
    if under > FLAT_SHARE * over_m.size or np.isinf(ceiling_m):
        cut_m = min(cut_m + max(0.0, ceiling_m - CEILING_M), float(scene.bounds.upper[2]))
    heights_m = scene.own(np.array([[*lower, cut_m], [*lower, storey.floor_z_m + SKIRTING_M]]))
    return {
        "cut_z": _rounded(heights_m[0])[2],
        "wall_z": _rounded(heights_m[1])[2],
        "lower": _rounded(heights_m[0][:2]),
        "cell": CELL_M,
        "columns": inside.shape[1],
        "inside": _compressed(255 * inside.astype(np.uint8)),
    }


def _fitting(scene: Scene, most_bytes: int) -> tuple[Simplified, dict[str, Any]]:
    """The scan with as many triangles or points as fit, and packed. Noisy scans take twice the bytes of smooth ones."""
    most = MOST_FACES
    while True:
        mesh = simplified(scene, most)
        columns = packed(mesh)
        size = sum(len(columns[name]) for name in COLUMNS)
        if size <= most_bytes:
            return mesh, columns
        most = int(0.95 * mesh.size * most_bytes / size)


def packed(mesh: Simplified) -> dict[str, Any]:
    """A mesh as columns in which neighbours in space are neighbours, each compressed by zlib, in base64. `places` has
    all x, then all y and z, as 16 bits from `lower` over `extent`, both in metres, each as the difference from
    the vertex before. `colours` has all red, then green and blue. `faces` has the first corner as the difference from
    the face before, then both others as differences from the first; of each of the three, the lowest bytes come first,
    then the second ones, and so on. All numbers are little-endian."""
    lower = mesh.vertices.min(axis=0)
    step_m = max(FINEST_STEP_M, float((mesh.vertices.max(axis=0) - lower).max()) / MOST_STEPS)
    places = ((mesh.vertices - lower) / step_m).round().astype(np.int64)
    order = np.lexsort((places >> BLOCK_BITS).T[::-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    faces = np.sort(number[mesh.faces], axis=1)
    faces = faces[np.lexsort(faces.T[::-1])]
    steps = [np.diff(faces[:, 0], prepend=0), faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0]]
    in_bytes = np.stack(steps).astype("<u4").view(np.uint8).reshape(3, -1, 4)
    return {
        "lower": [round(float(value), 4) for value in lower],
        "extent": step_m * MOST_STEPS,
        "places": _compressed(np.diff(places[order], axis=0, prepend=0).T.astype("<u2")),
        "colours": _compressed(mesh.colours[order].T),
        "faces": _compressed(in_bytes.transpose(0, 2, 1)),
    }


def _compressed(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes())).decode("ascii")
