"""Waiting for what must happen."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PATIENCE_S = 120.0
"""How long a test waits for what must happen: a busy machine is now and then ten times slower than an idle one."""


def wait_until(condition: Callable[[], Found], limit_s: float = PATIENCE_S, every_s: float = 0.05) -> Found:
    """Wait until a condition is true and return its value; fails after `limit_s`."""
    ends = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited {limit_s:g} s in vain"
        time.sleep(every_s)
    return found
