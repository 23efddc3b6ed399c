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
from roomscout.envs.object_boxes import known_boxes

log = logging.getLogger(__name__)


def report_scans(questions: QuestionSpec, world: WorldSpec, required: bool, boxes: bool = False) -> None:
    """Log how many scenes have a scan, or a video; if it is `required`, raises ScanNotFound if none has.

    With `boxes`, also raises ConfigError if it is required and no scan has known boxes of its objects.
    """
    asked, films = questions.here, world.films
    if films is not None or world.ply is None:
        missing = films.missing(asked) if films else missing_scans(asked, world.scan_root, world.layouts)
        number = len({question.scene for question in asked})
        if required and len(missing) == number:
            first, scenes = next(iter(missing.values())), counted(number, "scene")
            if films is not None:
                raise VideoNotFound(first)
            why = f"{world.scan_root} has no scan of {scenes} asked about: --scan-root takes the folder with the scans"
            raise ScanNotFound(f"{why}. {first}")
        if missing and films is None:
            log_scan_table(asked, missing)
        else:
            found, what = number - len(missing) if missing else "all", "video" if films else "scan"
            about = counted(len(asked), "question"), counted(number, "scene")
            log.info("%s about %s, %s with a %s", *about, found, what)
            _warn_of(missing, what)
    if boxes and required:
        _require_boxes(asked, world)


def log_scan_table(
    questions: Sequence[Question], missing: Mapping[tuple[str, str], str], unusable: Mapping[tuple[str, str], str] = {}
) -> None:
    """Log the table of scans per dataset, and the scenes without one with the first reason."""
    for line in scan_table(questions, {**missing, **unusable}):
        log.info("%s", line)
    _warn_of(missing, "scan")


def _warn_of(missing: Mapping[tuple[str, str], str], what: str) -> None:
    if missing:
        log.warning("no %s, so their questions fail: %s", what, listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))


def _require_boxes(questions: Sequence[Question], world: WorldSpec) -> None:
    """Raise ConfigError, which names the first scan, if no scan of these questions has known boxes of its objects."""
    known, errors = KnownBoxes(), list[BoxError]()
    for question in {question.scene: question for question in questions}.values():
        try:
            known_boxes(known, world.ply or scan_of(question, world.scan_root, world.layouts), question.scene_name)
            return
        except BoxError as error:
            errors.append(error)
        except ScanNotFound:
            continue
    if errors:
        raise ConfigError(str(errors[0]))
