"""SQA3D's questions about situations: its two files as one list, and how its scripts clean and compare answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout.data.answers import Text
from roomscout.data.question_files import QuestionError, read_json_file

ANNOTATED = ("answers", "position", "rotation")  # what the file of annotations adds to a question

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_NUMBERS = dict(enumerate(f"{_UNITS} seventeen eighteen nineteen twenty".split())) | {23: "twenty-three"}
_TYPOS = {
    "letf": "left", "let": "left", "tehre": "there", "rigth": "right", "rght": "right", "behine": "behind", "tv": "TV",
    "chai": "chair", "wasing": "washing", "waslked": "walked", "oclock": "o'clock", r"o'[ ]+clock": "o'clock",
}  # fmt: skip
CLEANING = (
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
"""What the scripts replace in an answer in lower case, in this order (SilongYong/SQA3D, LLM/eval_sqa3d_llm.py)."""


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
