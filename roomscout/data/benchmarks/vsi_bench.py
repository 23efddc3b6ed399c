"""VSI-Bench (Yang et al., "Thinking in Space", arXiv:2412.14171): ten question types about rooms seen in videos."""

from roomscout.data.benchmark import SCANS_FROM, Benchmark, Origin, Reference, VideoProtocol
from roomscout.data.question_files import HubDataset
from roomscout.data.vsi_types import VSI_TYPES

PAPER = "arXiv:2412.14171, table 1"
QWEN = "Qwen's report, arXiv:2511.21631"
ISSUE = "QwenLM/Qwen3-VL#2028"
FRAMES = "on video frames"

COUNTS = {  # how many questions of each type VSI-Bench has (section 4 of the paper, and the dataset's card)
    "object_counting": 565, "object_abs_distance": 834, "object_size_estimation": 953, "room_size_estimation": 288,
    "object_rel_distance": 710, "object_rel_direction_easy": 217, "object_rel_direction_medium": 378,
    "object_rel_direction_hard": 373, "route_planning": 194, "obj_appearance_order": 618,
}  # fmt: skip

VIDEO = VideoProtocol(
    source="vision-x-nyu/thinking-in-space, lmms_eval/tasks/vsibench",
    opening="These are frames of a video.",
    options="Options:",
    choice_ending="Answer with the option's letter from the given choices directly.",
    number_ending="Please answer the question using a single word or phrase.",
    frames=32,  # evaluate_all_in_one.sh there
    max_new_tokens=16,
)

BENCHMARK = Benchmark(
    name="vsi-bench",
    title="VSI-Bench",
    types=VSI_TYPES,
    excluded={"obj_appearance_order": "a scan does not show the order in the video"},
    # Files, since the configuration full is a pattern that also matches files of single types.
    source=HubDataset(
        "nyu-visionx/VSI-Bench", "test", "test.jsonl", files=("test_debiased.parquet", "test_pruned.parquet")
    ),
    label="overall",
    questions_from=Origin("https://huggingface.co/datasets/nyu-visionx/VSI-Bench", "Apache-2.0"),
    scans_from=SCANS_FROM,
    # The official scorer adds the mean of the three direction types last.
    summed_last=("object_rel_direction",),
    sizes={"overall_7_task": 4512, "overall_8_task": 5130},
    video=VIDEO,
    counts=COUNTS,
    scenes={"arkitscenes": 150, "scannet": 88, "scannetpp": 50},
    references=(
        # The paper prints 34.0, though the mean of its eight task scores is 35.5.
        Reference("most frequent answer", {"overall_8_task": 34.0}, PAPER, means={"overall_7_task": 36.9}),
        Reference("human (400 questions)", {"overall_8_task": 79.2}, PAPER, means={"overall_7_task": 76.3}),
        Reference("GPT-4o", {"overall_8_task": 34.0}, PAPER, FRAMES, means={"overall_7_task": 34.8}),
        Reference("Qwen3-VL-2B", {"overall_8_task": 53.9}, QWEN, FRAMES),
        Reference("Qwen3-VL-4B", {"overall_8_task": 58.4}, QWEN, FRAMES),
        Reference(
            "Qwen3-VL-2B", {"overall_8_task": 51.0}, ISSUE, FRAMES, {"overall_7_task": 49.8}, framework="lmms-eval"
        ),
        Reference("Qwen3-VL-4B", {"overall_8_task": 54.7}, ISSUE, FRAMES, framework="lmms-eval"),
        # VLMEvalKit prints means over questions: 42.54, 32.47 and 56.57. These are the means of its task scores.
        *(
            Reference(name, {}, "open-compass/VLMEvalKit#1342", FRAMES, means, frames=64, framework="VLMEvalKit")
            for name, means in (
                ("InternVL3-8B", {"overall_8_task": 42.8, "overall_7_task": 44.1}),
                ("Qwen2.5-VL-7B", {"overall_8_task": 31.0, "overall_7_task": 31.5}),
                ("Qwen3-VL-4B", {"overall_8_task": 55.1, "overall_7_task": 54.7}),
            )
        ),
    ),
)
