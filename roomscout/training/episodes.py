"""Demonstrations: the teacher's conversations in procedural rooms, generated with the code of real runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from roomscout.agent.builders import camera_of
from roomscout.agent.config import RenderSettings
from roomscout.agent.loop import answer_in_one_batch
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import explorer_prompts
from roomscout.agent.policies.replies import parse_action
from roomscout.agent.state import QuestionState, Rules
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.questions import Question, with_kind
from roomscout.envs.library import OneSceneLibrary, draw_first_view
from roomscout.models import Backend, Reply
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.renderers.blind import BlindRenderer
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene, make_scene
from roomscout.rendering.views import HEADINGS_DEG, FirstView
from roomscout.rooms import make_room, room_questions
from roomscout.rooms.sight import standing_points
from roomscout.runs.journal import MemoryJournal
from roomscout.runs.settings import NUM_STEPS
from roomscout.training.notes import VIEWS, VIEWS_AROUND
from roomscout.training.reading import asked, family_of
from roomscout.training.store import Transcript
from roomscout.training.teacher import PATCH_PX, Teacher

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


CAMERA = camera_of(VIEWS, RenderSettings())
"""The settings of the explorer's views."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """A question about a room, the pose at which it starts, and its teacher."""

    state: QuestionState
    start: CameraPose
    teacher: Teacher


class TeacherPolicy(Policy):
    """Answers each question with the replies of its teacher, in the explorer's conversation."""

    name = "teacher"

    def __init__(self, teachers: Mapping[str, Teacher]) -> None:
        """`teachers` maps the ids of the questions."""
        self._teachers = teachers

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """The actions in the teachers' replies, which must be within limits."""
        return [self._decision(state) for state in states]

    def _decision(self, state: QuestionState) -> Decision:
        state.messages()
        reply = self._teachers[state.question.id].reply(state)
        decision = state.read(Reply(reply))
        assert decision.error is None and not decision.clamped, f"invalid action: {reply}"
        return decision


class CorrectedPupil(Policy):
    """A pupil's decisions, each of which a teacher corrects.

    `corrections` has, by question id, the teacher's reply in each turn and whether an object was still missing from
    the teacher's notes.
    """

    name = "corrected pupil"

    def __init__(self, pupil: ModelPolicy, teachers: Mapping[str, Teacher]) -> None:
        self.concurrent = pupil.concurrent
        self.corrections: dict[str, list[tuple[str, bool]]] = {question_id: [] for question_id in teachers}
        self._pupil, self._teachers = pupil, teachers

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """The pupil's decisions; its notes replace the teacher's once that has replied."""
        decisions = self._pupil.decide(states)  # first: it may fail, and the turn may be requested again
        for state, decision in zip(states, decisions, strict=True):
            teacher = self._teachers[state.question.id]
            reply = teacher.reply(state)
            self.corrections[state.question.id].append((reply, teacher.missing[-1]))
            teacher.adopt_notes(decision.reply.text, state)
        return decisions

    def forget(self, state: QuestionState) -> None:
        """Release what the pupil has cached for a question."""
        self._pupil.forget(state)

    def close(self) -> None:
        """Close the pupil."""
        self._pupil.close()


def room_episodes(seed: int, index: int) -> Iterator[Episode]:
    """The demonstrations in room `index` of a seed, one per question; deterministic."""
    scene, lessons = _lessons(seed, index)
    journal = _answered(lessons, scene, TeacherPolicy(_teachers(lessons)))
    for lesson in lessons:
        replies = tuple(turn.reply.text for turn in lesson.state.turns)
        yield _episode(lesson, journal, replies, lesson.state.answer, lesson.teacher.missing)


def pupil_episodes(seed: int, index: int, pupil: Backend) -> Iterator[Episode]:
    """The same questions, answered by a pupil up to a turn (half of the time the last) in which the teacher replies.

    Teaches how to continue from imperfect notes: DAgger, Ross et al., "A Reduction of Imitation Learning and Structured
    Prediction to No-Regret Online Learning", 2011.
    """
    scene, lessons = _lessons(seed, index)
    lessons = [lesson for lesson in lessons if not lesson.teacher.blind]
    for lesson in lessons:
        lesson.teacher.overlooked = frozenset()  # the pupil overlooks enough
    policy = CorrectedPupil(ModelPolicy(pupil, prompts=explorer_prompts()), _teachers(lessons))
    journal = _answered(lessons, scene, policy)
    rng = np.random.default_rng([seed, index, 2])
    for lesson in lessons:
        question, corrections = lesson.state.question, policy.corrections[lesson.state.question.id]
        last = len(corrections) - 1
        turn = last if rng.random() < LAST_SHARE else int(rng.integers(last + 1))
        correction, is_missing = corrections[turn]
        replies = (*(each.reply.text for each in lesson.state.turns[:turn]), correction)
        answer = parse_action(correction, question).action.answer
        yield _episode(lesson, journal, replies, answer, [*lesson.teacher.missing[:turn], is_missing], by_pupil=True)


def _answered(lessons: Sequence[Lesson], scene: Scene, policy: Policy) -> MemoryJournal:
    """Let a policy answer the questions; blind teachers' questions show blank views."""
    journal, starts = MemoryJournal(), {lesson.state.question.id: lesson.start for lesson in lessons}
    for renderer, blind in ((RaycastRenderer(), False), (BlindRenderer(), True)):
        states = [lesson.state for lesson in lessons if lesson.teacher.blind == blind]
        if states:
            library = OneSceneLibrary(scene, starts, renderer, CAMERA)
            answer_in_one_batch(states, library, policy, journal)
    for row in journal.rows:
        if row.failed:
            raise RuntimeError(f"question {row.id} in {scene.name} failed ({row.failed_part}): {row.error}")
    return journal


def _teachers(lessons: Sequence[Lesson]) -> dict[str, Teacher]:
    return {lesson.state.question.id: lesson.teacher for lesson in lessons}


def _lessons(seed: int, index: int) -> tuple[Scene, list[Lesson]]:
    """A room's scene and its questions, each with a separate teacher."""
    room = make_room(seed, index)
    scene = make_scene(room.name, Geometry(room.mesh.vertices, room.mesh.faces, room.mesh.colours))
    assert np.array_equal(scene.surface.faces, room.mesh.faces), "objects in view are identified by the mesh's faces"
    rng = np.random.default_rng([seed, index, 1])
    first = draw_first_view(scene, RaycastRenderer(), CAMERA)
    places = standing_points(room.plan, [thing.box for thing in room.objects])
    lessons = []
    for number, row in enumerate(room_questions(room, (seed, index), QUESTIONS_A_ROOM), start=1):
        question = _question(row)
        is_blind = bool(rng.random() < BLIND_SHARE)
        steps = int(rng.integers(NUM_STEPS)) if rng.random() < HURRIED_SHARE else NUM_STEPS
        start = _start(first, places, rng)
        names = sorted(asked(question).names)
        overlooks = bool(names) and family_of(question) != "counting" and rng.random() < OVERLOOKED_SHARE
        overlooked = {str(rng.choice(names))} if overlooks else set()
        walk_turns = int(rng.integers(VIEWS_AROUND)) if rng.random() < FIXED_WALK_SHARE else None
        teacher = Teacher(room, is_blind, overlooked, walk_turns)
        state = QuestionState(number, question, steps, rules=Rules(explorer_prompts()))
        lessons.append(Lesson(state, start, teacher))
    return scene, lessons


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
    lesson: Lesson,
    journal: MemoryJournal,
    replies: tuple[str, ...],
    answer: str | None,
    missing: Sequence[bool],
    by_pupil: bool = False,
) -> Episode:
    """The conversation, truncated to as many turns as there are replies."""
    state, teacher, turns = lesson.state, lesson.teacher, len(replies)
    messages = [message["text"] for message in journal.conversation_of(state.episode)]
    images = np.stack([seen.view for seen in journal.turns_of(state.episode)[:turns]])
    patches = (turns, images.shape[1] // PATCH_PX, images.shape[2] // PATCH_PX)
    return Episode(
        state.question.question_type,
        state.question.ground_truth or "",
        answer,
        teacher.blind,
        by_pupil,
        messages[0],
        tuple(messages[1::2][:turns]),
        replies,
        tuple(turn.move is not None and (turn.move.blocked or turn.move.clipped) for turn in state.turns[:turns]),
        tuple(missing),
        turns - 1 == state.steps,
        images,
        np.zeros(patches, dtype=np.uint8) if teacher.blind else np.stack(teacher.shown[:turns]),
    )
