"""The command: flags in, exit status out."""

import errno
import signal
import sys
from collections.abc import Sequence

from roomscout import __version__
from roomscout.base.errors import ConfigError, Refusal, UsageError, in_words
from roomscout.base.extras import EXTRA_OF, needs
from roomscout.base.interrupts import (
    INTERRUPTS,
    acted_on_interrupt,
    deferred_interrupts,
    ignored_interrupts,
    is_interrupted,
    raise_at_interrupts,
)

HELP = {"-h", "--help"}


def main(argv: Sequence[str], console: bool = False) -> int:
    """Run the command with these arguments, a verb first or flags alone, and return its exit status. 0: all questions
    finished; 1: some failed; 2: cannot run, write or continue; 3: unexpected error; 130: interrupted. Without a verb,
    its help lists all flags, or as a `console` command the verbs."""
    raise_at_interrupts()  # clusters send SIGTERM, which stops a run like Ctrl-C
    try:
        with deferred_interrupts():  # in the midst of an import they would end in a traceback
            from roomscout.command import verbs
        if not argv:
            print(verbs.overview())
            return 2
        asks_help = not HELP.isdisjoint(argv)
        if argv[0] == "version" or (argv[0].startswith("-") and "--version" in argv):
            print(f"roomscout {__version__}")
            return 0
        if argv[0] == "help" and len(argv) > 1:
            verbs.find_verb(argv[1])
            return verbs.show_verb(argv[1])
        if argv[0] == "help" or (console and asks_help and argv[0].startswith("-")):
            print(verbs.overview())
            return 0
        if argv[0].startswith("-"):
            if asks_help:
                return verbs.show_all_flags()
            with deferred_interrupts():
                from roomscout.command.words import in_verbs
            argv = in_verbs(argv)
        verb = verbs.find_verb(argv[0])
        if asks_help and not (verb.parts and argv[1:2] and argv[1] not in HELP):
            return verbs.show_verb(argv[0])
        with deferred_interrupts():
            run = verb.load()
        return run(argv[1:])
    except BrokenPipeError:  # the reader closed the pipe, as in "--help | head"
        from roomscout.agent.console import discard_output

        discard_output()
        return 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 (else Python would exit with 1, that of failed questions)
        if isinstance(error, KeyboardInterrupt) or is_interrupted():
            with ignored_interrupts():
                print("Interrupted before the run began; to start it, run the same command again.")
            return 130
        return failed(error)
    finally:  # a second signal would change the exit status
        for number in INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)
        acted_on_interrupt()


def failed(error: Exception) -> int:
    """Print why the command cannot run, or the traceback of what is no refusal; returns the exit status."""
    from roomscout.base.text import escaped_lines

    if isinstance(error, ConfigError | UsageError | Refusal):
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
    """The console command `roomscout`, and `python -m roomscout`; exits with the status of `main`."""
    status = main(sys.argv[1:], console=True)
    exec("")  # Python forgets an interrupt of code that a library ran like this; it would end by SIGINT
    sys.exit(status)
