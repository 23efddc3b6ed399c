"""The policy that asks a model."""

import logging
from collections.abc import Sequence

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.prompts import Prompts, checkpoint_prompts
from roomscout.agent.policies.replies import action_format, outside_thoughts
from roomscout.agent.state import QuestionState, Rules
from roomscout.models import Backend, ReplyFormat

log = logging.getLogger(__name__)


class ModelPolicy(Policy):
    """Sends the messages of each question to a model; the question reads the reply by the rules of its run, made from
    `prompts`, by default those of the backend's checkpoint folder, and from `reply_format`."""

    reads_prompts = True

    def __init__(
        self, backend: Backend, reply_format: ReplyFormat | None = None, prompts: Prompts | None = None
    ) -> None:
        self.name = backend.name
        self.concurrent = backend.concurrent
        self.backend = backend
        self.prompts = prompts or checkpoint_prompts(backend.name)
        self.reply_format = reply_format or action_format()
        self._warned: Rules | None = None

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One decision per question from one `generate()` call."""
        rules = states[0].rules
        replies = self.backend.generate([state.messages() for state in states], rules.form)
        decisions = [state.read(reply) for state, reply in zip(states, replies, strict=True)]
        cut = [each.reply for each in decisions if each.error and each.reply.finish_reason == "length"]
        if self._warned is not rules and (unfinished := [each for each in cut if outside_thoughts(each.text)[1]]):
            self._warned = rules  # once a run
            log.warning(
                "%s: a reply reached its limit of %d tokens inside a thought, before any action: a higher "
                "--max-new-tokens, in a new run, leaves room for both",
                self.name, unfinished[0].generated_tokens,
            )  # fmt: skip
        return decisions

    def answer_now(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One answer per question from one `generate()` call, asked for as in the last turn beside the conversation."""
        if not states:  # asked whether it can answer
            return []
        replies = self.backend.generate([state.messages_if_last() for state in states], states[0].rules.form)
        return [state.read(reply, last_turn=True) for state, reply in zip(states, replies, strict=True)]

    def recall(self, state: QuestionState) -> None:
        """Rebuild the conversation from the recorded turns."""
        state.recall()

    def forget(self, state: QuestionState) -> None:
        """Release the conversation's cached keys and values."""
        self.backend.release(state.conversation)

    def peak_memory_bytes(self) -> int:
        """The backend's peak device memory."""
        return self.backend.peak_memory_bytes()

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()
