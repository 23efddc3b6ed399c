"""The rows of a run that a verb is asked about, and how lines are printed."""

import argparse
import sys
from collections.abc import Iterable, Sequence

from roomscout.analysis.run_argument import add_run
from roomscout.base.text import listed
from roomscout.runs import RunError
from roomscout.runs.records import ResultRow


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add RUN and --log-root (see `add_run`), and --type and --scene as `types` and `scenes`."""
    add_run(parser)
    parser.add_argument("--type", dest="types", nargs="+", default=(), metavar="TYPE", help="only these question types")
    parser.add_argument("--scene", dest="scenes", nargs="+", default=(), metavar="SCENE", help="only these scenes")


def chosen_rows(rows: Sequence[ResultRow], types: Sequence[str], scenes: Sequence[str]) -> list[ResultRow]:
    """The rows of the given types and scenes; none given means all.

    Raises RunError, which names the flag, if no row has a type or a scene.
    """
    _require_present("--type", types, [row.question_type for row in rows])
    _require_present("--scene", scenes, [row.scene_name for row in rows])
    return [
        row for row in rows if (not types or row.question_type in types) and (not scenes or row.scene_name in scenes)
    ]


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _require_present(flag: str, wanted: Sequence[str], present: Sequence[str]) -> None:
    if absent := [name for name in wanted if name not in present]:
        known = listed(sorted(set(present))) or "no finished question"
        raise RunError(f"{flag}: no finished question of the run has {listed(absent)}; it has {known}")
