"""The package in a notebook: the example, and the bar that a cell shows while it runs."""

import base64
import io
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import COMMAND, RoomScans
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

ROOT = COMMAND.parent
EXAMPLE = ROOT / "examples" / "roomscout.ipynb"
LARGEST_BYTES = 300_000
FILMSTRIP = re.compile("<img alt='view of turn [0-9]+' width='[0-9]+' src='data:image/jpeg;base64,([^']+)'>")


class Watched(NotebookClient):
    """A client that keeps what cells display again in place."""

    redrawn: tuple[str, ...] = ()

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Note the text of an update before it replaces an output."""
        if msg["msg_type"] == "update_display_data":
            self.redrawn += (msg["content"]["data"]["text/plain"],)
        return super().process_message(msg, cell, cell_index)


def executed(notebook: nbformat.NotebookNode, folder: Path) -> Watched:
    """The client of a notebook after all of its cells ran in a folder; raises the first error of a cell."""
    client = Watched(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    folders = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / ".ipython"), "OMP_NUM_THREADS": "1"}
    client.execute(env=os.environ | folders)
    return client


def outputs(cell: nbformat.NotebookNode, mime: str) -> list[str]:
    """What a cell displays as this type."""
    return [each["data"][mime] for each in cell.outputs if mime in each.get("data", {})]


def filmstrips(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """The views in each filmstrip, as base64."""
    shown = [text for cell in notebook.cells if cell.cell_type == "code" for text in outputs(cell, "text/html")]
    return [views for text in shown if (views := FILMSTRIP.findall(text))]


@pytest.mark.slow
def test_a_cell_shows_a_bar_unless_it_is_told_not_to(rooms: RoomScans, tmp_path: Path):
    explored = (
        f"from roomscout import explore\nfound = explore({str(rooms.questions)!r}, scan_root={str(rooms.root)!r}, "
        "policy='random', renderer='raycast', image_size=(160, 96), focal=75.0{}); print(len(found))"
    )
    cells = [new_code_cell(explored.format(more)) for more in ("", ", progress=False")]
    client = executed(new_notebook(cells=cells), tmp_path)
    with_bar, without = client.nb.cells
    turns = 9 * len(rooms.rows)
    (bar,) = outputs(with_bar, "text/html")
    assert f"<progress value='{turns}' max='{turns}'></progress> turns {turns}/{turns}, overall " in bar
    assert len(set(client.redrawn)) > 1 and client.redrawn[-1].startswith(f"turns {turns}/{turns}")
    assert [(each.name, each.text) for each in without.outputs] == [("stdout", f"{len(rooms.rows)}\n")]


def test_the_stored_example_is_small_and_shows_filmstrips():
    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(notebook)
    assert EXAMPLE.stat().st_size < LARGEST_BYTES
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in ran] == list(range(1, len(ran) + 1))
    assert not [each for cell in ran for each in cell.outputs if each.output_type == "error"]
    assert len(filmstrips(notebook)) == 2
    for view in filmstrips(notebook)[0]:
        with Image.open(io.BytesIO(base64.b64decode(view))) as opened:
            assert (opened.format, opened.width) == ("JPEG", 240)


@pytest.mark.slow  # first_hour.py takes the same steps
def test_the_example_runs(tmp_path: Path):
    stored = nbformat.read(EXAMPLE, as_version=4)
    notebook = executed(nbformat.read(EXAMPLE, as_version=4), tmp_path).nb
    assert [len(views) for views in filmstrips(notebook)] == [len(views) for views in filmstrips(stored)]
    warned = [each.text for cell in notebook.cells for each in cell.get("outputs", ()) if each.get("name") == "stderr"]
    assert not warned
    assert {path.name for path in tmp_path.iterdir()} <= {"roomscout_notebook", ".ipython"}
