"""The policy that asks a model: prompts, a backend and the reply parser."""

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Self

from roomscout.agent.config import ControlSettings
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.prompts import (
    Prompts,
    checkpoint_prompts,
    message_of_all_turns,
    system_message,
    turn_message,
)
from roomscout.agent.policies.replies import action_format, parse_action, without_translation
from roomscout.agent.policies.thoughts import outside_thoughts
from roomscout.agent.state import QuestionState
from roomscout.base.wording import named
from roomscout.data.benchmarks import Benchmark
from roomscout.models import Backend, Reply, ReplyFormat
from roomscout.models.conversation import Conversation

log = logging.getLogger(__name__)


class ModelPolicy(Policy):
    """Sends each question's view to a model in the words of `prompts`, and parses the reply as an action.

    By default, `prompts` are those of the backend's checkpoint folder, if it has any. With `at_once`, the model sees
    all views in one message: `decide` is called in the last turn only.
    """

    def __init__(
        self,
        backend: Backend,
        reply_format: ReplyFormat | None = None,
        prompts: Prompts | None = None,
        at_once: bool = False,
    ) -> None:
        self.name = backend.name
        self.concurrent = backend.concurrent
        self.backend = backend
        self.prompts = prompts or checkpoint_prompts(backend.name)
        self._format = reply_format or action_format()
        self._at_once = at_once
        self._warned = False

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One decision per question from one `generate()` call."""
        for state in states:
            (ask_at_once if self._at_once else ask)(state, self.prompts)
        replies = self.backend.generate([state.conversation for state in states], self._format)
        decisions = [read(reply, state, self.prompts) for state, reply in zip(states, replies, strict=True)]
        self._warn_of_unfinished_thoughts(decisions)
        return decisions

    def answer_now(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One answer per question from one `generate()` call, asked for in the words of the last turn.

        The conversations stay as they are: each is asked in an alternative to it, see `Conversation.asking_instead`.
        """
        asked = [ask_now(state, self.prompts) for state in states]
        replies = self.backend.generate(asked, self._format)
        return [read(reply, state, self.prompts, last_turn=True) for state, reply in zip(states, replies, strict=True)]

    def under(self, controls: ControlSettings, tell: Sequence[str], benchmark: Benchmark) -> Self:
        """This policy with the same backend, its prompts and its presentation of views under a run's controls.

        `tell` are those of TELL_NAMES that the prompts reveal. The prompts get the benchmark's advice.
        """
        changed = copy(self)
        changed.prompts = self.prompts.with_advice_of(benchmark).under(controls, tell)
        changed._at_once = controls.at_once
        changed._warned = False
        changed._format = without_translation(self._format) if not controls.translation else self._format
        return changed

    def _warn_of_unfinished_thoughts(self, decisions: Sequence[Decision]) -> None:
        """Log the flag for longer replies once, at the first one that reached its limit inside a thought."""
        if self._warned:
            return
        for each in decisions:
            reply = each.reply
            if each.error and reply.finish_reason == "length" and outside_thoughts(reply.text)[1]:
                self._warned = True
                log.warning(
                    "%s: a reply reached its limit of %d tokens inside a thought, before any action: a higher "
                    "%s, in a new run, leaves room for both",
                    self.name, reply.generated_tokens, named("max_new_tokens"),
                )  # fmt: skip
                return

    def recall(self, state: QuestionState) -> None:
        """Rebuild the conversation from the recorded turns."""
        for turn in state.turns:
            ask(state, self.prompts, turn.turn)
            state.conversation.append(turn.reply.message)

    def forget(self, state: QuestionState) -> None:
        """Release the conversation's cached keys and values."""
        self.backend.release(state.conversation)

    def peak_memory_bytes(self) -> int:
        """The backend's peak device memory."""
        return self.backend.peak_memory_bytes()

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()


def ask(state: QuestionState, prompts: Prompts, turn: int | None = None) -> None:
    """Append a turn's user message, by default that of the next turn, preceded in turn 0 by the system message.

    Does nothing if the turn's message is already there.
    """
    messages, turn = state.conversation.messages, state.turn if turn is None else turn
    if not messages:
        state.conversation.append(system_message(prompts, state.question, state.observations[0]))
    if messages[-1].role != "user":
        previous = state.turns[turn - 1] if turn else None
        state.conversation.append(turn_message(prompts, state.question, state.observations[turn], previous))
    require_shots(state, turn)


def require_shots(state: QuestionState, turn: int) -> None:
    """Assert that the conversation shows the images of all turns up to `turn`, and no others."""
    seen = [shot for observation in state.observations[: turn + 1] for shot in observation.images]
    assert state.conversation.shots == seen, f"{state.label}: the images of turn i must belong to observation i"


def ask_now(state: QuestionState, prompts: Prompts) -> Conversation:
    """The conversation with the current turn's message as if no moves were left."""
    last = replace(state.observation, moves_left=0)
    previous = state.turns[-1] if state.turns else None
    return state.conversation.asking_instead(turn_message(prompts, state.question, last, previous).text)


def ask_at_once(state: QuestionState, prompts: Prompts) -> None:
    """Append the system message and one user message with all views so far. Does nothing if they are there."""
    if not state.conversation.messages:
        state.conversation.append(system_message(prompts, state.question, state.observations[0]))
        state.conversation.append(message_of_all_turns(prompts, state.question, state.observations, state.turns))
    require_shots(state, state.turn)


def read(reply: Reply, state: QuestionState, prompts: Prompts, last_turn: bool | None = None) -> Decision:
    """Parse the reply, by default as one to the question's current turn; report truncation to the model."""
    last_turn = state.is_last_turn if last_turn is None else last_turn
    parsed = parse_action(reply.text, state.question, last_turn)
    if parsed.error is not None and reply.finish_reason == "length":
        truncated = prompts.outcome.truncated.format(tokens=reply.generated_tokens)
        parsed = replace(parsed, error=f"{parsed.error}; {truncated}")
    return Decision(parsed.action, reply, parsed.clamped, parsed.error)
