"""Encodes conversations as token ids, positions and image patches, what is known of them once; needs no weights."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jinja2 import TemplateError
from PIL import Image

from roomscout.models import ModelError
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.families import family_of, require_tiles
from roomscout.models.transformers.families.family import EncodedVideo
from roomscout.models.transformers.families.last_resort import encode, encode_batch, image_ids, own_positions
from roomscout.models.transformers.layers import why_recomputed

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, ProcessorMixin

# Stands for earlier replies when the chat template is rendered: their ids are known and must not be re-tokenized.
_REPLY = "reply"
_THOUGHT = "thought"
_THOUGHTFUL = f"<think>\n{_THOUGHT}\n</think>\n\n{_REPLY}"


@dataclass
class EncodedImage:
    """The model's inputs for a turn's images, by name. Set to None to free them; images are reprocessed on demand."""

    inputs: dict[str, torch.Tensor] | None


@dataclass(frozen=True)
class EncodedTurn:
    """The encoding of one view: of the `messages` up to it that are new, and of the text up to the next view. Of
    several views of a message, the first has the messages; with a template that rewrites earlier turns, the first of
    all. `rendered` is the chat template's text of the whole conversation so far. `positions` are (axes,
    len(ids)), as the model's family defines them. `view` is (H, W, 3) uint8, and the image's placeholders are
    `ids[image_start:image_end]`.

    If the checkpoint's processor encodes, a turn has all `views` of its messages with the text between them; `text`
    is what that processor read."""

    messages: tuple[Message, ...]
    rendered: str
    ids: list[int]
    positions: torch.Tensor
    view: np.ndarray
    image: EncodedImage
    image_start: int
    image_end: int
    views: tuple[np.ndarray, ...] = ()
    text: str = ""

    def shows_what(self, other: "EncodedTurn") -> bool:
        """Whether another turn has the same views."""
        views = [self.view, *self.views], [other.view, *other.views]
        return len(views[0]) == len(views[1]) and all(map(is_, *views))

    def holds(self, before: list[int], view: np.ndarray, behind: list[int], start: int) -> bool:
        """Whether it is the encoding of this view between these ids, at positions from `start`."""
        ids = [*before, *self.ids[self.image_start : self.image_end], *behind]
        return self.view is view and self.ids == ids and int(self.positions[0, 0]) == start


@dataclass
class EncodedConversation:
    """The encoding of a conversation, by its `id` and `key`, up to its last user message; `views` counts its images so
    far, and `origin` is the encoding of its origin."""

    id: str
    key: int
    turns: list[EncodedTurn] = field(default_factory=list)
    origin: "EncodedConversation | None" = None
    views: int = 0

    @property
    def ids(self) -> list[int]:
        """The token ids of the whole conversation."""
        return list(chain.from_iterable(turn.ids for turn in self.turns))

    @property
    def positions(self) -> torch.Tensor:
        """The positions of all ids, (axes, len(ids))."""
        return torch.cat([turn.positions for turn in self.turns], dim=1)

    @property
    def last_image_end(self) -> int:
        """The index in `ids` just after the last image's placeholders."""
        return sum(len(turn.ids) for turn in self.turns[:-1]) + self.turns[-1].image_end

    @property
    def messages(self) -> list[Message]:
        """The messages encoded so far."""
        return list(chain.from_iterable(turn.messages for turn in self.turns))


def prepare_image(image: Image.Image, patch_size: int) -> Image.Image:
    """An image as qwen-vl-utils passes it to the processor; sizes that the model accepts are not resized."""
    from qwen_vl_utils import process_vision_info

    chat = [{"role": "user", "content": [{"type": "image", "image": image}]}]
    (prepared,), _ = process_vision_info(chat, image_patch_size=patch_size)
    return prepared


def as_it_is(image: Image.Image, patch_size: int) -> Image.Image:
    """A substitute for `prepare_image` if qwen-vl-utils is not installed."""
    return image


class ConversationEncoder:
    """Encodes conversations turn by turn with a checkpoint's processor and configuration.

    A turn appends what the chat template puts after the last reply: its end token, the new user message, the start of
    the next reply. Replies enter as their generated ids, so that cached keys and values stay valid.

    If the chat template `rewrites` earlier turns, as those of Thinking checkpoints leave out earlier thoughts, all of a
    conversation is encoded as the template renders it, replies by their texts. `opening` is then what it puts before
    the next reply alone, such as "<think>\\n": replies begin with it.

    `recomputed` is why keys and values cannot be reused. A family of last resort then has all of a conversation encoded
    by the checkpoint's processor (`whole`), and the model finds positions by itself.

    Pixels are stored as `dtype`, usually that of the weights; None keeps the processor's. Those of views are made on
    `device`, by default the CPU, and stay there. `prepare(image, patch size)` is called for families that use
    qwen-vl-utils. `tiles_per_view` is the maximum number of tiles per view. Raises
    ModelError for several tiles if the family has none.
    """

    keeps_pixels = True
    """Whether images are encoded for a model in this process."""

    def __init__(
        self,
        processor: "ProcessorMixin",
        config: "PreTrainedConfig",
        dtype: torch.dtype | None = None,
        prepare: Callable[[Image.Image, int], Image.Image] = prepare_image,
        tiles_per_view: int = 1,
        device: torch.device | None = None,
    ) -> None:
        self._processor = processor
        self._config = config
        self._family = family_of(config)
        require_tiles(self._family, tiles_per_view)
        self.sees_videos = self._family.sees_videos(processor)
        self._tiles = tiles_per_view
        self._dtype = dtype
        self._device = device
        self._prepare = prepare
        tokenizer = processor.tokenizer
        special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._added_tokens = _added_tokens_pattern(tokenizer.get_added_vocab())
        self._special_tokens = _added_tokens_pattern(special)
        self._cache: dict[int, EncodedConversation] = {}
        self.lock = threading.RLock()
        """Held while the tokenizer is used, which serves one thread at a time."""
        options = self._family.chat_options.items()  # transformers warns of those that the template does not name
        self._chat_options = {name: each for name, each in options if name in str(processor.chat_template)}
        self._stand_in, self._dropped, self.opening = _REPLY, "", ""
        self._folds_system = self._splits_thoughts = False
        self._folds_system = not self._renders_system()
        self.rewrites, self.opening = self._rewriting()
        self.by_processor = self._family.by_processor
        self.recomputed = why_recomputed(config)
        self.whole = False
        if self.by_processor:
            self._image_ids = image_ids(processor, config)
            self.recomputed = self.recomputed or self._why_whole()
            self.whole = self.recomputed is not None

    def encode(self, conversation: Conversation) -> EncodedConversation:
        """The encoding of a conversation that ends with a user message; encodes only what changed since the last call.
        Raises ModelError for any other conversation, and for an image size that the family does not accept."""
        messages = conversation.messages
        if not messages or not messages[-1].shots:
            raise ModelError(f"conversation {conversation.id}: it does not end with a user message that has a view")
        with self.lock:
            origin = None if conversation.origin is None else self.encode(conversation.origin)
            try:
                encoded = self._encode(conversation) if origin is None else self._encode_beside(conversation, origin)
            except ModelError as error:
                raise ModelError(f"conversation {conversation.id}: {error}", setting=error.setting) from error
            encoded.views = conversation.views
            if origin is None:
                self._cache[conversation.key] = encoded
            return encoded

    def reply_ids(self, text: str) -> list[int]:
        """The ids with which the text of a reply enters if those that were generated are not known."""
        return self._tokenize(_escaped(text.removeprefix(self.opening), self._special_tokens))

    def image_inputs(self, turn: EncodedTurn) -> dict[str, torch.Tensor]:
        """The model's inputs for a turn's image, by name; reprocesses the image if they were freed."""
        with self.lock:
            if turn.image.inputs is None:
                if turn.views:
                    turn.image.inputs = self._as_stored(encode(self._processor, turn.text, turn.views).inputs)
                elif turn.messages and turn.messages[-1].clip is not None:
                    turn.image.inputs = self._encode_video(turn.rendered, turn.messages[-1])[2]
                else:
                    turn.image.inputs = self._encode_image(turn.view)
            return turn.image.inputs

    def text_of(self, conversation: Conversation) -> str:
        """The chat template's text of a conversation, with its replies."""
        return self._render(conversation.messages, whole=True)

    def whole_inputs(self, turns: Sequence[EncodedTurn]) -> dict[str, torch.Tensor]:
        """The model's inputs but the ids, of conversations with one turn each that are encoded whole."""
        with self.lock:
            made = encode_batch(self._processor, [turn.text for turn in turns], [turn.views for turn in turns])
        del made["input_ids"]
        return self._as_stored(made)

    def release(self, key: int) -> None:
        """Free the encoding of the conversation with this key; unknown ones are ignored."""
        self._cache.pop(key, None)

    def release_all(self) -> None:
        """Free the encodings of all conversations."""
        self._cache.clear()

    def _encode(self, conversation: Conversation) -> EncodedConversation:
        messages = conversation.messages
        encoded = self._cache.get(conversation.key) or EncodedConversation(conversation.id, conversation.key)
        if self.rewrites or self.whole:
            if encoded.messages == messages:
                return encoded
            turns = self._encode_all(messages, encoded.turns)
            return EncodedConversation(conversation.id, conversation.key, turns)
        same = list[EncodedTurn]()
        at = 0
        for turn in encoded.turns:
            if list(turn.messages) != messages[at : at + len(turn.messages)]:
                break
            same.append(turn)
            at += len(turn.messages)
        encoded = EncodedConversation(conversation.id, conversation.key, same)  # the last one may be in use
        for end in range(len(encoded.messages) + 1, len(messages) + 1):
            if messages[end - 1].shots:
                encoded.turns += self._encode_messages(encoded, messages[:end])
        return encoded

    def _encode_messages(self, encoded: EncodedConversation, messages: Sequence[Message]) -> list[EncodedTurn]:
        """The next turns of `encoded`, one per view; `messages` ends with the next message that has views."""
        known = len(encoded.messages)
        rendered = ""
        ids = list[int]()
        text = ""
        start = 0
        if encoded.turns:
            rendered = encoded.turns[-1].rendered
            start = int(encoded.turns[-1].positions.max()) + 1
        for end in range(known + 1, len(messages) + 1):  # with several questions if views are no longer shown
            if messages[end - 1].role == "user":
                earlier = rendered
                rendered = self._render(messages[:end])
                ids = ids + self._tokenize(text)
                text = rendered
                if earlier:
                    ids += list(messages[end - 2].tokens) or self.reply_ids(messages[end - 2].text)
                    text = self._text_after(earlier, rendered)
        return self._turns(messages[known:], rendered, ids, text, start)

    def _encode_all(self, messages: Sequence[Message], known: Sequence[EncodedTurn]) -> list[EncodedTurn]:
        """The turns of all messages as the chat template renders them; the unchanged ones of `known` are kept."""
        rendered = self._render(messages, whole=True)
        return self._turns(messages, rendered, [], rendered, 0, known)

    def _turns(
        self,
        messages: Sequence[Message],
        rendered: str,
        ids: list[int],
        text: str,
        start: int,
        known: Sequence[EncodedTurn] = (),
    ) -> list[EncodedTurn]:
        """One turn per view of `messages`, from position `start`: `ids`, then those of `text`."""
        if messages[-1].clip is not None:
            ids, positions, video = self._encode_video(rendered, messages[-1])
            places = [place for place, id in enumerate(ids) if id == self._config.video_token_id]
            first = places[0]
            end = places[-1] + 1
            frame = messages[-1].shots[0].image
            return [EncodedTurn(tuple(messages), rendered, ids, positions, frame, EncodedImage(video), first, end)]
        views = [shot.image for each in messages for shot in each.shots]
        turns = list[EncodedTurn]()
        if self.by_processor:
            return [self._turn_of_processor(messages, rendered, ids, text, start, tuple(views))]
        added = self._tokenize(text)
        for number, (view, before) in enumerate(zip_longest(views, known[: len(views)])):
            at = added.index(self._config.image_token_id)
            ids = ids + added[:at]
            added = added[at + 1 :]
            behind = added if number == len(views) - 1 else []
            of = () if turns else tuple(messages)
            if before is not None and before.holds(ids, view, behind, start):
                turn = replace(before, messages=of, rendered=rendered)
            else:
                image = self._encode_image(view)
                image_start = len(ids)
                ids = ids + self._family.placeholders(self._processor, self._config, image)
                image_end = len(ids)
                ids = ids + behind
                positions = self._family.positions(self._config, ids, image) + start
                turn = EncodedTurn(of, rendered, ids, positions, view, EncodedImage(image), image_start, image_end)
            turns.append(turn)
            ids = []
            start = int(turn.positions.max()) + 1
        return turns

    def _turn_of_processor(
        self,
        messages: Sequence[Message],
        rendered: str,
        ids: list[int],
        text: str,
        start: int,
        views: tuple[np.ndarray, ...],
    ) -> EncodedTurn:
        made = encode(self._processor, text, views)
        places = [place for place, id in enumerate(made.ids, len(ids)) if id in self._image_ids]
        if not places:
            raise ModelError(
                f"the checkpoint's processor writes none of the image tokens {sorted(self._image_ids)} of its "
                "configuration: take both from the same checkpoint"
            )
        own = torch.arange(len(made.ids))[None] if self.whole else self._own_positions(made)
        positions = torch.cat([torch.arange(len(ids)).expand(len(own), -1), own + len(ids)], dim=1) + start
        image = EncodedImage(self._as_stored(made.inputs) if self.keeps_pixels and not self.whole else None)
        all_ids = [*ids, *made.ids]
        start = places[0]
        end = places[-1] + 1
        return EncodedTurn(tuple(messages), rendered, all_ids, positions, views[0], image, start, end, views, text)

    def _encode_beside(self, conversation: Conversation, origin: EncodedConversation) -> EncodedConversation:
        """The encoding of an alternative: its origin's with another text behind the last image, which is not kept."""
        if self.whole:
            turns = self._encode_all(conversation.messages, ())
            return EncodedConversation(conversation.id, conversation.key, turns)
        if self.rewrites:
            turns = self._encode_all(conversation.messages, origin.turns)
            return EncodedConversation(conversation.id, conversation.key, turns, origin)
        *before, last = origin.turns
        if self.by_processor:
            encoded = EncodedConversation(conversation.id, conversation.key, before, origin)
            encoded.turns = [*before, *self._encode_messages(encoded, conversation.messages)]
            return encoded
        rendered = self._render(conversation.messages)
        added = self._tokenize(rendered)
        behind = added[len(added) - added[::-1].index(self._config.image_token_id) :]
        shared = last.positions[:, : last.image_end]
        positions = torch.arange(len(behind)) + shared.max() + 1  # in every family, those of text after an image
        turn = replace(
            last,
            rendered=rendered,
            ids=[*last.ids[: last.image_end], *behind],
            positions=torch.cat([shared, positions.expand(len(shared), -1)], dim=1),
        )
        return EncodedConversation(conversation.id, conversation.key, [*before, turn], origin)

    def _rewriting(self) -> tuple[bool, str]:
        """Whether the chat template rewrites earlier turns, and what it puts before the next reply alone, or before
        each reply that begins with a thought. Sets what stands for replies, and what is dropped before earlier ones."""
        question = Message.of_views("", np.zeros((1, 1, 3), np.uint8))
        asked = [Message("system", ""), question]
        next_reply = self._render(asked)
        thoughtful = self._render([*asked, Message("assistant", _THOUGHTFUL), question], whole=True)
        ways = list[tuple[str, str, bool]]()
        if opened := re.search(r"<think>\n?$", next_reply):
            ways = [(_THOUGHTFUL, "", False), (_THOUGHTFUL, "", True)]
            self.opening = opened[0]
        elif _THOUGHT in thoughtful or self._family.reply_opening:  # which is asked not to think
            ways = [(_REPLY, "", False), (_REPLY, self._family.reply_opening, False)]
        for self._stand_in, self._dropped, self._splits_thoughts in ways:
            with suppress(ModelError):
                self._text_after(next_reply, self._render([*asked, Message("assistant", _REPLY), question]))
                return False, self.opening
        self._stand_in = _REPLY
        self._dropped = self._family.reply_opening
        self._splits_thoughts = False
        before = (
            self._render([*asked, Message("assistant", _REPLY), question], whole=True).partition(_REPLY)[0].rstrip()
        )
        return True, next_reply.removeprefix(before).lstrip() if next_reply.startswith(before) else ""

    def _renders_system(self) -> bool:
        """Whether the chat template takes a system message."""
        try:
            return _THOUGHT in self._render([Message("system", _THOUGHT), Message("user", "")])
        except ModelError:
            return False

    def _why_whole(self) -> str | None:
        """Why turns cannot be encoded one after the other, found on a conversation of two turns; None if they can."""
        if self.rewrites:
            return "its chat template rewrites earlier turns"
        if (positions := own_positions(self._config)) is None:
            return "its positions are known to the model alone"
        self._own_positions = positions
        question = Message.of_views("?", np.zeros((480, 640, 3), np.uint8))
        view = question.shots[0].image
        messages = [question, Message("assistant", self._stand_in), question]
        rendered = self._render([question])
        later = self._render(messages)
        first = encode(self._processor, rendered, [view])
        after = self._text_after(rendered, later)
        second = encode(self._processor, after, [view])
        both = encode(self._processor, self._render(messages, whole=True), [view, view])
        if both.ids[: len(first.ids)] != first.ids or both.ids[-len(second.ids) :] != second.ids:
            return "its processor encodes a turn differently beside others"
        whole = positions(both)
        alone = positions(second)
        reply = len(both.ids) - len(first.ids) - len(second.ids)
        start = int(positions(first).max()) + 1 + reply
        if not torch.equal(whole[:, -len(second.ids) :], alone + start):
            return "its positions depend on other turns"
        if set(both.of_tokens) - ({"mm_token_type_ids"} if len(whole) > 1 else set()):
            return "its attention is told which tokens are of images"
        return None

    def _render(self, messages: Sequence[Message], whole: bool = False) -> str:
        """The chat template's text of messages that end with a user message, with replies only if `whole`."""
        chat = []
        if self._folds_system and messages[0].role == "system":
            system, first, *others = messages
            messages = [replace(first, text=f"{system.text}\n\n{first.text}"), *others]
        for message in messages:
            if message.role != "assistant":
                text = _escaped(message.text, self._added_tokens)
            else:  # what marks thoughts may be added tokens, but none that are special
                text = _escaped(message.text, self._special_tokens) if whole else self._stand_in
            image = [{"type": "image"}] * len(message.shots) if message.clip is None else [{"type": "video"}]
            said: dict[str, Any] = {"role": message.role}
            if message.role == "assistant" and self._splits_thoughts and "</think>" in text:
                thought, text = text.removeprefix("<think>").split("</think>", 1)
                said["reasoning_content"], text = thought.strip("\n"), text.lstrip("\n")
            chat.append(said | {"content": [*image, {"type": "text", "text": text}]})
        options = {"tokenize": False, "add_generation_prompt": True, **self._chat_options}
        try:
            return self._processor.apply_chat_template(chat, **options)
        except (TemplateError, TypeError, ValueError) as error:
            raise ModelError(f"the checkpoint's chat template does not take this conversation ({error})") from error

    def _text_after(self, before: str, rendered: str) -> str:
        """What `rendered` adds after `before` and the reply; raises ModelError if it rewrites `before`."""
        before = before.removesuffix(self._dropped).rstrip()
        reply_and_rest = rendered.removeprefix(before).lstrip()
        reply = self._stand_in.removeprefix(self.opening)
        if not rendered.startswith(before) or not reply_and_rest.startswith(reply):
            raise ModelError("the checkpoint's chat template rewrites this earlier turn: use another checkpoint")
        return reply_and_rest.removeprefix(reply)

    def _tokenize(self, text: str) -> list[int]:
        return self._processor.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _encode_video(self, rendered: str, user: Message) -> EncodedVideo:
        """The whole text of a conversation whose only user message shows a video; raises ModelError."""
        assert user.clip is not None, "a message with a video has a clip"
        if self._family.video is None or not self.sees_videos:
            raise ModelError(f"a checkpoint of {self._family.name} with this chat template sees images, but no videos")
        frames = [shot.image for shot in user.shots]
        try:
            ids, positions, inputs = self._family.video(self._processor, self._config, rendered, frames, user.clip)
        except ValueError as error:
            raise ModelError(f"the checkpoint's processor does not take the video ({error})") from error
        return ids, positions, self._as_stored(inputs)

    def _as_stored(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Inputs in the dtype of the weights; lossless, since the image encoder casts pixels to its own first."""
        if self._dtype is None:
            return inputs
        return {name: each.to(self._dtype) if each.is_floating_point() else each for name, each in inputs.items()}

    def _encode_image(self, pixels: np.ndarray) -> dict[str, torch.Tensor]:
        image = Image.fromarray(np.ascontiguousarray(pixels))
        if reason := self._family.why_not(image.width, image.height):
            raise ModelError(reason, setting="image_size")
        if self._family.qwen_vl_utils:
            image = self._prepare(image, self._processor.image_processor.patch_size)
        device = self._device if self._family.qwen_vl_utils else None  # devices resize with other rounding
        return self._as_stored(self._family.process(self._processor, image, self._tiles, device))


def _escaped(text: str, tokens: re.Pattern[str]) -> str:
    """Insert a space into every occurrence of these tokens, so that text cannot inject one."""
    while match := tokens.search(text):
        split = match.start() + 1
        text = f"{text[:split]} {text[split:]}"
    return text


def _added_tokens_pattern(added: Iterable[str]) -> re.Pattern[str]:
    """Matches each of these tokens of at least two characters, which a space can split."""
    longest_first = sorted((token for token in added if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
