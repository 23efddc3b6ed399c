"""Hooks of mkdocs: the README is the first page, and what pages link to outside docs/ is part of the site."""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PLACES = {ROOT / "README.md": "index.md", DOCS / "README.md": "contents.md"}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
log = logging.getLogger("mkdocs.hooks.site_hooks")  # whose warnings fail a strict build
CODE_IN_TABLE = re.compile(r"(?<=[ (])`[^`\n]*\\\|[^`\n]*`")  # of which only GitHub removes the backslashes
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def place_of(path: Path) -> str:
    """Where a file of the repository is in the site."""
    return PLACES.get(path) or path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that pages link to."""
    pending, added = [ROOT / "README.md", *DOCS.rglob("*.md")], set[Path]()
    while pending:
        page = pending.pop()
        for link in LINK.findall(FENCE.sub("", page.read_text())) if page.suffix == ".md" else ():
            target = (page.parent / link).resolve()
            if target.is_file() and not target.is_relative_to(DOCS) and target not in added:
                added.add(target)
                pending.append(target)
    if (contents := files.get_file_from_path("README.md")) is not None:
        files.remove(contents)
    for path in (*PLACES, *sorted(added - PLACES.keys())):
        files.append(File.generated(config, place_of(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write links between files of the repository as links between places of the site, and code in tables as it is."""
    source, here = Path(page.file.abs_src_path or "").resolve(), posixpath.dirname(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        if not target.is_file():
            return link[1]
        file = files.get_file_from_path(place_of(target))
        if file is None or file.inclusion.is_excluded():
            log.warning("%s links to %s, which is not in the site", source.relative_to(ROOT), link[1])
        return posixpath.relpath(place_of(target), here)

    return CODE_IN_TABLE.sub(lambda code: code[0].replace("\\|", "|"), LINK.sub(moved, markdown))
