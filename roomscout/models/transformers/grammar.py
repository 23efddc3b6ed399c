"""Constrained decoding with xgrammar."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from roomscout.base.extras import importing
from roomscout.models import ModelError


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
