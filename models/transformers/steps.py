"""Decoding steps as compiled programs or CUDA graphs, in place of the loop inside `generate()`."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo import config as dynamo_config
from torch._dynamo import mark_dynamic
from torch._inductor import config as inductor_config
from torch.nn.functional import pad
from transformers import Cache, GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer

from models import ModelError
from models.transformers.attention import additive_mask
from models.transformers.families import family_of
from models.transformers.kv_cache import WINDOW
from models.transformers.loading import is_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from models.transformers.kv_cache import GrowingLayer

log = logging.getLogger(__name__)

# A graph is captured for this many steps ahead, at most: capturing costs as much as a few of them.
_GRAPH_STEPS = 256
# So many programs may be compiled in a process, two for each model.
_PROGRAMS = 128

Buffers = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, (rows, heads, room, head size) each."""
Step = Callable[[], torch.Tensor]
"""One decoding step on tensors that stay where they are; returns logits (rows, vocabulary)."""
Capture = Callable[[Step], Step]
"""Records the kernels of a step without running them; calling the result runs them on the same tensors."""


def require_compiler(device: torch.device) -> None:
    """Raise ModelError where `torch.compile` does not work: it needs a C++ compiler, and on CUDA Triton as well."""
    try:
        torch.compile(torch.neg)(torch.zeros(2, device=device))
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        needed = "a C++ compiler and Triton" if device.type == "cuda" else "a C++ compiler"
        raise ModelError(f"--compile does not work here ({reason}): install {needed}, or leave it out") from error


class GraphCapture:
    """Captures steps on one device as CUDA graphs, each with its own memory pool; raises RuntimeError without a
    CUDA device.

    Graphs do not share a pool: only one lives at a time, and PyTorch 2.11 cannot reuse a pool whose graphs are gone.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self, step: Step) -> Step:
        """The graph of a step that has run before, which loaded its kernels and workspaces."""
        if self._device.type != "cuda":
            raise RuntimeError(f"the model is on the {self._device.type}")
        graph = torch.cuda.CUDAGraph()
        # The current stream is restored even where capture fails, which would leave the process on its own stream.
        with (
            torch.cuda.device(self._device),
            torch.cuda.stream(torch.cuda.current_stream(self._device)),
            torch.cuda.graph(graph),
        ):
            logits = step()

        def replay() -> torch.Tensor:
            graph.replay()
            return logits

        return replay


class DecodingLoop:
    """A loop for `generate(custom_generate=...)`: normal prefill, then greedy decoding of the processed scores.

    A step runs the language model on one new token per row. It writes keys and values into the cache's buffers in place
    and attends to a window of columns, of which a mask excludes those that are not there yet. So all tensors of a step
    stay where they are until the window is full: one compiled program serves any number of columns, and a captured
    graph is replayed to the window's end. The scores' arg max is the only value per step that the CPU waits for.

    `compiled` steps have two programs, for a single row and for more, each compiled when first needed: a minute or more
    for 36 layers. On a CPU each holds a copy of the weights, in the layout that its matrix products read fastest, and
    PyTorch keeps it until the process ends. With `capture` a window's first step runs as it is, the others as a graph.
    """

    def __init__(self, model: "PreTrainedModel", compiled: bool, capture: Capture | None) -> None:
        family = family_of(model.config)
        self._language = model.get_submodule(family.language_model)
        self._head = model.get_submodule(family.head)
        self._dtype = model.dtype
        self._freezes = model.device.type == "cpu"
        self._take = self._compiled_step if compiled else self._step
        self._program = torch.compile(self._step, fullgraph=True)
        self._made: set[bool] = set()
        self._capture = capture

    @classmethod
    def of(cls, model: "PreTrainedModel", steps: str) -> "DecodingLoop | None":
        """The loop for a value of `runner.Steps`; None for "eager", which is the loop of `generate()`."""
        if steps == "eager":
            return None
        return cls(
            model, compiled="compiled" in steps, capture=GraphCapture(model.device) if "graphs" in steps else None
        )

    def __call__(
        self,
        model: "PreTrainedModel",
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **inputs: Any,
    ) -> torch.Tensor:
        """`input_ids` (rows, columns), the first of which the cache holds, followed by the generated ids, on the CPU.

        `inputs` are those of the model's forward(): a cache of GrowingLayers, `attention_mask` (rows, columns)
        or None, `position_ids` (axes, rows, columns not held), or without axes where there is one, and what else a
        prompt has.
        """
        layers: list[GrowingLayer] = inputs["past_key_values"].layers
        prompt = input_ids[:, layers[0].get_seq_length() :]
        logits = model(**inputs | {"input_ids": prompt, "logits_to_keep": 1}).logits[:, -1]
        positions = inputs["position_ids"][..., -1:].clone()
        _vary(positions, positions.dim() - 2)
        given = inputs["attention_mask"]  # generate() leaves out one that masks nothing
        mask = additive_mask(
            (torch.ones_like(input_ids) if given is None else given).bool()[:, None, None], self._dtype
        )
        columns, longest = input_ids.shape[1], generation_config.max_length
        # Kept on the CPU, where the stopping criteria and the grammar read them.
        ids = pad(input_ids.cpu(), (0, longest - columns), value=generation_config.pad_token_id)
        unfinished = torch.ones(len(ids), dtype=torch.bool)
        window: _Window | None = None
        with (
            inductor_config.patch(freezing=self._freezes),
            dynamo_config.patch(recompile_limit=_PROGRAMS),  # by default too few for a fifth model in one process
        ):
            while True:
                newest = logits_processor(ids[:, :columns], logits.float()).argmax(dim=1, keepdim=True)
                ids[unfinished, columns] = newest[:, 0].cpu()[unfinished]
                columns += 1
                unfinished &= ~stopping_criteria(ids[:, :columns], None)
                if not unfinished.any():
                    break
                if columns > mask.shape[-1]:
                    window = None  # else its outgrown buffers would be held beside the new ones
                    mask = self._widened(mask, longest)
                    window = self._open_window(layers, columns - 1, positions, mask)
                assert window is not None
                logits = window.step(newest, columns - 1)
        for layer in layers:
            layer.hold(columns - 1)
        return ids[:, :columns]

    def _widened(self, mask: torch.Tensor, longest: int) -> torch.Tensor:
        """The mask with columns to come, all masked: the fewest windows' worth that suits how steps are taken."""
        taken = mask.shape[-1]
        ahead = min(_GRAPH_STEPS, longest - taken) if self._capture else 1
        width = -(-(taken + ahead) // WINDOW) * WINDOW
        mask = pad(mask, (0, width - taken), value=torch.finfo(self._dtype).min)
        _vary(mask, 0, 3)
        return mask

    def _open_window(
        self, layers: "list[GrowingLayer]", taken: int, positions: torch.Tensor, mask: torch.Tensor
    ) -> "_Window":
        """A window of as many columns as `mask` has, of which the buffers hold `taken`. They get one column to spare:
        without it PyTorch would compile another program, for buffers that are read as a whole."""
        for layer in layers:
            layer.hold(taken)
        buffers = [layer.reserve(mask.shape[-1] + 1) for layer in layers]
        for states in (states for pair in buffers for states in pair):
            _vary(states, 0, 2)
        return _Window(self._take, self._captured if self._capture else None, positions, mask, buffers)

    def _captured(self, step: Step) -> Step:
        """The step as a graph; the step itself where capture fails, which is then not tried again."""
        if self._capture is None:
            return step
        try:
            return self._capture(step)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0]
            log.warning("No CUDA graph can be captured (%s): decoding steps are launched one by one", reason)
            self._capture = None
            return step

    def _compiled_step(self, ids: torch.Tensor, *inputs: Any) -> torch.Tensor:
        """`_step` compiled; logs the first call for a single row and the first for more, which compile it."""
        several = len(ids) > 1
        started = time.perf_counter()
        if several not in self._made:
            log.info("Compiling the decoding step for %s", "several rows" if several else "a single row")
        logits = self._program(ids, *inputs)
        if several not in self._made:
            log.info("Compiled in %.0f s", time.perf_counter() - started)
            self._made.add(several)
        return logits

    def _step(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, column: torch.Tensor, buffers: Buffers
    ) -> torch.Tensor:
        """The logits (rows, vocabulary) after `ids` (rows, 1), whose keys and values go to column number `column` (1).

        Waits for the device nowhere, so that it can be captured.
        """
        cache = Cache(layers=[_WindowLayer(keys, values, column, mask.shape[-1]) for keys, values in buffers])
        hidden = self._language(
            input_ids=ids, position_ids=positions, attention_mask=mask, past_key_values=cache, use_cache=True
        ).last_hidden_state
        return self._head(hidden[:, -1])


class _Window:
    """The tensors of all steps that attend to the same columns; they stay where they are.

    `positions` (axes, rows, 1) are those of the newest tokens, `mask` (rows, 1, 1, width) is additive, `buffers` hold
    keys and values. `capture` is called once, after the first step.
    """

    def __init__(
        self,
        take: Callable[..., torch.Tensor],
        capture: Capture | None,
        positions: torch.Tensor,
        mask: torch.Tensor,
        buffers: Buffers,
    ) -> None:
        self._ids = torch.zeros(len(mask), 1, dtype=torch.long, device=mask.device)
        _vary(self._ids, 0)
        self._column = torch.zeros(1, dtype=torch.long, device=mask.device)
        self._positions, self._mask = positions, mask
        self._take: Step = partial(take, self._ids, positions, mask, self._column, buffers)
        self._capture = capture
        self._begun = False

    def step(self, newest: torch.Tensor, column: int) -> torch.Tensor:
        """Logits (rows, vocabulary) after the tokens `newest` (rows, 1), valid until the next step."""
        self._ids.copy_(newest)
        self._column.fill_(column)
        self._positions += 1
        self._mask[..., column] = 0
        if self._begun and self._capture is not None:
            self._take, self._capture = self._capture(self._take), None
        self._begun = True
        return self._take()


class _WindowLayer(DynamicLayer):
    """A layer's buffers within one step, which writes the column of number `column` and reads the first `width`."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, column: torch.Tensor, width: int) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True
        self._column, self._width = column, width

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a column, (rows, heads, 1, head size) each; returns the keys and values to attend to."""
        self.keys.index_copy_(2, self._column, key_states)
        self.values.index_copy_(2, self._column, value_states)
        return self.keys[:, :, : self._width], self.values[:, :, : self._width]


def _vary(tensor: torch.Tensor, *dims: int) -> None:
    """Let the compiled program accept other sizes of these dimensions; those of size 1 have a separate program."""
    for dim in dims:
        if tensor.shape[dim] > 1:
            mark_dynamic(tensor, dim)
