"""Each block of code in the documentation is run or read from its page, or says in its first line what it needs.

A block of bash or python whose first line is `# needs ...` is not run; nor is text, which shows outputs and layouts.
Blocks of a page run in order in one folder, which has rooms, a scan and the run RUN, unless the page begins with them.
"""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import COMMAND, run_command, run_main, vsi_question

from roomscout.agent.policies.prompts import load_prompts
from roomscout.agent.policies.replies import parse_action
from roomscout.data.boxes import read_boxes
from roomscout.data.questions import load_questions

ROOT = COMMAND.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES.remove(ROOT / "docs" / "development" / "notes.md")
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"(?:#!.*\n)?# needs (.+)")
COMMANDS = re.compile(r"^(?:roomscout|python|pip|make|git|docker) ", re.MULTILINE)
RUN = ("bash", "python")
READ = ("json", "yaml", "csv")
SHOWN = ("text", "bibtex")
MOST_NOT_RUN = 49
"""Blocks with `# needs`: whoever adds one raises this number, and says why."""
LOOKS = ("ask", "eval")
SMALLER = {
    "rooms": ["--rooms", "1", "--resolution", "0.2"],
    "eval": ["--num-questions", "1"],
    "train": ["--steps", "1"],
}
"""Flags that make a command of a page take seconds; verbs of LOOKS cast rays unless the page names a renderer."""


class Block(NamedTuple):
    """A block of code of a page."""

    language: str
    body: str
    before: str  # the text since the block before it

    @property
    def runs(self) -> bool:
        return self.language in RUN and NEEDS.match(self.body) is None

    @property
    def file(self) -> str | None:
        """The file that the block names in its first line, or the text before it as its last of such a suffix."""
        suffix = {"python": "py"}.get(self.language, self.language)
        names = re.findall(rf"`(\w+\.{suffix})`", self.before)
        names += re.findall(rf"\A# (\S+\.{suffix})$", self.body, re.MULTILINE)
        return names[-1] if names else None


def blocks_of(page: Path) -> list[Block]:
    parts = BLOCK.split(page.read_text())
    return [Block(*parts[start + 1 : start + 3], parts[start]) for start in range(0, len(parts) - 1, 3)]


def in_pages(of: Callable[[Block], bool]) -> pytest.MarkDecorator:
    """The pages that have such a block."""
    pages = [page for page in PAGES if any(map(of, blocks_of(page)))]
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@in_pages(lambda block: True)
def test_each_block_has_a_language_and_commands_are_not_shown_as_text(page: Path):
    blocks = blocks_of(page)
    assert not [block for block in blocks if block.language not in (*RUN, *READ, *SHOWN)]
    assert not [block.body for block in blocks if block.language == "text" and COMMANDS.search(block.body)]


def test_few_blocks_need_what_no_test_has():
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language in RUN]
    assert len([block for block in blocks if not block.runs]) <= MOST_NOT_RUN


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rooms, few questions, a scan, what a folder of a benchmark has, and the run RUN."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_line("roomscout rooms rooms")
        rows = Path("rooms/questions.jsonl").read_text().splitlines()
        Path("rooms/questions.jsonl").write_text("\n".join(rows[:3]))
        (scan,) = Path().glob("rooms/scannet/scans/*/*.ply")
        shutil.copy(scan, "room.ply")
        Path("kitchens/scans").mkdir(parents=True)
        shutil.copy(scan, "kitchens/scans/k1.ply")
        row = {"scan": "scans/k1.ply", "dataset": "old", "question_type": "is_there", "question": "Is there a bed?"}
        Path("kitchens/questions.jsonl").write_text(json.dumps({**row, "ground_truth": "yes"}))
        run_line("roomscout eval --questions rooms/questions.jsonl --model embedded --log-root . --name RUN")
    return folder


def run_line(line: str) -> None:
    """Run a command of bash: ours inside this process, smaller."""
    words = shlex.split(line, comments=True)
    if words[:1] != ["roomscout"]:
        ended = run_command(["bash", "-ec", line])
    else:
        fast = ["--renderer", "raycast"] if words[1] in LOOKS and "--renderer" not in words else []
        ended = run_main([*words[1:], *SMALLER.get(words[1], []), *fast])
    assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


@pytest.mark.slow
@in_pages(lambda block: block.runs)
def test_the_blocks_of_a_page_run_in_order(page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    blocks = blocks_of(page)
    folder = tmp_path / "page"
    folder.mkdir()
    makes_rooms = "roomscout rooms rooms" in next(block.body for block in blocks if block.runs)
    for each in prepared.iterdir():
        if not (makes_rooms and each.name == "rooms"):
            (shutil.copytree if each.is_dir() else shutil.copy)(each, folder / each.name)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(prepared.parent / "cache"))
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        if block.file is not None:
            Path(block.file).parent.mkdir(exist_ok=True)
            Path(block.file).write_text(block.body)
        if block.runs and block.language == "python":
            exec(compile(block.body, str(page), "exec"), names)
        elif block.runs:
            for line in block.body.replace("\\\n", " ").splitlines():
                run_line(line)


@in_pages(lambda block: block.language in READ)
def test_the_files_that_a_page_shows_are_read(page: Path, tmp_path: Path):
    """Those of YAML are read by the commands of the page, but for prompts."""
    for block in blocks_of(page):
        file = tmp_path / f"file.{block.language}"
        file.write_text(block.body)
        if block.language == "csv":
            assert len(load_questions(file)) == len(block.body.splitlines()) - 1
        elif block.language == "yaml":
            assert block.file is not None
            if block.file == "prompts.yaml":
                load_prompts(file)
        elif block.language == "json":
            read_json(json.loads(block.body), file)


def read_json(content: Any, file: Path) -> None:
    """Read a file by what it has: questions, a row of one, boxes or an action; another tool reads others."""
    rows = content if isinstance(content, list) else [content]
    if "question" in rows[0]:
        file.write_text(json.dumps(rows))
        assert len(load_questions(file)) == len(rows)
    elif "objects" in rows[0]:
        assert len(read_boxes(file)) == len(rows)
    elif "done" in rows[0]:
        question = vsi_question("1", "scannet", "s", "object_counting", "How many?", ground_truth="2")
        assert parse_action(json.dumps(content), question).error is None
