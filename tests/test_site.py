"""`make docs`: a broken link, of any kind, and a page outside the menu fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMAND, run_command

ROOT = COMMAND.parent
DOCS = "docs/"
PAGES = {
    "README.md": f"# First\n\n[a page]({DOCS}a.md)\n",
    DOCS + "README.md": "# All pages\n\n[a](a.md), [outside](../CONTRIBUTING.md#checks), ![picture](p.png)\n",
    DOCS + "a.md": "# A\n\n## Part\n\n[here](#part), [a file](../Makefile)\n",
    DOCS + "p.png": "",
    DOCS + "development/notes.md": "# Log\n",
    "CONTRIBUTING.md": "# Contributing\n\n## Checks\n\n[first](README.md)\n",
}
FAULTS = {
    "[x](b.md)": "'b.md'",
    "[x](#nowhere)": "'#nowhere', but there is no such anchor on this page",
    "[x](README.md#nowhere)": "'contents.md' does not contain an anchor",
    "[x](../CONTRIBUTING.md#nowhere)": "'CONTRIBUTING.md' does not contain an anchor",
    "![x](q.png)": "'q.png'",
    "[x](../missing.py)": "'../missing.py'",
    "[x](../scripts/)": "'../scripts/'",
    "[x](development/notes.md)": "a.md links to development/notes.md, which is not in the site",
}
"""Links that lead nowhere, with what is said of each."""


def built(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What `make docs` says of a small site with our settings, hooks and make file."""
    pytest.importorskip("material")
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "site_hooks.py", folder / "scripts")
    shutil.copy(ROOT / "Makefile", folder)
    settings = (ROOT / "mkdocs.yml").read_text().partition("nav:\n")[0]
    menu = "nav: [{First: index.md}, {All: contents.md}, {A: a.md}, {Contributing: CONTRIBUTING.md}]\n"
    (folder / "mkdocs.yml").write_text(settings + menu)
    return run_command(["make", "-C", str(folder), "-o", ".venv/installed-docs", f"PY={sys.executable}", "docs"])


def test_a_site_without_faults_is_built(tmp_path: Path):
    ended = built(tmp_path, PAGES)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "site" / "a" / "index.html").exists()


def test_a_broken_link_of_any_kind_and_a_page_outside_the_menu_are_named(tmp_path: Path):
    page = "# A\n\n" + "\n\n".join(FAULTS)
    ended = built(tmp_path, {**PAGES, DOCS + "a.md": page, DOCS + "alone.md": "# Alone\n"})
    warned = ended.stderr.split("WARNING")[1:]
    assert ended.returncode != 0 and len(warned) == len(FAULTS) + 1
    assert not [said for said in (*FAULTS.values(), "- alone.md") if not any(said in part for part in warned)]
