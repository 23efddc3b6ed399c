"""Finds scan files in the folder layouts that the datasets' download tools write, and reports which scenes have one."""

import hashlib
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roomscout import UpAxis
from roomscout.base.errors import Refusal
from roomscout.base.files import is_file, require_regular
from roomscout.base.grouping import grouped
from roomscout.base.record import OmittedIfEmpty
from roomscout.base.tables import Table
from roomscout.base.text import counted, listed, on_disk
from roomscout.data.benchmark import Benchmark
from roomscout.data.questions import Question
from roomscout.data.scan_frames import ScanFrame

log = logging.getLogger(__name__)

Scenes = Mapping[tuple[str, str], str]  # reasons by dataset and name of a scene
Layouts = Mapping[str, tuple[str, ...]]  # paths below the root of a dataset, the first that exists counts; with {scene}

# ARKitScenes' download_data.py writes raw/ and 3dod/, each with both splits. ScanNet's download-scannet.py writes
# scans/ and scans_test/; its mesh "_vh_clean_2" is the decimated version of "_vh_clean". ScanNet++ writes data/.
# 3RScan has textured meshes. MultiScan's PLY has the colours of its textured mesh at the vertices.
LAYOUTS: Layouts = {
    "arkitscenes": tuple(
        f"{part}{split}{{scene}}/{{scene}}_3dod_mesh.ply"
        for part in ("", "raw/", "3dod/")
        for split in ("Validation/", "Training/", "")
    ),
    "scannet": tuple(
        f"{part}{{scene}}/{{scene}}_{mesh}.ply"
        for mesh in ("vh_clean_2", "vh_clean")
        for part in ("", "scans/", "scans_test/")
    ),
    "scannetpp": ("{scene}/scans/mesh_aligned_0.05.ply", "data/{scene}/scans/mesh_aligned_0.05.ply"),
    "3rscan": ("{scene}/mesh.refined.v2.obj", "3RScan/{scene}/mesh.refined.v2.obj"),
    "multiscan": tuple(
        f"{part}{{scene}}/{mesh}"
        for mesh in ("{scene}.ply", "textured_mesh/{scene}.obj")
        for part in ("", "MultiScan/")
    ),
}
SCAN_SUFFIXES = (".ply", ".pcd", ".glb", ".gltf", ".obj")
FLAT_LAYOUT = tuple(f"{folder}{{scene}}{ending}" for folder in ("", "{scene}/") for ending in SCAN_SUFFIXES)
OWN_ROOTS = "*"  # the key of `Layouts` with scan roots that are searched first: those of a benchmark with its own scans
_MAX_NAME_BYTES = 200  # most file systems allow 255, extension included


class ScanNotFound(Refusal):
    """A scene has no scan file. The message lists the paths that were tried."""


@dataclass(frozen=True)
class ScanRecord:
    """The file of a question's scan, the SHA-256 of its bytes, and its unit and up axis if they are not the run's."""

    file: str
    sha256: str
    scale: OmittedIfEmpty[float | None] = None
    up_axis: OmittedIfEmpty[UpAxis | None] = None

    @property
    def frame(self) -> ScanFrame:
        """The unit and the up axis, as far as the question gave them."""
        return ScanFrame(self.scale, self.up_axis)


def layouts_of(benchmark: Benchmark) -> Layouts:
    """The paths at which a benchmark's scans are searched for; raises QuestionError if it cannot make its own."""
    own_roots = {OWN_ROOTS: (str(benchmark.folder()),)} if benchmark.folder else {}
    return {**LAYOUTS, **benchmark.scan_layouts, **own_roots}


def layout_name(dataset: str) -> str:
    """A published name of a dataset as in LAYOUTS: "3RScan" is 3rscan, "ScanNet++" scannetpp."""
    return dataset.strip().lower().replace("++", "pp")


def find_scan(scan_root: Path, dataset: str, scene_name: str, layouts: Layouts = LAYOUTS) -> Path:
    """The path of a scene's scan file; raises ScanNotFound if there is none, or for an unsafe name or root.

    `scan_root` contains the folders arkitscenes/, scannet/ and scannetpp/, or is the root of one of these datasets,
    or is a flat folder of <scene>.ply (.pcd, .glb, .gltf, .obj; also one folder per scene). Searches
    <scan_root>/<dataset>, then <scan_root>; in each, first `layouts[dataset]`, then FLAT_LAYOUT. The roots in
    `layouts[OWN_ROOTS]`, if any, are searched before it; the scan root may then be missing.

    Names of datasets and scenes come from question files, so each must be a plain file name, which keeps every path
    inside the root. Follows symbolic links on purpose: scans are often on another disk."""
    _require_root(scan_root, layouts)
    require_plain(dataset, scene_name)
    patterns = layouts.get(dataset, ()) + FLAT_LAYOUT
    roots = [path for root in (*map(Path, layouts.get(OWN_ROOTS, ())), scan_root) for path in (root / dataset, root)]
    tried = [pattern.replace("{scene}", scene_name) for pattern in patterns]
    try:
        for root in roots:
            for below in tried:
                path = on_disk(root / below)
                if path.is_file():
                    return path
    except OSError as error:
        raise ScanNotFound(f"cannot search for the scan of {dataset} {scene_name}: {error}") from error
    raise ScanNotFound(
        f"no scan of {dataset} {scene_name} in {' or '.join(map(str, roots))}: tried {', '.join(tried)} in each"
    )


def scan_of(question: Question, scan_root: Path, layouts: Layouts = LAYOUTS) -> Path:
    """The path of a question's scan file: the one that it names, else `find_scan`; raises ScanNotFound."""
    if not question.scan:
        return find_scan(scan_root, *question.scene, layouts)
    path = on_disk(scan_root / question.scan)
    if not is_file(path):
        raise ScanNotFound(f"there is no scan file {path}, which the column scan of question {question.id} names")
    return path


def scan_sha256(path: Path) -> str:
    """SHA-256 (64 hex digits) of a scan file alone; raises OSError, also for a pipe or a device, which may not end."""
    require_regular(path)
    with path.open("rb") as scan:
        return hashlib.file_digest(scan, "sha256").hexdigest()


def missing_scans(questions: Sequence[Question], root: Path, layouts: Layouts = LAYOUTS) -> dict[tuple[str, str], str]:
    """Why each scene without a scan has none, in order of first appearance; ScanNotFound if the root is no folder."""
    if any(not question.scan for question in questions):
        _require_root(root, layouts)
    return without(questions, lambda question: scan_of(question, root, layouts))


def without(questions: Iterable[Question], find: Callable[[Question], Path]) -> dict[tuple[str, str], str]:
    """Why `find` raises ScanNotFound for a question, by scene, in order of first appearance."""
    reasons: dict[tuple[str, str], str] = {}
    for question in {question.scene: question for question in questions}.values():
        try:
            find(question)
        except ScanNotFound as error:
            reasons[question.scene] = str(error)
    return reasons


def scans_there(questions: Sequence[Question], root: Path, layouts: Layouts) -> Iterator[tuple[Question, Path]]:
    """A question of each scene that has a scan, and its scan file."""
    for question in {question.scene: question for question in questions}.values():
        with suppress(ScanNotFound):
            yield question, scan_of(question, root, layouts)


def scan_table(questions: Sequence[Question], missing: Container[tuple[str, str]]) -> list[str]:
    """Scenes and questions that have a scan, as lines: by dataset in order of first appearance, then all."""
    by_dataset = grouped((question.dataset, question.scene) for question in questions)
    rows = []
    for name, scenes in [*by_dataset.items(), ("all", [question.scene for question in questions])]:
        there = [scene for scene in scenes if scene not in missing]
        rows.append([name, f"{len(set(there))} of {len(set(scenes))}", f"{len(there)} of {len(scenes)}"])
    return Table(["dataset", "scenes with scan", "questions with scan"], rows).lines()


def scene_order(questions: Iterable[Question]) -> list[Question]:
    """The questions grouped by scan, scans in order of first appearance; keeps the order within a scan."""
    by_scene = grouped((question.scene, question) for question in questions)
    return [question for of_scene in by_scene.values() for question in of_scene]


def _require_root(scan_root: Path, layouts: Layouts) -> None:
    if not scan_root.is_dir() and not layouts.get(OWN_ROOTS):
        raise ScanNotFound(f"{scan_root} is not a folder; name the folder with the scans", setting="scan_root")


def require_plain(dataset: str, scene_name: str, error: type[ScanNotFound] = ScanNotFound) -> None:
    """Raise an error if the name of a dataset or a scene is a path."""
    for what, name in (("dataset", dataset), ("scene", scene_name)):
        plain = name.isprintable() and name not in ("", ".", "..") and not set(name) & {"/", "\\", ":"}
        if not plain or len(name.encode()) > _MAX_NAME_BYTES:
            raise error(f"{what} name {name[:80]!r} is not a plain file name, so it cannot name a scan")


def report_scans(
    questions: Sequence[Question], missing: Scenes, what: str = "scan", unusable: Scenes | None = None
) -> None:
    """Log how many of the questions' scenes have a "scan" or a "video", and why the first has none; as a table per
    dataset if scans are missing, or were tried, of which some are `unusable`."""
    number = len({question.scene for question in questions})
    if what == "scan" and (missing or unusable is not None):
        for line in scan_table(questions, {**missing, **(unusable or {})}):
            log.info("%s", line)
    else:
        present = number - len(missing) if missing else "all"
        asked = counted(len(questions), "question")
        log.info("%s about %s, %s with a %s", asked, counted(number, "scene"), present, what)
    if missing:
        log.warning("no %s, so their questions fail: %s", what, listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))
