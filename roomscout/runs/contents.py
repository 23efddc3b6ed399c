"""The forms of the files of a run folder that are plain JSON values: settings, summary.json and messages.json.

Pydantic checks each of these where `RunReader` reads its file, and nowhere else. Unknown keys are not looked at, and
keys that earlier versions lack are optional.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from roomscout import UpAxis
from roomscout.base.record import reasons

LARGEST = 1e300
"""Larger numbers would overflow in sums; none is one of a run."""
DEEPEST = 40
"""Levels of lists and objects in a file; deeper ones overflow the stack where they are shown."""
TOO_DEEP = "it is nested too deeply"

Count = Annotated[int, Field(ge=0, le=10**12)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
ImageFile = Annotated[str, Field(pattern=r"^render_\d+(_[a-z][a-z0-9]*)?\.png$")]
Interval = Annotated[list[Number], Field(min_length=2, max_length=2)]


class Settings(TypedDict, total=False):
    """The settings in `config` of run.json that verbs read by name."""

    ply: Required[str | None]
    model: Required[str]
    benchmark: str
    policy: str | None
    engine: str
    dtype: str
    questions: str | None
    scan_root: str
    name: str | None
    samples: Annotated[int, Field(ge=1, le=10_000)]
    steps: Annotated[int, Field(ge=0, le=10**6)]
    min_turns: Count
    keep_views: Count | None
    seed: int
    temperature: Number
    renderer: str
    up_axis: UpAxis
    scale: Annotated[float, Field(gt=0, le=1e6)]
    image_size: Literal["auto"] | Annotated[list[Annotated[int, Field(ge=1, le=10**9)]], Field(min_length=2)]
    focal: Literal["auto"] | Annotated[float, Field(gt=0, le=1e6)]
    moves: str
    actions: str
    present: str
    frames: Literal["auto"] | Annotated[int, Field(ge=1, le=10**6)]
    moves_of: str | None
    given: list[str]
    anytime: bool
    base_url: list[str]
    datasets: list[str]
    question_types: list[str]
    scenes: list[str]
    ids: list[str]
    num_questions: int | None


class Resumption(TypedDict, total=False):
    """An entry of `resumed` in run.json."""

    at: str
    host: str
    git_revision: str | None
    packages: dict[str, str | None]
    python: str
    model_revision: str


class RecordedPrompts(TypedDict):
    """`prompts` in run.json."""

    sha256: str
    templates: dict[str, Any]


class Message(TypedDict, total=False):
    """A message of messages.json. Its images are files in its folder.

    `text_in_its_turn` is what a message said that is replaced by a note in later turns.
    """

    role: Required[str]
    text: Required[str]
    image: ImageFile
    images: Annotated[list[ImageFile], Field(min_length=1)]
    frames: ImageFile
    text_in_its_turn: str


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def require_form(form: Any, values: Any) -> Any:
    """JSON values that have a form of this module; raises ValueError, which says all that is wrong, for others."""
    try:
        _adapter(form).validate_python(values, strict=True)
        return values
    except ValidationError as error:
        raise ValueError(reasons(error)) from None


def parsed(text: str | bytes) -> Any:
    """The values of JSON text; raises ValueError also for numbers that no run has and for deep nesting."""
    try:
        return json.loads(text, parse_float=_float, parse_int=_int)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def read_json(path: Path) -> Any:
    """The values of a JSON file; raises OSError, and ValueError as `parsed` does and for NaN and Infinity."""
    values = parsed(path.read_bytes())
    level, depth = [values], 0
    while level := [each for value in level for each in _inside(value)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(TOO_DEEP)
        if any(isinstance(each, float) and not abs(each) <= LARGEST for each in level):
            raise ValueError("it has a number that is not finite")
    return values


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _float(digits: str) -> float:
    value = float(digits)
    if abs(value) > LARGEST:
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"the number {digits[:20]}... is too large")
    return int(digits)
