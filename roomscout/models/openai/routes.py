"""Which of a server's URLs is asked, which one rests, and how long all questions wait for one."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from roomscout.base.text import RESULT
from roomscout.models import EngineLost
from roomscout.models.openai.endpoint import Endpoint, ServerError

log = logging.getLogger(__name__)

FIRST_REST_S, LONGEST_REST_S = 0.5, 60.0  # a rest that the server does not name doubles with each failure in a row
MOVE_S, MOVE_AFTER = 5.0, 5
"""A conversation, of which a URL may have cached earlier turns, leaves it for another one only if it rests longer than
so many seconds, or has failed so many times in a row."""
UNREAD = 3  # how often a response to the same request cannot be read, while others can, until that is its own failure
SAID_S, SAID_EVERY_S = 1.0, 60.0  # rests are said from this length on, and not more often

Result = TypeVar("Result")


@dataclass
class _State:
    """How a URL fares."""

    until: float = 0.0  # when its rest ends
    began: float = 0.0  # when that began
    failures: int = 0  # in a row; those of requests that were in flight together are one
    assigned: int = 0  # conversations
    error: ServerError | None = None  # the last


class Routes:
    """The URLs of a server, thread-safe. A conversation stays at one of them, first that with the fewest. What a URL
    says of itself (see `ServerError.rest_s`) lets it rest; once all rest, all wait, and as soon as no rest ends within
    `limit_s` of the first failure after the last answer, everybody gets an EngineLost that says why."""

    def __init__(self, endpoints: Sequence[Endpoint], limit_s: float) -> None:
        self._states = {endpoint: _State() for endpoint in endpoints}
        self._limit_s = limit_s
        self._assigned: dict[int, Endpoint] = {}
        self._changed = threading.Condition()
        self._answers = 0
        self._troubled_since = math.inf  # the time of the first failure after the last answer
        self._said_at = -math.inf
        self._closed = False

    def ask(self, key: int, request: Callable[[Endpoint], Result]) -> tuple[Result, int]:
        """What a request for the conversation with this key comes to, asked again after each failure of a URL, and how
        many requests failed. Raises ServerError for what is about this request alone, and EngineLost."""
        failed = unread = 0
        answers = self._answers
        while True:
            endpoint = self._endpoint_of(key)
            started = time.monotonic()
            try:
                result = request(endpoint)
            except ServerError as error:
                unread += error.status == 200
                if error.rest_s is None or (unread >= UNREAD and self._answers > answers):
                    raise
                failed += 1
                self._rest(endpoint, started, error)
            else:
                with self._changed:
                    self._answers += 1
                    self._troubled_since = math.inf
                    self._states[endpoint].failures = 0
                return result, failed

    def release(self, key: int) -> None:
        """Forget a conversation; unknown ones are ignored."""
        with self._changed:
            if endpoint := self._assigned.pop(key, None):
                self._states[endpoint].assigned -= 1

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _endpoint_of(self, key: int) -> Endpoint:
        """The URL of a conversation, once it does not rest. The one place that waits; raises EngineLost."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                endpoint = self._assigned.get(key)
                if endpoint is None or self._is_to_leave(self._states[endpoint], now):
                    endpoint = self._assign(key, now)
                state = self._states[endpoint]
                if state.until <= now:
                    return endpoint
                if state.until > self._deadline(now):
                    raise self._lost(state, now)
                self._changed.wait(state.until - now)
        raise EngineLost("the run ended before the server replied")

    def _is_to_leave(self, state: _State, now: float) -> bool:
        return state.until > min(now + MOVE_S, self._deadline(now)) or state.failures >= MOVE_AFTER

    def _assign(self, key: int, now: float) -> Endpoint:
        """Move a conversation to the URL that answers next, of those that do now to the one with the fewest."""
        if before := self._assigned.get(key):
            self._states[before].assigned -= 1
        endpoint, state = min(self._states.items(), key=lambda each: (max(each[1].until, now), each[1].assigned))
        state.assigned += 1
        self._assigned[key] = endpoint
        return endpoint

    def _deadline(self, now: float) -> float:
        return min(self._troubled_since, now) + self._limit_s

    def _rest(self, endpoint: Endpoint, started: float, error: ServerError) -> None:
        """Let a URL rest after the failure of a request that `started` then, and say so."""
        with self._changed:
            now = time.monotonic()
            state = self._states[endpoint]
            self._troubled_since = min(self._troubled_since, now)
            deadline = self._deadline(now)
            if started >= state.began:
                state.failures += 1
                state.began = now
            own_s = min(FIRST_REST_S * 2 ** min(state.failures - 1, 30), LONGEST_REST_S)
            if now < deadline:
                own_s = min(own_s, deadline - now)  # at last it is asked when time is up
            state.until = max(state.until, now + (error.rest_s or own_s))
            state.error = error
            self._say(state, now)

    def _say(self, state: _State, now: float) -> None:
        """Say once a minute that a URL rests, and what its questions do."""
        others = any(other.until <= now for other in self._states.values())
        if state.until < now + SAID_S or now < self._said_at + SAID_EVERY_S:
            return
        if not others and state.until > self._deadline(now):
            return  # the run is about to end
        self._said_at = now
        then = "it is asked no more" if state.until == math.inf else f"it is asked again in {state.until - now:,.0f} s"
        do = "its questions move to the other URLs" if others else f"all wait, at most {self._limit_s:,.0f} s in all"
        log.log(RESULT, "%s; %s, and %s", state.error, do, then)

    def _lost(self, state: _State, now: float) -> EngineLost:
        """Why nobody waits for a URL any more."""
        error = state.error
        assert error is not None, "a URL rests after a failure"
        if state.until == math.inf:
            return EngineLost(str(error), setting=error.setting)
        if error.rest_s:
            why = f"it asks to wait {state.until - now:,.0f} s, and a run waits no longer than this for an answer"
        else:
            why = "a run waits no longer than this for an answer"
        return EngineLost(f"{error}; {why}", setting="request_timeout", value=self._limit_s)
