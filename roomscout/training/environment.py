"""`RoomEnv`: an episode of evaluation as an environment, for trainers that generate the replies themselves."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict

import numpy as np
from PIL import Image

from roomscout.agent.opening import Opened, open_run
from roomscout.agent.policies import Decision
from roomscout.agent.policies.prompts import MAP_PROBE
from roomscout.agent.policies.replies import read_map
from roomscout.agent.spec import RunSpec
from roomscout.agent.state import QuestionState, Status
from roomscout.agent.turns import failing
from roomscout.base.errors import Refusal
from roomscout.base.shots import PICTURE
from roomscout.base.text import listed
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import Question, Selection, normalized
from roomscout.edge.api import settings_in_python
from roomscout.edge.basis import selected
from roomscout.edge.plan import plan
from roomscout.edge.request import Request
from roomscout.edge.sections import ControlSettings, QuestionSettings, RenderSettings
from roomscout.edge.settings import SETTINGS, Settings, names_in
from roomscout.envs.actions import CameraAction
from roomscout.models import Reply
from roomscout.models import conversation as kept
from roomscout.rendering.scene import SceneError
from roomscout.rendering.views import SurfaceCoverage
from roomscout.runs.records import Turn
from roomscout.training.endless import EndlessRooms, EndlessTwins

TAKEN = (
    {name for section in (QuestionSettings, RenderSettings, ControlSettings) for name in names_in(section)}
    - {"questions", "samples", "anytime", "probe", "keep_views", "videos", "frames"}
    | {"model", "prompts", "steps", "device", "seed"}
)  # fmt: skip
"""The settings of `explore` that decide what an episode is; the others are about who replies, and how runs are kept."""
ENDLESS_ROOMS = {"rooms": EndlessRooms, "rooms-twins": EndlessTwins}  # by the benchmark whose rooms are alike
CHOOSE = ("scenes", "ids", "num_questions")  # settings that choose among given questions


class EnvError(Refusal, ValueError):
    """An environment cannot be made or used like this; the message says why."""


@dataclass(frozen=True)
class Message:
    """A message of the conversation."""

    role: str  # "system", "user" or "assistant"
    text: str
    images: tuple[Image.Image, ...] = ()  # they come before the text
    pictures: int = 0  # the number of images, the first ones, that are pictures of the question

    @classmethod
    def of(cls, message: kept.Message) -> Self:
        """A message of a conversation; its images are RGB."""
        pictures = sum(shot.name.startswith(PICTURE) for shot in message.shots)
        return cls(message.role, message.text, tuple(Image.fromarray(shot.image) for shot in message.shots), pictures)

    @property
    def content(self) -> list[dict[str, Any]]:
        """The message as blocks: {"type": "image", "image": ...} for each image, then {"type": "text", "text": ...}."""
        return [*({"type": "image", "image": image} for image in self.images), {"type": "text", "text": self.text}]


class Step(NamedTuple):
    """What a reply led to. `info` has the parts of the reward ("rewards"), the turn that was taken ("turn"), "question"
    (its id), "status", "answer", "score" (official, 0 to 1, None before the end), "error" (why the reply could not be
    read), and "failed" (why a view could not be drawn, which ends the episode without a score)."""

    messages: list[Message]  # what follows in the conversation: one user message, none once the episode has ended
    reward: float  # the sum of its named parts
    ended: bool
    info: dict[str, Any]


class Rewards(TypedDict, total=False):
    """The weights of what an episode's reward has beside its official score; none by default."""

    turn_cost: float  # subtracted for each turn
    unreadable_cost: float  # subtracted for each reply that cannot be read
    coverage: float  # times the share of surface newly shown
    progress: float  # times how much nearer the camera has come to a pose that is the truth; see `_nearer`
    map: float  # times the F1 of the map beside a reply: of what it has and of what was seen so far, those right
    answer_format: float  # added once for a readable answer


def weights_of(parts: Mapping[str, float]) -> dict[str, float]:
    """The weights that are not 0, in the order of `Rewards`; raises EnvError for other parts, and for no number."""
    names = Rewards.__annotations__
    for name, value in parts.items():
        if name not in names:
            raise EnvError(f"there is no reward part {name}: the parts are {', '.join(names)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise EnvError(f"the reward part {name} takes a number, got {value!r}")
    return {name: parts[name] for name in names if parts.get(name)}


def _require_reply(reply: object, who: str) -> None:
    """Raise EnvError unless a reply is text or a Reply; `who` takes it."""
    if not isinstance(reply, str | Reply):
        raise EnvError(f"{who} takes the text of a reply, got {reply!r} ({type(reply).__name__})")


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass
class World:
    """What all episodes of an environment share: the spec of a run, and what it has opened, until nobody uses it."""

    spec: RunSpec
    opened: Opened
    users: int = 0
    drawn: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def questions(self) -> Sequence[Question]:
        """The questions, none of endless ones."""
        return self.spec.questions.asked.questions

    @property
    def rooms(self) -> EndlessRooms | None:
        """The endless rooms, if the questions are about those."""
        library = self.opened.library
        return library if isinstance(library, EndlessRooms) else None

    @classmethod
    def of(cls, questions: Any, endless: bool, settings: Mapping[str, Any]) -> Self:
        """Open what a run about these questions would open, but for its model; raises what `RoomEnv` raises."""
        chosen, selection = _asked(questions, endless, settings)
        _require_scored(selection.questions)
        rooms = ENDLESS_ROOMS.get(chosen.benchmark, EndlessRooms)
        library = partial(rooms, chosen.datasets, chosen.question_types) if endless else None
        spec = plan(chosen, request=Request(selection, caller_replies=True, make_library=library))
        return cls(spec, open_run(spec))

    def draw(self, seed: int | None) -> int:
        """The number of a question drawn with this seed, or the next of a fixed random series."""
        if seed is not None and not (is_whole(seed) and seed >= 0):
            raise EnvError(f"seed takes a whole number from 0, got {seed!r}")
        if self.rooms is not None:
            return int(self.drawn.integers(2**31)) if seed is None else int(seed)
        generator = self.drawn if seed is None else np.random.default_rng(seed)
        return int(generator.integers(len(self.questions)))

    def question(self, which: Question | str | int) -> Question:
        """A question by id or number, from 0: its position, or a seed in endless rooms; raises EnvError."""
        question = self.known(which)
        if isinstance(question, Question):
            return question
        assert self.rooms is not None, "only questions of endless rooms are made when they are asked"
        return self.rooms.question(question)

    def known(self, which: Question | str | int) -> Question | int:
        """The question, or its number in endless rooms, of which none is made; raises EnvError."""
        if isinstance(which, Question):
            (question,) = normalized([which], self.spec.questions.benchmark)
            _require_scored([question])
            return question
        if isinstance(which, str):
            chosen = next((question for question in self.questions if question.id == which), None)
        elif not is_whole(which):
            raise EnvError(f"a question is a Question, an id or a number, got {which!r}")
        elif self.rooms is not None and which >= 0:
            return which
        else:
            chosen = self.questions[which] if 0 <= which < len(self.questions) else None
        if chosen is None:
            raise EnvError(f"the environment has no question {which!r}: it has {len(self.questions)} questions")
        return chosen


class RoomEnv:
    """Episodes of evaluation, one at a time: the same messages, replies, moves and score as in a run.

    `questions` is a question file or a list of Question objects; without it, the questions are those of `benchmark`,
    and with `endless` those about procedural rooms without end, made from a series of seeds of their own, of the
    levels `datasets` and the types `question_types`; with the `benchmark` "rooms-twins", questions 2n and 2n + 1 are
    twins. `settings` have the names that `explore` takes and decide what an episode is: views, controls, actions,
    steps. With `model`, prompts and views are those of its checkpoint, of which no weights are loaded; without it, the
    default ones. `rewards` are parts of `Rewards`, by name.

    Raises EnvError, ConfigError, QuestionError, ScanNotFound, RenderError or ModelError if it cannot be made.
    """

    def __init__(
        self,
        questions: str | Path | Iterable[Question] | None = None,
        *,
        endless: bool = False,
        rewards: Mapping[str, float] | None = None,
        world: World | None = None,
        **settings: Any,
    ) -> None:
        self.rewards = weights_of(rewards or {})
        self._world = world or World.of(questions, endless, settings)
        self._world.users += 1
        self._state: QuestionState | None = None
        self._given = 0
        self._closed = False
        self._coverage: SurfaceCoverage | None = None
        self._away, self._nearness = (0.0, 0.0), 0.0

    def another(self) -> "RoomEnv":
        """An environment for a further episode at the same time; it shares scans in memory and the renderer."""
        return RoomEnv(rewards=self.rewards, world=self._world)

    @property
    def questions(self) -> Sequence[Question]:
        """The questions that `reset` draws from; empty if they are endless."""
        return self._world.questions

    @property
    def state(self) -> QuestionState:
        """The episode; raises EnvError before the first `reset`."""
        if self._state is None:
            raise EnvError("there is no episode yet: call reset")
        return self._state

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, with the replies."""
        return [Message.of(message) for message in self.state.conversation.messages]

    @property
    def map_messages(self) -> list[Message]:
        """The conversation with the words that ask for a map below its last message; it is not kept. Raises EnvError
        after the end, and without the reward part map."""
        self._require_going_on()
        if not self.state.rules.probe:
            raise EnvError("map_messages are for the reward part map: make the environment with rewards={'map': 1}")
        return [Message.of(message) for message in self.state.messages_with_probe().messages]

    def draw(self, seed: int | None = None) -> Question:
        """The question that `reset` would begin with; without a `seed`, the next of a fixed random series."""
        return self._world.question(self._world.draw(seed))

    def reset(self, question: Question | str | int | None = None, seed: int | None = None) -> list[Message]:
        """Begin an episode, and return its first messages: the system's and the user's. `question` is a Question, an
        id, or a number: a position in `questions`, or the seed of an endless room; else, drawn with `seed`. Raises
        EnvError, QuestionError, ScanNotFound, SceneError or RenderError."""
        if self._closed:
            raise EnvError("the environment is closed: make another")
        world = self._world
        which = world.draw(seed) if question is None else question
        asking = world.question(which)
        self._forget()
        rules = world.spec.rules
        most = world.spec.schedule.steps
        steps = most if rules.mover is None else rules.mover.moves(asking, 1, most)
        if "map" in self.rewards:
            rules = replace(rules, probe=MAP_PROBE)
        state = QuestionState(1, asking, steps, rules=rules)
        state.reset(world.opened.library)
        if "map" in self.rewards and not state.boxes:
            raise SceneError(f"the reward part map needs the boxes of objects: {state.without_boxes}")
        self._state, self._given, self._coverage = state, 0, None
        if "progress" in self.rewards:
            self._away = self._apart()
            self._nearness = 0.0
            self._nearer()  # a start that has one of both
        if "coverage" in self.rewards:
            self._coverage = SurfaceCoverage(state.environment.scene)
            self._new_surface()
        self._move_unasked()
        return self._new_messages()

    def step(self, reply: str | Reply, map_reply: str | Reply | None = None) -> Step:
        """Take a turn with a reply, its text or a Reply; raises EnvError after the end or for anything else.
        `map_reply` is what was replied to `map_messages`, which the reward part map needs."""
        self.require_can_take(reply)
        if "map" in self.rewards:
            _require_reply(map_reply, "map_reply, with the reward part map,")
        state, turn = self.state, None
        said = Reply(reply) if isinstance(reply, str) else reply
        mapped = Reply(map_reply) if isinstance(map_reply, str) else map_reply
        with failing(state):
            belief = None if mapped is None else state.scored(read_map(mapped))
            turn = state.take_turn(state.apply_rules(state.read(said)), belief=belief)
            self._move_unasked()
        error = None if turn is None else turn.parse_error
        rewards = self._rewarded(error, turn)
        info = {
            "question": state.question.id,
            "status": str(state.status),
            "turn": turn,
            "answer": state.answer,
            "score": state.score() if state.is_final and state.error is None else None,
            "error": error,
            "failed": state.error,
            "rewards": rewards,
        }
        messages = [] if state.is_final else self._new_messages()
        return Step(messages, sum(rewards.values()), state.is_final, info)

    def require_can_take(self, reply: object) -> None:
        """Raise EnvError unless `step` could take this reply now."""
        self._require_going_on()
        _require_reply(reply, "step")

    def _require_going_on(self) -> None:
        state = self.state
        if state.is_final:
            raise EnvError(f"the episode of question {state.question.id} is over ({state.status}): call reset")

    def close(self) -> None:
        """End the episode; the last environment that shares a renderer ends that too. Can be called twice."""
        if not self._closed:
            self._closed = True
            self._forget()
            self._world.users -= 1
            if not self._world.users:
                self._world.opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _forget(self) -> None:
        if self._state is not None:
            self._state.close()
        self._state = None

    def _move_unasked(self) -> None:
        """Take the turns in which a mover moves and nobody is asked, as with present="once"."""
        while not self.state.is_final and not self.state.asks:
            self.state.take_turn(self.state.apply_rules(Decision(CameraAction())))

    def _new_messages(self) -> list[Message]:
        messages = self.state.messages().messages
        new = messages[self._given :]
        self._given = len(messages)
        return [Message.of(message) for message in new if message.role != "assistant"]

    def _rewarded(self, error: str | None, turn: Turn | None) -> dict[str, float]:
        state = self.state
        belief = None if turn is None else turn.belief
        answered = state.status is Status.ANSWERED
        amounts = {
            "turn_cost": -1.0,
            "unreadable_cost": 0.0 if error is None else -1.0,
            "coverage": self._new_surface() if "coverage" in self.rewards else 0.0,
            "progress": self._nearer() if "progress" in self.rewards else 0.0,
            "map": 0.0 if belief is None else belief.f1,
            "answer_format": float(answered),
        }
        parts = {name: weight * amounts[name] for name, weight in self.rewards.items()}
        return {"score": (state.score() or 0.0) if answered else 0.0, **parts}

    def _apart(self) -> tuple[float, float]:
        """Metres and degrees between the camera and the pose that is the truth; 0 if that is none."""
        state = self.state
        question = self.state.question
        if not question.kind.judges_camera:
            return 0.0, 0.0
        scores = question.more_scores(state.as_scored("here", state.observations[-1].pose))
        return scores["distance_m"], scores["angle_deg"]

    def _nearer(self) -> float:
        """How much nearer the camera is than at the last call, from 0 to 1 at the truth: half metres, half degrees."""
        shares = [min(1.0, now / max(start, 1e-6)) for now, start in zip(self._apart(), self._away, strict=True)]
        before = self._nearness
        self._nearness = 1 - sum(shares) / 2 if any(self._away) else 0.0
        return self._nearness - before

    def _new_surface(self) -> float:
        """The share of the scan's surface that the views since the last call showed for the first time."""
        assert self._coverage is not None
        before = self._coverage.share
        for observation in self.state.observations[-1 if not self.state.rules.at_once else 0 :]:
            self._coverage.add(observation.pose, observation.camera)
        return self._coverage.share - before


def _asked(questions: Any, endless: bool, settings: Mapping[str, Any]) -> tuple[Settings, Selection]:
    """The settings and the questions of an environment, none of endless ones; raises EnvError or ConfigError."""
    if settings.get("keep_views") is not None:
        raise EnvError("keep_views changes messages that step has returned and trainers have appended: leave it out")
    refused = [name for name in settings if name in SETTINGS.keys() - TAKEN]
    if refused:
        raise EnvError(f"{refused[0]} has no effect on an episode, which ends before a run would use it: leave it out")
    if endless:
        chosen = [name for name in CHOOSE if name in settings] + (["questions"] if questions is not None else [])
        if chosen:
            raise EnvError(f"{chosen[0]} chooses among questions, and endless rooms have new ones: leave it out")
        named = settings.get("benchmark", "rooms")
        if named not in ENDLESS_ROOMS:
            raise EnvError(f"endless rooms are of the benchmarks {listed(ENDLESS_ROOMS)}, not {named}: leave it out")
        return settings_in_python({}, {**settings, "benchmark": named}), Selection.all_of([])
    file = {"questions": questions} if isinstance(questions, str | Path) else {}
    resolved = settings_in_python(file, settings)
    benchmark = find_benchmark(resolved.benchmark)
    if questions is None or file:
        return resolved, selected(resolved, benchmark)
    return resolved, Selection.all_of(normalized(questions, benchmark))


def _require_scored(questions: Iterable[Question]) -> None:
    """Raise EnvError for a question whose answers have no score at once."""
    for question in questions:
        if question.kind.needs_judge:
            raise EnvError(f"question {question.id} needs a judge to mark its answers: there is no reward for it")
        if question.ground_truth is None:
            raise EnvError(f"question {question.id} has no ground truth: there is no reward for it")
