"""What the body of a response says: its JSON object, an explanation, or a failure in spite of status 200."""

import json
import re
from typing import Any

from roomscout.models.openai.failures import Failure

UPSTREAM_FAILED = 502
"""The status of an error that comes with status 200 and names none."""


def reported_failure(body: dict[str, Any], text: str) -> Failure | None:
    """The failure that a response of status 200 reports; None if it reports none.

    Routers send the errors of the servers behind them in this way: as a top-level "error" without choices, or as a
    choice with the finish_reason "error". `text` is the whole response.
    """
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    if choice.get("finish_reason") == "error":
        error = choice.get("error") or body.get("error")
    elif choices or not body.get("error"):
        return None
    else:
        error = body["error"]
    named = (error.get(key) for key in ("code", "status")) if isinstance(error, dict) else ()
    status = next(filter(None, map(_http_error, named)), UPSTREAM_FAILED)
    return Failure(status, explanation(error, text), code=code_of(error))


def explanation(error: object, text: str) -> str:
    """The words of an error, an object or a text, wherever they are; routers quote the server behind them. `text` if
    it has none."""
    if isinstance(error, str) and error.strip():
        return page_in_words(error)
    if isinstance(error, list) and error and isinstance(error[0], dict):  # Google's
        return explanation(error[0].get("error", error[0]), text)
    if isinstance(error, dict):
        behind = object_at(error, "metadata").get("raw")
        for key in ("message", "detail", "error"):
            if isinstance(error.get(key), str):
                return f"{error[key]}: {behind}" if isinstance(behind, str) else error[key]
    return page_in_words(text)


def code_of(error: object) -> str:
    """The words with which an error object names its kind; empty if it has none."""
    if isinstance(error, list) and error and isinstance(error[0], dict):
        error = error[0].get("error", error[0])
    named = [error.get(key) for key in ("code", "type", "status")] if isinstance(error, dict) else []
    return " ".join(each for each in named if isinstance(each, str))


def page_in_words(text: str) -> str:
    """What an HTML page is titled, since its markup says little; any other text as it is."""
    if not re.match(r"\s*<(!doctype html|html)\b", text, re.IGNORECASE):
        return text
    title = re.search(r"<title[^>]*>\s*(.*?)\s*</title>", text, re.IGNORECASE | re.DOTALL)
    return f"a web page titled {title[1]}" if title else "a web page"


def parsed(content: bytes | str) -> dict[str, Any] | None:
    """The JSON object in a response; None for anything else, such as wrong UTF-8 or JSON nested too deeply."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def object_at(body: dict[str, Any], key: str) -> dict[str, Any]:
    """The object at a key; empty if there is none."""
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _http_error(value: object) -> int | None:
    """The status in a number or a numeric string; None unless it is an error's."""
    if isinstance(value, str) and re.fullmatch(r"[45][0-9][0-9]", value):
        value = int(value)
    return value if type(value) is int and 400 <= value < 600 else None
