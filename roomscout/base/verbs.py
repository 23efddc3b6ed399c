"""What the verbs share: the name of their parser, and how an error ends them."""

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from roomscout.base.text import escaped

Arguments = ParamSpec("Arguments")


def parser_of(verb: str, description: str, **more: Any) -> argparse.ArgumentParser:
    """A parser for the arguments of `roomscout VERB`, with `more` arguments of ArgumentParser."""
    return argparse.ArgumentParser(prog=f"roomscout {verb}", description=description, **more)


def refusing(*errors: type[Exception]) -> Callable[[Callable[Arguments, int]], Callable[Arguments, int]]:
    """A decorator of a command: it prints such an error to stderr and returns 2, instead of raising it."""

    def decorated(command: Callable[Arguments, int]) -> Callable[Arguments, int]:
        @wraps(command)
        def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
            try:
                return command(*args, **kwargs)
            except errors as error:
                sys.stderr.write(escaped(f"error: {error}") + "\n")
                return 2

        return called

    return decorated
