"""The lines of Python that each package may have, so that a feature pays for its weight.

Whoever needs more raises a number in a commit of its own that says why.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = {
    "roomscout/agent": 5_740,
    "roomscout/analysis": 6_190,
    "roomscout/base": 1_470,
    "roomscout/cluster": 900,
    "roomscout/command": 2_100,
    "roomscout/data": 3_650,
    "roomscout/edge": 2_850,
    "roomscout/envs": 1_000,
    "roomscout/models": 6_080,
    "roomscout/rendering": 5_040,
    "roomscout/rooms": 4_010,
    "roomscout/runs": 3_360,
    "roomscout/scoring": 1_800,
    "roomscout/training": 1_490,
    "benchmarks": 2_400,
    "examples": 840,
    "explorer": 2_880,
    "tests": 29_720,
}
"""The lines of the Python files of each folder, rounded up so that a fix of 20 lines needs no other number."""
MOST_LINES_OF_A_FILE = 500
MOST_LINES_OF_A_FUNCTION = 60
MOST_BROAD_EXCEPTS = 11
MOST_WORDS_OF_DOCS = 36_900
"""In docs/, without the log."""
OWN_FOLDERS = ("roomscout", "benchmarks", "explorer", "examples")


@cache
def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("folder", LINES)
def test_a_package_has_no_more_lines_than_its_budget(folder: str):
    assert sum(map(lines_of, (ROOT / folder).rglob("*.py"))) <= LINES[folder]


def test_every_package_has_a_budget():
    packages = {f"roomscout/{path.parent.name}" for path in (ROOT / "roomscout").glob("*/__init__.py")}
    assert packages | {*OWN_FOLDERS[1:], "tests"} == LINES.keys()


def own_files() -> list[Path]:
    return [path for folder in OWN_FOLDERS for path in (ROOT / folder).rglob("*.py")]


def test_no_file_is_too_long():
    assert not [str(path.relative_to(ROOT)) for path in own_files() if lines_of(path) > MOST_LINES_OF_A_FILE]


def test_no_function_is_too_long():
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in own_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]
    assert not too_long


def test_few_handlers_catch_everything():
    broad = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "roomscout").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException"))
    ]
    assert len(broad) <= MOST_BROAD_EXCEPTS, broad


def test_the_documentation_stays_short():
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "notes.md"]
    assert sum(len(path.read_text().split()) for path in pages) <= MOST_WORDS_OF_DOCS
