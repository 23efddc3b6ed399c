"""What `plan` expects of the tokens that somebody bills, of their price, and of what a budget pays for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roomscout.base.errors import flag
from roomscout.edge.basis import Basis
from roomscout.edge.memory import CHARACTERS_PER_TOKEN, SERVED_SIDE, ConversationSize
from roomscout.edge.record import price_of
from roomscout.runs.prices import in_money

REPLY_TOKENS = 200  # of a reply on average, an assumption


class Sent(NamedTuple):
    """What is sent of a question, in tokens."""

    read: float  # of all requests, each of which has the whole conversation
    repeated: float  # those of them that an earlier request had
    written: float  # of all replies


def sent(size: ConversationSize, shares: Sequence[float], reply: float, anytime: bool = False) -> Sent:
    """What is sent if these shares of the questions take each turn, and a reply has so many tokens."""
    read = 0.0
    repeated = 0.0
    before = 0.0
    last = len(shares) - 1
    for turn, share in enumerate(shares):
        shown = turn if size.keep_views is None else min(turn, size.keep_views)
        now = size.first_text_tokens + turn * (size.turn_text_tokens + reply) + (shown + 1) * size.image_tokens
        again = now * share if anytime and turn < last else 0.0  # the same for what it would answer
        if size.probe_tokens:  # and for its map
            again += now * share
            read += size.probe_tokens * share
        read += now * share + again
        repeated += before * share + again
        before = now
    replies = sum(shares) * (2 if size.probe_tokens else 1) + (sum(shares[:-1]) if anytime else 0.0)
    return Sent(read, repeated, reply * replies)


def money_lines(basis: Basis, size: ConversationSize) -> Iterator[str]:
    """The tokens of a run behind a server and, with a file of prices, what the tokens of any model cost and what a
    budget pays for; `size` is that of the longest conversation. Raises SettingError for the file."""
    settings = basis.settings
    episodes = basis.questions.episodes
    if settings.present == "once":  # one request with all views
        more = (size.turns - 1) * (size.turn_text_tokens + size.image_tokens)
        size = replace(size, first_text_tokens=size.first_text_tokens + more, turns=1)
    price = price_of(settings, basis.facts)
    plain, cached = [], []
    ending = [1 - turn / size.turns for turn in range(size.turns)]  # as if as many questions end at each turn
    kinds = (
        ("about", ending, min(REPLY_TOKENS, size.reply_tokens)),
        ("at most", [1.0] * size.turns, size.reply_tokens),
    )
    for words, shares, reply in kinds:
        read, repeated, written = sent(size, shares, reply, settings.anytime)
        if settings.engine == "openai":
            yield (
                f"Tokens: {words} {episodes * read:,.0f} read and {episodes * written:,.0f} written "
                f"({sum(shares):g} of {size.turns} turns a question, {reply} tokens a reply), assumed is a token for "
                f"{CHARACTERS_PER_TOKEN:g} characters or {SERVED_SIDE}x{SERVED_SIDE} pixels"
            )
        if price is not None:
            plain.append(episodes * price.of(read, 0, written))
            cached.append(episodes * price.of(read - repeated, repeated, written))
    if price is None:
        return
    about, at_most, about_cached, most_cached = map(in_money, (*plain, *cached))
    where = f"if a cache serves all that repeats, about {about_cached}, at most {most_cached}"
    yield f"Cost: about {about}, at most {at_most}; {where}"
    if settings.budget is not None and plain[0]:
        reached = int(episodes * settings.budget / plain[0])
        far = "more than the cost expected" if reached >= episodes else f"about {reached:,} of {episodes:,} answers"
        yield f"{flag('budget', settings.budget)}: {far}"
