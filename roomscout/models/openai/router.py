"""Which URL gets a conversation's turns."""

import logging
import threading
import time
from collections.abc import Sequence

from roomscout.models.openai.endpoint import Endpoint

log = logging.getLogger(__name__)

COOL_DOWN_S = 300.0
"""How long a URL that has stopped answering gets no conversations, if another URL answers."""


class EndpointRouter:
    """The endpoint of each conversation from its first turn until it is released, chosen as the one with the fewest.

    A conversation moves only if its endpoint has stopped answering. If all have, the one that stopped first is next.
    """

    def __init__(self, endpoints: Sequence[Endpoint], cool_down_s: float = COOL_DOWN_S) -> None:
        self._endpoints = endpoints
        self._cool_down_s = cool_down_s
        self._cooling_until: dict[str, float] = {}
        self._assigned: dict[int, Endpoint] = {}
        self._lock = threading.Lock()

    def endpoint_of(self, key: int) -> Endpoint:
        """The endpoint of the conversation with this key."""
        with self._lock:
            available = self._available() or [min(self._endpoints, key=lambda each: self._cooling_until[each.url])]
            if self._assigned.get(key) not in available:
                taken = list(self._assigned.values())
                self._assigned[key] = min(available, key=taken.count)
            return self._assigned[key]

    def cool_down(self, endpoint: Endpoint) -> None:
        """Move the conversations of an endpoint that has stopped answering; it gets none for `cool_down_s` seconds."""
        with self._lock:
            if endpoint in self._available() and len(self._endpoints) > 1:
                log.warning(
                    "%s does not answer any more: its questions move to the other URLs, and it is tried again after "
                    "%g s", endpoint.url, self._cool_down_s,
                )  # fmt: skip
            self._cooling_until[endpoint.url] = time.monotonic() + self._cool_down_s

    def release(self, key: int) -> None:
        """Forget a conversation; unknown ones are ignored."""
        with self._lock:
            self._assigned.pop(key, None)

    def _available(self) -> list[Endpoint]:
        now = time.monotonic()
        return [each for each in self._endpoints if self._cooling_until.get(each.url, now) <= now]
