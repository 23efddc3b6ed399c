"""The teacher, who knows the room: it looks around, notes objects, walks if some are missing, and answers."""

from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from explorer.notes import (
    LONGEST_WALK_M,
    STRIDE_M,
    TURN_DEG,
    VIEWS_AROUND,
    Note,
    action_text,
    make_note,
    pose_words,
    view_text,
)
from explorer.reading import asked, family_of, so_far, still_missing, think
from roomscout.agent.state import QuestionState
from roomscout.envs.actions import CameraAction
from roomscout.envs.environment import Extent
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.raycast import faces_in_view
from roomscout.rendering.scene import Scene
from roomscout.rooms import Room
from roomscout.rooms.furniture import CATEGORIES
from roomscout.rooms.geometry import wrap_deg

FEWEST_PIXELS, AT_FOCAL_PX = 40, 105
"""Minimum pixels of a noted object in a view of this focal length."""
NO_OBJECT = -1
"""An index into `Room.objects` for no object."""
HALF_VIEW_DEG = TURN_DEG / 2
KEEP_OFF_M = 0.5
PATCH_PX = 16
"""Side of the image encoder's patches."""
PATCH_SHARE = 1 / 6
"""Minimum share of a patch that its labelling object must fill."""


def objects_in_view(scene: Scene, room: Room, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
    """(H, W) index into `room.objects` of the object at each pixel, NO_OBJECT for floor, walls and holes."""
    faces = faces_in_view(scene, pose, intrinsics)
    return np.where(faces >= 0, room.mesh.object_index[scene.surface.faces[faces, 0]], NO_OBJECT)


def categories_by_patch(owners: np.ndarray, room: Room) -> np.ndarray:
    """(H / 16, W / 16) uint8: 1 + the index in CATEGORIES of the object that fills most of each patch, 0 for none."""
    categories = [0, *[1 + CATEGORIES.index(thing.category) for thing in room.objects]]
    by_pixel = np.array(categories, dtype=np.uint8)[owners + 1]
    rows = owners.shape[0] // PATCH_PX
    columns = owners.shape[1] // PATCH_PX
    blocks = by_pixel.reshape(rows, PATCH_PX, columns, PATCH_PX).swapaxes(1, 2).reshape(rows * columns, -1)
    counts = np.stack([np.bincount(block, minlength=1 + len(CATEGORIES)) for block in blocks])
    counts[:, 0] = PATCH_SHARE * PATCH_PX**2
    return counts.argmax(axis=1).astype(np.uint8).reshape(rows, columns)


@dataclass
class Teacher:
    """Replies to one question about a room, given the question's state and the room's geometry.

    It makes quarter turns to the left and notes each object once, in the view whose quarter contains the object's
    centre. It states which of the question's objects it has found and answers once it has noted all of them. Questions
    that need every instance take at least a full rotation. If objects are still missing then, it walks to a second
    position and notes everything there from scratch, because a small model cannot tell which of some thirty objects it
    has already noted.
    """

    room: Room  # which the question is about
    blind: bool = False  # note nothing, and answer immediately with a guess
    overlooked: Set[str] = frozenset()
    """Categories that are not noted before the walk, as if the explorer had missed them; otherwise second positions
    would be too rare to learn from."""
    walk_turns: int | None = None
    """Ignore obstacles, and walk the maximum length after this many quarter turns to the left; None avoids them."""
    notes: list[Note] = field(default_factory=list)  # so far
    shown: list[np.ndarray] = field(default_factory=list)  # the `categories_by_patch` of each view so far
    missing: list[bool] = field(default_factory=list)  # for each turn, whether an object was still to be found
    _noted_before: int = 0  # notes of earlier turns
    _second_place: int | None = None  # index of the first note from there, None before the walk

    def reply(self, state: QuestionState) -> str:
        """The reply to the current turn."""
        self._noted_before = len(self.notes)
        new = [] if self.blind else self._new_notes(state)
        self.notes += new
        self.missing[state.turn :] = [still_missing(state.question, self.notes)]
        words = view_text(state.observation.pose, _start(state), new)
        answers = self.blind or state.is_last_turn or self._has_enough(state)
        move = None if answers else self._next_move(state)
        if move is not None:
            lines = [
                words,
                so_far(state.question, self.notes, self._noted_before),
                self._way(state, move),
                action_text(move),
            ]
        else:
            thought, answer = self._answer(state)
            lines = [words, thought, action_text(CameraAction(answer=answer, done=True))]
        return "\n".join(filter(None, lines))

    def _new_notes(self, state: QuestionState) -> list[Note]:
        """Notes of objects in view that are not yet noted from this position, from left to right."""
        env = state.environment
        intrinsics = env.library.camera.intrinsics
        owners = objects_in_view(env.scene, self.room, state.observation.pose, intrinsics)
        self.shown.append(categories_by_patch(owners, self.room))
        pixels = np.bincount(owners[owners >= 0], minlength=len(self.room.objects))
        walked = _walked(state)
        if walked and self._second_place is None:
            self._second_place = len(self.notes)
        noted = {note.index for note in self.notes[self._second_place or 0 :]}  # from the current position
        fewest = FEWEST_PIXELS * (intrinsics.focal_px / AT_FOCAL_PX) ** 2
        seen: list[tuple[float, Note]] = []
        for index in np.flatnonzero(pixels >= fewest):
            thing = self.room.objects[index]
            offset = thing.box.plan_center - state.observation.pose.position[:2]
            bearing = float(wrap_deg(np.degrees(np.arctan2(offset[1], offset[0])) - state.observation.pose.heading_deg))
            wanted = walked or thing.category not in self.overlooked
            if wanted and index not in noted and abs(bearing) <= HALF_VIEW_DEG:
                note = make_note(
                    thing.category, offset, state.observation.pose, _start(state), max(thing.box.size), int(index)
                )
                seen.append((bearing, note))
        return [note for _, note in sorted(seen, key=lambda pair: -pair[0])]

    def _has_enough(self, state: QuestionState) -> bool:
        family = family_of(state.question)
        if family == "room_size":
            return True
        around = state.turn + 1 >= VIEWS_AROUND
        if family == "counting":
            return around
        noted = {note.category for note in self.notes}
        return noted.issuperset(asked(state.question).names) and (around or _walked(state) or family != "nearest")

    def _next_move(self, state: QuestionState) -> CameraAction | None:
        """The next quarter turn, or after a full rotation the walk to a second position; None after both."""
        if (state.turn + 1) % VIEWS_AROUND:
            return CameraAction(rotation_angle_degrees=TURN_DEG)
        return None if _walked(state) else self._walk(state)

    def _walk(self, state: QuestionState) -> CameraAction | None:
        """The longest unobstructed walk in the freest of the four directions, None if shorter than a stride; the fixed
        walk with `walk_turns`."""
        env = state.environment
        turns = np.arange(VIEWS_AROUND) * TURN_DEG
        if self.walk_turns is not None:
            return CameraAction(float(wrap_deg(turns[self.walk_turns])), LONGEST_WALK_M)
        ways = np.array([state.observation.pose.turned(float(turn)).forward for turn in turns])
        free = env.scene.cast(np.tile(state.observation.pose.position, (len(ways), 1)), ways)
        turn = float(turns[int(np.argmax(free))])
        longest = min(LONGEST_WALK_M, float(free.max()) - KEEP_OFF_M)
        for length in np.arange(np.floor(longest / STRIDE_M) * STRIDE_M, 0.0, -STRIDE_M):
            action = CameraAction(float(wrap_deg(np.array(turn))), float(length))
            outcome = env.outcome(action)
            if not (outcome.blocked or outcome.clipped):
                return action
        return None

    def _way(self, state: QuestionState, move: CameraAction) -> str:
        """The announced target of a walk, which the next reply can repeat; empty if the camera only turns."""
        if not move.forward_meters:
            return ""
        there = move.goal(state.observation.pose)
        return f"To {pose_words(there, _start(state))}."

    def _answer(self, state: QuestionState) -> tuple[str, str]:
        """The reasoning and the answer. If the notes give none, the answer is the rounded ground truth."""
        question = state.question
        thought = think(question, self.notes, spans_m(state.observation.extent), self._noted_before)
        return thought.text, thought.answer or rounded_truth(question.question_type, question.ground_truth or "")


def _start(state: QuestionState) -> CameraPose:
    return state.turns[0].pose if state.turns else state.observation.pose


def _walked(state: QuestionState) -> bool:
    return any(turn.action.forward_meters for turn in state.turns)


def spans_m(extent: Extent) -> tuple[float, float]:
    """The room's lengths along x and y, metres, from bounds rounded as in the prompt."""
    spans = [float(f"{upper:.1f}") - float(f"{lower:.1f}") for lower, upper in (extent.x_m, extent.y_m)]
    return spans[0], spans[1]


def rounded_truth(question_type: str, truth: str) -> str:
    """The ground truth; room sizes are rounded to 0.5 m² below 10 m² and to 1 m² above."""
    if question_type == "room_size_estimation":
        area = float(truth)
        return f"{round(2 * area) / 2:g}" if area < 10 else str(round(area))
    return truth
