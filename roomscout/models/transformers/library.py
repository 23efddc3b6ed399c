"""The library's own `generate()` on whole conversations, padded on the left, for what cannot be packed into slots."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from roomscout.models.transformers.decoding import ReplyStop
from roomscout.models.transformers.encoding import ConversationEncoder, EncodedConversation

_padded = partial(pad_sequence, batch_first=True, padding_side="left")


def generate(
    model: PreTrainedModel,
    encoder: ConversationEncoder,
    batch: Sequence[EncodedConversation],
    pad_id: int,
    most_tokens: int,
    processors: LogitsProcessorList,
    stop: ReplyStop,
) -> None:
    """Let the model reply to conversations, of which nothing is cached; `stop` collects replies behind as many columns
    as the longest prompt has."""
    device = model.device
    ids = _padded([torch.tensor(encoded.ids) for encoded in batch], padding_value=pad_id)
    turns = [turn for encoded in batch for turn in encoded.turns]
    if encoder.chat.whole:
        inputs: dict[str, Any] = {name: tensor.to(device) for name, tensor in encoder.whole_inputs(turns).items()}
    else:
        positions = _padded([encoded.positions.T for encoded in batch]).permute(2, 0, 1).contiguous()
        inputs = image_inputs(encoder, turns, device) | {
            "attention_mask": _padded([torch.ones(len(encoded.ids), dtype=torch.long) for encoded in batch]).to(device),
            "position_ids": (positions if len(positions) > 1 else positions[0]).to(device),
        }
    model.generate(
        input_ids=ids.to(device),
        **inputs,
        max_new_tokens=most_tokens,
        pad_token_id=pad_id,
        logits_processor=processors,
        stopping_criteria=StoppingCriteriaList([stop]),
    )


def image_inputs(encoder: ConversationEncoder, turns: Sequence[Any], device: torch.device) -> dict[str, torch.Tensor]:
    """The inputs for the images of these turns, on the device, by name; none without turns."""
    images = [encoder.image_inputs(turn) for turn in turns]
    names = images[0] if images else ()
    return {name: _on(device, _joined([image[name] for image in images])) for name in names}


def _on(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the device, copied from pinned memory so that nothing waits for it."""
    return tensor if tensor.device == device else tensor.pin_memory().to(device, non_blocking=True)


def _joined(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """The inputs of several images one after the other, with zeros behind those that are smaller."""
    shape = [max(sizes) for sizes in zip(*(image.shape[1:] for image in images), strict=True)]
    padded = []
    for image in images:
        missing = [most - size for size, most in zip(image.shape[1:], shape, strict=True)]
        padded.append(pad(image, [side for behind in reversed(missing) for side in (0, behind)]))
    return torch.cat(padded)
