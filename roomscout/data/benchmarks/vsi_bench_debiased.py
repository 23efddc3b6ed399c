"""VSI-Bench-Debiased (Brown et al., arXiv:2511.04655): VSI-Bench without its most guessable questions."""

from dataclasses import replace

from roomscout.data.benchmarks import vsi_bench
from roomscout.data.question_files import COLUMNS, HubDataset, QuestionRow
from roomscout.data.yes_no import YES_OR_NO


def why_pruned(row: QuestionRow) -> str:
    """Whether a row of VSI-Bench was pruned; raises ValueError if its column `pruned` says neither."""
    pruned = YES_OR_NO.get(str(row["pruned"]).strip().lower())
    if pruned is None:
        raise ValueError(f"pruned is {row['pruned']!r}; it must be true or false")
    return "they were pruned" if pruned else ""


COUNTS = {  # how many questions of each type it has (the page on evaluation in vision-x-nyu/test-set-training)
    "object_counting": 251, "object_abs_distance": 434, "object_size_estimation": 353, "room_size_estimation": 200,
    "object_rel_distance": 310, "object_rel_direction_easy": 212, "object_rel_direction_medium": 54,
    "object_rel_direction_hard": 116, "route_planning": 114, "obj_appearance_order": 318,
}  # fmt: skip

BENCHMARK = replace(
    vsi_bench.BENCHMARK,
    name="vsi-bench-debiased",
    title="VSI-Bench-Debiased",
    source=HubDataset("nyu-visionx/VSI-Bench", "test", "test_debiased.parquet", files=("test_debiased.parquet",)),
    columns=(*COLUMNS, "pruned"),
    leaves_out=why_pruned,
    label="debiased_overall",
    sizes={"debiased_overall_7_task": 2044, "debiased_overall_8_task": 2362},
    counts=COUNTS,
    scenes={},
    references=(),
)
