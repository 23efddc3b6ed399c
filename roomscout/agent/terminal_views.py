"""Views on the terminal: as pictures where it can show them, else as the names of their files."""

import io
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock

from PIL import Image

from roomscout.agent.builders import camera_of
from roomscout.agent.config import RunConfig
from roomscout.agent.console import console, print_to_console
from roomscout.agent.state import QuestionState
from roomscout.envs.first_look import FirstLook, FirstLookProcess, FirstLookSettings
from roomscout.models.engines import checkpoint_of
from roomscout.models.transformers.source import existing_source

log = logging.getLogger(__name__)

WIDTH_COLUMNS = 80
"""The widest picture, in columns of the terminal."""


@cache
def shows_pictures() -> bool:
    """Whether the terminal shows pictures: as pixels, or as coloured half blocks."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and console.is_terminal):  # it is asked how it shows them
        return False
    if 0 in os.get_terminal_size(sys.stdout.fileno()):  # a terminal without a size has no room for a picture
        return False
    return os.environ.get("TERM") != "dumb" and console.color_system in ("256", "truecolor")


def show_view(view: Image.Image, path: Path, what: str) -> None:
    """Print a view below `what` it is, or the path of its file after that where the terminal shows no pictures."""
    if not shows_pictures():
        print_to_console(f"{what} {path}")
        return
    from textual_image.renderable import Image as Picture  # asks the terminal what it can show, so not before

    logging.getLogger("textual_image").setLevel(logging.ERROR)  # it warns if a terminal hides its cell size
    print_to_console(f"{what}:")
    print_to_console(Picture(view, width=min(WIDTH_COLUMNS, console.width), height="auto"))


class TurnViews:
    """Shows the view of each turn of --ply as the turn begins; the first view perhaps earlier, by `show_first`."""

    def __init__(self) -> None:
        self._lock = Lock()  # the first view comes on a thread
        self._first_was_shown = self._has_begun = False

    def show_first(self, look: FirstLook, model: str, path: Path) -> None:
        """Show the first view while a model is loaded, unless turn 0 has begun; writes it to a file at `path`."""
        with self._lock:
            if self._has_begun:
                return
            path.write_bytes(look.png)
            log.info("A room of %s m; its first view is drawn in %.1f s; loading %s", look.size, look.seconds, model)
            with Image.open(io.BytesIO(look.png)) as view:
                show_view(view, path, "First view")
            self._first_was_shown = shows_pictures()

    def show(self, state: QuestionState, path: Path) -> None:
        """Show the view of the turn that a question takes next, unless it was shown as the first view."""
        with self._lock:
            self._has_begun = True
            shown, self._first_was_shown = self._first_was_shown, False
        if state.turn > 0 or not shown:
            show_view(Image.fromarray(state.observation.view), path, f"[{state.label}] turn {state.turn} sees")


@contextmanager
def first_look(config: RunConfig) -> Iterator[TurnViews]:
    """Show the first view of --ply on a terminal inside this block as soon as it is drawn, while a model is loaded.

    Not for runs that import no such libraries and so start at once. Yields what shows the views of the turns. Raises
    ModelError if no checkpoint has the model's name.
    """
    what, views, turns = config.what_to_run, config.views, TurnViews()
    seen = what.ply is not None and what.ply.is_file() and views.renderer != "blind" and not what.plan
    seen = seen and not config.output.quiet
    if not seen or not console.is_terminal or not config.model.loads_weights:
        yield turns
        return
    # A wrong name is refused before anything is drawn.
    existing_source(checkpoint_of(config.model.model, config.model.revision))
    settings = FirstLookSettings(str(what.ply), views.up_axis, views.scale, camera_of(config.view, views))
    with tempfile.TemporaryDirectory(prefix="roomscout_") as folder:
        path = Path(folder) / "first_view.png"
        with FirstLookProcess(settings, lambda look: turns.show_first(look, config.model.model, path)):
            yield turns
