"""Replays: the page in a real browser, what it says, and what is refused."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import RoomScans, run_in_process, scripted
from PIL import Image
from simple_rooms import BLUE, RED, box, scene_of

from roomscout.analysis.replay.command import main
from roomscout.rendering.geometry import Geometry, Texturing, no_faces
from roomscout.rendering.scene import make_scene
from roomscout.rendering.simplify import simplified
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
IN_A_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
FRAME = (245, 158, 11)
"""The colour of the frame around what a camera saw."""
EARLIER_RUN = Path(__file__).parent / "data" / "run_schema1" / "interrupted"


@pytest.fixture(scope="module")
def run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a scripted model that often replies badly."""
    config = rooms.config(tmp_path_factory.mktemp("run"), steps=6, image_size=(320, 192), focal=150.0)
    return run_in_process(config, scripted(3))


@pytest.fixture(scope="module")
def longest(run: Path) -> EpisodeId:
    """The episode with the most turns."""
    return max(RunReader(run).rows, key=lambda row: row.turns).episode


@pytest.fixture(scope="module")
def page(run: Path, longest: EpisodeId, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replay of that episode."""
    out = tmp_path_factory.mktemp("page") / "replay.html"
    assert main([str(run), str(longest), "--out", str(out)]) == 0
    return out


def data_of(page: Path) -> dict:
    """What a page shows."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def browse(page: Path, folder: Path, script: str = "", fragment: str = "") -> tuple[np.ndarray, str]:
    """Open a page and run a script at its end; returns a screenshot and what was logged. Leaves document.html."""
    copy = folder / "browsed.html"
    copy.write_text(page.read_text() + (f"<script>{script}</script>" if script else ""))
    assert BROWSER is not None
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--use-angle=swiftshader",
    ]
    flags += ["--enable-unsafe-swiftshader", "--window-size=1200,800", "--virtual-time-budget=10000"]
    flags += [f"--user-data-dir={folder / 'profile'}"]
    logged = []
    for output in (["--dump-dom"], [f"--screenshot={folder / 'shot.png'}"]):  # together they change the window's size
        command = [BROWSER, *flags, *output, f"{copy.as_uri()}{fragment}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        logged += [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
        if output == ["--dump-dom"]:
            (folder / "document.html").write_text(ended.stdout)
    with Image.open(folder / "shot.png") as shot:
        return np.array(shot.convert("RGB")), "\n".join(logged)


@IN_A_BROWSER
def test_the_room_through_a_turns_camera_is_what_the_model_saw(
    run: Path, longest: EpisodeId, page: Path, tmp_path: Path
):
    shot, logged = browse(page, tmp_path, "document.getElementById('through').click()", "#2")
    assert not logged
    rows, columns = np.nonzero((shot == FRAME).all(axis=2))
    drawn = shot[rows.min() + 4 : rows.max() - 3, columns.min() + 4 : columns.max() - 3]
    saw = RunReader(run).image(longest, 2)
    assert saw is not None
    small, expected = (np.array(Image.fromarray(each).resize((32, 20)), dtype=float) for each in (drawn, saw))
    assert np.median(np.abs(small - expected)) < 5 < np.median(np.abs(small[:, ::-1] - expected))


@IN_A_BROWSER
def test_the_page_draws_the_scan_and_says_what_happened_in_a_turn(page: Path, tmp_path: Path):
    shot, logged = browse(page, tmp_path, fragment="#1")
    assert not logged
    document = (tmp_path / "document.html").read_text()
    current = re.search(r'<li class="current">(.*?)</li>', document, re.DOTALL)
    assert current is not None and "Turn 1" in current[1]
    assert data_of(page)["turns"][1]["action"] in current[1]
    assert len(np.unique(shot[100:600, 100:700].reshape(-1, 3), axis=0)) > 1000
    assert 'id="failed" hidden' in document


def test_the_page_is_small_and_names_no_address(page: Path):
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.findall(r"\b(?:https?|wss?)://", text)
    assert page.stat().st_size < 4e6


def test_the_page_has_every_turn_with_what_the_parser_noted(run: Path, longest: EpisodeId, page: Path):
    turns = RunReader(run).turns(longest)
    shown = data_of(page)["turns"]
    assert [each["said"] for each in shown] == [turn.reply.text for turn in turns]
    assert [each["error"] for each in shown] == [turn.parse_error or "" for turn in turns]
    assert all(each["view"].startswith("data:image/jpeg;base64,") and each["told"] for each in shown)


@IN_A_BROWSER
def test_markup_in_a_reply_and_a_question_stays_text(run: Path, tmp_path: Path):
    copy = shutil.copytree(run, tmp_path / "run")
    evil = "</script><script>console.error('ran')</script><img src=x onerror=console.error(1)>"
    for path in (copy / "questions.jsonl", copy / "q001" / "turns.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row |= {"question": evil} if "question" in row else {"reply": row["reply"] | {"text": evil}}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main([str(copy), "1", "--out", str(tmp_path / "page.html")]) == 0
    logged = browse(tmp_path / "page.html", tmp_path)[1]
    assert not logged
    assert (tmp_path / "document.html").read_text().count("&lt;img src=x onerror=console.error(1)&gt;") >= 2


def test_missing_views_are_named_and_the_rest_is_shown(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "q001" / "render_00.png").unlink()
    assert main([str(copy), "1", "--out", str(tmp_path / "page.html")]) == 0
    assert "render_00.png is missing or damaged" in caplog.text
    first = data_of(tmp_path / "page.html")["turns"][0]
    assert (first["view"], first["no_view"]) == ("", "render_00.png is missing or damaged")


def test_a_question_is_found_by_number_folder_and_id(run: Path, tmp_path: Path):
    number, id = 3, RunReader(run).questions[2].id
    for name in (str(number), f"q{number:03d}"):
        assert main([str(run), name, "--out", str(tmp_path / f"{name}.html")]) == 0
        assert data_of(tmp_path / f"{name}.html")["question"]["id"] == id


def refused() -> Iterator[tuple[str, list[str], str]]:
    yield "no run", ["{tmp}", "1"], "is not a run folder: it has no run.json"
    yield "no such number", ["{run}", "99"], "its questions are 1 to 8"
    yield "no such id", ["{run}", "nothing"], "give a number from 1 to 8"
    yield "no such sample", ["{run}", "q001_s2"], "has no q001_s2"
    yield "an earlier version's run", [str(EARLIER_RUN), "1"], "cannot read"
    yield "a missing scan", ["{run}", "1", "--scan", "{tmp}/absent.ply"], "absent.ply, is missing: restore it"
    yield "another scan", ["{run}", "1", "--scan", "{tmp}/other.ply"], "is not the scan that q001 explored"
    yield "a file in the run", ["{run}", "1", "--out", "{run}/page.html"], "is in the run folder"
    yield "no folder to write to", ["{run}", "1", "--out", "{tmp}/absent/page.html"], "cannot be written"


@pytest.mark.parametrize(("case", "arguments", "says"), list(refused()), ids=lambda value: str(value)[:24])
def test_bad_input_is_refused_in_one_sentence(
    case: str, arguments: list[str], says: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "other.ply").write_text("another scan")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main([each.format(run=run, tmp=tmp_path) for each in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line, case
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_damaged_line_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    copy = shutil.copytree(run, tmp_path / "run")
    journal = copy / "q001" / "turns.jsonl"
    journal.write_text("{}\n" + journal.read_text())
    assert main([str(copy), "1", "--out", str(tmp_path / "page.html")]) == 2
    assert "turns.jsonl, line 1 is damaged" in capsys.readouterr().err


def test_an_earlier_versions_run_replays_where_its_questions_and_scan_are(tmp_path: Path):
    copy = shutil.copytree(EARLIER_RUN, tmp_path / "run")
    facts = json.loads((copy / "run.json").read_text())
    rooms = EARLIER_RUN.parent / "rooms"
    facts["config"] |= {"questions": str(rooms / "questions.jsonl"), "scan_root": str(rooms)}
    (copy / "run.json").write_text(json.dumps(facts))
    assert main([str(copy), "q003", "--out", str(tmp_path / "page.html")]) == 0
    assert len(data_of(tmp_path / "page.html")["turns"]) == len(RunReader(copy).turns(EpisodeId(3)))


def test_the_file_for_rerun_is_written_or_the_package_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    try:
        import rerun  # noqa: F401
    except ImportError:
        assert main([str(run), "1", "--rrd", "--out", str(tmp_path / "q.rrd")]) == 2
        assert 'pip install "roomscout[report]"' in capsys.readouterr().err
    else:
        assert main([str(run), "1", "--rrd", "--out", str(tmp_path / "q.rrd")]) == 0
        assert (tmp_path / "q.rrd").read_bytes()[:3] == b"RRF"


def test_a_simplified_scan_keeps_places_and_colours():
    scene = scene_of(
        box((0, 0, 0), (6, 5, 2.5)), *(box((x, 1, 0), (x + 0.1, 1.1, 0.1), RED) for x in np.arange(1, 5, 0.2))
    )
    found = simplified(scene, 100)
    assert 0 < len(found.faces) <= 100 < len(scene.faces)
    assert found.cell_m > 0
    assert np.abs(np.sort(found.vertices.max(axis=0)) - [2.5, 5, 6]).max() < 2 * found.cell_m
    assert (found.colours[:, 0].astype(int) - found.colours[:, 1] > 100).any()


def test_textures_become_colours_and_clouds_stay_points():
    corners = np.array([[0, 0, 0], [4, 0, 0], [0, 4, 2]], dtype=np.float32)
    uv = np.zeros((1, 3, 2), dtype=np.float32)
    texturing = Texturing(uv, np.array([0], dtype=np.int32), (np.full((4, 4, 3), BLUE, dtype=np.uint8),))
    textured = make_scene("textured", Geometry(corners, np.array([[0, 1, 2]], dtype=np.int32), texturing=texturing))
    assert (simplified(textured, 10).colours == BLUE).all()
    points = np.random.default_rng(0).random((500, 3), dtype=np.float32) * 4
    cloud = simplified(make_scene("cloud", Geometry(points, no_faces())), 200)
    assert len(cloud.faces) == 0 < len(cloud.vertices) <= 200
