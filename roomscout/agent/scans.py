"""Which scans, videos and boxes a run's questions have."""

import logging
from collections.abc import Mapping, Sequence

from roomscout.agent.spec import QuestionSpec, WorldSpec
from roomscout.base.errors import ConfigError
from roomscout.base.text import counted, listed
from roomscout.data.boxes import BoxError, KnownBoxes
from roomscout.data.questions import Question
from roomscout.data.scans import ScanNotFound, missing_scans, scan_of, scan_table
from roomscout.data.video_frames import VideoNotFound
from roomscout.envs.films import FilmSettings
from roomscout.envs.object_boxes import known_boxes

log = logging.getLogger(__name__)


def report_scans(questions: QuestionSpec, world: WorldSpec, required: bool, boxes: bool = False) -> None:
    """Log how many scenes have a scan, or a video; if it is `required`, raises ScanNotFound if none has.

    With `boxes`, also raises ConfigError if it is required and no scan has known boxes of its objects.
    """
    if world.films is not None:
        _report_films(questions.here, world.films, required)
    elif world.ply is None:
        missing = missing_scans(questions.here, world.scan_root, world.layouts)
        scenes = {question.scene for question in questions.here}
        if required and len(missing) == len(scenes):
            raise ScanNotFound(
                f"{world.scan_root} has no scan of {counted(len(missing), 'scene')} asked about: --scan-root takes the "
                f"folder with the scans. {next(iter(missing.values()))}"
            )
        if missing:
            log_scan_table(questions.here, missing)
        else:
            number = counted(len(questions.here), "question")
            log.info("%s about %s, all with a scan", number, counted(len(scenes), "scene"))
    if boxes and required:
        _require_boxes(questions.here, world)


def log_scan_table(
    questions: Sequence[Question], missing: Mapping[tuple[str, str], str], unusable: Mapping[tuple[str, str], str] = {}
) -> None:
    """Log the table of scans per dataset, and the scenes without one with the first reason."""
    for line in scan_table(questions, {**missing, **unusable}):
        log.info("%s", line)
    if missing:
        log.warning("no scan, so their questions fail: %s", listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))


def _report_films(questions: Sequence[Question], films: FilmSettings, required: bool) -> None:
    """Log how many scenes have frames of a video, and which have none; `required` raises VideoNotFound for none."""
    scenes, missing = {question.scene for question in questions}, films.missing(questions)
    if required and len(missing) == len(scenes):
        raise VideoNotFound(next(iter(missing.values())))
    number, found = counted(len(questions), "question"), len(scenes) - len(missing)
    log.info("%s about %s, %d with a video", number, counted(len(scenes), "scene"), found)
    if missing:
        log.warning("no video, so their questions fail: %s", listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))


def _require_boxes(questions: Sequence[Question], world: WorldSpec) -> None:
    """Raise ConfigError, which names the first scan, if no scan of these questions has known boxes of its objects.

    Questions about one without them fail, as do those without a scan.
    """
    known = KnownBoxes()
    first: BoxError | None = None
    for question in {question.scene: question for question in questions}.values():
        try:
            scan = world.ply or scan_of(question, world.scan_root, world.layouts)
            known_boxes(known, scan, question.scene_name)
            return
        except BoxError as error:
            first = first or error
        except ScanNotFound:
            continue
    if first is not None:
        raise ConfigError(str(first))
