"""A practice question for people: an episode about a made room, which no benchmark asks about and no run records."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from roomscout.agent.state import QuestionState
from roomscout.data.answers import Number
from roomscout.data.question import Question
from roomscout.envs.library import OneSceneLibrary, SceneLibrary
from roomscout.rendering.views import first_view
from roomscout.rooms import Room, make_room
from roomscout.rooms.room import LEVELS

SEED = 1_999_999  # a seed that no split and no training has
LEVEL = "furnished"
NAME = "practice"


@dataclass(frozen=True)
class PracticeRoom:
    """The made room, seen by a camera of the run."""

    room: Room
    library: OneSceneLibrary

    @classmethod
    def seen_as(cls, library: SceneLibrary) -> Self:
        """The room for the camera and the renderer of another library."""
        room = make_room(SEED, 0, level=LEVELS[LEVEL])
        camera = library.camera
        start = first_view(room.scene, library.renderer, camera.intrinsics, camera.height_m, camera.pitch_deg).pose
        return cls(room, OneSceneLibrary(room.scene, {NAME: start}, library.renderer, camera))

    def episode_like(self, state: QuestionState, words: Mapping[str, Any], practised: int) -> QuestionState:
        """A new episode in the room under the rules of `state`, at its first view, for a person who has `practised` so
        often; its truth is a count, and its type the category of what is counted. Raises RenderError."""
        category = _category(state.question, words, practised)
        text = words["practice"]["objects"][category]["question"]
        count = str(len(self.room.of_category(category)))
        question = Question(NAME, NAME, self.room.name, category, text, ground_truth=count, kind=Number("objects"))
        practice = QuestionState(practised, question, state.steps, rules=replace(state.rules, min_turns=0))
        practice.reset(self.library)
        return practice


def _category(question: Question, words: Mapping[str, Any], practised: int) -> str:
    """What to ask about before a question of the run: one of the categories that this does not name, in turn."""
    asked = " ".join((question.question, *question.options)).lower()
    objects = words["practice"]["objects"]
    others = [
        category
        for category, texts in objects.items()
        if not any(noun.lower() in asked for noun in (category, *texts["nouns"]))
    ]
    categories = others or list(objects)
    return categories[practised % len(categories)]
