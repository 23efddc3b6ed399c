"""Twin rooms as a benchmark: the same question about two rooms that differ in one edit.

Its datasets are the levels of `rooms`. See `roomscout.rooms.twins` and `roomscout.rooms.twin_split`.
"""

from roomscout.data.benchmark import Benchmark
from roomscout.rooms.benchmark import BENCHMARK as ROOMS
from roomscout.rooms.benchmark import FREQUENT, MADE_HERE
from roomscout.rooms.questions import DATASET
from roomscout.rooms.room import LEVELS
from roomscout.rooms.twin_split import PAIRS, SHA256, SPLIT, VERSION

LABEL = f"rooms_twins_v{VERSION}_{SHA256[:8]}_pairs"
ROOM = r"(.+)[ab]"  # the room of which both twins are made, in their names

BENCHMARK = Benchmark(
    name="rooms-twins",
    title="Twin rooms",
    types=ROOMS.types,
    folder=SPLIT.folder,
    make_scans=SPLIT.make_scans,
    more_columns=("edit",),
    questions_from=MADE_HERE,
    scans_from=dict.fromkeys(LEVELS, MADE_HERE),
    label=LABEL,
    summed_last=ROOMS.summed_last,
    datasets=tuple(LEVELS),
    rescans=dict.fromkeys((*LEVELS, DATASET), ROOM),
    pairs=r"(\d+)[ab]",
    frequent_answers=FREQUENT,
    hashes=frozenset(("50bdd33ffd727aecf49d5da4b5e42def12019f99cdf6c609c13464727b9f85d2",)),
    sizes={f"{LABEL}_7_task": 2 * PAIRS},
)
