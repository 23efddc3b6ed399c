"""Finds what a replay shows: an answer of a run, its scan, its camera and the objects that its question names."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from roomscout.analysis.replay.page import Replay
from roomscout.analysis.report.contents import QuestionContents, RunContents
from roomscout.analysis.scans import require_recorded
from roomscout.base.text import escaped, listed
from roomscout.data.boxes import BoxError, KnownBoxes, ObjectBox, boxes_file
from roomscout.data.scan_frames import ScanFrame
from roomscout.data.scans import LAYOUTS, find_scan, scan_of
from roomscout.envs.object_boxes import require_same_frame
from roomscout.rendering.camera import Intrinsics
from roomscout.rendering.scene import Scene, SceneError, load_scene
from roomscout.runs import RunError
from roomscout.runs.records import EpisodeId, RunFacts

IDS_NAMED = 3
"""The most ids that an error suggests."""


def replay_of(run: RunContents, name: str, scan_root: Path | None = None) -> Replay:
    """The replay of an answer by its name, see `find_answer`; its scan is searched below `scan_root`, if that is given.

    `missing` has what could not be read of it. Raises RunError, ScanNotFound or SceneError if there is nothing to show.
    """
    known = len(run.missing)
    question, intrinsics = find_answer(run, name), intrinsics_of(run.facts)
    path = scan_file_of(run, question, scan_root)
    frame, setting = _frame_of(run, question), run.facts.setting
    scene = load_scene(path, *frame.over(setting("up_axis"), setting("scale")))
    missing = run.missing[known:]
    return Replay(run, question, scene, intrinsics, _objects_of(question, path, scene, missing), missing)


def _frame_of(run: RunContents, question: QuestionContents) -> ScanFrame:
    """The unit and the up axis of an answer's scan, as far as they are not those of the run."""
    if (recorded := question.turns[0].scan) is not None:
        return recorded.frame
    asked = run.questions.get(question.episode.number)
    return ScanFrame() if asked is None else asked.frame


def _objects_of(question: QuestionContents, scan: Path, scene: Scene, missing: list[str]) -> tuple[ObjectBox, ...]:
    """The known boxes of the objects that a question names; none, and why in `missing`, if the boxes do not fit."""
    try:
        boxes = KnownBoxes().of(scan, question.scene)
        require_same_frame(scene, boxes, f"{boxes_file(scan)}, scene {question.scene}")
    except BoxError as error:
        missing.append(escaped(f"No boxes of objects are drawn: {error}."))
        return ()
    return tuple(question.named(boxes))


def find_answer(run: RunContents, name: str) -> QuestionContents:
    """The answer with this folder (q012, q012_s2), number (12) or id of its question.

    Raises RunError if there is none, if a number is also the id of another question, or if it has no turn to show.
    """
    episode = EpisodeId.parse(name) or _episode_of(run, name)
    known = len(run.missing)
    question = run.question(episode)
    if question.turns:
        return question
    if damaged := run.missing[known:]:
        raise RunError(f"{episode} has no turns to show: {damaged[0].removesuffix('.')}")
    if question.row is not None and question.row.failed:
        raise RunError(f"{episode} failed before its first turn: {question.row.error}")
    begun = listed([str(each) for each in sorted(run.begun)][:IDS_NAMED])
    if question.row is None and episode not in run.episodes:
        raise RunError(
            f"{run.folder} has no {episode}: its questions are q001 to {EpisodeId(run.facts.questions)}"
            + (f", with q001_s2 to q001_s{run.facts.samples} for further answers" if run.facts.samples > 1 else "")
        )
    raise RunError(f"{episode} has no turns to show" + (f"; these have: {begun}" if begun else ""))


def _episode_of(run: RunContents, name: str) -> EpisodeId:
    """The first answer to the question with a number or an id."""
    ids = _ids(run)
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
        f"{run.folder} has no question {name}: give a folder such as q001, or the id of a question"
        + (f", such as {listed(near)}" if near else "")
    )


def _ids(run: RunContents) -> Mapping[int, str]:
    """The ids of the run's questions by number, as far as they could be read."""
    return {episode.number: row.id for episode, row in run.rows.items()} | {
        number: question.id for number, question in run.questions.items()
    }


def scan_file_of(run: RunContents, question: QuestionContents, scan_root: Path | None) -> Path:
    """The scan that an answer explored: the file that the run recorded, or the one below `scan_root`.

    A run of an earlier version recorded no file; then this looks where the run did. Raises SceneError if the file is
    missing or is not the one that the run used, and ScanNotFound.
    """
    recorded = question.turns[0].scan
    if recorded is None:
        return _scan_below(run, question, scan_root)
    path = Path(recorded.file) if scan_root is None else _scan_below(run, question, scan_root)
    try:
        require_recorded(path, recorded)
    except SceneError as error:
        raise SceneError(f"{error}, or name the folder that has the run's scans with --scan-root") from None
    return path


def _scan_below(run: RunContents, question: QuestionContents, scan_root: Path | None) -> Path:
    """The question's scan file below a folder, by default below the one that the run had."""
    config = run.facts.config
    if scan_root is None and config["ply"] is not None:
        return Path(config["ply"])
    root = scan_root or Path(config["scan_root"])
    layouts = {**LAYOUTS, **(run.benchmark.scan_layouts if run.benchmark else {})}
    asked = run.questions.get(question.episode.number)
    if asked is None:
        return find_scan(root, question.dataset, question.scene, layouts)
    return scan_of(asked, root, layouts)


def intrinsics_of(facts: RunFacts) -> Intrinsics:
    """The camera of a run's views; raises RunError if run.json does not have it."""
    if facts.frames is not None:
        raise RunError("the run showed frames of videos: it has no camera in a scan, and so no replay")
    if (camera := facts.intrinsics) is None:
        raise RunError("run.json does not record the size and the focal length of the views, so nothing can be placed")
    return camera
