"""Attention in which several query heads share keys and values, without copying these for each of them."""

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "sdpa_packed_heads"


def pack_heads(model: "PreTrainedModel") -> None:
    """Let the text layers of a model that attends by transformers' "sdpa" attend by `attend_packed`; others stay.

    With a mask (rows of different lengths, or a prompt behind held columns) transformers copies keys and values for
    each query head, at every layer of a prefill.
    """
    if model.config.text_config._attn_implementation == "sdpa":
        model.set_attn_implementation({"text_config": _NAME})


def attend_packed(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """As transformers' sdpa_attention_forward: `query` (rows, heads, new columns, head size), `key` and `value`
    (rows, key heads, columns, head size), `attention_mask` None or (rows, 1, new columns, columns); returns (rows, new
    columns, heads, head size).

    The query heads of a key head stand side by side: a single column as if they were columns, several columns in a call
    for each.
    """
    rows, heads, columns, size = query.shape
    shared = heads // key.shape[1]
    if attention_mask is None or shared == 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    grouped = query.reshape(rows, key.shape[1], shared, columns, size)
    attend = partial(
        scaled_dot_product_attention, key=key, value=value, attn_mask=attention_mask, scale=kwargs.get("scaling")
    )
    if columns == 1:
        seen = attend(grouped.squeeze(3))
    else:
        seen = torch.stack([attend(group) for group in grouped.unbind(2)], dim=2)
    return seen.reshape(rows, heads, columns, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(_NAME, attend_packed)
AttentionMaskInterface.register(_NAME, sdpa_mask)
