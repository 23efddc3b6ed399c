"""Reads the answers to compare: a run folder, or the per-question file of another tool."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from roomscout.analysis.compare.conditions import Conditions, conditions_of
from roomscout.analysis.report.writer import REPORT_FILE
from roomscout.analysis.titles import controls_of, short_title
from roomscout.base.grouping import grouped
from roomscout.base.text import json_in
from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.runs import RunError
from roomscout.runs.baselines import with_blind
from roomscout.runs.reader import RunReader
from roomscout.runs.summary import Summary
from roomscout.scoring.scores import ResultRow

LMMS_EVAL_TASK_KEYS = ("vsibench_overall", "vsibench_score")
"""The metrics under which lmms-eval's task vsibench keeps a question with its score, newest first."""
LMMS_EVAL_SCORES = ("accuracy", "MRA:.5:.95:.05")  # where such a question has its score: of an option, and of a number


class QuestionKey(NamedTuple):
    """What makes two questions of two runs the same one."""

    id: str  # unique in its source
    dataset: str  # from which its scene is, such as "scannet"
    scene_name: str  # within the dataset
    question_type: str  # a name of the benchmark's types
    question: str  # the text, without options
    ground_truth: str  # "None" without one


@dataclass(frozen=True)
class Answers:
    """The scored answers of a run or of another tool's file."""

    name: str  # of the folder or the file
    title: str  # of the run, or what answered and under which controls
    path: Path  # as it was named
    benchmark: Benchmark  # whose rules give the overall
    rows: tuple[ResultRow, ...]  # what `path` has, in its order
    pending: int  # how many answers have no row yet
    conditions: Conditions  # empty if they are not recorded
    about: Mapping[str, Any]  # the settings of what answered, by name, and its "controls" in words
    protocol: str  # how the questions were asked, in words
    summary: Summary  # without scores if there is no summary.json

    @cached_property
    def by_question(self) -> dict[QuestionKey, list[ResultRow]]:
        """The scored rows of each question, in their order."""
        return grouped((key_of(row), row) for row in self.rows if row.score is not None)

    @cached_property
    def failed(self) -> frozenset[QuestionKey]:
        """The scored questions of which an answer ended in an error of the scan, the renderer or the model."""
        return frozenset(key for key, rows in self.by_question.items() if any(row.failed for row in rows))

    def report_from(self, folder: Path) -> str:
        """The address of the run's report from a page in a folder; empty if it has none."""
        page = self.path / REPORT_FILE
        return quote(os.path.relpath(page.resolve(), folder.resolve())) if page.is_file() else ""


def key_of(row: ResultRow) -> QuestionKey:
    """The question of a row."""
    return QuestionKey(*(str(getattr(row, name)).strip() for name in QuestionKey._fields))


def read_answers(paths: Iterable[Path]) -> list[Answers]:
    """Read run folders, and .jsonl files as those of lmms-eval, under unique names; raises RunError naming the file."""
    runs: list[Answers] = []
    for path in paths:
        if path.suffix == ".jsonl":
            runs.append(read_lmms_eval(path))
        else:
            reader = RunReader(path)
            run = read_run(reader)
            runs.append(replace(run, summary=with_blind(run.summary, reader)))
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise RunError("the same run is named twice: name each once")
    return runs


def read_run(reader: RunReader) -> Answers:
    """Read the answers of a run folder; raises RunError."""
    facts = reader.facts
    rows = tuple(reader.rows)
    return Answers(
        reader.folder.resolve().name,
        short_title(facts),
        reader.folder,
        reader.benchmark,
        rows,
        facts.episodes - len(rows),
        conditions_of(reader),
        facts.answerer | {"controls": ", ".join(controls_of(facts))},
        facts.protocol,
        reader.summary or Summary(pending=facts.episodes),
    )


def read_lmms_eval(path: Path) -> Answers:
    """Read the samples of lmms-eval's task vsibench, `..._samples_vsibench.jsonl` (--log_samples). Each line has the
    question's columns, the prediction and its score below "vsibench_overall", in versions before 2026 "vsibench_score"
    (EvolvingLMMs-Lab/lmms-eval, lmms_eval/tasks/vsibench/utils.py, process_results). The model is the name of the
    file's folder. Raises RunError naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # texts may have other line separators
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read ({error})") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(_row_of_sample(number, json_in(line)))
        except (ValueError, KeyError, TypeError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise RunError(
                f"{path}, line {number} is not a sample of lmms-eval's task vsibench ({why}); --log_samples writes them"
            ) from None
    if not rows:
        raise RunError(f"{path} has no lines: name a file of samples that lmms-eval wrote with --log_samples")
    model = path.resolve().parent.name
    return Answers(
        path.stem,
        f"{model} (lmms-eval)",
        path,
        find_benchmark(DEFAULT),
        tuple(rows),
        pending=0,
        conditions={},
        about={"model": model, "engine": "lmms-eval", "controls": ""},
        protocol="lmms-eval, on video frames",
        summary=Summary(pending=0),
    )


def _row_of_sample(number: int, sample: Mapping[str, Any]) -> ResultRow:
    question = next((sample[key] for key in LMMS_EVAL_TASK_KEYS if key in sample), None)
    if question is None:
        raise KeyError(LMMS_EVAL_TASK_KEYS[0])
    score = next((question[key] for key in LMMS_EVAL_SCORES if key in question), None)
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"its score is {score!r}, not between 0 and 1")
    texts: dict[str, Any] = {name: str(question[name]) for name in QuestionKey._fields}
    return ResultRow(
        number=number,
        **texts,
        answer=str(question["prediction"]),
        score=float(score),
        status="answered",
        failed_part=None,
        error=None,
        turns=0,
        parse_errors=0,
        seconds=0.0,
    )
