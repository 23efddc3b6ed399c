"""Hybrid models, whose layers keep states: a turn computes what is new, and replies are those of re-encoding."""

from pathlib import Path

import numpy as np
import pytest
from other_checkpoints import OTHERS, trl_template, write_other
from transformers import AutoProcessor
from untrained_checkpoints import write_untrained_family

from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelOptions, OutOfMemory
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend

ACTION = action_format()
TURNS = 15
KINDS = ("qwen3_5", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("lfm2_vl",)))
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=KINDS)
def checkpoint(request, tmp_path_factory) -> str:
    write = write_other if request.param in OTHERS else write_untrained_family
    return str(write(tmp_path_factory.mktemp("models") / request.param, request.param))


def backend_of(checkpoint: str, **options) -> TransformersBackend:
    options = {"device": "cpu", "max_new_tokens": 6, "logprobs": True, **options}
    return TransformersBackend.from_checkpoint(checkpoint, ModelOptions(**options))


def begin(number: int, words: int = 3) -> Conversation:
    conversation = Conversation(f"q{number}", [Message("system", "You are inside the 3D scan of a room.")])
    ask(conversation, "Where is the door? " * words)
    return conversation


def ask(conversation: Conversation, text: str) -> None:
    draw = np.random.default_rng([len(conversation.messages), *conversation.id.encode()])
    conversation.append(Message.of_views(text, draw.integers(0, 256, (128, 192, 3), dtype=np.uint8)))


def proceed(conversation: Conversation, reply) -> None:
    conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
    ask(conversation, "You moved 0.5 m. " * (1 + len(reply.tokens) % 2))


def tokens_of(replies) -> list[tuple[int, ...]]:
    return [reply.tokens for reply in replies]


def assert_equal(replies, expected) -> None:
    """Equal tokens, which are as likely: a state that is a little off changes that first."""
    assert tokens_of(replies) == tokens_of(expected)
    for reply, other in zip(replies, expected, strict=True):
        assert reply.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_fifteen_turns_compute_little_more_than_one_pass(checkpoint: str):
    """In a batch of unlike lengths, where one question ends and another begins; also with alternatives."""
    for anytime in (False, True):
        turns = TURNS if checkpoint.endswith("qwen3_5") and not anytime else 6
        backend, plain = backend_of(checkpoint), backend_of(checkpoint, kv_reuse=False)
        conversations, computed, different = [begin(0), begin(1, 9), begin(2, 5)], 0, set()
        for turn in range(turns):
            replies = backend.generate(conversations, ACTION)
            alternatives = [each.asking_instead("Answer now.") for each in conversations if anytime]
            forced = backend.generate(alternatives, ACTION)
            if turn in (1, turns - 1):
                assert_equal(replies, [plain.generate([each], ACTION)[0] for each in conversations])
                assert_equal(forced, plain.generate(alternatives, ACTION))
            computed += replies[0].prompt_tokens - replies[0].reused_tokens
            different |= {*tokens_of(replies), *tokens_of(forced)}
            if turn < turns - 1:
                for conversation, reply in zip(conversations, replies, strict=True):
                    proceed(conversation, reply)
            if turn == 3:
                backend.release(conversations.pop())
                conversations.append(begin(7, 12))
        assert computed < (1.4 if anytime else 1.2) * replies[0].prompt_tokens
        assert not forced or forced[0].images_encoded == 0
        assert len(different) > 3  # equal replies would prove nothing


def test_evicted_and_resumed_conversations_reply_the_same(checkpoint: str):
    conversations = [begin(0), begin(1, 9)]
    undisturbed = backend_of(checkpoint)
    small = backend_of(checkpoint, kv_cache_bytes=1)
    for _ in range(3):
        expected = undisturbed.generate(conversations, ACTION)
        evicting = small.generate(conversations, ACTION)
        assert_equal(evicting, expected)
        assert [reply.reused_tokens for reply in evicting] == [0, 0]
        for conversation, reply in zip(conversations, expected, strict=True):
            proceed(conversation, reply)
    resumed = [Conversation(each.id, each.messages) for each in conversations]
    assert_equal(undisturbed.generate(resumed, ACTION), undisturbed.generate(conversations, ACTION))


def test_a_template_that_rewrites_turns_reuses_what_is_before_its_last_image(tmp_path: Path):
    folder = write_untrained_family(tmp_path / "tiny", "qwen3_5")
    processor = AutoProcessor.from_pretrained(folder)
    processor.chat_template = trl_template("qwen3_5_think").replace("enable_thinking", "never_set")  # it always thinks
    processor.save_pretrained(folder)
    backend, plain = backend_of(str(folder)), backend_of(str(folder), kv_reuse=False)
    conversations, reused = [begin(0), begin(1, 9)], []
    for _ in range(3):
        replies = backend.generate(conversations, ACTION)
        assert_equal(replies, plain.generate(conversations, ACTION))
        reused.append([reply.reused_tokens > 0 for reply in replies])
        for conversation, reply in zip(conversations, replies, strict=True):
            conversation.append(Message("assistant", f"{reply.text}\n</think>\n\nI turn.", tokens=reply.tokens))
            ask(conversation, "You moved.")
    assert reused == [[False, False], [True, True], [True, True]]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OutOfMemory])
def test_a_call_that_ends_in_the_middle_leaves_the_states_as_they_were(checkpoint: str, error: type[BaseException]):
    """Interrupted in its prefill and in a decoding step, then asked again."""
    backend, plain = backend_of(checkpoint), backend_of(checkpoint, kv_reuse=False)
    conversations = [begin(0), begin(1, 9)]
    for conversation, reply in zip(conversations, backend.generate(conversations, ACTION), strict=True):
        proceed(conversation, reply)
    for passes in (2, 5):
        left = passes

        def stop(*args):
            nonlocal left
            left -= 1
            if not left:
                raise error("now")

        hook = backend._runner._model.get_output_embeddings().register_forward_hook(stop)
        with pytest.raises(error):
            backend.generate(conversations, ACTION)
        hook.remove()
        replies = backend.generate(conversations, ACTION)
        assert_equal(replies, plain.generate(conversations, ACTION))
        assert all(reply.reused_tokens for reply in replies)
        for conversation, reply in zip(conversations, replies, strict=True):
            proceed(conversation, reply)
