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

from PIL import Image

from roomscout.agent.builders import camera_of
from roomscout.agent.config import RunConfig
from roomscout.agent.console import console
from roomscout.envs.first_look import FirstLook, FirstLookProcess, FirstLookSettings

log = logging.getLogger(__name__)

WIDTH_COLUMNS = 80
"""The widest picture, in columns of the terminal."""


@cache
def shows_pictures() -> bool:
    """Whether the terminal shows pictures: as pixels, or as coloured half blocks."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and console.is_terminal):  # it is asked how it shows them
        return False
    return os.environ.get("TERM") != "dumb" and console.color_system in ("256", "truecolor")


def show_view(png: bytes, path: Path) -> None:
    """Print a view, or the path of its file where the terminal shows no pictures."""
    if not shows_pictures():
        log.info("  view: %s", path)
        return
    from textual_image.renderable import Image as Picture  # asks the terminal what it can show, so not before

    logging.getLogger("textual_image").setLevel(logging.ERROR)  # it warns if a terminal hides its cell size
    with Image.open(io.BytesIO(png)) as view:
        console.print(Picture(view, width=min(WIDTH_COLUMNS, console.width), height="auto"))


@contextmanager
def first_look(config: RunConfig) -> Iterator[None]:
    """Show the first view of --ply inside this block as soon as it is drawn, while a model's libraries are imported.

    Does nothing for other runs, and for those that import no such libraries and so start at once.
    """
    what, views = config.what_to_run, config.views
    seen = what.ply is not None and what.ply.is_file() and views.renderer != "blind" and not what.plan
    if not seen or not config.model.loads_weights:
        yield
        return
    settings = FirstLookSettings(str(what.ply), views.up_axis, views.scale, camera_of(config.view, views))
    with tempfile.TemporaryDirectory(prefix="roomscout_") as folder:
        path = Path(folder) / "first_view.png"

        def show(look: FirstLook) -> None:
            path.write_bytes(look.png)
            about = f"First view, drawn in {look.seconds:.1f} s, of a room of {look.size} m"
            log.info("%s; loading %s", about, config.model.model)
            show_view(look.png, path)

        with FirstLookProcess(settings, show):
            yield
