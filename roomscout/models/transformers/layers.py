"""What the layers of a language model keep of earlier tokens: keys and values of each, or a state after the last."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicIndexedLayer, DynamicLayer, LinearAttentionLayer

# Without a planned length, a growing buffer gets this many spare columns or a quarter of its size, whichever is more:
# it is then copied only every other turn.
SPARE = 64

STATES = {"linear_attention", "conv"}  # the types of layers that keep a state
INDEXED = ("qwen4_exp", "qwen4_exp_text")  # models whose indexed layers reply the same when their cache is reused
KeptLayer: TypeAlias = "GrowingLayer | StateLayer"  # one layer's cache for the rows of a batch
RowSource = tuple["KeptLayer", int, torch.Tensor]  # a batch's layer, a row's index in it, and its tokens' columns


class GrowingLayer(DynamicLayer):
    """One layer's keys and values, (rows, heads, columns, head size) each, appended in place to buffers of `planned`
    columns, which grow if they must; transformers' DynamicLayer copies all columns for each token."""

    is_initialized: bool

    def __init__(self, planned: int = 0) -> None:
        super().__init__()
        self._planned = planned
        self._buffers: list[torch.Tensor] = []
        self._rows: int | None = None

    def take(self, sources: Sequence[RowSource | None]) -> None:
        """Become a copy of these rows, right-aligned, with buffers of at least the planned columns."""
        cached = [(row, source) for row, source in enumerate(sources) if source is not None]
        if not cached:
            return
        width = max(len(columns) for _, (_, _, columns) in cached)
        for kind in ("keys", "values"):
            states = [getattr(layer, kind) for _, (layer, _, _) in cached]
            _, heads, _, size = states[0].shape
            buffer = states[0].new_zeros(len(sources), heads, max(width, self._planned), size)
            for (row, (_, index, columns)), of_batch in zip(cached, states, strict=True):
                buffer[row, :, width - len(columns) : width] = of_batch[index].index_select(1, columns)
            self._buffers.append(buffer)
        self.lazy_initialization(*self._buffers)
        self._set_views(width)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns, (rows, heads, new columns, head size) each; returns all keys and all values."""
        used = self.get_seq_length()
        columns = used + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [key_states[:, :, :0], value_states[:, :, :0]]
        for buffer, states in zip(self.reserve(columns), (key_states, value_states), strict=True):
            buffer[:, :, used:columns] = states
        self._set_views(columns)
        return self.keys, self.values

    def reserve(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The key and value buffers, grown to this many columns, to write behind the used ones before `set_length`.
        Unused columns are finite: masked ones must contribute exactly 0. Only one of keys and values is held twice."""
        used = self.get_seq_length()
        for kind, buffer in enumerate(self._buffers):
            if buffer.shape[2] < columns:
                capacity = self._planned if columns <= self._planned else columns + max(SPARE, columns // 4)
                rows, heads, _, size = buffer.shape
                self._buffers[kind] = buffer.new_zeros(rows, heads, capacity, size)
                self._buffers[kind][:, :, :used] = buffer[:, :, :used]
        self._set_views(used)
        return self._buffers[0][: self._rows], self._buffers[1][: self._rows]

    def reorder(self, order: Sequence[int]) -> None:
        """Move rows in place: the one with index `order[i]` becomes row i."""
        moved = [row for row, former in enumerate(order) if row != former]
        used = [buffer[:, :, : self.get_seq_length()] for buffer in self._buffers]
        for view, rows in zip(used, [view[[order[row] for row in moved]] for view in used], strict=True):
            view[moved] = rows

    def use(self, rows: int | None) -> None:
        """Use the first `rows` alone, until all are used again (None)."""
        self._rows = rows
        if self.is_initialized:
            self._set_views(self.get_seq_length())

    def set_length(self, columns: int) -> None:
        """Use exactly the first `columns` of the buffers; 0 frees the buffers."""
        if not self.is_initialized:
            return
        if columns == 0:
            self.is_initialized = False
            self._buffers, self.keys, self.values = [], None, None
        else:
            self._set_views(columns)

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated, spare columns included."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def _set_views(self, columns: int) -> None:
        self.keys, self.values = (buffer[: self._rows, :, :columns] for buffer in self._buffers)


class IndexedLayer(GrowingLayer, DynamicIndexedLayer):
    """A layer that attends to the tokens that an indexer chooses: also the indexer's keys (rows, columns, size), and in
    the first such layer the positions of all tokens (axes, rows, columns)."""

    indexer_keys: torch.Tensor | None
    indexer_position_ids: torch.Tensor | None

    def take(self, sources: Sequence[RowSource | None]) -> None:
        """Become a copy of these rows, of which all or none have tokens."""
        super().take(sources)
        cached = [source for source in sources if source is not None]
        keys = list[torch.Tensor]()
        places = list[torch.Tensor]()
        width = max((len(columns) for _, _, columns in cached), default=0)
        for layer, index, columns in cached:
            assert isinstance(layer, IndexedLayer) and layer.indexer_keys is not None
            before = width - len(columns)
            keys.append(pad(layer.indexer_keys[index, columns], (0, 0, before, 0)))
            if layer.indexer_position_ids is not None:
                places.append(pad(layer.indexer_position_ids[:, index, columns], (before, 0)))
        self.is_indexer_initialized = bool(keys)
        self.indexer_keys = torch.stack(keys) if keys else None
        self.indexer_position_ids = torch.stack(places, dim=1) if places else None

    def set_length(self, columns: int) -> None:
        """Use exactly the first `columns`; 0 frees all."""
        super().set_length(columns)
        self.is_indexer_initialized &= columns > 0
        keys = self.indexer_keys
        places = self.indexer_position_ids
        self.indexer_keys = keys[:, :columns] if keys is not None and columns else None
        self.indexer_position_ids = places[..., :columns] if places is not None and columns else None

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated, those of the indexer included."""
        held = [self.indexer_keys, self.indexer_position_ids]
        return super().nbytes + sum(tensor.nbytes for tensor in held if tensor is not None)


class StateLayer(LinearAttentionLayer):
    """The states of linear attention or of a short convolution, (rows, ...) each, after the last token. No token can be
    taken out of a state: what must not lose it is protected by a copy."""

    def __init__(self, states: int, planned: int = 0) -> None:
        super().__init__(number_of_states=states)
        self._before: dict[str, dict] | None = None

    def take(self, sources: Sequence[RowSource | None]) -> None:
        """Become a copy of these rows, of which all or none have tokens."""
        rows = [(source[0], source[1]) for source in sources if source is not None]
        if not rows:
            return
        first = rows[0][0]
        assert isinstance(first, StateLayer) and len(rows) == len(sources), "all rows have states, or none"
        self.__dict__.update(first._facts(), dtype=first.dtype, device=first.device)
        for name in ("conv_states", "recurrent_states"):
            for number, state in getattr(first, name).items():
                if state is not None:
                    getattr(self, name)[number] = torch.stack(
                        [getattr(layer, name)[number][row] for layer, row in rows]
                    )

    def protect(self) -> None:
        """Prepare a call that may fail, or that is not kept: let it change a copy of the states."""
        self._before = self._facts()
        for states in (self.conv_states, self.recurrent_states):
            states.update({number: state.clone() for number, state in states.items() if state is not None})

    def keep(self) -> None:
        """Keep what a call has added."""
        self._before = None

    def reorder(self, order: Sequence[int]) -> None:
        """Move rows: the one with index `order[i]` becomes row i, also before the last call."""
        for values in (vars(self), self._before or {}):
            for states in (values.get("conv_states", {}), values.get("recurrent_states", {})):
                known = {number: state for number, state in states.items() if state is not None}
                states.update({number: state[order[: len(state)]] for number, state in known.items()})

    def use(self, rows: int | None) -> None:
        """Use the first `rows` alone, until the call is undone, which brings back all."""
        if rows is not None:
            for states in (self.conv_states, self.recurrent_states):
                states.update({number: state[:rows] for number, state in states.items() if state is not None})

    def set_length(self, columns: int) -> None:
        """Return to the states from before the last call, if it was not kept."""
        self.__dict__.update(self._before or {}, _before=None)

    def _facts(self) -> dict[str, dict]:
        """The states and what is known of each, by the names of the attributes."""
        own = vars(self).items()
        return {name: dict(value) for name, value in own if isinstance(value, dict) and name != "_before"}

    @property
    def nbytes(self) -> int:
        """Bytes of the states."""
        held = [self.conv_states, self.recurrent_states]
        return sum(state.nbytes for states in held for state in states.values() if state is not None)


def layer_makers(config: PreTrainedConfig) -> list[Callable[[int], KeptLayer]] | None:
    """For each layer of a model's language model what makes its cache with buffers of `planned` columns, by the layers
    of transformers' own cache; None if one of them is of another kind, such as a sliding window."""
    text = config.get_text_config(decoder=True)
    makers = list[Callable[[int], KeptLayer]]()
    try:
        layers = DynamicCache(config=text).layers
    except (AttributeError, KeyError):  # a kind of layer that is registered with the model alone
        return None
    for layer in layers:
        if type(layer) is DynamicLayer:
            makers.append(GrowingLayer)
        elif type(layer) is DynamicIndexedLayer and text.model_type in INDEXED:
            makers.append(IndexedLayer)
        elif type(layer) is LinearAttentionLayer:
            makers.append(partial(StateLayer, layer.number_of_states))
        else:
            return None
    return None if getattr(text, "cross_attention_layers", None) else makers


def why_recomputed(config: PreTrainedConfig) -> str | None:
    """Why each turn recomputes all, to complete "every turn is recomputed: ..."; None if cached layers are reused."""
    if not getattr(config.get_text_config(decoder=True), "use_cache", True):
        return "its configuration has use_cache false"
    if layer_makers(config) is None:
        return "it has layers, such as those with a sliding window, whose cache is not reused"
    return None


def keeps_states(config: PreTrainedConfig) -> bool:
    """Whether a layer of the language model keeps a state in place of each token's keys and values."""
    return not STATES.isdisjoint(getattr(config.get_text_config(decoder=True), "layer_types", None) or [])


def kv_token_bytes(config: PreTrainedConfig, number_bytes: int) -> int:
    """Bytes of one token's keys and values, over all layers of a language model that have a KV cache."""
    text = config.get_text_config(decoder=True)
    kinds = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    numbers = 0
    for kind, layer in zip(kinds, getattr(text, "per_layer_config", None) or [text] * len(kinds), strict=False):
        if kind not in STATES:
            head = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
            numbers += 2 * (getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads) * head
    return numbers * number_bytes


def state_bytes(config: PreTrainedConfig) -> int:
    """Bytes of a conversation's states, in float32 as transformers keeps matrices. Linear attention (a gated delta net)
    has a (key size, value size) matrix for each value head; it and LFM2's convolutions have a convolution's inputs."""
    text = config.get_text_config(decoder=True)
    numbers = 0
    kinds = getattr(text, "layer_types", None) or []
    if "linear_attention" in kinds and hasattr(text, "linear_num_value_heads"):
        keys = text.linear_num_key_heads * text.linear_key_head_dim
        values = text.linear_num_value_heads * text.linear_value_head_dim
        of_layer = values * text.linear_key_head_dim + (2 * keys + values) * text.linear_conv_kernel_dim
        numbers += of_layer * kinds.count("linear_attention")
    if "conv" in kinds and hasattr(text, "conv_L_cache"):
        numbers += text.hidden_size * text.conv_L_cache * kinds.count("conv")
    return 4 * numbers
