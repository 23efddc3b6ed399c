"""The command: flags in, exit status out."""

import errno
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.base.errors import ConfigError
from roomscout.base.extras import EXTRA_OF, needs
from roomscout.base.interrupts import INTERRUPTS, deferred_interrupts, raise_at_interrupts

if TYPE_CHECKING:
    from roomscout.agent.running import Session, ShowView
    from roomscout.edge.flags import Given
    from roomscout.edge.settings import Settings


def main(argv: list[str]) -> int:
    """Run the command with these arguments and return its exit status.

    0: all questions finished; 1: some failed; 2: cannot run, write or continue; 3: unexpected error; 130: interrupted.
    """
    raise_at_interrupts()  # clusters send SIGTERM, which stops a run like Ctrl-C
    refusals: tuple[type[Exception], ...] = (ConfigError,)
    try:
        with deferred_interrupts():  # in the midst of an import they would end in a traceback
            from roomscout.command.verbs import overview, read_verb, show_all_flags
            from roomscout.edge.flags import parse_command_line
            from roomscout.edge.reading import read_settings
        if not argv:
            print(overview())
            return 2
        flags, command = read_verb(argv)
        if command is not None:
            return command(flags)
        given = parse_command_line(flags)
        if given.help:
            return show_all_flags(read_settings(given.settings))
        with deferred_interrupts():  # imported here, so that --help stays instant
            from roomscout.agent.console import lines_kept_for_log
            from roomscout.agent.loop import answer_questions
            from roomscout.agent.running import finish, start
            from roomscout.command.reports import complete
            from roomscout.data.questions import QuestionError
            from roomscout.data.scans import ScanNotFound
            from roomscout.models import ModelError
            from roomscout.rendering.renderers import RenderError
            from roomscout.runs import RunError
        refusals += (QuestionError, ScanNotFound, RenderError, ModelError, RunError)
        if (status := answer_several(given)) is not None:
            return status
        with lines_kept_for_log():
            found = session_of(given)
            if isinstance(found, int):
                return found
            session, settings = found
            with session:
                if start(session):
                    with session.sampled():
                        answer_questions(*session.work(settings.log_level != "result"))
                finish(session)
        return complete(session.outcome, settings)
    except BrokenPipeError:  # the reader closed the pipe, as in "--help | head"
        from roomscout.agent.console import discard_output

        discard_output()
        return 0
    except KeyboardInterrupt:
        print("Interrupted before the run began; to start it, run the same command again.")
        return 130
    except Exception as error:  # noqa: BLE001 (else Python would exit with 1, the status of failed questions)
        return failed(error, refusals)
    finally:  # a second signal would change the exit status
        for each in INTERRUPTS:
            signal.signal(each, signal.SIG_IGN)


def answer_several(given: "Given") -> int | None:
    """Set what is printed; run --demo, or --ply without a question, each of which has several runs.

    Returns the exit status, None for anything else. Raises ConfigError if there is nothing to do.
    """
    from roomscout.agent.console import log_to_console
    from roomscout.base.text import RESULT
    from roomscout.command.reports import complete
    from roomscout.edge.conflicts import require_no_conflict
    from roomscout.edge.reading import read_settings

    settings = read_settings(given.settings)
    if settings.continue_from is None:  # else those of the run count, too
        require_no_conflict(settings)
    if not settings.has_work:
        raise ConfigError(
            "nothing to do: give a verb such as ask or eval, or --batch, --ply with --question, --demo or --continue; "
            "roomscout help has examples"
        )
    levels = {"debug": logging.DEBUG, "info": logging.INFO, "result": RESULT}
    shows = settings.plan or settings.check_data  # all of which are results
    log_to_console(logging.INFO if shows and settings.log_level == "result" else levels[settings.log_level])
    if settings.continue_from is not None:
        return None
    if settings.demo:
        from roomscout.command.demo import demo_settings, run_demo  # loads SciPy

        demo = demo_settings(given)
        return [complete(outcome, demo) for outcome in run_demo(demo)][-1]
    if not settings.interactive:
        return None
    from roomscout.command.interactive import ask_repeatedly

    outcomes = ask_repeatedly(settings, shown_turns(settings.ply, settings.log_level, settings.renderer))
    statuses = [complete(outcome, settings) for outcome in outcomes]
    return max((status for status in statuses if status != 130), default=0)  # an interrupt ends one question


def session_of(given: "Given") -> "int | tuple[Session, Settings]":
    """The session of a run in this process, and its settings; the exit status of what is something else: a run that
    workers answer, or what is said of a run that does not begin. Raises the errors of `plan`."""
    with deferred_interrupts():
        from roomscout.agent.running import Session
        from roomscout.cluster.in_parts import answer_in_parts
        from roomscout.command.look_ahead import look_ahead
        from roomscout.command.reports import complete
        from roomscout.edge.dividing import divide
        from roomscout.edge.planning import plan
        from roomscout.edge.resuming import completed
    settings, folder = completed(given)
    if settings.plan or settings.check_data:
        return look_ahead(settings, folder)
    if settings.ray or settings.on_gpus:
        return complete(answer_in_parts(divide(settings, folder)), settings)
    show_view = shown_turns(settings.ply, settings.log_level, settings.renderer)
    return Session(plan(settings, folder=folder), show_view), settings


def shown_turns(ply: Path | None, log_level: str, renderer: str) -> "ShowView | None":
    """Print each turn of --ply from now on, unless only results are printed; returns what shows its view, None for grey
    views and for other runs."""
    from roomscout.agent.console import log_turns_to_console
    from roomscout.agent.terminal_views import show_turn

    if ply is None or log_level == "result":
        return None
    log_turns_to_console()
    return None if renderer == "blind" else show_turn


def failed(error: Exception, refusals: tuple[type[Exception], ...]) -> int:
    """Print why the command cannot run, or the traceback of what is no refusal; returns the exit status."""
    from roomscout.base.text import escaped_lines

    if isinstance(error, refusals):
        why = str(error)
    elif isinstance(error, ModuleNotFoundError) and error.name in EXTRA_OF:
        why = needs("this", error.name)
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:  # such as stdout in a file
        from roomscout.agent.console import discard_output

        discard_output()
        why = f"the disk is full ({error}): free some space, then run the same command again"
    else:
        import traceback

        sys.stderr.write(escaped_lines("".join(traceback.format_exception(error))))
        return 3
    print(escaped_lines(f"error: {why}"), file=sys.stderr)
    return 2


def run_console_command() -> None:
    """The console command `roomscout`; exits with the status of `main`."""
    sys.exit(main(sys.argv[1:]))
