"""The command: flags in, exit status out."""

import errno
import signal
import sys

from roomscout.base.errors import ConfigError
from roomscout.base.extras import EXTRA_OF, needs
from roomscout.base.interrupts import INTERRUPTS, deferred_interrupts, raise_at_interrupts


def main(argv: list[str]) -> int:
    """Run the command with these arguments and return its exit status. 0: all questions finished; 1: some failed; 2:
    cannot run, write or continue; 3: unexpected error; 130: interrupted."""
    interrupted = raise_at_interrupts()  # clusters send SIGTERM, which stops a run like Ctrl-C
    refusals: tuple[type[Exception], ...] = (ConfigError,)
    try:
        with deferred_interrupts():  # in the midst of an import they would end in a traceback
            from roomscout.command.verbs import overview, read_verb, show_all_flags
        if not argv:
            print(overview())
            return 2
        flags, command = read_verb(argv)
        if command is not None:
            return command(flags)
        with deferred_interrupts():
            from roomscout.edge.flags import parse_command_line
            from roomscout.edge.reading import read_settings
        given = parse_command_line(flags)
        if given.help:
            return show_all_flags(vars(read_settings(given.settings)))
        with deferred_interrupts():  # imported here, so that --help stays instant
            from roomscout.agent.console import lines_kept_for_log
            from roomscout.agent.loop import answer_questions
            from roomscout.agent.running import finish, start
            from roomscout.command.reports import complete
            from roomscout.command.runs import REFUSALS, answer_several, session_of
        refusals += REFUSALS
        if (status := answer_several(given)) is not None:
            return status
        with lines_kept_for_log():
            found = session_of(given)
            if isinstance(found, int):
                return found
            session, settings = found
            with session.guarded():
                if work := start(session):
                    with session.sampled():
                        answer_questions(*work, settings.log_level != "result")
                finish(session)
        return complete(session.outcome, settings)
    except BrokenPipeError:  # the reader closed the pipe, as in "--help | head"
        from roomscout.agent.console import discard_output

        discard_output()
        return 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 (else Python would exit with 1, that of failed questions)
        if isinstance(error, KeyboardInterrupt) or interrupted():
            print("Interrupted before the run began; to start it, run the same command again.")
            return 130
        return failed(error, refusals)
    finally:  # a second signal would change the exit status
        for each in INTERRUPTS:
            signal.signal(each, signal.SIG_IGN)


def failed(error: Exception, refusals: tuple[type[Exception], ...]) -> int:
    """Print why the command cannot run, or the traceback of what is no refusal; returns the exit status."""
    from roomscout.base.text import escaped_lines
    from roomscout.base.wording import in_words

    if isinstance(error, refusals):
        why = in_words(error)
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
