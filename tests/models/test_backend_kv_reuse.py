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
from conftest import decoding, traced
from PIL import Image
from torch._dynamo.utils import counters
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import Qwen3VLForConditionalGeneration
from untrained_checkpoints import write_untrained_checkpoint, write_untrained_family

from explorer.untrained import config_for, make_processor
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelOptions, OutOfMemory, ReplyFormat
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers import attention, kv_cache
from roomscout.models.transformers.attention import NAME, Call, current_call
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.decoding import FiniteLogits, SuppressTokens
from roomscout.models.transformers.families.qwen import QWEN3_VL
from roomscout.models.transformers.kv_cache import Pool, Row, cache_argument
from roomscout.models.transformers.layers import SlotLayer, cache_layers, kv_token_bytes
from roomscout.models.transformers.shapes import ModelSizes
from roomscout.models.transformers.steps import DecodingSteps

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
        call = current_call()
        passes = 0 if call.most_new > 1 else passes + 1
        if when(len(call.starts), passes):
            raise torch.OutOfMemoryError("no memory is left")

    hook = backend._runner._model.register_forward_pre_hook(check, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


HOW = ("plain", "sampled", "constrained", "alternatives", "graphs", "qwen3_5")


@pytest.mark.parametrize("how", [*HOW, pytest.param("compiled", marks=pytest.mark.slow)])
def test_rows_that_end_leave_the_call_and_the_others_reply_the_same(checkpoint, tmp_path, monkeypatch, how):
    sizes, begin_steps = list[int](), DecodingSteps.begin

    def counted(steps, rows, *args):
        sizes.append(len(rows))
        return begin_steps(steps, rows, *args)

    monkeypatch.setattr(DecodingSteps, "begin", counted)
    if how == "qwen3_5":
        checkpoint = ending_often(write_untrained_family(tmp_path / how, how))
    options = {"logprobs": how != "graphs"}
    options |= {"temperature": 1.0, "generation": {"repetition_penalty": 1.1}} if how == "sampled" else {}
    backend, alone = reusing(checkpoint, **options), reusing(checkpoint, **options, kv_reuse=False)
    if how == "graphs":
        decoding(backend, capture=Recorder())
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
    assert len(set(sizes)) >= (3 if how == "graphs" else 5), "rows that end leave"


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

    def test_new_rows_join_without_padding(self, checkpoint, plain):
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
        assert shapes[0] == (1, sum(reply.prompt_tokens - reply.reused_tokens for reply in replies))

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
        backend = reusing(checkpoint, kv_cache_bytes=backend._runner._pool.nbytes // 2)
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

    def test_slots_of_released_conversations_serve_others(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        held = backend._runner._pool.nbytes
        for conversation in conversations[1:]:
            backend.release(conversation)
        assert backend._encoder._cache.keys() == {conversations[0].key}
        for _ in range(2):
            conversations = [conversations[0], *(begin(n) for n in range(5, 8))]
            replies = same_replies(backend, plain, conversations)
            answer(conversations[0], replies[0])
            assert [reply.reused_tokens > 0 for reply in replies] == [True, False, False, False]
            for conversation in conversations[1:]:
                backend.release(conversation)
        assert backend._runner._pool.nbytes == held
        backend.release_all()
        assert backend._runner._pool.nbytes == 0

    def test_a_conversation_that_outgrows_its_slot_takes_a_larger_one(self, checkpoint, plain, caplog):
        backend = reusing(checkpoint, planned_tokens=200)
        conversations = [begin(n, words=20 * n + 1) for n in range(3)]
        replies = []
        for turn in range(6):
            replies = same_replies(backend, plain, conversations)
            assert all(reply.reused_tokens > 0 for reply in replies) == (turn > 0)
            for conversation, reply in zip(conversations, replies, strict=True):
                answer(conversation, reply, "You moved 0.5 m. " * 4 * (turn + 1))
        assert max(reply.prompt_tokens for reply in replies) > 2 * kv_cache.PAGE
        assert caplog.text.count("longer than planned") == 1

    @pytest.mark.parametrize("method", ["rebuild", "_empty"])
    def test_memory_that_runs_out_while_slots_are_made_or_copied_changes_no_reply(
        self, checkpoint, plain, monkeypatch, method
    ):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(3)]
        if method == "rebuild":
            take_turn(backend, conversations[:2])
        layer, works = backend._runner._pool._layers[-1], getattr(SlotLayer, method)

        def fails_once(self, *args):
            if self is layer:
                monkeypatch.setattr(SlotLayer, method, works)
                raise torch.OutOfMemoryError("no memory is left")
            return works(self, *args)

        monkeypatch.setattr(SlotLayer, method, fails_once)
        with suppress(OutOfMemory):  # nobody to evict for a first call
            backend.generate(conversations, ACTION)
        for group in (conversations, conversations[:1]):
            same_replies(backend, plain, group)

    def test_slots_of_released_conversations_are_freed_before_a_call_gives_up(self, checkpoint, plain):
        backend = reusing(checkpoint)
        conversations = [begin(n) for n in range(4)]
        take_turn(backend, conversations)
        for conversation in conversations:
            backend.release(conversation)
        pool = backend._runner._pool
        with memory_runs_out(backend, lambda rows, passed: pool._slots > 1):
            same_replies(backend, plain, [begin(9)])

    def test_slots_get_narrower_before_a_conversation_is_evicted(self, checkpoint, plain, caplog):
        backend = reusing(checkpoint, kv_cache_bytes=4 * 256 * kv_token_bytes(plain._runner._model.config, 4))
        long = begin(9, words=60)
        take_turn(backend, [long])
        backend.release(long)
        conversations = [begin(n, words=1) for n in range(4)]
        take_turn(backend, conversations)
        assert all(reply.reused_tokens for reply in same_replies(backend, plain, conversations))
        assert "recomputed" not in caplog.text

    def test_a_row_that_fails_in_an_interrupted_call_leaves_nothing(self, checkpoint, plain):
        backend = reusing(checkpoint)
        backend._runner._always.append(SuppressTokens(backend._runner._end_ids, torch.device("cpu")))
        conversations = [begin(0, words=1), begin(1, words=5)]
        take_turn(backend, conversations)
        passes = 0

        def damage(layer, args, values):
            nonlocal passes
            passes += 1
            if passes == 2:
                values.view(-1, values.shape[-1])[0] = float("nan")
            if passes == 4:
                raise KeyboardInterrupt

        hook = backend._runner._model.model.language_model.layers[0].self_attn.v_proj.register_forward_hook(damage)
        with pytest.raises(KeyboardInterrupt):
            backend.generate(conversations, ACTION)
        hook.remove()
        backend._runner._always.pop()
        same_replies(backend, plain, conversations)

    def test_an_alternative_beside_other_conversations_changes_neither(self, checkpoint, plain):
        backend = reusing(checkpoint)
        one, other = begin(0), begin(1)
        for _ in range(2):
            take_turn(backend, [one, other])
            alternative = other.asking_instead("Answer now, the room is small and the lamp is on.")
            for batch in ([one, alternative], [alternative, one]):
                same_replies(backend, plain, batch)
        assert all(reply.reused_tokens > 100 for reply in same_replies(backend, plain, [one, other]))
        with pytest.raises(ValueError, match="beside its alternative"):
            backend.generate([other, alternative], ACTION)


@pytest.mark.parametrize("seed", range(3))
def test_replies_equal_re_encoding_under_any_schedule(checkpoint, plain, seed):
    draw = random.Random(seed)
    limit = draw.choice([None, None, 600_000])
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
        backend._runner._always.append(SuppressTokens(backend._runner._end_ids, torch.device("cpu")))
        addresses = []
        for turn in range(turns):
            replies = backend.generate(conversations, ACTION)
            assert all(reply.reused_tokens > 0 for reply in replies) == (turn > 0)
            assert all(reply.generated_tokens == TOKENS for reply in replies)
            for conversation, reply in zip(conversations, replies, strict=True):
                answer(conversation, reply)
            layer = backend._runner._pool._layers[0]
            addresses.append([buffer.data_ptr() for buffer in (layer.keys, layer.values)])
        return addresses

    def test_takes_the_memory_that_the_plan_counts_and_evicts_nothing(self, checkpoint, plain, sizes, caplog):
        tokens, question_bytes = sizes
        backend = reusing(checkpoint, planned_tokens=tokens, kv_cache_bytes=6 * question_bytes)
        with caplog.at_level(logging.WARNING):
            addresses = self.run(backend, plain, [begin(n) for n in range(6)], self.TURNS)
        assert "recomputed" not in caplog.text
        assert len({tuple(each) for each in addresses}) == 1, "buffers are never reallocated"
        assert backend._runner._pool.nbytes == 6 * question_bytes


class Recorder:
    """Replaces CUDA graph capture. A replay repeats the step on the same tensors, writes its result to the first
    replay's buffer, and records the tensors' addresses."""

    def __init__(self):
        self.captures = []

    def __call__(self, step):
        static = step.__self__
        addresses, out = set(), []
        self.captures.append(addresses)

        def replay():
            call = static.call
            tensors = (static._ids, static._positions, call.token_slots, call.token_columns)
            addresses.add(tuple(tensor.data_ptr() for tensor in tensors))
            result = step()
            if not out:
                out.append(result.clone())
            return out[0].copy_(result)

        return replay


class TestGraphs:
    """CUDA graphs without the capture itself: static tensors, and rows that leave and join."""

    def test_one_graph_serves_all_calls_with_as_many_rows(self, checkpoint, plain):
        recorder = Recorder()
        backend = decoding(reusing(checkpoint, planned_tokens=2000), capture=recorder)
        conversations = [begin(n, words=9 * n + 1) for n in range(4)]
        for turn in range(6):
            for group in (conversations, conversations[:1], conversations[1:])[turn % 3 :]:
                for conversation, reply in zip(group, same_replies(backend, plain, group), strict=True):
                    answer(conversation, reply, "You moved. " * turn)
            backend.release(conversations.pop(turn % 2))
            conversations.append(begin(10 + turn, words=20))
        assert [len(addresses) for addresses in recorder.captures] == [1] * 3, "for 1, 2 and 4 rows"

    def test_other_slots_need_other_graphs(self, checkpoint, plain):
        recorder = Recorder()
        backend = decoding(reusing(checkpoint), capture=recorder)
        for count in (2, 4, 3):
            same_replies(backend, plain, [begin(n) for n in range(count)])
            backend.release_all()
        assert len(recorder.captures) >= 3 and all(len(addresses) <= 1 for addresses in recorder.captures)

    def test_fall_back_to_eager_steps_with_one_warning(self, checkpoint, plain, caplog):
        def capture(step):
            raise RuntimeError("it is refused\nfor a reason")

        backend = decoding(reusing(checkpoint), capture=capture)
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
            model.set_attn_implementation({"text_config": NAME})
        with mode, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            yield model

    @pytest.fixture(params=[True, False], ids=["pages", "starts and lengths"])
    def pool(self, model, request, monkeypatch):
        monkeypatch.setattr(attention, "_TAKES_PAGES", request.param)
        return Pool(cache_layers(model.config), 2**40, 500, 1)

    def rows(self, pool, count):
        rows = [Row(None, slot=slot) for slot in reversed(range(count))]
        pool._rows = dict(enumerate(rows))
        pool._rebuild(count, 512)
        return rows

    def call(self, rows, starts, counts):
        return Call([row.slot for row in rows], starts, counts, torch.device("cuda", 0), torch.bfloat16, 1024)

    @torch.inference_mode()
    @pytest.mark.parametrize("chosen", [True, False], ids=["chosen in the graph", "chosen outside"])
    def test_a_step_never_synchronizes(self, model, pool, chosen):
        device = torch.device("cuda", 0)
        rows = self.rows(pool, 3)
        steps = DecodingSteps(model, pool, 1024, [SuppressTokens([3], device)], lambda step: lambda: step())
        finite = FiniteLogits(3, device) if chosen else None
        choose = lambda logits: logits.argmax(dim=1, keepdim=True)  # noqa: E731
        positions = torch.zeros(3, 3, dtype=torch.long)
        begun = steps.begin(rows, [17, 300, 4], positions, choose, finite)
        tokens = begun.after(torch.zeros(3, 1, dtype=torch.long, device="cuda"), 3)
        assert (tuple(tokens.shape), tokens.device.type) == ((3, 3 if chosen else 1), "cuda")
        tokens = begun.after(tokens[:, -1:], 3)
        assert steps.size(3) == 4 and steps.size(9) == 16 and len(begun.call.token_slots) == 4

    @torch.inference_mode()
    def test_a_packed_prefill_stays_on_its_device(self, model, pool):
        rows = self.rows(pool, 3)
        with self.call(rows, [40, 0, 7], [9, 5, 1]).attending():
            logits = model(
                input_ids=torch.zeros(1, 15, dtype=torch.long, device="cuda"),
                position_ids=torch.zeros(3, 1, 15, dtype=torch.long, device="cuda"),
                logits_to_keep=torch.zeros(3, dtype=torch.long, device="cuda"),
                **{cache_argument(model): pool.cache},
            ).logits
        assert (tuple(logits.shape), logits.device.type) == ((1, 3, 1024), "cuda")
        keys = pool.cache.layers[0].keys
        assert (tuple(keys.shape), keys.is_contiguous()) == ((3, 512, 2, 16), True)

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


class TestCompiledSteps:
    def test_one_program_serves_all_layers_and_gives_the_same_replies(self, checkpoint, plain):
        torch._dynamo.reset()  # programs of other tests
        counters.clear()
        backend = traced(reusing(checkpoint))
        conversations = [begin(n, words=9 * n + 1) for n in range(4)]
        for turn in range(4):
            for group in (conversations, conversations[:1], conversations[1:])[turn % 3 :]:
                replies = same_replies(backend, plain, group)
                for conversation, reply in zip(group, replies, strict=True):
                    answer(conversation, reply, "You moved. " * turn)
        assert 0 < counters["stats"]["unique_graphs"] <= 12, (
            "of the parts around attention, for one row and for several"
        )
