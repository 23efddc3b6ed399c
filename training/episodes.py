"""Demonstrations: the teacher's conversations in procedural rooms, generated with the code of real runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from agent.builders import library_of
from agent.config import NUM_STEPS, RunConfig
from agent.policies.model import ask, read
from agent.policies.prompts import explorer_prompts
from agent.policies.replies import action_format, parse_action
from agent.state import QuestionState
from agent.turns import act, finish_turn
from data.benchmarks.vsi_bench import BENCHMARK
from data.questions import Question, with_kind
from data.rooms import make_room, room_questions
from data.rooms.sight import standing_points
from envs.environment import ExplorationEnv
from envs.library import ScanLibrary, draw_first_view
from models import Backend, Reply
from rendering.camera import CameraPose
from rendering.geometry import Geometry
from rendering.renderers.blind import BlindRenderer
from rendering.renderers.raycast import RaycastRenderer
from rendering.scene import make_scene
from rendering.views import HEADINGS_DEG, FirstView
from training.notes import VIEWS, VIEWS_AROUND
from training.reading import asked, family_of, still_missing
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
"""Types that need more exploration and reasoning have more questions."""

BLIND_SHARE = 0.04
HURRIED_SHARE = 0.2
"""Shares of demonstrations without views and with fewer moves than usual; these teach guessing."""
LAST_SHARE = 0.5
"""Share of pupil conversations that the teacher corrects at the last turn; the others at a random turn."""
OVERLOOKED_SHARE = 0.3
"""Share of demonstrations in which the teacher overlooks one category of the question until it has walked."""
FIXED_WALK_SHARE = 0.3
"""Share of demonstrations in which the teacher's walk ignores obstacles."""
USUAL_START_SHARE = 0.3
"""Share of demonstrations that start at the usual first view; the others start anywhere a person can stand."""


@dataclass(frozen=True, eq=False)
class Episode(Transcript):
    """A finished conversation with its views.

    `images` (turns, H, W, 3) uint8, one per user message, and `shown` (turns, H / 16, W / 16) uint8, their
    `categories_by_patch`, all 0 for blind demonstrations.
    """

    images: np.ndarray
    shown: np.ndarray


def view_config() -> RunConfig:
    """The run settings of the explorer."""
    return RunConfig(**asdict(VIEWS))


def room_episodes(seed: int, index: int, config: RunConfig | None = None) -> Iterator[Episode]:
    """The demonstrations in room `index` of a seed, one per question; deterministic."""
    config = config or view_config()
    with _libraries(config) as libraries:
        for state, teacher in _opened(seed, index, *libraries):
            missing = []
            while not state.is_final:
                ask(state, explorer_prompts())
                _take(state, Reply(teacher.reply(state)))
                missing.append(still_missing(state.question, teacher.notes))
                turn = state.turns[-1]
                assert turn.parse_error is None and not turn.clamped, f"invalid action: {turn.reply.text}"
            replies = tuple(turn.reply.text for turn in state.turns)
            yield _episode(state, teacher, replies, state.answer, missing)


def pupil_episodes(seed: int, index: int, pupil: Backend, config: RunConfig | None = None) -> Iterator[Episode]:
    """The same questions, answered by a pupil up to a turn (half of the time the last) in which the teacher replies.

    Teaches how to continue from imperfect notes: DAgger, Ross et al., "A Reduction of Imitation Learning and Structured
    Prediction to No-Regret Online Learning", 2011.
    """
    config = config or view_config()
    with _libraries(config) as libraries:
        opened = [pair for pair in _opened(seed, index, *libraries) if not pair[1].blind]
        for _, teacher in opened:
            teacher.overlooked = frozenset()  # the pupil overlooks enough
        corrections: list[list[str]] = [[] for _ in opened]
        missing_to_teacher: list[list[bool]] = [[] for _ in opened]
        missing_to_pupil: list[list[bool]] = [[] for _ in opened]
        while due := [number for number, (state, _) in enumerate(opened) if not state.is_final]:
            for number in due:
                state, teacher = opened[number]
                ask(state, explorer_prompts())
                corrections[number].append(teacher.reply(state))
                missing_to_teacher[number].append(still_missing(state.question, teacher.notes))
            replies = pupil.generate([opened[number][0].conversation for number in due], action_format())
            for number, reply in zip(due, replies, strict=True):
                state, teacher = opened[number]
                teacher.adopt_notes(reply.text, state)
                missing_to_pupil[number].append(still_missing(state.question, teacher.notes))
                _take(state, reply)
                if state.is_final:
                    pupil.release(state.conversation)
        rng = np.random.default_rng([seed, index, 2])
        for number, ((state, teacher), teacher_replies) in enumerate(zip(opened, corrections, strict=True)):
            last = len(teacher_replies) - 1
            turn = last if rng.random() < LAST_SHARE else int(rng.integers(last + 1))
            correction = teacher_replies[turn]
            pupil_replies = tuple(each.reply.text for each in state.turns[:turn])
            answer = parse_action(correction, state.question).action.answer
            missing = [*missing_to_pupil[number][:turn], missing_to_teacher[number][turn]]
            yield _episode(state, teacher, (*pupil_replies, correction), answer, missing, by_pupil=True)


def _take(state: QuestionState, reply: Reply) -> None:
    """Process a reply as in a run: parse it, move and render."""
    decision = read(reply, state, explorer_prompts())
    after, seconds = act(state, decision)
    finish_turn(state, decision, after, (state.question.id,), seconds)


@contextmanager
def _libraries(config: RunConfig) -> Iterator[tuple[ScanLibrary, ScanLibrary]]:
    """A library with real views and one with blank views."""
    seeing, blind = library_of(config, RaycastRenderer()), library_of(config, BlindRenderer())
    with closing(seeing), closing(blind):
        yield seeing, blind


def _opened(
    seed: int, index: int, seeing: ScanLibrary, blind: ScanLibrary
) -> Iterator[tuple[QuestionState, Teacher]]:
    """The questions of a room, ready for the first turn, each with a separate teacher."""
    room = make_room(seed, index)
    scene = make_scene(room.name, Geometry(room.mesh.vertices, room.mesh.faces, room.mesh.colours))
    assert np.array_equal(scene.surface.faces, room.mesh.faces), "objects in view are identified by the mesh's faces"
    rng = np.random.default_rng([seed, index, 1])
    first = draw_first_view(scene, seeing.renderer, seeing.camera)
    places = standing_points(room.plan, [thing.box for thing in room.objects])
    for number, row in enumerate(room_questions(room, (seed, index), QUESTIONS_A_ROOM), start=1):
        question = _question(row)
        is_blind = bool(rng.random() < BLIND_SHARE)
        steps = int(rng.integers(NUM_STEPS)) if rng.random() < HURRIED_SHARE else NUM_STEPS
        env = ExplorationEnv(blind if is_blind else seeing, steps)
        env.reset_at(scene, _start(first, places, rng))
        state = QuestionState(number, question, steps)
        state.begin(env)
        names = sorted(asked(question).names)
        overlooks = bool(names) and family_of(question) != "counting" and rng.random() < OVERLOOKED_SHARE
        overlooked = {str(rng.choice(names))} if overlooks else set()
        walk_turns = int(rng.integers(VIEWS_AROUND)) if rng.random() < FIXED_WALK_SHARE else None
        yield state, Teacher(room, is_blind, overlooked, walk_turns)


def _question(row: Mapping[str, Any]) -> Question:
    values = {**row, "id": str(row["id"]), "options": tuple(row["options"] or ())}
    return with_kind(Question(**values), BENCHMARK)


def _start(first: FirstView, places: np.ndarray, rng: Generator) -> CameraPose:
    """The pose of the first view, or a random standing point and heading."""
    if len(places) == 0 or rng.random() < USUAL_START_SHARE:
        return first.pose
    x, y = places[rng.integers(len(places))]
    return replace(first.pose, x_m=float(x), y_m=float(y), heading_deg=float(rng.choice(HEADINGS_DEG)))


def _episode(
    state: QuestionState,
    teacher: Teacher,
    replies: tuple[str, ...],
    answer: str | None,
    missing: Sequence[bool],
    by_pupil: bool = False,
) -> Episode:
    """The conversation, truncated to as many turns as there are replies."""
    messages, turns = state.conversation.messages, len(replies)
    images = np.stack(state.conversation.images[:turns])
    patches = (turns, images.shape[1] // PATCH_PX, images.shape[2] // PATCH_PX)
    return Episode(
        state.question.question_type,
        state.question.ground_truth or "",
        answer,
        teacher.blind,
        by_pupil,
        messages[0].text,
        tuple(message.text for message in messages[1::2])[:turns],
        replies,
        tuple(turn.move is not None and (turn.move.blocked or turn.move.clipped) for turn in state.turns[:turns]),
        tuple(missing),
        turns - 1 == state.steps,
        images,
        np.zeros(patches, dtype=np.uint8) if teacher.blind else np.stack(teacher.shown[:turns]),
    )
