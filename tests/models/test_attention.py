"""Grouped attention gives the results of attention with copied keys and values."""

import pytest
import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import Qwen3VLForConditionalGeneration
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from explorer.untrained import config_for, make_processor
from roomscout.models.transformers import attention
from roomscout.models.transformers.attention import additive_mask, grouped_sdpa, use_grouped_sdpa
from roomscout.models.transformers.shapes import ModelSizes

pytestmark = pytest.mark.usefixtures("one_thread")


class Layer(torch.nn.Module):
    """The layer attributes that attention functions read."""

    def __init__(self, groups):
        super().__init__()
        self.num_key_value_groups = groups
        self.is_causal = True


def states(rows, heads, key_heads, new, columns, seed=0):
    draw = torch.Generator().manual_seed(seed)
    query = torch.randn(rows, new, heads, 16, generator=draw).transpose(1, 2)
    keys = torch.randn(2, rows, key_heads, columns + 7, 16, generator=draw)[:, :, :, :columns]
    return query, keys[0], keys[1]


def causal_mask(rows, new, columns):
    """The causal mask of rows with r unused columns first, r being the row's index."""
    causal = torch.ones(new, columns, dtype=torch.bool).tril(columns - new)
    used = torch.arange(columns) >= torch.arange(rows)[:, None]
    return (causal & used[:, None])[:, None]


@pytest.mark.parametrize(("heads", "key_heads"), [(8, 2), (4, 4), (6, 1)])
@pytest.mark.parametrize(
    ("new", "columns", "masked"),
    [(1, 9, True), (5, 9, True), (9, 9, True), (1, 1, True), (1, 9, False), (9, 9, False)],
)
def test_grouped_attention_equals_attention_with_copied_keys(heads, key_heads, new, columns, masked):
    query, key, value = states(4, heads, key_heads, new, columns)
    mask = additive_mask(causal_mask(4, new, columns), torch.float32) if masked else None
    group_size = heads // key_heads
    allowed = causal_mask(4, new, columns) if masked else None
    copied = [part.repeat_interleave(group_size, dim=1) for part in (key, value)]
    expected = sdpa_attention_forward(Layer(1), query, *copied, allowed, scaling=0.3)[0]
    grouped = grouped_sdpa(Layer(group_size), query, key, value, mask, scaling=0.3)[0]
    assert grouped.shape == (4, new, heads, 16)
    attends = torch.ones(4, new, dtype=torch.bool) if allowed is None else allowed[:, 0].any(dim=2)
    torch.testing.assert_close(grouped[attends], expected[attends])


def test_fully_masked_queries_stay_finite():
    query, key, value = states(4, 8, 2, 9, 9)
    mask = causal_mask(4, 9, 9)
    mask[3] = False
    for masked in (mask, additive_mask(mask, torch.float32)):
        assert grouped_sdpa(Layer(4), query, key, value, masked, scaling=0.3)[0].isfinite().all()


def test_a_forward_pass_builds_one_aligned_additive_mask(monkeypatch):
    made = []
    monkeypatch.setattr(attention, "additive_mask", lambda *args: made.append(additive_mask(*args)) or made[-1])
    tokenizer = make_processor(1024).tokenizer
    model = Qwen3VLForConditionalGeneration._from_config(config_for(tokenizer, ModelSizes(layers=3))).eval()
    use_grouped_sdpa(model)
    seen = []
    monkeypatch.setattr(
        attention,
        "scaled_dot_product_attention",
        lambda *args, **kwargs: seen.append(kwargs["attn_mask"]) or scaled_dot_product_attention(*args, **kwargs),
    )
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[1, :6] = 0
    model(input_ids=torch.randint(10, 900, (2, 13)), attention_mask=mask)
    assert len(made) == 1 and len(seen) == 3 * 2  # three layers, two query heads per key head
    assert {each.data_ptr() for each in seen} == {made[0].data_ptr()}
    assert made[0].dtype == torch.float32 and all(stride % 16 == 0 for stride in made[0].stride()[:-1])


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_grouped_attention_does_not_change_a_models_logits(kernel):
    tokenizer = make_processor(1024).tokenizer
    config = config_for(tokenizer, ModelSizes(heads=4, kv_heads=2))
    torch.manual_seed(0)
    model = Qwen3VLForConditionalGeneration._from_config(config, attn_implementation=kernel).eval()
    ids = torch.randint(10, 900, (2, 12))
    mask = pad(torch.ones(2, 12, dtype=torch.long), (3, 0))
    mask[1, :6] = 0
    inputs = {"input_ids": pad(ids, (3, 0)), "attention_mask": mask}
    with torch.inference_mode():
        before = model(**inputs).logits
        use_grouped_sdpa(model)
        after = model(**inputs).logits
    assert (model.config.text_config._attn_implementation == kernel) == (kernel == "eager")
    torch.testing.assert_close(after[mask.bool()], before[mask.bool()])
    assert after.isfinite().all(), "padding is multiplied by 0, which must not give NaN"
