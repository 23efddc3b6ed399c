"""What the command makes of settings: a session, several runs, or what is printed of a run that does not begin."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from roomscout.agent.console import console, log_to_console, log_turns_to_console, show_turn
from roomscout.agent.running import Outcome, Session, ShowView, load, log_scan_table, main_vsi_bench_loop
from roomscout.base.errors import ConfigError
from roomscout.base.text import RESULT, escaped
from roomscout.cluster.in_parts import Workers, answer_in_parts
from roomscout.command.reports import complete
from roomscout.data.benchmark import origin_lines
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import QuestionError
from roomscout.data.scans import OWN_ROOTS, ScanNotFound, missing_scans, scan_of
from roomscout.edge.conflicts import require_no_conflict
from roomscout.edge.dividing import divide
from roomscout.edge.flags import Given
from roomscout.edge.parts import asked_by, layouts_of
from roomscout.edge.planning import again, memory_of, plan
from roomscout.edge.reading import changed, read_settings
from roomscout.edge.resuming import completed, part_of
from roomscout.edge.settings import Settings
from roomscout.models import ModelError
from roomscout.rendering.renderers import RenderError
from roomscout.rendering.scene import SceneError, load_scene
from roomscout.runs import RunError

log = logging.getLogger(__name__)

REFUSALS = (QuestionError, ScanNotFound, RenderError, ModelError, RunError)
"""Errors that are not the command's own: their texts say what to change."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "result": RESULT}
NOMINAL_QUESTION = "How many chairs and tables are in this room, and which of them is the closest to the door?"
"""Stands for the questions to come where memory is planned."""


def answer_several(given: Given) -> int | None:
    """Set what is printed; run --demo, or --ply without a question, each of which has several runs. Returns the exit
    status, None for anything else. Raises ConfigError if there is nothing to do."""
    settings = read_settings(given.settings)
    if settings.continue_from is None:  # else those of the run count, too
        require_no_conflict(settings)
    if not settings.has_work:
        raise ConfigError(
            "nothing to do: give a verb such as ask or eval, or --batch, --ply with --question, --demo or --continue; "
            "roomscout help has examples"
        )
    shows = settings.plan or settings.check_data  # all of which are results
    log_to_console(min(logging.INFO, LEVELS[settings.log_level]) if shows else LEVELS[settings.log_level])
    if settings.continue_from is not None:
        return None
    if settings.demo:
        from roomscout.command.demo import demo_settings, run_demo  # loads SciPy

        demo = demo_settings(given)
        if shows:
            return look_ahead(demo, None)
        return [complete(outcome, demo) for outcome in run_demo(demo)][-1]
    if settings.ply is None or settings.question is not None or settings.check_data:
        return None
    statuses = [complete(outcome, settings) for outcome in ask_repeatedly(settings, shown_turns(settings))]
    return max((status for status in statuses if status != 130), default=0)  # an interrupt ends one question


def session_of(given: Given, workers: Workers | None = None) -> int | tuple[Session, Settings]:
    """The session of a run in this process, and its settings; the exit status of what is something else: a run that
    `workers` answer, or what is said of a run that does not begin. Raises the errors of `plan`."""
    settings, folder = completed(given)
    if settings.plan or settings.check_data:
        return look_ahead(settings, folder)
    if settings.ray or settings.on_gpus:
        return complete(answer_in_parts(divide(settings, folder), workers=workers), settings)
    return Session(plan(settings, folder=folder), shown_turns(settings)), settings


def shown_turns(settings: Settings) -> ShowView | None:
    """Print each turn of --ply from now on, unless only results are printed; returns what shows its view, None for grey
    views and for other runs."""
    if settings.ply is None or settings.log_level == "result":
        return None
    if settings.log_level != "debug":
        log_turns_to_console()
    return None if settings.renderer == "blind" else show_turn


def ask_repeatedly(settings: Settings, show_view: ShowView | None = None) -> Iterator[Outcome]:
    """Answer the questions that the user types about --ply, each a run of its own, until an empty line or the end; one
    that cannot be asked is refused. Raises the errors of `plan` and `main_vsi_bench_loop`."""
    if settings.plan or settings.name or settings.moves_of or settings.policy == "human":
        raise ConfigError("--ply needs --question with --plan, --name, --moves-of or --policy human")
    spec = plan(changed(settings, question=NOMINAL_QUESTION))
    with ExitStack() as stack:
        loaded = load(spec, stack)
        while typed := _typed():
            question, *options = (part.strip() for part in typed.split("|"))
            try:
                asked = asked_by(vars(changed(settings, question=question, options=tuple(options))))
            except (ConfigError, QuestionError) as error:
                console.print(escaped(f"error: {error}"), markup=False, highlight=False)
                continue
            yield main_vsi_bench_loop(again(spec, asked), show_view=show_view, loaded=loaded)


def _typed() -> str:
    """The line that the user types; empty at the end of the input, or after Ctrl-C."""
    with suppress(ImportError):  # some builds of Python lack it
        import readline  # noqa: F401 (gives input() editing and a history)
    try:
        return input("\nQuestion (options after |, an empty line ends): ").strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return ""


def look_ahead(settings: Settings, folder: Path | None) -> int:
    """Print the size and memory of a run, or which of its scans can be used; returns 1 if some cannot, else 0. `folder`
    is that of a run to resume. Raises the errors of `plan`."""
    require_no_conflict(settings)
    if settings.plan:
        _log_lines(memory_of(settings, folder))
        if settings.ray or settings.on_gpus:
            log.info("With --ray or --gpus, all of this is for one worker; they share the questions")
        return 0
    benchmark = find_benchmark(settings.benchmark)
    origins = benchmark if settings.questions is None else replace(benchmark, questions_from=None)
    try:
        here = part_of(asked_by(vars(settings)).questions, settings.shard)
    except QuestionError:
        if settings.questions is None:
            _log_lines(origin_lines(origins, list(benchmark.scans_from)))  # what can be prepared meanwhile
        raise
    benchmark.make(here)
    root = settings.scan_root
    layouts = layouts_of(settings.benchmark)
    missing = missing_scans(here, root, layouts)
    # The units of published datasets and of benchmarks with their own scans are known.
    known = {*layouts} if OWN_ROOTS not in layouts else {question.dataset for question in here}
    checked = {each.scene: each for each in here if each.scan or each.dataset not in known}
    unusable = {}
    for scene, question in checked.items():
        if scene in missing:
            continue
        try:
            load_scene(scan_of(question, root, layouts), *question.frame.over(settings.up_axis, settings.scale))
        except SceneError as error:
            unusable[scene] = str(error)
    log_scan_table(here, missing, unusable)
    for why in unusable.values():
        log.warning("%s", why)
    if unusable:
        log.warning("To give a scan its own unit or up axis, add columns scale and up_axis to the question file")
    _log_lines(origin_lines(origins, list(dict.fromkeys(each.dataset for each in here))))
    return 1 if missing or unusable else 0


def _log_lines(lines: list[str]) -> None:
    for line in lines:
        log.info("%s", line)
