"""The tensors of one `generate()` call: encoded conversations in, generated token ids out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import LogitsProcessorList, StoppingCriteriaList

from agent.backends import ModelError, OutOfMemory
from agent.backends.decoding import ActionStop, RowSampling
from agent.backends.encoding import EncodedConversation

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class GenerationOptions:
    """`min_new_tokens` above 0 forces the length of a reply, for measurements; `temperature` 0 is greedy."""

    max_new_tokens: int
    min_new_tokens: int = 0
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class GeneratedRow:
    """One row's new token ids, its end token left out; `finished` is False where the limit cut it."""

    tokens: tuple[int, ...]
    finished: bool


class ModelRunner:
    """Owns the model: pads a batch, runs it, and takes its rows apart again."""

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", options: GenerationOptions
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._options = options
        self._end_ids: list[int] = model.generation_config.eos_token_id
        self._pad_id: int = model.generation_config.pad_token_id
        self._suppressed = _never_generated(tokenizer, self._end_ids, model.config.text_config.vocab_size)

    def run(self, batch: Sequence[EncodedConversation]) -> list[GeneratedRow]:
        """Generate one reply for each conversation, in order.

        Raises ModelError for a conversation that is too long for the model, OutOfMemory for a batch too large for the
        device.
        """
        for encoded in batch:
            self._check_length(encoded)
        with _memory_errors(len(batch)):
            return self._generate(batch)

    def _check_length(self, encoded: EncodedConversation) -> None:
        limit = self._model.config.text_config.max_position_embeddings
        needed = len(encoded.ids) + self._options.max_new_tokens
        if needed > limit:
            raise ModelError(
                f"conversation {encoded.id} needs {needed} tokens with its reply, and the model takes {limit}: "
                "use fewer --steps, a smaller --image-size or fewer --max-new-tokens"
            )

    def _generate(self, batch: Sequence[EncodedConversation]) -> list[GeneratedRow]:
        ids, mask, positions = self._left_padded(batch)
        columns = ids.shape[1]
        turns = [turn for encoded in batch for turn in encoded.turns]
        stop = ActionStop(self._tokenizer, self._end_ids, columns, self._options.min_new_tokens)
        # Stale M-RoPE offsets of the last call must not reach this one.
        self._model.model.rope_deltas = None
        output = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            pixel_values=torch.cat([turn.pixels for turn in turns]).to(ids.device),
            image_grid_thw=torch.cat([turn.grid for turn in turns]).to(ids.device),
            max_new_tokens=self._options.max_new_tokens,
            min_new_tokens=self._options.min_new_tokens or None,
            pad_token_id=self._pad_id,
            suppress_tokens=self._suppressed,
            logits_processor=self._sampling(batch),
            stopping_criteria=StoppingCriteriaList([stop]),
        )
        generated = output[:, columns:].tolist()
        return [
            GeneratedRow(tuple(tokens[: stop.lengths.get(row, len(tokens))]), row in stop.lengths)
            for row, tokens in enumerate(generated)
        ]

    def _left_padded(self, batch: Sequence[EncodedConversation]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids (B, L), mask (B, L) and M-RoPE positions (3, B, L) on the device, every row ending in the last column."""
        rows = [encoded.ids for encoded in batch]
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self._pad_id)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        positions = torch.zeros(3, len(rows), width, dtype=torch.long)
        for row, (encoded, row_ids) in enumerate(zip(batch, rows, strict=True)):
            start = width - len(row_ids)
            ids[row, start:] = torch.tensor(row_ids)
            mask[row, start:] = 1
            positions[:, row, start:] = encoded.positions
        device = self._model.device
        return ids.to(device), mask.to(device), positions.to(device)

    def _sampling(self, batch: Sequence[EncodedConversation]) -> LogitsProcessorList:
        options = self._options
        if not options.temperature:
            return LogitsProcessorList()
        streams = [f"{options.seed} {encoded.id} {len(encoded.turns)}" for encoded in batch]
        return LogitsProcessorList([RowSampling(options.temperature, streams, self._model.device)])


def _never_generated(tokenizer: "PreTrainedTokenizerBase", end_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Ids that no reply may hold: added tokens but the end tokens, and outputs without an entry in the tokenizer.

    A generated image placeholder would break the next turn, which has no image to put there.
    """
    unused = range(len(tokenizer), vocab_size)
    return sorted({*tokenizer.get_added_vocab().values(), *unused} - set(end_ids))


@contextmanager
def _memory_errors(rows: int) -> Iterator[None]:
    """Turn every way of running out of memory into OutOfMemory, with the device's free blocks given back."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        message = f"a batch of {rows} does not fit into memory: use a smaller --batch-size or --image-size"
    else:
        return
    # Raised outside the handler: there the traceback would still hold the tensors of the failed call.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    raise OutOfMemory(message)


def _is_out_of_memory(error: BaseException) -> bool:
    # The CPU's and MPS's allocators raise plain RuntimeErrors.
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(word in str(error) for word in words)
