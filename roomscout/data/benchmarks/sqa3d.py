"""SQA3D (Ma et al., arXiv:2210.07474): questions about ScanNet from a situation with a place and a heading."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout.data.answers import Text
from roomscout.data.benchmark import SCANS_FROM, Benchmark, Origin, QuestionType, Reference, mean_over_questions
from roomscout.data.question_files import QuestionError, QuestionRow, read_json_file
from roomscout.data.scan_frames import Start

FIRST_WORDS = ("what", "is", "how", "can", "which")
ADVICE = "The question begins with your situation: you start at that place, facing that way."
ANNOTATED = ("answers", "position", "rotation")  # what the file of annotations adds to a question
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_NUMBERS = dict(enumerate(f"{_UNITS} seventeen eighteen nineteen twenty".split())) | {23: "twenty-three"}
_TYPOS = {
    "letf": "left", "let": "left", "tehre": "there", "rigth": "right", "rght": "right", "behine": "behind", "tv": "TV",
    "chai": "chair", "wasing": "washing", "waslked": "walked", "oclock": "o'clock", r"o'[ ]+clock": "o'clock",
}  # fmt: skip
CLEANING = (  # what the scripts replace, in this order (SilongYong/SQA3D, LLM/eval_sqa3d_llm.py)
    (r"^ +| +$", ""),
    (r" {2,}", " "),
    (r"[^a-zA-Z0-9,'\s\-:]+", ""),
    *((rf"\b{typo}\b", word) for typo, word in _TYPOS.items()),
    (r"\b0\b", "zero"),
    (r"\bnone\b", "zero"),
    *((rf"\b{number}\b", word) for number, word in _NUMBERS.items()),
    (r"\b([a-zA-Z]+)([0-9])\b", r"\1"),
    *((rf"\b{article}\b ([a-zA-Z]+)", r"\1") for article in ("a", "an", "the")),
    (r"\bbackwards\b", "backward"),
)


def cleaned(answer: str) -> str:
    """An answer as SQA3D's scripts clean it before they compare: numbers in words, no articles, no punctuation."""
    answer = answer.lower()
    for pattern, replacement in CLEANING:
        answer = re.sub(pattern, replacement, answer)
    return answer


@dataclass(frozen=True)
class SituatedText(Text):
    """A few words, scored 1 if they equal the ground truth after cleaning and 0 otherwise, as in the published
    accuracies of classifiers; `lenient_match` is what the script for language models (LLM/eval_sqa3d_llm.py) counts."""

    def form(self, letters: object) -> str:
        """As short as the ground truths: mostly one word."""
        return "one or a few words"

    def score(self, answer: str | float | None, truth: str) -> float:
        """1 or 0."""
        return float(answer is not None and cleaned(str(answer)) == truth)

    def more_scores(self, answer: str | float | None, truth: str) -> dict[str, float]:
        """`lenient_match`: 1 if the answer is a part of the ground truth or shares a word with it."""
        text = "" if answer is None else cleaned(str(answer))
        inside = text in truth or "".join(text.split()) in "".join(truth.split())
        shares = not set(text.split()).isdisjoint(truth.split())
        return {"lenient_match": float(answer is not None and (inside or shares))}


SITUATED_KIND = SituatedText()


def joined(content: object, path: Path) -> list[Any]:
    """The questions of v1_balanced_questions_*.json, each with its annotation from the file beside it."""
    questions = _listed(content, "questions", path)
    beside = path.with_name(path.name.replace("questions", "sqa_annotations"))
    if beside == path or not beside.is_file():
        raise QuestionError(
            f"{path}: its answers are missing; put SQA3D's file sqa_annotations beside it ({beside.name})"
        )
    by_id = {row["question_id"]: row for row in _listed(read_json_file(beside), "annotations", beside)}
    rows = []
    for question in questions:
        id = question["question_id"]
        if id not in by_id:
            raise QuestionError(f"{beside} has no annotation of question {id}: take both files from one release")
        annotation = {name: value for name, value in by_id[id].items() if name in ANNOTATED}
        rows.append({**question, **annotation})
    return rows


def _listed(content: object, name: str, path: Path) -> list[Any]:
    rows = content.get(name) if isinstance(content, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and "question_id" in row for row in rows):
        raise QuestionError(f"{path} is not a file of SQA3D: it has no list {name!r} of objects with a question_id")
    return rows


def in_our_columns(row: QuestionRow) -> QuestionRow:
    """A row with our columns: the situation is the beginning of the question, and its pose the start."""
    position: Any = row["position"]
    rotation: Any = row["rotation"]
    answers: Any = row["answers"]
    # A turn about z from an agent that faces -x, at a place that counts from the middle of the scan: so the repository
    # draws it (utils/visualize_data.py).
    heading = 180 + math.degrees(2 * math.atan2(rotation["_z"], rotation["_w"]))
    start = Start(float(position["x"]), float(position["y"]), heading % 360, from_middle=True)
    return {
        "id": row["question_id"],
        "dataset": "scannet",
        "scene_name": row["scene_id"],
        "question_type": type_of(str(row["question"])),
        "question": f"{row['situation']} {row['question']}",
        "ground_truth": answers[0]["answer"],
        "start": start.to_json(),
    }


def type_of(question: str) -> str:
    """The type of a question: its first word, if it is one of FIRST_WORDS, else "other"."""
    word = question.lower().replace("'s", " ").translate(str.maketrans("", "", ",.?")).split()[:1]
    return word[0] if word and word[0] in FIRST_WORDS else "other"


BENCHMARK = Benchmark(
    name="sqa3d",
    title="SQA3D",
    types=tuple(QuestionType(name, SITUATED_KIND, advice=ADVICE) for name in (*FIRST_WORDS, "other")),
    columns=("question_id", "scene_id", "situation", "question", *ANNOTATED),
    more_columns=("alternative_situation", "question_type", "answer_type"),
    read_json=joined,
    read_row=in_our_columns,
    aggregate=mean_over_questions,
    questions_from=Origin(
        "https://zenodo.org/records/7792397",
        "CC BY 4.0",
        "v1_balanced_questions_test_scannetv2.json and its annotations",
    ),
    scans_from={"scannet": SCANS_FROM["scannet"]},
    sizes={"sqa3d_overall_6_task": 3519},
    references=(
        Reference("human", {"sqa3d_overall_6_task": 90.06}, "arXiv:2210.07474"),
        Reference("best model of the paper", {"sqa3d_overall_6_task": 47.2}, "arXiv:2210.07474", "trained on SQA3D"),
    ),
    hashes=frozenset(["2974706aa57c1a253f5dedb35ea454fe8551a0fd74c24d52b9c5a9e247d069d6"]),  # at commit a98da8f
)
