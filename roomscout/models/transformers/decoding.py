"""Logits processors, of grammars too, and stopping criteria that treat each row independently of its batch.

Those with something of each row have `keep(rows)`: the call goes on with these of its rows, in this order."""

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase, StoppingCriteria
from transformers.generation import logits_process as theirs

from roomscout.base.extras import importing
from roomscout.models import ModelError


@dataclass
class RowReply:
    """What was generated for a row."""

    tokens: list[int] = field(default_factory=list)  # without the end token
    finished: bool = False  # by an end token
    failed: bool = False  # the logits behind these tokens are not finite
    ended_at: float = 0.0  # the `perf_counter` time of the newest id
    decode_s: float = 0.0  # its share of decoding steps: each is divided among the rows that still reply


class ReplyStop(StoppingCriteria):
    """Stops a row at an end token, at `most_tokens`, or where its logits are not `finite`; `ended` is then called with
    its place in it."""

    def __init__(
        self,
        end_ids: Sequence[int],
        prompt_columns: int,
        rows: int,
        most_tokens: int,
        ended: Callable[[int], None] = lambda row: None,
        finite: "FiniteLogits | None" = None,
    ) -> None:
        self._finite = finite
        self.replies = [RowReply() for _ in range(rows)]
        self.first_token_at: float | None = None
        self._rows = list(range(rows))
        self._end_ids = frozenset(end_ids)
        self._columns = prompt_columns
        self._most_tokens = most_tokens
        self._ended = ended
        self._open = set(self._rows)

    def __call__(self, input_ids: torch.LongTensor, scores: object, **kwargs: object) -> torch.BoolTensor:
        """A (rows,) mask of the rows of `input_ids` (rows, columns) to stop."""
        new_ids = input_ids[:, self._columns :].tolist()
        now = time.perf_counter()
        self._columns = input_ids.shape[1]
        if self.first_token_at is None:
            self.first_token_at = now
            self._now = now
        share = (now - self._now) / max(1, len(self._open))
        self._now = now
        finite = [self._most_tokens] * len(new_ids) if self._finite is None else self._finite.tokens()
        for row, tokens, sound in zip(self._rows, new_ids, finite, strict=True):
            if row not in self._open:
                continue
            reply = self.replies[row]
            reply.ended_at = now
            reply.decode_s += share
            for token in tokens:
                reply.failed = len(reply.tokens) >= sound
                reply.finished = token in self._end_ids and not reply.failed
                if not (reply.finished or reply.failed):
                    reply.tokens.append(token)
                if reply.finished or reply.failed or len(reply.tokens) == self._most_tokens:
                    self._open.remove(row)
                    self._ended(row)
                    break
        return torch.tensor([row not in self._open for row in self._rows], device=input_ids.device)

    @property
    def live(self) -> list[int]:
        """The rows of the call, by their index in it, that still reply."""
        return [index for index, row in enumerate(self._rows) if row in self._open]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the call, in this order."""
        self._rows = [self._rows[row] for row in rows]


class SuppressTokens(LogitsProcessor):
    """Bans tokens. transformers' `suppress_tokens` searches the vocabulary, which takes a CPU longer than a step."""

    def __init__(self, ids: Sequence[int], device: torch.device) -> None:
        self._ids = torch.tensor(ids, device=device)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) with minus infinity for the banned ids."""
        return scores.index_fill(1, self._ids, -torch.inf)


class FiniteLogits(LogitsProcessor):
    """Counts the tokens of each row up to the first whose logits have a NaN or infinity, or are all minus infinity; the
    first of all processors, since others exclude tokens. What it counts stays on the device until it is read."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self._sound = torch.ones(rows, dtype=torch.bool, device=device)
        self._tokens = torch.zeros(rows, dtype=torch.long, device=device)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) as they are. The same kernels on the same tensors each time, without waiting."""
        self._sound &= scores.amax(dim=1).isfinite()
        self._tokens += self._sound
        return scores

    def tokens(self) -> list[int]:
        """How many tokens of each row were chosen by finite logits; waits for the device."""
        return self._tokens.tolist()

    def move_to(self, other: "FiniteLogits") -> None:
        """Go on in the first rows of another, which a CUDA graph counts in."""
        rows = len(self._sound)
        other._sound[:rows] = self._sound
        other._tokens[:rows] = self._tokens
        self._sound = other._sound[:rows]
        self._tokens = other._tokens[:rows]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the call, in this order."""
        self._sound = self._sound[rows]
        self._tokens = self._tokens[rows]


class RecordedLogprobs(LogitsProcessor):
    """Applies `processors` and records the log-probability of each token that greedy decoding will choose: the model's
    own, the log-softmax of the logits in float32, before `processors` apply a temperature or exclude tokens."""

    def __init__(self, processors: LogitsProcessorList) -> None:
        self._processors = processors
        self._steps: list[tuple[Sequence[int], torch.Tensor]] = []
        self._rows: Sequence[int] | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) as `processors` leave them."""
        logprobs = scores.float().log_softmax(dim=1)  # a copy: processors may change `scores`
        scores = processed(self._processors, input_ids, scores)
        self._rows = self._rows or range(len(scores))
        self._steps.append((self._rows, logprobs.gather(1, scores.argmax(dim=1, keepdim=True))))
        return scores

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the call, in this order."""
        self._rows = [(self._rows or [])[row] for row in rows]
        keep_rows(self._processors, rows)

    def of_row(self, row: int) -> list[float]:
        """A row's log-probabilities, one per step; those after the row's end are meaningless."""
        return [float(values[rows.index(row), 0]) for rows, values in self._steps if row in rows]


class Penalties(LogitsProcessor):
    """Penalizes tokens that a row has already: "repetition_penalty" as transformers does, those of its prompt and its
    reply; "presence_penalty" and "frequency_penalty" as OpenAI and vLLM do, those of its reply. `prompts` are the ids
    of each row: `input_ids` lacks those that are cached."""

    def __init__(self, prompts: Sequence[Sequence[int]], settings: Mapping[str, float], device: torch.device) -> None:
        rows = [sorted(set(ids)) for ids in prompts]
        most = max(map(len, rows))
        # Ids count once, so that shorter rows are padded with one of their own.
        self._known = torch.tensor([ids + ids[-1:] * (most - len(ids)) for ids in rows], device=device)
        repetition = float(settings.get("repetition_penalty", 1.0))
        self._repetition = theirs.RepetitionPenaltyLogitsProcessor(repetition)
        self._presence = settings.get("presence_penalty", 0.0)
        self._frequency = settings.get("frequency_penalty", 0.0)
        self._prompt_columns: int | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) with the penalties; the first call is for the first token of the replies."""
        if self._prompt_columns is None:
            self._prompt_columns = input_ids.shape[1]
        reply = input_ids[:, self._prompt_columns :].to(scores.device)
        scores = self._repetition(torch.cat([self._known, reply], dim=1), scores)
        counts = torch.zeros_like(scores).scatter_add_(1, reply, torch.ones_like(reply, dtype=scores.dtype))
        return scores - self._frequency * counts - self._presence * (counts > 0)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the call, in this order."""
        self._known = self._known[rows]


class RowSampling(LogitsProcessor):
    """Makes greedy decoding sample at a temperature: the arg max of log-probabilities plus Gumbel noise is a sample
    (Gumbel-max trick). A row's noise depends only on its name in `streams`: on a kind of device, neither the batch nor
    a resume changes replies. What "top_k", "top_p" and "min_p" exclude at this temperature is never drawn."""

    def __init__(
        self, temperature: float, streams: Sequence[str], device: torch.device, settings: Mapping[str, float]
    ) -> None:
        self._temperature = temperature
        # What excludes improbable tokens, in the order of transformers.
        kinds = {"top_k": theirs.TopKLogitsWarper, "top_p": theirs.TopPLogitsWarper, "min_p": theirs.MinPLogitsWarper}
        truncations = (kind(settings[name]) for name, kind in kinds.items() if name in settings)
        self._truncation = LogitsProcessorList(truncations)
        self._generators = [torch.Generator(device).manual_seed(seed_of(name)) for name in streams]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) divided by the temperature and truncated, plus noise."""
        size = scores.shape[1]
        uniform = torch.stack([torch.rand(size, generator=row, device=scores.device) for row in self._generators])
        gumbel = -torch.log(-torch.log(uniform.clamp(min=torch.finfo(torch.float32).tiny)))
        return self._truncation(input_ids, scores / self._temperature) + gumbel

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the call, in this order."""
        self._generators = [self._generators[row] for row in rows]


def processed(
    processors: LogitsProcessorList, input_ids: torch.LongTensor, scores: torch.FloatTensor
) -> torch.FloatTensor:
    """What the processors make of `scores` (rows, vocabulary); transformers reads their signatures each time."""
    for processor in processors:
        scores = processor(input_ids, scores)
    return scores


def keep_rows(processors: LogitsProcessorList, rows: Sequence[int]) -> None:
    """Let a call go on with these of its rows, in this order."""
    for processor in processors:
        if hasattr(processor, "keep"):
            processor.keep(rows)


def seed_of(name: str) -> int:
    """A 63-bit seed for a named random stream."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def never_generated(tokenizer: PreTrainedTokenizerBase, end_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Ids that a reply must not contain: special tokens except end tokens, and outputs beyond the tokenizer's entries.
    An image placeholder would break the next turn. Other added tokens, such as Qwen3's <think>, are text."""
    special = (id for id, token in tokenizer.added_tokens_decoder.items() if token.special)
    unused = range(len(tokenizer), vocab_size)
    return sorted(id for id in {*special, *unused} - set(end_ids) if id < vocab_size)


def require_xgrammar() -> Any:
    """The xgrammar module; raises ModelError if it is not installed."""
    with importing("xgrammar", "constrained decoding", partial(ModelError, setting="constrained")):
        import xgrammar
    return xgrammar


def with_thought(grammar: str | None, opening: str) -> str | None:
    """The grammar of a reply that begins in the thought that the prompt opened ("": none) and that ends with its
    closing tag, with anything but `</` in it; raises ModelError if the opening is no tag."""
    if grammar is None or not opening:
        return grammar
    tag = re.fullmatch(r"<(\w+)>", opening.strip())
    if tag is None:
        raise ModelError(
            "constrained decoding does not know how to close what the checkpoint's chat template opens each reply "
            f"with ({opening!r}): leave it out",
            setting="constrained",
        )
    rules = f'root ::= thought "<"* "</{tag[1]}>" reply\nthought ::= ([^<] | "<"+ [^/<])*\n'
    return rules + grammar.replace("root ::=", "reply ::=", 1)


def compiled_grammar(grammar: str, tokenizer: PreTrainedTokenizerBase, vocab_size: int, end_ids: Sequence[int]) -> Any:
    """A grammar in xgrammar's GBNF notation, compiled for one tokenizer; `vocab_size` is the model's number of logits,
    `end_ids` are the end tokens. Raises ModelError if xgrammar (Dong et al., "XGrammar: Flexible and Efficient
    Structured Generation Engine for Large Language Models", 2024) is not installed."""
    library = require_xgrammar()
    info = library.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size, stop_token_ids=list(end_ids))
    return library.GrammarCompiler(info).compile_grammar(grammar)


class GrammarConstraint(LogitsProcessor):
    """Masks what a compiled grammar does not allow in a generate() call; a complete reply allows an end, then all."""

    def __init__(self, grammar: Any, rows: int, vocab_size: int) -> None:
        self._library = require_xgrammar()
        self._matchers = [self._library.GrammarMatcher(grammar) for _ in range(rows)]
        self._bitmask: torch.Tensor = self._library.allocate_token_bitmask(rows, vocab_size)
        self._started = False

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` (rows, vocabulary) with minus infinity for disallowed tokens."""
        for row, (matcher, newest) in enumerate(zip(self._matchers, input_ids[:, -1].tolist(), strict=True)):
            if self._started and not matcher.is_terminated():
                matcher.accept_token(newest)
            if matcher.is_terminated():
                self._bitmask[row] = -1  # all tokens
            else:
                matcher.fill_next_token_bitmask(self._bitmask, row)
        self._started = True
        # On CUDA, "auto" selects Triton, which needs a C compiler at run time.
        backend = "cpu" if scores.device.type == "cpu" else "torch_native"
        self._library.apply_token_bitmask_inplace(scores, self._bitmask.to(scores.device), backend=backend)
        return scores

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the call, in this order."""
        self._matchers = [self._matchers[row] for row in rows]
        self._bitmask = self._bitmask[rows].contiguous()
