"""Prepares a model that may belong to someone else for one call, and restores it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from roomscout.models.transformers.attention import use_grouped_sdpa
from roomscout.models.transformers.families.family import TEXT_CONFIG

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel


@contextmanager
def inference_state(model: "PreTrainedModel", settings: "GenerationConfig") -> Iterator[None]:
    """Inside this block the model is in eval mode, its text layers use grouped attention, `generate()` reads `settings`
    instead of the model's own, and kernels are as in `chosen_kernels`. Afterwards all of it is as before.

    A model that is being trained can therefore generate between its training steps.
    """
    training = [module for module in model.modules() if module.training]
    text_config, own_settings = model.config.get_text_config(), model.generation_config
    attention = text_config._attn_implementation
    try:
        for module in training:
            module.training = False
        model.generation_config = settings
        use_grouped_sdpa(model)
        with chosen_kernels(model.device, model.dtype):
            yield
    finally:
        for module in training:
            module.training = True
        model.generation_config = own_settings
        if text_config._attn_implementation != attention:
            model.set_attn_implementation({TEXT_CONFIG: attention})


@contextmanager
def chosen_kernels(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Disables PyTorch defaults that are slow or inexact for us, in the whole process, inside this block."""
    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    convolution, cudnn_attention = cudnn.conv.fp32_precision, cuda.cudnn_sdp_enabled()
    try:
        if device.type == "cuda":
            # On Hopper, PyTorch prefers cuDNN attention, which builds a plan for every new shape: each decoding step
            # would need one, because it attends to one more column than the last.
            cuda.enable_cudnn_sdp(False)
        if dtype == torch.float32:  # cuDNN would round the patch embedding's convolution to TF32's 10 bits
            cudnn.conv.fp32_precision = "ieee"
        yield
    finally:
        cuda.enable_cudnn_sdp(cudnn_attention)
        cudnn.conv.fp32_precision = convolution
