"""SQA3D (Ma et al., arXiv:2210.07474): questions about ScanNet from a situation with a place and a heading."""

import math
from typing import Any

from roomscout.data.benchmark import SCANS_FROM, Benchmark, Origin, QuestionType, Reference, mean_over_questions
from roomscout.data.question_files import QuestionRow
from roomscout.data.situated import ANNOTATED, SITUATED_KIND, joined
from roomscout.data.starts import Start

FIRST_WORDS = ("what", "is", "how", "can", "which")
ADVICE = "The question begins with your situation: you start at that place, facing that way."


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
