"""The report of a run: what it says, in headless Chromium, and what it writes."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, OpenPage
from conftest import RoomScans, made_once, run_in_process
from planned import settings_of

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.maps import map_of
from roomscout.analysis.report.scores import score_table
from roomscout.analysis.report.writer import write_report
from roomscout.analysis.titles import title_of
from roomscout.command.main import main
from roomscout.command.reports import complete, write_after_run
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.boxes import ObjectBox
from roomscout.edge.settings import Settings
from roomscout.envs.actions import CameraAction
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.motion import MoveOutcome
from roomscout.rendering.top_down import PlanArea
from roomscout.runs.export import ONLY_WITH
from roomscout.runs.reader import RunReader
from roomscout.runs.records import Turn
from roomscout.scoring.headline import Headline
from roomscout.scoring.intervals import INTERVAL
from roomscout.scoring.scores import Baseline

MARKUP = "<script>window.hacked = true</script><img src=x onerror='window.hacked = true'><!-- \u2028 </script>"


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens an address; afterwards nothing may have gone wrong in any page."""
    pages: list[OpenPage] = []

    def open_page(path: Path, fragment: str = "", **options: Any) -> OpenPage:
        pages.append(OpenPage(browser, path.as_uri() + fragment, **options))
        return pages[-1]

    yield open_page
    problems = [problem for each in pages for problem in each.problems]
    for each in pages:
        each.page.close()
    assert not problems


@pytest.fixture(scope="session")
def reported(one_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the six rooms, outside their run."""
    name = "six rooms.html"
    return made_once(tmp_path_factory, "report", lambda folder: write_report(one_run, folder / name)) / name


@pytest.fixture
def copied(one_run: Path, tmp_path: Path) -> Path:
    """A run to damage."""
    return shutil.copytree(one_run, tmp_path / "run")


def rows_of(run: Path) -> list[Any]:
    return RunReader(run).rows


def test_filters_by_outcome_and_turns_add_up(one_run: Path, reported: Path, opened: Any):
    shown, rows = opened(reported), rows_of(one_run)
    shown.page.select_option("select[name=outcome]", "below")
    shown.page.fill("input[name=to]", "2")
    assert shown.names() == [row.folder for row in rows if row.score < 1 and row.turns <= 2]


def test_a_link_below_the_scores_shows_the_answers_below_full_score(one_run: Path, reported: Path, opened: Any):
    shown = opened(reported)
    shown.names()
    shown.page.click("#scores .note a")
    shown.until("document.getElementById('count').value !== '' && location.hash.includes('below')")
    assert shown.names() == [row.folder for row in rows_of(one_run) if row.score < 1]


@pytest.mark.slow
def test_a_click_on_a_heading_sorts_and_the_address_keeps_it(one_run: Path, reported: Path, opened: Any):
    shown = opened(reported)
    shown.page.set_viewport_size({"width": 1280, "height": 2000})  # the table draws only rows that fit
    for _ in range(2):  # ascending, then descending
        shown.page.click(".tabulator-col[tabulator-field=turns]")
    turns = {row.folder: row.turns for row in rows_of(one_run)}
    assert [turns[name] for name in shown.names()] == sorted(turns.values(), reverse=True)
    again = opened(reported, shown.page.evaluate("location.hash"))
    assert again.names() == shown.names()[: len(again.names())]


def test_a_question_page_shows_what_was_asked_seen_said_and_done(one_run: Path, reported: Path, opened: Any):
    row = max(rows_of(one_run), key=lambda each: each.turns)
    shown = opened(reported, f"#{row.folder}")
    assert shown.heading() == row.folder
    assert shown.page.inner_text(".asked") == row.question
    text = shown.page.inner_text("#question .columns")
    assert f"{one_run.name}/{row.folder}" in text and str(one_run.parent) not in text
    turns = RunReader(one_run).turns(row.episode)
    assert shown.page.locator(".turn").count() == len(turns) == row.turns
    assert shown.page.locator(".turn h3").all_inner_texts() == [
        f"Turn {turn.turn}\n{turn.action.in_words}" for turn in turns
    ]
    shown.page.locator(".turn img").last.scroll_into_view_if_needed()
    width = "[...document.querySelectorAll('.turn img')].at(-1).naturalWidth"
    shown.until(f"{width} === 160")


@pytest.mark.slow
def test_arrow_keys_go_to_the_wrong_questions_and_escape_back_to_the_table(one_run: Path, reported: Path, opened: Any):
    wrong = [row.folder for row in rows_of(one_run) if row.score < 1][:4]
    shown = opened(reported, f"#{wrong[0]}")
    seen = [shown.heading()]
    for name in wrong[1:]:
        shown.page.keyboard.press("ArrowRight")
        shown.until_heading(name)
        seen.append(shown.heading())
    assert seen == wrong
    shown.page.keyboard.press("ArrowLeft")
    shown.until_heading(wrong[-2])
    shown.page.keyboard.press("Escape")
    shown.page.locator("#table .tabulator-row").first.wait_for()


def test_a_phone_shows_the_table_without_scrolling_sideways(reported: Path, opened: Any):
    page = opened(reported, viewport={"width": 390, "height": 844}).page
    page.wait_for_selector("#table .tabulator-row")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_one_file_holds_everything(one_run: Path, tmp_path: Path, opened: Any):
    written = write_report(one_run, tmp_path / "mail.html", embed=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mail.html"]
    row = rows_of(one_run)[-1]
    shown = opened(written.path, f"#{row.folder}")
    assert shown.heading() == row.folder
    shown.until("document.querySelector('.turn img').naturalWidth === 160")
    assert shown.page.get_attribute(".map image", "href").startswith("data:image/png")


def test_one_file_names_no_folder_of_the_machine_and_not_the_machine(copied: Path, tmp_path: Path):
    facts = json.loads((copied / "run.json").read_text())
    root = Path(facts["config"]["scan_root"])
    urls = {
        "model": "acme/vl",
        "policy": None,
        "engine": "openai",
        "base_url": ["http://gpu-node-7:8000/v1", "https://api.example.org/v1"],
    }
    config = facts["config"] | urls
    (copied / "run.json").write_text(json.dumps(facts | {"host": "gpu-node-7", "config": config}))
    shutil.rmtree(copied / "q001")
    text = write_report(copied, tmp_path / "mail.html", embed=True).path.read_text()
    text = re.sub('base64,[^)"]*', "", text)
    assert not re.findall(rf"{tmp_path}|{root.parent}/|gpu-node-7|{Path.home()}/", text)
    assert f"<dd>{root.name}</dd>" in text and "http://host:8000/v1, https://api.example.org/v1" in text
    assert f"roomscout replay {copied.name} q002" in text
    beside = write_report(copied, tmp_path / "report.html").path.read_text()
    assert str(root) in beside and "on gpu-node-7" in beside


def poisoned(run: Path) -> None:
    """Put markup into a question, an option, a scene's name and a reply of a run."""
    questions = run / "questions.jsonl"
    rows = [json.loads(line) for line in questions.read_text().splitlines()]
    answers = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    chosen = answers[0]["number"]
    for row in (rows[chosen - 1], *(answer for answer in answers if answer["number"] == chosen)):
        row["question"], row["scene_name"] = f"Where? {MARKUP}", f"scene {MARKUP}"
        row["options"] = [f"A. {MARKUP}", "B. no"]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "results.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    journal = run / f"q{chosen:03d}" / "turns.jsonl"
    turns = [json.loads(line) for line in journal.read_text().splitlines()]
    turns[0]["reply"]["text"] = f"I see. {MARKUP} \x1b[2J"
    journal.write_text("".join(json.dumps(turn) + "\n" for turn in turns))


@pytest.mark.parametrize("embed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_markup_in_texts_of_a_run_stays_text(copied: Path, opened: Any, embed: bool):
    poisoned(copied)
    written = write_report(copied, embed=embed)
    chosen = next(row for row in rows_of(copied) if "<script>" in row.question)
    shown = opened(written.path)
    assert chosen.folder in shown.names()
    shown.page.goto(written.path.as_uri() + f"#{chosen.folder}")
    assert shown.heading() == chosen.folder
    said = shown.page.inner_text("#question")
    assert said.count("<script>window.hacked = true</script>") >= 4
    assert "\\x1b[2J" in said
    assert shown.page.evaluate("window.hacked") is None


def test_a_report_changes_nothing_else_in_the_run(copied: Path):
    before = contents_of(copied)
    write_report(copied)
    after = contents_of(copied)
    added = after.keys() - before.keys()
    assert {name.split("/")[0] for name in added} == {"report.html", "report_files"}
    assert {name: after[name] for name in before} == before


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_without_a_scan_the_path_has_a_map_of_its_own(copied: Path, opened: Any):
    journal = copied / "q001" / "turns.jsonl"
    journal.write_text(journal.read_text().replace("_vh_clean_2.ply", "_gone.ply"))
    written = write_report(copied)
    assert any("q001: The map has no floor plan" in sentence for sentence in written.missing)
    page = opened(written.path, "#q001").page
    page.wait_for_selector(".map .pose")
    assert page.locator(".map image").count() == 0


def test_a_folder_that_is_not_a_run_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} is not a run folder: it has no run.json\n"


def test_a_run_ends_with_its_report(rooms: RoomScans, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    run = run_in_process(rooms.config(tmp_path, num_questions=2, steps=1))
    from roomscout.agent.session import Outcome

    rows = rows_of(run)
    with caplog.at_level("INFO"):
        assert complete(Outcome(0, rows, run), settings_of(report=False)) == 0
        assert complete(Outcome(0, rows[:1], run), Settings()) == 0
        assert not (run / "report.html").exists()
        assert complete(Outcome(1, rows, run), Settings()) == 1
    assert f"Report: {run}/report.html" in caplog.text


def test_a_report_that_fails_does_not_fail_the_run(copied: Path, caplog: pytest.LogCaptureFixture):
    (copied / "report_files").write_text("in the way")
    write_after_run(copied)
    assert "without its report" in caplog.text and f"roomscout report {copied}" in caplog.text


def test_scores_show_baselines_and_intervals_where_the_summary_has_them(one_run: Path):
    run = RunContents.read(one_run)
    written = run.summary
    assert written.intervals is not None
    plain = score_table(replace(run, summary=replace(written, baselines={})))
    assert plain is not None and plain.heads == ["Task", "Score (%)"]
    task = next(iter(written.asked.tasks))
    baseline = Baseline(source="other scenes", questions=1, overall=31.0, tasks={task: 12.5})
    intervals = replace(written.intervals, percent={task: (10.0, 50.0)})
    beside = replace(written, baselines={"most_frequent": baseline}, intervals=intervals)
    found = score_table(replace(run, summary=beside))
    assert found is not None and found.heads[2:] == [INTERVAL, "Most frequent answer"]
    assert found.rows[0][2:] == ("10.0 to 50.0", "12.5") and found.rows[-1][2:] == ("", "31.0")


def turn_at(number: int, pose: CameraPose, end: CameraPose | None, template: Turn) -> Turn:
    """A turn from one pose to another, which walks 2 m ahead but is stopped after the way between them."""
    if end is None:
        return replace(template, turn=number, pose=pose, move=None)
    moved = float(abs(end.position - pose.position).sum())
    action = CameraAction(forward_meters=2.0)
    return replace(template, turn=number, pose=pose, action=action, move=MoveOutcome(end, 2.0, moved, True, False))


def test_the_map_of_a_hand_made_room_has_poses_stops_and_objects_at_their_pixels(one_run: Path):
    template = RunReader(one_run).turns(rows_of(one_run)[0].episode)[0]
    first, second = CameraPose(1, 1, 1.6, 90), CameraPose(1, 2.5, 1.6, 90)
    turns = [turn_at(0, first, second, template), turn_at(1, second, None, template)]
    place = PlanArea(600, 400, (0.005, 0.005), 0.01)  # 6 x 4 m; the corner of the lowest pixel is the world's origin
    found = map_of(turns, place, [ObjectBox("table", (3, 1, 0.4), (2, 1, 0.8), 90)], 60.0)
    assert found["path"] == [[100, 300], [100, 150]]
    assert found["poses"] == [[0, 100, 300, 90], [1, 100, 150, 90]]
    assert found["stops"] == [[0, True, 100, 150, 100, 100]]
    ((name, corners),) = found["boxes"]
    assert name == "table" and sorted(corners) == [[250, 200], [250, 400], [350, 200], [350, 400]]


def test_a_report_begins_with_how_good_the_run_is_and_its_warnings(copied: Path, opened: Any, tmp_path: Path):
    summary = json.loads((copied / "summary.json").read_text())
    label = summary["asked"]["overall_label"]
    same = {"source": "elsewhere", "questions": 1, "tasks": {}, "overall": summary["asked"][label]}
    summary["baselines"] = {"most_frequent": same}
    (copied / "summary.json").write_text(json.dumps(summary | {"warnings": ["no reply could be read"]}))
    shown = opened(write_report(copied, tmp_path / "report.html").path).page
    text = shown.inner_text("body")
    percent = f"{summary['asked'][label]:.1f} %"
    assert percent in shown.inner_text("h1") and copied.name not in shown.inner_text("h1")
    assert shown.inner_text(".lead").startswith(percent)
    assert f"Not better than this baseline: most frequent answer, {percent}." in shown.inner_text(".lead")
    assert text.index("No reply could be read") < text.index("Before you compare")


def test_what_only_equal_runs_share_is_no_warning(copied: Path, opened: Any, tmp_path: Path):
    summary = json.loads((copied / "summary.json").read_text())
    warnings = [f"The model was given a path: {ONLY_WITH} had it too", "no reply could be read"]
    (copied / "summary.json").write_text(json.dumps(summary | {"warnings": warnings}))
    shown = opened(write_report(copied, tmp_path / "report.html").path).page
    assert shown.locator(".missing").all_inner_texts() == ["No reply could be read"]
    assert shown.inner_text(".cautions li") == f"{warnings[0]}."


def test_no_heading_of_the_table_is_cut(reported: Path, opened: Any):
    page = opened(reported, viewport={"width": 1280, "height": 800}).page
    page.wait_for_selector("#table .tabulator-row")
    titles = page.locator(".tabulator-col-title")
    assert not titles.evaluate_all("all => all.filter((each) => each.scrollWidth > each.clientWidth)")
    assert "Answer given" in [" ".join(text.split()) for text in titles.all_inner_texts()]


def test_a_phone_folds_all_but_scores_and_questions_and_a_link_unfolds(reported: Path, opened: Any):
    page = opened(reported, **PHONE).page
    page.wait_for_selector("#table .tabulator-row")
    assert page.evaluate("document.documentElement.scrollHeight") < 3000
    assert page.locator("details.fold[open]").count() == 0 < page.locator("details.fold").count()
    page.click("nav a[href='#plots']")
    page.locator("#plots svg").first.wait_for(state="visible")


@pytest.mark.parametrize(
    ("config", "title"),
    [
        ({"name": "free"}, "free"),
        ({"model": "Qwen/Qwen3-VL-8B"}, "Qwen3-VL-8B · Rooms · 33.3 %"),
        ({"model": "a", "moves": "spin", "min_turns": 3}, "a (spin, no answer before turn 3) · Rooms · 33.3 %"),
        ({"policy": "random", "translation": False}, "random (turning only) · Rooms · 33.3 %"),
        ({"model": "a", "ply": "room.ply"}, "a · 33.3 %"),
    ],
)
def test_a_run_has_its_name_as_title_or_its_model_benchmark_and_score(
    one_run: Path, config: dict[str, Any], title: str
):
    facts = RunReader(one_run).facts
    facts = replace(facts, config=facts.config | {"name": None, "policy": None, "model": "a"} | config)
    assert title_of(facts, find_benchmark("rooms"), Headline(33.33, 3, "", {})) == title


def test_the_warnings_of_the_run_come_first_and_those_of_its_scans_before_others(one_run: Path, tmp_path: Path):
    run = shutil.copytree(one_run, tmp_path / "run")
    with (run / "run.log").open("a") as log:
        log.write("11-27 10:00:00 WARNING [Q001] something about one question\n")
        log.write("11-27 10:00:00 WARNING the server was slow\n")
        log.write("11-27 10:00:00 ERROR The budget of 1 is spent; finished turns are on disk. To resume:\n")
        log.write("11-27 10:00:01 WARNING room.ply: it seems to lie on its side: add --up-axis y\n" * 2)
    page = write_report(run).path.read_text()
    found = [page.find(text) for text in ("add --up-axis y", "the server was slow", ">Scores and setup</h2>")]
    assert (
        -1 < found[0] < found[1] < found[2] and page.count("add --up-axis y") == 1 and "about one question" not in page
    )
    assert "is spent" not in page, "the run was resumed since"


def test_a_report_whose_plans_are_drawn_loads_nothing_for_scans(one_run: Path, tmp_path: Path):
    written = write_report(one_run, tmp_path / "report.html")
    code = "import sys; from roomscout.command.main import main; main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", code, "report", str(one_run), "--out", str(written.path)]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert not {"open3d", "trimesh", "scipy", "torch", "yaml", "rich", "roomscout.rendering.gltf"} & set(imported)
