"""The command: flags in, exit status out."""

import errno
import logging
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout import SCRIPT
from roomscout.base.extras import EXTRA_OF, needs
from roomscout.base.interrupts import INTERRUPTS, deferred_interrupts, raise_at_interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

    from roomscout.agent.config import RunConfig
    from roomscout.agent.evaluation import Outcome
    from roomscout.agent.state import QuestionState
    from roomscout.command.command_line import Given


def main(argv: list[str]) -> int:
    """Run the command with these arguments and return its exit status.

    0: all questions finished; 1: some failed; 2: cannot run, write or continue; 3: unexpected error; 130: interrupted.
    """
    raise_at_interrupts()  # clusters send SIGTERM, which stops a run like Ctrl-C
    refusals: tuple[type[Exception], ...] = ()
    try:
        with deferred_interrupts():  # in the midst of an import they would end in a traceback
            from roomscout.agent.config import ConfigError, RunConfig
            from roomscout.command.command_line import parse_command_line
            from roomscout.command.verbs import EXAMPLES, overview, read_verb
        refusals += (ConfigError,)
        if not argv and Path(sys.argv[0]).name != SCRIPT.name:
            print("\n".join([overview(), "", "Examples:", *(f"  {each}" for each in EXAMPLES)]))
            return 2
        flags, command = read_verb(argv)
        if command is not None:
            return command(flags)
        given = parse_command_line(flags, overview(), EXAMPLES)
        config = given.over(RunConfig())
        if not config.what_to_run.has_work:
            config.checked()  # names the flag that another one needs
            raise ConfigError(
                "nothing to do: give a verb such as ask or eval, or --batch, --ply with --question, --demo or "
                "--continue; roomscout help has examples"
            )
        with deferred_interrupts():
            from roomscout.agent.console import log_to_console  # imported here, so that --help stays instant
            from roomscout.command.reports import finish
            from roomscout.data.questions import QuestionError
            from roomscout.data.scans import ScanNotFound
            from roomscout.models import ModelError
            from roomscout.rendering.renderers import RenderError
            from roomscout.runs import RunError
        refusals += (QuestionError, ScanNotFound, RenderError, ModelError, RunError)
        log_to_console(console_level(config))
        what = config.what_to_run
        if what.ply is not None and what.continue_from is None:
            config.checked()  # before anything is drawn
        if (what.demo or what.interactive) and what.continue_from is None:
            return answer_several(config, given)
        answer, config = answering(config, given)
        return finish(answer(), config)
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


def console_level(config: "RunConfig") -> int:
    """The level from which lines are printed; those of --plan and --check-data are all results."""
    from roomscout.base.text import RESULT

    what, output = config.what_to_run, config.output
    quiet = output.quiet and not (what.plan or what.check_data)
    return logging.DEBUG if output.verbose else RESULT if quiet else logging.INFO


def answering(config: "RunConfig", given: "Given") -> "tuple[Callable[[], Outcome], RunConfig]":
    """What answers the questions of a configuration, or resumes the run that it names with what is `given`, and the
    settings of that run.

    It is returned instead of called, so that few calls lie between the command and a model.
    """
    with deferred_interrupts():
        from roomscout.agent.checking import look_ahead
        from roomscout.agent.evaluation import main_vsi_bench_loop
        from roomscout.agent.resuming import with_absolute_paths
        from roomscout.agent.run_folder import questions_to_resume, run_to_resume, saved_config
        from roomscout.cluster.in_parts import answer_in_parts
        from roomscout.command.command_line import resumed
    folder, config = None, with_absolute_paths(config)
    if config.what_to_run.continue_from is not None:
        if folder := run_to_resume(config.what_to_run, config.output, config.cluster.shard):
            config = resumed(saved_config(folder), given)
            if "questions" in given.settings:  # refuses a file that has changed
                what, asked = config.what_to_run, config.questions
                questions_to_resume(folder, what, asked, config.cluster.shard, named=True)
        else:
            config = config.having(continue_from=None, retry_failed=False)
    if config.what_to_run.plan or config.what_to_run.check_data:
        return partial(look_ahead, config, folder), config
    if config.cluster.ray or config.cluster.on_gpus:
        return partial(answer_in_parts, config, folder), config
    return partial(main_vsi_bench_loop, config, folder, show_view=shown_turns(config)), config


def answer_several(config: "RunConfig", given: "Given") -> int:
    """Run --demo or --interactive, each of which has several runs; returns the exit status."""
    from roomscout.agent.resuming import with_absolute_paths
    from roomscout.command.reports import finish

    if config.what_to_run.demo:
        from roomscout.command.demo import demo_defaults, run_demo  # loads SciPy

        config = with_absolute_paths(demo_defaults(given))
        return [finish(outcome, config) for outcome in run_demo(config)][-1]
    from roomscout.agent.interactive import ask_repeatedly

    config = with_absolute_paths(config)
    show_view = shown_turns(config)
    statuses = [finish(outcome, config) for outcome in ask_repeatedly(config, show_view)]
    return max((status for status in statuses if status != 130), default=0)  # an interrupt ends one question


def shown_turns(config: "RunConfig") -> "Callable[[QuestionState, Path], None] | None":
    """Print each turn of --ply from now on, unless --quiet is given; returns what shows its view, None for grey views
    and for other runs."""
    from roomscout.agent.console import log_turns_to_console
    from roomscout.agent.terminal_views import show_turn

    if config.what_to_run.ply is None or config.output.quiet:
        return None
    log_turns_to_console()
    return None if config.views.renderer == "blind" else show_turn


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
