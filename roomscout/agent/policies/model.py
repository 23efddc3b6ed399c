"""The policy that asks a model."""

import logging
from collections.abc import Callable, Sequence

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.prompts import Prompts, checkpoint_prompts
from roomscout.agent.policies.replies import outside_thoughts, read_map
from roomscout.agent.state import QuestionState, Rules
from roomscout.models import Backend, EarlyBackend, Reply, ReplyFormat
from roomscout.runs.beliefs import Belief

log = logging.getLogger(__name__)


class ModelPolicy(Policy):
    """Sends the messages of each question to a model; the question reads the reply by the rules of its run, made from
    `prompts`, by default those of the backend's checkpoint folder."""

    reads_prompts = True

    def __init__(self, backend: Backend, prompts: Prompts | None = None) -> None:
        self.name = backend.name
        self.concurrent = backend.concurrent
        self.backend = backend
        self.prompts = prompts or checkpoint_prompts(backend.name)
        self.decides_each = isinstance(backend, EarlyBackend) and type(self).decide is ModelPolicy.decide
        self._warned: Rules | None = None

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One decision per question from one `generate()` call."""
        replies = self.backend.generate([state.messages() for state in states], states[0].rules.form)
        return [self._read(state, reply) for state, reply in zip(states, replies, strict=True)]

    def decide_each(
        self, states: Sequence[QuestionState], decided: Callable[[int, Callable[[], Decision]], None]
    ) -> None:
        """The same; each question is decided when its reply has ended."""
        assert isinstance(self.backend, EarlyBackend), "only such a backend tells when a reply has ended"
        self.backend.generate_each(
            [state.messages() for state in states],
            states[0].rules.form,
            lambda index, reply: decided(index, lambda: self._read(states[index], reply())),
        )

    def prepare(self, state: QuestionState) -> None:
        """Encode the conversation up to the next view."""
        if isinstance(self.backend, EarlyBackend):
            self.backend.prepare(state.messages())

    def _read(self, state: QuestionState, reply: Reply) -> Decision:
        decision = state.read(reply)
        rules = state.rules
        cut = decision.error and reply.finish_reason == "length" and outside_thoughts(reply.text)[1]
        if cut and self._warned is not rules:
            self._warned = rules  # once a run
            log.warning(
                "%s: a reply reached its limit of %d tokens inside a thought, before any action: a higher "
                "limit, in a new run, leaves room for both",
                self.name, reply.generated_tokens,
            )  # fmt: skip
        return decision

    def answer_now(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One answer per question from one `generate()` call, asked for as in the last turn beside the conversation."""
        if not states:  # asked whether it can answer
            return []
        replies = self.backend.generate([state.messages_if_last() for state in states], states[0].rules.form)
        return [state.read(reply, last_turn=True) for state, reply in zip(states, replies, strict=True)]

    def map_now(self, states: Sequence[QuestionState]) -> list[Belief]:
        """One map per question from one `generate()` call, asked for beside the conversation."""
        if not states:  # asked whether it can
            return []
        replies = self.backend.generate([state.messages_with_probe() for state in states], ReplyFormat())
        return [read_map(reply) for reply in replies]

    def forget(self, state: QuestionState) -> None:
        """Release the conversation's cached keys and values."""
        self.backend.release(state.conversation)

    def peak_memory_bytes(self) -> int:
        """The backend's peak device memory."""
        return self.backend.peak_memory_bytes()

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()
