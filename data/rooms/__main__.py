"""The command `python -m roomscout.data.rooms OUT`: write procedural rooms and questions about them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.data.rooms.scan import ScanStyle
from roomscout.data.rooms.writer import write_rooms
from roomscout.data.text import escaped, replace_unencodable


def main(arguments: Sequence[str] | None = None, prog: str = "python -m roomscout.data.rooms") -> int:
    """Run the command. Returns 0, or 2 with one sentence on stderr if the rooms cannot be written."""
    parser = argparse.ArgumentParser(prog=prog, description="Write procedural rooms and questions about them.")
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write; serves as --scan-root")
    parser.add_argument("--rooms", type=int, default=8, help="number of rooms (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="selects the series of rooms, 0 or more (%(default)s)")
    parser.add_argument(
        "--resolution", type=float, default=ScanStyle.resolution_m, help="grid step of the mesh, metres (%(default)s)"
    )
    parser.add_argument(
        "--noise", type=float, default=ScanStyle.noise_m, help="RMS displacement of the surface, metres (%(default)s)"
    )
    parser.add_argument("--holes", type=int, default=ScanStyle.holes, help="missing patches per room (%(default)s)")
    options = parser.parse_args(arguments)
    if options.out.is_file():
        parser.error(f"{escaped(str(options.out))} is a file: OUT takes a folder")
    try:
        style = ScanStyle(options.resolution, options.noise, options.holes)
        questions = write_rooms(options.out, options.rooms, options.seed, style)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {escaped(str(error))}\n")
        return 2
    noun = "room" if options.rooms == 1 else "rooms"
    replace_unencodable(sys.stdout)
    sys.stdout.write(f"{options.rooms} {noun} and {questions} questions written to {escaped(str(options.out))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
