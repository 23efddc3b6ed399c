"""Records that are read from JSON and written to JSON by their type hints alone."""

from collections.abc import Callable, Mapping
from functools import cache
from operator import not_
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from roomscout.base.interrupts import deferred_interrupts

Value = TypeVar("Value")
NotRecorded = Annotated[Value, Field(exclude=True)]  # a field that is left out of the JSON
OmittedIfEmpty = Annotated[Value, Field(exclude_if=not_)]
"""A field that is left out of the JSON while it is 0, empty or None."""
OmittedIfNone = Annotated[Value, Field(exclude_if=lambda value: value is None)]
"""A field that is left out of the JSON while it is None."""


class Record:
    """A dataclass that pydantic reads from a JSON object, and writes to one."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The record of a parsed object without its unknown keys; raises ValueError that says all that is wrong."""
        try:
            return adapter_of(cls).validate_python(values)
        except ValidationError as error:
            raise ValueError(reasons(error)) from None

    def to_json(self) -> dict[str, Any]:
        """The record as an object for `json.dumps`."""
        return adapter_of(type(self)).dump_python(self)


def _adapter(kind: Any, **config: Any) -> TypeAdapter[Any]:
    own: Any = config or None
    with deferred_interrupts():
        return TypeAdapter(kind, config=own)


adapter_of: Callable[..., TypeAdapter[Any]] = cache(_adapter)
"""What reads and writes values of a type, by pydantic's config. Interrupts are deferred while it is built, which calls
Python from compiled code: that drops them, or makes errors of them."""


def reasons(error: ValidationError) -> str:
    """What is wrong with an object: its missing keys, then its wrong values, by key."""
    missing = []
    wrong = []
    for problem in error.errors(include_url=False):
        key = ".".join(map(str, problem["loc"]))
        kind = problem["type"]
        if kind == "missing":
            missing.append(key)
        elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
            wrong.append(f"there is no {key}")
        else:
            why = problem["msg"].removeprefix("Value error, ")
            if kind not in ("value_error", "json_invalid"):  # those of our own name the value
                why += f", got {repr(problem['input'])[:80]}"
            wrong.append(f"{key}: {why}".removeprefix(": "))  # the object as a whole has no key
    if missing:
        wrong.insert(0, f"missing keys: {', '.join(missing)}")
    return "; ".join(wrong)
