"""Logits processors and stopping criteria that treat each row independently of its batch."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ReplyStop(StoppingCriteria):
    """Stops a row at an end token after `min_tokens`. `lengths[row]` is a finished row's number of tokens without it,
    and `first_token_at` the `perf_counter` time of the first."""

    def __init__(self, end_ids: Sequence[int], prompt_columns: int, min_tokens: int = 0) -> None:
        self.lengths: dict[int, int] = {}
        self.first_token_at: float | None = None
        self._end_ids = frozenset(end_ids)
        self._columns = self._prompt_columns = prompt_columns
        self._min_tokens = min_tokens

    def __call__(self, input_ids: torch.LongTensor, scores: object, **kwargs: object) -> torch.BoolTensor:
        """A (rows,) mask of the finished rows of `input_ids` (rows, columns)."""
        before = self._columns - self._prompt_columns
        new_ids = input_ids[:, self._columns :].tolist()
        self._columns = input_ids.shape[1]
        self.first_token_at = self.first_token_at or time.perf_counter()
        for row, tokens in enumerate(new_ids):
            for generated, token in enumerate(tokens, before + 1):
                if token in self._end_ids and generated >= self._min_tokens:
                    self.lengths.setdefault(row, generated - 1)
        done = [row in self.lengths for row in range(input_ids.shape[0])]
        return torch.tensor(done, device=input_ids.device)


class SuppressTokens(LogitsProcessor):
    """Bans tokens. transformers' own `suppress_tokens` searches the vocabulary at every step, which takes longer than
    the step itself on a CPU."""

    def __init__(self, ids: Sequence[int], device: torch.device) -> None:
        self._ids = torch.tensor(ids, device=device)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) with minus infinity for the banned ids."""
        return scores.index_fill(1, self._ids, -torch.inf)


class RecordedLogprobs(LogitsProcessor):
    """Applies `processors` and records the log-probability of each token that greedy decoding will choose. It is the
    model's own, the log-softmax of the logits in float32 before `processors`: without temperature, and with the
    probability of tokens that `processors` exclude."""

    def __init__(self, processors: LogitsProcessorList) -> None:
        self._processors = processors
        self._steps: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) as `processors` leave them."""
        logprobs = scores.float().log_softmax(dim=1)  # a copy: processors may change `scores`
        scores = self._processors(input_ids, scores)
        self._steps.append(logprobs.gather(1, scores.argmax(dim=1, keepdim=True)))
        return scores

    def rows(self) -> list[list[float]]:
        """Each row's log-probabilities, one per step; those after the row's end are meaningless."""
        return torch.cat(self._steps, dim=1).tolist()


class Penalties(LogitsProcessor):
    """Penalizes tokens that a row has already: "repetition_penalty" as transformers does, those of its prompt and its
    reply; "presence_penalty" and "frequency_penalty" as OpenAI and vLLM do, those of its reply. `prompts` are the ids
    of each row: `input_ids` has padding in place of cached ones."""

    def __init__(self, prompts: Sequence[Sequence[int]], given: Mapping[str, float], device: torch.device) -> None:
        known = [sorted(set(ids)) for ids in prompts]
        most = max(map(len, known))
        # Ids count once, so that shorter rows are padded with one of their own.
        self._known = torch.tensor([ids + ids[-1:] * (most - len(ids)) for ids in known], device=device)
        self._repetition = RepetitionPenaltyLogitsProcessor(float(given.get("repetition_penalty", 1.0)))
        self._presence, self._frequency = given.get("presence_penalty", 0.0), given.get("frequency_penalty", 0.0)
        self._prompt_columns: int | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) with the penalties; the first call is for the first token of the replies."""
        if self._prompt_columns is None:
            self._prompt_columns = input_ids.shape[1]
        reply = input_ids[:, self._prompt_columns :].to(scores.device)
        scores = self._repetition(torch.cat([self._known, reply], dim=1), scores)
        counts = torch.zeros_like(scores).scatter_add_(1, reply, torch.ones_like(reply, dtype=scores.dtype))
        return scores - self._frequency * counts - self._presence * (counts > 0)


def _truncation(given: Mapping[str, float]) -> LogitsProcessorList:
    """What excludes improbable tokens, in the order of transformers."""
    kinds = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}
    return LogitsProcessorList(kind(given[name]) for name, kind in kinds.items() if name in given)


class RowSampling(LogitsProcessor):
    """Makes greedy decoding sample at a temperature, with a separate random stream per row. The arg max of
    log-probabilities plus Gumbel noise is a sample from the distribution (the Gumbel-max trick). A row's noise depends
    only on its name in `streams`: on one kind of device, neither the batch nor a resume changes replies. What "top_k",
    "top_p" and "min_p" exclude at this temperature is never drawn."""

    def __init__(
        self, temperature: float, streams: Sequence[str], device: torch.device, given: Mapping[str, float]
    ) -> None:
        self._temperature, self._truncation = temperature, _truncation(given)
        self._generators = [torch.Generator(device).manual_seed(seed_of(name)) for name in streams]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) divided by the temperature and truncated, plus noise."""
        uniform = torch.stack(
            [torch.rand(scores.shape[1], generator=each, device=scores.device) for each in self._generators]
        )
        gumbel = -torch.log(-torch.log(uniform.clamp(min=torch.finfo(torch.float32).tiny)))
        return self._truncation(input_ids, scores / self._temperature) + gumbel


def seed_of(name: str) -> int:
    """A 63-bit seed for a named random stream."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def never_generated(tokenizer: "PreTrainedTokenizerBase", end_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Ids that a reply must not contain: special tokens except end tokens, and outputs beyond the tokenizer's entries.
    A generated image placeholder would break the next turn, which has no image for it. Added tokens that are not
    special are text, such as <think> in Qwen3's tokenizer."""
    special = (id for id, token in tokenizer.added_tokens_decoder.items() if token.special)
    unused = range(len(tokenizer), vocab_size)
    return sorted(id for id in {*special, *unused} - set(end_ids) if id < vocab_size)
