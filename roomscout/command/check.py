"""The verb `check`: prints how many questions have a scan that can be used."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from roomscout.base.errors import UsageError
from roomscout.command import words
from roomscout.command.demo import demo_settings
from roomscout.data.benchmark import origin_lines
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.parts import part_of
from roomscout.data.pictures import QuestionPictureError
from roomscout.data.questions import QuestionError
from roomscout.data.scans import OWN_ROOTS, layouts_of, missing_scans, report_scans, scan_of
from roomscout.edge.basis import selected
from roomscout.edge.resolve import resolve
from roomscout.rendering.scene import SceneError, load_scene

log = logging.getLogger(__name__)

TAKES = ("demo",)


def main(arguments: Sequence[str]) -> int:
    """Print which scans and pictures of a run can be used; returns 1 if some cannot, else 0."""
    given = words.read("check", arguments, TAKES)
    settings = demo_settings(given) if given.words["demo"] else resolve(given.settings, source=given.sources)
    if settings.on_video:
        raise UsageError("check looks at scans, and --present video shows frames of videos: leave it out")
    words.print_lines(settings, logging.INFO)
    benchmark = find_benchmark(settings.benchmark)
    origins = benchmark if settings.questions is None else replace(benchmark, questions_from=None)
    try:
        questions = part_of(selected(settings, benchmark).questions, settings.shard, benchmark)
    except QuestionError:
        if settings.questions is None:
            for line in origin_lines(origins, list(benchmark.scans_from)):  # what can be prepared meanwhile
                log.info("%s", line)
        raise
    benchmark.make(questions)
    root = settings.scan_root
    layouts = layouts_of(benchmark)
    missing = missing_scans(questions, root, layouts)
    # The units of published datasets and of benchmarks with their own scans are known.
    known = {*layouts} if OWN_ROOTS not in layouts else {question.dataset for question in questions}
    checked = {question.scene: question for question in questions if question.scan or question.dataset not in known}
    unusable = {}
    for scene, question in checked.items():
        if scene in missing:
            continue
        try:
            load_scene(scan_of(question, root, layouts), *question.frame.over(settings.up_axis, settings.scale))
        except SceneError as error:
            unusable[scene] = str(error)
    report_scans(questions, missing, unusable=unusable)
    for why in unusable.values():
        log.warning("%s", why)
    if unusable:
        log.warning("To give a scan its own unit or up axis, add columns scale and up_axis to the question file")
    lost = []
    for picture in dict.fromkeys(picture for question in questions for picture in question.images):
        try:
            picture.decoded()
        except QuestionPictureError as error:
            lost.append(str(error))
    if lost:
        log.warning("Pictures that cannot be shown: %d, so their questions fail; the first: %s", len(lost), lost[0])
    for line in origin_lines(origins, list(dict.fromkeys(question.dataset for question in questions))):
        log.info("%s", line)
    return 1 if missing or unusable or lost else 0
