"""The verb `roomscout replay`, which finds an answer of a run, its scan and the objects that its question names."""

import logging
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from roomscout.analysis.replay.page import Replay, page
from roomscout.analysis.replay.rerun_file import write_rerun
from roomscout.analysis.report.contents import AnswerContents, RunContents
from roomscout.analysis.report.pages import replay_file
from roomscout.analysis.verbs import add_run, chosen_run, require_writable, write_text, writing
from roomscout.base.extras import importing
from roomscout.base.text import counted, listed, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.data.boxes import BoxError, KnownBoxes, ObjectBox
from roomscout.data.scans import LAYOUTS, scan_of
from roomscout.envs.library import require_recorded
from roomscout.envs.object_boxes import require_same_frame
from roomscout.rendering.scene import SceneError, load_scene
from roomscout.runs import RunError
from roomscout.runs.records import EpisodeId

log = logging.getLogger(__name__)

IDS_NAMED = 3  # the most ids that an error suggests


def replay_of(run: RunContents, name: str, scan_root: Path | None = None) -> Replay:
    """The replay of an answer by its name, see `find_answer`; its scan is searched below `scan_root`, if that is given.
    `missing` has what could not be read of it. Raises RunError, ScanNotFound or SceneError if nothing can be shown."""
    answer = find_answer(run, name)
    if run.facts.frames is not None:
        raise RunError("the run showed frames of videos: it has no camera in a scan, and so no replay")
    recorded = answer.turns[0].scan
    setting = run.facts.setting
    if recorded is None:
        raise RunError(f"{run.folder} does not record which scan {answer.episode} explored, so it has no replay")
    path = Path(recorded.file)
    if scan_root is not None:
        path = scan_of(answer.question, scan_root, {**LAYOUTS, **run.benchmark.scan_layouts})
    try:
        require_recorded(path, recorded)
    except SceneError as error:
        raise SceneError(f"{error}, or name the folder that has the run's scans with --scan-root") from None
    scene = load_scene(path, *recorded.frame.over(setting("up_axis"), setting("scale")))
    scene_name = answer.question.scene_name
    objects: list[ObjectBox] = []
    missing = []
    try:
        boxes = KnownBoxes().of(path, scene_name)
        require_same_frame(scene, boxes, path, scene_name)
        objects = answer.named(boxes)
    except BoxError as error:
        missing.append(f"No boxes of objects are drawn: {error}.")
    return Replay(run, answer, scene, tuple(objects), missing)


def find_answer(run: RunContents, name: str) -> AnswerContents:
    """The answer with this folder (q012, q012_s2), number (12) or id of its question. Raises RunError if there is none,
    if a number is also the id of another question, or if it has no turn to show."""
    answer = run.answer(EpisodeId.parse(name) or _episode_of(run, name))
    if answer.turns:
        return answer
    if answer.row is not None and answer.row.failed:
        raise RunError(f"{answer.episode} failed before its first turn: {answer.row.error}")
    begun = listed([str(episode) for episode in sorted(run.begun)][:IDS_NAMED])
    raise RunError(f"{answer.episode} has no turns to show" + (f"; these have: {begun}" if begun else ""))


def _episode_of(run: RunContents, name: str) -> EpisodeId:
    """The first answer to the question with a number or an id."""
    ids = {number: question.id for number, question in run.questions.items()}
    by_number = EpisodeId(int(name)) if name.isascii() and name.isdigit() else None
    by_id = next((EpisodeId(number) for number, id in ids.items() if id == name), None)
    if by_number and by_id and by_number != by_id and by_number.number in ids:
        raise RunError(
            f"{name} is both a number and an id: give {by_number} for the question with this number, or {by_id} for "
            "the one with this id"
        )
    if episode := by_id or by_number:
        return episode
    near = get_close_matches(name, ids.values(), n=IDS_NAMED) or list(ids.values())[:IDS_NAMED]
    raise RunError(
        f"{run.folder} has no question {name}: give a folder such as q001, or the id of a question, such as "
        f"{listed(near)}"
    )


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
        require_writable([out], [suffix], prefix="replay_")
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
