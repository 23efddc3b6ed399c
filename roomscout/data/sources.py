"""Whose questions a run asks: a benchmark's own rows, or others in its types. Labels and titles follow from that."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roomscout.data.benchmark import Benchmark
from roomscout.data.questions import LIST, Question, QuestionSource

OWN_QUESTIONS = "own questions"  # the name of questions that were passed as a list


@dataclass(frozen=True)
class Source:
    """Where the questions of a run come from."""

    name: str  # of a file, a dataset or a benchmark
    own: bool  # whether its rows are the benchmark's
    questions: Mapping[str, int]  # how many by type, also those not asked
    sha256: str  # their `content_hash`


def source_of(source: QuestionSource, benchmark: Benchmark) -> Source:
    """What a run records of the source of its questions."""
    rows = source.questions
    own = source.of_benchmark or are_own_rows(rows, benchmark)
    name = source.name
    if not source.of_benchmark:
        name = OWN_QUESTIONS if name == LIST else "/".join(Path(name).parts[-2:]).lstrip("/")
    return Source(name, own, dict(Counter(row.question_type for row in rows)), content_hash(rows))


def are_own_rows(rows: Sequence[Question], benchmark: Benchmark) -> bool:
    """Whether these are all of the benchmark's own rows, as far as that can be checked without its source. Compares
    their content if that is known; else the counts of types and of scenes per dataset, with or without the excluded
    types; else their number. True for a benchmark whose questions always come from a file."""
    rows = [row for row in rows if row.question_type not in benchmark.apart_by_name]
    if benchmark.hashes:
        return content_hash(rows) in benchmark.hashes
    if benchmark.counts:
        counts = Counter(row.question_type for row in rows)
        wanted = [name for name in benchmark.counts if name not in benchmark.excluded or name in counts]
        scenes = Counter(dataset for dataset, _ in {row.scene for row in rows})
        same = counts == {name: benchmark.counts[name] for name in wanted}
        return same and (not benchmark.scenes or scenes == benchmark.scenes)
    if benchmark.sizes:
        return len(rows) in benchmark.sizes.values()
    return benchmark.source is None and benchmark.folder is None


def content_hash(rows: Iterable[Question]) -> str:
    """SHA-256 of what questions ask and where, in any order and with any ids."""
    content = sorted(
        json.dumps([row.dataset, row.scene_name, row.question_type, row.question, row.options, row.ground_truth])
        for row in rows
    )
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def named_by(source: Source, benchmark: Benchmark) -> Benchmark:
    """The benchmark with the sizes of a source; for others than its own rows named by a file, without references."""
    if source.own:
        sizes = dict(benchmark.sizes)
        for names in (benchmark.scan_types, list(benchmark.by_name)):
            if all(source.questions.get(name) for name in names):
                tasks = {benchmark.by_name[name].task for name in names}
                sizes[f"{benchmark.label}_{len(tasks)}_task"] = sum(source.questions[name] for name in names)
        return replace(benchmark, sizes=sizes)
    label = f"{re.sub('[^A-Za-z0-9]+', '_', Path(source.name).with_suffix('').as_posix()).strip('_')}_overall"
    return replace(
        benchmark, label=label, title=source.name, sizes={}, references=(), datasets=(), scored_as=benchmark.title
    )
