"""How a setting is declared: its type, default, help and role, and what it needs and excludes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import ConfigDict

from roomscout.base.record import adapter_of

EngineName = Literal["transformers", "openai", "vllm"]


class Role(Enum):
    """What a setting decides. Only DISPLAY, SPEED, PLACE and OUTPUT may change when a run is resumed. SPEED
    changes answers only through rounding, which depends on device, kernels and batch size. An ANSWER or SCORING setting
    that names a file or folder needs the hash of its content in edge/record.py: a path says nothing of it."""

    DISPLAY = "what one call of the command prints: a resumed run does not keep it"
    QUESTION = "which questions are asked"
    SCORING = "how answers are counted and scored"
    ANSWERER = "what answers: runs may differ in it, since that is what one compares"
    ANSWER = "under which conditions it answers: only runs with equal ones are comparable"
    RECORD = "what is recorded, and no answer: comparable, but a run has one kind of records"
    SPEED = "speed and memory"
    PLACE = "where something is"
    OUTPUT = "what is written of the answers at the end, and where"


@dataclass(frozen=True)
class Rules:
    """What a setting needs and excludes, in terms: "ray" (given), "present=video" (with this value, which may have a
    *), "policy!=human" (given with another one). Each of `needs` must hold, or one of its alternatives, as in
    "videos|moves_of". None of `unless` may hold."""

    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its type, default and help."""

    role: Role  # what it decides
    values: str = ""  # how the help shows its values
    rules: Rules = Rules()  # what it needs and excludes if it has another value than its default
    when: Mapping[str, Rules] = field(default_factory=dict)  # the same for single values
    engines: tuple[EngineName, ...] = ()
    """The engines that use it, and without which it is refused; empty if it goes with all."""
    study: Literal["cell", "call", "never"] = "cell"
    """Whether a study passes it to its runs, takes it for one call, or refuses it."""
    for_many: bool = False  # whether it is about many questions, and refused for one about a scan file
    resolved: bool = False  # whether its "auto" or "checkpoint" is resolved when a run begins, and saved as resolved
    choices: Callable[[], Iterable[str]] | None = None  # what {choices} stands for in its help


def setting(
    default: Any, role: Role, values: str = "", needs: tuple[str, ...] = (), unless: tuple[str, ...] = (), **more: Any
) -> Any:
    """The field of a setting; `more` are further fields of Setting."""
    return field(default=default, metadata={"setting": Setting(role, values, Rules(needs, unless), **more)})


@dataclass(frozen=True)
class Section:
    """Settings that are used together, with a title, and advice on when to use them, for the help."""

    __pydantic_config__: ClassVar = ConfigDict(use_attribute_docstrings=True)
    title: ClassVar[str]
    advice: ClassVar[str] = ""

    @classmethod
    def helps(cls) -> dict[str, str]:
        """The help of each setting by name: the docstrings below them."""
        described = adapter_of(cls).json_schema()["properties"]
        return {name: " ".join(each["description"].split()) for name, each in described.items()}


def alternatives(hint: Any) -> list[Any]:
    """The types of a setting's values: the members of a union, or the type alone, without what annotates them."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [each for member in get_args(hint) for each in alternatives(member)]
    return [hint]
