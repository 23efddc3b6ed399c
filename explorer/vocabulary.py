"""A phrase tokenizer: one token for each repeated sentence of the prompts, each category and each number."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING

from explorer.notes import action_text
from roomscout.envs.actions import CameraAction
from roomscout.rooms.furniture import CATEGORIES
from roomscout.rooms.routes import MOST_BLANKS, TURNS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MIN_COUNT = 3
"""Phrases that occur less often are encoded as words and bytes."""
FARTHEST_STEPS = 48
"""Largest coordinate with its own token, in steps of 0.25 m."""
_BYTE_SCORE, _PIECE_SCORE = -10.0, -1.0

_NUMBER = r" ?[+-]?\d+(?:\.\d+)?(?: (?:cm|m)\b[;.,]?)?"
_CATEGORY = " ?\\b(?:" + "|".join(sorted(map(re.escape, CATEGORIES), key=len, reverse=True)) + ")\\b"
_AROUND_TURNS = r"\b(?:[A-D]\.|So)(?= Turn)|: [A-D]\."
_PIECE = re.compile(rf"(\n+|{_AROUND_TURNS}|{_CATEGORY}|{_NUMBER})")
_WORD = re.compile(r" ?\w+|[^\w\s]")
_FIXED = (
    "system",
    "user",
    "assistant",
    action_text(CameraAction(forward_meters=1)).partition(": 1")[2],
    *action_text(CameraAction(answer="A", done=True)).split("A"),
    action_text(CameraAction(rotation_angle_degrees=1)).partition(": 1")[2],
)
"""The chat roles, and the constant parts of the JSON objects in replies."""


def phrases(corpus: Iterable[str]) -> list[str]:
    """The vocabulary for a corpus: line breaks, categories, numbers, and the repeated phrases between them."""
    counts: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for text in corpus:
        counts.update(piece for piece in _PIECE.split(text) if piece)
        words.update(_WORD.findall(text))
    numbers = [f" {step * 0.25:+.2f}" for step in range(-FARTHEST_STEPS, FARTHEST_STEPS + 1)]
    numbers += [f"{space}{tenth / 10:.1f}" for tenth in range(130) for space in ("", " ")]
    numbers += [f"{space}{number}" for number in range(0, 261) for space in ("", " ")]
    numbers += [f" {size} cm{stop}" for size in [*range(5, 100, 5), *range(100, 310, 10)] for stop in ";."]
    numbers += [f" {tenth / 10:.1f} m{stop}" for tenth in range(100) for stop in ";."]
    numbers += [f" {step * 0.25:.2f} m{stop}" for step in range(FARTHEST_STEPS) for stop in ("", ".")]
    numbers += [f" {angle:+d}" for angle in range(-45, 50, 5)]
    numbers += [f" {turn:+d}" for turn in range(-350, 360, 10)] + [f" {heading}" for heading in range(0, 360, 10)]
    frequent = [piece for piece, count in counts.items() if count >= MIN_COUNT]
    frequent_words = [word for word, count in words.items() if count >= MIN_COUNT]
    categories = [space + name for name in CATEGORIES for space in ("", " ")]
    routes = [" " + ", ".join(turns) for count in range(1, 1 + MOST_BLANKS) for turns in product(TURNS, repeat=count)]
    before = (";", "", ":", *(f" {letter};" for letter in "ABCD"))
    letters = [f"{nearest} {letter}." for nearest in before for letter in "ABCD"]
    return list(dict.fromkeys([*_FIXED, *frequent, *frequent_words, *categories, *routes, *letters, *numbers]))


def make_tokenizer(corpus: Iterable[str], like: "PreTrainedTokenizerFast") -> "PreTrainedTokenizerFast":
    """A Unigram tokenizer that splits text into as few pieces as possible, with the special tokens of `like`.

    Single bytes are pieces too, at a higher cost, so it encodes any text.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    scores = dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()), _BYTE_SCORE)
    for phrase in phrases(corpus):
        spelled = "".join(part for part, _ in as_bytes.pre_tokenize_str(phrase))
        scores[spelled] = _PIECE_SCORE
    tokenizer = Tokenizer(models.Unigram(list(scores.items())))
    tokenizer.pre_tokenizer = as_bytes
    tokenizer.decoder = decoders.ByteLevel()
    special = like.all_special_tokens
    tokenizer.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=like.eos_token, pad_token=like.pad_token, padding_side="left",
        extra_special_tokens=[token for token in special if token not in (like.eos_token, like.pad_token)],
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
