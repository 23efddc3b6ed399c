"""Encodes conversations as token ids, positions and image patches, each message once; needs no weights."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from roomscout.base.wording import named
from roomscout.models import ModelError
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.families import family_of, require_tiles
from roomscout.models.transformers.families.family import EncodedVideo

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, ProcessorMixin

# Stands for earlier replies when the chat template is rendered: their ids are known and must not be re-tokenized.
_REPLY = "reply"


@dataclass
class EncodedImage:
    """The model's inputs for one image, by name. Set to None to free them; the image is reprocessed on demand."""

    inputs: dict[str, torch.Tensor] | None


@dataclass(frozen=True)
class EncodedTurn:
    """The encoding of one user message and the message before it (system or reply), if there is one.

    A user message with several views has one for each view, up to the next one; `messages` has the two messages in the
    first, and is empty in the others. `rendered` is the chat template's text of the whole conversation so far.
    `positions` are (position_axes, len(ids)), as the model's family defines them. `view` is (H, W, 3) uint8, and the
    image's placeholders are `ids[image_start:image_end]`.
    """

    messages: tuple[Message, ...]
    rendered: str
    ids: list[int]
    positions: torch.Tensor
    view: np.ndarray
    image: EncodedImage
    image_start: int
    image_end: int


@dataclass
class EncodedConversation:
    """The encoding of a conversation up to its last user message; grows with the conversation.

    `id` and `key` are the conversation's, and `origin` is the encoding of its origin, None if it has none.
    """

    id: str
    key: int
    turns: list[EncodedTurn] = field(default_factory=list)
    origin: "EncodedConversation | None" = None

    @property
    def ids(self) -> list[int]:
        """The token ids of the whole conversation."""
        return list(chain.from_iterable(turn.ids for turn in self.turns))

    @property
    def positions(self) -> torch.Tensor:
        """The positions of all ids, (position_axes, len(ids))."""
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
    the next reply. Replies enter as their generated ids. So each turn's ids extend those of the turn before, and cached
    keys and values stay valid.

    Pixels are stored as `dtype`, usually that of the weights; None keeps the processor's. `prepare(image, patch size)`
    is called for families that use qwen-vl-utils. `tiles_per_view` is the maximum number of tiles per view. Raises
    ModelError for a chat template that rewrites earlier turns, and for several tiles if the family has none.
    """

    def __init__(
        self,
        processor: "ProcessorMixin",
        config: "PreTrainedConfig",
        dtype: torch.dtype | None = None,
        prepare: Callable[[Image.Image, int], Image.Image] = prepare_image,
        tiles_per_view: int = 1,
    ) -> None:
        self._processor = processor
        self._config = config
        self._family = family_of(config)
        require_tiles(self._family, tiles_per_view)
        self._tiles = tiles_per_view
        self._dtype = dtype
        self._prepare = prepare
        self._added_tokens = _added_tokens_pattern(processor.tokenizer.get_added_vocab())
        self._cache: dict[int, EncodedConversation] = {}
        question = Message("user", "")
        chat = [Message("system", ""), question, Message("assistant", ""), question]
        self._text_after(self._render(chat[:2]), self._render(chat))

    def encode(self, conversation: Conversation) -> EncodedConversation:
        """The encoding of a conversation that ends with a user message; encodes only new messages.

        Raises ModelError for any other conversation, and for an image size that the family does not accept.
        """
        messages = conversation.messages
        if not messages or messages[-1].role != "user":
            raise ModelError(f"conversation {conversation.id}: it does not end with a user message")
        if conversation.origin is not None:
            return self._encode_alternative(conversation, self.encode(conversation.origin))
        encoded = self._cache.get(conversation.key)
        if encoded is None or not _same_objects(encoded.messages, messages[: len(encoded.messages)]):
            encoded = self._cache[conversation.key] = EncodedConversation(conversation.id, conversation.key)
        first = 2 if encoded.messages or messages[0].role != "user" else 1
        for end in range(len(encoded.messages) + first, len(messages) + 1, 2):
            try:
                encoded.turns += self._encode_message(encoded, messages[:end])
            except ModelError as error:
                raise ModelError(f"conversation {conversation.id}: {error}") from error
        return encoded

    def reply_ids(self, text: str) -> list[int]:
        """The ids with which the text of a reply enters if those that were generated are not known."""
        return self._tokenize(self._escape_added_tokens(text))

    def image_inputs(self, turn: EncodedTurn) -> dict[str, torch.Tensor]:
        """The model's inputs for a turn's image, by name; reprocesses the image if they were freed."""
        if turn.image.inputs is None:
            user = turn.messages[-1] if turn.messages else None
            if user is not None and user.clip is not None:
                turn.image.inputs = self._encode_video(turn.rendered, user)[2]
            else:
                turn.image.inputs = self._encode_image(turn.view)
        return turn.image.inputs

    def release(self, key: int) -> None:
        """Free the encoding of the conversation with this key; unknown ones are ignored."""
        self._cache.pop(key, None)

    def release_all(self) -> None:
        """Free the encodings of all conversations."""
        self._cache.clear()

    def _encode_message(self, encoded: EncodedConversation, messages: Sequence[Message]) -> list[EncodedTurn]:
        """The next turns of `encoded`, one per view; `messages` is the conversation up to the user message to add."""
        before, user = messages[-2] if messages[1:] else None, messages[-1]
        rendered = self._render(messages)
        if user.clip is not None:
            ids, positions, video = self._encode_video(rendered, user)
            places = [place for place, id in enumerate(ids) if id == self._config.video_token_id]
            first, end, shown = places[0], places[-1] + 1, user.shots[0].image
            return [EncodedTurn(tuple(messages), rendered, ids, positions, shown, EncodedImage(video), first, end)]
        if not encoded.turns:
            ids, text, start = list[int](), rendered, 0
        else:
            assert before is not None, "a reply is between two messages of the user"
            last = encoded.turns[-1]
            ids = list(before.tokens) or self.reply_ids(before.text)
            text = self._text_after(last.rendered, rendered)
            start = int(last.positions.max()) + 1
        added = self._tokenize(text)
        turns: list[EncodedTurn] = []
        for count, view in enumerate((each.image for each in user.shots), start=1):
            image = self._encode_image(view)
            at = added.index(self._config.image_token_id)
            ids += added[:at]
            image_start, added = len(ids), added[at + 1 :]
            ids += self._family.placeholders(self._processor, self._config, image)
            image_end = len(ids)
            ids += added if count == len(user.shots) else []
            positions = self._family.positions(self._config, ids, image) + start
            of = () if turns else tuple(filter(None, (before, user)))
            turns.append(EncodedTurn(of, rendered, ids, positions, view, EncodedImage(image), image_start, image_end))
            ids, start = [], int(positions.max()) + 1
        return turns

    def _encode_alternative(self, conversation: Conversation, origin: EncodedConversation) -> EncodedConversation:
        """The encoding of an alternative: its origin's with another text behind the last image, which is not kept."""
        begins = max(place for place, turn in enumerate(origin.turns) if turn.messages)
        before, (*shared_turns, last) = origin.turns[:begins], origin.turns[begins:]
        rendered = self._render(conversation.messages)
        text = self._text_after(before[-1].rendered, rendered) if before else rendered
        added = self._tokenize(text)
        behind = added[len(added) - added[::-1].index(self._config.image_token_id) :]
        shared = last.positions[:, : last.image_end]
        positions = torch.arange(len(behind)) + shared.max() + 1  # in every family, those of text after an image
        turn = replace(
            last,
            messages=tuple(conversation.messages[-2:]) if last.messages else (),
            rendered=rendered,
            ids=[*last.ids[: last.image_end], *behind],
            positions=torch.cat([shared, positions.expand(len(shared), -1)], dim=1),
        )
        return EncodedConversation(conversation.id, conversation.key, [*before, *shared_turns, turn], origin)

    def _render(self, messages: Sequence[Message]) -> str:
        """The chat template's text of messages that end with a user message, each reply replaced by _REPLY."""
        chat = []
        for message in messages:
            image = [{"type": "image"}] * (max(1, len(message.shots)) if message.role == "user" else 0)
            image = image if message.clip is None else [{"type": "video"}]
            text = _REPLY if message.role == "assistant" else self._escape_added_tokens(message.text)
            chat.append({"role": message.role, "content": [*image, {"type": "text", "text": text}]})
        options = self._family.chat_options
        return self._processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **options)

    def _text_after(self, before: str, rendered: str) -> str:
        """What `rendered` adds after the text `before` it and the reply.

        Templates may put different whitespace before an earlier reply than before the next one.
        """
        before = before.removesuffix(self._family.reply_opening).rstrip()
        reply_and_rest = rendered.removeprefix(before).lstrip()
        if not rendered.startswith(before) or not reply_and_rest.startswith(_REPLY):
            raise ModelError(
                "the checkpoint's chat template rewrites earlier turns (as in Thinking checkpoints), but turns can "
                "only be appended: use an Instruct checkpoint"
            )
        return reply_and_rest.removeprefix(_REPLY)

    def _escape_added_tokens(self, text: str) -> str:
        """Insert a space into every occurrence of an added token, so that text cannot inject one."""
        while match := self._added_tokens.search(text):
            split = match.start() + 1
            text = f"{text[:split]} {text[split:]}"
        return text

    def _tokenize(self, text: str) -> list[int]:
        return self._processor.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _encode_video(self, rendered: str, user: Message) -> EncodedVideo:
        """The whole text of a conversation whose only user message shows a video; raises ModelError."""
        assert user.clip is not None, "a message with a video has a clip"
        if self._family.video is None:
            raise ModelError(f"{self._family.name} sees no videos: use {named(video_input='frames')}")
        frames = [shot.image for shot in user.shots]
        ids, positions, inputs = self._family.video(self._processor, self._config, rendered, frames, user.clip)
        return ids, positions, self._as_stored(inputs)

    def _as_stored(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Inputs in the dtype of the weights; lossless, since the image encoder casts pixels to its own first."""
        if self._dtype is None:
            return inputs
        return {name: each.to(self._dtype) if each.is_floating_point() else each for name, each in inputs.items()}

    def _encode_image(self, pixels: np.ndarray) -> dict[str, torch.Tensor]:
        image = Image.fromarray(np.ascontiguousarray(pixels))
        reason = self._family.why_not(image.width, image.height)
        if reason:
            raise ModelError(f"{reason} ({named('image_size')})")
        if self._family.qwen_vl_utils:
            image = self._prepare(image, self._processor.image_processor.patch_size)
        return self._as_stored(self._family.process(self._processor, image, self._tiles))


def _same_objects(known: Sequence[Message], messages: Sequence[Message]) -> bool:
    return len(known) == len(messages) and all(a is b for a, b in zip(known, messages, strict=True))


def _added_tokens_pattern(added: dict[str, int]) -> re.Pattern[str]:
    """Matches every added token (special or not) of at least two characters, which a space can split."""
    longest_first = sorted((token for token in added if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
