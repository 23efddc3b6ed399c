"""The verb replay: writes one question of a run as a page with its scan in 3D, or as a file for rerun."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.episodes import Episode, find_episode, open_run, require_outside
from roomscout.analysis.replay.page import Replay, page
from roomscout.analysis.replay.rerun_file import write_rerun
from roomscout.data.scans import LAYOUTS, ScanNotFound, scan_of, scan_sha256
from roomscout.data.text import escaped, log_to_stream
from roomscout.rendering.camera import Intrinsics
from roomscout.rendering.scene import Scene, SceneError, load_scene
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader


def main(arguments: Sequence[str], prog: str = "roomscout replay") -> int:
    """Run the command; returns 0, or 2 after printing why nothing was written."""
    options = _parser(prog).parse_args(arguments)
    log_to_stream(sys.stdout)
    try:
        reader = open_run(options.run)
        episode = find_episode(reader, options.question)
        out = options.out or Path(f"{reader.folder.name}_{episode.id}{'.rrd' if options.rrd else '.html'}")
        require_outside(reader.folder, out)
        replay = Replay(episode, scene_of(reader, episode, options.scan), intrinsics_of(reader), reader.folder.name)
        if options.rrd:
            write_rerun(replay, out)
        else:
            out.write_text(page(replay), encoding="utf-8")
    except (RunError, ScanNotFound, SceneError) as error:
        sys.stderr.write(escaped(f"error: {error}") + "\n")
        return 2
    except OSError as error:
        sys.stderr.write(
            escaped(f"error: {out} cannot be written ({error.strerror or error}): choose another --out") + "\n"
        )
        return 2
    for turn in episode.turns:
        if turn.seen.load() is None:
            logging.warning("%s is missing or damaged: the replay shows turn %d without it", turn.seen.path, turn.turn)
    logging.info("%s, %d turns, %.1f MB: %s", episode.id, len(episode.turns), out.stat().st_size / 1e6, out.absolute())
    return 0


def scene_of(reader: RunReader, episode: Episode, copy: Path | None = None) -> Scene:
    """The scan that an episode explored, from the file that the run recorded or from a copy of it.

    A run of an earlier version recorded no file: then looks where the run did. Raises RunError if the file is missing
    or has changed, ScanNotFound, SceneError.
    """
    config, recorded = reader.facts.config, episode.turns[0].scan
    if copy is not None:
        path = copy
    elif recorded is not None:
        path = Path(recorded.file)
    elif config["ply"] is not None:
        path = Path(config["ply"])
    else:
        layouts = {**LAYOUTS, **reader.benchmark.scan_layouts}
        path = scan_of(episode.question, Path(config["scan_root"]), layouts)
    if not path.is_file():
        raise RunError(f"the scan of {episode.id}, {path}, is missing: restore it, or name a copy with --scan FILE")
    if recorded is not None and scan_sha256(path) != recorded.sha256:
        raise RunError(f"{path} is not the scan that {episode.id} explored: name an unchanged copy with --scan FILE")
    return load_scene(path, reader.facts.setting("up_axis"), reader.facts.setting("scale"))


def intrinsics_of(reader: RunReader) -> Intrinsics:
    """The camera of a run's views."""
    config = reader.facts.config
    return Intrinsics(*config["image_size"], config["focal"])


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Write one question of a run as an HTML page that opens from disk without a server: the scan in 3D "
        "with the camera's path and what each view saw, and the conversation turn by turn. The run is not changed.",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run folder; the run may be in progress")
    parser.add_argument("question", metavar="Q", help="the question's number (12), folder (q012, q012_s2) or id")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write; by default RUN_Q.html, here")
    parser.add_argument("--scan", type=Path, metavar="FILE", help="a copy of the scan, if the run's own has moved")
    parser.add_argument("--rrd", action="store_true", help="write a file for the viewer rerun instead of a page")
    return parser
