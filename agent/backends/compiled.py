"""Decoding steps compiled by `torch.compile`, in place of the loop that `generate()` has by itself."""

import logging
import time
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo import config as dynamo_config
from torch._dynamo import mark_dynamic
from torch._inductor import config as inductor_config
from torch.nn.functional import pad
from transformers import Cache, GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer

from agent.backends import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agent.backends.kv_cache import GrowingLayer

log = logging.getLogger(__name__)

# Steps attend to so many columns more whenever all columns that they attend to are taken.
_WINDOW = 64
# So many programs may be made in a process, two for each model.
_PROGRAMS = 128

Buffers = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, (rows, heads, room, head size) each."""


def require_compiler(device: torch.device) -> None:
    """Raise ModelError where `torch.compile` does not work: it needs a C++ compiler, and on CUDA Triton as well."""
    try:
        torch.compile(torch.neg)(torch.zeros(2, device=device))
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        needed = "a C++ compiler and Triton" if device.type == "cuda" else "a C++ compiler"
        raise ModelError(f"--compile does not work here ({reason}): install {needed}, or leave it out") from error


class CompiledLoop:
    """A loop for `generate(custom_generate=...)`: the prompt as ever, then compiled steps, each of which takes the
    largest of what the processors leave.

    A step is a Qwen3-VL's language model for one new token of each row. It writes to the buffers of the cache where
    they are, and attends to a stretch of them of which a mask leaves out what is not there yet; so one program serves
    any number of columns. There are two, for a single row and for more, each made when it is first needed: a minute's
    work or more for 36 layers. On a CPU each holds the weights once more, in the order that its matrix products read
    best, and PyTorch keeps them until the process ends.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        self._language = model.model.language_model
        self._head = model.lm_head
        self._freezes = model.device.type == "cpu"
        self._compiled = torch.compile(self._step, fullgraph=True)
        self._made: set[bool] = set()

    def __call__(
        self,
        model: "PreTrainedModel",
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **inputs: Any,
    ) -> torch.Tensor:
        """`input_ids` (rows, columns), of which the cache holds the first, with the generated ids behind them.

        `inputs` are those of the model's forward(): a cache of GrowingLayers, `attention_mask` (rows, columns)
        or None, `position_ids` (3, rows, columns not held) and what else a prompt has.
        """
        layers: list[GrowingLayer] = inputs["past_key_values"].layers
        prompt = input_ids[:, layers[0].get_seq_length() :]
        logits = model(**inputs | {"input_ids": prompt, "logits_to_keep": 1}).logits[:, -1]
        positions = inputs["position_ids"][:, :, -1:].clone()
        _vary(positions, 1)
        given = inputs["attention_mask"]  # generate() leaves out one that masks nothing
        mask = (torch.ones_like(input_ids) if given is None else given).bool()[:, None, None]
        going_on = torch.ones_like(input_ids[:, 0], dtype=torch.bool)
        buffers: Buffers = []
        with (
            inductor_config.patch(freezing=self._freezes),
            dynamo_config.patch(recompile_limit=_PROGRAMS),  # by default too few for a fifth model in one process
        ):
            while True:
                newest = logits_processor(input_ids, logits.float()).argmax(dim=1, keepdim=True)
                newest.masked_fill_(~going_on[:, None], generation_config.pad_token_id)
                input_ids = torch.cat([input_ids, newest], dim=1)
                going_on &= ~stopping_criteria(input_ids, None)
                column = input_ids.shape[1] - 1
                if not going_on.any():
                    break
                if column == mask.shape[-1]:
                    buffers.clear()  # else all that are outgrown would be held beside the new ones
                    mask, buffers = _widened(mask, layers)
                mask[..., column] = True
                positions += 1
                _vary(newest, 0)
                logits = self._take_step(newest, positions, mask, newest.new_full((1,), column), buffers)
        for layer in layers:
            layer.hold(column)
        return input_ids

    def _take_step(self, ids: torch.Tensor, *inputs: Any) -> torch.Tensor:
        """`_step` compiled; the first one for a single row and the first for more, which make the program, are told of
        in the log."""
        several = len(ids) > 1
        started = time.perf_counter()
        if several not in self._made:
            log.info("Compiling the decoding step for %s", "several rows" if several else "a single row")
        logits = self._compiled(ids, *inputs)
        if several not in self._made:
            log.info("Compiled in %.0f s", time.perf_counter() - started)
            self._made.add(several)
        return logits

    def _step(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        column: torch.Tensor,
        buffers: Buffers,
    ) -> torch.Tensor:
        """The logits (rows, vocabulary) behind `ids` (rows, 1), which become the column of number `column` (1)."""
        cache = Cache(layers=[_Window(keys, values, column, mask.shape[-1]) for keys, values in buffers])
        hidden = self._language(
            input_ids=ids, position_ids=positions, attention_mask=mask, past_key_values=cache, use_cache=True
        ).last_hidden_state
        return self._head(hidden[:, -1])


class _Window(DynamicLayer):
    """A layer's buffers within one step, which writes the column of number `column` and reads the first `width`."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, column: torch.Tensor, width: int) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True
        self._column, self._width = column, width

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a column, (rows, heads, 1, head size) each; returns the keys and the values that are read."""
        self.keys.index_copy_(2, self._column, key_states)
        self.values.index_copy_(2, self._column, value_states)
        return self.keys[:, :, : self._width], self.values[:, :, : self._width]


def _widened(mask: torch.Tensor, layers: "list[GrowingLayer]") -> tuple[torch.Tensor, Buffers]:
    """The mask with room for more columns than are taken, and the buffers of all layers with as much and one to spare:
    without that one PyTorch would make a program for buffers that are read as a whole."""
    taken = mask.shape[3]
    width = (taken // _WINDOW + 1) * _WINDOW
    for layer in layers:
        layer.hold(taken)
    buffers = [layer.reserve(width + 1) for layer in layers]
    for keys, values in buffers:
        _vary(keys, 0, 2)
        _vary(values, 0, 2)
    mask = pad(mask, (0, width - taken))
    _vary(mask, 0, 3)
    return mask, buffers


def _vary(tensor: torch.Tensor, *dims: int) -> None:
    """Let the compiled program take other sizes of these dimensions too; those of 1 have a program of their own."""
    for dim in dims:
        if tensor.shape[dim] > 1:
            mark_dynamic(tensor, dim)
