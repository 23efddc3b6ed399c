"""The verb `ask`: asks one question about a scan, or those that the user types."""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.agent.console import console, lines_kept_for_log, log_turns_to_console, show_turn, waiting_line
from roomscout.base.errors import ConfigError, UsageError, in_words
from roomscout.base.interrupts import acted_on_interrupt
from roomscout.base.text import escaped
from roomscout.command import words
from roomscout.command.eval import planned
from roomscout.command.reports import complete
from roomscout.edge.request import Request
from roomscout.edge.resolve import absolute, resolve
from roomscout.edge.settings import Settings

if TYPE_CHECKING:
    from roomscout.agent.session import Outcome, ShowView
    from roomscout.data.questions import Question

TAKES = ("question", "options", "ground_truth")
NOMINAL_QUESTION = "How many chairs and tables are in this room, and which of them is the closest to the door?"
"""Stands for the questions to come where memory is planned."""


def main(arguments: Sequence[str]) -> int:
    """Ask about one scan, and show each turn; returns the exit status."""
    said, flags = words.split(arguments)
    given = words.read("ask", flags, TAKES)
    typed = given.words["question"]
    if not said or len(said) + (typed is not None) > 2:
        raise UsageError("ask takes a scan, and a question in quotes, then flags: roomscout help ask has examples")
    scan = absolute(Path(said[0]))
    text = said[1] if len(said) > 1 else typed
    with words.waiting(given, "Reading the question"):
        settings = resolve(given.settings, source=given.sources, one_scan=True)
        words.print_lines(settings)
        if text is None:
            if given.words["options"] or given.words["ground_truth"]:
                raise UsageError("--options and --ground-truth are of a question: give it after the scan, in quotes")
            outcomes = _ask_repeatedly(scan, settings)
            statuses = [complete(outcome, settings, True) for outcome in outcomes]
            return max((status for status in statuses if status != 130), default=0)  # an interrupt ends one question
        from roomscout.data.questions import Selection

        question = question_about(scan, settings, text, given.words["options"], given.words["ground_truth"])
        request = Request(Selection.all_of([question]), ply=scan)
        show_view = shown_turns(settings)
        with lines_kept_for_log():
            answer = planned(settings, request, show_view=show_view)
            outcome = answer()
    return complete(outcome, settings, True)


def question_about(
    scan: Path, settings: Settings, text: str, options: Sequence[str] = (), truth: str | None = None
) -> "Question":
    """A question about a scan in the user's words; raises QuestionError."""
    from roomscout.data.benchmarks import find_benchmark
    from roomscout.data.questions import ask_one

    return ask_one(text, scan.stem, options, ground_truth=truth, benchmark=find_benchmark(settings.benchmark))


def shown_turns(settings: Settings) -> "ShowView | None":
    """Print each turn from now on, unless only results are printed; returns what shows its view, None for grey ones."""
    if settings.log_level == "result":
        return None
    if settings.log_level != "debug":
        log_turns_to_console()
    return None if settings.renderer == "blind" else show_turn


def _ask_repeatedly(scan: Path, settings: Settings) -> "Iterator[Outcome]":
    """Answer the questions that the user types, each a run of its own, until an empty line or the end; one that cannot
    be asked is refused. The model and the scan stay in memory."""
    from roomscout.agent.loop import main_vsi_bench_loop
    from roomscout.agent.opening import open_run
    from roomscout.data.questions import QuestionError, Selection
    from roomscout.edge.plan import again, plan

    if settings.name or settings.moves_of or settings.policy == "human":
        raise UsageError("a scan needs --question with --name, --moves-of or --policy human")
    nominal = Selection.all_of([question_about(scan, settings, NOMINAL_QUESTION)])
    spec = plan(settings, request=Request(nominal, ply=scan))
    show_view = shown_turns(settings)
    with closing(open_run(spec)) as opened:
        while typed := _typed():
            text, *options = (part.strip() for part in typed.split("|"))
            try:
                question = question_about(scan, settings, text, options)
            except (ConfigError, QuestionError) as error:
                console.print(escaped(f"error: {in_words(error)}"), markup=False, highlight=False)
                continue
            with lines_kept_for_log():
                outcome = main_vsi_bench_loop(again(spec, question), show_view=show_view, opened=opened)
            yield outcome


def _typed() -> str:
    """The line that the user types; empty at the end of the input, or after Ctrl-C."""
    waiting_line.end()
    with suppress(ImportError):  # some builds of Python lack it
        import readline  # noqa: F401 (gives input() editing and a history)
    try:
        return input("\nQuestion (options after |, an empty line ends): ").strip()
    except (EOFError, KeyboardInterrupt):
        acted_on_interrupt()
        console.print()
        return ""
