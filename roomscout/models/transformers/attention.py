"""Grouped-query attention that neither copies keys and values for each query head nor converts the mask per layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, GenerationConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from roomscout.models.transformers.families.family import TEXT_CONFIG

_NAME = "grouped_sdpa"
# CUDA's memory-efficient kernel copies the mask in every call unless its strides are multiples of 16 elements.
_MASK_ALIGNMENT = 16


def use_grouped_sdpa(model: PreTrainedModel) -> None:
    """Switch a model's text layers to `grouped_sdpa`, unless they use "eager": with a mask, transformers' "sdpa" copies
    keys and values for each query head, in every layer of a prefill."""
    if model.config.get_text_config()._attn_implementation not in ("eager", _NAME):
        model.set_attn_implementation({TEXT_CONFIG: _NAME})


def additive_mask(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where `allowed` (rows, 1, new columns, columns), else the minimum of `dtype`: -inf would make padding NaN."""
    *shape, columns = allowed.shape
    aligned = -(-columns // _MASK_ALIGNMENT) * _MASK_ALIGNMENT
    mask = torch.zeros(*shape, aligned, dtype=dtype, device=allowed.device)[..., :columns]
    return mask.masked_fill_(~allowed, torch.finfo(dtype).min)


def grouped_sdpa_mask(*, dtype: torch.dtype, **kwargs: Any) -> torch.Tensor | None:
    """The additive mask for the arguments of transformers' `sdpa_mask`, None if causal masking suffices."""
    allowed = sdpa_mask(**kwargs)
    return None if allowed is None else additive_mask(allowed, dtype)


def grouped_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """A drop-in for transformers' `sdpa_attention_forward`: `query` (rows, heads, new columns, head size), `key` and
    `value` (rows, key heads, columns, head size), `attention_mask` None or additive, (rows, 1, new columns, columns);
    returns (rows, new columns, heads, head size). With a single new column, the query heads that share a key head are
    passed as query columns; otherwise each query head of a group takes one SDPA call."""
    rows, heads, columns, size = query.shape
    group_size = heads // key.shape[1]
    if attention_mask is None or group_size == 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    grouped = query.reshape(rows, key.shape[1], group_size, columns, size)
    attend = partial(
        scaled_dot_product_attention, key=key, value=value, attn_mask=attention_mask, scale=kwargs.get("scaling")
    )
    if columns == 1:
        attended = attend(grouped.squeeze(3))
    else:
        attended = torch.stack([attend(queries) for queries in grouped.unbind(2)], dim=2)
    return attended.reshape(rows, heads, columns, size).transpose(1, 2).contiguous(), None


@contextmanager
def inference_state(model: PreTrainedModel, settings: GenerationConfig, grouped: bool) -> Iterator[None]:
    """Inside this block the model is in eval mode, its text layers use `grouped` attention, `generate()` reads
    `settings` instead of the model's own, and PyTorch's defaults that are slow or inexact for us are off in the whole
    process. Afterwards all of it is as before."""
    cudnn = torch.backends.cudnn
    cuda = torch.backends.cuda
    convolution = cudnn.conv.fp32_precision
    cudnn_attention = cuda.cudnn_sdp_enabled()
    training = [module for module in model.modules() if module.training]
    text_config = model.config.get_text_config()
    own_settings = model.generation_config
    attention = text_config._attn_implementation
    try:
        for module in training:
            module.training = False
        model.generation_config = settings
        if grouped:
            use_grouped_sdpa(model)
        if model.device.type == "cuda":
            # On Hopper, PyTorch prefers cuDNN attention, which builds a plan for every new shape: each decoding step
            # would need one, because it attends to one more column than the last.
            cuda.enable_cudnn_sdp(False)
        if model.dtype == torch.float32:  # cuDNN would round the patch embedding's convolution to TF32's 10 bits
            cudnn.conv.fp32_precision = "ieee"
        yield
    finally:
        cuda.enable_cudnn_sdp(cudnn_attention)
        cudnn.conv.fp32_precision = convolution
        for module in training:
            module.training = True
        model.generation_config = own_settings
        if text_config._attn_implementation != attention:
            model.set_attn_implementation({TEXT_CONFIG: attention})


AttentionInterface.register(_NAME, grouped_sdpa)
AttentionMaskInterface.register(_NAME, grouped_sdpa_mask)
