"""The types of settings that take some texts only. Their ValueErrors say what a setting takes, and do not name it."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args
from urllib.parse import SplitResult, parse_qsl, urlsplit

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, BeforeValidator, FiniteFloat, StringConstraints, ValidationError

from roomscout.base.record import adapter_of
from roomscout.base.shots import VIEW
from roomscout.base.text import json_in
from roomscout.data.parts import Part
from roomscout.models.checkpoint_files import TellName
from roomscout.rendering.modalities import MODALITY_NAMES
from roomscout.runs import NEWEST

TELL_NAMES: tuple[TellName, ...] = get_args(TellName)
GIVEN_NAMES = ("path", "boxes-seen", "boxes")  # what --given can give
NOTHING = "nothing"  # the value of --tell that reveals nothing
ALL_GPUS, NO_GPUS = "all", "none"
CHECKPOINT = ("checkpoint",)
"""The value of --generation that stands for what the checkpoint's generation_config.json says."""
SECRET_NAME = re.compile(r"(^|[_-])(key|code|sig|signature|token|secret|password|passwd|authorization)$", re.IGNORECASE)
"""Names of a URL's parameters that hold keys, which would be written into run folders."""
SECRET_FIELD = re.compile(
    r"(api|secret|access)_?-?key$|(secret|password|authorization)$|(access|auth|bearer)_?-?token$", re.I
)
"""The same of a request's body, which has keys of caches and limits of tokens."""
SET_ELSEWHERE = (
    *("model", "messages", "temperature", "seed", "max_tokens", "max_completion_tokens", "response_format", "n"),
    *("stream", "stream_options"),
)
"""Parameters of requests that a run sets itself."""


def _part(text: str) -> str:
    Part.parse(text)
    return text


def _server_url(url: str) -> str:
    """The root of an API without blanks around it; raises ValueError, which never shows the URL: it may hold a key."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna")
    except ValueError:  # also a UnicodeError
        parts = SplitResult("", "", "", "", "")
        port = None
        host = b""
    if parts.scheme not in ("http", "https") or not host or port == 0 or not re.fullmatch(r"[^\s\\<>\0-\x1f]+", url):
        raise ValueError("takes http:// or https:// URLs such as http://localhost:8000/v1")
    secret = any(SECRET_NAME.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    if secret or "@" in parts.netloc:
        raise ValueError("takes URLs without keys, which belong in the environment variable of --api-key-env")
    if "#" in url or parts.path.rstrip("/").endswith("/completions"):
        raise ValueError("takes the root of an API, which usually ends in /v1")
    return url


def _extra_body(value: Any) -> str:
    """A JSON object, as text or dictionary, as text; raises ValueError without its values, which may be keys."""
    if value == "":
        return ""
    try:
        body = json_in(value, parse_constant=_no_constant) if isinstance(value, str) else value
        text = json.dumps(body, allow_nan=False, sort_keys=True) if isinstance(body, dict) else ""
    except (ValueError, TypeError):
        text = ""
    if not text:
        raise ValueError("takes a JSON object in quotes, such as '{\"enable_thinking\": false}'")
    if mine := [name for name in SET_ELSEWHERE if name in body]:
        raise ValueError(f"cannot set {mine[0]}, which a run sets itself")
    names = re.findall(r'"((?:[^"\\]|\\.)*)": ', text)
    if any(map(SECRET_FIELD.search, names)) or re.search(r'"(sk-|Bearer )', text):
        raise ValueError("takes no keys, which belong in the environment variable of --api-key-env")
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _split(value: Any) -> Any:
    """Names from one text or several, with commas or without; other values as they are, for pydantic to refuse."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    return tuple(name for text in texts for name in str(text).replace(",", " ").split())


def _in_order(order: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in order if name in names)


def _generation(value: Any) -> Any:
    """Texts, or a mapping as texts, in one order; CHECKPOINT and other values as they are."""
    pairs = [f"{name}={number}" for name, number in value.items()] if isinstance(value, dict) else value
    words = _split(pairs)
    if not isinstance(words, tuple) or words == CHECKPOINT:
        return words
    found: dict[str, Any] = dict(word.partition("=")[::2] for word in words)
    if len(found) < len(words) or not found.keys() <= GENERATION.keys():
        raise ValueError(f"takes checkpoint, or each of {', '.join(GENERATION)} once as NAME=VALUE")
    for name, text in found.items():
        try:
            found[name] = adapter_of(GENERATION[name]).validate_python(text)
        except ValidationError as error:
            raise ValueError(f"{name}: {error.errors()[0]['msg']}, got {text}") from None
    return tuple(f"{name}={found[name]}" for name in GENERATION if name in found)


def _auto(value: Any) -> Any:
    """The word auto alone, of a setting that takes several words or it."""
    return "auto" if value in (("auto",), ["auto"]) else value


def _told(value: Any) -> Any:
    if value == "auto":
        return value
    if not value or (NOTHING in value and len(value) > 1):
        raise ValueError(f"takes some of {', '.join(TELL_NAMES)}, or {NOTHING}, or auto")
    return _in_order((NOTHING, *TELL_NAMES), value)


def _given(names: tuple[str, ...]) -> tuple[str, ...]:
    if {"boxes", "boxes-seen"} <= set(names):
        raise ValueError("takes boxes or boxes-seen, not both")
    return _in_order(GIVEN_NAMES, names)


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"takes each name once, got {twice[0]} twice")
    return names


def _gpus(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or (len(names) > 1 and {ALL_GPUS, NO_GPUS} & set(names)):
        raise ValueError(f"takes {ALL_GPUS}, {NO_GPUS}, or GPUs by number or UUID, such as 0,1")
    return _each_once(tuple(str(int(name)) if name.isdecimal() else name for name in names))


def _run_name(name: str) -> str:
    if name == NEWEST:
        raise ValueError(f"takes a name other than {NEWEST}, which --continue takes for the newest run")
    return name


def _variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("takes the name of an environment variable, not the key itself")
    return name


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("takes HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:8766")
    return text


def _text(pattern: str) -> Any:
    return StringConstraints(pattern=f"^(?:{pattern})$")


Count = Annotated[int, Ge(1)]
ImageSize = Annotated[tuple[Count, Count] | Literal["auto"], BeforeValidator(_auto)]
Share = Annotated[float, Gt(0), Lt(1)]
_Penalty = Annotated[float, Ge(-2), Le(2)]
GENERATION: dict[str, Any] = {
    "top_p": Annotated[float, Gt(0), Le(1)], "top_k": Count, "min_p": Annotated[float, Ge(0), Le(1)],
    "presence_penalty": _Penalty, "frequency_penalty": _Penalty, "repetition_penalty": Annotated[FiniteFloat, Gt(0)],
}  # fmt: skip
"""The types of what --generation can set, by name."""
Generation = Annotated[tuple[str, ...], BeforeValidator(_generation)]
Seconds = Annotated[float, Gt(0), Lt(2_000_000)]  # the operating system waits no longer
Device = Annotated[str, _text(r"auto|cpu|cuda(:\d+)?")]
PartName = Annotated[str, AfterValidator(_part)]
ServerUrl = Annotated[str, AfterValidator(_server_url)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
ExtraBody = Annotated[str, BeforeValidator(_extra_body)]
RevisionName = Annotated[str, _text(r"\w[\w./-]*")]
RunName = Annotated[str, _text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), AfterValidator(_run_name)]
Address = Annotated[str, AfterValidator(_address)]
_Gpu = Annotated[str, _text(r"all|none|\d+|(GPU|MIG)-[\w/-]+")]
_Person = Annotated[str, _text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")]
Gpus = Annotated[tuple[_Gpu, ...], BeforeValidator(_split), AfterValidator(_gpus)]
See = Annotated[
    tuple[Literal[VIEW, *MODALITY_NAMES], ...],  # type: ignore[valid-type]
    BeforeValidator(_split),
    AfterValidator(_each_once),
    AfterValidator(lambda names: (VIEW, *(name for name in names if name != VIEW))),
]
Given = Annotated[
    tuple[Literal[*GIVEN_NAMES], ...],  # type: ignore[valid-type]
    BeforeValidator(_split),
    AfterValidator(_given),
]
Annotators = Annotated[tuple[_Person, ...], AfterValidator(_each_once)]
Tell = Annotated[
    Literal["auto"] | tuple[Literal[NOTHING, *TELL_NAMES], ...],  # type: ignore[valid-type]
    BeforeValidator(_auto),
    BeforeValidator(_split),
    AfterValidator(_told),
]
