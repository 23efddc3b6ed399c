"""Reports which scenes of questions have a scan, or a video."""

import logging
from collections.abc import Mapping, Sequence

from roomscout.base.text import counted, listed
from roomscout.data.questions import Question
from roomscout.data.scans import scan_table

log = logging.getLogger(__name__)

Scenes = Mapping[tuple[str, str], str]
"""Reasons by dataset and name of a scene."""


def report_scans(questions: Sequence[Question], missing: Scenes, what: str) -> None:
    """Log how many of the questions' scenes have a "scan" or a "video", and why the first has none."""
    number = len({question.scene for question in questions})
    if missing and what == "scan":
        log_scan_table(questions, missing)
        return
    present = number - len(missing) if missing else "all"
    log.info("%s about %s, %s with a %s", counted(len(questions), "question"), counted(number, "scene"), present, what)
    _warn_of(missing, what)


def log_scan_table(questions: Sequence[Question], missing: Scenes, unusable: Scenes | None = None) -> None:
    """Log the table of scans per dataset, and the scenes without one with the first reason."""
    for line in scan_table(questions, {**missing, **(unusable or {})}):
        log.info("%s", line)
    _warn_of(missing, "scan")


def _warn_of(missing: Scenes, what: str) -> None:
    if missing:
        log.warning("no %s, so their questions fail: %s", what, listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))
