"""Every model family, on tiny checkpoints of the real classes: batches, KV reuse, view sizes, memory and plans."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from conftest import RoomScans, results, run_in_process, traced
from PIL import Image
from planned import memory_plan
from transformers import AutoConfig, AutoProcessor
from untrained_checkpoints import UNTRAINED, write_untrained_family

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelError, ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.attention import current_call
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.families import FAMILIES, family_of
from roomscout.models.transformers.families.family import Family
from roomscout.models.transformers.footprint import Checkpoint
from roomscout.models.transformers.layers import keeps_states, why_recomputed

ACTION = action_format()
TOKENS = 8
KINDS = [kind for kind in UNTRAINED if kind not in ("qwen3_vl", "qwen3_5_moe")]
KINDS += [pytest.param("qwen3_5_moe", marks=pytest.mark.slow)]
MAIN = ["qwen2_5_vl", "qwen3_5", "internvl", "llava_onevision"]
"""One kind of each family except Qwen3-VL, which other files test."""
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Tiny:
    """A tiny checkpoint and two view sizes for it, (height, width)."""

    kind: str
    path: str
    family: Family
    sizes: tuple[tuple[int, int], tuple[int, int]]

    @property
    def reuses_kv(self) -> bool:
        return why_recomputed(AutoConfig.from_pretrained(self.path)) is None

    @property
    def keeps_states(self) -> bool:
        return keeps_states(AutoConfig.from_pretrained(self.path))

    def backend(self, **options) -> TransformersBackend:
        tiles = 4 if self.family.tiled else 1
        values = {"device": "cpu", "max_new_tokens": TOKENS, "tiles_per_view": tiles, **options}
        return TransformersBackend.from_checkpoint(self.path, ModelOptions(**values))

    def encoder(self, tiles: int = 1) -> ConversationEncoder:
        processor, config = AutoProcessor.from_pretrained(self.path), AutoConfig.from_pretrained(self.path)
        return ConversationEncoder(processor, config, tiles_per_view=tiles)

    def view(self, name: str, turn: int) -> np.ndarray:
        """A view of random pixels; the two sizes alternate, and differ in tiles if the family has tiles."""
        draw = np.random.default_rng([turn, *name.encode()])
        return draw.integers(0, 256, (*self.sizes[(turn + ord(name[1])) % 2], 3), dtype=np.uint8)

    def begin(self, number: int, words: int = 1) -> Conversation:
        conversation = Conversation(f"q{number}")
        conversation.append(Message("system", "You are inside the 3D scan of a room."))
        conversation.append(Message.of_views("Where is the door? " * words, self.view(conversation.id, 0)))
        return conversation

    def proceed(self, conversation: Conversation, reply) -> None:
        conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
        turn = len(conversation.images)
        conversation.append(Message.of_views("You moved 0.5 m.", self.view(conversation.id, turn)))


@pytest.fixture(scope="module")
def tiny(request, tmp_path_factory) -> Tiny:
    """The checkpoint of the parametrized kind."""
    path = str(write_untrained_family(tmp_path_factory.mktemp("models") / "tiny", request.param))
    side = 28 if request.param.startswith("qwen2") else 32
    family = family_of(AutoConfig.from_pretrained(path))
    return Tiny(request.param, path, family, ((2 * side, 2 * side), (2 * side, 3 * side)))


each_kind = pytest.mark.parametrize("tiny", KINDS, indirect=True, scope="module")
each_family = pytest.mark.parametrize("tiny", MAIN, indirect=True, scope="module")


@each_kind
def test_a_batch_with_reuse_equals_each_row_alone_without(tiny: Tiny):
    """Over several turns, with rows and views of different sizes; a row leaves and another joins."""
    backend, plain = tiny.backend(), tiny.backend(kv_reuse=False)
    conversations, different = [tiny.begin(n, 3 * n + 1) for n in range(3)], set()
    for turn in range(3):
        replies = backend.generate(conversations, ACTION)
        for conversation, reply in zip(conversations, replies, strict=True):
            assert plain.generate([conversation], ACTION)[0].tokens == reply.tokens
            assert (reply.reused_tokens > 0) == (tiny.reuses_kv and len(conversation.images) > 1)
            assert reply.images_encoded == (1 if tiny.reuses_kv else len(conversation.images))
            different.add(reply.tokens)
            tiny.proceed(conversation, reply)
        if turn == 0:
            backend.release(conversations.pop(0))
            conversations.append(tiny.begin(9, 8))
    assert len(different) > 3  # equal replies would prove nothing


@each_kind
def test_conversations_that_show_the_last_views_have_the_same_replies_with_reuse(tiny: Tiny):
    """Equal to those of new conversations without reuse, whose last view is the only new one, in a batch of two."""
    kept = 2
    backend, plain = tiny.backend(), tiny.backend(kv_reuse=False)
    conversations, different = [tiny.begin(0), tiny.begin(1, 9)], set()
    for turn in range(kept + 3):
        shown = [showing_last(each, kept) for each in conversations]
        replies = backend.generate(shown, ACTION)
        for conversation, sent, reply in zip(conversations, shown, replies, strict=True):
            assert len(sent.images) == min(turn, kept) + 1 and sent.views == turn + 1
            fresh = Conversation(sent.id, sent.messages)
            assert plain.generate([fresh], ACTION)[0].tokens == reply.tokens
            other = sent.asking_instead("Answer now.")
            assert backend.generate([other], ACTION)[0].tokens == plain.generate([other], ACTION)[0].tokens
            reuses = tiny.reuses_kv and not (turn > kept and tiny.keeps_states)  # nothing is taken out of a state
            assert (reply.reused_tokens > 0) == (reuses and turn > 0)
            new = 1 if turn <= kept else kept
            assert reply.images_encoded == (new if reuses else len(sent.images))
            different.add(reply.tokens)
            tiny.proceed(conversation, reply)
    assert len(different) > 3  # equal replies would prove nothing


def showing_last(conversation: Conversation, kept: int) -> Conversation:
    """The conversation with a note in place of each view but the first and the last `kept`."""
    messages = list(conversation.messages)
    for turn in range(1, len(conversation.images) - kept):
        messages[1 + 2 * turn] = Message("user", f"Turn {turn}: you moved {turn} m.", hidden=1)
    return conversation.showing(messages)


def own_encoding(tiny: Tiny, conversation: Conversation) -> tuple[list[int], dict[str, torch.Tensor]]:
    """The ids and all inputs of a conversation by the library's template and processor."""
    processor = AutoProcessor.from_pretrained(tiny.path)
    chat = []
    for message in conversation.messages:
        image = [{"type": "image"}] * len(message.shots)
        chat.append({"role": message.role, "content": [*image, {"type": "text", "text": message.text}]})
    options = {"crop_to_patches": False} if tiny.family.tiled else {}
    options |= {"do_resize": False} if tiny.family.keeps_sizes else {}
    text = processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **tiny.family.chat_options)
    images = [[Image.fromarray(image) for image in conversation.images]]
    whole = processor(text=[text], images=images, return_tensors="pt", **options)
    return whole["input_ids"][0].tolist(), whole


def as_text(tiny: Tiny, ids: list[int]) -> str:
    """Ids as text without earlier empty thoughts and without whitespace, where templates differ before replies."""
    text, thought = AutoProcessor.from_pretrained(tiny.path).tokenizer.decode(ids), tiny.family.reply_opening
    text = text.replace(thought, "", text.count(thought) - 1) if thought else text
    return text.translate(str.maketrans("", "", " \n"))


@each_family
class TestEncoding:
    def test_turns_without_their_views_are_encoded_as_by_the_processor(self, tiny: Tiny):
        """The ids of a conversation of five turns that shows three views, replies by their texts."""
        conversation = tiny.begin(0)
        for turn in range(1, 5):
            conversation.append(Message("assistant", f"I see a chair and {turn} tables."))
            conversation.append(Message.of_views("next", tiny.view("q0", turn)))
        encoder = tiny.encoder()
        for kept in (3, 2):
            sent = showing_last(conversation, kept)
            ids, (theirs, whole) = encoder.encode(sent).ids, own_encoding(tiny, sent)
            assert as_text(tiny, ids) == as_text(tiny, theirs)
        pixels = torch.cat([encoder.image_inputs(turn)["pixel_values"] for turn in encoder.encode(sent).turns])
        assert torch.equal(pixels, whole["pixel_values"])

    @pytest.mark.parametrize("at_once", [False, True])
    def test_two_views_are_encoded_as_by_the_processor(self, tiny: Tiny, at_once: bool):
        """Both their pixels and their placeholder tokens."""
        conversation = tiny.begin(0)
        if at_once:
            system, first = conversation.messages
            both = Message.of_views(first.text, first.shots[0].image, tiny.view("q0", 1))
            conversation = Conversation("q0", [system, both])
        else:
            conversation.append(Message("assistant", "I see a chair."))
            conversation.append(Message.of_views("next", tiny.view("q0", 1)))
        encoded, (theirs, whole) = tiny.encoder().encode(conversation), own_encoding(tiny, conversation)
        pixels = torch.cat([turn.inputs["pixel_values"] for turn in encoded.turns])
        assert torch.equal(pixels, whole["pixel_values"])
        image_id = AutoProcessor.from_pretrained(tiny.path).image_token_id
        assert encoded.ids.count(image_id) == theirs.count(image_id)
        assert as_text(tiny, encoded.ids) == as_text(tiny, theirs)

    def test_the_plan_counts_the_tokens_of_a_view(self, tiny: Tiny):
        processor = AutoProcessor.from_pretrained(tiny.path)
        image_ids = {processor.image_token_id, *getattr(processor, "image_token_ids", [])}
        for tiles in (1, 6) if tiny.family.tiled else (1,):
            counted = Checkpoint(tiny.path, "cpu", "float32").footprint(tiles).image_tokens
            for height, width in tiny.sizes:
                conversation = Conversation("q", [Message("system", "rules")])
                conversation.append(Message.of_views("look", np.zeros((height, width, 3), np.uint8)))
                ids = tiny.encoder(tiles).encode(conversation).ids
                assert sum(token in image_ids for token in ids) == counted(width, height)
            small, large = (counted(width, height) for height, width in tiny.sizes)
            assert (small < large) == (tiny.family.keeps_sizes or tiles > 1)


@each_family
class TestMemory:
    def test_a_batch_that_does_not_fit_is_halved_with_the_same_answers(self, tiny: Tiny, rooms: RoomScans, tmp_path):
        changes = {"model": tiny.path, "steps": 1, "num_questions": 3, "batch_size": 3, "image_size": (224, 224)}
        answers = []
        for most, log_root in ((3, tmp_path / "all"), (2, tmp_path / "halved")):
            backend, refused = tiny.backend(), []

            def check(model, args, inputs, most=most, refused=refused):
                rows = len(current_call().starts)
                if rows > most:
                    refused.append(rows)
                    raise torch.OutOfMemoryError("no memory is left")

            backend._runner._model.register_forward_pre_hook(check, with_kwargs=True)
            config = rooms.config(log_root, **changes)
            answers.append(results(run_in_process(config, ModelPolicy(backend))))
            assert bool(refused) == (most == 2)
        assert answers[0] == answers[1]


@pytest.mark.parametrize("tiny", ["internvl"], indirect=True, scope="module")
def test_compiled_steps_give_the_same_replies(tiny: Tiny):
    conversations = [tiny.begin(n, 3 * n + 1) for n in range(2)]
    compiled = traced(tiny.backend()).generate(conversations, ACTION)
    assert [r.tokens for r in compiled] == [r.tokens for r in tiny.backend().generate(conversations, ACTION)]


def test_every_model_type_but_qwen3_vl_moe_has_a_tiny_checkpoint():
    types = {model_type for family in FAMILIES for model_type in family.model_types}
    assert types - {"qwen3_vl_moe"} == {kind.split()[0] for kind in UNTRAINED}


def test_tiles_are_refused_for_families_without_them(rooms: RoomScans, tmp_path):
    folder = write_untrained_family(tmp_path / "tiny", "qwen3_vl")
    words = r"tiles per view are for InternVL3\.5: Qwen3-VL does not split"
    with pytest.raises(ModelError, match=words) as caught:
        TransformersBackend.from_checkpoint(str(folder), ModelOptions(device="cpu", tiles_per_view=4))
    assert caught.value.setting == "tiles_per_view"
    with pytest.raises(ModelError, match=words):  # before any weights are loaded
        memory_plan(rooms.config(tmp_path, model=str(folder), device="cpu", image_size="auto", tiles_per_view=4))
