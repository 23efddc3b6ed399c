"""Question after question about one scan, with the model and the scan kept in memory."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress

from roomscout.agent.console import console
from roomscout.agent.running import Outcome, ShowView, load, main_vsi_bench_loop
from roomscout.base.errors import ConfigError
from roomscout.base.text import escaped
from roomscout.data.questions import QuestionError
from roomscout.edge.parts import asked_by
from roomscout.edge.planning import again, plan
from roomscout.edge.reading import changed
from roomscout.edge.settings import Settings

NOMINAL_QUESTION = "How many chairs and tables are in this room, and which of them is the closest to the door?"
"""Stands for the questions to come where memory is planned."""
ASKS = "\nQuestion (options after |, an empty line ends): "


def ask_repeatedly(settings: Settings, show_view: ShowView | None = None) -> Iterator[Outcome]:
    """Answer the questions that the user types about --ply, until an empty line or the end.

    Each is a run with its own folder, whose outcome is returned. A question that cannot be asked is refused, and the
    next one is read. The errors raised are those of `plan` and `main_vsi_bench_loop`.
    """
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
        return input(ASKS).strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return ""
