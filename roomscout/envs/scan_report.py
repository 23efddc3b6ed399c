"""Reports which scenes of questions have a scan, or a video."""

import logging
from collections.abc import Mapping, Sequence

from roomscout.base.text import counted, listed
from roomscout.data.questions import Question
from roomscout.data.scans import scan_table

log = logging.getLogger(__name__)

Scenes = Mapping[tuple[str, str], str]  # reasons by dataset and name of a scene


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
