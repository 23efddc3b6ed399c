"""The verb `rooms`: write procedural rooms and questions about them."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roomscout.base.errors import UsageError
from roomscout.base.text import counted, escaped, replace_unencodable
from roomscout.base.verbs import Parser
from roomscout.rooms.questions import ASKED_PER_TYPE
from roomscout.rooms.room import FURNISHED, LEVELS
from roomscout.rooms.scan import ScanStyle
from roomscout.rooms.writer import write_rooms


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return 0; raises UsageError if the rooms cannot be written."""
    parser = Parser(prog="roomscout rooms", description="Write procedural rooms and questions about them.")
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write, which a run takes as its scan root")
    parser.add_argument("--rooms", type=int, default=8, help="number of rooms (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="selects the series of rooms, 0 or more (%(default)s)")
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default=FURNISHED.name,
        help="bare: few objects in a rectangle; cluttered: many in a concave room, with a poor scan (%(default)s)",
    )
    parser.add_argument("--objects", type=int, nargs=2, metavar=("LEAST", "MOST"), help="objects in a room, 9 to 100")
    parser.add_argument("--questions-per-type", type=int, metavar="N", help="questions of each type about each room")
    parser.add_argument("--resolution", type=float, default=ScanStyle.resolution_m, help="of the mesh, m (%(default)s)")
    parser.add_argument("--noise", type=float, help="RMS displacement of the surface, metres (0; cluttered 0.008)")
    parser.add_argument("--holes", type=int, help="missing patches per room (0; cluttered 12)")
    parser.add_argument("--view-finding", action="store_true", help="also ask for the place of a picture of each room")
    parser.add_argument(
        "--twins", action="store_true", help="so many pairs of rooms that differ in one edit, each with a question"
    )
    options = parser.parse_args(arguments)
    if options.twins and (options.view_finding or options.questions_per_type or options.objects):
        parser.error("--twins goes with no --view-finding, --questions-per-type or --objects")
    if options.out.is_file():
        parser.error(f"{escaped(str(options.out))} is a file: OUT takes a folder")
    level = LEVELS[options.level]
    qualities = {"resolution_m": options.resolution, "noise_m": options.noise, "holes": options.holes}
    per_type = ASKED_PER_TYPE
    if options.questions_per_type is not None:
        if options.questions_per_type < 1:
            raise UsageError(f"questions per type must be 1 or more, not {options.questions_per_type}")
        per_type = dict.fromkeys(ASKED_PER_TYPE, options.questions_per_type)
    try:
        if options.objects:
            level = replace(level, objects=tuple(options.objects))
        style = replace(level.style, **{name: value for name, value in qualities.items() if value is not None})
        questions = write_rooms(
            options.out, options.rooms, options.seed, style, per_type, level, options.view_finding, options.twins
        )
    except OSError as error:
        raise UsageError(f"{options.out} cannot be written ({error.strerror}): name another folder") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    replace_unencodable(sys.stdout)
    what = "pair" if options.twins else "room"
    sys.stdout.write(
        f"{counted(options.rooms, what)} and {questions} questions written to {escaped(str(options.out))}\n"
    )
    return 0
