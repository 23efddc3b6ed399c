"""Log-probabilities of generated tokens are those of a forward pass, whatever the batch, cache and decoding steps."""

import json

import numpy as np
import pytest
import torch
from conftest import RoomScans, traced
from transformers import AutoModelForImageTextToText, AutoProcessor
from untrained_checkpoints import write_untrained_checkpoint

from roomscout import explore
from roomscout.agent.policies.replies import action_format
from roomscout.data.questions import load_questions
from roomscout.models import ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.encoding import ConversationEncoder

TOKENS = 10
ACTION = action_format()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A model and its processor. Every eighth token is an end token, so that rows end at different lengths."""
    folder = write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny")
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] += range(0, 860, 8)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def backend_of(parts, **options) -> TransformersBackend:
    return TransformersBackend(*parts, ModelOptions(max_new_tokens=TOKENS, **{"logprobs": True, **options}))


def begin(number: int) -> Conversation:
    view = np.random.default_rng(number).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    asked = Message.of_views("Where is the door? " * (9 * number + 1), view)
    return Conversation(f"q{number}", [Message("system", "You are inside the 3D scan of a room."), asked])


def proceed(conversation: Conversation, reply) -> None:
    conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
    conversation.append(Message.of_views("You moved 0.5 m.", conversation.images[-1][:, ::-1].copy()))


@torch.inference_mode()
def expected(parts, conversation: Conversation, reply) -> list[float]:
    """The log-probabilities of a reply's tokens from one forward pass of the whole conversation by transformers."""
    model, processor = parts
    encoder = ConversationEncoder(processor, model.config, model.dtype)
    encoded = encoder.encode(conversation)
    ids = torch.tensor([[*encoded.ids, *reply.tokens]])
    images = [encoder.image_inputs(turn) for turn in encoded.turns]
    kinds = (ids == model.config.image_token_id).int()
    inputs = {name: torch.cat([each[name] for each in images]) for name in images[0]}
    logits = model(input_ids=ids, mm_token_type_ids=kinds, **inputs).logits[0, len(encoded.ids) - 1 : -1]
    return logits.log_softmax(dim=1).gather(1, torch.tensor(reply.tokens)[:, None])[:, 0].tolist()


@pytest.mark.parametrize(
    "options",
    [{}, {"kv_reuse": False}, {"compile": True, "temperature": 3.0}],
    ids=lambda options: " ".join(options) or "default",
)
def test_they_equal_a_forward_pass_on_all_turns(parts, options: dict):
    backend = backend_of(parts, **{name: value for name, value in options.items() if name != "compile"})
    if "compile" in options:
        traced(backend)
    conversations, lengths = [begin(n) for n in range(3)], set()
    for turn in range(3):
        replies = backend.generate(conversations, ACTION)
        for conversation, reply in zip(conversations, replies, strict=True):
            assert reply.logprobs == pytest.approx(expected(parts, conversation, reply), abs=1e-4)
            assert (reply.reused_tokens > 0) == (turn > 0 and options.get("kv_reuse", True))
            lengths.add(len(reply.logprobs))
            proceed(conversation, reply)
    assert len(lengths) > 1, "rows must end at different lengths"


def test_they_do_not_change_the_tokens_and_are_off_by_default(parts):
    (on,) = backend_of(parts).generate([begin(0)], ACTION)
    (off,) = TransformersBackend(*parts, ModelOptions(max_new_tokens=TOKENS)).generate([begin(0)], ACTION)
    assert (off.tokens, off.logprobs) == (on.tokens, ())


def test_a_run_records_them_on_demand(rooms: RoomScans):
    question = load_questions(rooms.questions)[0]
    (run,) = explore([question], scan_root=rooms.root, model="embedded", steps=0, logprobs=True, progress=False)
    reply = run.turns[0].reply
    assert len(reply.logprobs) == len(reply.tokens) > 0 and all(each <= 0 for each in reply.logprobs)
