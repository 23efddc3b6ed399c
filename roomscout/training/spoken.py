"""The token ids of a finished episode, and which of them the model said."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from roomscout.models import ModelError
from roomscout.models.conversation import Conversation
from roomscout.models.transformers.encoding import ConversationEncoder, EncodedTurn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, ProcessorMixin


def learning_encoder(processor: "ProcessorMixin", config: "PreTrainedConfig") -> ConversationEncoder:
    """An encoder of whole episodes; raises ModelError if no row can have all of an episode's replies."""
    encoder = ConversationEncoder(processor, config)
    by_processor = encoder.chat.family.by_processor
    if by_processor or encoder.chat.rewrites:
        why = "is of no family in docs/models.md" if by_processor else "has a template that rewrites turns"
        raise ModelError(f"this checkpoint {why}, so it cannot be trained: use an Instruct checkpoint of a family")
    return encoder


@dataclass(frozen=True, eq=False)
class Spoken:
    """An episode as in evaluation."""

    ids: torch.Tensor  # (L,)
    positions: torch.Tensor  # (axes, L)
    spoken: torch.Tensor  # (L,) bool: the replies, each with its end token
    first: int  # ids before this one are the prompt of the first reply
    turns: list[EncodedTurn]  # with one image each


def encoded_episode(
    encoder: ConversationEncoder, conversation: Conversation, end_token: int, truncated: tuple[int, ...] = ()
) -> Spoken:
    """The ids of a conversation that ends with a reply, which the encoder forgets. Replies enter as generated, or as
    their texts; the end tokens of `truncated` ones, from 0, are not spoken."""
    *before, last = conversation.messages
    prompt = Conversation(conversation.id, before)
    encoded = encoder.encode(prompt)
    encoder.release(prompt.key)
    spoken: list[bool] = []
    first = 0
    replies = 0
    for number, turn in enumerate(encoded.turns):
        said = 0
        if number and turn.messages:  # it begins with the reply before it, whose end token comes next
            said = len(turn.messages[0].tokens or encoder.reply_ids(turn.messages[0].text))
            first = first or len(spoken)
            spoken += [*[True] * said, replies not in truncated]
            said += 1
            replies += 1
        spoken += [False] * (len(turn.ids) - said)
    reply = list(last.tokens) or encoder.reply_ids(last.text)
    first = first or len(spoken)
    spoken += [*[True] * len(reply), replies not in truncated]
    positions = encoded.positions
    after = (torch.arange(len(reply) + 1) + positions.max() + 1).expand(len(positions), -1)
    ids = torch.tensor([*encoded.ids, *reply, end_token])
    return Spoken(ids, torch.cat([positions, after], dim=1), torch.tensor(spoken), first, encoded.turns)
