"""One more lesson: a teacher that finds views, whose conversations `roomscout train sft` learns from.

roomscout eval --questions FILE --scan-root ROOMS --policy explorer.view_teacher:ViewTeacher
"""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from explorer.notes import action_text, stepped
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.movers import way_to_truth
from roomscout.agent.state import QuestionState
from roomscout.envs.actions import CameraAction
from roomscout.envs.object_boxes import geometry_of
from roomscout.models import EMBEDDED, Reply
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.visibility import enough_pixels, object_pixels
from roomscout.rooms.view_finding import CAMERA

MOST_NOTES = 6
"""The largest objects that are noted of a picture."""
NEAR_M, NEAR_DEG = 0.15, 8.0
"""Where the teacher says that it is there."""
AROUND = 4
TURN_DEG = 90.0
MISSED_SHARE, MISSED_M, MISSED_DEG = 0.5, 0.25, 12.0
"""How often a move misses its goal, and by how much, so that corrections are learned."""


class ViewTeacher(Policy):
    """Notes the objects of the photo and of each view with their bearing and distance, turns until both share one, and
    goes there; sometimes it misses at first, and corrects that."""

    name = EMBEDDED  # in its prompts, and with its views
    reads_prompts = True

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """The actions in the teacher's replies."""
        return [self._decision(state) for state in states]

    def _decision(self, state: QuestionState) -> Decision:
        state.messages()
        return state.read(Reply(self._reply(state)))

    def _reply(self, state: QuestionState) -> str:
        env = state.environment
        pose = state.observation.pose
        draw = random.Random(f"{state.question.id} {state.turn}")
        goal = CameraPose.of_text(state.question.ground_truth or "")
        photo = self._notes(state, goal, CAMERA)
        view = self._notes(state, pose, state.observation.camera)
        ahead = pose.relative(goal)
        turn = round(pose.turn_to(goal))
        thought = f"Photo: {'; '.join(photo.values())}. " if state.turn == 0 else ""
        thought += f"Here: {'; '.join(view.values())}. " if view else "Here: nothing. "
        there = np.hypot(ahead.x_m, ahead.y_m) <= NEAR_M and abs(turn) <= NEAR_DEG
        if there or state.is_last_turn:
            words = "Same place." if there else "No moves left."
            return f"{thought}{words}\n" + action_text(CameraAction(answer="here", done=True))
        if state.turn < AROUND and not photo.keys() & view.keys():
            return f"{thought}Not in the photo.\n" + action_text(CameraAction(TURN_DEG))
        thought += f"Goal {stepped(ahead.x_m):+.2f} {stepped(ahead.y_m):+.2f} turn {turn}."
        action = way_to_truth(env, state.question)[0]
        if draw.random() < MISSED_SHARE and state.turn + 2 < state.steps:
            goal_deg = action.rotation_angle_degrees + draw.gauss(0, MISSED_DEG)
            action = replace(
                action,
                rotation_angle_degrees=min(180.0, max(-180.0, goal_deg)),
                forward_meters=min(2.0, max(-2.0, action.forward_meters + draw.gauss(0, MISSED_M))),
                left_meters=min(2.0, max(-2.0, action.left_meters + draw.gauss(0, MISSED_M))),
            )
        rounded = CameraAction(
            float(round(action.rotation_angle_degrees)), round(action.forward_meters, 1), round(action.left_meters, 1)
        )
        return f"{thought}\n{action_text(rounded)}"

    @staticmethod
    def _notes(state: QuestionState, pose: CameraPose, camera: Intrinsics) -> dict[int, str]:
        """The largest objects in a view by their index, left to right: bearing in degrees, category and metres."""
        env = state.environment
        boxes = state.environment.library.boxes_of(state.question)
        pixels = object_pixels(env.scene, pose, camera, geometry_of(boxes))
        least = enough_pixels(camera.width, camera.height)
        largest = [index for index in np.argsort(-pixels) if pixels[index] >= least][:MOST_NOTES]
        notes: list[tuple[float, int, str]] = []
        for index in largest:
            center_x, center_y, center_z = boxes[index].center
            away = pose.relative(CameraPose(center_x, center_y, center_z, 0.0))
            bearing = np.degrees(np.arctan2(away.y_m, away.x_m))
            metres = np.hypot(away.x_m, away.y_m)
            text = f"{round(bearing / 5) * 5:+d} {boxes[index].category} {stepped(metres):.2f} m"
            notes.append((-bearing, int(index), text))
        return {index: text for _, index, text in sorted(notes)}
