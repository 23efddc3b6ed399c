"""A practice question for people: an episode about a made room, which no benchmark asks about and no run records."""

from dataclasses import fields, replace

from roomscout.agent.state import QuestionState
from roomscout.data.question import Question, with_kind
from roomscout.envs.library import OneSceneLibrary
from roomscout.rendering.views import first_view
from roomscout.rooms import QUESTIONS_PER_TYPE, make_room, room_questions
from roomscout.rooms.benchmark import BENCHMARK
from roomscout.rooms.room import LEVELS

SEED = 1_999_999  # a seed that no split and no training has
LEVEL = "furnished"
TYPE = next(iter(QUESTIONS_PER_TYPE))


def practice_like(state: QuestionState) -> QuestionState:
    """An episode under the rules and with the camera of `state`, at its first view; raises RenderError."""
    room = make_room(SEED, 0, level=LEVELS[LEVEL])
    (row,) = room_questions(room, SEED, {TYPE: 1})
    names = {field.name for field in fields(Question)}
    values = {name: value for name, value in row.items() if name in names} | {"id": "practice", "options": ()}
    question = with_kind(Question(**values), BENCHMARK)
    scene = room.scene
    library = state.environment.library
    camera = library.camera
    start = first_view(scene, library.renderer, camera.intrinsics, camera.height_m, camera.pitch_deg).pose
    practice = QuestionState(0, question, state.steps, rules=replace(state.rules, min_turns=0))
    practice.reset(OneSceneLibrary(scene, {question.id: start}, library.renderer, camera))
    return practice
