"""Writes a replay in the format of the viewer rerun (https://rerun.io), with the turns as its timeline."""

from collections import Counter
from pathlib import Path

import numpy as np

from roomscout.analysis.replay.page import MOST_FACES, Replay, places_of
from roomscout.analysis.report.contents import AnswerContents
from roomscout.analysis.report.pages import forced_in_words
from roomscout.base.shots import VIEW
from roomscout.base.text import escaped
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.simplify import simplified
from roomscout.runs.records import Turn

OBJECT_RGB = (199, 33, 184)
MARKER_M = 0.08  # the radius of an answer that is a place


def write_rerun(replay: Replay, out: Path) -> None:
    """Write scan, objects, path, cameras with views, further images and the conversation for `rerun FILE`. All places
    are in the scene's own coordinates, since the viewer draws in single precision."""
    import rerun

    turns = replay.answer.turns
    lens = replay.run.facts.intrinsics
    recording = rerun.RecordingStream("roomscout_replay", recording_id=replay.title)
    recording.save(out)
    recording.log("room", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    scene = replay.scene
    mesh = simplified(scene, MOST_FACES)
    if len(mesh.faces):
        scan = rerun.Mesh3D(vertex_positions=mesh.vertices, triangle_indices=mesh.faces, vertex_colors=mesh.colours)
    else:
        scan = rerun.Points3D(mesh.vertices, colors=mesh.colours, radii=mesh.point_m / 2)
    recording.log("room/scan", scan, static=True)
    counts: Counter[str] = Counter()
    for box in replay.objects:
        name = escaped(box.category)
        counts[name] += 1
        entity = ["room", "objects", f"{name} {counts[name]}"]
        place = rerun.Transform3D(translation=scene.own(np.array(box.center)), mat3x3=np.transpose(box.directions))
        recording.log(entity, place, static=True)
        recording.log(entity, rerun.Boxes3D(sizes=[box.size], labels=[name], colors=[OBJECT_RGB]), static=True)
    answer = replay.answer
    question = replay.answer.question
    ended = ": ".join(filter(None, [answer.outcome, answer.entry.answer]))
    truth = [f"truth: {answer.entry.truth}"] if answer.entry.truth else []
    text = "\n".join([question.question, *question.options, ended, *truth])
    recording.log("question", rerun.TextDocument(text), static=True)
    pinhole = rerun.Pinhole(
        image_from_camera=lens.matrix, resolution=[lens.width, lens.height], camera_xyz=rerun.ViewCoordinates.RDF
    )
    for name, at in places_of(replay):
        where = ["room", f"{name} answer"]
        if isinstance(at, CameraPose):
            matrix = at.camera_to_world
            recording.log(where, rerun.Transform3D(translation=matrix[:3, 3], mat3x3=matrix[:3, :3]), static=True)
            recording.log(where, pinhole, static=True)
        else:
            recording.log(where, rerun.Points3D([at], labels=[name], radii=MARKER_M), static=True)
    path = scene.own(np.array([turn.pose.position for turn in turns]))
    for place, turn in enumerate(turns):
        recording.set_time("turn", sequence=turn.turn)
        matrix = scene.own_pose(turn.pose).camera_to_world
        recording.log("room/camera", rerun.Transform3D(translation=matrix[:3, 3], mat3x3=matrix[:3, :3]))
        recording.log("room/camera/view", pinhole)
        for shot in turn.shots:
            image = shot.load()
            if image is None:
                replay.missing.append(f"The view {shot.path.name} is missing or damaged.")
                continue
            place_of_image = "room/camera/view" if shot.name == VIEW else f"images/{shot.name}"
            recording.log(place_of_image, rerun.Image(image).compress(jpeg_quality=85))
        recording.log("room/path", rerun.LineStrips3D([path[: place + 1]], colors=[38, 99, 235]))
        recording.log("conversation", rerun.TextDocument("\n\n".join(_said(turn, answer))))
    recording.flush()


def _said(turn: Turn, answer: AnswerContents) -> list[str]:
    replied = "" if answer.by_person else turn.reply.text
    said = [replied, turn.uses_in_words, turn.action.in_words, turn.camera_in_words, turn.parse_error]
    if turn.requested is not None:
        said.append(f"the model asked for: {turn.requested.in_words}")
    if turn.forced is not None:
        said.append(f"if this turn were the last: {forced_in_words(turn.forced, answer)}")
    if turn.belief is not None:
        said.append(f"believes (m forward, m left): {turn.belief.in_words}")
    return [text for text in said if text]
