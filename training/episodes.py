"""Demonstrations: the teacher's conversations in procedural rooms, drawn by the very code that runs at evaluation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from agent.actions import parse_action
from agent.backends import EXPLORER_SETTINGS, Reply
from agent.config import NUM_STEPS, RunConfig
from agent.prompts import system_message, turn_message
from agent.state import QuestionState, Turn
from agent.turns import act
from agent.world import World
from data.questions import Question
from data.rooms import make_room, room_questions
from data.rooms.sight import standing_points
from rendering.camera import CameraPose
from rendering.geometry import Geometry
from rendering.renderers.blind import BlindRenderer
from rendering.renderers.raycast import RaycastRenderer
from rendering.scene import make_scene
from rendering.views import HEADINGS_DEG, FirstView, first_view
from training.store import Transcript
from training.teacher import PATCH_PX, Teacher

QUESTIONS_A_ROOM = {
    "object_counting": 4,
    "object_abs_distance": 4,
    "object_size_estimation": 2,
    "room_size_estimation": 1,
    "object_rel_distance": 4,
    "object_rel_direction_easy": 2,
    "object_rel_direction_medium": 3,
    "object_rel_direction_hard": 3,
    "route_planning": 3,
}
"""More of what takes more looking and thinking."""

BLIND_SHARE = 0.04
HURRIED_SHARE = 0.2
"""Shares of demonstrations without sight, and with fewer moves than usual, so that guesses are learned, too."""
USUAL_START_SHARE = 0.3
"""Share of demonstrations that begin at the package's own first view; the others begin anywhere a person can stand."""


@dataclass(frozen=True, eq=False)
class Episode(Transcript):
    """A finished conversation with what was seen: `images` (turns, H, W, 3) uint8, one for each user message, and
    `shown` (turns, H / 16, W / 16) uint8, their `categories_by_patch`, all zero for the blind."""

    images: np.ndarray
    shown: np.ndarray


def view_config() -> RunConfig:
    """The settings of a run of the explorer."""
    return RunConfig(**EXPLORER_SETTINGS)


def play(state: QuestionState, teacher: Teacher, world: World) -> None:
    """All turns of an opened question with the teacher's replies: asked, parsed, moved and seen as in any run."""
    while not state.is_final:
        state.ask(turn_message(state))
        reply = Reply(teacher.reply(state))
        parsed = parse_action(reply.text, state.question)
        assert parsed.error is None and not parsed.clamped, f"the teacher's own reply is no action: {reply.text}"
        move, view, seconds = act(state, parsed, world)
        state.record(Turn(state.turn, state.where, reply, parsed, move, (state.question.id,), seconds), view)


def room_episodes(seed: int, index: int, config: RunConfig | None = None) -> Iterator[Episode]:
    """The demonstrations in room `index` of a seed, one per question; the same arguments give the same episodes."""
    config = config or view_config()
    room = make_room(seed, index)
    scene = make_scene(room.name, Geometry(room.mesh.vertices, room.mesh.faces, room.mesh.colours))
    assert np.array_equal(scene.surface.faces, room.mesh.faces), "pixels are told apart by the mesh's own faces"
    renderer = RaycastRenderer()
    seeing, blind = World(config, renderer), World(config, BlindRenderer())
    rng = np.random.default_rng([seed, index, 1])
    first = first_view(scene, renderer, seeing.intrinsics, config.camera_height, config.camera_pitch, config.first_view)
    places = standing_points(room.plan, [thing.box for thing in room.objects])
    for number, row in enumerate(room_questions(room, (seed, index), QUESTIONS_A_ROOM), start=1):
        question = _question(row)
        is_blind = bool(rng.random() < BLIND_SHARE)
        steps = int(rng.integers(NUM_STEPS)) if rng.random() < HURRIED_SHARE else NUM_STEPS
        world = blind if is_blind else seeing
        pose = _start(first, places, rng)
        state = QuestionState(number, question, steps)
        state.open(scene, pose, world.view(scene, pose), system_message(question))
        teacher = Teacher(room, world, is_blind)
        play(state, teacher, world)
        yield _episode(state, teacher)
    seeing.close()
    blind.close()


def _question(row: Mapping[str, Any]) -> Question:
    values = {**row, "id": str(row["id"]), "options": tuple(row["options"] or ())}
    return Question(**values)


def _start(first: FirstView, places: np.ndarray, rng: Generator) -> CameraPose:
    """The package's own first pose, or any place to stand with one of its headings."""
    if len(places) == 0 or rng.random() < USUAL_START_SHARE:
        return first.pose
    x, y = places[rng.integers(len(places))]
    return replace(first.pose, x_m=float(x), y_m=float(y), heading_deg=float(rng.choice(HEADINGS_DEG)))


def _episode(state: QuestionState, teacher: Teacher) -> Episode:
    messages = state.conversation.messages
    images = np.stack(state.conversation.images)
    patches = (len(images), images.shape[1] // PATCH_PX, images.shape[2] // PATCH_PX)
    return Episode(
        state.question.question_type,
        state.question.ground_truth or "",
        state.answer,
        teacher.blind,
        messages[0].text,
        tuple(message.text for message in messages[1::2]),
        tuple(message.text for message in messages[2::2]),
        images,
        np.zeros(patches, dtype=np.uint8) if teacher.blind else np.stack(teacher.shown),
    )
