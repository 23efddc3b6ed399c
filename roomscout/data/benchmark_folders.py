"""Benchmarks without code: a folder with questions, scans and a benchmark.yaml."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from roomscout.base.plain_yaml import read_yaml
from roomscout.base.record import reasons
from roomscout.data.answers import kind_named
from roomscout.data.benchmark import Benchmark, Origin, QuestionType, Reference, mean_over_questions, mean_over_tasks

BENCHMARK_YAML = "benchmark.yaml"  # describes the benchmark of a folder with questions and scans

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Type(_Strict):
    answer: Name
    unit: str = ""
    task: str = ""
    advice: str = ""

    @model_validator(mode="before")
    @classmethod
    def _of_answer_alone(cls, value: object) -> object:
        return {"answer": value} if isinstance(value, str) else value


class _Reference(_Strict):
    name: Name
    percent: float = Field(ge=0, le=100)
    source: Name
    protocol: str = ""


class _Contents(_Strict):
    """What docs/data.md describes."""

    name: str = ""
    title: str = ""
    types: dict[str, _Type] = Field(min_length=1)
    overall: Literal["tasks", "questions"] = "tasks"
    questions_from: str = ""
    terms: str = "no terms stated"
    datasets: tuple[Name, ...] = ()
    size: int = Field(0, ge=0)
    references: tuple[_Reference, ...] = ()

    @model_validator(mode="after")
    def _size_of_references(self) -> "_Contents":
        if self.references and not self.size:
            raise ValueError("references need size, the number of all questions, which they cover")
        return self


def read_benchmark(folder: Path) -> Benchmark:
    """The benchmark that a folder's BENCHMARK_YAML describes; raises ValueError naming the file and the key."""
    path = folder / BENCHMARK_YAML
    try:
        contents = _Contents.model_validate(read_yaml(path) or {})
        name = contents.name or folder.resolve().name
        types = tuple(
            QuestionType(of_type, kind_named(its.answer, its.unit), its.task, its.advice)
            for of_type, its in contents.types.items()
        )
        tasks = {question_type.task for question_type in types}
        overall = f"{name.replace('-', '_')}_overall_{len(tasks)}_task"
        return Benchmark(
            name=name,
            title=contents.title or name,
            types=types,
            folder=lambda: folder,
            aggregate=mean_over_tasks if contents.overall == "tasks" else mean_over_questions,
            questions_from=Origin(contents.questions_from, contents.terms) if contents.questions_from else None,
            references=tuple(
                Reference(score.name, {overall: score.percent}, score.source, score.protocol)
                for score in contents.references
            ),
            sizes={overall: contents.size} if contents.size else {},
            datasets=contents.datasets,
        )
    except ValidationError as error:
        raise ValueError(f"{path}: {reasons(error)}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
