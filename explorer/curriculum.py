"""The curriculum of the included explorer, as data, and its schedule at a scale."""

from dataclasses import dataclass
from functools import cached_property

KINDS = {
    "words": ("practice", "drills", "practice", "counting"),
    "views": ("views", "drills", "views", "second looks", "views", "practice", "views", "counting"),
    "conversations": ("episodes", "drills", "episodes", "second looks", "episodes", "practice", "episodes", "counting"),
}
"""The kinds of rows that the steps of a stage cycle through: text only, single views, whole demonstrations."""
HELD_OUT_ROOMS = range(1500, 1504)
"""Rooms for the learning curve, which uses every second question there; the same at any scale."""
FEWEST_ROOMS = 4


@dataclass(frozen=True)
class Leg:
    """Stages with one schedule of the learning rate, and the rooms that their demonstrations are from.

    `stages` are pairs of a key of KINDS and a number of steps. `rooms` are the first room and the number of rooms.
    """

    learning_rate: float
    rooms: tuple[int, int]
    stages: tuple[tuple[str, int], ...]


FIRST, MORE, OTHERS = (0, 600), (0, 900), (900, 600)
EXPLORER = (
    Leg(1.5e-3, FIRST, (("views", 3600), ("conversations", 2600))),
    Leg(1.5e-3, FIRST, (("words", 700), ("views", 300))),
    Leg(1.5e-3, FIRST, (("words", 300), ("views", 500), ("conversations", 500))),
    Leg(1.5e-3, FIRST, (("words", 900), ("views", 2300))),
    Leg(1.5e-3, FIRST, (("words", 1700), ("views", 320), ("conversations", 1490))),
    Leg(1.5e-3, FIRST, (("words", 1190), ("views", 6000), ("conversations", 1200))),
    Leg(1.5e-3, FIRST, (("views", 240), ("conversations", 630))),
    Leg(1.5e-3, MORE, (("conversations", 320), ("views", 4000), ("conversations", 1380))),
    Leg(1.5e-3, OTHERS, (("words", 160), ("views", 3500), ("conversations", 1800))),
    Leg(8e-4, OTHERS, (("views", 3000), ("conversations", 700))),
    Leg(6e-4, OTHERS, (("views", 1000), ("conversations", 1500))),
    Leg(5e-4, OTHERS, (("views", 500), ("conversations", 250))),
    Leg(6e-4, OTHERS, (("views", 2000), ("conversations", 1000))),
)
"""The runs from which the included weights came, each with the weights of the one before (docs/training.md)."""


@dataclass(frozen=True)
class Span:
    """The steps of one stage, and of its leg."""

    number: int  # of the stage among all of the plan, from 0
    stage: str  # a key of KINDS
    leg: Leg  # which it is a stage of
    first: int  # step
    end: int  # the step after the last
    leg_first: int  # the first step of its leg
    leg_end: int  # the step after the last of its leg


@dataclass(frozen=True)
class Plan:
    """A curriculum at a scale. In each leg the learning rate rises, stays, and decays linearly to a twentieth."""

    legs: tuple[Leg, ...] = EXPLORER  # each with the weights of the one before
    scale: float = 1.0  # multiplies the steps of each stage, the warm-up and the rooms of each leg
    seed: int = 0  # of the first weights and of what is drawn
    view_rows: int = 32  # rows in a batch of any kind but whole conversations
    episode_rows: int = 16  # rows in a batch of whole conversations
    warmup: int = 100  # steps over which the learning rate rises
    cooldown: float = 0.25  # the last share of the steps, over which it decays
    weight_decay: float = 0.05  # of AdamW
    save_every: int = 200  # steps after which the state is saved and held-out rooms are evaluated, as after each leg

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The stages in their order."""
        spans: list[Span] = []
        for leg in self.legs:
            lengths = [max(1, round(steps * self.scale)) for _, steps in leg.stages]
            first = spans[-1].end if spans else 0
            start = first
            for (stage, _), length in zip(leg.stages, lengths, strict=True):
                spans.append(Span(len(spans), stage, leg, start, start + length, first, first + sum(lengths)))
                start += length
        return tuple(spans)

    @property
    def steps(self) -> int:
        """The total number of steps."""
        return self.spans[-1].end

    def span(self, step: int) -> Span:
        """The stage that a step belongs to."""
        return next(span for span in self.spans if step < span.end)

    def rooms(self, leg: Leg) -> range:
        """The rooms of a leg."""
        first, count = leg.rooms
        return range(first, first + max(FEWEST_ROOMS, round(count * self.scale)))

    def rows(self, step: int) -> tuple[str, int, int]:
        """The kind and number of rows in a step, and the number of earlier steps of its stage with this kind."""
        span = self.span(step)
        kinds = KINDS[span.stage]
        rounds, place = divmod(step - span.first, len(kinds))
        kind = kinds[place]
        before = rounds * kinds.count(kind) + kinds[:place].count(kind)
        return kind, self.episode_rows if kind == "episodes" else self.view_rows, before

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        span = self.span(step)
        done = step - span.leg_first
        total = span.leg_end - span.leg_first
        warmup = self.warmup * self.scale
        left = (total - done) / max(1.0, self.cooldown * total)
        return span.leg.learning_rate * min((done + 1) / max(1.0, warmup), 0.05 + 0.95 * min(1.0, left))

    def saves_after(self, step: int) -> bool:
        """Whether the state is saved once this many steps are done."""
        return step % self.save_every == 0 or any(step == span.leg_end for span in self.spans)


class CannotTrain(Exception):
    """A run cannot be started or resumed; the message gives the reason."""
