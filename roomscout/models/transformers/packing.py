"""Copies of the weights of linear layers in the layout that oneDNN multiplies fastest with, for a CPU.

TorchInductor's `freezing` makes such copies too, but then its programs are not found again on disk."""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from weakref import WeakValueDictionary

import torch

_LEAST_NUMBERS = 2**17  # smaller weights are multiplied faster as they are: oneDNN takes some 20 us to begin
_packed_of: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()  # the copies, by the weights' addresses


@torch.library.custom_op("roomscout::packed_linear", mutates_args=())
def packed_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`x` (..., inputs) times the copy of `weight` (outputs, inputs), plus `bias`."""
    return torch.ops.mkldnn._linear_pointwise(x, _packed_of[weight.data_ptr()], bias, "none", [], "")


@packed_linear.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


class PackedLinears:
    """Inside this block, the large linear layers of a model multiply with copies of their weights, made once: later
    changes of the weights are ignored."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._copies = list[torch.Tensor]()
        self._forwards: list[tuple[torch.nn.Module, Callable[..., torch.Tensor]]] = []
        for module in model.modules():
            if type(module) is torch.nn.Linear and module.weight.numel() >= _LEAST_NUMBERS:
                weight = module.weight.detach()
                copy = _packed_of.get(weight.data_ptr())
                if copy is None:
                    copy = torch.ops.mkldnn._reorder_linear_weight(weight, None)
                    _packed_of[weight.data_ptr()] = copy
                self._copies.append(copy)
                self._forwards.append((module, partial(packed_linear, weight=weight, bias=module.bias)))

    def __enter__(self) -> None:
        for module, forward in self._forwards:
            module.forward = forward

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for module, _ in self._forwards:
            del module.forward  # the class has its own
