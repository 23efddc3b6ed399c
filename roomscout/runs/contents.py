"""The forms of the files of a run folder that are plain JSON values: settings, summary.json and messages.json.

Pydantic checks each of these where `RunReader` reads its file, and nowhere else. Unknown keys are not looked at, and
keys that earlier versions lack are optional.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from roomscout import UpAxis

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


class Percentages(TypedDict, total=False):
    """The scores of all questions, or of some; the overall is under the key that `overall_label` names."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]  # for the overall
    questions: Required[Count]
    scored: Required[Count]
    scored_own: Count
    failed: Count
    awaiting_judge: Count
    overall_label: Required[str | None]
    tasks: Required[dict[str, Number]]
    shown: str
    some: "_Some"


class _Some(TypedDict, total=False):
    questions: Count
    datasets: list[str]


def _with_overall(found: Percentages) -> Percentages:
    label, values = found["overall_label"], dict[str, Any](found)
    if label is not None and type(values.get(label)) not in (int, float):
        raise ValueError(f"the overall {label} is not a number")
    return found


Part = Annotated[Percentages, AfterValidator(_with_overall)]


class _OfType(TypedDict, total=False):
    questions: Required[Count]
    answered: Required[Count]
    exhausted: Required[Count]
    failed: Required[Count]
    without_scan: Required[Count]
    mean_turns: Required[Number | None]
    percent: Number | None
    scores: dict[str, Number]
    measurements: Count


class Intervals(TypedDict, total=False):
    """The intervals of scores, or why there are none."""

    level: Required[int]
    method: Required[str]
    scenes: Required[dict[str, Count]]
    percent: Required[dict[str, Interval]]
    missing: Required[dict[str, str]]


def _with_scenes(found: Intervals) -> Intervals:
    if not {*found["percent"], *found["missing"]} <= found["scenes"].keys():
        raise ValueError("scenes lacks a score of percent or missing")
    if not found["percent"] and not found["missing"]:
        raise ValueError("percent and missing are both empty")
    return found


CheckedIntervals = Annotated[dict[str, Any], Field(max_length=0)] | Annotated[Intervals, AfterValidator(_with_scenes)]


class _OfDataset(TypedDict, total=False):
    scored: Required[Count]
    failed: Count
    overall: Required[Number | None]
    tasks: Required[dict[str, Number | None]]
    intervals: Required[CheckedIntervals]


class _Baseline(TypedDict, total=False):
    source: Required[str]
    tasks: Required[dict[str, Number]]
    overall: Number


class _BySight(TypedDict, total=False):
    answers: Required[Count]
    below_full: Required[Count]
    percent: Required[Number]


class _SightSplit(TypedDict, total=False):
    enough_pixels: Required[Count]
    surface_percent: Required[Number]
    types: Required[dict[str, dict[str, _BySight]]]


class _AtTurn(TypedDict, total=False):
    turn: Required[Count]
    forced: Required[Count]
    percent: Required[Number | None]
    interval: Required[Interval | None]


class _Anytime(TypedDict, total=False):
    answers: Required[Count]
    by_turn: Required[list[_AtTurn]]
    too_early: dict[str, Count]
    too_late: Required[dict[str, Number | None]]
    better_earlier: Required[Count]


class _Samples(TypedDict, total=False):
    of_each: Required[Annotated[int, Field(ge=1)]]
    questions: Required[Count]


class _Cost(TypedDict, total=False):
    prefilled_tokens: Required[Annotated[int, Field(ge=-(10**12), le=10**12)]]
    generated_tokens: Required[Count]
    reused_tokens: Count
    money: Number
    tasks: dict[str, dict[str, Number]]


class _Session(TypedDict, total=False):
    seconds: Required[Number]
    batch_size: int | None


class _Agreement(TypedDict, total=False):
    questions: Required[Count]
    percent: Required[Number]


class _Annotator(TypedDict, total=False):
    answers: Required[Count]
    failed: Count
    percent: Required[Number | None]
    interval: Interval
    seconds: Required[Number]


class _Judge(TypedDict, total=False):
    model: Required[str]
    prompts_sha256: Required[str]


class _Provenance(TypedDict, total=False):
    benchmark_sha256: str | None
    scans_sha256: str | None
    conditions_sha256: str
    version: str | None


class Summary(TypedDict, total=False):
    """summary.json."""

    pending: Required[Count]
    asked: Required[Part]
    with_scan: Required[Part]
    finished: Part
    types: Required[dict[str, _OfType]]
    intervals: CheckedIntervals
    datasets: dict[str, _OfDataset]
    samples: _Samples
    agreement: dict[str, _Agreement]
    annotators: dict[str, _Annotator]
    judge: _Judge
    baselines: dict[str, _Baseline]
    sight: _SightSplit
    anytime: _Anytime
    warnings: list[str]
    cost: _Cost
    provenance: _Provenance
    sessions: list[_Session]


def _counted(found: Summary) -> Summary:
    if "all" not in found["types"]:
        raise ValueError("types lacks all")
    if found["asked"]["overall_label"] is not None and not found["types"]["all"]["questions"]:
        raise ValueError("there is an overall of no questions")
    return found


CheckedSummary = Annotated[Summary, AfterValidator(_counted)]

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def require_form(form: Any, values: Any) -> Any:
    """JSON values that have a form of this module; raises ValueError, which says all that is wrong, for others."""
    try:
        _adapter(form).validate_python(values, strict=True)
        return values
    except ValidationError as error:
        raise ValueError(reasons(error)) from None


def reasons(error: ValidationError) -> str:
    """What is wrong with an object: its missing keys, then its wrong values, by key."""
    missing, wrong = [], []
    for problem in error.errors(include_url=False):
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            missing.append(key)
            continue
        why = problem["msg"].removeprefix("Value error, ")
        if problem["type"] != "value_error":  # those of our own name the value
            why += f", got {repr(problem['input'])[:80]}"
        wrong.append(f"{key}: {why}" if key else why)
    return "; ".join([*([f"missing keys: {', '.join(missing)}"] if missing else []), *wrong])


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
