"""What the responses of servers say; does not import the client, which takes a second."""

import json
import re
from collections.abc import Mapping
from typing import Any

from roomscout.base.text import json_in

ENDS = ("stop", "end_turn", "eos", "eos_token", "stop_sequence", "tool_calls", "function_call")
CUT_OFF = ("length", "max_tokens")
BROKEN = ("error", "network_error", "abort", "aborted", "cancelled", "timeout", "insufficient_system_resource")
"""Reasons of a reply's end: by itself, at the limit, and for a fault of the server; any other is about the request."""


def parsed(content: bytes | str) -> dict[str, Any] | None:
    """The JSON object in a response; None for anything else, such as wrong UTF-8 or JSON nested too deeply."""
    try:
        body = json_in(content)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def said_in(text: str) -> str:
    """What a server says in the body of a refusal: the message of its error, else all of the body."""
    body = parsed(text) or {}
    error = body.get("error") or body.get("detail") or body
    said = error.get("message") if isinstance(error, dict) else error
    return said if isinstance(said, str) else text


def first_choice(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first choice of a chat completion; None without one."""
    choices = body.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def finish_of(choice: Mapping[str, Any]) -> str:
    """Why a reply ended: "stop", "length", or the server's own reason if it is neither of ENDS nor of CUT_OFF."""
    details = choice.get("finish_details")
    reason = choice.get("finish_reason") or (details.get("type") if isinstance(details, dict) else None)
    if not reason or str(reason).casefold() in ENDS:
        return "stop"
    return "length" if str(reason).casefold() in CUT_OFF else str(reason)


def as_failure(content: bytes) -> tuple[int, bytes]:
    """The status and the content of a response that came with status 200, as if it said in the status that it holds an
    error, or a reply that broke off."""
    body = parsed(content) or {}
    choice = first_choice(body) or {}
    alone = None if body.get("choices") else body.get("detail") or (body if body.get("code") else None)
    error: Any = body.get("error") or choice.get("error") or alone
    if error:
        holder = error if isinstance(error, dict) else body
        code = str(holder.get("code"))
        status = int(code) if re.fullmatch("[45][0-9][0-9]", code) else 503
        return status, json.dumps({"error": error}).encode()
    if (reason := finish_of(choice)).casefold() in BROKEN:
        return 503, json.dumps({"error": f"a reply broke off with finish_reason {reason!r}"}).encode()
    return 200, content
