"""The page of a replay: one file that opens from disk and requests nothing."""

import base64
import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from roomscout.analysis.replay.packing import COLUMNS, packed
from roomscout.analysis.report.contents import QuestionContents, RunContents
from roomscout.analysis.report.pages import answer_values, script_json, turn_values
from roomscout.data.text import escaped
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.plan_view import CUT_M, CUT_SHARE
from roomscout.rendering.renderers.base import BACKGROUND_RGB
from roomscout.rendering.scene import Scene
from roomscout.rendering.simplify import Simplified, simplified
from roomscout.runs.records import Turn

MOST_FACES = (600_000, 400_000, 250_000, 150_000)
"""The most triangles, or points of a cloud, in a page: the first number whose mesh has at most MOST_MESH_BYTES."""
MOST_MESH_BYTES = 2_100_000
MOST_VIEW_BYTES = 1_200_000
"""The most bytes of all views in a page, as JPEGs; more and larger views are scaled down."""
VIEW_WIDTHS_PX = (640, 480, 320, 240, 160)
JPEG_QUALITY = 85
SMALLEST_POINT_M = 0.01
FRUSTUM_SHARE = 0.075
"""The length of a drawn camera as a share of the room's longest side."""
SCRIPTS = ("room.js", "replay.js")


@dataclass(frozen=True)
class Replay:
    """What a replay shows: an answer, its scan and the camera of its views.

    `missing` says what could not be read, a sentence each; making the page appends to it.
    """

    run: RunContents
    question: QuestionContents
    scene: Scene
    intrinsics: Intrinsics
    missing: list[str]

    @property
    def title(self) -> str:
        """The run and the answer, for a heading."""
        return f"{self.question.episode} of {self.run.folder.name}"


def page(replay: Replay) -> str:
    """The HTML document. Text of the run is in it as data, which its script shows as text and never as markup."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("roomscout.analysis.replay"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    reports, replays = (resources.files(f"roomscout.analysis.{name}") / "assets" for name in ("report", "replay"))
    scripts = [(replays / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return environment.get_template("replay.html.j2").render(
        title=escaped(replay.title),
        styles=[file.read_text(encoding="utf-8") for file in (reports / "palette.css", replays / "replay.css")],
        scripts=scripts,
        allowed=" ".join(f"'sha256-{_base64(hashlib.sha256(script.encode()).digest())}'" for script in scripts),
        data=script_json(page_values(replay)),
    )


def page_values(replay: Replay) -> dict[str, Any]:
    """What the scripts of the page read."""
    turns, missing = replay.question.turns, replay.missing
    views = _jpegs(turns)
    length_m = FRUSTUM_SHARE * float(max(replay.scene.bounds.extent))
    shown = [
        turn_values(turn, replay.question, replay.run, views.get, missing)
        | {"place": _frustum(turn.pose, replay.intrinsics, length_m), "goal": _goal(turn)}
        for turn in turns
    ]
    missing += [
        f"The view of turn {turn.turn} is damaged: {escaped(str(turn.seen.path))}."
        for turn in turns
        if turn.seen.path.is_file() and turn.seen.path not in views
    ]
    return {
        "title": escaped(replay.title),
        "question": answer_values(replay.question),
        "turns": shown,
        "missing": missing,
        "scan": _scan(replay.scene),
    }


def _frustum(pose: CameraPose, intrinsics: Intrinsics, length_m: float) -> dict[str, Any]:
    """A camera's place, axes and the far corners of its drawing from the upper left clockwise, world metres.

    `half` is half the width and height of its view at distance 1.
    """
    matrix, half = pose.camera_to_world, np.array([intrinsics.width, intrinsics.height]) / 2 / intrinsics.focal_px
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    corners = np.concatenate([signs * half, np.ones((4, 1))], axis=1) * length_m @ matrix[:3, :3].T + pose.position
    return {
        "eye": _rounded(pose.position),
        "down": _rounded(matrix[:3, 1]),
        "ahead": _rounded(matrix[:3, 2]),
        "corners": [_rounded(corner) for corner in corners],
        "half": _rounded(half),
    }


def _goal(turn: Turn) -> dict[str, list[float]] | None:
    """Where a move was stopped and where it should have gone, world metres; None if it was not stopped."""
    if turn.move is None or not turn.stopped:
        return None
    action = turn.action
    goal = turn.pose.moved(
        action.rotation_angle_degrees, action.forward_meters, action.left_meters, action.z_delta_meters
    )
    return {"from": _rounded(turn.move.pose.position), "to": _rounded(goal.position)}


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), 4) for value in values]


def _jpegs(turns: Iterable[Turn]) -> dict[Path, str]:
    """The views that can be read as data: URLs, by their file; all are scaled down until they fit a page."""
    views = {turn.seen.path: view for turn in turns if (view := turn.seen.load()) is not None}
    for width in VIEW_WIDTHS_PX:
        encoded = {path: _jpeg(Image.fromarray(view), width) for path, view in views.items()}
        if sum(map(len, encoded.values())) <= MOST_VIEW_BYTES:
            break
    return {path: f"data:image/jpeg;base64,{_base64(content)}" for path, content in encoded.items()}


def _jpeg(image: Image.Image, width: int) -> bytes:
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    image.save(content, format="JPEG", quality=JPEG_QUALITY)
    return content.getvalue()


def _scan(scene: Scene) -> dict[str, Any]:
    """The scan as the page draws it, and what the page says about it. `cut_z` hides the ceiling, world metres."""
    for most in MOST_FACES:
        mesh = simplified(scene, most)
        columns = packed(mesh)
        if sum(len(columns[name]) for name in COLUMNS) <= MOST_MESH_BYTES:
            break
    height = float(scene.bounds.upper[2]) - scene.floor_z_m
    return {
        "about": _about(scene, mesh),
        "room_lower": _rounded(scene.bounds.lower),
        "room_upper": _rounded(scene.bounds.upper),
        "cut_z": round(scene.floor_z_m + min(CUT_M, CUT_SHARE * height), 3),
        "point_m": max(mesh.point_m, SMALLEST_POINT_M),
        "background": f"rgb{BACKGROUND_RGB}",
        "mesh": columns,
    }


def _about(scene: Scene, mesh: Simplified) -> str:
    whole, kept = (len(each.faces) or len(each.vertices) for each in (scene, mesh))
    made_of = "triangles" if len(scene.faces) else "points"
    simpler = f", drawn as {kept:,}, simplified in cells of {100 * mesh.cell_m:.1f} cm" if mesh.cell_m else ""
    return f"{escaped(scene.name)}: {scene.size} m, {whole:,} {made_of}{simpler}"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
