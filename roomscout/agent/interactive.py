"""Question after question about one scan, with the model and the scan kept in memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from roomscout.agent.builders import asked_of
from roomscout.agent.config import ConfigError, RunConfig
from roomscout.agent.console import console
from roomscout.agent.evaluation import Outcome, main_vsi_bench_loop
from roomscout.agent.prepared import Prepared, prepared
from roomscout.agent.startup import Started, start
from roomscout.agent.state import QuestionState
from roomscout.base.text import escaped
from roomscout.data.questions import QuestionError

NOMINAL_QUESTION = "How many chairs and tables are in this room, and which of them is the closest to the door?"
"""Stands for the questions to come where memory is planned."""
ASKS = "\nQuestion (options after |, an empty line ends): "


def ask_repeatedly(
    config: RunConfig, show_view: Callable[[QuestionState, Path], None] | None = None
) -> Iterator[Outcome]:
    """Answer the question of `config`, if it has one, then those that the user types, until an empty line or the end.

    Each is a run with its own folder, whose outcome is returned. A question that cannot be asked is refused, and the
    next one is read. `show_view` and the errors raised are as for `main_vsi_bench_loop`.
    """
    config.checked()
    about = config.having(interactive=False)
    with ExitStack() as stack:
        what = about.what_to_run
        asking = prepared(about if what.question else about.having(question=NOMINAL_QUESTION, options=()))
        asking = replace(asking, config=asking.config.having(question=what.question, options=what.options))
        started = start(asking, stack)
        for question in _each_question(what.question):
            current = started.config.having(**question)
            try:
                asked = asked_of(current.what_to_run, current.questions)
            except (ConfigError, QuestionError) as error:
                console.print(escaped(f"error: {error}"), markup=False, highlight=False)
                continue
            again = partial(_begun, replace(started, config=current))
            yield main_vsi_bench_loop(current, policy=asking.policy, asked=asked, begin=again, show_view=show_view)


def _begun(started: Started, asking: Prepared, stack: ExitStack) -> Started:
    return started


def _each_question(first: str | None) -> Iterator[dict[str, Any]]:
    """The settings of each question that differ from those of the first, if any: of those that the user types."""
    if first is not None:
        yield {}
    while typed := _typed():
        question, *options = (part.strip() for part in typed.split("|"))
        # What is known about a question given as a flag is not true of the next one.
        yield {"question": question, "options": tuple(options), "question_type": None, "ground_truth": None}


def _typed() -> str:
    """The line that the user types; empty at the end of the input, or after Ctrl-C."""
    with suppress(ImportError):  # some builds of Python lack it
        import readline  # noqa: F401 (gives input() editing and a history)
    try:
        return input(ASKS).strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return ""
