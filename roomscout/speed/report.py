"""Measures the report of a large run: seconds to write and to follow it, its size, and when Chromium paints it.

    python -m roomscout.speed.report
    python -m roomscout.speed.report --questions 5000 --keep run_5000

Makes a run folder of many questions from a small run on procedural rooms with five turns each: their turns and views
are repeated under new numbers, views as hard links. With --keep, the folder stays.
"""

import argparse
import json
import logging
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from roomscout.agent.config import RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies.model import ModelPolicy
from roomscout.analysis.report.writer import files_folder, write_report
from roomscout.analysis.serve.live import LiveRun
from roomscout.data.questions import Question
from roomscout.models import Reply, ReplyFormat
from roomscout.models.conversation import Conversation
from roomscout.rooms import QUESTIONS_FILE, write_rooms
from roomscout.runs.reader import QUESTIONS_FILE as RUN_QUESTIONS
from roomscout.runs.reader import RunReader
from roomscout.runs.writer import RunWriter

TURNS = 5
TOKENS = 120
"""The length of a reply, as those of 8B models that think briefly."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PAINTS = "performance.getEntriesByType('paint').map(each => [each.name, each.startTime])"


class WordyBackend:
    """Replies of a usual length, with token ids."""

    concurrent = False
    name = "wordy"

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order."""
        tokens = tuple(range(TOKENS))
        return [
            Reply(_reply(each), tokens=tokens, prompt_tokens=1800, generated_tokens=TOKENS) for each in conversations
        ]

    def release(self, conversation: Conversation) -> None:
        """Does nothing: nothing is cached."""

    def peak_memory_bytes(self) -> int:
        """0: no device is used."""
        return 0

    def close(self) -> None:
        """Does nothing: no work outlives a call."""


def _reply(conversation: Conversation) -> str:
    """Looks around and walks, and answers in the last turn."""
    views = len(conversation.shots)
    said = "I see a desk with a lamp and two chairs by the window, and I have not seen the far corner yet. " * 4
    turn = 15 * (zlib.crc32(conversation.messages[-1].text.encode()) % 24) - 180
    done = views == TURNS
    return said + json.dumps(
        {
            "rotation_angle_degrees": 0 if done else turn,
            "forward_meters": 0 if done else 1.5,
            "left_meters": 0,
            "z_delta_meters": 0,
            "answer": ("2" if "How many" in conversation.messages[-1].text else "A") if done else None,
            "done": done,
        }
    )


def make_run(folder: Path, questions: int, rooms: int, image_size: tuple[int, int]) -> Path:
    """A run of so many questions below `folder`; returns its folder."""
    scans = folder / "rooms"
    write_rooms(scans, rooms=rooms, seed=0)
    config = RunConfig.of(
        batch=True, questions=scans / QUESTIONS_FILE, scan_root=scans, log_root=folder / "small", renderer="raycast",
        image_size=image_size, focal=300 * image_size[0] / 640, max_batched_turns="all", steps=TURNS - 1,
        num_questions=min(questions, 12 * rooms),
    )  # fmt: skip
    small = main_vsi_bench_loop(config, policy=ModelPolicy(WordyBackend()), show_progress=False).folder
    assert small is not None
    return repeated(small, folder / "large", questions)


def repeated(small: Path, large: Path, questions: int) -> Path:
    """A finished run like `small` with its answers repeated under new numbers until there are so many."""
    reader = RunReader(small)
    facts, rows, asked = reader.facts, reader.rows, reader.questions
    large.mkdir()
    whole: list[Question] = []
    run = RunWriter(large, "the same command")
    lines = []
    for number in range(1, questions + 1):
        row, question = rows[(number - 1) % len(rows)], asked[(number - 1) % len(rows)]
        whole.append(replace(question, id=str(number)))
        copied = replace(row, number=number, id=str(number), folder=f"q{number:03d}")
        lines.append(json.dumps(copied.to_json()) + "\n")
        target = large / copied.folder
        target.mkdir()
        for file in (small / str(row.episode)).iterdir():
            if file.suffix == ".png":
                (target / file.name).hardlink_to(file)
            else:
                shutil.copyfile(file, target / file.name)
    run.save_questions(whole)
    run.describe(replace(facts, questions=questions))
    run.close()
    (large / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    assert (large / RUN_QUESTIONS).is_file()
    return large


def main() -> None:
    """Make a run and its report, and print times and sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--rooms", type=int, default=8)
    parser.add_argument("--image-size", type=int, nargs=2, default=(640, 480), metavar=("W", "H"))
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="make the run in this new folder, and leave it there"
    )
    args = parser.parse_args()
    logging.getLogger("roomscout").setLevel(logging.ERROR)
    with ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=args.keep is None)
        run = make_run(folder, args.questions, args.rooms, tuple(args.image_size))
        for which in ("first report", "again, maps kept"):
            started = time.perf_counter()
            report = write_report(run).path
            print(f"{args.questions} questions, {TURNS} turns each: {which} {time.perf_counter() - started:.1f} s")
        print_serving(run, folder / "served_maps")
        files = files_folder(report)
        index = [report, *(files / "assets").iterdir(), files / "data" / "index.js"]
        print(f"index, the page and all that it loads at start: {_mb(index):.2f} MB")
        print(f"pages of the questions: {_mb((files / 'data').iterdir()):.1f} MB")
        print(f"maps: {_mb((files / 'maps').iterdir()):.1f} MB")
        print_paint(report)


def print_serving(run: Path, maps: Path) -> None:
    """Print what `roomscout serve` takes to read a run first, and to look for changes: with none, and with a result."""
    live = LiveRun(run, maps)
    lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "results.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    for which in ("first reading", "nothing new", "one new result"):
        if which == "one new result":
            with (run / "results.jsonl").open("a", encoding="utf-8") as results:
                results.write(lines[-1])
        started = time.process_time()
        live.look()
        print(f"serve: {which} {time.process_time() - started:.3f} s")


def _mb(paths: Iterable[Path]) -> float:
    return sum(path.stat().st_size for path in paths) / 1e6


def print_paint(report: Path) -> None:
    """Open a report in Chromium three times, and print when it was painted and its table was there."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        print("Chromium is not installed: no times of painting")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for _ in range(3):
            page = browser.new_page()
            page.goto(report.as_uri(), wait_until="commit")
            page.wait_for_selector("#table .tabulator-row")
            table_ms = page.evaluate("performance.now()")
            paints = ", ".join(f"{name} {at:.0f} ms" for name, at in page.evaluate(PAINTS))
            print(f"Chromium: {paints}, table {table_ms:.0f} ms")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
