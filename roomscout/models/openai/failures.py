"""Why requests fail: what servers say of it, which failures pass, and the advice for each."""

import email.utils
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from roomscout.models.openai.causes import NO_MODEL, Cause, cause_in

RETRIED = (408, 409, 429)
"""Statuses below 500 that pass."""


class NoResponse(StrEnum):
    """Why there is no response to a request."""

    UNREACHABLE = "unreachable"
    LATE = "late"
    BROKEN = "broken"
    UNTRUSTED = "untrusted"
    PLAIN = "plain"
    ENCRYPTED = "encrypted"
    PROXY = "proxy"
    OTHER = "other"


class Unusable(StrEnum):
    """Why a response cannot be read."""

    TOO_LARGE = "too large"
    NOT_DECODABLE = "not decodable"
    NOT_JSON = "not JSON"
    STREAMED = "streamed"


@dataclass(frozen=True)
class Failure:
    """Why one request failed: an HTTP status, or a reason why there is none that matters.

    `said` is the server's explanation, for a redirect its target, and `code` the words with which it names the kind of
    an error; `kind` is the content type of a response that cannot be read. `asked_s` is the delay that the server asked
    for, seconds.
    """

    reason: int | NoResponse | Unusable
    said: str = ""
    kind: str = ""
    asked_s: float | None = None
    code: str = ""

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later."""
        if isinstance(self.reason, int):
            return (self.reason in RETRIED or self.reason >= 500) and self.cause is None
        return self.reason in (NoResponse.UNREACHABLE, NoResponse.LATE, NoResponse.BROKEN, NoResponse.PROXY)

    @property
    def cause(self) -> Cause | None:
        """What is wrong with the request or the account, if the server's words say so; None for all else."""
        return cause_in(f"{self.code} {self.said}", self.reason) if isinstance(self.reason, int) else None

    @property
    def status(self) -> int | None:
        """The HTTP status; None without a response."""
        if isinstance(self.reason, int):
            return self.reason
        return None if isinstance(self.reason, NoResponse) else 200


REDIRECTED = "redirects to {said} ({status}): give the URL of the API itself with {base_url}"
NO_KEY = "asks for an API key (401): set the environment variable {variable}, or name another one with {api_key_env}"
AROUND_PROXY = "; it is asked through the proxy in {proxy}: to go around that, add {host} to NO_PROXY"
OTHER_REFUSAL = (
    "refuses requests ({status}{times}: {said}): fix what it names; {extra_body} sends further parameters, {base_url} "
    "and {model} name the server and the model"
)
OTHER_FAILURE = "failed ({status}{times}: {said}): once it works again, {retry}"
ADVICE: Mapping[int | NoResponse | Unusable, str] = {
    **dict.fromkeys((301, 302, 303, 307, 308), REDIRECTED),
    401: "does not accept the API key in {variable} (401: {said}): name the variable that holds the right one with "
    "{api_key_env}",
    403: "denies access to {model_name} (403: {said}): name the variable that holds a key with access with "
    "{api_key_env}, or another model with {model}",
    404: NO_MODEL,
    407: "is behind a proxy that refuses requests (407: {said}): put a user name and a password into the proxy's URL, "
    "http://USER:PASSWORD@HOST:PORT",
    413: "takes no request as large as this conversation (413: {said}): run with a smaller {image_size} or fewer "
    "{steps}, or show fewer views at a time with {keep_views}",
    429: "takes no more requests for now (429{times}: {said}): {slower}{retry}",
    NoResponse.UNREACHABLE: "cannot be reached ({said}): start the server, or correct {base_url}",
    NoResponse.LATE: "did not answer within {timeout_s:g} s{times}: ask fewer questions at a time with {concurrency}, "
    "or wait longer with {request_timeout}",
    NoResponse.BROKEN: "broke the connection{times} ({said}): check that the server still runs, then {retry}",
    NoResponse.UNTRUSTED: "has a certificate that this machine does not trust ({said}): correct the host in "
    "{base_url}, or set SSL_CERT_FILE (not REQUESTS_CA_BUNDLE) to a PEM file with the certificate of the server or of "
    "its issuer",
    NoResponse.PLAIN: "does not speak https: write http://, or correct the port in {base_url}",
    NoResponse.ENCRYPTED: "speaks https: write https:// in {base_url}",
    NoResponse.PROXY: "cannot be reached through the proxy in {proxy} ({said}): correct that variable, or add {host} "
    "to NO_PROXY",
    NoResponse.OTHER: "cannot be asked: {said}",
    Unusable.TOO_LARGE: "sent a response of more than {largest_mib:g} MiB: chat completions are far smaller, so check "
    "what listens at {base_url}",
    Unusable.NOT_DECODABLE: "sent a response that cannot be decompressed ({said}): check the server and the proxies "
    "before it",
    Unusable.NOT_JSON: "answered with {kind} that is not a JSON object ({said!r}): {base_url} takes the root of an "
    "OpenAI-compatible API, which usually ends in /v1",
    Unusable.STREAMED: "answered with a stream, although none was asked for ({said!r}): turn streaming off in the "
    "server or in the proxy before it",
}  # fmt: skip
"""What an error says of a failure, after the URL, with the setting to change. Other statuses: `advice_on`."""


def advice_on(failure: Failure, has_key: bool) -> str:
    """The template for a failure's message."""
    if failure.cause is not None:
        return failure.cause.advice
    match failure.reason:
        case 401 if not has_key:
            return NO_KEY
        case int(status) if status not in ADVICE:
            return OTHER_REFUSAL if status < 500 else OTHER_FAILURE
    return ADVICE[failure.reason]


def asked_delay(headers: Mapping[str, str]) -> float | None:
    """The seconds that a response asks to wait (Retry-After in seconds or as a date, retry-after-ms); None if it asks
    for no time in the future."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(ValueError):
            return _positive(float(headers.get(name, "")) * unit_s)
    try:
        date = email.utils.parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else _positive(float(round(email.utils.mktime_tz(date) - time.time())))
    except (TypeError, ValueError, IndexError, OverflowError, OSError):  # a date that no calendar has
        return None


def mentions(name: str, text: str) -> bool:
    """Whether a text has a name as a word, in any case."""
    return re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


def root_cause(error: BaseException) -> BaseException:
    """The error behind an error; the HTTP library wraps some causes as arguments."""
    while cause := error.__cause__ or next((each for each in error.args if isinstance(each, BaseException)), None):
        error = cause
    return error


def _positive(delay_s: float) -> float | None:
    return delay_s if delay_s > 0 else None  # None for NaN, too
