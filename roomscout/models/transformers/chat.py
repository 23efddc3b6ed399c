"""How a checkpoint's chat template and processor encode conversations, found once by trying them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from transformers import PreTrainedConfig, ProcessorMixin

from roomscout.models import ModelError
from roomscout.models.conversation import Message, folded
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.families.family import Family
from roomscout.models.transformers.families.last_resort import OwnEncoding, encode, image_ids, own_positions
from roomscout.models.transformers.layers import why_recomputed

_REPLY = "reply"
_THOUGHT = "thought"
_THOUGHTFUL = f"<think>\n{_THOUGHT}\n</think>\n\n{_REPLY}"


@dataclass(frozen=True)
class ChatEncoding:
    """How a checkpoint's conversations are encoded, and what its chat template writes; see `chat_encoding_of`."""

    processor: ProcessorMixin  # the checkpoint's
    family: Family  # that of the checkpoint's configuration
    options: Mapping[str, Any]  # arguments of the chat template: those of the family that it names
    special_tokens: re.Pattern[str]  # matches the tokens that no text may inject
    added_tokens: re.Pattern[str]  # matches these and others, as those around thoughts, which replies may have
    sees_videos: bool  # whether frames of a video can be one input
    folds_system: bool = False  # the system message is the beginning of the first user message
    stand_in: str = _REPLY  # for earlier replies in the template's text: their ids are known, never tokenized again
    dropped: str = ""  # what the template writes before the next reply, but not before earlier ones
    splits_thoughts: bool = False  # the template takes the thought of a reply apart from its text
    opening: str = ""  # what the template puts before the next reply alone, as "<think>\n": replies begin with it
    rewrites: bool = False
    """The template rewrites earlier turns, as by leaving out thoughts: all is encoded as rendered, replies by texts."""
    recomputed: str | None = None  # why keys and values cannot be reused; None if they can
    image_ids: frozenset[int] = frozenset()  # if the processor encodes, the ids that stand for parts of an image
    own_positions: Callable[[OwnEncoding], torch.Tensor] | None = None
    """The positions (axes, ids) of what the processor encodes; None where it does not, or encodes `whole`."""

    @property
    def whole(self) -> bool:
        """Whether that processor encodes all of a conversation at once, and the model finds positions by itself."""
        return self.family.by_processor and self.recomputed is not None

    def render(self, messages: Sequence[Message], whole: bool = False) -> str:
        """The chat template's text of messages that end with a user message, with replies only if `whole`."""
        chat = [self._as_dict(message, whole) for message in (folded(messages) if self.folds_system else messages)]
        try:
            return self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **self.options)
        except (TemplateError, TypeError, ValueError) as error:
            raise ModelError(f"the checkpoint's chat template does not take this conversation ({error})") from error

    def _as_dict(self, message: Message, whole: bool) -> dict[str, Any]:
        written: dict[str, Any] = {"role": message.role}
        if message.role != "assistant":
            text = escaped(message.text, self.added_tokens)
        else:  # what marks thoughts may be added tokens, but none that are special
            text = escaped(message.text, self.special_tokens) if whole else self.stand_in
            if self.splits_thoughts and "</think>" in text:
                thought, text = text.removeprefix("<think>").split("</think>", 1)
                written["reasoning_content"] = thought.strip("\n")
                text = text.lstrip("\n")
        images = [{"type": "image"}] * len(message.shots) if message.clip is None else [{"type": "video"}]
        return written | {"content": [*images, {"type": "text", "text": text}]}

    def text_after(self, before: str, rendered: str) -> str:
        """What `rendered` adds after `before` and the reply; raises ModelError if it rewrites `before`."""
        before = before.removesuffix(self.dropped).rstrip()
        reply_and_rest = rendered.removeprefix(before).lstrip()
        reply = self.stand_in.removeprefix(self.opening)
        if not rendered.startswith(before) or not reply_and_rest.startswith(reply):
            raise ModelError("the checkpoint's chat template rewrites this earlier turn: use another checkpoint")
        return reply_and_rest.removeprefix(reply)


def chat_encoding_of(processor: ProcessorMixin, config: PreTrainedConfig) -> ChatEncoding:
    """How a checkpoint's conversations are encoded; raises ModelError if it has no family or template that works."""
    family = family_of(config)
    tokenizer = processor.tokenizer
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    template = str(processor.chat_template)
    chat = ChatEncoding(
        processor=processor,
        family=family,
        options={name: value for name, value in family.chat_options.items() if name in template},
        special_tokens=_tokens_pattern(special),
        added_tokens=_tokens_pattern(tokenizer.get_added_vocab()),
        sees_videos=family.sees_videos(processor),
        recomputed=why_recomputed(config),
    )
    try:
        folds_system = _THOUGHT not in chat.render([Message("system", _THOUGHT), Message("user", "")])
    except ModelError:
        folds_system = True
    chat = _with_replies(replace(chat, folds_system=folds_system))
    if not family.by_processor:
        return chat
    chat = replace(chat, image_ids=frozenset(image_ids(processor, config)))
    if chat.recomputed is not None:
        return chat
    if chat.rewrites:
        return replace(chat, recomputed="its chat template rewrites earlier turns")
    positions = own_positions(config)
    if positions is None:
        return replace(chat, recomputed="its positions are known to the model alone")
    why_whole = _why_whole(chat, positions)
    if why_whole is not None:
        return replace(chat, recomputed=why_whole)
    return replace(chat, own_positions=positions)


def _with_replies(chat: ChatEncoding) -> ChatEncoding:
    """Also how replies enter: in the first form with which the template only appends, else as it rewrites them."""
    question = Message.of_views("", np.zeros((1, 1, 3), np.uint8))
    first_turn = [Message("system", ""), question]
    next_reply = chat.render(first_turn)
    second_turn = [*first_turn, Message("assistant", _REPLY), question]
    thoughtful = chat.render([*first_turn, Message("assistant", _THOUGHTFUL), question], whole=True)
    reply_opening = chat.family.reply_opening
    forms = list[ChatEncoding]()
    if opened := re.search(r"<think>\n?$", next_reply):
        thinking = replace(chat, stand_in=_THOUGHTFUL, opening=opened[0])
        forms = [thinking, replace(thinking, splits_thoughts=True)]
    elif _THOUGHT in thoughtful or reply_opening:  # which is asked not to think
        forms = [chat, replace(chat, dropped=reply_opening)]
    for form in forms:
        with suppress(ModelError):
            form.text_after(next_reply, form.render(second_turn))
            return form
    before = chat.render(second_turn, whole=True).partition(_REPLY)[0].rstrip()
    opening = next_reply.removeprefix(before).lstrip() if next_reply.startswith(before) else ""
    return replace(chat, rewrites=True, dropped=reply_opening, opening=opening)


def _why_whole(chat: ChatEncoding, positions: Callable[[OwnEncoding], torch.Tensor]) -> str | None:
    """Why turns cannot be encoded one after the other, found on a conversation of two turns; None if they can."""
    question = Message.of_views("?", np.zeros((480, 640, 3), np.uint8))
    view = question.shots[0].image
    messages = [question, Message("assistant", chat.stand_in), question]
    rendered = chat.render([question])
    after = chat.text_after(rendered, chat.render(messages))
    first = encode(chat.processor, rendered, [view])
    second = encode(chat.processor, after, [view])
    both = encode(chat.processor, chat.render(messages, whole=True), [view, view])
    if both.ids[: len(first.ids)] != first.ids or both.ids[-len(second.ids) :] != second.ids:
        return "its processor encodes a turn differently beside others"
    together = positions(both)
    reply = len(both.ids) - len(first.ids) - len(second.ids)
    start = int(positions(first).max()) + 1 + reply
    if not torch.equal(together[:, -len(second.ids) :], positions(second) + start):
        return "its positions depend on other turns"
    if set(both.of_tokens) - ({"mm_token_type_ids"} if len(together) > 1 else set()):
        return "its attention is told which tokens are of images"
    return None


def escaped(text: str, tokens: re.Pattern[str]) -> str:
    """Insert a space into every occurrence of these tokens, so that text cannot inject one."""
    while match := tokens.search(text):
        split = match.start() + 1
        text = f"{text[:split]} {text[split:]}"
    return text


def _tokens_pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Matches each of these tokens of at least two characters, which a space can split."""
    longest_first = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
