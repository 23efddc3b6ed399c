"""What the layers of a language model keep of earlier tokens: keys and values of each, or a state after the last."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from roomscout.models.transformers.attention import current_call

STATES = {"linear_attention", "conv"}  # the types of layers that keep a state
KeptLayer: TypeAlias = "SlotLayer | StateLayer"  # what one layer keeps of all conversations


class SlotLayer(DynamicLayer):
    """One layer's keys and values of all conversations, (slots, columns, key heads, head size) each. What a call writes
    and attends to says the call; a column that no token has been put into, or whose token is forgotten, is not read."""

    is_initialized: bool

    def __init__(self) -> None:
        super().__init__()
        self.slots = 0
        self.columns = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put a call's new tokens, (rows, key heads, new columns, head size) each, into their columns; returns all."""
        if not self.is_initialized:
            keys = self._empty(key_states)
            self.values = self._empty(value_states)
            self.keys = keys
            self.dtype = key_states.dtype
            self.device = key_states.device
            self.is_initialized = True
        call = current_call()
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            assert buffer is not None, "the layer has been initialized"
            buffer[call.token_slots, call.token_columns] = states.transpose(1, 2).flatten(0, 1)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """How many tokens are before the new ones, in the longest row."""
        return max(current_call().starts)

    def rebuild(self, rows: Sequence[tuple[int, int]], slots: int, columns: int) -> None:
        """Have so many slots and columns: the first slots are copies of `rows`, each a slot and its tokens."""
        self.slots = slots
        self.columns = columns
        if not rows or not self.is_initialized:
            self.is_initialized = False
            self.keys = None
            self.values = None
            return
        for kind in ("keys", "values"):  # one of both is held twice
            former = getattr(self, kind)
            setattr(self, kind, self._empty(former.transpose(1, 2)))
            for place, (slot, tokens) in enumerate(rows):
                getattr(self, kind)[place, :tokens] = former[slot, :tokens]

    def clean(self, slot: int) -> None:
        """Forget what other conversations left: columns that a mask excludes must be finite, too."""
        for buffer in (self.keys, self.values):
            if buffer is not None:
                buffer[slot] = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated."""
        return sum(buffer.nbytes for buffer in (self.keys, self.values) if buffer is not None)

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        """Zeros for keys or values like these (..., key heads, columns, head size). On a CPU, where kernels read a head
        at once, heads come before columns in memory; flash attention reads pages."""
        heads, _, size = like.shape[-3:]
        if like.device.type == "cuda":
            return like.new_zeros(self.slots, self.columns, heads, size)
        return like.new_zeros(self.slots, heads, self.columns, size).transpose(1, 2)


class StateLayer(LinearAttentionLayer):
    """The states of linear attention or of a short convolution, (rows, ...) each: those of a call's rows, and those
    `kept` of each slot (slots, ...), after its last token. No token can be taken out of a state."""

    _KINDS = ("conv_states", "recurrent_states")

    def __init__(self, states: int) -> None:
        super().__init__(number_of_states=states)
        self.slots = 0
        self.kept: dict[tuple[str, int], torch.Tensor] = {}

    def begin(self, slots: Sequence[int] | None) -> None:
        """Let a call go on from what is kept of its slots, or without a state (None)."""
        kept = {} if slots is None else self.kept
        self.use({name: states[list(slots or ())] for name, states in kept.items()})

    def use(self, states: dict[tuple[str, int], torch.Tensor]) -> None:
        """Let a call go on from these states."""
        for kind in self._KINDS:
            for number in range(self.number_of_states):
                state = states.get((kind, number))
                getattr(self, kind)[number] = state
                getattr(self, f"is_{kind}_initialized")[number] = state is not None
                self.has_previous_state[number] = bool(states)

    @property
    def states(self) -> dict[tuple[str, int], torch.Tensor]:
        """The states of a call's rows."""
        named = [(kind, number) for kind in self._KINDS for number in range(self.number_of_states)]
        found = {(kind, number): getattr(self, kind)[number] for kind, number in named}
        return {name: state for name, state in found.items() if state is not None}

    def keep(self, slots: Sequence[int]) -> None:
        """Keep the states of a call's rows in these slots."""
        for name, state in self.states.items():
            if name not in self.kept:
                self.kept[name] = state.new_zeros(self.slots, *state.shape[1:])
            self.kept[name][list(slots)] = state

    def rebuild(self, rows: Sequence[tuple[int, int]], slots: int, columns: int) -> None:
        """Have so many slots: the first ones are copies of `rows`, each a slot and its tokens."""
        self.slots = slots
        former = self.kept
        self.kept = {}
        self.use({})
        for name, states in former.items() if rows else ():
            self.kept[name] = states.new_zeros(slots, *states.shape[1:])
            self.kept[name][: len(rows)] = states[[slot for slot, _ in rows]]

    @property
    def nbytes(self) -> int:
        """Bytes of the states that are kept."""
        return sum(state.nbytes for state in self.kept.values())


def cache_layers(config: PreTrainedConfig) -> list[KeptLayer] | None:
    """What the layers of a model's language model keep, by the layers of transformers' own cache; None if one of them
    is of another kind, such as a sliding window."""
    text = config.get_text_config(decoder=True)
    kept = list[KeptLayer]()
    try:
        layers = DynamicCache(config=text).layers
    except (AttributeError, KeyError):  # a kind of layer that is registered with the model alone
        return None
    for layer in layers:
        if type(layer) is DynamicLayer:
            kept.append(SlotLayer())
        elif type(layer) is LinearAttentionLayer:
            kept.append(StateLayer(layer.number_of_states))
        else:
            return None
    others = ("cross_attention_layers", "attn_logit_softcapping")
    return None if any(getattr(text, name, None) for name in others) else kept


def why_recomputed(config: PreTrainedConfig) -> str | None:
    """Why each turn recomputes all, to complete "every turn is recomputed: ..."; None if cached layers are reused."""
    if not getattr(config.get_text_config(decoder=True), "use_cache", True):
        return "its configuration has use_cache false"
    if cache_layers(config) is None:
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
