"""A backend around a model that the caller has loaded, and may be training."""

import numpy as np
import pytest
import torch
from conftest import RoomScans
from transformers import AutoModelForImageTextToText, AutoProcessor
from untrained_checkpoints import write_untrained_checkpoint

from roomscout import Trajectory, ask, load_policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.models import EXPLORER, ModelError, ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend

ACTION = action_format()
OPTIONS = ModelOptions(max_new_tokens=10)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    return str(write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def model(checkpoint: str):
    return AutoModelForImageTextToText.from_pretrained(checkpoint)


@pytest.fixture
def processor(checkpoint: str):
    return AutoProcessor.from_pretrained(checkpoint)


def begin(number: int, words: int = 5) -> Conversation:
    view = np.random.default_rng(number).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    asked = Message.of_views("Where is the door? " * words, view)
    return Conversation(f"q{number}", [Message("system", "You are inside the 3D scan of a room."), asked])


def proceed(conversation: Conversation, reply) -> None:
    conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
    conversation.append(Message.of_views("You moved 0.5 m.", conversation.images[-1][:, ::-1].copy()))


def tokens(replies) -> list[tuple[int, ...]]:
    return [reply.tokens for reply in replies]


def train_a_little(model) -> None:
    """One step of an optimizer, which changes all weights in place."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loss = model(input_ids=torch.randint(10, 900, (1, 20))).logits.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


class TestReplies:
    def test_equal_those_of_the_checkpoint(self, checkpoint: str, model, processor):
        conversations = [begin(n, 3 * n + 1) for n in range(3)]
        loaded = TransformersBackend.from_checkpoint(checkpoint, ModelOptions(device="cpu", max_new_tokens=10))
        given = TransformersBackend(model, processor, OPTIONS)
        for _ in range(2):
            replies = given.generate(conversations, ACTION)
            assert tokens(replies) == tokens(loaded.generate(conversations, ACTION))
            for conversation, reply in zip(conversations, replies, strict=True):
                proceed(conversation, reply)

    def test_do_not_depend_on_the_models_state(self, model, processor):
        expected = tokens(TransformersBackend(model, processor, OPTIONS).generate([begin(0), begin(1, 9)], ACTION))
        model.train()
        model.set_attn_implementation("eager")
        model.generation_config.update(do_sample=True, temperature=9.0, repetition_penalty=5.0, max_new_tokens=2)
        processor.tokenizer.padding_side = "right"
        given = TransformersBackend(model, processor, OPTIONS)
        assert tokens(given.generate([begin(0), begin(1, 9)], ACTION)) == expected

    def test_follow_weights_that_change_between_turns(self, model, processor):
        """Conversations in progress too, once all are released."""
        backend = TransformersBackend(model, processor, ModelOptions(max_new_tokens=10))
        conversation = begin(0)
        proceed(conversation, backend.generate([conversation], ACTION)[0])
        before = tokens(backend.generate([conversation], ACTION))
        train_a_little(model)
        backend.release_all()
        (reply,) = backend.generate([conversation], ACTION)
        assert reply.reused_tokens == 0
        fresh = TransformersBackend(model, processor, ModelOptions(max_new_tokens=10, kv_reuse=False))
        assert [reply.tokens] == tokens(fresh.generate([conversation], ACTION)) != before

    def test_reuse_keys_and_values_again_after_a_release(self, model, processor):
        backend = TransformersBackend(model, processor, OPTIONS)
        conversation = begin(0)
        backend.generate([conversation], ACTION)
        backend.release_all()
        proceed(conversation, backend.generate([conversation], ACTION)[0])
        assert backend.generate([conversation], ACTION)[0].reused_tokens > 0


class TestTheCallersModel:
    def test_is_as_before_after_a_call(self, model, processor):
        model.train()
        model.model.visual.eval()
        model.generation_config.temperature = 0.5

        def state():
            flags = torch.backends.cudnn.allow_tf32, torch.backends.cuda.cudnn_sdp_enabled()
            modes = [module.training for module in model.modules()]
            own = model.generation_config.to_dict()
            return flags, modes, own, model.dtype, model.config.get_text_config()._attn_implementation

        before = state()
        TransformersBackend(model, processor, OPTIONS).generate([begin(0)], ACTION)
        assert state() == before


class TestName:
    def test_is_the_models_path_unless_given(self, checkpoint: str, model, processor):
        assert TransformersBackend(model, processor).name == checkpoint
        assert TransformersBackend(model, processor, name="step 100").name == "step 100"


class TestRefused:
    def test_settings_that_only_loading_applies(self, model, processor):
        with pytest.raises(ModelError, match="dtype, device cannot be set for a loaded model"):
            TransformersBackend(model, processor, ModelOptions(dtype="bfloat16", device="cpu"))

    def test_compiled_steps_on_a_cpu(self, model, processor):
        with pytest.raises(ModelError, match="only for CUDA: on the cpu, runs with compiled steps take longer"):
            TransformersBackend(model, processor, ModelOptions(compile=True))


class TestFromPython:
    @pytest.fixture
    def explorer(self):
        model = AutoModelForImageTextToText.from_pretrained(EXPLORER, dtype="float32")
        return model, AutoProcessor.from_pretrained(EXPLORER)

    @staticmethod
    def asked(rooms: RoomScans, **settings) -> list:
        scan = min(rooms.root.rglob("*.ply"))
        found = ask(scan, "How many chair(s) are in this room?", ground_truth="2", renderer="raycast", **settings)
        assert isinstance(found, Trajectory) and len(found.turns) > 1
        return [
            found.answer,
            found.status,
            [(turn.pose, turn.reply.text, turn.action, turn.move) for turn in found.turns],
        ]

    @pytest.mark.slow
    def test_a_loaded_model_gives_the_trajectory_of_its_checkpoint(self, rooms: RoomScans, explorer):
        expected = self.asked(rooms, model="embedded", steps=3)
        assert self.asked(rooms, policy=load_policy(*explorer), steps=3) == expected
        assert self.asked(rooms, policy=ModelPolicy(TransformersBackend(*explorer)), steps=3) == expected

    def test_its_settings_are_recorded(self, explorer):
        policy = load_policy(*explorer, temperature=0.5)
        assert (policy.name, policy.settings["temperature"]) == (str(EXPLORER), 0.5)
