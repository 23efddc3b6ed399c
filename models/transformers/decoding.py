"""How a reply is chosen and when it ends, row by row, whatever else is in the batch."""

import hashlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from transformers import LogitsProcessor, StoppingCriteria

from models import ReplyFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ReplyStop(StoppingCriteria):
    """Ends a row at an end token or as soon as its reply is complete.

    `lengths[row]` is the number of tokens that a finished row generated, its end token not counted. No row ends
    before `shortest` tokens. `first_token_at` is when the first token was there, on the clock of `perf_counter`.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        end_ids: Sequence[int],
        prompt_columns: int,
        reply_format: ReplyFormat,
        shortest: int = 0,
    ) -> None:
        self.lengths: dict[int, int] = {}
        self.first_token_at: float | None = None
        self._tokenizer = tokenizer
        self._end_ids = frozenset(end_ids)
        self._prompt_columns = prompt_columns
        self._format = reply_format
        self._shortest = shortest

    def __call__(self, input_ids: torch.LongTensor, scores: object, **kwargs: object) -> torch.BoolTensor:
        """Which rows of `input_ids` (rows, columns) are finished, as a (rows,) mask."""
        generated = input_ids.shape[1] - self._prompt_columns
        newest_ids = input_ids[:, -1].tolist()
        self.first_token_at = self.first_token_at or time.perf_counter()
        for row, newest in enumerate(newest_ids):
            if row in self.lengths or generated < self._shortest:
                continue
            if newest in self._end_ids:
                self.lengths[row] = generated - 1
            elif self._may_complete(newest) and self._format.is_complete(self._text(input_ids[row])):
                self.lengths[row] = generated
        done = [row in self.lengths for row in range(input_ids.shape[0])]
        return torch.tensor(done, device=input_ids.device)

    def _may_complete(self, token: int) -> bool:
        # A printable ASCII character is one byte, so the name of every byte-level token that contains it shows it.
        return self._format.closing in self._tokenizer.convert_ids_to_tokens(token)

    def _text(self, row: torch.Tensor) -> str:
        return self._tokenizer.decode(row[self._prompt_columns :])


class Forbidden(LogitsProcessor):
    """Rules tokens out. transformers' own `suppress_tokens` searches the vocabulary at every step, which takes
    longer than the step itself on a CPU."""

    def __init__(self, ids: Sequence[int], device: torch.device) -> None:
        self._ids = torch.tensor(ids, device=device)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) with minus infinity for the forbidden ids."""
        return scores.index_fill(1, self._ids, -torch.inf)


class RowSampling(LogitsProcessor):
    """Turns greedy decoding into sampling at a temperature, each row with its own random numbers.

    The largest of log-probabilities plus Gumbel noise is a draw from the distribution (the Gumbel-max trick), and the
    noise of a row depends on its `streams` name alone: a reply does not change with its batch or with a resume on the
    same kind of device.
    """

    def __init__(self, temperature: float, streams: Sequence[str], device: torch.device) -> None:
        self._temperature = temperature
        self._generators = [torch.Generator(device).manual_seed(seed_of(name)) for name in streams]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) divided by the temperature, plus noise."""
        uniform = torch.stack(
            [torch.rand(scores.shape[1], generator=each, device=scores.device) for each in self._generators]
        )
        gumbel = -torch.log(-torch.log(uniform.clamp(min=torch.finfo(torch.float32).tiny)))
        return scores / self._temperature + gumbel


def seed_of(name: str) -> int:
    """A seed of 63 bits that depends on a stream's name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def never_generated(tokenizer: "PreTrainedTokenizerBase", end_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Ids that no reply may hold: added tokens but the end tokens, and outputs without an entry in the tokenizer.

    A generated image placeholder would break the next turn, which has no image to put there.
    """
    unused = range(len(tokenizer), vocab_size)
    return sorted({*tokenizer.get_added_vocab().values(), *unused} - set(end_ids))
