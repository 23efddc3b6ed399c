"""The policy that asks people: each turn waits until the page of its person has a reply."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_urlsafe
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self

from roomscout.agent.actions.space import ActionSpaceError
from roomscout.agent.console import print_to_console
from roomscout.agent.play.facts import parts_of
from roomscout.agent.play.page import PlaySite, can_practise, controls_of, turn_shown
from roomscout.agent.play.texts import Texts, Unreadable, words_of
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.state import QuestionState
from roomscout.base.errors import SettingError
from roomscout.base.shots import Shot
from roomscout.base.web import HOSTS, PortError, own_address, server_on
from roomscout.data.benchmark import Benchmark
from roomscout.data.question import AnswerKindError, Question
from roomscout.models import ModelError, Reply
from roomscout.runs.records import EpisodeId
from roomscout.scoring.agreement import dealt

if TYPE_CHECKING:
    from roomscout.agent.play.practice import PracticeRoom

HUMAN = "human"  # the name of the policy in settings
LONGEST_COMMENT = 2000  # characters
GAP_S = 5.0  # the most seconds that count between two requests of a page in use: one that asks later was closed or idle


@dataclass
class Asked:
    """A turn that waits for a reply."""

    state: QuestionState  # the episode
    turn: dict[str, Any]  # what the page shows, as JSON values
    shots: list[Shot]  # the images that it shows, by their number
    replied: Event = field(default_factory=Event)  # set once there is a reply, or none will come
    outcome: Decision | AnswerKindError | ActionSpaceError | None = None  # what was made of the reply
    seconds: float = 0.0  # for which the page was open and in use
    seen_at: float | None = None  # when the page was last in use, by time.monotonic()

    @classmethod
    def of(cls, state: QuestionState) -> Self:
        """The turn of an episode, with controls if the person decides a move in it."""
        turn, shots = turn_shown(state)
        moves = state.rules.mover is None and not state.is_last_turn
        turn |= controls_of(state) if moves else {"fields": [], "shortcuts": []}
        return cls(state, turn, shots)

    def see(self, in_use: bool = True) -> None:
        """Count the time since the page was last in use, if it still is; a page that is hidden or paused is not."""
        now = time.monotonic()
        if in_use:
            self.seconds += min(now - (self.seen_at or now), GAP_S)
        self.seen_at = now if in_use else None


class HumanPolicy(Policy):
    """Shows each question to the person that it is dealt to, on a page, and reads the replies like a model's. `samples`
    is how many answers each question has, `texts` what people read beside the questions. Thread-safe."""

    concurrent, reads_prompts, is_blinded = True, True, True

    def __init__(
        self, annotators: Sequence[str], host: str, port: int, samples: int, texts: Texts | None = None
    ) -> None:
        self.annotators = tuple(annotators) or ("",)
        self.name = ":".join(filter(None, [HUMAN, "+".join(self.annotators)]))
        self._host = host
        self._port = port
        self._samples = samples
        self._dealt: dict[EpisodeId, str] = {}
        self._links = {token_urlsafe(16): name for name in self.annotators}
        self._texts = texts or words_of("en")
        self._practice: dict[str, Asked] = {}
        self._practised = Counter[str]()
        self._room: PracticeRoom | None = None
        self._left: dict[str, int] = {}
        self._begun: dict[str, list[EpisodeId]] = {name: [] for name in self.annotators}
        self._asked: dict[EpisodeId, Asked] = {}
        self._lock = Lock()
        self._closed = False

    @property
    def needs_link(self) -> bool:
        """Whether a page needs the token of its person: several people may open it."""
        return self.annotators != ("",) or self._host not in HOSTS

    def person(self, token: str) -> str | None:
        """Whose token this is; None if nobody's."""
        return self._links.get(token) if self.needs_link else self.annotators[0]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Serve the page inside this block, and print its addresses; raises SettingError if the port cannot be used."""
        links = self._links if self.needs_link else {}
        try:
            server = server_on(self._port, PlaySite(self, self._texts), self._host, links)
        except PortError as error:
            raise SettingError(str(error), setting="address") from None
        thread = Thread(target=server.serve_forever, args=(0.1,), name="page")
        thread.start()
        try:
            place = f"http://{own_address() if self._host == '0.0.0.0' else self._host}:{server.server_port}/"
            for token, name in self._links.items():  # not logged: the run's log must not contain the token
                address = f"{place}?token={token}" if self.needs_link else place
                print_to_console(f"{f'{name}: o' if name else 'O'}pen {address} in a browser (Ctrl-C ends the session)")
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def deal(self, questions: Sequence[Question], benchmark: Benchmark) -> None:
        """Divide the answers to the questions of the run among the people; see `dealt`."""
        self._dealt = dealt(self.annotators, questions, benchmark, self._samples)

    def lane(self, state: QuestionState) -> tuple[str, int]:
        """The person whose question this is, who answers one while another one is prepared."""
        return self._dealt[state.episode], 2

    def expect(self, states: Sequence[QuestionState]) -> None:
        """Count what each person is going to be asked."""
        left = Counter(self.lane(state)[0] for state in states)
        self._left = {name: left[name] for name in self.annotators}

    def begin(self, state: QuestionState) -> None:
        """Queue a question behind those that its person has."""
        self._begun[self.lane(state)[0]].append(state.episode)

    def forget(self, state: QuestionState) -> None:
        """Go on to the person's next question."""
        name, _ = self.lane(state)
        self._left[name] -= 1
        self._begun[name] = [episode for episode in self._begun[name] if episode != state.episode]

    def close(self) -> None:
        """Stop waiting for people."""
        with self._lock:
            self._closed = True
            for asked in self._asked.values():
                asked.replied.set()

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One decision for each question, when its person has made it; raises ModelError once the policy is closed."""
        return [self._decision(state) for state in states]

    def _decision(self, state: QuestionState) -> Decision:
        asked = Asked.of(state)
        with self._lock:
            self._asked[state.episode] = asked
            if self._closed:
                asked.replied.set()
        asked.replied.wait()
        with self._lock:
            del self._asked[state.episode]
        if isinstance(asked.outcome, Exception):
            raise asked.outcome
        if asked.outcome is None:
            raise ModelError("the session ended before a reply")
        return asked.outcome

    def current(self, name: str) -> tuple[Asked | None, int | None]:
        """The turn that waits for a person's reply, if any, and how many questions are left, None before the start."""
        begun = self._begun[name]
        turn = self._asked.get(begun[0]) if begun else None
        if turn is not None and turn.replied.is_set():
            turn = None
        return turn, self._left.get(name)

    def place(self, name: str) -> tuple[int, int]:
        """Which of a person's questions is asked now, from 1, and how many they have in all."""
        every = Counter(self._dealt.values())[name]
        return every - self._left[name] + 1, every

    def practice(self, name: str, begin: bool = False) -> Asked | None:
        """The turn of a person's practice question; None if there is none. `begin` begins one. Nobody else waits while
        it is made. Raises RenderError."""
        from roomscout.agent.play.practice import PracticeRoom  # which other runs never need

        turn, _ = self.current(name)
        practised = self._practice.get(name)
        if (begin or practised is None) and turn is not None and can_practise(turn.state):
            self._room = self._room or PracticeRoom.seen_as(turn.state.environment.library)
            practised = Asked.of(self._room.episode_like(turn.state, self._texts.words, self._practised[name]))
            with self._lock:
                self._practice[name] = practised
                self._practised[name] += 1
        return practised

    def reply(self, asked: Asked, values: object, answer: object, comment: object = "") -> str | None:
        """Take a reply: a move, or the answer if it is not None, with what the person remarks. Returns why it cannot be
        read, or nothing; None if the turn has a reply. It is written and read as a model's, and the comment is a
        further key of its object. What cannot be read takes no turn."""
        with self._lock:
            if asked.replied.is_set():
                return None
            asked.see()
            try:
                asked.outcome = self._read_reply(asked, values, answer, comment)
            except Unreadable as why:
                return str(why)
            except (AnswerKindError, ActionSpaceError) as error:
                asked.outcome = error
            asked.replied.set()
        return ""

    def practise_turn(self, name: str, asked: Asked) -> None:
        """Go on with the practice question after a reply; one that fails is over. Raises RenderError."""
        state = asked.state
        with self._lock:
            self._practice.pop(name, None)
            if isinstance(asked.outcome, Decision):
                state.take_turn(state.apply_rules(asked.outcome))
                if not state.is_final:
                    self._practice[name] = Asked.of(state)

    def check(self, asked: Asked, values: object, answer: object) -> dict[str, Any]:
        """How a reply is read: the `answer`, or the `parts` of a move and whether it `measures`, or the `error`."""
        try:
            read = self._read_reply(asked, values, answer)
        except Unreadable as why:
            return {"error": str(why)}
        except (AnswerKindError, ActionSpaceError):  # which fails the question once the reply is sent
            return {"answer": answer, "parts": [], "measures": False}
        if answer is not None:
            return {"answer": read.action.answer}
        return {"parts": parts_of(read.action), "measures": bool(read.uses)}

    def _read_reply(self, asked: Asked, values: object, answer: object, comment: object = "") -> Decision:
        """The decision in a reply; raises Unreadable, AnswerKindError or ActionSpaceError."""
        state = asked.state
        texts = self._texts
        done = answer is not None
        keys = state.rules.space.keys
        given = {} if done else values  # an answer is read alone: fields of a move may be half filled in
        if not isinstance(given, dict) or not given.keys() <= keys.keys():
            raise Unreadable(f"values are an object with some of {', '.join(keys)}, or there is an answer")
        if not isinstance(comment, str) or len(comment) > LONGEST_COMMENT:
            raise Unreadable(texts.say("errors.comment"))
        numbers = {name for name, key in keys.items() if key.schema.get("type") == "number"}
        moves = {
            name: texts.number(given[name], name) if name in given and name in numbers else given.get(name, key.still)
            for name, key in keys.items()
        }
        if done or state.is_last_turn:
            answer = texts.answer(answer, state.question)
        remark = {"comment": comment.strip()} if comment.strip() else {}
        text = json.dumps({**moves, "answer": answer, "done": done, **remark}, ensure_ascii=False)
        reply = Reply(text.encode(errors="replace").decode(), seconds=round(asked.seconds, 3))
        decision = state.read(reply)
        if decision.error is not None:  # which is in the words of models
            fits = all(
                re.fullmatch(key.schema.get("pattern", "(?s).*"), str(moves[name])) for name, key in keys.items()
            )
            why = "move" if fits else "parts"
            raise Unreadable(texts.say(f"errors.{why}"))
        return decision
