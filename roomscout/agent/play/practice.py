"""A practice question for people: an episode about a made room, which no benchmark asks about and no run records."""

from dataclasses import fields, replace
from threading import Lock

from roomscout.agent.state import QuestionState
from roomscout.data.question import Question, with_kind
from roomscout.envs.library import OneSceneLibrary, SceneLibrary
from roomscout.rendering.views import first_view
from roomscout.rooms import QUESTIONS_PER_TYPE, make_room, room_questions
from roomscout.rooms.benchmark import BENCHMARK
from roomscout.rooms.room import LEVELS

SEED = 1_999_999  # a seed that no split and no training has
LEVEL = "furnished"
TYPE = next(iter(QUESTIONS_PER_TYPE))


class PracticeRoom:
    """The made room, for the camera of the first episode that wants it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: tuple[Question, OneSceneLibrary] | None = None

    def episode_like(self, state: QuestionState) -> QuestionState:
        """A new episode in the room under the rules of `state`, at its first view; raises RenderError."""
        with self._lock:
            if self._made is None:
                self._made = _made_for(state.environment.library)
            question, library = self._made
        practice = QuestionState(0, question, state.steps, rules=replace(state.rules, min_turns=0))
        practice.reset(library)
        return practice


def _made_for(library: SceneLibrary) -> tuple[Question, OneSceneLibrary]:
    room = make_room(SEED, 0, level=LEVELS[LEVEL])
    (row,) = room_questions(room, SEED, {TYPE: 1})
    names = {field.name for field in fields(Question)}
    values = {name: value for name, value in row.items() if name in names} | {"id": "practice", "options": ()}
    question = with_kind(Question(**values), BENCHMARK)
    scene = room.scene
    camera = library.camera
    start = first_view(scene, library.renderer, camera.intrinsics, camera.height_m, camera.pitch_deg).pose
    return question, OneSceneLibrary(scene, {question.id: start}, library.renderer, camera)
