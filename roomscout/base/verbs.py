"""What the verbs share: their parser, and how an error ends them."""

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec

from roomscout.base.text import did_you_mean, escaped
from roomscout.base.wording import in_words

Arguments = ParamSpec("Arguments")


class Parser(argparse.ArgumentParser):
    """A parser that suggests a similar flag for one that does not exist."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and end the process with status 2."""
        words = message.partition("unrecognized arguments: ")[2].split()
        if typed := next((word.partition("=")[0] for word in words if word.startswith("-")), None):
            known = [each[2:] for each in self._option_string_actions if each[2:]]
            fix = did_you_mean(typed.lstrip("-"), known, "--help lists the flags", "--")
            message = f"there is no flag {typed}; {fix}"
        super().error(message)


def parser_of(verb: str, description: str, **more: Any) -> Parser:
    """A parser for the arguments of `roomscout VERB`, with `more` arguments of ArgumentParser."""
    return Parser(prog=f"roomscout {verb}", description=description, **more)


def refusing(*errors: type[Exception]) -> Callable[[Callable[Arguments, int]], Callable[Arguments, int]]:
    """A decorator of a command: it prints such an error to stderr and returns 2, instead of raising it."""

    def decorated(command: Callable[Arguments, int]) -> Callable[Arguments, int]:
        @wraps(command)
        def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
            try:
                return command(*args, **kwargs)
            except errors as error:
                sys.stderr.write(escaped(f"error: {in_words(error)}") + "\n")
                return 2

        return called

    return decorated
