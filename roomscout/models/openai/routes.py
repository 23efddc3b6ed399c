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
MOST_FAILURES, MOST_LONG_FAILURES = 10, 2
"""How often a request fails again at a URL that has answered others in between, until that is its own failure; the
second is for responses that nobody can read, and requests that take the whole limit."""
SAID_S, SAID_EVERY_S = 1.0, 60.0  # rests are said from this length on, and not more often; new trouble from MOVE_S on

Result = TypeVar("Result")


@dataclass
class _State:
    """How a URL fares."""

    until: float = 0.0  # when its rest ends
    began: float = 0.0  # when that began
    failures: int = 0  # in a row; those of requests that were in flight together are one
    answers: int = 0  # to all requests
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
        self._troubled_since = math.inf  # the time of the first failure after the last answer
        self._said_at = -math.inf
        self._closed = False

    def ask(self, key: int, request: Callable[[Endpoint], Result]) -> tuple[Result, int]:
        """What a request for the conversation with this key comes to, asked again after each failure of a URL, and how
        many requests failed. Raises ServerError for what is about this request alone, and EngineLost."""
        failed = 0
        alone = 0  # how often it failed again where others had been answered since its last failure
        answers: dict[Endpoint, int] = {}  # to others, at that failure
        while True:
            endpoint = self._endpoint_of(key)
            state = self._states[endpoint]
            started = time.monotonic()
            try:
                result = request(endpoint)
            except ServerError as error:
                if state.answers > answers.get(endpoint, state.answers) and not error.rest_s:
                    alone += 1
                answers[endpoint] = state.answers
                is_long = error.status == 200 or time.monotonic() - started >= self._limit_s
                if error.rest_s is None or alone >= (MOST_LONG_FAILURES if is_long else MOST_FAILURES):
                    raise
                failed += 1
                self._rest(endpoint, started, error)
            else:
                with self._changed:
                    self._troubled_since = math.inf
                    state.answers += 1
                    state.failures = 0
                return result, failed

    def release(self, key: int) -> None:
        """Forget a conversation; unknown ones are ignored."""
        with self._changed:
            self._assigned.pop(key, None)

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
                endpoint = self._chosen(key, now)
                self._assigned[key] = endpoint
                state = self._states[endpoint]
                if state.until <= now:
                    return endpoint
                if state.until > self._deadline(now):
                    raise self._lost(state, now)
                self._changed.wait(state.until - now)
        raise EngineLost("the run ended before the server replied")

    def _chosen(self, key: int, now: float) -> Endpoint:
        """The URL where a conversation stays, else that which answers next, of those that do now with the fewest."""
        endpoint = self._assigned.pop(key, None)
        if endpoint is not None:
            state = self._states[endpoint]
            if state.until <= min(now + MOVE_S, self._deadline(now)) and state.failures < MOVE_AFTER:
                return endpoint
        taken = list(self._assigned.values())
        return min(self._states, key=lambda each: (max(self._states[each].until, now), taken.count(each)))

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
            until = now + (error.rest_s or own_s)
            if until >= state.until:
                state.until = until
                state.error = error
            self._say(state, now)

    def _say(self, state: _State, now: float) -> None:
        """Say once, and then once a minute, that a URL rests, and what its questions do."""
        rest_s = state.until - now
        is_new = rest_s > MOVE_S and self._said_at < self._troubled_since
        others = any(other.until <= now for other in self._states.values())
        is_end = not others and state.until > self._deadline(now)
        if is_end or rest_s < SAID_S or (now < self._said_at + SAID_EVERY_S and not is_new):
            return
        self._said_at = now
        then = "it is asked no more" if state.until == math.inf else f"it is asked again in {rest_s:,.0f} s"
        do = "its questions move to the other URLs" if others else f"all wait, at most {self._limit_s:,.0f} s in all"
        log.log(RESULT, "%s; %s, and %s", state.error, do, then)

    def _lost(self, state: _State, now: float) -> EngineLost:
        """Why nobody waits for a URL any more."""
        error = state.error
        assert error is not None, "a URL rests after a failure"
        if state.until == math.inf:
            return EngineLost(str(error), setting=error.setting)
        asked = f"it asks to wait {state.until - now:,.0f} s, and " if error.rest_s else ""
        why = f"{error}; {asked}a run waits no longer than this for an answer"
        return EngineLost(why, setting="request_timeout", value=self._limit_s)
