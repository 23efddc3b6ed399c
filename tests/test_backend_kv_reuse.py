"""Keys and values that live across turns never change a reply, however conversations are grouped or retried."""

import json
import logging
import random
import weakref
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from agent.backends import OutOfMemory, kv_cache
from agent.backends.kv_cache import GrowingLayer
from agent.backends.qwen3vl import Qwen3VLBackend
from agent.backends.untrained import write_untrained_checkpoint
from agent.conversation import Conversation, Message

TOKENS = 10
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An untrained model never ends its replies: here every eighth token does, so that rows end at any length."""
    folder = write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny")
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] += range(0, 860, 8)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return str(folder)


@pytest.fixture(scope="module")
def plain(checkpoint):
    return Qwen3VLBackend(checkpoint, device="cpu", max_new_tokens=TOKENS, kv_reuse=False)


def reusing(checkpoint, **options):
    return Qwen3VLBackend(checkpoint, device="cpu", max_new_tokens=TOKENS, **options)


def begin(number, words=10):
    conversation = Conversation(f"q{number}")
    conversation.append(Message("system", "You are inside the 3D scan of a room."))
    ask(conversation, "Where is the door? " * words)
    return conversation


def ask(conversation, text):
    draw = np.random.default_rng([len(conversation.messages), *conversation.id.encode()])
    size = (64, 64) if len(text) % 2 else (64, 96)
    conversation.append(Message("user", text, draw.integers(0, 256, (*size, 3), dtype=np.uint8)))


def answer(conversation, reply, text="You moved 0.5 m."):
    conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
    ask(conversation, text)


def take_turn(backend, conversations):
    """One lockstep turn; the replies' reused tokens."""
    replies = backend.generate(conversations)
    for conversation, reply in zip(conversations, replies, strict=True):
        answer(conversation, reply)
    return [reply.reused_tokens for reply in replies]


def same_replies(backend, plain, conversations):
    """The backend's replies, after checking that re-encoding gives the same."""
    replies = backend.generate(conversations)
    assert [reply.tokens for reply in replies] == [reply.tokens for reply in plain.generate(conversations)]
    return replies


@contextmanager
def memory_runs_out(backend, when):
    """Makes forward passes fail as on a full device: those for which `when(rows, pass of the call)` holds."""
    passes = 0

    def check(model, args, inputs):
        nonlocal passes
        rows, columns = inputs["input_ids"].shape
        passes = 0 if columns > 1 else passes + 1
        if when(rows, passes):
            raise torch.OutOfMemoryError("no memory is left")

    hook = backend._runner._model.register_forward_pre_hook(check, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def fails_once(monkeypatch, name, behind=0):
    """Makes a function of the cache fail once as on a full device, after `behind` calls that work."""
    working, calls = getattr(kv_cache, name), []

    def failing(*args):
        calls.append(name)
        if len(calls) == behind + 1:
            raise torch.OutOfMemoryError("no memory is left")
        return working(*args)

    monkeypatch.setattr(kv_cache, name, failing)


class TestReuse:
    def test_computes_only_what_is_new(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n, words=3 * n + 1) for n in range(3)]
        first = same_replies(backend, plain, conversations)
        assert [(reply.reused_tokens, reply.images_encoded) for reply in first] == [(0, 1)] * 3
        for conversation, reply in zip(conversations, first, strict=True):
            answer(conversation, reply)
        second = same_replies(backend, plain, conversations)
        for before, after in zip(first, second, strict=True):
            # All of the prompt and the reply, but for a newest token that was never put through the model.
            unseen = before.prompt_tokens + before.generated_tokens - after.reused_tokens
            assert unseen in (0, 1)
        assert [reply.images_encoded for reply in second] == [1] * 3

    def test_goes_on_alone_in_turn(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n, words=3 * n + 1) for n in range(3)]
        take_turn(backend, conversations)
        for conversation in conversations:
            for _ in range(3):
                (reply,) = same_replies(backend, plain, [conversation])
                assert reply.reused_tokens > 0
                answer(conversation, reply)
            backend.release(conversation)

    def test_survives_rows_that_leave_and_rows_that_join(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        backend.release(conversations.pop(1))
        conversations.append(begin(9, words=60))
        replies = same_replies(backend, plain, conversations)
        assert [reply.reused_tokens > 0 for reply in replies] == [True, True, True, False]

    def test_rows_far_behind_are_computed_by_themselves(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(3)]
        for _ in range(3):
            take_turn(backend, conversations)
        backend = reusing(checkpoint)
        take_turn(backend, conversations[:2])
        shapes = []
        backend._runner._model.register_forward_pre_hook(
            lambda model, args, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
        )
        replies = same_replies(backend, plain, conversations)
        alone, together = shapes[:2]
        assert alone[0] == 1 and together[0] == 3
        assert alone[1] + together[1] > replies[2].prompt_tokens > 4 * together[1]

    def test_of_an_equal_conversation_in_other_objects_is_none(self, checkpoint, plain):
        backend = reusing(checkpoint)
        take_turn(backend, [begin(0)])
        (reply,) = same_replies(backend, plain, [begin(0)])
        assert reply.reused_tokens == 0

    def test_of_a_reply_that_was_changed_ends_before_it(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversation = begin(0)
        (reply,) = backend.generate([conversation])
        conversation.append(Message("assistant", "something else altogether"))
        ask(conversation, "next")
        (after,) = same_replies(backend, plain, [conversation])
        assert after.reused_tokens == reply.prompt_tokens

    def test_of_the_same_turn_asked_again_is_all_but_its_last_token(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversation = begin(0)
        (reply,) = backend.generate([conversation])
        (again,) = same_replies(backend, plain, [conversation])
        assert (again.reused_tokens, again.images_encoded) == (reply.prompt_tokens - 1, 0)

    def test_ends_with_the_release(self, checkpoint):
        backend = reusing(checkpoint)
        conversation = begin(0)
        take_turn(backend, [conversation])
        backend.release(conversation)
        backend.release(conversation)
        assert take_turn(backend, [conversation]) == [0]

    def test_can_be_switched_off(self, plain):
        conversation = begin(0)
        take_turn(plain, [conversation])
        assert take_turn(plain, [conversation]) == [0]

    def test_of_a_model_that_keeps_nothing_is_none_and_the_log_says_so(self, tmp_path, caplog):
        folder = write_untrained_checkpoint(tmp_path / "forgetful")
        config = json.loads((folder / "config.json").read_text())
        config["text_config"]["use_cache"] = False
        (folder / "config.json").write_text(json.dumps(config))
        with caplog.at_level(logging.WARNING):
            backend = reusing(str(folder))
        assert "every turn computes the whole conversation" in caplog.text
        conversation = begin(0)
        assert take_turn(backend, [conversation]) + take_turn(backend, [conversation]) == [0, 0]

    def test_images_are_processed_and_encoded_once(self, checkpoint):
        backend = reusing(checkpoint)
        patches = []
        backend._runner._model.model.visual.register_forward_pre_hook(lambda _, args: patches.append(len(args[0])))
        conversations = [begin(n) for n in range(2)]
        for _ in range(4):
            take_turn(backend, conversations)
        images = [image for c in conversations for image in c.images[:-1]]
        assert sum(patches) == sum(image.shape[0] * image.shape[1] // 16**2 for image in images)

    def test_works_with_sampling(self, checkpoint):
        options = {"temperature": 3.0, "seed": 4}
        backend, plain = reusing(checkpoint, **options), reusing(checkpoint, kv_reuse=False, **options)
        conversations = [begin(n) for n in range(2)]
        for _ in range(3):
            replies = same_replies(backend, plain, conversations)
            for conversation, reply in zip(conversations, replies, strict=True):
                answer(conversation, reply)


class TestMemory:
    def test_what_does_not_fit_is_encoded_again_and_the_log_says_so(self, checkpoint, plain, caplog):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        backend.generate(conversations)
        held = backend._runner._store._rows["q0"].batch.nbytes
        backend = reusing(checkpoint, kv_cache_bytes=held // 2)
        with caplog.at_level(logging.WARNING):
            take_turn(backend, conversations)
        assert "2 of 4 conversations will be encoded again" in caplog.text
        replies = same_replies(backend, plain, conversations)
        assert sorted(reply.reused_tokens > 0 for reply in replies) == [False, False, True, True]

    def test_a_limit_below_one_conversation_keeps_none(self, checkpoint, plain):
        backend = reusing(checkpoint, kv_cache_bytes=1)
        conversations = [begin(n) for n in range(2)]
        for _ in range(2):
            replies = same_replies(backend, plain, conversations)
            assert [reply.reused_tokens for reply in replies] == [0, 0]
            for conversation, reply in zip(conversations, replies, strict=True):
                answer(conversation, reply)

    def test_running_out_loses_nothing_of_earlier_turns(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n, words=2 * n + 1) for n in range(4)]
        take_turn(backend, conversations)
        too_large = memory_runs_out(backend, lambda rows, passed: rows > 2 and passed == 2)
        with too_large, pytest.raises(OutOfMemory, match="batch of 4"):
            backend.generate(conversations)
        for half in (conversations[:2], conversations[2:]):
            assert all(reply.reused_tokens > 0 for reply in same_replies(backend, plain, half))

    def test_running_out_in_the_first_turn_holds_no_memory(self, checkpoint):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(2)]
        with memory_runs_out(backend, lambda rows, passed: passed == 2), pytest.raises(OutOfMemory):
            backend.generate(conversations)
        assert [row.batch.nbytes for row in backend._runner._store._rows.values()] == [0, 0]

    def test_running_out_first_lets_go_of_other_conversations(self, checkpoint, plain, caplog):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        rows = backend._runner._store._rows
        with memory_runs_out(backend, lambda *_: len(rows) > 2), caplog.at_level(logging.WARNING):
            replies = backend.generate(conversations[:2])
        assert "let go of the KV cache of 2 conversations" in caplog.text
        assert all(reply.reused_tokens > 0 for reply in replies)
        assert [reply.tokens for reply in replies] == [reply.tokens for reply in plain.generate(conversations[:2])]

    @pytest.mark.parametrize("place", ["_packed", "_with_room"])
    def test_running_out_while_rows_are_regrouped_costs_no_reply(self, checkpoint, plain, caplog, monkeypatch, place):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        fails_once(monkeypatch, place)
        with caplog.at_level(logging.WARNING):
            (reply,) = same_replies(backend, plain, conversations[:1])
        assert "conversations, trying again" in caplog.text
        assert reply.images_encoded == (2 if place == "_packed" else 1), "what was lost, and that alone, counts again"

    def test_running_out_while_the_cache_is_packed_costs_no_reply(self, checkpoint, plain, caplog, monkeypatch):
        conversations = [begin(n) for n in range(4)]
        backend = reusing(checkpoint)
        backend.generate(conversations)
        held = backend._runner._store._rows["q0"].batch.nbytes
        backend = reusing(checkpoint, kv_cache_bytes=held // 2)
        fails_once(monkeypatch, "_packed", behind=backend._runner._model.config.text_config.num_hidden_layers)
        with caplog.at_level(logging.WARNING):
            same_replies(backend, plain, conversations)
        assert "the KV cache cannot be packed" in caplog.text
        assert not backend._runner._store.held()
        same_replies(backend, plain, conversations)

    def test_only_what_is_in_use_is_held(self, checkpoint):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        for conversation in conversations[1:]:
            backend.release(conversation)
        take_turn(backend, conversations[:1])
        (row,) = backend._runner._store._rows.values()
        assert len(row.batch.rows) == 1
        assert backend._encoder._known.keys() == {"q0"}


@pytest.mark.parametrize("seed", range(12))
def test_any_schedule_gives_the_replies_of_re_encoding(checkpoint, plain, seed):
    draw = random.Random(seed)
    limit = draw.choice([None, None, 200_000])
    backend, lengths = reusing(checkpoint, kv_cache_bytes=limit), set()
    living = [begin(n, words=draw.randint(1, 30)) for n in range(4)]
    begun, reused = 4, 0
    for _ in range(14):
        group = draw.sample(living, draw.randint(1, len(living)))
        event = draw.random()
        if event < 0.15:  # the device is too small for this batch: half of it is taken instead
            half, stage = max(1, len(group) // 2), draw.randint(0, 2)
            with memory_runs_out(backend, lambda rows, passed, half=half, stage=stage: rows > half and passed == stage):
                with suppress(OutOfMemory):  # a batch whose rows all end before that stage gets through
                    backend.generate(group)
                group = group[:half]
                replies = same_replies(backend, plain, group)
        elif event < 0.25:  # a new process goes on from the run folder: equal conversations, no cache
            backend = reusing(checkpoint, kv_cache_bytes=limit)
            living = [Conversation(each.id, [*each.messages]) for each in living]
            continue
        else:
            replies = same_replies(backend, plain, group)
        reused += sum(reply.reused_tokens for reply in replies)
        lengths |= {reply.generated_tokens for reply in replies}
        for conversation, reply in zip(group, replies, strict=True):
            fate = draw.random()
            if fate < 0.1:
                continue  # asked again later
            if fate < 0.2:
                backend.release(conversation)
                living[living.index(conversation)] = begin(begun, words=draw.randint(1, 60))
                begun += 1
            elif fate < 0.3:
                conversation.append(Message("assistant", "words that no model said"))
                ask(conversation, "Go on.")
            else:
                answer(conversation, reply, "You moved. " * draw.randint(1, 8))
    assert reused > 0
    assert len(lengths) > 3


class TestCompiledSteps:
    """One backend for all of them: making its programs takes longer than anything else here."""

    @pytest.fixture(scope="class")
    def backend(self, checkpoint):
        return reusing(checkpoint, compiled=True)

    @pytest.fixture
    def plain_steps(self, backend):
        """The shapes of steps that the backend's model takes by itself."""
        shapes = []

        def note(model, args, inputs):
            if inputs["input_ids"].shape[1] == 1:
                shapes.append(tuple(inputs["input_ids"].shape))

        hook = backend._runner._model.register_forward_pre_hook(note, with_kwargs=True)
        yield shapes
        hook.remove()

    def test_give_the_replies_of_re_encoding(self, backend, plain, plain_steps):
        conversations = [begin(n, words=9 * n + 1) for n in range(4)]
        lengths = set()
        for turn in range(6):
            for group in (conversations, conversations[:1], conversations[1:])[turn % 3 :]:
                replies = same_replies(backend, plain, group)
                assert [r.reused_tokens > 0 for r in replies] == [len(each.images) > 1 for each in group]
                lengths |= {reply.generated_tokens for reply in replies}
                for conversation, reply in zip(group, replies, strict=True):
                    answer(conversation, reply, "You moved. " * turn)
            backend.release(conversations.pop(turn % 2))
            conversations.append(begin(10 + turn, words=20))
        assert len(lengths) > 3
        assert not plain_steps

    def test_are_compiled_for_one_row_and_for_more_and_never_again(self, backend):
        def take(numbers, words):
            group = [begin(n, words) for n in numbers]
            take_turn(backend, group)
            for conversation in group:
                backend.release(conversation)

        take([1], 1)
        take([1, 2], 1)
        before = counters["stats"]["unique_graphs"]
        for rows, words in ((1, 30), (2, 30), (3, 9), (4, 60), (7, 2)):
            take(range(rows), words)
        assert counters["stats"]["unique_graphs"] == before > 0

    def test_that_outgrow_the_buffers_hold_one_layer_twice_at_most(self, backend, monkeypatch):
        grow, outgrown, held = kv_cache._with_room, [], []

        def growing(buffer, used, columns):
            grown = grow(buffer, used, columns)
            if used and grown is not buffer:
                held.append(sum(each() is not None for each in outgrown))
                outgrown.append(weakref.ref(buffer))
            return grown

        monkeypatch.setattr(kv_cache, "_with_room", growing)
        long = replace(backend._runner._options, max_new_tokens=300, min_new_tokens=300)
        monkeypatch.setattr(backend._runner, "_options", long)
        take_turn(backend, [begin(50), begin(51)])
        assert len(held) >= 2 * 2 * 2 and max(held) <= 2, "keys and values of the layer that grows"

    def test_are_taken_again_when_memory_ran_out(self, backend, plain, caplog, monkeypatch):
        conversations = [begin(n) for n in range(20, 23)]
        take_turn(backend, conversations)
        fails_once(monkeypatch, "_with_room")
        with caplog.at_level(logging.WARNING):
            same_replies(backend, plain, conversations[:2])
        assert "trying again" in caplog.text

    def test_follow_sampling_and_the_grammar_without_a_cache_that_is_kept(self, checkpoint):
        options = {"temperature": 3.0, "constrained": True, "kv_reuse": False}
        conversations = [begin(n) for n in range(3)]
        replies = reusing(checkpoint, compiled=True, **options).generate(conversations)
        assert [r.tokens for r in replies] == [r.tokens for r in reusing(checkpoint, **options).generate(conversations)]
        assert [r.reused_tokens for r in replies] == [0, 0, 0]

    def test_need_attention_that_takes_a_mask(self, checkpoint):
        with pytest.raises(ValueError, match="--compile does not go with --attention eager"):
            reusing(checkpoint, compiled=True, attention="eager")


def test_a_layer_grows_and_shortens_like_transformers_own():
    from transformers.cache_utils import DynamicLayer

    ours, theirs = GrowingLayer(), DynamicLayer()
    for columns in (5, 1, 1, 90, 1):
        states = torch.randn(2, 3, columns, 4), torch.randn(2, 3, columns, 4)
        for mine, other in zip(ours.update(*states), theirs.update(*states), strict=True):
            assert torch.equal(mine, other)
    ours.hold(6)
    theirs.crop(-92)
    assert ours.get_seq_length() == theirs.get_seq_length() == 6
    assert torch.equal(ours.keys, theirs.keys)
