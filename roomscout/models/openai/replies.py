"""Reads chat completions: the text of a reply, or why there is none."""

from collections.abc import Mapping
from typing import Any

from roomscout.models import Reply
from roomscout.models.openai.endpoint import Answer, Endpoint

MOST_TOKENS = 10**9
"""Higher token counts are errors of the server."""
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put the thoughts of models that reason; they are never read as a reply."""


def read_reply(answer: Answer, endpoint: Endpoint, max_new_tokens: int) -> Reply:
    """The reply in a chat completion, without the API key; raises ServerError if it has no text."""
    choice = choice_of(answer, endpoint)
    message, reason = object_at(choice, "message"), choice.get("finish_reason")
    content = text_of(message.get("content"))
    if reason in ("content_filter", "error"):
        said = endpoint.quoted(answer.text)
        raise endpoint.error(f"ended a reply with finish_reason {reason!r} ({said}): fix what it names", 200)
    if reason == "length" and not (content and content.strip()):
        raise endpoint.error(
            f"spent all {max_new_tokens} tokens without a word of reply (finish_reason 'length'): models that reason "
            "before they reply need a higher --max-new-tokens, in a new run",
            200,
        )
    require_reply(message, endpoint)
    if content is None:
        raise endpoint.error(f"sent a reply without text ({endpoint.quoted(answer.text)})", 200)
    truncated = reason == "length"
    usage = object_at(answer.body, "usage")
    return Reply(
        text=endpoint.redacted(content),
        prompt_tokens=_count(usage, "prompt_tokens"),
        reused_tokens=_count(object_at(usage, "prompt_tokens_details"), "cached_tokens"),
        generated_tokens=_count(usage, "completion_tokens") or (max_new_tokens if truncated else 0),
        finish_reason="length" if truncated else "stop",
        retries=answer.retries,
    )


def require_reply(message: Mapping[str, Any], endpoint: Endpoint) -> None:
    """Raise ServerError for a message whose text is all in a field of thoughts.

    A server puts it there if its parser of thoughts does not suit the model, or if the model replied in its thought.
    """
    content = text_of(message.get("content"))
    field = next((name for name in REASONING_FIELDS if message.get(name)), None)
    if field is not None and not message.get("refusal") and not (content and content.strip()):
        raise endpoint.error(
            f"sent all of a reply as {field}, which is the model's thought, and none as content: start the server with "
            "the --reasoning-parser of this model or without one, or let the model reply without a thought",
            200,
        )


def choice_of(answer: Answer, endpoint: Endpoint) -> dict[str, Any]:
    """The first choice of a chat completion; raises ServerError if there is none."""
    choices = answer.body.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        raise endpoint.error(f"sent no choices ({endpoint.quoted(answer.text)}): it must serve chat completions", 200)
    return choices[0]


def text_of(content: object) -> str | None:
    """The text of a message's content, a string or a list of parts; None if there is no text."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(text for text in texts if isinstance(text, str)) if texts else None
    return content if isinstance(content, str) else None


def object_at(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object at a key; empty if there is none."""
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], key: str) -> int:
    """A number of tokens; 0 for anything that is not a plausible one."""
    value = usage.get(key)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0
