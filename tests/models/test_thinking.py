"""Thinking checkpoints, by Qwen3.5's template: turns equal to the library's own, and drafts in thoughts never count."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from other_checkpoints import trl_template
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
from untrained_checkpoints import write_untrained_family

from roomscout.agent.policies.replies import action_format, parse_action
from roomscout.models import ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.decoding import require_xgrammar, with_thought
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.families.family import Family
from roomscout.models.transformers.families.llava_onevision import LLAVA_ONEVISION
from tests.conftest import vsi_question

ACTION = action_format()
CHOICE = vsi_question("1", "scannet", "s", "object_rel_direction_medium", "Where?", ("A. left", "B. right"), "A")
TOKENS = 8
pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES = {
    "qwen3_vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "internvl": "<IMG_CONTEXT>\\n",
    "llava_onevision": "<image>",
}
"""What stands for an image in the templates of the families."""
KINDS = ("qwen3_vl", "qwen2_5_vl", "internvl", "llava_onevision")
REPLIES = (
    '<think>\nI see a chair. Maybe {"answer": "A", "done": true}\n</think>\n\nI turn. {"rotation_angle_degrees": 40}',
    '<think>\nNothing new.\n</think>\n\n{"forward_meters": 1}',
    "<think>\nThis thought is not closed, because it was too",
    "Without any thought.",
    '<think>\nOne </think> and\n</think>\n\n\n{"answer": "B", "done": true} ',
)
"""Replies as this package has them: with the opening tag, which is in the prompt."""


@dataclass(frozen=True)
class Thinker:
    """A tiny checkpoint of a family with the template of a Thinking one."""

    path: Path
    family: Family

    def backend(self, **options) -> TransformersBackend:
        values = {"device": "cpu", "max_new_tokens": TOKENS} | options
        return TransformersBackend.from_checkpoint(str(self.path), ModelOptions(**values))

    def encoder(self) -> ConversationEncoder:
        return ConversationEncoder(AutoProcessor.from_pretrained(self.path), AutoConfig.from_pretrained(self.path))

    def own_ids(self, conversation: Conversation) -> list[int]:
        """The ids of a conversation by the library alone, with none of this package's code."""
        processor = AutoProcessor.from_pretrained(self.path)
        options = {"crop_to_patches": False} if self.family.tiled else {}
        options |= {"do_resize": False} if self.family.keeps_sizes else {}
        chat = []
        for message in conversation.messages:
            image = [{"type": "image"}] * len(message.shots)
            chat.append({"role": message.role, "content": [*image, {"type": "text", "text": message.text}]})
        text = processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        images = [[Image.fromarray(image) for image in conversation.images]]
        return processor(text=[text], images=images, return_tensors="pt", **options)["input_ids"][0].tolist()

    def view(self, number: int) -> np.ndarray:
        side = 28 if self.family.name == "Qwen2.5-VL" else 32
        size = (2 * side, (2 + number % 2) * side, 3)
        return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)

    def begin(self, name: str = "q", text: str = "Where is the door?") -> Conversation:
        conversation = Conversation(name)
        conversation.append(Message("system", "You are inside the 3D scan of a room."))
        conversation.append(Message.of_views(text, self.view(ord(name[-1]))))
        return conversation

    def proceed(self, conversation: Conversation, text: str, tokens: tuple[int, ...] = ()) -> None:
        conversation.append(Message("assistant", text, tokens=tokens))
        number = len(conversation.messages)
        conversation.append(Message.of_views(f"You moved {number} m.", self.view(number)))


@pytest.fixture(scope="module")
def thinker(request, tmp_path_factory) -> Thinker:
    folder = write_untrained_family(tmp_path_factory.mktemp("models") / "thinking", request.param)
    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.add_tokens(["<think>", "</think>"])  # as in Qwen3's tokenizer, where they are not special
    image = IMAGES.get(request.param, IMAGES["qwen3_vl"])
    processor.chat_template = trl_template("qwen3_5_think").replace(IMAGES["qwen3_vl"], image)
    processor.save_pretrained(folder)
    return Thinker(folder, family_of(AutoConfig.from_pretrained(folder)))


each_kind = pytest.mark.parametrize("thinker", KINDS, indirect=True, scope="module")
qwen = pytest.mark.parametrize("thinker", ["qwen3_vl"], indirect=True, scope="module")


@each_kind
def test_every_turn_is_encoded_as_by_the_librarys_own_template(thinker: Thinker):
    """Over six turns, one after the other with the same encoder and all at once with a new one.

    The library cuts LLaVA-OneVision's first view into tiles until the second one comes; here it never does.
    """
    encoder, conversation = thinker.encoder(), thinker.begin()
    for text in (*REPLIES, None):
        ids = encoder.encode(conversation).ids
        assert ids == thinker.encoder().encode(conversation).ids
        if thinker.family is not LLAVA_ONEVISION or len(conversation.images) > 1:
            assert ids == thinker.own_ids(conversation)
        if text is not None:
            thinker.proceed(conversation, text)


@each_kind
def test_replies_with_reuse_equal_those_without(thinker: Thinker):
    """Greedy, over four turns and two rows: what is before the last thought is reused, and a view encoded once."""
    backend, plain = thinker.backend(), thinker.backend(kv_reuse=False)
    conversations, different = [thinker.begin("q0"), thinker.begin("q1", "Where is the table? " * 5)], set()
    for turn in range(4):
        replies = backend.generate(conversations, ACTION)
        for conversation, reply in zip(conversations, replies, strict=True):
            assert plain.generate([conversation], ACTION)[0].tokens == reply.tokens
            assert reply.text.startswith("<think>\n")
            assert (reply.reused_tokens > 0) == (turn > 0)
            assert reply.images_encoded == 1
            different.add(reply.tokens)
            thinker.proceed(conversation, f"{reply.text}\n</think>\n\nSo {turn}.", reply.tokens)
    assert len(different) > 3  # equal replies would prove nothing


@qwen
def test_positions_equal_the_models(thinker: Thinker):
    model = AutoModelForImageTextToText.from_pretrained(thinker.path)
    encoder, conversation = thinker.encoder(), thinker.begin()
    for text in REPLIES[:3]:
        encoder.encode(conversation)
        thinker.proceed(conversation, text)
    encoded = encoder.encode(conversation)
    ids = torch.tensor([encoded.ids])
    grids = torch.cat([encoder.image_inputs(turn)["image_grid_thw"] for turn in encoded.turns])
    kinds = (ids == model.config.image_token_id).int()
    whole, _ = model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grids)
    assert torch.equal(encoded.positions, whole[:, 0])


@qwen
def test_an_alternative_is_the_conversation_with_the_other_question(thinker: Thinker):
    backend, plain = thinker.backend(), thinker.backend(kv_reuse=False)
    conversation = thinker.begin()
    for text in (REPLIES[0], None):
        reply = backend.generate([conversation], ACTION)[0]
        other = conversation.asking_instead("Answer now.")
        (forced,) = backend.generate([other], ACTION)
        assert forced.tokens == plain.generate([other], ACTION)[0].tokens
        assert forced.prompt_tokens == len(thinker.own_ids(other)) and forced.reused_tokens > 0
        assert backend.generate([conversation], ACTION)[0].tokens == reply.tokens
        if text is not None:
            thinker.proceed(conversation, text)


class TestDrafts:
    """What is in a thought is never the answer, whatever ended the reply."""

    DRAFT = 'I could say {"answer": "A", "done": true} now'

    def parsed(self, thinker: Thinker, generated: str):
        return parse_action(thinker.encoder().chat.opening + generated, CHOICE)

    @qwen
    def test_in_a_closed_thought_are_skipped(self, thinker: Thinker):
        found = self.parsed(thinker, self.DRAFT + '\n</think>\n\n{"answer": "B", "done": true}')
        assert (found.action.answer, found.error) == ("B", None)

    @qwen
    def test_in_a_thought_that_is_not_closed_are_skipped(self, thinker: Thinker):
        found = self.parsed(thinker, self.DRAFT)
        assert found.action.answer is None and found.error == "the reply ended inside its thought"


class TestConstrained:
    """Grammars apply behind the thought."""

    GRAMMAR = action_format(constrained=True).grammar
    OBJECT = (
        '{"rotation_angle_degrees": 1, "forward_meters": 0, "left_meters": 0, "z_delta_meters": 0, "answer": "A", '
        '"done": true}'
    )

    @pytest.mark.parametrize(
        ("generated", "accepted"),
        [
            ("I see <b> << 3 {draft}\n</think>\n\nSo. " + OBJECT, True),
            ("<</think>" + OBJECT, True),
            (OBJECT, False),
            ("Hm.</think>Nothing.", False),
            ("Hm.</thinking>" + OBJECT, False),
        ],
    )
    def test_a_reply_is_complete_only_behind_its_thought(self, generated: str, accepted: bool):
        xgrammar = require_xgrammar()
        grammar = xgrammar.Grammar.from_ebnf(with_thought(self.GRAMMAR, "<think>\n"))
        assert xgrammar.testing._is_grammar_accept_string(grammar, generated) == accepted
