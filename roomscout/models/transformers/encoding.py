"""Encodes conversations as token ids, positions and image patches, each part of them once; needs no weights."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, zip_longest

import numpy as np
import torch
from PIL import Image
from transformers import PreTrainedConfig, ProcessorMixin

from roomscout.base.text import counted
from roomscout.models import ModelError
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.chat import chat_encoding_of, escaped
from roomscout.models.transformers.families import require_tiles
from roomscout.models.transformers.families.family import EncodedVideo
from roomscout.models.transformers.families.last_resort import encode, encode_batch


@dataclass(frozen=True)
class EncodedTurn:
    """The encoding of one view, and of the text around it from the view before up to the next one.

    If the checkpoint's processor encodes, a turn has all `views` of its messages with the text between them."""

    messages: tuple[Message, ...]
    """The new messages up to the view: those of a message's first view, or of all if the template rewrites turns."""
    rendered: str  # the chat template's text of the whole conversation so far
    ids: list[int]  # token ids
    positions: torch.Tensor  # (axes, len(ids)), as the model's family defines them
    views: tuple[np.ndarray, ...]
    """(H, W, 3) uint8: the view, or the first frame of a video; if the processor encodes, all views of the messages."""
    inputs: dict[str, torch.Tensor]
    """The model's inputs for the images, by name, shared with copies of the turn; freed, and made again on demand."""
    image_start: int  # `ids[image_start:image_end]` are the image's placeholders
    image_end: int  # see `image_start`
    text: str = ""  # what the processor read, if it encodes

    def holds(self, before: list[int], view: np.ndarray, behind: list[int], start: int) -> bool:
        """Whether it is the encoding of this view between these ids, at positions from `start`."""
        ids = [*before, *self.ids[self.image_start : self.image_end], *behind]
        return self.views[0] is view and self.ids == ids and int(self.positions[0, 0]) == start


@dataclass
class EncodedConversation:
    """The encoding of a conversation up to its last user message."""

    id: str  # the conversation's
    key: int  # the conversation's, under which its keys and values are cached
    turns: list[EncodedTurn] = field(default_factory=list)  # in order, one for each view
    origin: "EncodedConversation | None" = None  # of an alternative, the encoding of its origin
    views: int = 0  # the images of all messages, with those that are no longer shown

    @property
    def owner(self) -> "EncodedConversation":
        """The conversation in whose slot its keys and values are: its origin, or itself."""
        return self.origin or self

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

    def turns_after(self, start: int) -> list[EncodedTurn]:
        """The turns whose images come after the first `start` ids. A cached prefix never ends within an image."""
        ends = accumulate(len(turn.ids) for turn in self.turns)
        return [
            turn for turn, end in zip(self.turns, ends, strict=True) if end - len(turn.ids) + turn.image_end > start
        ]

    def images_after(self, start: int) -> int:
        """The number of images that `turns_after` have."""
        return sum(len(turn.views) for turn in self.turns_after(start))

    @property
    def messages(self) -> list[Message]:
        """The messages encoded so far."""
        return list(chain.from_iterable(turn.messages for turn in self.turns))


class ConversationEncoder:
    """Encodes conversations turn by turn with a checkpoint's processor and configuration, as its `chat` says.

    A turn appends what the chat template puts after the last reply: its end token, the new user message, the start of
    the next reply. Replies enter as their generated ids, so that cached keys and values stay valid.

    Pixels are stored as `dtype`, usually that of the weights; None keeps the processor's. Those of views are made on
    `device`, by default the CPU, and stay there. `tiles_per_view` is the maximum number of tiles per view. Raises
    ModelError for several tiles if the family has none."""

    keeps_pixels = True  # whether images are encoded for a model in this process

    def __init__(
        self,
        processor: ProcessorMixin,
        config: PreTrainedConfig,
        dtype: torch.dtype | None = None,
        tiles_per_view: int = 1,
        device: torch.device | None = None,
    ) -> None:
        self.chat = chat_encoding_of(processor, config)
        self._family = self.chat.family
        require_tiles(self._family, tiles_per_view)
        self._processor = processor
        self._config = config
        self._tiles = tiles_per_view
        self._dtype = dtype
        self._device = device
        self._cache: dict[int, EncodedConversation] = {}
        self._lock = threading.RLock()  # held while the tokenizer is used, which serves one thread at a time

    def encode(self, conversation: Conversation) -> EncodedConversation:
        """The encoding of a conversation that ends with a user message; encodes only what changed since the last call.
        Raises ModelError for any other conversation, and for an image size that the family does not accept."""
        messages = conversation.messages
        if not messages or not messages[-1].shots:
            raise ModelError(f"conversation {conversation.id}: it does not end with a user message that has a view")
        with self._lock:
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
        return self._tokenize(escaped(text.removeprefix(self.chat.opening), self.chat.special_tokens))

    def reply_text(self, tokens: Sequence[int]) -> str:
        """The text of a reply of these ids, behind what the prompt opened it with."""
        with self._lock:
            return self.chat.opening + self._processor.tokenizer.decode(tokens, skip_special_tokens=True)

    def image_inputs(self, turn: EncodedTurn) -> dict[str, torch.Tensor]:
        """The model's inputs for a turn's image, by name; reprocesses the image if they were freed."""
        with self._lock:
            if not turn.inputs:
                if turn.text:
                    made = self._as_stored(encode(self._processor, turn.text, turn.views).inputs)
                elif turn.messages and turn.messages[-1].clip is not None:
                    made = self._encode_video(turn.rendered, turn.messages[-1])[2]
                else:
                    made = self._encode_image(turn.views[0])
                turn.inputs.update(made)
            return turn.inputs

    def text_of(self, conversation: Conversation) -> str:
        """The chat template's text of a conversation, with its replies."""
        return self.chat.render(conversation.messages, whole=True)

    def whole_inputs(self, turns: Sequence[EncodedTurn]) -> dict[str, torch.Tensor]:
        """The model's inputs but the ids, of conversations with one turn each that are encoded whole."""
        with self._lock:
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
        if self.chat.rewrites or self.chat.whole:
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
        first = len(encoded.messages)
        rendered = ""
        ids = list[int]()
        text = ""
        start = 0
        if encoded.turns:
            rendered = encoded.turns[-1].rendered
            start = int(encoded.turns[-1].positions.max()) + 1
        for end in range(first + 1, len(messages) + 1):  # with several questions if views are no longer shown
            if messages[end - 1].role == "user":
                earlier = rendered
                rendered = self.chat.render(messages[:end])
                ids = ids + self._tokenize(text)
                text = rendered
                if earlier:
                    ids += list(messages[end - 2].tokens) or self.reply_ids(messages[end - 2].text)
                    text = self.chat.text_after(earlier, rendered)
        return self._turns(messages[first:], rendered, ids, text, start)

    def _encode_all(self, messages: Sequence[Message], before: Sequence[EncodedTurn]) -> list[EncodedTurn]:
        """The turns of all messages as the chat template renders them; the unchanged ones of `before` are kept."""
        rendered = self.chat.render(messages, whole=True)
        return self._turns(messages, rendered, [], rendered, 0, before)

    def _turns(
        self,
        messages: Sequence[Message],
        rendered: str,
        ids: list[int],
        text: str,
        start: int,
        earlier: Sequence[EncodedTurn] = (),
    ) -> list[EncodedTurn]:
        """One turn per view of `messages`, from position `start`: `ids`, then those of `text`."""
        if messages[-1].clip is not None:
            ids, positions, video = self._encode_video(rendered, messages[-1])
            places = [place for place, id in enumerate(ids) if id == self._config.video_token_id]
            first = places[0]
            end = places[-1] + 1
            frame = messages[-1].shots[0].image
            return [EncodedTurn(tuple(messages), rendered, ids, positions, (frame,), video, first, end)]
        if self._family.by_processor:
            return [self._turn_of_processor(messages, rendered, ids, text, start)]
        views = [shot.image for message in messages for shot in message.shots]
        turns = list[EncodedTurn]()
        added = self._tokenize(text)
        image_id = self._config.image_token_id
        if added.count(image_id) < len(views):
            raise ModelError(
                f"the checkpoint's chat template shows {added.count(image_id)} of {counted(len(views), 'view')} as the "
                f"image token {image_id} of its configuration: take it, and the tokenizer, from the same model"
            )
        for number, (view, before) in enumerate(zip_longest(views, earlier[: len(views)])):
            at = added.index(image_id)
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
                turn = EncodedTurn(of, rendered, ids, positions, (view,), image, image_start, image_end)
            turns.append(turn)
            ids = []
            start = int(turn.positions.max()) + 1
        return turns

    def _turn_of_processor(
        self, messages: Sequence[Message], rendered: str, ids: list[int], text: str, start: int
    ) -> EncodedTurn:
        views = tuple(shot.image for message in messages for shot in message.shots)
        made = encode(self._processor, text, views)
        places = [place for place, id in enumerate(made.ids, len(ids)) if id in self.chat.image_ids]
        if not places:
            raise ModelError(
                f"the checkpoint's processor writes none of the image tokens {sorted(self.chat.image_ids)} of its "
                "configuration: take both from the same checkpoint"
            )
        own_positions = self.chat.own_positions
        own = torch.arange(len(made.ids))[None] if own_positions is None else own_positions(made)
        positions = torch.cat([torch.arange(len(ids)).expand(len(own), -1), own + len(ids)], dim=1) + start
        keeps_inputs = self.keeps_pixels and not self.chat.whole
        return EncodedTurn(
            messages=tuple(messages),
            rendered=rendered,
            ids=[*ids, *made.ids],
            positions=positions,
            views=views,
            inputs=self._as_stored(made.inputs) if keeps_inputs else {},
            image_start=places[0],
            image_end=places[-1] + 1,
            text=text,
        )

    def _encode_beside(self, conversation: Conversation, origin: EncodedConversation) -> EncodedConversation:
        """The encoding of an alternative: its origin's with another text behind the last image, which is not kept."""
        if self.chat.rewrites or self.chat.whole:
            turns = self._encode_all(conversation.messages, origin.turns)
            cached_origin = None if self.chat.whole else origin
            return EncodedConversation(conversation.id, conversation.key, turns, cached_origin)
        *before, last = origin.turns
        if self._family.by_processor:
            encoded = EncodedConversation(conversation.id, conversation.key, before, origin)
            encoded.turns = [*before, *self._encode_messages(encoded, conversation.messages)]
            return encoded
        rendered = self.chat.render(conversation.messages)
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

    def _tokenize(self, text: str) -> list[int]:
        return self._processor.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _encode_video(self, rendered: str, user: Message) -> EncodedVideo:
        """The whole text of a conversation whose only user message shows a video; raises ModelError."""
        assert user.clip is not None, "a message with a video has a clip"
        if self._family.video is None or not self.chat.sees_videos:
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
        return {name: value.to(self._dtype) if value.is_floating_point() else value for name, value in inputs.items()}

    def _encode_image(self, pixels: np.ndarray) -> dict[str, torch.Tensor]:
        image = Image.fromarray(np.ascontiguousarray(pixels))
        if reason := self._family.why_not(image.width, image.height):
            raise ModelError(reason, setting="image_size")
        device = self._device if self._family.keeps_sizes else None  # devices resize with other rounding
        return self._as_stored(self._family.process(self._processor, image, self._tiles, device))
