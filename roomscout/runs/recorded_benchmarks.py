"""The benchmark of a run as run.json describes it, so that looking at a run executes no code that the run names."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from roomscout.data.answers import KIND_NAMES, AnswerKind, kind_named
from roomscout.data.benchmark import Benchmark, BenchmarkError, QuestionType, mean_over_questions, mean_over_tasks
from roomscout.data.benchmarks import benchmark_names, find_benchmark, is_code, loaded_code
from roomscout.data.judged import JUDGED_KIND
from roomscout.runs.records import BenchmarkRecord, RunFacts, TypeRecord

OVERALLS = {"tasks": mean_over_tasks, "questions": mean_over_questions}  # unless a function of its own computes it
SAME = ("name", "title", "label", "excluded", "summed_last", "datasets", "scan_layouts", "rescans", "pairs", "sizes")
"""The fields that a benchmark and its record have alike."""
SAME_OF_KIND = ("unit", "takes_options", "needs_judge", "in_scan_coordinates", "judges_camera")
"""Likewise of a kind of answer and a type's record."""
TRUST = "add --allow-code (in Python: allow_code=True) if you trust its author"


def record_of(name: str) -> BenchmarkRecord | None:
    """What run.json keeps of a benchmark, None for one of this package; BenchmarkError for values that JSON lacks."""
    if name in benchmark_names():
        return None
    benchmark = find_benchmark(name)
    own = {
        "types": [_type_record(question_type) for question_type in benchmark.types],
        "references": list(map(asdict, benchmark.references)),
        "overall": next((overall for overall, mean in OVERALLS.items() if mean is benchmark.aggregate), ""),
        "brings_questions": benchmark.source is not None or benchmark.folder is not None,
    }
    try:
        return BenchmarkRecord.from_json(own | {field: getattr(benchmark, field) for field in SAME})
    except ValueError as error:
        raise BenchmarkError(f"{name} cannot be recorded ({error})", setting="benchmark") from None


def _type_record(question_type: QuestionType) -> dict[str, Any]:
    kind = question_type.kind
    return {
        "name": question_type.name,
        "task": question_type.task,
        "told_by_extent": question_type.told_by_extent,
        "kind": kind.name,
        **{field: getattr(kind, field) for field in SAME_OF_KIND},
        "shipped": kind == _shipped(kind.name, kind.unit),
    }


def _shipped(name: str, unit: str) -> AnswerKind | None:
    if name == JUDGED_KIND.name:
        return JUDGED_KIND
    return kind_named(name, unit) if name in KIND_NAMES else None


def benchmark_of(facts: RunFacts) -> Benchmark:
    """The benchmark of a run, as this process has loaded it or as described; BenchmarkError for other code."""
    name = facts.setting("benchmark")
    loaded = loaded_code(name)
    if loaded is not None:
        return loaded
    if name not in benchmark_names():
        if facts.benchmark is not None:
            return _described(facts.benchmark, name)
        if is_code(name):
            raise BenchmarkError(f"its benchmark {name} is Python code, which reading a run does not execute: {TRUST}")
    return find_benchmark(name)


def _described(record: BenchmarkRecord, name: str) -> Benchmark:
    def own_overall(*_: Any) -> dict[str, float]:
        raise BenchmarkError(f"the overall of {record.title} is computed by the code of {name}: {TRUST}")

    try:
        return Benchmark(
            types=tuple(_described_type(question_type, name) for question_type in record.types),
            aggregate=OVERALLS.get(record.overall, own_overall),
            references=record.references,
            **{field: getattr(record, field) for field in SAME},
        )
    except ValueError as error:
        raise BenchmarkError(f"the description of its benchmark in run.json is damaged ({error})") from None


def _described_type(record: TypeRecord, benchmark: str) -> QuestionType:
    kind = _shipped(record.kind, record.unit) if record.shipped else None
    same = {field: getattr(record, field) for field in SAME_OF_KIND}
    own = RecordedKind(record.kind, benchmark=benchmark, **same)
    return QuestionType(record.name, kind or own, record.task, told_by_extent=record.told_by_extent)


@dataclass(frozen=True)
class RecordedKind(AnswerKind):
    """A kind of answer whose code is not loaded: it has a name, and raises BenchmarkError for what the code decides."""

    # Fields without a value would have those of the base class.
    name: str = ""  # as in the column `answer_kind`
    unit: str = ""  # of a number
    takes_options: bool = False  # whether its questions have options
    needs_judge: bool = False  # whether a judge scores its answers
    in_scan_coordinates: bool = False  # whether answers are places
    judges_camera: bool = False  # whether the camera's pose is scored
    benchmark: str = ""  # what names the benchmark with its code

    def _needs_code(self, *_: Any, **__: Any) -> Any:
        raise BenchmarkError(f"answers of kind {self.name} are scored by the code of {self.benchmark}: {TRUST}")

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        """Unknown: the truths of a run were checked when it began."""
        return None

    form = _needs_code
    parse = _needs_code
    why_invalid = _needs_code
    guess = _needs_code
    score = _needs_code
    more_scores = _needs_code
    vote = _needs_code
