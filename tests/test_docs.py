"""The documentation: flags, verbs, files and examples that exist; `make docs` checks its links."""

import re
import runpy
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import COMMAND

from roomscout.base.errors import flag
from roomscout.command import words as of_verbs
from roomscout.command.verbs import VERBS
from roomscout.command.words import WORDS, in_verbs
from roomscout.edge.settings import SETTINGS

ROOT = COMMAND.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "checkpoints/*/*.md", "experiment_logs/README.md", "tests/fixtures/*.md")
    for path in ROOT.glob(pattern)
)
FOR_USERS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("checkpoints/*/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAG = re.compile(r"--[a-z][a-z0-9-]*[a-z0-9]")


def in_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def fences(page: Path, language: str | None = None) -> list[str]:
    """The contents of the page's code blocks, of those in a language if it is named."""
    return [body for name, body in FENCE.findall(page.read_text()) if language in (None, name)]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", page.read_text())


def our_commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each command of ours in the code blocks of a page."""
    for block in fences(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True) if "roomscout" in line or COMMAND.name in line else []
            if words and words[0] in ("srun", "python"):
                words = words[1:]
            if words and words[0] in ("roomscout", COMMAND.name):
                yield words[1:]


def flags_in_source(*patterns: str) -> set[str]:
    """The flags that modules declare for argparse."""
    files = [path for pattern in patterns for path in (ROOT / "roomscout").glob(pattern)]
    return {name for path in files for name in re.findall(r'add_argument\(\s*"(--[a-z-]+)"', path.read_text())}


@in_page(FOR_USERS)
def test_commands_have_verbs_and_flags_that_exist(page: Path):
    """Flags are parsed, with 1 for a variable of the shell; of verbs with a parser of their own, reads the source."""
    others = flags_in_source("**/*.py")
    for words in our_commands(page):
        verb, *flags = [re.sub(r"\$\w+", "1", each) for each in (in_verbs(words) if words[0][0] == "-" else words)]
        if VERBS[verb].sections:
            module = import_module(VERBS[verb].target.partition(":")[0])
            assert of_verbs.read(verb, of_verbs.split(flags)[1], getattr(module, "TAKES", ())), words
        elif verb == "study":
            assert of_verbs.read("eval", flags[2:], ("demo", "retry_failed")), words
        else:
            assert not {word for word in words if word.startswith("--")} - others, words


@in_page(FOR_USERS)
def test_verbs_and_flags_in_the_text_exist(page: Path):
    text = prose(page).replace("`--no-`", "")
    assert not set(re.findall(r"`roomscout ([a-z]+)", text)) - VERBS.keys()
    known = {flag(name) for name in SETTINGS} | {flag(f"no_{name}") for name in SETTINGS}
    known |= flags_in_source("**/*.py")
    known |= {"--config", "--help", "--version", *map(flag, WORDS)}
    spans = [span for span in re.findall(r"`([^`]+)`", text) if span.startswith(("--", "roomscout "))]
    assert not {name for span in spans for name in FLAG.findall(span)} - known


@in_page([page for page in PAGES if page.name not in ("notes.md", "benchmarks.md")])
def test_files_and_modules_in_the_text_exist(page: Path):
    """A file is named from the top level or from roomscout/. The log and benchmarks name files of other projects."""
    text = page.read_text()
    files = set(re.findall(r"`((?:[a-z_]+/)+[a-z_-]+\.(?:py|sh|md|yaml))`", text))
    missing = {name for name in files if not any((top / name).exists() for top in (ROOT, ROOT / "roomscout"))}
    modules = set(re.findall(r"python -m ((?:roomscout|benchmarks|explorer)[\w.]*)", text))
    missing |= {name for name in modules if find_spec(name) is None}
    assert not missing


def test_pages_and_examples_that_code_names_exist():
    files = [path for folder in ("docs", "roomscout", "tests") for path in (ROOT / folder).rglob("*.py")]
    named = {
        name
        for path in (*files, *ROOT.glob("*.py"), *ROOT.glob("*.toml"), *ROOT.glob("scripts/*.sh"), ROOT / "Makefile")
        for name in re.findall(r"(?:docs|experiment_logs)/[\w/-]+\.(?:md|py|png)", path.read_text())
    }
    assert {"docs/run-folder.md", "docs/development/notes.md"} <= named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    log = "development/notes.md"
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md", log}
    assert not [page for page in pages if f"({page})" not in index]


def test_the_page_of_settings_is_up_to_date():
    """Otherwise run scripts/settings_page.py."""
    script = runpy.run_path(str(ROOT / "scripts" / "settings_page.py"))
    assert script["PAGE"].read_text() == script["settings_page"]()
