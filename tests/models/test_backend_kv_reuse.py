"""Reusing keys and values across turns never changes a reply, however conversations are batched or retried."""

import gc
import json
import logging
import random
import weakref
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import torch
from conftest import traced
from PIL import Image
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from transformers import Cache, Qwen3VLForConditionalGeneration
from untrained_checkpoints import write_untrained_checkpoint, write_untrained_family

from explorer.untrained import config_for, make_processor
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelOptions, OutOfMemory, ReplyFormat
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers import kv_cache, steps
from roomscout.models.transformers.attention import additive_mask, use_grouped_sdpa
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.decoding import SuppressTokens
from roomscout.models.transformers.families.qwen import QWEN3_VL
from roomscout.models.transformers.kv_cache import cache_argument
from roomscout.models.transformers.layers import GrowingLayer, kv_token_bytes
from roomscout.models.transformers.shapes import ModelSizes
from roomscout.models.transformers.steps import DecodingLoop

TOKENS = 10
ACTION = action_format()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Every eighth token is an end token, so that rows end at different lengths; an untrained model never would."""
    return ending_often(write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny"))


def ending_often(folder):
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] += range(0, 860, 8)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return str(folder)


@pytest.fixture(scope="module")
def plain(checkpoint):
    return reusing(checkpoint, kv_reuse=False)


def reusing(checkpoint, **options):
    return TransformersBackend.from_checkpoint(checkpoint, ModelOptions(device="cpu", max_new_tokens=TOKENS, **options))


def begin(number, words=10):
    conversation = Conversation(f"q{number}")
    conversation.append(Message("system", "You are inside the 3D scan of a room."))
    ask(conversation, "Where is the door? " * words)
    return conversation


def ask(conversation, text):
    draw = np.random.default_rng([len(conversation.messages), *conversation.id.encode()])
    size = (64, 64) if len(text) % 2 else (64, 96)
    conversation.append(Message.of_views(text, draw.integers(0, 256, (*size, 3), dtype=np.uint8)))


def answer(conversation, reply, text="You moved 0.5 m."):
    conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
    ask(conversation, text)


def take_turn(backend, conversations):
    """One lockstep turn; returns the replies' reused tokens."""
    replies = backend.generate(conversations, ACTION)
    for conversation, reply in zip(conversations, replies, strict=True):
        answer(conversation, reply)
    return [reply.reused_tokens for reply in replies]


def same_replies(backend, plain, conversations):
    """The backend's replies, asserted equal to those without reuse."""
    replies = backend.generate(conversations, ACTION)
    assert [reply.tokens for reply in replies] == [reply.tokens for reply in plain.generate(conversations, ACTION)]
    return replies


@contextmanager
def memory_runs_out(backend, when):
    """Makes forward passes run out of memory if `when(rows, pass of the call)`."""
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


@pytest.mark.parametrize("how", ["plain", "sampled", "constrained", "alternatives", "compiled", "graphs", "qwen3_5"])
def test_rows_that_end_leave_the_call_and_the_others_reply_the_same(checkpoint, tmp_path, monkeypatch, how):
    sizes, narrow = list[tuple[int, int]](), kv_cache.CachedBatch.narrow

    def counted(batch, size, live):
        sizes.append((batch.width, size))
        return narrow(batch, size, live)

    monkeypatch.setattr(kv_cache.CachedBatch, "narrow", counted)
    if how == "qwen3_5":
        checkpoint = ending_often(write_untrained_family(tmp_path / how, how))
    options = {"logprobs": how != "graphs"}
    options |= {"temperature": 1.0, "generation": {"repetition_penalty": 1.1}} if how == "sampled" else {}
    backend, alone = reusing(checkpoint, **options), reusing(checkpoint, **options, kv_reuse=False)
    if how == "graphs":
        backend._runner._loop = DecodingLoop(backend._runner._model, compiled=False, capture=Recorder())
        backend._runner._steps = how
    if how == "compiled":
        traced(backend)
    form = ReplyFormat(grammar="root ::= [a-z ]{2,40}") if how == "constrained" else ACTION
    conversations = [begin(number, words=1 + number % 4) for number in range(8)]
    for turn in range(3):
        for asked in [conversations, [each.asking_instead("Answer now.") for each in conversations]]:
            if asked is not conversations and how != "alternatives":
                continue
            replies = backend.generate(asked, form)
            expected = [alone.generate([each], form)[0] for each in asked]
            assert [reply.tokens for reply in replies] == [reply.tokens for reply in expected]
            for reply, other in zip(replies, expected, strict=True):
                assert reply.logprobs == pytest.approx(other.logprobs, abs=1e-4)
            if asked is conversations:
                own = list(replies)
        assert turn == 0 or min(reply.reused_tokens for reply in own) > 0
        for conversation, reply in zip(conversations, own, strict=True):
            answer(conversation, reply)
        backend.release(conversations.pop(2))
    most, least = (1 / 4, 1) if how == "graphs" else (3 / 4, 3)
    assert len(sizes) >= least and all(after <= before * most or 2 == after < before for before, after in sizes)


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
            # All of the prompt and reply, except a last token that no forward pass has seen.
            unseen = before.prompt_tokens + before.generated_tokens - after.reused_tokens
            assert unseen in (0, 1)
        assert [reply.images_encoded for reply in second] == [1] * 3

    def test_continues_when_rows_run_one_by_one(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n, words=3 * n + 1) for n in range(3)]
        take_turn(backend, conversations)
        for conversation in conversations:
            for _ in range(3):
                (reply,) = same_replies(backend, plain, [conversation])
                assert reply.reused_tokens > 0
                answer(conversation, reply)
            backend.release(conversation)

    def test_survives_rows_leaving_and_joining(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        backend.release(conversations.pop(1))
        conversations.append(begin(9, words=60))
        replies = same_replies(backend, plain, conversations)
        assert [reply.reused_tokens > 0 for reply in replies] == [True, True, True, False]

    def test_stragglers_are_prefilled_separately(self, checkpoint, plain):
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

    def test_ends_before_a_reply_that_was_changed(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversation = begin(0)
        (reply,) = backend.generate([conversation], ACTION)
        conversation.append(Message("assistant", "something else altogether"))
        ask(conversation, "next")
        (after,) = same_replies(backend, plain, [conversation])
        assert after.reused_tokens == reply.prompt_tokens

    def test_can_be_disabled(self, plain):
        conversation = begin(0)
        take_turn(plain, [conversation])
        assert take_turn(plain, [conversation]) == [0]

    def test_images_are_processed_and_encoded_once(self, checkpoint):
        backend = reusing(checkpoint)
        patches = []
        backend._runner._model.model.visual.register_forward_pre_hook(lambda _, args: patches.append(len(args[0])))
        conversations = [begin(n) for n in range(2)]
        for _ in range(4):
            take_turn(backend, conversations)
        images = [image for c in conversations for image in c.images[:-1]]
        assert sum(patches) == sum(image.shape[0] * image.shape[1] // 16**2 for image in images)


class TestMemory:
    def test_conversations_beyond_the_limit_are_recomputed_with_a_warning(self, checkpoint, plain, caplog):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        backend.generate(conversations, ACTION)
        batch_bytes = backend._runner._store._rows[conversations[0].key].batch.nbytes
        backend = reusing(checkpoint, kv_cache_bytes=batch_bytes // 2)
        with caplog.at_level(logging.WARNING):
            take_turn(backend, conversations)
        assert "2 of 4 conversations will be recomputed" in caplog.text
        replies = same_replies(backend, plain, conversations)
        assert sorted(reply.reused_tokens > 0 for reply in replies) == [False, False, True, True]

    def test_running_out_keeps_the_cache_of_earlier_turns(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n, words=2 * n + 1) for n in range(4)]
        take_turn(backend, conversations)
        too_large = memory_runs_out(backend, lambda rows, passed: rows > 2 and passed == 2)
        with too_large, pytest.raises(OutOfMemory, match="batch of 4"):
            backend.generate(conversations, ACTION)
        for half in (conversations[:2], conversations[2:]):
            assert all(reply.reused_tokens > 0 for reply in same_replies(backend, plain, half))

    def test_the_retry_finds_the_tensors_of_the_failed_call_freed(self, checkpoint):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        activations, alive = [], []

        def fail(layer, args, kwargs):
            activation = torch.zeros(1000)
            alive.append(sum(each() is not None for each in activations))
            activations.append(weakref.ref(activation))
            if len(activations) == 1:
                raise torch.OutOfMemoryError("no memory is left")

        gc.disable()  # the retry must not depend on a garbage collection
        layers = backend._runner._model.model.language_model.layers
        hook = layers[-1].register_forward_pre_hook(fail, with_kwargs=True)
        try:
            backend.generate(conversations[:2], ACTION)
        finally:
            hook.remove()
            gc.enable()
        assert alive[1] == 0

    def test_released_conversations_hold_no_memory(self, checkpoint):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        for conversation in conversations[1:]:
            backend.release(conversation)
        take_turn(backend, conversations[:1])
        (row,) = backend._runner._store._rows.values()
        assert len(row.batch.rows) == 1
        assert backend._encoder._cache.keys() == {conversations[0].key}


@pytest.mark.parametrize("seed", range(3))
def test_replies_equal_re_encoding_under_any_schedule(checkpoint, plain, seed):
    draw = random.Random(seed)
    limit = draw.choice([None, None, 200_000])
    backend, lengths = reusing(checkpoint, kv_cache_bytes=limit), set()
    active = [begin(n, words=draw.randint(1, 30)) for n in range(4)]
    started, reused = 4, 0
    for _ in range(14):
        group = draw.sample(active, draw.randint(1, len(active)))
        event = draw.random()
        if event < 0.15:  # the batch runs out of memory and is halved
            half, stage = max(1, len(group) // 2), draw.randint(0, 2)
            with memory_runs_out(backend, lambda rows, passed, half=half, stage=stage: rows > half and passed == stage):
                with suppress(OutOfMemory):  # not raised if all rows end before that pass
                    backend.generate(group, ACTION)
                group = group[:half]
                replies = same_replies(backend, plain, group)
        elif event < 0.25:  # a new process resumes the run: equal conversations, empty cache
            backend = reusing(checkpoint, kv_cache_bytes=limit)
            active = [Conversation(each.id, [*each.messages]) for each in active]
            continue
        else:
            replies = same_replies(backend, plain, group)
        reused += sum(reply.reused_tokens for reply in replies)
        lengths |= {reply.generated_tokens for reply in replies}
        for conversation, reply in zip(group, replies, strict=True):
            outcome = draw.random()
            if outcome < 0.1:
                continue  # the turn is repeated later
            if outcome < 0.2:
                backend.release(conversation)
                active[active.index(conversation)] = begin(started, words=draw.randint(1, 60))
                started += 1
            elif outcome < 0.3:
                conversation.append(Message("assistant", "words that no model said"))
                ask(conversation, "Go on.")
            else:
                answer(conversation, reply, "You moved. " * draw.randint(1, 8))
    assert reused > 0
    assert len(lengths) > 3


class TestPlannedLength:
    """Buffers allocated for the whole conversation."""

    TURNS = 8

    @pytest.fixture
    def sizes(self, checkpoint):
        """Tokens of a conversation of `TURNS` turns with replies of maximum length, and the bytes of its buffers."""
        backend = reusing(checkpoint, kv_cache_bytes=0)
        conversation = begin(0)
        for _ in range(self.TURNS - 1):
            conversation.append(Message("assistant", "", tokens=(9,) * TOKENS))
            ask(conversation, "You moved 0.5 m.")
        tokens = len(backend._encoder.encode(conversation).ids) + TOKENS
        return tokens, kv_cache.buffer_columns(tokens) * kv_token_bytes(backend._runner._model.config, 4)

    @staticmethod
    def run(backend, plain, conversations, turns):
        """All turns in lockstep; returns the addresses of the first layer's buffers after each turn."""
        backend._runner._forced = True
        addresses = []
        for turn in range(turns):
            replies = backend.generate(conversations, ACTION)
            assert all(reply.reused_tokens > 0 for reply in replies) == (turn > 0)
            assert all(reply.generated_tokens == TOKENS for reply in replies)
            for conversation, reply in zip(conversations, replies, strict=True):
                answer(conversation, reply)
            layer = backend._runner._store._rows[conversations[0].key].batch.cache.layers[0]
            addresses.append([buffer.data_ptr() for buffer in layer._buffers])
        return addresses

    def test_takes_the_memory_that_the_plan_counts_and_evicts_nothing(self, checkpoint, plain, sizes, caplog):
        tokens, question_bytes = sizes
        backend = reusing(checkpoint, planned_tokens=tokens, kv_cache_bytes=6 * question_bytes)
        with caplog.at_level(logging.WARNING):
            addresses = self.run(backend, plain, [begin(n) for n in range(6)], self.TURNS)
        assert "recomputed" not in caplog.text
        assert len({tuple(each) for each in addresses}) == 1, "buffers are never reallocated"
        (batch,) = {id(row.batch): row.batch for row in backend._runner._store._rows.values()}.values()
        assert batch.nbytes == 6 * question_bytes


class Recorder:
    """Replaces CUDA graph capture. A replay repeats the step on the same tensors, writes its result to the first
    replay's buffer, and records the tensors' addresses."""

    def __init__(self):
        self.captures = []

    def __call__(self, step):
        addresses, out = set(), []
        self.captures.append(addresses)

        def tensors(value):
            if isinstance(value, torch.Tensor):
                return [value]
            return [each for part in value for each in tensors(part)]

        def replay():
            addresses.add(tuple(tensor.data_ptr() for tensor in tensors(step.__self__._run_step.args)))
            result = step()
            if not out:
                out.append(result.clone())
            return out[0].copy_(result)

        return replay


class TestGraphs:
    """CUDA graphs without the capture itself: static tensors, windows, and rows that leave and join."""

    @pytest.fixture
    def recorder(self):
        return Recorder()

    @pytest.fixture
    def backend(self, checkpoint, recorder):
        backend = reusing(checkpoint)
        backend._runner._loop = DecodingLoop(backend._runner._model, compiled=False, capture=recorder)
        return backend

    def test_give_the_replies_of_re_encoding(self, backend, plain, recorder):
        conversations = [begin(n, words=9 * n + 1) for n in range(4)]
        for turn in range(6):
            for group in (conversations, conversations[:1], conversations[1:])[turn % 3 :]:
                for conversation, reply in zip(group, same_replies(backend, plain, group), strict=True):
                    answer(conversation, reply, "You moved. " * turn)
            backend.release(conversations.pop(turn % 2))
            conversations.append(begin(10 + turn, words=20))
        assert recorder.captures

    def test_fall_back_to_eager_steps_with_one_warning(self, checkpoint, plain, caplog):
        def capture(step):
            raise RuntimeError("it is refused\nfor a reason")

        backend = reusing(checkpoint)
        backend._runner._loop = DecodingLoop(backend._runner._model, compiled=False, capture=capture)
        conversations = [begin(n) for n in range(2)]
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                for conversation, reply in zip(conversations, same_replies(backend, plain, conversations), strict=True):
                    answer(conversation, reply)
        assert caplog.text.count("CUDA graph capture failed (it is refused)") == 1


class TestOnAFakeDevice:
    """With fake CUDA tensors, on which mixing devices or synchronizing is an error."""

    @pytest.fixture
    def model(self, monkeypatch):
        monkeypatch.setattr(fake_tensor, "CONSTANT_NUMEL_LIMIT", -1)  # else small `torch.tensor(...)` are real
        config = config_for(make_processor(1024).tokenizer, ModelSizes())
        with FakeTensorMode() as mode, torch.device("cuda"):
            model = Qwen3VLForConditionalGeneration._from_config(config, dtype=torch.bfloat16).eval()
            use_grouped_sdpa(model)
        with mode:
            yield model

    @staticmethod
    def layer(rows, columns, planned=0):
        layer = GrowingLayer(planned)
        layer.update(*(torch.zeros(rows, 2, columns, 16, dtype=torch.bfloat16, device="cuda") for _ in range(2)))
        return layer

    @torch.inference_mode()
    def test_a_step_never_synchronizes(self, model):
        rows, width = 3, 128
        layers = [self.layer(rows, width + 1) for _ in range(2)]
        loop = DecodingLoop(model, compiled=False, capture=None)
        mask = additive_mask(torch.ones(rows, 1, 1, width, dtype=torch.bool, device="cuda"), torch.bfloat16)
        suppress = SuppressTokens([3], torch.device("cuda"))
        window = steps._Window(
            loop._run_step,
            lambda step: step,
            layers,
            lambda logits: suppress(None, logits.float()).argmax(dim=1, keepdim=True),
            True,
            17,
            torch.zeros(3, rows, 1, dtype=torch.long, device="cuda"),
            mask,
        )
        tokens = window.after(torch.zeros(rows, 1, dtype=torch.long, device="cuda"), 3)
        assert (tuple(tokens.shape), tokens.device.type) == ((rows, 3), "cuda")

    def test_pixels_are_made_on_the_device(self):
        view, device = Image.new("RGB", (64, 32)), torch.device("cuda", 0)
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = QWEN3_VL.process(make_processor(1024), view, 1, device)
        assert (made["pixel_values"].device, made["image_grid_thw"].device.type) == (device, "cpu")

    def test_synchronizing_raises(self, model):
        with pytest.raises(DataDependentOutputException):
            torch.zeros(3, device="cuda").tolist()
        with pytest.raises(RuntimeError, match=r"two .*devices"):
            torch.zeros(3, device="cuda") + torch.zeros(3)

    @torch.inference_mode()
    def test_rows_are_moved_without_synchronizing(self, model):
        layer = self.layer(4, 40, planned=129)
        layer.reorder([3, 1, 2, 0])
        layer.use(2)
        new = torch.zeros(2, 2, 1, 16, dtype=torch.bfloat16, device="cuda")
        keys, _ = layer.update(new, new)
        assert (tuple(keys.shape), keys.device.type) == ((2, 2, 41, 16), "cuda")
        layer.use(None)
        assert layer.keys.shape[0] == 4

    @torch.inference_mode()
    def test_a_prefill_after_cached_columns_stays_on_its_device(self, model):
        rows, cached, new = 3, 40, 9
        cache = Cache(layers=[self.layer(rows, cached, planned=129) for _ in range(2)])
        logits = model(
            input_ids=torch.zeros(rows, new, dtype=torch.long, device="cuda"),
            attention_mask=torch.ones(rows, 1, new, cached + new, dtype=torch.bool, device="cuda"),
            position_ids=torch.zeros(3, rows, new, dtype=torch.long, device="cuda"),
            logits_to_keep=1,
            **{cache_argument(model): cache},
        ).logits
        assert (tuple(logits.shape), logits.device.type) == ((rows, 1, 1024), "cuda")
        assert cache.layers[0].get_seq_length() == cached + new


class TestCompiledSteps:
    @pytest.fixture
    def backend(self, checkpoint):
        return traced(reusing(checkpoint))

    @pytest.fixture
    def uncompiled_steps(self, backend):
        """The input shapes of decoding steps that bypass the compiled program."""
        shapes = []

        def note(model, args, inputs):
            if inputs["input_ids"].shape[1] == 1:
                shapes.append(tuple(inputs["input_ids"].shape))

        hook = backend._runner._model.register_forward_pre_hook(note, with_kwargs=True)
        yield shapes
        hook.remove()

    def test_give_the_replies_of_re_encoding(self, backend, plain, uncompiled_steps):
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
        assert not uncompiled_steps


def test_a_layer_grows_and_shrinks_like_dynamic_layer():
    from transformers.cache_utils import DynamicLayer

    ours, theirs = GrowingLayer(), DynamicLayer()
    for columns in (5, 1, 1, 90, 1):
        states = torch.randn(2, 3, columns, 4), torch.randn(2, 3, columns, 4)
        for mine, other in zip(ours.update(*states), theirs.update(*states), strict=True):
            assert torch.equal(mine, other)
    ours.set_length(6)
    theirs.crop(-92)
    assert ours.get_seq_length() == theirs.get_seq_length() == 6
    assert torch.equal(ours.keys, theirs.keys)
