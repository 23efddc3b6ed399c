"""Writes a replay in the format of the viewer rerun (https://rerun.io), with the turns as its timeline."""

from pathlib import Path

import numpy as np

from roomscout.analysis.replay.page import MOST_FACES, Replay, outcome_in_words
from roomscout.rendering.simplify import simplified
from roomscout.runs import RunError
from roomscout.runs.records import SavedView


def write_rerun(replay: Replay, out: Path) -> None:
    """Write an .rrd file: scan, path, cameras with their views, and the conversation; raises RunError without rerun.

    Open it with `rerun FILE`.
    """
    try:
        import rerun
    except ImportError:
        raise RunError('--rrd needs the package rerun-sdk: pip install "roomscout[report]"') from None
    recording = rerun.RecordingStream("roomscout_replay", recording_id=f"{replay.run}_{replay.episode.id}")
    recording.save(out)
    recording.log("room", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    mesh = simplified(replay.scene, MOST_FACES)
    if len(mesh.faces):
        scan = rerun.Mesh3D(vertex_positions=mesh.vertices, triangle_indices=mesh.faces, vertex_colors=mesh.colours)
    else:
        scan = rerun.Points3D(mesh.vertices, colors=mesh.colours, radii=max(mesh.cell_m, 0.01) / 2)
    recording.log("room/scan", scan, static=True)
    question = replay.episode.question
    about = "\n".join([question.question, *question.options, f"truth: {question.ground_truth}"])
    recording.log("question", rerun.TextDocument(about), static=True)
    path = np.array([turn.pose.position for turn in replay.episode.turns])
    for place, turn in enumerate(replay.episode.turns):
        recording.set_time("turn", sequence=turn.turn)
        matrix = turn.pose.camera_to_world
        recording.log("room/camera", rerun.Transform3D(translation=matrix[:3, 3], mat3x3=matrix[:3, :3]))
        lens = replay.intrinsics
        recording.log(
            "room/camera/view",
            rerun.Pinhole(
                image_from_camera=lens.matrix,
                resolution=[lens.width, lens.height],
                camera_xyz=rerun.ViewCoordinates.RDF,
            ),
        )
        view = turn.seen.load() if isinstance(turn.seen, SavedView) else turn.seen
        if view is not None:
            recording.log("room/camera/view", rerun.Image(view).compress(jpeg_quality=85))
        recording.log("room/path", rerun.LineStrips3D([path[: place + 1]], colors=[38, 99, 235]))
        said = [turn.reply.text, turn.action.in_words, outcome_in_words(turn), turn.parse_error or ""]
        recording.log("conversation", rerun.TextDocument("\n\n".join(filter(None, said))))
    recording.flush()
