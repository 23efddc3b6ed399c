"""The benchmark of a run as run.json describes it, so that looking at a run executes no code that the run names."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from roomscout.data.answers import KIND_NAMES, AnswerKind, kind_named
from roomscout.data.benchmark import Benchmark, BenchmarkError, QuestionType, mean_over_questions, mean_over_tasks
from roomscout.data.benchmarks import benchmark_names, find_benchmark, is_code, loaded_code
from roomscout.data.judged import JUDGED_KIND
from roomscout.runs.records import BenchmarkRecord, RunFacts, TypeRecord

OVERALLS = {"tasks": mean_over_tasks, "questions": mean_over_questions}
"""What the overall is a mean over, if no function of the benchmark's own computes it."""
SAME = ("name", "title", "label", "excluded", "summed_last", "datasets", "scan_layouts", "rescans", "sizes")
"""The fields that a benchmark and its record have alike."""
TRUST = "add --allow-code (in Python: allow_code=True) if you trust its author"


def record_of(name: str) -> BenchmarkRecord | None:
    """What run.json keeps of a benchmark, None for one of this package; BenchmarkError for values that JSON lacks."""
    if name in benchmark_names():
        return None
    found = find_benchmark(name)
    own = {
        "types": [_type_record(each) for each in found.types],
        "references": list(map(asdict, found.references)),
        "overall": next((each for each, mean in OVERALLS.items() if mean is found.aggregate), ""),
        "brings_questions": found.source is not None or found.folder is not None,
    }
    try:
        return BenchmarkRecord.from_json(own | {each: getattr(found, each) for each in SAME})
    except ValueError as error:
        raise BenchmarkError(f"--benchmark {name}: it cannot be recorded ({error})") from None


def _type_record(given: QuestionType) -> dict[str, Any]:
    kind = given.kind
    return {
        "name": given.name,
        "task": given.task,
        "told_by_extent": given.told_by_extent,
        "kind": kind.name,
        **{each: getattr(kind, each) for each in ("unit", "takes_options", "needs_judge")},
        "shipped": kind == _shipped(kind.name, kind.unit),
    }


def _shipped(name: str, unit: str) -> AnswerKind | None:
    if name == JUDGED_KIND.name:
        return JUDGED_KIND
    return kind_named(name, unit) if name in KIND_NAMES else None


def benchmark_of(facts: RunFacts) -> Benchmark:
    """The benchmark of a run, as this process has loaded it or as described; BenchmarkError for other code."""
    name = facts.setting("benchmark")
    if (loaded := loaded_code(name)) is not None:
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
            types=tuple(_described_type(each, name) for each in record.types),
            aggregate=OVERALLS.get(record.overall, own_overall),
            references=record.references,
            **{each: getattr(record, each) for each in SAME},
        )
    except ValueError as error:
        raise BenchmarkError(f"the description of its benchmark in run.json is damaged ({error})") from None


def _described_type(record: TypeRecord, benchmark: str) -> QuestionType:
    kind = _shipped(record.kind, record.unit) if record.shipped else None
    own = RecordedKind(record.kind, record.unit, record.takes_options, record.needs_judge, benchmark)
    return QuestionType(record.name, kind or own, record.task, told_by_extent=record.told_by_extent)


@dataclass(frozen=True)
class RecordedKind(AnswerKind):
    """A kind of answer whose code is not loaded: it has a name, and raises BenchmarkError for what the code decides."""

    name: str = ""  # without a value, each would have the property of the base class
    unit: str = ""
    takes_options: bool = False
    needs_judge: bool = False
    benchmark: str = ""

    def _needs_code(self, *_: Any, **__: Any) -> Any:
        raise BenchmarkError(f"answers of kind {self.name} are scored by the code of {self.benchmark}: {TRUST}")

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        """Unknown: the truths of a run were checked when it began."""
        return None

    form = parse = why_invalid = guess = score = more_scores = vote = _needs_code
