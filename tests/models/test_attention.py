"""Attention to slots gives each row what attention to its own tokens alone gives."""

import random

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3VLForConditionalGeneration
from transformers.masking_utils import causal_mask_function

from explorer.untrained import config_for, make_processor
from roomscout.models import ModelError
from roomscout.models.transformers import attention
from roomscout.models.transformers.attention import NAME, Call, attend
from roomscout.models.transformers.kv_cache import Pool, Row, cache_argument
from roomscout.models.transformers.layers import SlotLayer, cache_layers
from roomscout.models.transformers.shapes import ModelSizes

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
SIZE = 16


def call_of(rows, dtype=torch.float32, column_bytes=1):
    return Call(*map(list, zip(*rows, strict=True)), CPU, dtype, column_bytes)


@pytest.mark.parametrize(("heads", "key_heads"), [(8, 2), (4, 4), (6, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_row_attends_to_its_own_tokens_alone(heads, key_heads, dtype):
    """Slots in any order, rows of unlike length, one or several new tokens, and columns of others in between."""
    draw = random.Random(heads)
    torch.manual_seed(0)
    spans = set()
    for case in range(60):
        slots = draw.sample(range(9), draw.randint(1, 6))
        slots = sorted(slots) if case % 2 else slots
        counts = [1] * len(slots) if case % 3 else [draw.choice((1, 2, 5, 9)) for _ in slots]
        starts = [draw.choice((0, 3, 20, 31)) for _ in slots]
        layer = SlotLayer()
        layer.rebuild([], 9, 48)
        new = sum(counts)
        query = torch.randn(1, new, heads, SIZE, dtype=dtype).transpose(1, 2)
        call = call_of(list(zip(slots, starts, counts, strict=True)), dtype, draw.choice((1, 2**14)))
        states = [torch.randn(1, key_heads, new, SIZE, dtype=dtype) for _ in range(2)]
        with call.attending():
            layer.update(*states)
            for buffer in (layer.keys, layer.values):
                for slot, start in zip(slots, starts, strict=True):
                    buffer[slot, :start] = torch.randn(start, key_heads, SIZE, dtype=dtype)
            made, _ = attend(torch.nn.Module(), query, layer.keys, layer.values, None, scaling=0.3)
        assert made.shape == (1, new, heads, SIZE)
        spans.add(len(call.spans) < len(slots))
        at = 0
        for slot, start, count in zip(slots, starts, counts, strict=True):
            keys, values = (
                buffer[slot, : start + count].transpose(0, 1).repeat_interleave(heads // key_heads, 0)
                for buffer in (layer.keys, layer.values)
            )
            allowed = torch.ones(count, start + count, dtype=torch.bool).tril(start)
            expected = scaled_dot_product_attention(
                query[0, :, at : at + count], keys, values, attn_mask=allowed, scale=0.3
            )
            tolerance = {} if dtype == torch.float32 else {"atol": 0.02, "rtol": 0.02}
            torch.testing.assert_close(made[0, at : at + count], expected.transpose(0, 1), **tolerance)
            at += count
    assert spans == {True, False}


def test_new_tokens_go_behind_those_before_and_nowhere_else():
    layer = SlotLayer()
    layer.rebuild([], 4, 8)
    call = call_of([(2, 3, 2), (0, 0, 1)])
    with call.attending():
        keys, values = layer.update(torch.ones(1, 2, 3, SIZE), 2 * torch.ones(1, 2, 3, SIZE))
    written = torch.zeros(4, 8)
    written[2, 3:5] = written[0, 0] = 1
    assert torch.equal(keys[..., 0, 0], written) and torch.equal(values[..., 1, 5], 2 * written)
    call = call_of([(2, 5, 1), (0, 1, 1)])
    for column in (5, 6):
        with call.attending():
            layer.update(*(torch.ones(1, 2, 2, SIZE) for _ in range(2)))
        written[2, column] = written[0, column - 4] = 1
        call.advance()
    assert torch.equal(layer.keys[..., 0, 0], written)


def test_other_slots_and_columns_keep_what_rows_have():
    layer = SlotLayer()
    layer.rebuild([], 3, 4)
    with call_of([(0, 0, 2), (2, 0, 3)]).attending():
        layer.update(*(torch.randn(1, 2, 5, SIZE) for _ in range(2)))
    before = layer.keys.clone()
    layer.rebuild([(2, 3), (0, 2)], 5, 7)
    assert layer.keys.shape == (5, 7, 2, SIZE)
    assert torch.equal(layer.keys[0, :3], before[2, :3]) and torch.equal(layer.keys[1, :2], before[0, :2])
    assert not layer.keys[0, 3:].any() and not layer.keys[2:].any()


def test_neighbours_of_like_length_are_attended_to_together():
    alike = call_of([(slot, 300 + slot, 1) for slot in range(8)], column_bytes=512)
    assert [(span.rows, span.columns) for span in alike.spans] == [(8, 308)]
    apart = call_of([(0, 300, 1), (1, 301, 1), (3, 302, 1)], column_bytes=512)
    assert [span.slot for span in apart.spans] == [0, 3]
    unlike = call_of([(0, 20, 1), (1, 4000, 1), (2, 4001, 1)], column_bytes=512)
    assert [(span.rows, span.mask is None) for span in unlike.spans] == [(1, True), (2, False)]


def test_attention_that_is_not_causal_alone_is_refused():
    assert attention._no_mask(mask_function=causal_mask_function) is None
    with pytest.raises(ModelError, match="has a mask of its own, and"):
        attention._no_mask(mask_function=lambda *args: True)
    with pytest.raises(ModelError, match="its attention has softcap"):
        attend(torch.nn.Module(), *[torch.zeros(1, 1, 1, SIZE)] * 3, None, softcap=30.0)


@torch.inference_mode()
def test_a_packed_call_gives_a_models_own_logits():
    tokenizer = make_processor(1024).tokenizer
    torch.manual_seed(0)
    config = config_for(tokenizer, ModelSizes(heads=4, kv_heads=2, layers=3))
    model = Qwen3VLForConditionalGeneration._from_config(config).eval()
    ids = [torch.randint(10, 900, (length,)) for length in (12, 5, 9)]
    alone = [model(input_ids=row[None]).logits[0] for row in ids]
    model.set_attn_implementation({"text_config": NAME})
    pool = Pool(cache_layers(model.config), 2**30, 100, 1)
    rows = [Row(None, slot=slot) for slot in (2, 0, 1)]
    pool._rows = dict(enumerate(rows))
    pool._rebuild(3, 256)
    slots = [row.slot for row in rows]
    made = [[] for _ in ids]
    for starts, counts in (([0, 0, 0], [7, 1, 4]), ([7, 1, 4], [5, 4, 5])):
        parts = [row[start : start + count] for row, start, count in zip(ids, starts, counts, strict=True)]
        places = torch.cat([torch.arange(start, start + count) for start, count in zip(starts, counts, strict=True)])
        with Call(slots, starts, counts, CPU, torch.float32, 1).attending():
            logits = model(
                input_ids=torch.cat(parts)[None],
                position_ids=places.expand(3, 1, -1),
                **{cache_argument(model): pool.cache},
            ).logits[0]
        for of_row, part in zip(made, logits.split(counts), strict=True):
            of_row.append(part)
    for of_row, expected in zip(made, alone, strict=True):
        torch.testing.assert_close(torch.cat(of_row), expected)
