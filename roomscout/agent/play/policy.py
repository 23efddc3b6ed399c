"""The policy that asks people: each turn waits until the page of its person has a reply."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_urlsafe
from socket import gethostname
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlencode

from roomscout.agent.actions.space import ActionSpaceError, shown
from roomscout.agent.console import print_to_console
from roomscout.agent.play.page import PlaySite, controls_of, turn_shown
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.state import QuestionState
from roomscout.base.errors import ConfigError
from roomscout.base.shots import Shot
from roomscout.base.web import HOSTS, PortError, server_on
from roomscout.data.question import AnswerKindError
from roomscout.models import ModelError, Reply
from roomscout.runs.records import EpisodeId

HUMAN = "human"
"""What --policy calls it."""
GAP_S = 5.0
"""The most seconds that count between two requests of a page in use: one that asks later was closed or idle."""


@dataclass
class Asked:
    """A turn that waits for a reply. `seconds` are those for which its page was open and in use."""

    state: QuestionState
    turn: dict[str, Any]
    shots: list[Shot]
    replied: Event = field(default_factory=Event)
    outcome: Decision | AnswerKindError | ActionSpaceError | None = None
    seconds: float = 0.0
    seen_at: float | None = None

    def see(self) -> None:
        """Count the time since the page was last in use, now that it is."""
        now = time.monotonic()
        self.seconds += min(now - (self.seen_at or now), GAP_S)
        self.seen_at = now


class HumanPolicy(Policy):
    """Shows each question to the person that it is dealt to, on a page, and reads the replies like a model's. `samples`
    is how many answers each question has. Thread-safe."""

    concurrent, reads_prompts, is_blinded = True, True, True

    def __init__(self, annotators: Sequence[str], host: str, port: int, samples: int) -> None:
        self.annotators = tuple(annotators) or ("",)
        self.name = ":".join(filter(None, [HUMAN, "+".join(self.annotators)]))
        self._host, self._port, self._samples = host, port, samples
        self._left: dict[str, int] = {}
        self._begun: dict[str, list[EpisodeId]] = {name: [] for name in self.annotators}
        self._asked: dict[EpisodeId, Asked] = {}
        self._lock, self._closed = Lock(), False

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve the page inside this block, and print its addresses; raises ConfigError if the port cannot be used."""
        host, token = self._host, "" if self._host in HOSTS else token_urlsafe(16)
        try:
            server = server_on(self._port, PlaySite(self), host, token)
        except PortError as error:
            raise ConfigError(str(error)) from None
        thread = Thread(target=server.serve_forever, args=(0.1,), name="page")
        thread.start()
        try:
            place = gethostname() if host == "0.0.0.0" else host
            for name in self.annotators:  # not logged: the run's log must not contain the token
                query = urlencode([(key, text) for key, text in (("annotator", name), ("token", token)) if text])
                address = f"http://{place}:{server.server_port}/{'?' if query else ''}{query}"
                print_to_console(f"{f'{name}: o' if name else 'O'}pen {address} in a browser (Ctrl-C ends the session)")
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def lane(self, state: QuestionState) -> tuple[str, int]:
        """The person whose question this is, who answers one while another one is prepared."""
        return state.episode.dealt_to(self.annotators, self._samples), 2

    def expect(self, states: Sequence[QuestionState]) -> None:
        """Count what each person is going to be asked."""
        dealt = Counter(self.lane(state)[0] for state in states)
        self._left = {name: dealt[name] for name in self.annotators}

    def begin(self, state: QuestionState) -> None:
        """Queue a question behind those that its person has."""
        self._begun[self.lane(state)[0]].append(state.episode)

    def recall(self, state: QuestionState) -> None:
        """Rebuild the conversation from the recorded turns."""
        state.recall()

    def forget(self, state: QuestionState) -> None:
        """Go on to the person's next question."""
        name, _ = self.lane(state)
        self._left[name] -= 1
        self._begun[name] = [each for each in self._begun[name] if each != state.episode]

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
        asked, moves = Asked(state, *turn_shown(state)), state.rules.mover is None and not state.is_last_turn
        asked.turn |= controls_of(state) if moves else {"fields": [], "shortcuts": []}
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

    def current(self, annotator: str) -> tuple[Asked | None, int | None]:
        """The turn that waits for a person's reply, if any, and how many questions are left, None before the start."""
        asked = next((self._asked.get(each) for each in self._begun[annotator][:1]), None)
        return (None if asked is None or asked.replied.is_set() else asked), self._left.get(annotator)

    def reply(self, asked: Asked, values: dict[str, Any], answer: object) -> str:
        """Take a reply: a move, or the answer if it is not None. Returns why it cannot be read, or nothing. It is
        written as a model would write it, and read in the same way. What cannot be read takes no turn."""
        question, done = asked.state.question, answer is not None
        moves = {name: values.get(name, key.still) for name, key in asked.state.rules.space.keys.items()}
        text = json.dumps({**moves, "answer": answer, "done": done}, ensure_ascii=False)
        with self._lock:
            if asked.replied.is_set():
                return ""
            asked.see()
            try:
                if (done or asked.state.is_last_turn) and question.parse_answer(answer) is None:
                    return question.why_invalid(shown(answer))
                reply = Reply(text.encode(errors="replace").decode(), seconds=round(asked.seconds, 3))
                decision = asked.state.read(reply)
                if decision.error is not None:
                    return decision.error
                asked.outcome = decision
            except (AnswerKindError, ActionSpaceError) as error:
                asked.outcome = error
            asked.replied.set()
        return ""
