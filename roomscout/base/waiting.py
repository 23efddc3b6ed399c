"""What a command waits for: the steps in progress, of which the last one is shown if the command shows any."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock

Show = Callable[[str, str], None]
"""Shows a step in place of the one before: what is done, and about what or how far it is."""


@dataclass
class _Steps:
    """The steps of this process, in the order of their news: scans are loaded while a model is."""

    lock: RLock = field(default_factory=RLock)
    begun: dict[object, tuple[str, str]] = field(default_factory=dict)
    show: Show | None = None  # None where nobody waits

    def show_last(self) -> None:
        if self.show is not None and self.begun:
            self.show(*list(self.begun.values())[-1])


_steps = _Steps()


@contextmanager
def step(what: str, about: str = "") -> Iterator[Callable[[str], None]]:
    """Name what is done inside this block; what it yields says how far that is. Steps may nest, and others may be in
    progress on other threads."""
    key = object()

    def say(about: str) -> None:
        with _steps.lock:
            is_new = _steps.begun.pop(key, None) != (what, about)
            _steps.begun[key] = (what, about)
            if is_new:
                _steps.show_last()

    say(about)
    try:
        yield say
    finally:
        with _steps.lock:
            del _steps.begun[key]
            if len(_steps.begun) > 1:  # the first one comprises the others
                _steps.show_last()


def show_steps(show: Show | None) -> None:
    """Let `show` show the step in progress from now on, and those that follow; None shows none."""
    with _steps.lock:
        _steps.show = show
        _steps.show_last()
