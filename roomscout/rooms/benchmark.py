"""The procedural rooms of this package as a benchmark: nine types, three levels, no download and no licence.

Its datasets are the levels: bare, furnished and cluttered. See `roomscout.rooms.split`.
"""

from roomscout.data.benchmark import Benchmark, FrequentAnswers, Origin, Reference
from roomscout.data.benchmarks.vsi_bench import VSI_TYPES
from roomscout.rooms.questions import QUESTIONS_PER_TYPE
from roomscout.rooms.room import LEVELS
from roomscout.rooms.split import ROOMS, SHA256, SPLIT, VERSION, VIEWS_SHA256, make_pictures
from roomscout.rooms.view_finding import VIEW_FINDING

VIEWS_LABEL = f"rooms_v{VERSION}_{VIEWS_SHA256[:8]}_{VIEW_FINDING.name}"
MADE_HERE = Origin("made on this machine", "no terms")
CATEGORY_IN = {"object_counting": r"How many (.+)\(s\) are", "object_size_estimation": r"of the ([^()]+), measured"}
"""Where questions of a type name the category of their object."""
FREQUENT = FrequentAnswers(
    "300 other rooms of the same levels",
    {
        "object_counting": "3", "object_abs_distance": "3.1", "object_size_estimation": "105",
        "room_size_estimation": "21.8", "object_rel_distance": "C", "object_rel_direction_easy": "B",
        "object_rel_direction_medium": "B", "object_rel_direction_hard": "D", "route_planning": "A",
    },
    {
        "object_counting": {
            "armchair": "2", "backpack": "4", "bookshelf": "2", "box": "3", "cabinet": "2", "chair": "3", "clock": "3",
            "desk": "2", "heater": "2", "lamp": "3", "microwave": "2", "monitor": "4", "nightstand": "2",
            "picture": "5", "pillow": "4", "plant": "2", "refrigerator": "2", "sink": "2", "stool": "5",
            "suitcase": "2", "towel": "4", "trash can": "3", "wardrobe": "2", "washer": "2", "window": "3",
        },
        "object_size_estimation": {
            "armchair": "87", "backpack": "53", "bathtub": "157", "bed": "192", "bookshelf": "154", "box": "43",
            "cabinet": "131", "chair": "94", "clock": "35", "desk": "139", "door": "211", "heater": "98", "lamp": "139",
            "microwave": "52", "mirror": "74", "monitor": "65", "nightstand": "55", "picture": "74", "pillow": "44",
            "plant": "86", "refrigerator": "148", "sink": "106", "sofa": "193", "stool": "50", "stove": "98",
            "suitcase": "90", "table": "106", "toilet": "79", "towel": "73", "trash can": "39", "tv": "102",
            "wardrobe": "177", "washer": "90", "whiteboard": "133", "window": "120",
        },
    },
    CATEGORY_IN,
    "best constant answer of the type, for counts and sizes that of the object's category,",
)  # fmt: skip
"""Found in 100 other rooms of each level: of each type, the one answer that scores most if all questions get it."""

OVERALL_LABEL = f"rooms_v{VERSION}_{SHA256[:8]}_overall_7_task"
MEASURED = {"best constants": 41.9, "explorer, blind, 8 moves": 38.8, "explorer, 8 moves": 78.4}
"""Overalls in percent, measured with the commands in docs/benchmarks.md: how much of one is a guess."""

BENCHMARK = Benchmark(
    name="rooms",
    title="Rooms",
    types=tuple(kind for kind in VSI_TYPES if kind.name in QUESTIONS_PER_TYPE),
    folder=SPLIT.folder,
    make_scans=SPLIT.make_scans,
    make_pictures=make_pictures,
    apart={VIEWS_LABEL: VIEW_FINDING},
    questions_from=MADE_HERE,
    scans_from=dict.fromkeys(LEVELS, MADE_HERE),
    label=f"rooms_v{VERSION}_{SHA256[:8]}_overall",
    summed_last=("object_rel_direction",),
    datasets=tuple(LEVELS),
    frequent_answers=FREQUENT,
    hashes=frozenset(("6855b889ceb2997bee4c4b316f27b133abf8a0c9c9f5ee9338efbb19e82edf5b",)),  # of all its questions
    references=tuple(Reference(name, {OVERALL_LABEL: score}, "docs/benchmarks.md") for name, score in MEASURED.items()),
    sizes={
        OVERALL_LABEL: ROOMS * len(LEVELS) * len(QUESTIONS_PER_TYPE),
        VIEWS_LABEL: ROOMS * len(LEVELS),
    },
)
