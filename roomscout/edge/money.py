"""What `plan` expects of the tokens that somebody bills, of their price, and of what a budget pays for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from roomscout.base.errors import flag
from roomscout.base.text import counted
from roomscout.edge.basis import Basis
from roomscout.edge.memory import CHARACTERS_PER_TOKEN, SERVED_IMAGE_SIDE, ConversationSize
from roomscout.edge.record import price_of
from roomscout.runs.prices import in_money

REPLY_TOKENS = 200  # of a reply on average, an assumption


@dataclass(frozen=True)
class Sent:
    """What is sent of a question, in tokens."""

    turns: float  # that are taken
    reply: float  # the tokens of a reply
    read: float  # of all requests, each of which has the whole conversation
    repeated: float  # those of them that an earlier request had
    written: float  # of all replies


def sent(size: ConversationSize, shares: Sequence[float], reply: float, anytime: bool = False) -> Sent:
    """What is sent if these shares of the questions take each turn, and a reply has so many tokens."""

    def read_at(turn: int) -> float:
        shown = turn if size.keep_views is None else min(turn, size.keep_views)
        return size.first_text_tokens + turn * (size.turn_text_tokens + reply) + (shown + 1) * size.image_tokens

    forced = [share * anytime for share in shares[:-1]] + [0.0]
    turns = range(len(shares))
    again = [read_at(turn - 1) if turn else 0.0 for turn in turns]
    return Sent(
        turns=sum(shares),
        reply=reply,
        read=sum((shares[turn] + forced[turn]) * read_at(turn) for turn in turns),
        repeated=sum(shares[turn] * again[turn] + forced[turn] * read_at(turn) for turn in turns),
        written=(sum(shares) + sum(forced)) * reply,
    )


def money_lines(basis: Basis, size: ConversationSize) -> Iterator[str]:
    """The tokens of a run behind a server and, with a file of prices, what the tokens of any model cost and what a
    budget pays for; `size` is that of the longest conversation. Raises SettingError for the file."""
    settings = basis.settings
    episodes = basis.questions.episodes
    if settings.present == "once":  # one request with all views
        more = (size.turns - 1) * (size.turn_text_tokens + size.image_tokens)
        size = replace(size, first_text_tokens=size.first_text_tokens + more, turns=1)
    ending = [1 - turn / size.turns for turn in range(size.turns)]  # as if as many questions end at each turn
    likely = sent(size, ending, min(REPLY_TOKENS, size.reply_tokens), settings.anytime)
    most = sent(size, [1.0] * size.turns, size.reply_tokens, settings.anytime)
    if settings.engine == "openai":
        for words, each in (("about", likely), ("at most", most)):
            yield (
                f"Tokens: {words} {episodes * each.read:,.0f} read and {episodes * each.written:,.0f} written "
                f"({each.turns:g} of {size.turns} turns a question, {each.reply:g} tokens a reply)"
            )
        yield (
            f"Assumed: a token for {CHARACTERS_PER_TOKEN:g} characters, and for {SERVED_IMAGE_SIDE}x"
            f"{SERVED_IMAGE_SIDE} pixels; the server may count otherwise"
        )
    price = price_of(settings, basis.facts)
    if price is None:
        return
    plain = [episodes * price.of(each.read, 0, each.written) for each in (likely, most)]
    cached = [episodes * price.of(each.read - each.repeated, each.repeated, each.written) for each in (likely, most)]
    about, at_most, about_cached, most_cached = map(in_money, (*plain, *cached))
    where = f"if a cache serves all that repeats, about {about_cached}, at most {most_cached}"
    yield f"Cost: about {about}, at most {at_most}; {where}"
    if settings.budget is not None and plain[0]:
        reached = int(episodes * settings.budget / plain[0])
        pays = "more than that" if reached >= episodes else f"about {reached:,} of {counted(episodes, 'answer')}"
        yield f"{flag('budget', settings.budget)} pays for {pays}"
