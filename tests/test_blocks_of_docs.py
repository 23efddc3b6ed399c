"""Each block of code in the documentation is run or read from its page, or says in its first line what it needs.

A block of bash or python whose first line is `# needs ...` is not run; nor is text, which shows outputs and layouts.
Blocks of a page run in order in one folder, which has rooms, a scan and the run RUN, unless the page begins with them.
A server on loopback answers in place of each that a block names, and a tiny checkpoint in place of Qwen3-VL.
"""

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from conftest import COMMAND, made_once, run_command, run_main, served_by_the_command, vsi_question
from faulty_servers import FaultyServer, scripted
from untrained_checkpoints import write_untrained_checkpoint
from waiting import PATIENCE_S

from roomscout.agent.policies.prompts import load_prompts
from roomscout.agent.policies.replies import parse_action
from roomscout.data.boxes import read_boxes
from roomscout.data.questions import load_questions
from roomscout.rooms import ScanStyle, make_room
from roomscout.runs.reader import RunReader

ROOT = COMMAND.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOW_TO = "docs/development/architecture.md"
PAGES.remove(ROOT / "docs" / "development" / "notes.md")
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"(?:#!.*\n)?# needs (.+)")
COMMANDS = re.compile(r"^(?:roomscout|python|pip|make|git|docker) ", re.MULTILINE)
RUN = ("bash", "python")
READ = ("json", "yaml", "csv")
SHOWN = ("text", "bibtex")
PART = re.compile(r"# in (\S+)\n")
MOST_NOT_RUN = 35
"""Blocks with `# needs`: whoever adds one raises this number, and says why."""
LOOKS = ("ask", "eval", "play")
PAGES_SERVED = {"serve": ["--port", "0"], "play": ["--address", "127.0.0.1:0"]}
"""The verbs that end when they are interrupted, with flags for a free port of any computer."""
SERVERS = re.compile(r"https?://(?:localhost:8000|gpu\d:8000|HOST|api\.openai\.com)/v1")
CHECKPOINTS = re.compile(r"--model Qwen/Qwen3-VL-\dB-Instruct(?! +--base-url)")
SMALLER = {
    "rooms": ["--rooms", "1", "--resolution", "0.2"],
    "ask": ["--steps", "3"],
    "eval": ["--num-questions", "1", "--steps", "3", "--no-report"],
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
        return self.language in RUN and not NEEDS.match(self.body) and not PART.match(self.body)

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
    assert len([block for block in blocks if NEEDS.match(block.body)]) <= MOST_NOT_RUN


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rooms, few questions, a scan, what a folder of a benchmark has, and the run RUN."""

    def make(folder: Path) -> None:
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

    return made_once(tmp_path_factory, "prepared", make)


def run_line(line: str) -> None:
    """Run a command of bash: ours inside this process, smaller, and one that serves a page until it is read."""
    words = shlex.split(line, comments=True)
    if words[:1] != ["roomscout"]:
        ended = run_command(["bash", "-ec", line])
    else:
        fast = ["--renderer", "raycast"] if words[1] in LOOKS and "--renderer" not in words else []
        words = [*words[1:], *SMALLER.get(words[1], []), *fast]
        ended = read_page(words) if words[0] in PAGES_SERVED else run_main(words)
    assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


def read_page(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Start a command that serves a page, read the page, and interrupt the command."""
    with served_by_the_command(*words, *PAGES_SERVED[words[0]]) as (process, said):
        address = re.search(r"http://127\S+", said)
        assert address is not None, said
        with urlopen(address[0], timeout=PATIENCE_S) as page:
            assert "<html" in page.read().decode()
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode in (0, 130), printed
    return subprocess.CompletedProcess(words, 0, printed, "")


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Names servers and checkpoints that are here in place of those of a block."""
    tiny = write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny")
    with FaultyServer(scripted(lambda chat: '{"answer": "2", "done": true}')) as server:

        def here(body: str) -> str:
            return CHECKPOINTS.sub(f"--model {tiny} --max-new-tokens 8", SERVERS.sub(server.url, body))

        yield here


@pytest.mark.slow
@in_pages(lambda block: block.runs)
def test_the_blocks_of_a_page_run_in_order(
    page: Path,
    prepared: Path,
    stand_ins: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    blocks = blocks_of(page)
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    makes_rooms = "roomscout rooms rooms" in next(block.body for block in blocks if block.runs)
    for each in prepared.iterdir():
        if not (makes_rooms and each.name == "rooms"):
            (shutil.copytree if each.is_dir() else shutil.copy)(each, folder / each.name)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        if block.file is not None:
            Path(block.file).parent.mkdir(exist_ok=True)
            Path(block.file).write_text(block.body)
        if block.runs and block.language == "python":
            exec(compile(stand_ins(block.body), str(page), "exec"), names)
        elif block.runs:
            for line in stand_ins(block.body.replace("\\\n", " ")).splitlines():
                run_line(line)


def with_part(module: str, *places: tuple[str, str]) -> dict[str, Any]:
    """The names of a module of ours with text put in place of other text."""
    source = (ROOT / "roomscout" / module).read_text()
    for before, after in places:
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    names: dict[str, Any] = {"__name__": module}
    exec(compile(source, module, "exec"), names)
    return names


def part_of(page: str, module: str) -> str:
    """The block that a page puts into a module of ours, or a function of one."""
    found = [PART.sub("", block.body) for block in blocks_of(ROOT / page) if block.body.startswith(f"# in {module}\n")]
    (body,) = found
    return body


def test_a_question_type_that_is_added_as_documented_is_asked():
    types, _, functions = part_of(HOW_TO, "rooms/questions.py").partition("\n")
    drafters = "_DRAFTERS: dict"
    names = with_part(
        "rooms/questions.py",
        ("MORE_TYPES: Mapping[str, Mapping[str, str]] = {}", types),
        (drafters, f"{functions}\n\n{drafters}"),
        ("_route_planning,\n}", '_route_planning,\n    "object_top": _object_top,\n}'),
    )
    room = make_room(1, 0, ScanStyle(resolution_m=0.5))
    (row,) = [row for row in names["room_questions"](room, 3, names["ASKED_PER_TYPE"]) if "unit" in row]
    top = re.fullmatch(r"How high above the floor is the top of the (.+), in centimeters\?", row["question"])
    assert top is not None and (row["question_type"], row["unit"]) == ("object_top", "cm")
    (asked,) = [each.box for each in room.unique_objects if each.category == top[1]]
    assert float(row["ground_truth"]) == pytest.approx(100 * (asked.center[2] + asked.size[2] / 2), abs=0.5)


def test_a_column_that_is_added_as_documented_is_exported(one_run: Path):
    end = "    return summary, [more"
    body = textwrap.indent(part_of(HOW_TO, "exports_of"), "    ")
    names = with_part("runs/export.py", (end, body + end), ("*COST_COLUMNS)\n", '*COST_COLUMNS, "walked_m")\n'))
    reader = RunReader(one_run)
    _, more = names["exports_of"](reader, reader.rows, reader.sessions)
    table = names["as_csv"]([row.to_json() | column for row, column in zip(reader.rows, more, strict=True)])
    walked = [float(row["walked_m"]) for row in csv.DictReader(io.StringIO(table))]
    assert len(walked) == len(reader.rows) and max(walked) > 0


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
