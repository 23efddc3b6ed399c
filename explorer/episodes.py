"""Demonstrations: the teacher's conversations in procedural rooms, generated with the code of real runs."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from explorer.notes import VIEWS, VIEWS_AROUND
from explorer.reading import asked, family_of
from explorer.store import Transcript
from explorer.teacher import PATCH_PX, Teacher
from roomscout.agent.loop import turns_of
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.prompts import checkpoint_prompts
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.state import QuestionState, Rules
from roomscout.agent.turns import VIEW_THREADS, Run, run_batched_turn
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.question import with_kind
from roomscout.data.questions import Question
from roomscout.edge.sections import NUM_STEPS, RenderSettings
from roomscout.envs.library import CameraSettings, OneSceneLibrary, draw_first_view
from roomscout.models import EMBEDDED, Reply
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.renderers.raycast import BlindRenderer, RaycastRenderer
from roomscout.rendering.scene import Scene
from roomscout.rendering.views import HEADINGS_DEG, FirstView
from roomscout.rooms import make_room, room_questions
from roomscout.rooms.room import standing_points
from roomscout.runs.journal import MemoryJournal

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
OVERLOOKED_SHARE = 0.3
"""Share of demonstrations in which the teacher overlooks one category of the question until it has walked."""
FIXED_WALK_SHARE = 0.3
"""Share of demonstrations in which the teacher's walk ignores obstacles."""
USUAL_START_SHARE = 0.3
"""Share of demonstrations that start at the usual first view; the others start anywhere a person can stand."""


@dataclass(frozen=True, eq=False)
class Episode(Transcript):
    """A finished conversation with its views."""

    images: np.ndarray  # (turns, H, W, 3) uint8, one per user message
    shown: np.ndarray  # (turns, H / 16, W / 16) uint8: their `categories_by_patch`, all 0 for blind demonstrations


CAMERA = CameraSettings(VIEWS.image_size, VIEWS.focal, RenderSettings.camera_height, RenderSettings.camera_pitch)
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
        decisions = []
        for state in states:
            state.messages()
            reply = self._teachers[state.question.id].reply(state)
            decisions.append(state.read(Reply(reply)))
            assert decisions[-1].error is None and not decisions[-1].clamped, f"invalid action: {reply}"
        return decisions


def room_episodes(seed: int, index: int) -> Iterator[Episode]:
    """The demonstrations in room `index` of a seed, one per question; deterministic."""
    scene, lessons = _lessons(seed, index)
    journal = _answered(lessons, scene)
    for lesson in lessons:
        yield _episode(lesson, journal)


def _answered(lessons: Sequence[Lesson], scene: Scene) -> MemoryJournal:
    """Let the teachers answer the questions; blind ones' questions show blank views."""
    journal = MemoryJournal()
    starts = {lesson.state.question.id: lesson.start for lesson in lessons}
    policy = TeacherPolicy({lesson.state.question.id: lesson.teacher for lesson in lessons})
    for renderer, blind in ((RaycastRenderer(), False), (BlindRenderer(), True)):
        states = [lesson.state for lesson in lessons if lesson.teacher.blind == blind]
        if states:
            library = OneSceneLibrary(scene, starts, renderer, CAMERA)
            turns = 1 + max(state.steps for state in states)
            total = len(journal.rows) + len(states)
            with ThreadPoolExecutor(VIEW_THREADS) as pool:
                run = Run(library, policy, journal, pool)
                with turns_of(run, Scheduler(states, len(states), turns), total, show_progress=False) as due:
                    for batch, shared, guarded in due:
                        with guarded:
                            run_batched_turn(batch, shared)
    for row in journal.rows:
        if row.failed:
            raise RuntimeError(f"question {row.id} in {scene.name} failed ({row.failed_part}): {row.error}")
    return journal


def _lessons(seed: int, index: int) -> tuple[Scene, list[Lesson]]:
    """A room's scene and its questions, each with a separate teacher."""
    room = make_room(seed, index)
    scene = room.scene
    assert np.array_equal(scene.surface.faces, room.mesh.faces), "objects in view are identified by the mesh's faces"
    rng = np.random.default_rng([seed, index, 1])
    first = draw_first_view(scene, RaycastRenderer(), CAMERA)
    places = standing_points(room.plan, [thing.box for thing in room.objects])
    lessons = []
    rules = Rules(prompts=checkpoint_prompts(EMBEDDED))
    for number, row in enumerate(room_questions(room, (seed, index), QUESTIONS_A_ROOM), start=1):
        values = {**row, "id": str(row["id"]), "options": tuple(row["options"] or ())}
        question = with_kind(Question(**values), BENCHMARK)
        is_blind = bool(rng.random() < BLIND_SHARE)
        steps = int(rng.integers(NUM_STEPS)) if rng.random() < HURRIED_SHARE else NUM_STEPS
        start = _start(first, places, rng)
        names = sorted(asked(question).names)
        overlooks = bool(names) and family_of(question) != "counting" and rng.random() < OVERLOOKED_SHARE
        overlooked = {str(rng.choice(names))} if overlooks else set()
        walk_turns = int(rng.integers(VIEWS_AROUND)) if rng.random() < FIXED_WALK_SHARE else None
        teacher = Teacher(room, is_blind, overlooked, walk_turns)
        state = QuestionState(number, question, steps, rules=rules)
        lessons.append(Lesson(state, start, teacher))
    return scene, lessons


def _start(first: FirstView, places: np.ndarray, rng: Generator) -> CameraPose:
    """The pose of the first view, or a random standing point and heading."""
    if len(places) == 0 or rng.random() < USUAL_START_SHARE:
        return first.pose
    x, y = places[rng.integers(len(places))]
    return replace(first.pose, x_m=float(x), y_m=float(y), heading_deg=float(rng.choice(HEADINGS_DEG)))


def _episode(lesson: Lesson, journal: MemoryJournal) -> Episode:
    state = lesson.state
    teacher = lesson.teacher
    turns = len(lesson.state.turns)
    messages = [message["text"] for message in journal.conversation_of(state.episode)]
    images = np.stack([seen.view for seen in journal.turns_of(state.episode)])
    patches = (turns, images.shape[1] // PATCH_PX, images.shape[2] // PATCH_PX)
    return Episode(
        question_type=state.question.question_type,
        ground_truth=state.question.ground_truth or "",
        answer=state.answer,
        blind=teacher.blind,
        system=messages[0],
        user=tuple(messages[1::2]),
        replies=tuple(turn.reply.text for turn in state.turns),
        stopped=tuple(turn.move is not None and (turn.move.blocked or turn.move.clipped) for turn in state.turns),
        missing=tuple(teacher.missing),
        out_of_moves=turns - 1 == state.steps,
        images=images,
        shown=np.zeros(patches, dtype=np.uint8) if teacher.blind else np.stack(teacher.shown),
    )
