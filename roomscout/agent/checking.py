"""What a run needs, said without beginning it (`--plan`, `--check-data`), and the scans that it lacks."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roomscout.agent.builders import layouts_of
from roomscout.agent.config import ClusterSettings, RenderSettings, RunConfig
from roomscout.agent.evaluation import Outcome
from roomscout.agent.planning import plan_lines
from roomscout.agent.prepared import prepared, report_scans
from roomscout.base.text import counted, listed
from roomscout.base.wording import named
from roomscout.data.benchmark import Benchmark, origin_lines
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import Question, QuestionError
from roomscout.data.scans import OWN_ROOTS, ScanNotFound, format_scan_table, missing_scans, scan_of, scan_table
from roomscout.rendering.scene import SceneError, load_scene
from roomscout.runs.setting_types import ALL_GPUS

log = logging.getLogger(__name__)


def look_ahead(config: RunConfig, folder: Path | None = None) -> Outcome:
    """Print the plan of a run, or which of its scans can be used; the status is 1 if some cannot.

    `folder` is the run to resume. Raises the errors of `prepared`, and ModelError.
    """
    own = config.questions.questions is not None
    try:
        run = prepared(config, folder=folder)
    except QuestionError:
        if config.what_to_run.check_data and not own:
            log_origins(find_benchmark(config.questions.benchmark))  # what can be prepared meanwhile
        raise
    if config.what_to_run.plan:
        if run.benchmark.make_scans is not None:
            log.info("Scans: made when the run begins, if they are not there")
        elif run.config.what_to_run.ply is None:
            try:
                if run.config.controls.on_video:
                    run.report_scans()
                else:
                    report_scans(run.questions, run.config.views.scan_root, run.config.questions.benchmark)
            except ScanNotFound as error:
                log.info("%s: none yet (%s)", "Videos" if run.config.controls.on_video else "Scans", error)
        for line in [*plan_lines(run.config, run.questions, run.price), *workers_line(run.config.cluster)]:
            log.info("%s", line)
        return Outcome(0, [])
    if run.makes_scans:
        run.make_scans()
    complete = check_scans(run.questions, run.config.questions.benchmark, run.config.views)
    source = replace(run.benchmark, questions_from=None) if own else run.benchmark
    log_origins(source, list(dict.fromkeys(each.dataset for each in run.questions)))
    return Outcome(0 if complete else 1, [])


def check_scans(questions: Sequence[Question], benchmark: str, views: RenderSettings) -> bool:
    """Print the table of scans per dataset, and why scans are missing or cannot be used; returns whether all can be.

    Loads each scan, since its unit may not be the metre, but not those of the published datasets and of benchmarks
    with their own scans, whose units are known.
    """
    layouts = layouts_of(benchmark)
    missing = missing_scans(questions, views.scan_root, layouts)
    known = {*layouts} if OWN_ROOTS not in layouts else {question.dataset for question in questions}
    scenes = {question.scene: question for question in questions if question.scan or question.dataset not in known}
    unusable = {}
    for scene, question in scenes.items():
        if scene not in missing:
            path = scan_of(question, views.scan_root, layouts)
            try:
                load_scene(path, *question.frame.over(views.up_axis, views.scale))
            except SceneError as error:
                unusable[scene] = str(error)
    for line in format_scan_table(scan_table(questions, {**missing, **unusable})):
        log.info("%s", line)
    if missing:
        log.warning("no scan, so their questions fail: %s", listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))
    for why in unusable.values():
        log.warning("%s", why)
    if unusable:
        log.warning(
            "To give a scan a unit or an up axis of its own, add columns scale and up_axis to the question file"
        )
    return not missing and not unusable


def log_origins(benchmark: Benchmark, datasets: Sequence[str] | None = None) -> None:
    """Print where the questions and the scans of these datasets come from, by default of all that are known."""
    for line in origin_lines(benchmark, list(benchmark.scans_from) if datasets is None else datasets):
        log.info("%s", line)


def workers_line(cluster: ClusterSettings) -> list[str]:
    """How the plan of one worker relates to a run with --ray or --gpus, as a line."""
    if not (cluster.ray or cluster.on_gpus):
        return []
    number = cluster.replicas if cluster.ray else "auto" if ALL_GPUS in cluster.gpus else len(cluster.gpus)
    workers = "its workers" if number == "auto" else counted(number, "worker")
    divisor = "their number" if number == "auto" else f"about {number}"
    asked = named("ray") if cluster.ray else named(gpus=",".join(cluster.gpus))
    return [
        f"With {asked}: all of this is for one worker; {workers} share the questions, so divide the times by {divisor}"
    ]
