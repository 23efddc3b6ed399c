"""Questions that are a picture: go to where it was taken. The pictures, their poses and the way there are exact.

The task is ViewSuite's interactive view planning (arXiv:2605.29563), without its top-down view.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from roomscout.base.files import replacing
from roomscout.data.answers import POSE_KIND
from roomscout.data.benchmark import QuestionType
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.paths import Paths, length_m
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene
from roomscout.rendering.views import start_position
from roomscout.rendering.visibility import Boxes, enough_pixels, object_pixels
from roomscout.rooms.questions import RoomQuestion
from roomscout.rooms.room import EYE_M, Room

CAMERA = Intrinsics(640, 480, 300.0)
PITCH_DEG = -15.0  # of the pictures' camera, which is that of a run unless its settings say otherwise
MOST_M, MOST_MOVES = 2.0, 5  # a move, and how many moves of a run lead to each picture at most
LEAST_M, LEAST_KINDS, LEAST_DEPTH_M = 1.0, 2, 1.0
MOST_TRIES = 300

VIEW_FINDING = QuestionType(
    "view_finding",
    POSE_KIND,
    advice="Compare each view with the photo: which objects does it show, on which side, how large? Turn until you "
    "see them, then move until they look the same.",
)
"""Beside the types of VSI-Bench; its scores are never combined with theirs."""
QUESTION = (
    "Where was the photo taken? Move the camera to that place, within {near_m:g} m, and let it look the same way, "
    "within {near_deg:g} degrees. It was as high above the floor as now, and looked as far up or down."
)


def view_finding(room: Room, scene: Scene, seed: Sequence[int]) -> RoomQuestion:
    """The row, without an id, of a question about a room whose scan is `scene`. Raises ValueError if it has no view."""
    rng = np.random.default_rng([*seed, 51])
    middle = Paths(scene, start_position(scene, EYE_M), MOST_M)
    boxes = Boxes.of((o.box.center, o.box.size, o.box.directions) for o in room.objects)
    kinds = [o.category for o in room.objects]
    reachable = middle.places[np.isfinite(middle.lengths)]
    for _ in range(MOST_TRIES):
        start = reachable[rng.integers(len(reachable))]
        paths = Paths(scene, start, MOST_M)
        heading_deg = float(rng.integers(0, 24) * 15)
        place = paths.places[rng.choice(np.flatnonzero(np.isfinite(paths.lengths)))]
        goal = CameraPose(0.0, 0.0, 0.0, float(rng.integers(360)), PITCH_DEG)
        goal = goal.at(np.array([*place[:2].round(2), start[2]]))
        if np.linalg.norm(goal.position - start) < LEAST_M:
            continue
        pixels = object_pixels(scene, goal, CAMERA, boxes)
        seen = {kind for kind, count in zip(kinds, pixels, strict=True) if count >= enough_pixels(640, 480)}
        if len(seen) < LEAST_KINDS:
            continue
        path = paths.to(goal.position)
        if path is None or len(path) > MOST_MOVES:
            continue
        if np.median(RaycastRenderer().depth(scene, goal, CAMERA)) < LEAST_DEPTH_M:  # a wall is before one's nose
            continue
        x, y = start[:2].round(3).tolist()
        truth = (*goal.position, goal.heading_deg, goal.pitch_deg, length_m(start, path))
        return {
            "dataset": "scannet",
            "scene_name": room.name,
            "question_type": VIEW_FINDING.name,
            "question": QUESTION.format(**vars(POSE_KIND)),
            "ground_truth": ", ".join(f"{number:.3f}" for number in truth),
            "options": None,
            "start": {
                "x_m": x,
                "y_m": y,
                "heading_deg": heading_deg,
                "z_m": round(goal.z_m, 3),
                "pitch_deg": PITCH_DEG,
            },
            "images": [f"pictures/{room.name}.png"],
        }
    raise ValueError(f"{room.name} has no view to find")


def write_picture(scene: Scene, row: RoomQuestion, path: Path) -> None:
    """Draw the picture of a row into a PNG file; creates its folder."""
    image = RaycastRenderer().render(scene, CameraPose.of_text(row["ground_truth"]), CAMERA)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        Image.fromarray(image).save(draft, "PNG")
