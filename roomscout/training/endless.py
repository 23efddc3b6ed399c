"""Procedural rooms without end: each question is about a room that is made when it is asked about."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from roomscout import UpAxis
from roomscout.agent.spec import WorldSpec
from roomscout.data.answers import kind_named
from roomscout.data.boxes import ObjectBox, SceneBoxes
from roomscout.data.pictures import Picture
from roomscout.data.question import UNDECLARED, with_kind
from roomscout.data.questions import Question, QuestionError
from roomscout.data.scan_frames import Start
from roomscout.envs.library import SceneLibrary, draw_first_view, draw_start
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.renderers import Renderer
from roomscout.rendering.scene import Scene, make_scene, upright
from roomscout.rendering.views import FirstView
from roomscout.rooms import QUESTIONS_PER_TYPE, Room, make_room, room_questions
from roomscout.rooms.benchmark import BENCHMARK
from roomscout.rooms.questions import ASKED_PER_TYPE
from roomscout.rooms.room import FURNISHED, LEVELS, SEEDS_END
from roomscout.rooms.split import numbers_of
from roomscout.rooms.twins import MEMBERS, Twins, make_twins
from roomscout.rooms.twins_benchmark import BENCHMARK as TWINS
from roomscout.rooms.view_finding import VIEW_FINDING, view_finding, write_picture
from roomscout.rooms.writer import room_record

TYPES = (*ASKED_PER_TYPE, VIEW_FINDING.name)
ENDLESS = 7_000_000
"""The seed of the first room; the splits that the explorer was trained on and all benchmarks have smaller ones."""
ROOMS_KEPT = 64  # the most rooms in memory that no episode uses; a room takes 2 to 6 MB
PICTURES_KEPT = 512  # the most pictures of questions on disk, of some 250 kB each
ROOMS_IN_QUESTION = 16  # the most rooms kept from the making of their question to the begin of its episode
ATTEMPTS = 32  # rooms made in turn until one has a question of the types that are asked for
END = SEEDS_END - ENDLESS  # the first number of which there is no question


class EndlessRooms(SceneLibrary):
    """A library of scenes (see `SceneLibrary`), and the question about each whole number from 0, always the same; of
    all types and the furnished level by default. Raises QuestionError for others."""

    types: ClassVar[tuple[str, ...]] = TYPES  # that it can ask

    def __init__(self, levels: Sequence[str], types: Sequence[str], world: WorldSpec, renderer: Renderer) -> None:
        self.renderer = renderer
        self.camera = world.camera
        self.cache_bytes = 0.0
        self._up: UpAxis = "z" if world.up_axis == "auto" else world.up_axis
        self._scale = world.scale
        self._levels = list(levels) or [FURNISHED.name]
        self._types = list(types) or list(QUESTIONS_PER_TYPE)
        self._pictures = TemporaryDirectory(prefix="endless_rooms_")
        self._drawn = deque[Path]()
        for what, names, possible in (("level", self._levels, LEVELS), ("type", self._types, self.types)):
            unknown = [name for name in names if name not in possible]
            if unknown:
                raise QuestionError(f"there are no endless rooms of the {what} {unknown[0]}: use {', '.join(possible)}")
        self._places = lru_cache(ROOMS_KEPT)(self._made)
        self._known = lru_cache(ROOMS_KEPT)(self._question)
        self._making = [Lock() for _ in range(ROOMS_KEPT)]  # so that several threads make a room or question once

    def question(self, number: int) -> Question:
        """The question of this number; raises QuestionError from END on."""
        if number >= END:
            raise QuestionError(f"endless rooms have numbers below {END}, not {number}")
        with self._making[number % ROOMS_KEPT]:
            question = self._known(number)
            is_whole = all(Path(picture.file).exists() for picture in question.images)
            return question if is_whole else self._question(number)

    def _question(self, number: int) -> Question:
        rng = np.random.default_rng([ENDLESS, number])
        level = self._levels[int(rng.integers(len(self._levels)))]
        for index in range(ATTEMPTS):
            room = _room(level, ENDLESS + number, index)
            one_each = {name: 1 for name in self._types if name != VIEW_FINDING.name}
            rows = room_questions(room, (ENDLESS + number, index), one_each)
            if VIEW_FINDING.name in self._types and rng.random() * (len(rows) + 1) < 1:
                with suppress(ValueError):  # a room without a view to find
                    rows = [self._view_to_find(room, (ENDLESS + number, index))]
            if rows:
                row = rows[int(rng.integers(len(rows)))]
                row |= {"id": f"{level}-{number}", "dataset": level, "options": tuple(row["options"] or ())}
                own = "answer_kind" in row
                kind = kind_named(row.pop("answer_kind"), row.pop("unit", "")) if own else UNDECLARED
                return with_kind(Question(**row, kind=kind), BENCHMARK)
        raise QuestionError(f"{ATTEMPTS} {level} rooms have no question of the types {', '.join(self._types)}")

    def _view_to_find(self, room: Room, seed: tuple[int, int]) -> dict[str, Any]:
        """A question with its picture, of which only the latest are kept as files."""
        scene = room.scene
        row = view_finding(room, scene, seed)
        file = Path(self._pictures.name) / f"{room.name}.png"
        write_picture(scene, row, file)
        self._drawn.append(file)
        if len(self._drawn) > PICTURES_KEPT:
            self._drawn.popleft().unlink(missing_ok=True)
        return row | {"images": (Picture(str(file)),), "start": Start.read(row["start"])}

    def scene_of(self, question: Question) -> Scene:
        """The room that the question is about."""
        scene, _ = self._place(question)
        return scene

    def first_view(self, question: Question) -> FirstView:
        """The first view of the question's room, or from its start; raises RenderError."""
        scene, first = self._place(question)
        start = question.start
        return first if start is None else draw_start(scene, start, self.renderer, self.camera)

    def boxes_of(self, question: Question) -> tuple[ObjectBox, ...]:
        """The boxes of the objects in the question's room."""
        return SceneBoxes.from_json(room_record(self._room_of(question.dataset, question.scene_name))).objects

    def _room_of(self, level: str, name: str) -> Room:
        return _room(level, *numbers_of(name))

    def _place(self, question: Question) -> tuple[Scene, FirstView]:
        """The question's room in memory, and its first view."""
        with self._making[hash(question.scene_name) % ROOMS_KEPT]:
            return self._places(question.dataset, question.scene_name)

    def _made(self, level: str, name: str) -> tuple[Scene, FirstView]:
        mesh = self._room_of(level, name).mesh
        geometry = Geometry(mesh.vertices, mesh.faces, mesh.colours)
        scene = make_scene(name, upright(geometry, self._up, self._scale))  # as if it were a scan file
        return scene, draw_first_view(scene, self.renderer, self.camera)


@lru_cache(ROOMS_IN_QUESTION)
def _room(level: str, seed: int, index: int) -> Room:
    """A room, made once for its question and the scene that the question is then asked in."""
    return make_room(seed, index, LEVELS[level].style, LEVELS[level])


class EndlessTwins(EndlessRooms):
    """Twins in place of single rooms: the questions 2n and 2n + 1 are the same about two rooms that differ in one
    edit."""

    types = tuple(QUESTIONS_PER_TYPE)

    def _question(self, number: int) -> Question:
        pair, member = divmod(number, 2)
        level, twins = self._twins(pair)
        row = twins.rows[member] | {"id": f"{pair}{MEMBERS[member]}", "dataset": level}
        row.pop("edit")
        return with_kind(Question(**row | {"options": tuple(row["options"] or ())}, kind=UNDECLARED), TWINS)

    def _room_of(self, level: str, name: str) -> Room:
        seed, _ = numbers_of(name[:-1])
        _, twins = self._twins(seed - ENDLESS)
        return twins.rooms[MEMBERS.index(name[-1])]

    def _twins(self, pair: int) -> tuple[str, Twins]:
        rng = np.random.default_rng([ENDLESS, pair])
        level = self._levels[int(rng.integers(len(self._levels)))]
        question_type = self._types[int(rng.integers(len(self._types)))]
        return level, _made_twins(ENDLESS + pair, question_type, level)


@lru_cache(ROOMS_IN_QUESTION)
def _made_twins(seed: int, question_type: str, level: str) -> Twins:
    """Two rooms, made once for their questions and the scenes that these are then asked in."""
    try:
        return make_twins(seed, 0, question_type, LEVELS[level])
    except ValueError as error:
        raise QuestionError(str(error)) from None
