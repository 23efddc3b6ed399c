"""The procedural rooms of this package as a benchmark: nine types, three levels, no download and no licence.

Its datasets are the levels: bare, furnished and cluttered. See `roomscout.data.rooms.split`.
"""

from roomscout.data.benchmarks import Benchmark, FrequentAnswers, Origin
from roomscout.data.rooms.levels import LEVELS
from roomscout.data.rooms.questions import QUESTIONS_PER_TYPE
from roomscout.data.rooms.split import ROOMS, SHA256, VERSION, split_folder
from roomscout.data.vsi_types import VSI_TYPES

MADE_HERE = Origin("made on this machine", "no terms")
FREQUENT = FrequentAnswers(
    "300 other rooms of the same levels",
    {
        "object_counting": "3",
        "object_abs_distance": "2.0",
        "object_size_estimation": "105",
        "room_size_estimation": "9.9",
        "object_rel_distance": "C",
        "object_rel_direction_easy": "B",
        "object_rel_direction_medium": "B",
        "object_rel_direction_hard": "D",
        "route_planning": "A",
    },
)
"""Counted by `python -m roomscout.benchmarks.frequent_answers`."""

BENCHMARK = Benchmark(
    name="rooms",
    title="Rooms",
    types=tuple(each for each in VSI_TYPES if each.name in QUESTIONS_PER_TYPE),
    folder=split_folder,
    questions_from=MADE_HERE,
    scans_from=dict.fromkeys(LEVELS, MADE_HERE),
    label=f"rooms_v{VERSION}_{SHA256[:8]}_overall",
    summed_last=("object_rel_direction",),
    datasets=tuple(LEVELS),
    frequent_answers=FREQUENT,
    sizes={f"rooms_v{VERSION}_{SHA256[:8]}_overall_7_task": ROOMS * len(LEVELS) * len(QUESTIONS_PER_TYPE)},
)
