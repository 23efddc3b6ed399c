"""The HTML page of a replay: one file that opens from disk and asks for nothing else."""

import base64
import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from roomscout.analysis.episodes import Episode
from roomscout.data.text import escaped
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.plan_view import CUT_M, CUT_SHARE
from roomscout.rendering.scene import Scene
from roomscout.rendering.simplify import Simplified, simplified
from roomscout.runs.records import SavedView, Turn

MOST_FACES = 400_000
"""The most triangles, or points of a cloud, in a page: about 1.4 MB."""
MOST_VIEW_BYTES = 1_200_000
"""The most bytes of all views in a page, as JPEGs; more and larger views are scaled down."""
VIEW_WIDTHS_PX = (640, 480, 320, 240, 160)
JPEG_QUALITY = 85
SMALLEST_POINT_M = 0.01
FRUSTUM_SHARE = 0.075
"""The length of a drawn camera as a share of the room's longest side."""


@dataclass(frozen=True)
class Replay:
    """What a page shows: an episode, its scan and the camera of its views."""

    episode: Episode
    scene: Scene
    intrinsics: Intrinsics
    run: str


def page(replay: Replay) -> str:
    """The HTML document. Outside text is in it as data, shown as text and never as markup."""
    data = json.dumps(page_data(replay)).replace("<", "\\u003c")
    folder = Path(__file__).parent
    html, style, script = ((folder / f"page.{suffix}").read_text(encoding="utf-8") for suffix in ("html", "css", "js"))
    return html.replace("/* style */", style).replace("/* script */", script).replace("/* data */", data)


def page_data(replay: Replay) -> dict[str, Any]:
    """What the script of the page reads."""
    episode, scene = replay.episode, replay.scene
    mesh = simplified(scene, MOST_FACES)
    views = _jpegs(episode.turns)
    told = [message for message in episode.messages if message["role"] == "user"]
    return {
        "title": f"{replay.run} {episode.id}",
        "question": _question(episode),
        "scan": _scan(scene, mesh),
        "system": [_lines(message["text"]) for message in episode.messages if message["role"] == "system"],
        "turns": [
            {
                "turn": turn.turn,
                "told": _lines(told[place]["text"]) if place < len(told) else "",
                "view": view,
                "no_view": "" if view else f"{turn.seen.path.name} is missing or damaged",
                "place": place_in_words(turn.pose),
                "said": _lines(turn.reply.text),
                "truncated": turn.reply.finish_reason == "length",
                "action": _lines(turn.action.in_words),
                "camera": outcome_in_words(turn),
                "error": _lines(turn.parse_error or ""),
                "clamped": [_lines(each) for each in turn.clamped],
                **_frustum(turn.pose, replay.intrinsics, FRUSTUM_SHARE * float(max(scene.bounds.extent))),
            }
            for place, (turn, view) in enumerate(zip(episode.turns, views, strict=True))
        ],
    }


def place_in_words(pose: CameraPose) -> str:
    """A camera's place and direction."""
    return f"x {pose.x_m:.2f}, y {pose.y_m:.2f}, z {pose.z_m:.2f} m, heading {pose.heading_deg:.0f}°"


def outcome_in_words(turn: Turn) -> str:
    """What the camera did; empty for the turn that ended the question."""
    if turn.move is None:
        return ""
    turned = turn.action.rotation_angle_degrees
    words = [f"turned {'left' if turned > 0 else 'right'} {abs(turned):g}°"] if turned else []
    if turn.move.requested_m:
        short = turn.move.blocked or turn.move.clipped
        words.append(f"moved {turn.move.moved_m:.2f} m" + (f" of {turn.move.requested_m:.2f} m" if short else ""))
    if turn.move.blocked:
        words.append("a surface blocked the move")
    if turn.move.clipped:
        words.append("the room's bounds clipped the move")
    return ", ".join(words) or "stayed"


def _lines(text: str) -> str:
    return "\n".join(map(escaped, text.split("\n")))


def _question(episode: Episode) -> dict[str, Any]:
    question, row = episode.question, episode.row
    return {
        "text": _lines(question.question),
        "options": [_lines(option) for option in question.options],
        "scene": escaped(" ".join(question.scene)),
        "type": escaped(question.question_type),
        "id": escaped(question.id),
        "truth": None if question.ground_truth is None else escaped(question.ground_truth),
        "unit": question.kind.unit,
        "answer": None if row is None or row.answer is None else escaped(row.answer),
        "score": None if row is None else row.score,
        "status": "unfinished" if row is None else row.status,
        "error": "" if row is None else _lines(row.error or ""),
    }


def _frustum(pose: CameraPose, intrinsics: Intrinsics, length_m: float) -> dict[str, Any]:
    """A camera's place, axes and the far corners of its drawing, from the upper left clockwise, world metres."""
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


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), 4) for value in values]


def _jpegs(turns: Iterable[Turn]) -> list[str]:
    """Each turn's view as a data URL, empty for one whose file is missing or damaged; all of them fit a page."""
    loaded = [turn.seen.load() if isinstance(turn.seen, SavedView) else turn.seen for turn in turns]
    images = [None if view is None else Image.fromarray(view) for view in loaded]
    for width in VIEW_WIDTHS_PX:
        encoded = [b"" if image is None else _jpeg(image, width) for image in images]
        if sum(map(len, encoded)) <= MOST_VIEW_BYTES:
            break
    return [f"data:image/jpeg;base64,{_base64(each)}" if each else "" for each in encoded]


def _jpeg(image: Image.Image, width: int) -> bytes:
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, format="JPEG", quality=JPEG_QUALITY)
    return out.getvalue()


def _scan(scene: Scene, mesh: Simplified) -> dict[str, Any]:
    """The scan as the page draws it, and what it says about it. `_packed_mesh` explains the numbers."""
    height = float(scene.bounds.upper[2]) - scene.floor_z_m
    whole = len(scene.faces) or len(scene.vertices)
    kept = len(mesh.faces) or len(mesh.vertices)
    made_of = "triangles" if len(scene.faces) else "points"
    fewer = f", simplified to {kept:,} in cells of {100 * mesh.cell_m:.1f} cm" if mesh.cell_m else ""
    return {
        "about": f"{escaped(scene.name)}: {scene.size} m, {whole:,} {made_of}{fewer}",
        **_packed_mesh(mesh),
        "room_lower": _rounded(scene.bounds.lower),
        "room_upper": _rounded(scene.bounds.upper),
        "cut_z": round(scene.floor_z_m + min(CUT_M, CUT_SHARE * height), 3),
        "point_m": max(mesh.cell_m, SMALLEST_POINT_M),
    }


def _packed_mesh(mesh: Simplified) -> dict[str, Any]:
    """A mesh as compressed columns, for which neighbours in space are neighbours in the file.

    `places` are x, y, z as 16 bits of the box from `lower` with `extent`, each as the difference from the vertex
    before. `faces` are the first vertex as the difference from the face before, then the two others as differences
    from the first, each column as its lowest bytes, then its second ones, and so on.
    """
    lower = mesh.vertices.min(axis=0)
    extent = np.maximum(mesh.vertices.max(axis=0) - lower, 1e-6)
    places = ((mesh.vertices - lower) / extent * 65535).round().astype(np.int64)
    order = np.lexsort((places >> 8).T[::-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    faces = np.sort(number[mesh.faces], axis=1)
    faces = faces[np.lexsort(faces.T[::-1])]
    steps = [np.diff(faces[:, 0], prepend=0), faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0]]
    in_bytes = np.stack(steps).astype("<u4").view(np.uint8).reshape(3, -1, 4)
    return {
        "lower": _rounded(lower),
        "extent": _rounded(extent),
        "places": _packed(np.diff(places[order], axis=0, prepend=0).T.astype("<u2")),
        "colours": _packed(mesh.colours[order].T),
        "faces": _packed(in_bytes.transpose(0, 2, 1)),
    }


def _packed(values: np.ndarray) -> str:
    """An array's bytes, compressed, in base64."""
    return _base64(zlib.compress(np.ascontiguousarray(values).tobytes()))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
