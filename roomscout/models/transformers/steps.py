"""A decoding loop with compiled steps or CUDA graphs, in place of `generate()`'s own loop."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch._dynamo import config as dynamo_config
from torch._dynamo import mark_dynamic
from torch.nn.functional import pad
from transformers import Cache, GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer

from roomscout.base.text import first_line
from roomscout.models import ModelError
from roomscout.models.transformers.attention import additive_mask
from roomscout.models.transformers.decoding import FiniteLogits, SuppressTokens
from roomscout.models.transformers.devices import is_out_of_memory
from roomscout.models.transformers.families.family import HEAD, LANGUAGE_MODEL
from roomscout.models.transformers.kv_cache import WINDOW, cache_argument
from roomscout.models.transformers.layers import GrowingLayer

log = logging.getLogger(__name__)

# A graph serves at most this many steps; capturing it costs as much as a few of them.
_GRAPH_STEPS = 256
# With graphs, the CPU reads so many tokens of each row at once: a reply ends up to 3 steps before that is noticed.
STEPS_PER_READ = 4
# Each model needs two programs; PyTorch's default limit fails for the fifth model in a process.
_RECOMPILE_LIMIT = 128

Buffers = list[tuple[torch.Tensor, torch.Tensor]]  # each layer's keys and values (rows, heads, capacity, head size)
Step = Callable[[], torch.Tensor]  # a step on static tensors; returns logits (rows, vocabulary) or tokens (rows, 1)
Capture = Callable[[Step], Step]  # captures a step's kernels unrun; the result replays them on the same tensors


@cache
def require_compiler(device: torch.device) -> None:
    """Raise ModelError unless steps can be compiled for this device: CUDA, with a C++ compiler and Triton."""
    if device.type != "cuda":
        why = f"only for CUDA: on the {device.type}, runs with compiled steps take longer in all: turn it off"
        raise ModelError(why, setting="compile")
    try:
        torch.compile(torch.neg)(torch.zeros(2, device=device))
    except RuntimeError as error:
        why = f"compiling does not work here ({first_line(error)}): install a C++ compiler and Triton, or leave it out"
        raise ModelError(why, setting="compile") from error


def captured(device: torch.device, step: Step) -> Step:
    """A step as a CUDA graph, once it has run and loaded its kernels; raises RuntimeError. Each graph has a pool of its
    own, as one exists at a time and PyTorch 2.11 cannot reuse a pool whose graphs were freed."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    # Not `torch.cuda.graph`, which also collects garbage and frees PyTorch's whole reserve of memory: a call has
    # several graphs. The stream is the current one again afterwards, also if capture fails.
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        graph.capture_begin(capture_error_mode="thread_local")  # views are drawn on others
        try:
            result = step()
        finally:
            graph.capture_end()

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay


class DecodingLoop:
    """A loop for `generate(custom_generate=...)`: normal prefill, then greedy decoding of the processed logits.

    A step runs the language model on one new token per row. It writes keys and values into the cache's buffers in place
    and attends to a fixed window of columns, with future columns masked. All of a step's tensors are therefore static
    until the window is full: one compiled program serves any number of columns, and a captured graph is replayed to the
    window's end. The CPU waits for one value per step, the arg max. With `capture`, and unless something chooses tokens
    by those before, the arg max is part of the graph, and the CPU waits once in STEPS_PER_READ steps.

    `compiled` uses two programs, for one row and for several, compiled on first use: a minute or more for 36 layers,
    seconds where PyTorch finds them on disk. With `capture`, all steps of a window but the first replay a graph."""

    def __init__(self, model: PreTrainedModel, compiled: bool, capture: Capture | None) -> None:
        self._language = model.get_submodule(LANGUAGE_MODEL)
        self._head = model.get_submodule(HEAD)
        self._cache_argument = cache_argument(model)
        self._dtype = model.dtype
        self._run_step = self._compiled_step if compiled else self._step
        self._program = torch.compile(self._step, fullgraph=True)
        self._compiled_for_several: set[bool] = set()
        self._capture = capture

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **inputs: Any,
    ) -> torch.Tensor:
        """Returns `input_ids` (rows, columns) followed by the generated ids, on the CPU. `inputs` are the model's
        forward() arguments: a cache of GrowingLayers with the first columns, `attention_mask` (rows, columns) or None,
        `position_ids` of the uncached columns, (axes, rows, columns) or (rows, columns), and image inputs."""
        layers: list[GrowingLayer] = inputs[self._cache_argument].layers
        prompt = input_ids[:, layers[0].get_seq_length() :]
        positions = inputs["position_ids"][..., -1:].clone()
        _mark_dynamic(positions, positions.dim() - 2)
        allowed = inputs["attention_mask"]  # generate() omits a mask of ones
        if allowed is None:
            allowed = torch.ones_like(input_ids)
        mask = additive_mask(allowed.bool()[:, None, None], self._dtype)
        columns = input_ids.shape[1]
        max_columns = generation_config.max_length
        pad_id = generation_config.pad_token_id
        # On the CPU, where the stopping criteria and the grammar read them.
        ids = pad(input_ids.cpu(), (0, max_columns - columns), value=pad_id)
        unfinished = torch.ones(len(ids), 1, dtype=torch.bool)

        def choose(logits: torch.Tensor) -> torch.Tensor:
            """The next tokens (rows, 1)."""
            return logits_processor(ids[:, :columns], logits.float()).argmax(dim=1, keepdim=True)

        regardless = all(isinstance(processor, FiniteLogits | SuppressTokens) for processor in logits_processor)
        capture = self._try_capture if self._capture else None
        open_window = partial(_Window, self._run_step, capture, layers, choose, regardless)
        window: _Window | None = None
        with dynamo_config.patch(recompile_limit=_RECOMPILE_LIMIT):
            if prompt.shape[1] == 1:  # a call that goes on with some of its rows: a step like any other
                positions -= 1
                mask = self._widened(mask, max_columns)
                window = open_window(columns - 1, positions, mask)
                new = window.after(prompt, 1)
            else:
                new = choose(model(**inputs | {"input_ids": prompt, "logits_to_keep": 1}).logits[:, -1])
            while True:
                read = new.cpu()
                ids[:, columns : columns + read.shape[1]] = read.masked_fill(~unfinished, pad_id)
                columns += read.shape[1]
                unfinished &= ~stopping_criteria(ids[:, :columns], None)[:, None]
                if not unfinished.any():
                    break
                if columns > mask.shape[-1]:
                    window = None  # frees its buffers before larger ones are allocated
                    mask = self._widened(mask, max_columns)
                    window = open_window(columns - 1, positions, mask)
                assert window is not None
                new = window.after(new[:, -1:], min(max_columns, mask.shape[-1] + 1) - columns)
        for layer in layers:
            layer.set_length(columns - 1)
        return ids[:, :columns]

    def _widened(self, mask: torch.Tensor, max_columns: int) -> torch.Tensor:
        """The mask extended by masked future columns to a multiple of WINDOW: enough for one step, or for a graph."""
        used = mask.shape[-1]
        ahead = min(_GRAPH_STEPS, max_columns - used) if self._capture else 1
        width = -(-(used + ahead) // WINDOW) * WINDOW
        mask = pad(mask, (0, width - used), value=torch.finfo(self._dtype).min)
        _mark_dynamic(mask, 0, 3)
        return mask

    def _try_capture(self, step: Step) -> Step:
        """The step as a graph. If capture fails, returns the step itself and disables capture."""
        if self._capture is None:
            return step
        try:
            return self._capture(step)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            log.warning("CUDA graph capture failed (%s): decoding continues without graphs", first_line(error))
            self._capture = None
            return step

    def _compiled_step(self, ids: torch.Tensor, *inputs: Any) -> torch.Tensor:
        """`_step`, compiled on the first call for one row and the first for several; logs both compilations."""
        several = len(ids) > 1
        if several in self._compiled_for_several:
            return self._program(ids, *inputs)
        rows = "several rows" if several else "a single row"
        log.info("Compiling the decoding step for %s", rows)
        started = time.perf_counter()
        logits = self._program(ids, *inputs)
        log.info("Compiled in %.0f s", time.perf_counter() - started)
        self._compiled_for_several.add(several)
        return logits

    def _step(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, column: torch.Tensor, buffers: Buffers
    ) -> torch.Tensor:
        """Logits (rows, vocabulary) after `ids` (rows, 1), whose keys and values go to the column with index `column`,
        a (1,) tensor. Never synchronizes with the device, so that it can be captured."""
        cache = Cache(layers=[_WindowLayer(keys, values, column, mask.shape[-1]) for keys, values in buffers])
        inputs = {"input_ids": ids, "position_ids": positions, "attention_mask": mask, self._cache_argument: cache}
        output = self._language(**inputs, use_cache=True)
        return self._head(output.last_hidden_state[:, -1])


class _Window:
    """The static tensors of all steps that attend to the same columns: `positions` (axes, rows, 1) of the newest
    tokens, an additive `mask` (rows, 1, 1, width). The first step writes to the column `used`, and its token comes
    behind that. `capture` is called once, after the first step, also on `choose` if that is `regardless` of tokens."""

    def __init__(
        self,
        run_step: Callable[..., torch.Tensor],
        capture: Capture | None,
        layers: Sequence[GrowingLayer],
        choose: Callable[[torch.Tensor], torch.Tensor],
        regardless: bool,
        used: int,
        positions: torch.Tensor,
        mask: torch.Tensor,
    ) -> None:
        for layer in layers:
            layer.set_length(used)
        # With a spare column: if they were read as a whole, PyTorch would compile another program.
        buffers = [layer.reserve(mask.shape[-1] + 1) for layer in layers]
        self._ids = torch.zeros(len(mask), 1, dtype=torch.long, device=mask.device)
        self._tokens = self._ids.new_zeros(len(mask), mask.shape[-1] + 1)
        for states in (states for pair in buffers for states in pair):
            _mark_dynamic(states, 0, 2)
        _mark_dynamic(self._ids, 0)
        self._column = self._ids.new_full((1,), used)
        self._used = used
        self._positions = positions
        self._mask = mask
        self._choose = choose
        self._run_step = partial(run_step, self._ids, positions, mask, self._column, buffers)
        self._chooses = capture is not None and regardless
        self._replay: Step | None = None  # no bound method: a cycle would keep the buffers until garbage is collected
        self._capture = capture
        self._started = False

    def after(self, newest: torch.Tensor, most: int) -> torch.Tensor:
        """At most so many tokens (rows, tokens) after the tokens `newest` (rows, 1)."""
        self._ids.copy_(newest)
        first = self._used + 1
        steps = min(most, STEPS_PER_READ) if self._chooses else 1
        for _ in range(steps):
            step = self._replay or (self._step_and_choose if self._chooses else self._step_alone)
            if self._started and self._capture is not None:
                step = self._capture(step)
                self._replay = step
                self._capture = None
            self._started = True
            made = step()
            self._used += 1
        return self._tokens[:, first : self._used + 1] if self._chooses else self._choose(made)

    def _step_alone(self) -> torch.Tensor:
        """The logits after `_ids`; advances all else. Never synchronizes with the device."""
        self._mask.index_fill_(3, self._column, 0)
        self._positions += 1
        logits = self._run_step()
        self._column += 1
        return logits

    def _step_and_choose(self) -> torch.Tensor:
        """Also replaces `_ids` by the next tokens, which it returns and notes."""
        self._ids.copy_(self._choose(self._step_alone()))
        self._tokens.index_copy_(1, self._column, self._ids)
        return self._ids


class _WindowLayer(DynamicLayer):
    """A layer's buffers within one step, which writes the column with index `column` and reads the first `width`."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, column: torch.Tensor, width: int) -> None:
        super().__init__()
        self.keys = keys
        self.values = values
        self.is_initialized = True
        self._column = column
        self._width = width

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one column of keys and values, (rows, heads, 1, head size); returns those to attend to."""
        self.keys.index_copy_(2, self._column, key_states)
        self.values.index_copy_(2, self._column, value_states)
        return self.keys[:, :, : self._width], self.values[:, :, : self._width]


def _mark_dynamic(tensor: torch.Tensor, *dims: int) -> None:
    """Mark dimensions as dynamic, except those of size 1, which have a separate program."""
    for dim in dims:
        if tensor.shape[dim] > 1:
            mark_dynamic(tensor, dim)
