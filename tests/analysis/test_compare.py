"""`roomscout compare` and `roomscout leaderboard`, on real runs over ten rooms and on files of lmms-eval."""

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from conftest import RoomScans, made_once, only_run, room_scans, run_in_process, run_main

from roomscout.analysis.compare.answers import read_answers
from roomscout.analysis.compare.comparison import PASSING, Comparison, compare
from roomscout.analysis.compare.leaderboard import markdown_of as leaderboard_text
from roomscout.analysis.compare.leaderboard import standing_of, tables_of
from roomscout.analysis.compare.pages import json_of, markdown_of
from roomscout.analysis.report.writer import write_report
from roomscout.command.main import main
from roomscout.rooms import ScanStyle
from roomscout.rooms.room import BARE
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.writer import RunWriter
from roomscout.scoring.summary import aggregate

TASKS = ("object_counting", "room_size_estimation", "object_rel_distance")


@pytest.fixture(scope="session")
def ten_rooms(tmp_path_factory: pytest.TempPathFactory) -> RoomScans:
    """Ten coarse rooms with a question of each of three tasks."""

    def all_rows(scenes: list[list[Any]]) -> list[Any]:
        return [row for rows in scenes for row in rows]

    made = {
        "rooms": 10,
        "seed": 11,
        "style": ScanStyle(resolution_m=0.5),
        "level": BARE,
        "per_type": dict.fromkeys(TASKS, 1),
    }
    return room_scans(tmp_path_factory, "ten_rooms", all_rows, **made)


@pytest.fixture(scope="session")
def runs(ten_rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two random models with one move each, and one without moves."""

    def make(root: Path) -> None:
        for name, changes in {"first": {"seed": 0}, "second": {"seed": 1}, "no_moves": {"steps": 0}}.items():
            run_in_process(ten_rooms.config(root / name, **{"steps": 1, **changes}))

    root = made_once(tmp_path_factory, "compared", make)
    return {name: only_run(root / name) for name in ("first", "second", "no_moves")}


def compared(*folders: Path, even_if: tuple[str, ...] = ()) -> Comparison:
    return compare(read_answers(folders), even_if)


def overall(folder: Path) -> float:
    summary = RunReader(folder).summary
    assert summary is not None
    assert summary.asked.overall is not None
    return summary.asked.overall


def copy_with(run: Path, target: Path, lines: slice) -> Path:
    """A copy of a run with some of its results."""
    shutil.copytree(run, target)
    results = (run / "results.jsonl").read_text().splitlines(keepends=True)
    (target / "results.jsonl").write_text("".join(results[lines]))
    return target


def test_the_difference_is_that_of_the_summaries(runs: dict[str, Path]):
    (pair,) = compared(runs["first"], runs["second"]).pairs
    assert pair.overall is not None
    assert pair.overall.percent == pytest.approx(overall(runs["second"]) - overall(runs["first"]))
    assert [each.name for each in pair.tasks] == [
        "object_counting",
        "room_size_estimation",
        "object_rel_distance",
    ]


def test_another_setting_is_refused_by_name_and_value(runs: dict[str, Path]):
    with pytest.raises(RunError, match=r"differ in steps \(1, 0\), .* add --even-if steps$"):
        compared(runs["first"], runs["no_moves"])


def test_a_setting_may_differ_if_named(runs: dict[str, Path]):
    (pair,) = compared(runs["first"], runs["no_moves"], even_if=("--steps",)).pairs
    assert pair.differs == {"steps": (1, 0)}


def changed_copy(run: Path, target: Path, file: str, **changes: Any) -> Path:
    """A copy of a run with other values in a part of one of its JSON files."""
    shutil.copytree(run, target)
    content = json.loads((target / file).read_text())
    for path, value in changes.items():
        place, _, name = path.rpartition("__")
        (content[place] if place else content)[name] = value
    (target / file).write_text(json.dumps(content))
    return target


def test_other_scans_or_another_renderer_are_refused(runs: dict[str, Path], tmp_path: Path):
    run = runs["first"]
    other = changed_copy(run, tmp_path / "scans", "summary.json", provenance__scans_sha256="0" * 64)
    with pytest.raises(RunError, match=r"differ in scans \(\d+ of \w{12}, \d+ of 000000000000\)"):
        compared(run, other)
    assert compared(run, other, even_if=("questions",)).questions
    fewer = changed_copy(other, tmp_path / "fewer", "summary.json", provenance__scans=1)
    assert compared(run, fewer).questions, "a scan that could not be read is no other scan"
    asked = changed_copy(run, tmp_path / "asked", "run.json", conditions__prompts="0123456789abcdef" * 4)
    again = changed_copy(run, tmp_path / "again", "run.json", conditions__prompts="f" * 64)
    with pytest.raises(RunError, match=r"differ in prompts \(0123456789ab, ffffffffffff\)"):
        compared(asked, again)
    drawn = changed_copy(run, tmp_path / "drawn", "run.json", conditions__renderer="pyrender")
    with pytest.raises(RunError, match=r"differ in renderer \(raycast, pyrender\)"):
        compared(run, drawn)


def test_other_questions_are_refused_with_their_numbers(ten_rooms: RoomScans, runs: dict[str, Path], tmp_path: Path):
    few = run_in_process(ten_rooms.config(tmp_path, steps=1, num_questions=2))
    with pytest.raises(RunError, match="2 in both, 28 and 0 in one alone; add --even-if questions"):
        compared(runs["first"], few)


def test_the_questions_that_all_runs_have_are_compared_if_named(runs: dict[str, Path], tmp_path: Path):
    part = copy_with(runs["second"], tmp_path / "part", slice(0, 27))
    found = compared(runs["first"], part, even_if=("questions",))
    assert (found.questions, found.left_out) == (27, 3)


def test_an_unfinished_run_is_refused(runs: dict[str, Path], tmp_path: Path):
    part = copy_with(runs["second"], tmp_path / "part", slice(0, 27))
    with pytest.raises(RunError, match="has 3 pending answers: finish it with roomscout resume"):
        compared(runs["first"], part)


def test_flips_are_the_questions_whose_score_crossed_one_half(runs: dict[str, Path]):
    (pair,) = compared(runs["first"], runs["second"]).pairs
    before, after = ({row.id: row.score or 0.0 for row in RunReader(runs[name]).rows} for name in ("first", "second"))
    gained = {id for id in before if before[id] < PASSING <= after[id]}
    lost = {id for id in before if after[id] < PASSING <= before[id]}
    assert gained and lost
    assert ({flip.key.id for flip in pair.gained}, {flip.key.id for flip in pair.lost}) == (gained, lost)


def test_p_values_are_adjusted_over_all_pairs(runs: dict[str, Path]):
    pairs = compared(runs["first"], runs["second"], runs["no_moves"], even_if=("steps",)).pairs
    smallest = min((each.p_value, each.p_holm) for pair in pairs for each in pair.tasks)
    assert smallest[1] == pytest.approx(min(1, 6 * smallest[0]))


def test_the_command_prints_and_writes_a_comparison(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    outs = [tmp_path / "out" / f"compare.{suffix}" for suffix in ("html", "json", "md", "csv", "tex")]
    assert main(["compare", str(runs["first"]), str(runs["second"]), "--out", *map(str, outs)]) == 0
    said = capsys.readouterr().out
    assert "30 questions about 10 scenes in all runs" in said
    assert "right in A, wrong in B" in said and "% power" in said
    found = compared(runs["first"], runs["second"])
    assert json.loads(outs[1].read_text()) == json.loads(json.dumps(json_of(found)))
    assert outs[2].read_text() == markdown_of(found)
    *_, row = csv.DictReader(io.StringIO(outs[3].read_text()))
    assert (row["name"], float(row["difference"])) == ("overall", found.pairs[0].differences[-1].percent)
    assert f"{float(row['difference']):+.1f}".replace("-", "$-$") in outs[4].read_text()


def test_the_page_links_each_flip_to_its_question_in_both_reports(runs: dict[str, Path], tmp_path: Path):
    page = tmp_path / "compare.html"
    few = [copy_with(runs[name], tmp_path / name, slice(0, 9)) for name in ("first", "second")]
    for run in few:
        write_report(run)
    assert main(["compare", *map(str, few), "--even-if", "questions", "--out", str(page)]) == 0
    links = [unquote(link).partition("#") for link in re.findall(r'href="([^"]+)"', page.read_text())]
    flips = [(report, name) for report, _, name in links if name]
    (pair,) = compared(*few, even_if=("questions",)).pairs
    assert len(flips) == 2 * (len(pair.gained) + len(pair.lost)) > 0
    for report, name in flips:
        path = (tmp_path / report).resolve()
        assert path.is_file() and (path.parent / "report_files" / "data" / f"{name}.js").is_file()


def test_few_scenes_are_said_to_show_no_difference(runs: dict[str, Path], tmp_path: Path):
    few = copy_with(runs["second"], tmp_path / "few", slice(0, 18))
    page = tmp_path / "compare.html"
    command = ["compare", str(runs["first"]), str(few), "--even-if", "questions", "--out", str(page)]
    said = run_main(command).stdout
    scenes = compared(runs["first"], few, even_if=("questions",)).scenes
    assert scenes < 10
    assert f"{scenes} scenes cannot show a difference: p cannot be below 0." in said and "take 10 scenes" in said
    assert "no intervals" not in said
    assert f"<p>{scenes} scenes cannot show a difference" in page.read_text()


def test_the_page_has_the_protocol_once_and_no_warning_without_a_reason(runs: dict[str, Path], tmp_path: Path):
    page = tmp_path / "compare.html"
    assert run_main(["compare", str(runs["first"]), str(runs["second"]), "--out", str(page)]).returncode == 0
    text = page.read_text()
    assert text.count("temperature=") == 1 and 'class="missing"' not in text
    command = ["compare", str(runs["first"]), str(runs["no_moves"]), "--even-if", "steps", "--out", str(page)]
    assert run_main(command).returncode == 0
    text = page.read_text()
    assert text.count("temperature=") == 1 and text.count('class="missing"') == 1
    assert "Protocol of A</dt><dd>steps=1</dd>" in text


def test_the_leaderboard_has_columns_of_tasks_beside_the_overall(runs: dict[str, Path], tmp_path: Path):
    out = tmp_path / "board.csv"
    done = run_main(["leaderboard", str(runs["first"]), "--out", str(out)])
    head = next(line for line in done.stdout.splitlines() if line.startswith("| model"))
    assert head.startswith("| model | overall (%) | 95 % interval | object counting | room size estimation | ")
    (row,) = csv.DictReader(io.StringIO(out.read_text()))
    summary = RunReader(runs["first"]).summary
    assert summary is not None
    assert {name: float(row[f"task_{name}"]) for name in TASKS} == pytest.approx(summary.asked.tasks)


def with_failures(run: Path, target: Path, every: int = 4) -> Path:
    """A copy of a run, in another folder, in which an error of the server ended every fourth question."""
    shutil.copytree(run, target)
    rows = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    ended = {"answer": None, "score": 0.0, "status": "failed", "failed_part": "model", "error": "status 400"}
    rows = [row | ended if place % every == 0 else row for place, row in enumerate(rows)]
    (target / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    writer = RunWriter(target, "")
    writer.export(None)
    writer.close()
    return target


def test_failed_questions_are_no_difference_between_runs_with_equal_answers(runs: dict[str, Path], tmp_path: Path):
    found = compared(runs["first"], with_failures(runs["first"], tmp_path / "failing"))
    (pair,) = found.pairs
    assert [each.percent for each in pair.differences] == [0.0] * 4
    assert (pair.questions, pair.failed, pair.gained, pair.lost) == (22, (0, 8), (), ())
    assert pair.as_wrong is not None and pair.as_wrong[0] > pair.as_wrong[1]


def test_failed_questions_count_as_wrong_if_that_is_asked(runs: dict[str, Path], tmp_path: Path):
    failing = with_failures(runs["first"], tmp_path / "failing")
    (pair,) = compare(read_answers([runs["first"], failing]), failed_as_wrong=True).pairs
    assert pair.overall is not None and pair.questions == 30
    assert pair.overall.percent == pytest.approx(overall(failing) - overall(runs["first"]))


def test_each_question_weighs_the_same_however_often_a_run_answers_it(runs: dict[str, Path], tmp_path: Path):
    twice = shutil.copytree(runs["second"], tmp_path / "twice")
    rows = [json.loads(line) for line in (twice / "results.jsonl").read_text().splitlines()]
    rows = [row | {"sample": sample} for place, row in enumerate(rows) for sample in (1, 2)[: 1 + place % 2]]
    (twice / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (once,) = compared(runs["first"], runs["second"]).pairs
    (again,) = compared(runs["first"], twice, even_if=("questions",)).pairs
    assert again.differences == once.differences


def test_outside_text_cannot_become_markup(runs: dict[str, Path], tmp_path: Path):
    changed = copy_with(runs["second"], tmp_path / "<b>bold", slice(None))
    rows = (changed / "results.jsonl").read_text()
    (changed / "results.jsonl").write_text(re.sub(r'"answer": "[^"]*"', r'"answer": "<i>x</i>\\u001b[2J"', rows))
    page = tmp_path / "compare.html"
    assert main(["compare", str(runs["first"]), str(changed), "--out", str(page)]) == 0
    text = page.read_text()
    assert "<i>" not in text and "<b>" not in text and "\x1b" not in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "compare takes two runs or more"),
        (["nowhere"], "nowhere does not exist, and experiment_logs has no run of that name"),
        (["missing.jsonl"], "missing.jsonl cannot be read"),
        (["nowhere", "--out", "table.txt"], "--out table.txt: name a file that ends in .html, .json, .md"),
    ],
)
def test_a_mistake_ends_with_what_to_do(
    flags: list[str], message: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    assert main(["compare", str(runs["first"]), *flags]) == 2
    assert message in capsys.readouterr().err


def samples_of(run: Path, path: Path, key: str = "vsibench_overall") -> Path:
    """The answers of a run as lmms-eval writes those of its task vsibench."""
    lines = []
    for place, row in enumerate(RunReader(run).rows):
        metric = "accuracy" if row.options else "MRA:.5:.95:.05"
        asked = {
            "id": row.id, "dataset": row.dataset, "scene_name": row.scene_name, "question_type": row.question_type,
            "question": row.question, "ground_truth": row.ground_truth, "options": list(row.options) or None,
            "prediction": row.answer or "", metric: row.score,
        }  # fmt: skip
        lines.append(json.dumps({"doc_id": place, "target": row.ground_truth, "doc_hash": "0" * 64, key: asked}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("key", ["vsibench_overall", "vsibench_score"])
def test_the_samples_of_lmms_eval_are_compared_with_a_run(key: str, runs: dict[str, Path], tmp_path: Path):
    samples = samples_of(runs["second"], tmp_path / "Qwen__Qwen3-VL" / "20260101_samples_vsibench.jsonl", key)
    (from_file,) = compared(runs["first"], samples, even_if=("protocol",)).pairs
    (from_run,) = compared(runs["first"], runs["second"]).pairs
    assert from_file.differences == from_run.differences
    assert from_file.second.about["model"] == "Qwen__Qwen3-VL"


def leaderboard(*folders: Path) -> list[list[str]]:
    tables = tables_of(standing_of(folder) for folder in folders)
    return [[each.run.name for each in table] for table in tables]


def test_comparable_runs_share_a_table_and_the_best_comes_first(runs: dict[str, Path]):
    best_first = sorted((runs["first"], runs["second"]), key=overall, reverse=True)
    assert leaderboard(runs["first"], runs["no_moves"], runs["second"]) == [
        [folder.name for folder in best_first],
        [runs["no_moves"].name],
    ]


def test_the_leaderboard_has_what_the_finished_questions_score(runs: dict[str, Path], tmp_path: Path):
    failing = with_failures(runs["first"], tmp_path / "failing")
    standing = standing_of(failing)
    finished = [row for row in RunReader(failing).rows if not row.failed]
    expected = aggregate(finished, RunReader(runs["first"]).benchmark)["overall"]
    assert (standing.row["failed"], standing.row["finished_only"]) == (8, pytest.approx(expected))
    board = leaderboard_text([[standing]])
    assert "| failed | finished only (%) |" in board and f"| 8 | {expected:.1f} |" in board


def test_the_leaderboard_writes_markdown_csv_and_latex(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    outs = [tmp_path / "board.md", tmp_path / "board.csv", tmp_path / "board.tex"]
    folders = [str(runs["first"]), str(runs["second"])]
    assert main(["leaderboard", *folders, "--out", *map(str, outs)]) == 0
    assert outs[0].read_text() == capsys.readouterr().out
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(outs[1].read_text())))
    assert {float(row["overall"]) for row in rows} == {overall(runs["first"]), overall(runs["second"])}
    assert all(f"& {float(row['overall']):.1f} &" in outs[2].read_text() for row in rows)
    assert all(row["protocol"] and float(row["mean_turns"]) and row["interval_low"] for row in rows)
