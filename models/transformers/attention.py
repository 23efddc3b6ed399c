"""Attention in which several query heads share keys and values without copies, under one mask per forward pass."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from models.transformers.families import family_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "sdpa_packed_heads"
# CUDA's memory-efficient kernel copies a mask whose strides are not multiples of 16 elements, in every call.
_MASK_ALIGNMENT = 16


def pack_heads(model: "PreTrainedModel") -> None:
    """Switch the text layers of a model from transformers' "sdpa" to `attend_packed`; other attentions stay.

    With a mask (rows of different lengths, or a prompt after cached columns) transformers copies keys and values for
    each query head, at every layer of a prefill.
    """
    if model.config.get_text_config()._attn_implementation == "sdpa":
        model.set_attn_implementation({family_of(model.config).text_config: _NAME})


def additive_mask(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Zero where `allowed` (rows, 1, new columns, columns) is True, the smallest number of `dtype` elsewhere.

    PyTorch would convert a boolean mask in every attention call. The smallest number rather than minus infinity keeps a
    query finite that may attend to nothing, such as padding: NaN there would spread through its keys and values.
    """
    *shape, columns = allowed.shape
    aligned = -(-columns // _MASK_ALIGNMENT) * _MASK_ALIGNMENT
    mask = torch.zeros(*shape, aligned, dtype=dtype, device=allowed.device)[..., :columns]
    return mask.masked_fill_(~allowed, torch.finfo(dtype).min)


def packed_mask(*, dtype: torch.dtype, **kwargs: Any) -> torch.Tensor | None:
    """The mask of a forward pass as `attend_packed` takes it; None where the causal mask suffices. Arguments as for
    transformers' `sdpa_mask`."""
    allowed = sdpa_mask(**kwargs)
    return None if allowed is None else additive_mask(allowed, dtype)


def attend_packed(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """As transformers' sdpa_attention_forward: `query` (rows, heads, new columns, head size), `key` and `value`
    (rows, key heads, columns, head size), `attention_mask` None or additive, (rows, 1, new columns, columns); returns
    (rows, new columns, heads, head size).

    Query heads that share a key head are computed together: as columns if there is a single new column, else in one
    call for each.
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
AttentionMaskInterface.register(_NAME, packed_mask)
