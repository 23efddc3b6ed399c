"""Replays in 3D: the page in headless Chromium, which answers are found, and what is refused."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import OpenPage
from conftest import RoomScans
from PIL import Image
from test_report import MARKUP, contents_of, poisoned

from roomscout.command.main import main
from roomscout.data.boxes import ObjectBox, named_in, read_boxes
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, ResultRow, Turn

ORANGE = (234, 115, 13)
"""The colour of the current turn's camera."""
PURPLE = (199, 33, 184)
"""The colour of the boxes."""


@pytest.fixture(scope="module")
def row(one_run: Path) -> ResultRow:
    """The answer with the most turns."""
    return max(RunReader(one_run).rows, key=lambda each: each.turns)


@pytest.fixture(scope="module")
def turns(one_run: Path, row: ResultRow) -> list[Turn]:
    return RunReader(one_run).turns(row.episode)


@pytest.fixture(scope="module")
def replay(one_run: Path, row: ResultRow, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replay of that answer, outside its run."""
    out = tmp_path_factory.mktemp("replay") / "replay.html"
    assert main(["replay", str(one_run), row.folder, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def named(one_run: Path, six_rooms: RoomScans) -> tuple[str, list[ObjectBox]]:
    """The answer to a question that names objects, and their boxes."""
    boxes = read_boxes(six_rooms.root / "rooms.json")
    for row in RunReader(one_run).rows:
        if found := named_in(" ".join([row.question, *row.options]), boxes[row.scene_name]):
            return row.folder, found
    raise AssertionError("no question names an object")


@pytest.fixture(scope="module")
def shown(browser: Any, replay: Path) -> Iterator[OpenPage]:
    """The replay in a browser; afterwards nothing may have gone wrong."""
    opened = open_replay(browser, replay)
    yield opened
    opened.page.close()
    assert not problems_of(opened)


def problems_of(opened: OpenPage) -> list[str]:
    """What went wrong in a page, but not that a screenshot waits for a software renderer."""
    return [problem for problem in opened.problems if "GPU stall due to ReadPixels" not in problem]


def open_replay(browser: Any, page: Path, fragment: str = "", **options: Any) -> OpenPage:
    opened = OpenPage(browser, page.as_uri() + fragment, **options)
    opened.page.wait_for_selector("body[data-drawn]")
    return opened


def go_to(shown: OpenPage, turn: int) -> None:
    """Move the slider to a turn, seen from outside."""
    shown.page.click("#overview")
    shown.page.fill("#slider", str(turn))


def drawn(shown: OpenPage, selector: str) -> Image.Image:
    """What the page shows of an element."""
    shown.drawn()
    return Image.open(io.BytesIO(shown.page.locator(selector).screenshot())).convert("RGB")


def test_the_slider_moves_the_camera_and_shows_what_the_model_saw(turns: list[Turn], shown: OpenPage):
    for turn in turns[:2]:
        go_to(shown, turn.turn)
        shown.page.click("#through")
        seen = drawn(shown, "#frame")
        ours, saw = (
            np.array(each.crop((3, 3, each.width - 3, each.height - 3)).resize((32, 20)), dtype=float)
            for each in (seen, Image.fromarray(turn.view).resize(seen.size))
        )
        assert np.median(np.abs(ours - saw)) < 5
        assert np.median(np.abs(ours[:, ::-1] - saw)) > 10 or np.ptp(saw) < 40


def test_the_current_turn_has_the_orange_camera_at_its_place(turns: list[Turn], shown: OpenPage):
    middles = []
    for turn in (turns[0], turns[-1]):
        go_to(shown, turn.turn)
        rows, columns = np.nonzero(np.abs(np.array(drawn(shown, "#room"), dtype=int) - ORANGE).max(axis=2) < 12)
        assert len(rows) > 20
        middles.append((rows.mean(), columns.mean()))
    assert turns[0].pose != turns[-1].pose
    assert np.abs(np.subtract(*middles)).max() > 2


def test_the_conversation_has_what_was_asked_said_noted_and_done(row: ResultRow, turns: list[Turn], shown: OpenPage):
    assert shown.page.inner_text("#asked") == row.question
    assert shown.page.locator("#turns > li > pre").all_text_contents() == [
        turn.reply.text for turn in turns if turn.reply.text
    ]
    said = shown.page.inner_text("#turns")
    for turn in turns:
        assert turn.action.in_words in said and turn.camera_in_words in said and (turn.parse_error or "") in said


def purple_pixels(shown: OpenPage) -> int:
    """How many pixels of the room have the colour of the boxes."""
    return int((np.abs(np.array(drawn(shown, "#canvas"), dtype=int) - PURPLE).max(axis=2) < 12).sum())


def test_the_objects_that_the_question_names_have_boxes_that_can_be_hidden(
    one_run: Path, named: tuple[str, list[ObjectBox]], browser: Any, tmp_path: Path
):
    name, boxes = named
    assert main(["replay", str(one_run), name, "--out", str(tmp_path / "named.html")]) == 0
    opened = open_replay(browser, tmp_path / "named.html", color_scheme="dark")
    labels = opened.page.locator("#labels .object:visible")
    assert sorted(labels.all_inner_texts()) == sorted(box.category for box in boxes)
    assert purple_pixels(opened) > 50 * len(boxes)
    opened.page.uncheck("#objects")
    assert purple_pixels(opened) == 0 and labels.count() == 0
    opened.page.close()
    assert not problems_of(opened)


def test_the_address_names_a_turn_and_a_phone_shows_all_in_its_width(browser: Any, replay: Path):
    opened = open_replay(browser, replay, "#1", viewport={"width": 390, "height": 844}, color_scheme="dark")
    assert opened.page.inner_text("#turns .current h2").startswith("Turn 1")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    opened.page.close()
    assert not problems_of(opened)


@pytest.fixture
def copied(one_run: Path, tmp_path: Path) -> Path:
    """A run to damage."""
    return shutil.copytree(one_run, tmp_path / "run")


def test_markup_in_texts_of_a_run_stays_text(copied: Path, browser: Any):
    poisoned(copied)
    chosen = next(row.folder for row in RunReader(copied).rows if MARKUP in row.question)
    assert main(["replay", str(copied), chosen]) == 0
    opened = open_replay(browser, copied / f"replay_{chosen}.html")
    assert opened.page.inner_text("#talk").count("<script>window.hacked = true</script>") >= 4
    assert opened.page.evaluate("window.hacked") is None
    opened.page.close()
    assert not problems_of(opened)


def test_a_replay_is_the_only_new_file_in_its_run_and_the_report_links_it(copied: Path, row: ResultRow):
    from roomscout.analysis.report.writer import write_report

    before = contents_of(copied)
    assert main(["replay", str(copied), row.folder]) == 0
    after = contents_of(copied)
    assert after.pop(f"replay_{row.folder}.html")
    assert after == before
    data = write_report(copied).path.with_name("report_files") / "data"
    others = next(each.folder for each in RunReader(copied).rows if each.folder != row.folder)
    assert f'"replay":"replay_{row.folder}.html"' in (data / f"{row.folder}.js").read_text()
    assert f"roomscout replay {copied} {others}" in (data / f"{others}.js").read_text()


@pytest.mark.parametrize("form", ["folder", "number", "id"])
def test_an_answer_is_found_by_folder_number_and_id(copied: Path, form: str):
    questions = [json.loads(line) for line in (copied / "questions.jsonl").read_text().splitlines()]
    for place, question in enumerate(questions):
        question["id"] = f"question-{place}"
    (copied / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    name = {"folder": "q003", "number": "3", "id": "question-2"}[form]
    assert main(["replay", str(copied), name]) == 0
    assert (copied / "replay_q003.html").is_file()


def test_a_scan_that_has_moved_is_found_below_a_scan_root(copied: Path, tmp_path: Path):
    recorded = RunReader(copied).turns(RunReader(copied).begun[0])[0].scan
    assert recorded is not None
    moved = tmp_path / "moved" / "scans" / Path(recorded.file).parent.name
    moved.mkdir(parents=True)
    shutil.copy(recorded.file, moved)
    journal = copied / "q001" / "turns.jsonl"
    journal.write_text(journal.read_text().replace("_vh_clean_2.ply", "_gone.ply"))
    assert main(["replay", str(copied), "q001", "--scan-root", str(tmp_path / "moved")]) == 0


def refusals() -> Iterator[tuple[str, str]]:
    yield "{tmp} q001", "is not a run folder: it has no run.json"
    yield "{run} q099", "has no q099: its questions are q001 to q021"
    yield "{run} q001_s2", "has no q001_s2"
    yield "{run} nothing", "has no question nothing: give a folder such as q001, or the id of a question, such as"
    yield "{run} q001 --out {tmp}/run.json", "name a file that ends in .html"
    yield "{run} q001 --out {tmp}/q.html --rrd", "name a file that ends in .rrd"
    yield "{run} q001 --out {tmp}/file/page.html", "cannot be made"
    yield "{run} q001 --scan-root {tmp}", "no scan of scannet"
    yield "{run} q001 --scan-root {tmp}/absent", "is not a folder"


@pytest.mark.parametrize(("arguments", "words"), list(refusals()))
def test_bad_input_is_refused_in_one_sentence(one_run: Path, tmp_path: Path, arguments: str, words: str, capsys: Any):
    (tmp_path / "file").write_text("not a folder")
    places = {"run": one_run, "tmp": tmp_path}
    assert main(["replay", *(each.format(**places) for each in arguments.split())]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


class Recording:
    """A file for rerun, as rerun's own code reads it."""

    def __init__(self, run: Path, name: str, out: Path):
        chunk = pytest.importorskip("rerun.chunk", reason='rerun-sdk is not installed: pip install "roomscout[report]"')
        assert main(["replay", str(run), name, "--rrd", "--out", str(out)]) == 0
        self._chunks = chunk.RrdReader(out).stream().to_chunks()

    @property
    def entities(self) -> set[str]:
        """The paths of what is in the file, but not of what rerun notes about the file."""
        paths = {chunk.entity_path.replace("\\ ", " ") for chunk in self._chunks}
        return {path for path in paths if not path.startswith("/__")}

    def values(self, entity: str, component: str) -> dict[int | None, Any]:
        """The values of a component by turn; None is the turn of a value that does not change."""
        found = {}
        for chunk in self._chunks:
            if chunk.entity_path.replace("\\ ", " ") == entity:
                columns = chunk.to_record_batch().to_pydict()
                if component in columns:
                    turns = columns.get("turn", [None] * len(columns[component]))
                    found |= dict(zip(turns, (cell[0] for cell in columns[component]), strict=True))
        return found


@pytest.fixture(scope="module")
def recording(one_run: Path, named: tuple[str, list[ObjectBox]], tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The recording of the answer to a question that names objects."""
    return Recording(one_run, named[0], tmp_path_factory.mktemp("rerun") / "replay.rrd")


@pytest.fixture(scope="module")
def recorded(one_run: Path, named: tuple[str, list[ObjectBox]]) -> list[Turn]:
    """The turns of that answer."""
    return RunReader(one_run).turns(EpisodeId.parse(named[0]))


def test_rerun_reads_the_scan_the_path_and_the_conversation(recording: Recording, recorded: list[Turn]):
    fixed = {"/room", "/room/scan", "/room/path", "/room/camera", "/room/camera/view", "/question", "/conversation"}
    assert {path for path in recording.entities if not path.startswith("/room/objects/")} == fixed
    said = recording.values("/conversation", "TextDocument:text")
    assert list(said) == [turn.turn for turn in recorded]
    assert all(turn.reply.text in said[turn.turn] for turn in recorded)


def test_rerun_reads_the_camera_and_its_view_in_each_turn(recording: Recording, recorded: list[Turn]):
    places = recording.values("/room/camera", "Transform3D:translation")
    images = recording.values("/room/camera/view", "EncodedImage:blob")
    assert list(places) == list(images) == [turn.turn for turn in recorded]
    for turn in recorded:
        assert places[turn.turn] == pytest.approx(turn.pose.position, abs=1e-5)
        image = Image.open(io.BytesIO(bytes(images[turn.turn])))
        assert np.abs(np.array(image, dtype=float) - turn.view).mean() < 5
