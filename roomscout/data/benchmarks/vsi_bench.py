"""VSI-Bench (Yang et al., "Thinking in Space", arXiv:2412.14171): ten question types about rooms seen in videos."""

from roomscout.data.answers import LETTER_KIND, Number
from roomscout.data.benchmark import SCANS_FROM, Benchmark, Origin, QuestionType, Reference, VideoProtocol
from roomscout.data.question_files import HubDataset

_FROM = r"(measuring from the closest point of each object, )?"
_TASK = "object_rel_direction"
_FACING = r"if i am standing by .+ and facing .+, is .+ to "
_RULER = "The camera's position is given in metres: use it to judge scale."
_NEARBY = "Look at both objects, from nearby if you can."
_ALL_SIDES = "Look at the whole object, from more than one side if you can."
_BOTH = "Look at both objects."
_WHOLE = "Look at the whole object."
_WALLS = "Find the walls in every direction."
_SHOWN_WALLS = "Note where the walls are."
_RECTANGLE = "The room may not fill the rectangle of its extent."
_ONCE = "Do not count an object again when it appears in another view."
_DIRECTION = (
    "Find every object that the question names and note where it is on the floor plan. Then imagine standing at the "
    "first object, facing the second. The camera's own heading does not matter."
)

VSI_TYPES = (
    QuestionType(
        "object_counting",
        Number("objects"),
        advice=f"Look in every direction before you answer. {_ONCE}",
        advice_untold={"moves": _ONCE},
        wording=r"how many .+ (are|is)( there)? in (this|the) room\W*$",
    ),
    QuestionType(
        "object_abs_distance",
        Number("m"),
        advice=f"{_NEARBY} {_RULER}",
        advice_untold={"pose": _NEARBY, "translation": _BOTH, "moves": f"{_BOTH} {_RULER}", "pose moves": _BOTH},
        wording=_FROM + r"what is the distance between .+\(in meters\)",
    ),
    QuestionType(
        "object_size_estimation",
        Number("cm"),
        advice=f"{_ALL_SIDES} {_RULER}",
        advice_untold={"pose": _ALL_SIDES, "translation": _WHOLE, "moves": f"{_WHOLE} {_RULER}", "pose moves": _WHOLE},
        wording=r"what is the length of the longest dimension .+ centimeters",
    ),
    QuestionType(
        "room_size_estimation",
        Number("m²"),
        advice=f"{_WALLS} {_RECTANGLE}",
        advice_untold={"extent": _WALLS, "moves": f"{_SHOWN_WALLS} {_RECTANGLE}", "extent moves": _SHOWN_WALLS},
        wording=r"what is the size of (this|the) room \(?in square meters",
        told_by_extent=True,
    ),
    QuestionType(
        "object_rel_distance",
        LETTER_KIND,
        advice="Find every object that the question names and note where it is before you compare distances.",
        wording=_FROM + r"which of these objects .+ is the closest to ",
    ),
    *(
        QuestionType(f"{_TASK}_{level}", LETTER_KIND, task=_TASK, advice=_DIRECTION, wording=_FACING + sides)
        for level, sides in (
            ("easy", "the left or the right of "),
            ("medium", "my left, right, or back"),
            ("hard", "my front-left, front-right, back-left"),
        )
    ),
    QuestionType(
        "route_planning",
        LETTER_KIND,
        advice="Find every place that the question names and note where it is on the floor plan. Then follow the "
        "route step by step and keep track of which way you face.",
        wording=r"you are a robot beginning at .+\[please fill in\]",
    ),
    QuestionType(
        "obj_appearance_order",
        LETTER_KIND,
        advice="Note what each view shows, in the order of the views.",
        wording="what will be the first-time appearance order of ",
    ),
)
"""In the wording of VSI-Bench: other benchmarks and the procedural rooms ask them too."""

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
