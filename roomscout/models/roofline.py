"""The least time that a model's calls can take on a device."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """A device's peak rates: bytes copied per second (read plus written) and floating-point operations per second."""

    bytes_per_s: float
    flop_per_s: float


@dataclass(frozen=True)
class Work:
    """A model's compute and memory traffic, with lower bounds on time from the roofline model (S. Williams et al.,
    "Roofline", CACM 2009), which counts only arithmetic and memory reads.

    A token passes through `token_parameters` of the language model (`layers` layers), an image patch through
    `patch_parameters` of the image encoder (`encoder_layers` layers); a parameter takes `number_bytes`. A conversation
    takes `kv_bytes_per_token` over all layers, plus a constant `state_bytes`. `number_bytes` is a mean if weights are
    quantized.
    """

    token_parameters: int
    patch_parameters: float
    number_bytes: float
    kv_bytes_per_token: int
    layers: int
    encoder_layers: int
    state_bytes: int = 0

    def least_prefill_seconds(self, rates: Rates, tokens: float, patches: float) -> float:
        """Lower bound for prefilling `tokens` (text and image) and `patches`, totals over all rows: 2 operations per
        parameter each."""
        return 2 * (self.token_parameters * tokens + self.patch_parameters * patches) / rates.flop_per_s

    def least_step_seconds(self, rates: Rates, rows: float, held_tokens: float) -> float:
        """Lower bound for one decoding step, the longer of reading and computing. It reads the language model once for
        all rows, and the keys and values of `held_tokens`, the total over all rows."""
        read = self.token_parameters * self.number_bytes + held_tokens * self.kv_bytes_per_token
        return max(read / rates.bytes_per_s, 2 * self.token_parameters * rows / rates.flop_per_s)

    def least_seconds(
        self, rates: Rates, rows: float, tokens: float, patches: float, held_tokens: float, reply_tokens: float
    ) -> float:
        """Lower bound for one call: prefill of `tokens` and `patches`, then `reply_tokens` decoding steps. `tokens`,
        `patches` and the cached `held_tokens` are totals over all rows."""
        held = held_tokens + rows * reply_tokens / 2  # the mean over the reply
        prefill = self.least_prefill_seconds(rates, tokens, patches)
        return prefill + reply_tokens * self.least_step_seconds(rates, rows, held)
