"""ReVSI (Zhang et al., arXiv:2604.24300): questions in the style of VSI-Bench with answers annotated again in 3D."""

from dataclasses import replace

from roomscout.data.benchmark import SCANNET_ROOM, SCANS_FROM, Benchmark, Origin, QuestionType
from roomscout.data.benchmarks.vsi_bench import VSI_TYPES
from roomscout.data.question_files import COLUMNS, HubDataset, QuestionRow
from roomscout.data.scans import layout_name

SUBSETS = ("16", "32", "64")
TYPES_OF_TASK = {  # the types of each task, in the order in which lmms-eval averages them
    "object_counting": ("object_counting_single", "object_counting_multiple"),
    "object_abs_distance": ("object_abs_distance",),
    "object_size_estimation": ("object_size_estimation",),
    "room_size_estimation": ("room_size_estimation_single", "room_size_estimation_multiple"),
    "object_rel_distance": ("object_rel_distance_closest", "object_rel_distance_farthest"),
    "object_rel_direction": tuple(
        f"object_rel_direction_{level}" for level in ("forward_easy", "backward_easy", "forward_hard", "backward_hard")
    ),
    "route_planning": ("route_planning",),
}


def type_of(name: str, task: str) -> QuestionType:
    """A type with the answers and the advice of VSI-Bench's type of the same task."""
    same = next(question_type for question_type in VSI_TYPES if question_type.task == task)
    return replace(same, name=name, task=task, wording="")


def in_our_columns(row: QuestionRow) -> QuestionRow:
    """A row with our columns: `scene_id` is the scene."""
    ours = {"dataset": layout_name(str(row["dataset"])), "scene_name": row["scene_id"]}
    return {name: row.get(name) for name in COLUMNS} | ours


def require_all_frames(row: QuestionRow) -> str:
    """Leave out no row; raises ValueError for one of a subset, whose answer is about what a few frames show."""
    if (frames := str(row.get("num_frames", "")).strip()) in SUBSETS:
        raise ValueError(f"num_frames is {frames}; a scan shows the whole room, so use the rows of all_frame")
    return ""


BENCHMARK = Benchmark(
    name="revsi",
    title="ReVSI",
    types=tuple(type_of(name, task) for task, names in TYPES_OF_TASK.items() for name in names),
    source=HubDataset("3dlg-hcvc/ReVSI", "test", "all_frame/test-00000-of-00001.parquet", "all_frame"),
    columns=("id", "dataset", "scene_id", "question_type", "question", "options", "ground_truth"),
    more_columns=("num_frames",),
    read_row=in_our_columns,
    leaves_out=require_all_frames,
    questions_from=Origin("https://huggingface.co/datasets/3dlg-hcvc/ReVSI", "Apache-2.0"),
    scans_from={
        **SCANS_FROM,
        "3rscan": Origin("https://github.com/WaldJohannaU/3RScan", "3RScan Terms of Use, access on request"),
        "multiscan": Origin("https://github.com/smartscenes/multiscan", "CC BY-NC 4.0, access on request"),
    },
    rescans={"scannet": SCANNET_ROOM, "multiscan": r"(scene_\d{5})_\d{2}"},
    # lmms-eval adds the tasks of several types last.
    summed_last=("object_rel_direction", "object_rel_distance", "object_counting", "room_size_estimation"),
    sizes={"revsi_overall_7_task": 6158},
)
