"""Views on the terminal: as pictures where it can show them, else as the names of their files."""

import logging
import os
import sys
from functools import cache
from pathlib import Path

from PIL import Image

from roomscout.agent.console import console, print_to_console
from roomscout.agent.state import QuestionState

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


def show_turn(state: QuestionState, path: Path) -> None:
    """Print the view of the turn that a question takes next, or where no pictures are shown the path of its file."""
    what = f"[{state.label}] turn {state.turn} sees"
    if not shows_pictures():
        print_to_console(f"{what} {path}")
        return
    from textual_image.renderable import Image as Picture  # asks the terminal what it can show, so not before

    logging.getLogger("textual_image").setLevel(logging.ERROR)  # it warns if a terminal hides its cell size
    print_to_console(f"{what}:")
    view = Image.fromarray(state.observation.view)
    print_to_console(Picture(view, width=min(WIDTH_COLUMNS, console.width), height="auto"))
