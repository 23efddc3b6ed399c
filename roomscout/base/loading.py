"""Loads Python objects of others by name, module:NAME or path/to/file.py:NAME, and names the errors of their code."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from roomscout.base.extras import EXTRA_OF, how_to_install
from roomscout.base.interrupts import raise_if_interrupted
from roomscout.base.text import on_disk


class NotLoadable(Exception):
    """A name does not lead to an object. The message says why, without repeating the name."""


def load_attribute(name: str, what: str = "NAME") -> Any:
    """The object behind `module:NAME`, also of the current folder, or `path/to/file.py:NAME`, whose folder becomes
    importable for its neighbours; raises NotLoadable, which calls it `what`."""
    source, _, attribute = name.rpartition(":")
    if not source or not attribute.isidentifier():
        raise NotLoadable(f"takes module:{what} or path/to/file.py:{what}")
    try:
        if source.endswith(".py"):
            module = _module_of_file(on_disk(Path(source).expanduser()))
        else:
            if str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(source)
    except NotLoadable:
        raise
    except SyntaxError as error:
        file = Path(error.filename or source).name
        raise NotLoadable(f"{file}, line {error.lineno} is not Python ({error.msg}): fix it") from error
    except ModuleNotFoundError as error:
        if not error.name or not f"{source}.".startswith(f"{error.name}."):
            fix = how_to_install(error.name) if error.name in EXTRA_OF else "install or fix it"
            raise NotLoadable(f"{source} raises {raised(error)} when it is imported: {fix}") from error
        raise NotLoadable(
            f"{source} cannot be imported from {Path.cwd()} ({error}): run the command from the folder that contains "
            "it, or name its file"
        ) from error
    except (Exception, SystemExit) as error:  # the file is not ours, so it may raise anything, even sys.exit()
        raise NotLoadable(f"{source} raises {raised(error)} when it is imported: fix it") from error
    if not hasattr(module, attribute):
        raise NotLoadable(f"{source} has no {attribute}")
    return getattr(module, attribute)


@contextmanager
def code_of_others(
    what: str, refusal: Callable[[str], Exception], passed: type[Exception] | tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise `refusal`, with the error and where it is from, for any error of code that is not ours, in this block.
    Errors that are `passed` stay as they are. `what` failed, such as "the score of clock"."""
    try:
        yield
    except passed:
        raise
    except Exception as error:
        raise_if_interrupted()
        frames = traceback.extract_tb(error.__traceback__)[2:]  # after this one and that of the block
        theirs = [frame for frame in frames if frame.filename == frames[0].filename]
        where = f" in {_place(theirs[-1])}" if theirs else ""
        raise refusal(f"{what} failed ({error!r}{where})") from error


def raised(error: BaseException) -> str:
    """An error in words, with the line that raised it."""
    place = _place(traceback.extract_tb(error.__traceback__)[-1])
    return f"{traceback.format_exception_only(error)[-1].strip()} ({place})"


def _place(frame: traceback.FrameSummary) -> str:
    return f"{Path(frame.filename).name}, line {frame.lineno}"


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NotLoadable(f"there is no file {path}")
    if str(path.parent.absolute()) not in sys.path:
        sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # where dataclasses and pickle look it up
    spec.loader.exec_module(module)
    return module
