"""OpenEQA (Majumdar et al., CVPR 2024), its questions about ScanNet: answers in free text, which a judge marks."""

import re

from roomscout.data.benchmark import SCANS_FROM, Benchmark, Origin, QuestionType, mean_over_questions
from roomscout.data.judged import JUDGED_KIND
from roomscout.data.question_files import QuestionError, QuestionRow

CATEGORIES = (
    "object_recognition",
    "object_localization",
    "attribute_recognition",
    "spatial_understanding",
    "object_state_recognition",
    "functional_reasoning",
    "world_knowledge",
)
EPISODE = re.compile(r"scannet-v0/\d+-scannet-(scene\d{4}_\d{2})")
IN_WORDS = "Answer in a few words, not in a sentence."
LOOK = "Look at the whole room before you answer."


def in_our_columns(row: QuestionRow) -> QuestionRow:
    """A row with our columns: the episode names the scan, and the category is the type."""
    episode = EPISODE.fullmatch(str(row["episode_history"]))
    if episode is None:
        raise QuestionError(
            f"episode_history is {row['episode_history']!r}; it must be as in scannet-v0/002-scannet-scene0709_00"
        )
    return {
        "id": row["question_id"],
        "dataset": "scannet",
        "scene_name": episode[1],
        "question_type": str(row["category"]).replace(" ", "_"),
        "question": row["question"],
        "ground_truth": row["answer"],
        "extra_answers": row.get("extra_answers"),
    }


BENCHMARK = Benchmark(
    name="openeqa",
    title="OpenEQA",
    types=tuple(
        QuestionType(name, JUDGED_KIND, advice=f"{LOOK} {IN_WORDS}", advice_untold={"moves": IN_WORDS})
        for name in CATEGORIES
    ),
    columns=("question_id", "question", "answer", "category", "episode_history"),
    more_columns=("extra_answers",),
    leaves_out=lambda row: "they are about HM3D" if str(row["episode_history"]).startswith("hm3d-") else "",
    read_row=in_our_columns,
    aggregate=mean_over_questions,
    label="openeqa_scannet_overall",
    questions_from=Origin("https://github.com/facebookresearch/open-eqa", "MIT", "data/open-eqa-v0.json"),
    scans_from={"scannet": SCANS_FROM["scannet"]},
    hashes=frozenset(["5a3274caca04ae1f51b6c837f6eeaa4a4f7ae0b26b0c845ec05803cb83c32503"]),  # at commit cfa3fce
)
