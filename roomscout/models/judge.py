"""A language model behind an OpenAI-compatible server that marks answers."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from roomscout.base.interrupts import undone_on_failure
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.openai.dialect import Dialect, choice_of, object_at, text_of, tokens_in
from roomscout.models.openai.endpoint import Endpoint, ServerError, start
from roomscout.models.openai.routes import Routes

log = logging.getLogger(__name__)

TRIES = 3  # how often a prompt is asked, each time with another seed, until its reply can be read
AT_ONCE = 8

Mark = TypeVar("Mark")
Tokens = tuple[int, int, int]  # tokens read, those of them that were cached, and tokens written


class Judge:
    """Asks `model` at the first URL of `server` about prompts without images, AT_ONCE at a time; `options` has
    temperature, seed and the longest reply. After an error it asks no more. Raises ModelError for an unusable key."""

    def __init__(self, model: str, options: ModelOptions, server: ServerOptions) -> None:
        self._endpoint = Endpoint(server.urls[0], model, server)
        self._routes = Routes([self._endpoint], server.timeout_s)
        self._options = options
        self._dialect = Dialect()

    def ask(self, prompts: Sequence[str], read: Callable[[str], Mark | None]) -> Iterator[tuple[Mark | None, Tokens]]:
        """What `read` finds in the reply to each prompt, in order and as soon as possible, None if it finds nothing in
        TRIES replies, and the tokens of these. Raises ServerError for a refused prompt, EngineLost if the server does
        not answer for long."""
        if not prompts:
            return
        mark_of = partial(self._mark_of, read=read)
        with undone_on_failure(self._routes.close):
            yield mark_of(prompts[0])  # alone, so that a wrong key, model or URL costs one request
            calls = deque[Future[tuple[Mark | None, Tokens]]]()  # on threads that an interrupt need not wait for
            for prompt in prompts[1:]:
                while calls and (calls[0].done() or len(calls) == AT_ONCE):
                    yield calls.popleft().result()
                calls.append(start(partial(mark_of, prompt)))
            while calls:
                yield calls.popleft().result()

    def _mark_of(self, prompt: str, read: Callable[[str], Mark | None]) -> tuple[Mark | None, Tokens]:
        reply, spent = "", (0, 0, 0)
        for attempt in range(TRIES):
            reply, tokens = self._reply(prompt, self._options.seed + attempt)
            spent = (spent[0] + tokens[0], spent[1] + tokens[1], spent[2] + tokens[2])
            mark = read(reply)
            if mark is not None:
                return mark, spent
        log.warning("%s replied %d times without a mark: %s", self._endpoint.url, TRIES, self._endpoint.quoted(reply))
        return None, spent

    def _reply(self, prompt: str, seed: int) -> tuple[str, Tokens]:
        while True:
            dialect = self._dialect
            settings = dialect.settings(self._options, seed)
            body = {"model": self._endpoint.model, "messages": [{"role": "user", "content": prompt}], **settings}
            post = partial(Endpoint.post, path="/chat/completions", body=body)
            try:
                answer, _ = self._routes.ask(0, post)
            except ServerError as error:
                adapted = dialect.adapted(error, self._options)
                if adapted is None:
                    raise
                self._dialect = adapted
                continue
            text = text_of(object_at(choice_of(answer, self._endpoint), "message").get("content"))
            return text or "", tokens_in(answer)
