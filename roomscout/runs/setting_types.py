"""The types of settings that take some texts only. Their ValueErrors say what a setting takes, and do not name it."""

import json
import re
from functools import partial
from typing import Annotated, Any, Literal, get_args
from urllib.parse import SplitResult, parse_qsl, urlsplit

from annotated_types import Ge, Gt, Lt
from pydantic import AfterValidator, BeforeValidator

from roomscout.base.shots import VIEW
from roomscout.base.wording import named
from roomscout.data.parts import Part
from roomscout.models.views import TellName
from roomscout.rendering.modalities import MODALITIES
from roomscout.runs import NEWEST

TELL_NAMES: tuple[TellName, ...] = get_args(TellName)
GIVEN_NAMES = ("path", "boxes-seen", "boxes")
"""What --given can give."""
NOTHING = "nothing"
"""The value of --tell that reveals nothing."""
ALL_GPUS, NO_GPUS = "all", "none"
GPU = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
EXAMPLE_URL = "http://localhost:8000/v1"
SECRET_NAME = re.compile(r"(^|[_-])(key|code|sig|signature|token|secret|password|passwd|authorization)$", re.IGNORECASE)
"""Names of a URL's parameters that hold keys, which would be written into run folders."""
SECRET_FIELD = re.compile(
    r"(api|secret|access)_?-?key$|(secret|password|authorization)$|(access|auth|bearer)_?-?token$", re.I
)
"""The same of a request's body, which has keys of caches and limits of tokens."""
SET_ELSEWHERE = {
    "model": "model",
    "messages": "a run makes them",
    "temperature": "temperature",
    "seed": "seed",
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "response_format": "constrained",
    "n": "samples",
    "stream": "replies are read whole",
    "stream_options": "replies are read whole",
}
"""Parameters of requests that a run sets, and the setting, or how."""
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
REVISION = re.compile(r"\w[\w./-]*")
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MOST_ANNOTATORS = 32
ANNOTATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def _device(name: str) -> str:
    if not DEVICE.fullmatch(name):
        raise ValueError(f"takes one device, which is auto, cpu, cuda or cuda:N, got {name}")
    return name


def _part(text: str) -> str:
    Part.parse(text)
    return text


def _server_url(url: str, key_setting: str) -> str:
    """The root of an API without blanks around it; raises ValueError, which never shows the URL: it may hold a key."""
    url, key = url.strip(), f"a key belongs in the environment variable of {named(key_setting)}"
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValueError(f"takes URLs without user names and passwords; {key}")
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:  # also a UnicodeError
        parts, port, host = SplitResult("", "", "", "", ""), None, b""
    if parts.scheme not in ("http", "https") or not host or port == 0 or not re.fullmatch(r"[^\s\\<>\0-\x1f]+", url):
        raise ValueError(
            f"takes http:// or https:// URLs such as {EXAMPLE_URL}, with a valid host (an IPv6 address in brackets) "
            "and a port from 1 to 65535"
        )
    if any(SECRET_NAME.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ValueError(f"takes URLs without keys in their parameters; {key}")
    if "#" in url:
        raise ValueError("takes URLs without #: leave out # and what is behind it")
    if parts.path.rstrip("/").endswith("/completions"):
        raise ValueError("takes the root of an API, which usually ends in /v1: leave out /chat/completions")
    return url


def _extra_body(value: Any) -> str:
    """A JSON object, given as text or as a dictionary, as the text that run.json has; raises ValueError.

    Messages never show values: a run folder must not hold keys.
    """
    if value == "":
        return ""
    try:
        body = json.loads(value, parse_constant=_no_constant) if isinstance(value, str) else value
        text = json.dumps(body, allow_nan=False, sort_keys=True) if isinstance(body, dict) else ""
    except (ValueError, TypeError, RecursionError):
        text = ""
    if not text:
        raise ValueError("takes a JSON object in quotes, such as '{\"enable_thinking\": false}'")
    if mine := [name for name in SET_ELSEWHERE if name in body]:
        how = SET_ELSEWHERE[mine[0]]
        raise ValueError(f"cannot set {mine[0]}: {how if ' ' in how else f'that is {named(how)}'}")
    names = re.findall(r'"((?:[^"\\]|\\.)*)": ', text)
    if any(map(SECRET_FIELD.search, names)) or re.search(r'"(sk-|Bearer )', text):
        raise ValueError(
            "takes no keys, since run folders record it: a key belongs in the environment variable of "
            f"{named('api_key_env')}"
        )
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _names(value: str | list[Any] | tuple[Any, ...]) -> list[str]:
    """Names from one text or several, with commas or without."""
    texts = [value] if isinstance(value, str) else value
    return [name for text in texts for name in str(text).replace(",", " ").split()]


def _see(value: Any) -> Any:
    """The names of images, the view first, the others as given."""
    if not isinstance(value, str | list | tuple):
        return value
    given = _names(value)
    if twice := [name for name in given if given.count(name) > 1]:
        raise ValueError(f"takes each image once, got {twice[0]} twice")
    names = (VIEW, *(name for name in given if name != VIEW))
    if unknown := [name for name in names if name not in (VIEW, *MODALITIES)]:
        raise ValueError(f"takes some of {', '.join((VIEW, *MODALITIES))}; got {unknown[0]}")
    return names


def _tell(value: Any) -> Any:
    """The names in the order of TELL_NAMES, from one text or several, with commas or without."""
    if value == "auto" or not isinstance(value, str | list | tuple):
        return value
    names = _names(value)
    if names in ([NOTHING], ["auto"]):
        return tuple(names) if names == [NOTHING] else "auto"
    if not names or not set(names) <= set(TELL_NAMES):
        raise ValueError(
            f"takes some of {', '.join(TELL_NAMES)}, or {NOTHING}, or auto; got {' '.join(names) or 'no name'}"
        )
    return tuple(name for name in TELL_NAMES if name in names)


def _given(value: Any) -> Any:
    """The names in the order of GIVEN_NAMES, from one text or several, with commas or without."""
    if not isinstance(value, str | list | tuple):
        return value
    names = _names(value)
    if unknown := [name for name in names if name not in GIVEN_NAMES]:
        raise ValueError(f"takes some of {', '.join(GIVEN_NAMES)}; got {unknown[0]}")
    if {"boxes", "boxes-seen"} <= set(names):
        raise ValueError("takes boxes or boxes-seen, not both: boxes are all of them, also those that were in view")
    return tuple(name for name in GIVEN_NAMES if name in names)


def _gpus(value: Any) -> Any:
    """The names of GPUs, from one text or several, with commas or without."""
    names = _names(value) if isinstance(value, str | list | tuple) else [str(value)]
    if names not in ([ALL_GPUS], [NO_GPUS]) and (not names or not all(map(GPU.fullmatch, names))):
        raise ValueError(f"takes {ALL_GPUS}, or GPUs by number or UUID, such as 0,1; got {','.join(names)}")
    names = [str(int(name)) if name.isdecimal() else name for name in names]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"takes each GPU once, got {twice[0]} twice")
    return tuple(names)


def _annotators(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MOST_ANNOTATORS:
        raise ValueError(f"takes at most {MOST_ANNOTATORS} names, got {len(names)}")
    for name in names:
        if not ANNOTATOR.fullmatch(name):
            raise ValueError(f"takes letters, digits, '.', '_' and '-', at most 40 of them; got {name}")
        if names.count(name) > 1:
            raise ValueError(f"takes each name once, got {name} twice")
    return names


def _run_name(name: str) -> str:
    if not RUN_NAME.fullmatch(name) or name == NEWEST:
        raise ValueError(
            f"takes letters, digits, '.', '_' and '-', at most 100 and a letter or a digit first, and not {NEWEST}; "
            f"got {name}"
        )
    return name


def _revision(name: str) -> str:
    if not REVISION.fullmatch(name):
        raise ValueError(f"takes the name of a branch or tag, or a commit, got {name}")
    return name


def _variable_name(name: str) -> str:
    if not VARIABLE_NAME.fullmatch(name):
        raise ValueError("takes the name of an environment variable, not the key itself")
    return name


Count = Annotated[int, Ge(1)]
Share = Annotated[float, Gt(0), Lt(1)]
Device = Annotated[str, AfterValidator(_device)]
PartName = Annotated[str, AfterValidator(_part)]
ServerUrl = Annotated[str, AfterValidator(partial(_server_url, key_setting="api_key_env"))]
JudgeUrl = Annotated[str, AfterValidator(partial(_server_url, key_setting="judge_key_env"))]
VariableName = Annotated[str, AfterValidator(_variable_name)]
ExtraBody = Annotated[str, BeforeValidator(_extra_body)]
RevisionName = Annotated[str, AfterValidator(_revision)]
RunName = Annotated[str, AfterValidator(_run_name)]
Gpus = Annotated[tuple[str, ...], BeforeValidator(_gpus)]
See = Annotated[tuple[str, ...], BeforeValidator(_see)]
Given = Annotated[tuple[str, ...], BeforeValidator(_given)]
Annotators = Annotated[tuple[str, ...], AfterValidator(_annotators)]
Tell = Annotated[Literal["auto"] | tuple[str, ...], BeforeValidator(_tell)]
