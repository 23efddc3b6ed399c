"""VSI-Bench (Yang et al., "Thinking in Space", arXiv:2412.14171): ten question types about rooms seen in videos."""

from roomscout.data.benchmarks import SCANS_FROM, Benchmark, Origin, Reference
from roomscout.data.question_files import HubDataset
from roomscout.data.vsi_types import VSI_TYPES

PAPER = "arXiv:2412.14171, table 1"
FRAMES = "on video frames"

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
    references=(
        Reference("most frequent answer", {"overall_8_task": 34.0, "overall_7_task": 36.9}, PAPER),
        Reference("human (400 questions)", {"overall_8_task": 79.2, "overall_7_task": 76.3}, PAPER),
        Reference("GPT-4o", {"overall_8_task": 34.0, "overall_7_task": 34.8}, PAPER, FRAMES),
        Reference("Qwen3-VL-2B", {"overall_8_task": 51.0, "overall_7_task": 49.8}, "lmms-eval", FRAMES),
    ),
)
