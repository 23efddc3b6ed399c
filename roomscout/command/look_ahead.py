"""What --plan and --check-data print about a run that is not started."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roomscout import UpAxis
from roomscout.agent.scans import log_scan_table
from roomscout.data.benchmark import origin_lines
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import Question, QuestionError
from roomscout.data.scans import OWN_ROOTS, Layouts, missing_scans, scan_of
from roomscout.edge.conflicts import require_no_conflict
from roomscout.edge.parts import asked_by, layouts_of
from roomscout.edge.planning import memory_of
from roomscout.edge.resuming import part_of
from roomscout.edge.settings import Settings
from roomscout.rendering.scene import SceneError, load_scene

log = logging.getLogger(__name__)


def look_ahead(settings: Settings, folder: Path | None) -> int:
    """Print the size and memory of a run, or which of its scans can be used; returns 1 if some cannot, else 0.

    `folder` is that of a run to resume. Raises the errors of `plan`.
    """
    require_no_conflict(settings)
    if settings.plan:
        for line in memory_of(settings, folder):
            log.info("%s", line)
        if settings.ray or settings.on_gpus:
            log.info("With --ray or --gpus, all of this is for one worker; they share the questions")
        return 0
    benchmark, own = find_benchmark(settings.benchmark), settings.questions is not None
    try:
        asked = asked_by(vars(settings))
    except QuestionError:
        if not own:
            _log_origins(settings.benchmark, list(benchmark.scans_from), own)  # what can be prepared meanwhile
        raise
    here = part_of(asked.questions, settings.shard)
    if benchmark.make_scans is not None:
        benchmark.make_scans({question.scene for question in here})
    complete = _check_scans(
        here, settings.scan_root, layouts_of(settings.benchmark), (settings.up_axis, settings.scale)
    )
    _log_origins(settings.benchmark, list(dict.fromkeys(each.dataset for each in here)), own)
    return 0 if complete else 1


def _check_scans(here: Sequence[Question], root: Path, layouts: Layouts, frame: tuple[UpAxis, float]) -> bool:
    """Print the table of scans per dataset, and why scans are missing or cannot be used; returns whether all can be.

    Loads each scan, since its unit may not be the metre, but not those of the published datasets and of benchmarks
    with their own scans, whose units are known.
    """
    missing = missing_scans(here, root, layouts)
    known = {*layouts} if OWN_ROOTS not in layouts else {question.dataset for question in here}
    scenes = {each.scene: each for each in here if each.scan or each.dataset not in known}
    unusable = {}
    for scene, question in scenes.items():
        if scene not in missing:
            try:
                path = scan_of(question, root, layouts)
                load_scene(path, *question.frame.over(*frame))
            except SceneError as error:
                unusable[scene] = str(error)
    log_scan_table(here, missing, unusable)
    for why in unusable.values():
        log.warning("%s", why)
    if unusable:
        log.warning(
            "To give a scan a unit or an up axis of its own, add columns scale and up_axis to the question file"
        )
    return not missing and not unusable


def _log_origins(name: str, datasets: Sequence[str], own: bool) -> None:
    """Print where the questions, unless they are in a file of one's `own`, and the scans of datasets come from."""
    benchmark = find_benchmark(name)
    for line in origin_lines(replace(benchmark, questions_from=None) if own else benchmark, datasets):
        log.info("%s", line)
