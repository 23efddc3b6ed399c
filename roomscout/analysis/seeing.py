"""Works out what was in view in each answer of a run: the objects that its question needs, and the scan's surface."""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from roomscout.base.grouping import grouped
from roomscout.data.boxes import BoxError, KnownBoxes, Needed, ObjectBox, boxes_file, needed_for
from roomscout.envs.library import recorded_scene
from roomscout.envs.object_boxes import geometry_of, require_same_frame
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.open3d_import import Open3DError
from roomscout.rendering.scene import SceneError
from roomscout.rendering.views import SurfaceCoverage
from roomscout.rendering.visibility import enough_pixels, object_pixels
from roomscout.runs import RunError
from roomscout.runs.reader import SIGHTS_FILE, RunReader
from roomscout.runs.records import EpisodeId, ResultRow, RunFacts, ScanRecord, Turn
from roomscout.runs.sights import SeenObjects, Sight
from roomscout.runs.writer import RunWriter

log = logging.getLogger(__name__)

VERSION = 3  # part of the hash in each record; a new one makes all of them again


@dataclass(frozen=True)
class Seen:
    """What was in view in the answers of a run, and a sentence for each scan that could not be used."""

    sights: dict[EpisodeId, Sight]
    missing: tuple[str, ...]
    computed: int  # how many of `sights` are new; the others were in seen.jsonl


def see(reader: RunReader) -> Seen:
    """Work out what was in view in each finished answer, but for what seen.jsonl has of the same turns, scan and boxes.
    Raises RunError for grey views, without cameras or turns, and without Open3D."""
    facts = reader.facts
    folder = reader.folder
    if facts.frames is not None:
        raise RunError(f"{folder} showed frames of videos: where their camera was in the scan is not known")
    if facts.is_blind:
        raise RunError(f"{folder} is blind: its views were grey, so nothing was in view; name the run with real views")
    camera = facts.intrinsics
    kept = reader.sights
    known = KnownBoxes()
    missing = list[str]()
    sights: dict[EpisodeId, Sight] = {}
    computed = 0
    for scan, answers in _by_scan(reader):
        scene_name = answers[0][0].scene_name
        try:
            boxes = known.of(Path(scan.file), scene_name)
        except BoxError as error:
            missing.append(f"{error}.")
            boxes = ()
        wanted = {row.episode: _made_of(row, turns, scan, boxes, camera) for row, turns in answers}
        fresh = {episode: sight for episode, sight in kept.items() if sight.made_of == wanted.get(episode)}
        if len(fresh) < len(wanted):
            try:
                views = _ScanViews(scan, scene_name, boxes, facts, camera)
                for row, turns in answers:
                    if row.episode not in fresh:
                        fresh[row.episode] = _sight_of(row, turns, views, wanted[row.episode])
                        computed += 1
            except Open3DError as error:
                raise RunError(str(error)) from None
            except (SceneError, BoxError) as error:
                missing.append(f"{error}.")
                continue
        sights |= fresh
    if not sights and not missing:
        raise RunError(f"{reader.folder} has no finished answer with turns: there is nothing that it saw")
    return Seen(dict(sorted(sights.items())), tuple(dict.fromkeys(missing)), computed)


def knows_boxes(reader: RunReader) -> bool:
    """Whether a file of boxes lies beside the scan of any finished answer; reads no scan."""
    scans = (reader.scan(row.episode) for row in reader.rows)
    files = {Path(scan.file).parent: Path(scan.file) for scan in scans if scan is not None}
    return any(boxes_file(file) is not None for file in files.values())


def save(folder: Path, seen: Seen) -> None:
    """Write seen.jsonl, and its figures into summary.json and results.csv; raises RunError, RunInUse for a busy run."""
    with closing(RunWriter(folder)) as run:
        run.save(SIGHTS_FILE, seen.sights.values())
        run.export(None)


def _made_of(
    row: ResultRow, turns: Sequence[Turn], scan: ScanRecord, boxes: Sequence[ObjectBox], camera: Intrinsics
) -> str:
    """A hash of everything that the sight of an answer depends on."""
    poses = [asdict(turn.pose) for turn in turns]
    content = [VERSION, scan.sha256, list(map(asdict, boxes)), asdict(camera), poses, row.question, row.options]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _by_scan(reader: RunReader) -> Iterator[tuple[ScanRecord, list[tuple[ResultRow, list[Turn]]]]]:
    """The rows and turns of the finished answers with turns, grouped by scan and read one group at a time."""
    with_scan = [(scan, row) for row in reader.rows if (scan := reader.scan(row.episode)) is not None]
    for group in grouped(((scan.file, scan.sha256), (scan, row)) for scan, row in with_scan).values():
        scan, _ = group[0]
        yield scan, [(row, reader.turns(row.episode)) for _, row in group]


class _ScanViews:
    """What views of a scan show, each pose once: at how many pixels each box's object, and which surface points."""

    def __init__(
        self, scan: ScanRecord, scene_name: str, boxes: tuple[ObjectBox, ...], facts: RunFacts, camera: Intrinsics
    ) -> None:
        """Load the scan; raises SceneError, and BoxError if the boxes are in other coordinates."""
        self.boxes = boxes
        self.camera = camera
        self._scene = recorded_scene(scan, facts.setting("up_axis"), facts.setting("scale"))
        require_same_frame(self._scene, boxes, Path(scan.file), scene_name)
        self._geometry = geometry_of(boxes)
        self._coverage = SurfaceCoverage(self._scene)
        self._seen: dict[CameraPose, tuple[np.ndarray, np.ndarray]] = {}

    def at(self, pose: CameraPose) -> tuple[np.ndarray, np.ndarray]:
        """(K,) the pixels of each box's object, and (P,) which points of the surface are seen."""
        if pose not in self._seen:
            pixels = object_pixels(self._scene, pose, self.camera, self._geometry)
            self._seen[pose] = pixels, self._coverage.seen_from(pose, self.camera)
        return self._seen[pose]


def _sight_of(row: ResultRow, turns: Sequence[Turn], views: _ScanViews, made_of: str) -> Sight:
    seen = [views.at(turn.pose) for turn in turns]
    surface = np.logical_or.accumulate([points for _, points in seen]).mean(axis=1)
    pixels = np.stack([pixels for pixels, _ in seen])
    place_of = {id(box): place for place, box in enumerate(views.boxes)}

    def objects(needed: Needed) -> SeenObjects:
        of_each = (pixels[:, place_of[id(box)]] for box in needed.boxes)
        return SeenObjects(needed.category, needed.enough, tuple(tuple(map(int, counts)) for counts in of_each))

    camera = views.camera
    return Sight(
        row.number,
        row.sample,
        surface=tuple(round(float(share), 4) for share in surface),
        boxes=bool(views.boxes),
        objects=tuple(map(objects, needed_for(row.question, row.options, views.boxes))),
        enough=enough_pixels(camera.width, camera.height),
        made_of=made_of,
    )
