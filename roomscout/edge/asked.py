"""Which questions a run asks."""

from pathlib import Path
from typing import Any

from roomscout.agent.spec import QuestionSpec
from roomscout.data.benchmark import Benchmark
from roomscout.data.parts import part_of
from roomscout.data.questions import Selection, select_questions
from roomscout.edge.request import Request
from roomscout.edge.sections import FILTERS
from roomscout.edge.settings import Settings


def asked_of(settings: Settings, benchmark: Benchmark, request: Request) -> QuestionSpec:
    """The questions of a run: its own copy of them if it resumes, unless their file was named again or is another one;
    those that are given; or those that the settings choose. Raises QuestionError, SettingError for too few scenes, and
    RunError if a run that resumes was begun with others."""
    run = request.run
    if run is None or request.questions_named or _is_other_file(settings, run.facts.config["questions"]):
        selection = request.questions or selected(settings, benchmark)
    else:
        selection = Selection.all_of(run.questions)
    here = part_of(selection.questions, settings.shard)
    if run is not None:
        run.require_questions(here, selection.questions)
    return QuestionSpec(selection, here, settings.samples, benchmark, request.ply is not None)


def selected(settings: Settings, benchmark: Benchmark) -> Selection:
    """The questions that the settings choose, and all those of their source; raises QuestionError."""
    filters: Any = {name: getattr(settings, name) for name in FILTERS}
    return select_questions(settings.questions, benchmark, **filters)


def _is_other_file(settings: Settings, begun: str | None) -> bool:
    return settings.questions != (None if begun is None else Path(begun))
