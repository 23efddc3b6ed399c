"""The verb `roomscout replay`."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.replay.lookup import replay_of
from roomscout.analysis.replay.page import page
from roomscout.analysis.replay.rerun_file import write_rerun
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.pages import replay_file
from roomscout.analysis.verbs import add_run, chosen_run, require_outside_runs, write_text, writing
from roomscout.base.extras import importing
from roomscout.base.text import counted, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.runs import RunError

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0. Raises RunError, ScanNotFound or SceneError if there is no replay."""
    parser = Parser(prog="roomscout replay")
    add_run(parser)
    parser.add_argument("question", metavar="Q", help="the question: its folder (q012, q012_s2), number (12) or id")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the page to write (RUN/replay_q012.html)")
    parser.add_argument("--scan-root", metavar="FOLDER", type=Path, help="the folder with the scans, if it has moved")
    parser.add_argument(
        "--rrd", action="store_true", help="write a file for the viewer rerun instead (RUN/replay_q012.rrd)"
    )
    given = parser.parse_intermixed_args(arguments)
    log_to_stream(sys.stdout)
    folder = chosen_run(given)
    if given.rrd:
        with importing("rerun", "--rrd", RunError):
            import rerun  # noqa: F401  # before anything is read
    run = RunContents.read(folder.absolute())
    suffix = ".rrd" if given.rrd else ".html"
    out = given.out and given.out.expanduser()
    if out is not None:
        if out.suffix != suffix:
            raise RunError(f"--out {out}: name a file that ends in {suffix}")
        require_outside_runs(out, prefix="replay_")
    replay = replay_of(run, given.question, given.scan_root and given.scan_root.expanduser())
    episode = replay.answer.episode
    turns = counted(len(replay.answer.turns), "turn")
    out = (out or replay_file(run.folder, str(episode)).with_suffix(suffix)).absolute()
    if given.rrd:
        with writing(out) as draft:
            write_rerun(replay, draft)
    else:
        write_text(out, page(replay))
    for sentence in replay.missing:
        log.warning("%s", sentence)
    log.info("Replay of %s (%s, %.1f MB): %s", episode, turns, out.stat().st_size / 1e6, out)
    return 0
