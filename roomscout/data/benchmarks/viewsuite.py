"""ViewSuite (arXiv:2605.29563): go to where a picture of a ScanNet room was taken, and follow paths to views and back.

Facts are those of commit 4e35e1c of github.com/JamesKrW/ViewSuite: fields, wording, camera-to-world matrices with
OpenCV's axes in scan coordinates, and success within 0.5 m and 30 degrees (proxy_analysis/easy_hard_analysis.py).
There, an answer is a pose that the model writes, and its angle has the roll; here it is where the camera is.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from roomscout.data.answers import LETTER_KIND, Pose
from roomscout.data.benchmark import SCANS_FROM, Benchmark, Origin, QuestionType
from roomscout.data.question_files import QuestionError, QuestionRow
from roomscout.data.scan_frames import Start

IVP, P2V, V2P = "interactive_view_planning", "path_to_view", "view_to_path"
KIND = Pose(near_m=0.5, near_deg=30.0)
PLANNING = (
    "Picture 1 is a target view of this room, and picture 2 the room from above. Move the camera to where the target "
    f"view was taken, within {KIND.near_m:g} m and {KIND.near_deg:g} degrees."
)
LETTERS = "ABCD"
MOST_ROLL_DEG = 1.0
ROLLS = (
    "their camera is not upright, as all are here (if this is so in all rows, the matrices are not camera-to-world, or "
    "have other axes than OpenCV's)"
)


def in_our_columns(row: QuestionRow) -> QuestionRow:
    """A row with our columns: the first view is the start, and all other images are pictures. Raises QuestionError."""
    try:
        return _in_our_columns(row)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise QuestionError(f"it is no row of ViewSuite ({error!r})") from None


def _in_our_columns(row: QuestionRow) -> QuestionRow:
    details: Any = row["image_detail"]
    task = task_of(details, row)
    first = pose_of(details["init_view"])
    names = {
        IVP: ("target_view", "top_down_view"),
        V2P: ("top_down_view", "target_view"),
        P2V: ("top_down_view", *(f"view_{number}" for number in range(len(LETTERS)))),
    }[task]
    question = PLANNING
    options = None
    if task == IVP:
        truth = ", ".join(f"{number:.4f}" for number in pose_of(details["target_view"]))
    else:
        truth = str(row["gt_answer"]).strip()[:1]
        before, *choices = re.split(r"\n(?=[A-D]\. )", str(row["prompt"]).strip())
        images = iter(["the current view", *(f"picture {number}" for number in range(1, len(names) + 1))])
        question = re.sub("<image>", lambda _: f"({next(images)})", before)
        options = [re.sub("<image>", lambda _: next(images), choice).split("\n")[0] for choice in choices]
    return {
        "id": f"{task}_{row['sample_id']}",
        "dataset": "scannet",
        "scene_name": row["scene_id"],
        "question_type": task,
        "question": question,
        "options": options,
        "ground_truth": truth,
        "start": Start(first[0], first[1], first[3], z_m=first[2], pitch_deg=first[4]).to_json(),
        "images": [details[name]["path"] for name in names],
    }


def task_of(details: Mapping[str, Any], row: QuestionRow) -> str:
    """The task of a row: paths to views have a picture for each option, views to paths a letter as their answer."""
    if "view_0" in details:
        return P2V
    return V2P if str(row.get("gt_answer") or "").strip()[:1] in tuple(LETTERS) else IVP


def pose_of(view: Mapping[str, Any]) -> tuple[float, float, float, float, float]:
    """x, y and z in metres, heading and pitch in degrees of a 4x4 camera-to-world matrix with OpenCV's axes."""
    matrix = view["c2w_extrinsics"]
    x, y, z = (float(line[3]) for line in matrix[:3])
    ahead_x, ahead_y, ahead_z = (float(line[2]) for line in matrix[:3])
    heading = math.degrees(math.atan2(ahead_y, ahead_x)) % 360
    return x, y, z, heading, math.degrees(math.asin(max(-1.0, min(1.0, ahead_z))))


def why_left_out(row: QuestionRow) -> str:
    """Why no camera that never rolls can take the first view, and in view planning the target; raises ValueError."""
    details: Any = row["image_detail"]
    try:
        views = ("init_view", "target_view") if task_of(details, row) == IVP else ("init_view",)
        poses = np.array([details[name]["c2w_extrinsics"] for name in views], dtype=np.float64)[:, :3, :4]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"its image_detail lacks {error}, the view with its c2w_extrinsics") from None
    if not np.isfinite(poses).all():
        return "their camera has no pose, as where ScanNet lost track of it"
    turns = poses[:, :, :3]
    if not np.allclose(turns @ turns.transpose(0, 2, 1), np.eye(3), atol=0.01) or (np.linalg.det(turns) < 0).any():
        return "the matrix of their camera is no rotation"
    rolls = np.degrees(np.arctan2(turns[:, 2, 0], -turns[:, 2, 1]))
    return ROLLS if np.abs(rolls).max() > MOST_ROLL_DEG else ""


BENCHMARK = Benchmark(
    name="viewsuite",
    title="ViewSuite",
    types=(
        QuestionType(IVP, KIND, advice="Compare each view with the target view before you move."),
        QuestionType(P2V, LETTER_KIND),
        QuestionType(V2P, LETTER_KIND),
    ),
    columns=("scene_id", "sample_id", "image_detail"),
    more_columns=("prompt", "gt_answer", "gt_action_seq", "image_path", "meta", "success_criteria"),
    read_row=in_our_columns,
    leaves_out=why_left_out,
    label="viewsuite_upright_camera_overall",
    questions_from=Origin(
        "https://huggingface.co/datasets/MLL-Lab/viewsuite",
        "access on request",
        "interactive_view_planning_test_filter.jsonl and those of the other tasks, of viewsuite_15k.tar.gz",
    ),
    scans_from={"scannet": SCANS_FROM["scannet"]},
)
