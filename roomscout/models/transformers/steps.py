"""Decoding steps: one new token a row, eagerly, compiled, or as CUDA graphs that serve a whole run."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._dynamo import config as dynamo_config
from transformers import LogitsProcessorList, PreTrainedModel

from roomscout.base.text import first_line
from roomscout.models import ModelError
from roomscout.models.transformers.attention import Call
from roomscout.models.transformers.decoding import FiniteLogits, processed
from roomscout.models.transformers.devices import is_out_of_memory
from roomscout.models.transformers.families.family import LANGUAGE_MODEL
from roomscout.models.transformers.kv_cache import Pool, Row, cache_argument

log = logging.getLogger(__name__)

# With graphs, the CPU reads so many tokens of each row at once: a reply ends up to 3 steps before that is noticed.
STEPS_PER_READ = 4
# Graphs are for 1, 2, 4, 8 rows and then for multiples of 8.
_BUCKET = 8

Step = Callable[[], torch.Tensor]  # a step on static tensors; returns logits (rows, vocabulary) or tokens (rows, 1)
Capture = Callable[[Step], Step]  # captures a step's kernels unrun; the result replays them on the same tensors
Choose = Callable[[torch.Tensor], torch.Tensor]  # the next tokens (rows, 1) by logits (rows, vocabulary)


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
    own: PyTorch 2.11 cannot reuse a pool whose graphs were freed."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    # Not `torch.cuda.graph`, which also collects garbage and frees PyTorch's whole reserve of memory. The stream is the
    # current one again afterwards, also if capture fails.
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


def compiled_layers(model: PreTrainedModel, backend: str = "inductor") -> list[tuple[torch.nn.Module, Callable]]:
    """Each decoder layer of a model with its compiled forward pass: one program serves all of them."""
    layers = model.get_submodule(LANGUAGE_MODEL).layers
    return [(layer, torch.compile(layer._call_impl, dynamic=True, backend=backend)) for layer in layers]


class DecodingSteps:
    """Decodes the rows of a call, step by step. A step's tensors are static, whatever the lengths of the rows: with
    `capture`, a graph for a number of rows is captured once and serves all calls until the pool's buffers change. If
    nothing but `always` chooses tokens, that is part of the graph, and the CPU waits once in STEPS_PER_READ steps.
    Layers that keep states take rows as they are, others all tokens as one row."""

    def __init__(
        self,
        model: PreTrainedModel,
        pool: Pool,
        column_bytes: int,
        always: LogitsProcessorList,
        capture: Capture | None = None,
        compiled: Sequence[tuple[torch.nn.Module, Callable]] = (),
    ) -> None:
        self.captures = capture is not None
        self._model = model
        self._pool = pool
        self._column_bytes = column_bytes
        self._always = always
        self._capture = capture
        self._compiled = compiled
        self._cache_argument = cache_argument(model)
        self._version = -1
        self._graphs: dict[tuple[int, bool], StaticStep] = {}

    def size(self, rows: int) -> int:
        """The rows of the step that serves so many."""
        if not self.captures:
            return rows
        return -(-rows // _BUCKET) * _BUCKET if rows > _BUCKET else 1 << (rows - 1).bit_length()

    def free(self) -> None:
        """Free the graphs, each of which has memory of its own."""
        self._graphs.clear()

    def begin(
        self,
        rows: Sequence[Row],
        starts: Sequence[int],
        positions: torch.Tensor,
        choose: Choose,
        finite: FiniteLogits | None = None,
    ) -> "StaticStep":
        """The steps of these rows behind their first `starts` tokens, the next ones at `positions` (axes, rows).
        `finite` counts their logits if nothing but `always` chooses tokens with it."""
        slots = [row.slot for row in rows]
        idle = self.size(len(rows)) - len(rows)
        spare = self._pool.columns - 1
        call = Call(
            [*slots, *slots[:1] * idle], [*starts, *[spare] * idle], [1] * (len(rows) + idle),
            self._model.device, self._model.dtype, self._column_bytes, idle,
        )  # fmt: skip
        positions = torch.nn.functional.pad(positions, (0, idle)).to(self._model.device)
        if not self.captures:
            return StaticStep(self, call, positions, choose, None)
        if self._version != self._pool.version:
            self.free()
            self._version = self._pool.version
        key = len(slots) + idle, finite is not None
        if key not in self._graphs:
            counted = FiniteLogits(key[0], self._model.device) if finite is not None else None
            self._graphs[key] = StaticStep(self, call, positions, choose, counted)
        self._graphs[key].load(call, positions, choose, finite)
        return self._graphs[key]

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, call: Call, **more: Any) -> torch.Tensor:
        """Logits (tokens, vocabulary) after a call's `ids` (tokens,) at `positions` (axes, tokens), with `more` inputs
        of the model. Without images it never synchronizes with the device, so that it can be captured."""
        shape = (call.rows, -1) if self._pool.keeps_states else (1, -1)
        places = positions.unflatten(1, shape)
        inputs = {"position_ids": places if len(places) > 1 else places[0], self._cache_argument: self._pool.cache}
        with call.attending():
            made = self._model(input_ids=ids.view(shape), **inputs, **more, use_cache=True)
        return made.logits.flatten(0, 1)

    def choose_always(self, finite: FiniteLogits, logits: torch.Tensor) -> torch.Tensor:
        """The next tokens (rows, 1) if nothing else chooses them."""
        processors = LogitsProcessorList([finite, *self._always])
        ids = torch.empty(len(logits), 0, dtype=torch.long, device=logits.device)
        return processed(processors, ids, logits.float()).argmax(dim=1, keepdim=True)

    def capture(self, step: Step) -> Step | None:
        """The step as a graph; None, from then on, if capture fails."""
        if self._capture is None:
            return None
        try:
            return self._capture(step)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            log.warning("CUDA graph capture failed (%s): decoding continues without graphs", first_line(error))
            self._capture = None
            return None

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Run the decoder layers as they are compiled, if they are."""
        if not self._compiled:
            yield
            return
        try:
            for layer, program in self._compiled:
                layer._compiled_call_impl = program
            with dynamo_config.patch(allow_unspec_int_on_nn_module=True):
                yield
        finally:
            for layer, _ in self._compiled:
                layer._compiled_call_impl = None


class StaticStep:
    """The tensors of the steps of some rows: `ids` (rows,), positions (axes, rows), a call. The first step of a graph
    runs eagerly; it is captured after that, with the choice of tokens if it counts `finite` logits."""

    def __init__(
        self, steps: DecodingSteps, call: Call, positions: torch.Tensor, choose: Choose, finite: FiniteLogits | None
    ) -> None:
        self.call = call
        self._steps = steps
        self._positions = positions
        self._ids = torch.zeros(positions.shape[1], dtype=torch.long, device=positions.device)
        self._tokens = self._ids.new_zeros(len(self._ids), STEPS_PER_READ)
        self._choose = choose
        self._finite = finite
        self._replay: Step | None = None  # no bound method: a cycle would keep the buffers until garbage is collected
        self._has_run = False

    def load(self, call: Call, positions: torch.Tensor, choose: Choose, finite: FiniteLogits | None) -> None:
        """Begin another call with as many rows."""
        self.call.load(call)
        self._positions.copy_(positions)
        self._choose = choose
        if finite is not None and self._finite is not None:
            finite.move_to(self._finite)

    def after(self, newest: torch.Tensor, most: int) -> torch.Tensor:
        """At most so many tokens (rows, tokens) after the tokens `newest` (rows, 1)."""
        rows = len(newest)
        self._ids[:rows] = newest[:, 0]
        if self._finite is None:
            made = self._next(self._logits)[:rows]
            return self._choose(made)
        steps = min(most, STEPS_PER_READ)
        for step in range(steps):
            self._tokens[:, step] = self._next(self._token)[:, 0]
        return self._tokens[:rows, :steps].clone()

    def _next(self, step: Step) -> torch.Tensor:
        if self._has_run and self._replay is None and self._steps.captures:
            self._replay = self._steps.capture(step)
        self._has_run = True
        return (self._replay or step)()

    def _logits(self) -> torch.Tensor:
        with self._steps.compiled():
            logits = self._steps.forward(self._ids, self._positions, self.call)
        self._positions += 1
        self.call.advance()
        return logits

    def _token(self) -> torch.Tensor:
        assert self._finite is not None, "a graph that chooses counts what is finite"
        tokens = self._steps.choose_always(self._finite, self._logits())
        self._ids.copy_(tokens[:, 0])
        return tokens
