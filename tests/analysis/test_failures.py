"""What was in view in the answers of a run, and how it splits the errors."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RoomScans, only_run, run_in_process, run_main

from roomscout.analysis.failures import failure_lines, log_split, main
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.maps import FloorPlans
from roomscout.analysis.report.pages import page_of
from roomscout.analysis.report.writer import write_report
from roomscout.analysis.seeing import see
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.boxes import SceneBoxes, named_in, read_boxes
from roomscout.runs.reader import RunReader
from roomscout.runs.sights import SeenObjects, Sight, split


@pytest.fixture(scope="session")
def seen_run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over two rooms with boxes, whose answers have been worked out; nobody may change it."""
    run = run_in_process(rooms.config(tmp_path_factory.mktemp("seen"), steps=3))
    assert main([str(run)]) == 0
    return run


@pytest.fixture
def copied(seen_run: Path, tmp_path: Path) -> Path:
    """A run to change."""
    return shutil.copytree(seen_run, tmp_path / "run")


def test_each_answer_has_its_turns_and_the_objects_that_it_names(rooms: RoomScans, seen_run: Path):
    reader, boxes = RunReader(seen_run), read_boxes(rooms.root / "rooms.json")
    assert reader.sights.keys() == {row.episode for row in reader.rows}
    for row in reader.rows:
        sight = reader.sights[row.episode]
        text = " ".join([row.question, *row.options])
        assert {each.category for each in sight.objects} == {b.category for b in named_in(text, boxes[row.scene_name])}
        assert len(sight.surface) == row.turns
        assert all(len(pixels) == row.turns for each in sight.objects for pixels in each.pixels)


def test_the_surface_seen_never_falls(seen_run: Path):
    for sight in RunReader(seen_run).sights.values():
        assert sight.surface[0] > 0 and list(sight.surface) == sorted(sight.surface) and sight.surface[-1] < 1


def test_the_split_counts_every_scored_answer_once(seen_run: Path):
    reader = RunReader(seen_run)
    assert reader.summary is not None
    by_sight = reader.summary.sight
    assert by_sight is not None and by_sight == split(reader.rows, reader.sights)
    counted = [group.answers for group in by_sight.types["all"].values()]
    assert sum(counted) == sum(row.score is not None for row in reader.rows)
    below = [group.below_full for group in by_sight.types["all"].values()]
    assert sum(below) == sum(row.score is not None and row.score < 1 for row in reader.rows)


def move_scans(run: Path, before: Path, after: Path) -> None:
    """Let a run's turns name scans in another folder."""
    for journal in run.glob("q*/turns.jsonl"):
        journal.write_text(journal.read_text().replace(str(before), str(after)))


def test_boxes_in_other_coordinates_are_refused_in_one_sentence(copied: Path, rooms: RoomScans, tmp_path: Path):
    scans = shutil.copytree(rooms.root, tmp_path / "scans")
    (name, boxes), *others = read_boxes(scans / "rooms.json").items()
    moved = [box.moved((5, 0, 0)) for box in boxes]
    (scans / "boxes.json").write_text(
        json.dumps([SceneBoxes(name, tuple(moved)).to_json(), *(SceneBoxes(*each).to_json() for each in others)])
    )
    move_scans(copied, rooms.root, scans)
    seen = see(RunReader(copied))
    (sentence,) = seen.missing
    assert sentence.startswith(f"{scans / 'boxes.json'}, scene {name}: only ") and "other coordinates" in sentence
    assert {row.scene_name for row in RunReader(copied).rows if row.episode in seen.sights} == {others[0][0]}


def test_a_scan_that_has_changed_is_named(copied: Path, rooms: RoomScans, tmp_path: Path):
    scans = shutil.copytree(rooms.root, tmp_path / "scans")
    move_scans(copied, rooms.root, scans)
    (copied / "seen.jsonl").unlink()
    scan = min(scans.rglob("*.ply"))
    scan.write_bytes(scan.read_bytes() + b"\n")
    lines = failure_lines(RunReader(copied).rows, see(RunReader(copied)), BENCHMARK)
    assert lines[0] == (
        f"Not known: {scan} has changed since the run, or is another scan: restore the one that the run explored."
    )


def test_a_pair_counts_once_with_its_worse_answer(seen_run: Path):
    reader = RunReader(seen_run)
    first, second = sorted(reader.rows[:2], key=lambda row: row.score)
    pair = [replace(row, id=id, score=score) for row, id, score in ((second, "1b", 1.0), (first, "1a", 0.5))]
    lines = failure_lines(pair, see(reader), replace(BENCHMARK, pairs=r"(\d+)[ab]"))
    assert any(line.startswith("Of 1 answer below full score: ") for line in lines)
    assert lines[-1].strip() == f"twin {second.episode}: score 1"
    assert not any(line.strip().startswith("twin") for line in failure_lines(pair, see(reader), BENCHMARK))


def test_the_command_prints_the_table_and_the_wrong_answers(seen_run: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(seen_run)]) == 0
    said = capsys.readouterr().out
    below = [row for row in RunReader(seen_run).rows if row.score is not None and row.score < 1]
    assert f"Of {len(below)} answers below full score: " in said
    assert all(f"\n{row.folder}  " in said for row in below)


def test_the_run_ends_with_the_split(copied: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    log_split(copied)
    assert any(" below full score: " in each and f"roomscout failures {copied}" in each for each in caplog.messages)


@pytest.mark.parametrize(("flags", "written"), [([], True), (["--no-report"], False)])
def test_a_run_of_the_command_ends_with_it_unless_switched_off(rooms: RoomScans, tmp_path: Path, flags, written):
    given = [each for each in rooms.flags(tmp_path, "--num-questions", "2", "--steps", "1") if each != "--no-report"]
    assert run_main([*given, *flags]).returncode == 0
    assert (only_run(tmp_path) / "seen.jsonl").exists() == written


def test_the_page_of_a_question_has_the_objects_in_each_view(seen_run: Path, tmp_path: Path):
    run = RunContents.read(seen_run)
    episode, sight = next((key, each) for key, each in run.sights.items() if each.objects)
    page = page_of(run.answer(episode), run, FloorPlans(tmp_path, run.facts), str)
    assert page["sight"].startswith(str(sight.verdict).replace("_", " "))
    for turn, shown in enumerate(page["turns"]):
        assert [pixels for _, pixels, _ in shown["objects"]] == [sum(each.at(turn)) for each in sight.objects]
        assert shown["surface"] == round(100 * sight.surface[turn])


def test_the_report_splits_the_scores(seen_run: Path, tmp_path: Path):
    page = write_report(seen_run, tmp_path / "report.html").path.read_text()
    assert "What was in view" in page and '<select name="sight">' in page


def sight_of(*objects: SeenObjects) -> Sight:
    turns = max((len(pixels) for each in objects for pixels in each.pixels), default=1)
    return Sight(1, 1, surface=(0.5,) * turns, boxes=True, objects=objects, enough=10, made_of="")


@pytest.mark.parametrize(
    ("needed", "pixels", "verdict", "first"),
    [
        (1, [[0, 0, 0]], "never_saw", None),
        (1, [[0, 4, 0]], "saw_little", 1),
        (1, [[0, 4, 20]], "saw", 1),
        (1, [[0, 0, 0], [0, 20, 0]], "saw", 1),
        (2, [[0, 0, 0], [0, 20, 0]], "never_saw", None),
        (2, [[0, 0, 12], [15, 20, 0]], "saw", 2),
    ],
)
def test_a_verdict_needs_all_objects_of_a_count_and_one_of_any_other_kind(needed, pixels, verdict, first):
    sight = sight_of(SeenObjects("lamp", needed, tuple(map(tuple, pixels))))
    assert (sight.verdict, sight.first_turn) == (verdict, first)


def test_the_object_seen_worst_decides():
    lamp, door = SeenObjects("lamp", 1, ((0, 3),)), SeenObjects("door", 1, ((500, 0),))
    assert sight_of(lamp, door).verdict == "saw_little"
    assert sight_of(lamp, door).in_words == "lamp at 3 pixels, door at 500 pixels"
