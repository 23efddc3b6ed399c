"""Parts of a run: cut alike by everyone, resumable by one command, and merged into the run that one process makes."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, only_run, results, run_main, scores, trajectories
from hypothesis import given
from hypothesis import strategies as st
from planned import changed, run_settings, settings_of, spec_of

from roomscout.agent.progress import Progress
from roomscout.agent.session import begin_folder
from roomscout.base.errors import ConfigError
from roomscout.cluster.in_parts import Parts, Watch
from roomscout.cluster.ray_cluster import Replicas, replicas_of
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.parts import cut
from roomscout.data.questions import Question
from roomscout.edge.dividing import divide, gpus_of_worker
from roomscout.edge.request import Request
from roomscout.edge.resolve import resolve
from roomscout.edge.resuming import saved_settings
from roomscout.edge.settings import Settings
from roomscout.runs import RunError
from roomscout.runs.merge import merge
from roomscout.runs.reader import RunReader, find_part, run_folders
from roomscout.runs.writer import RunWriter
from tests.conftest import vsi_question

SHARDS = 3


@pytest.fixture(scope="module")
def parts(six_rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The runs of its parts."""
    log_root = tmp_path_factory.mktemp("parts")
    for number in range(1, SHARDS + 1):
        run_settings(six_rooms.config(log_root, shard=f"{number}/{SHARDS}"))
    return sorted(run_folders(log_root), key=lambda folder: folder.name.rpartition("_")[2])


def copies(folders: list[Path], to: Path) -> list[Path]:
    """Copies of run folders that a test may change."""
    return [Path(shutil.copytree(folder, to / folder.name)) for folder in folders]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def keep_rows(folder: Path, count: int) -> None:
    """Leave only the first results of a run, as if it had been stopped."""
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:count]))


def begin(settings: Settings) -> None:
    """Begin a run that asks nothing."""
    spec = spec_of(settings)
    begin_folder(spec.record, spec.questions).close()


def asked(scene: str, number: int) -> Question:
    return vsi_question(f"{scene}-{number}", "scannet", scene, "room_size_estimation", "How large?", (), "3")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_a_cut_keeps_scenes_whole_and_parts_balanced(sizes: list[int], data: st.DataObject):
    of = data.draw(st.integers(1, len(sizes)))
    questions = [asked(f"s{scene}", number) for number in range(9) for scene, size in enumerate(sizes) if number < size]
    parts = cut(questions, of, BENCHMARK)
    scenes = [{question.scene_name for question in part} for part in parts]
    assert sum(map(len, scenes)) == len(sizes) and all(scenes)
    assert sorted(question.id for part in parts for question in part) == sorted(question.id for question in questions)
    assert max(map(len, parts)) - min(map(len, parts)) <= max(sizes)
    assert parts == cut(questions, of, BENCHMARK)


@pytest.mark.parametrize("of", [2, 3, 8])
def test_a_cut_keeps_the_two_rooms_of_a_pair_together(of: int):
    questions = [asked(f"room{number}{member}", 0) for number in range(20) for member in "ab"]
    twins = replace(BENCHMARK, pairs=r"room(\d+)[ab]-0", rescans={"scannet": "(.+)[ab]"})
    for part in cut(questions, of, twins):
        assert part and all(count == 2 for count in Counter(twins.pair_of(each.id) for each in part).values())


@pytest.mark.parametrize("text", ["0/8", "9/8", "2", "a/b", "2/8/9"])
def test_a_shard_that_is_not_one_is_refused(rooms: RoomScans, tmp_path: Path, text: str):
    with pytest.raises(ConfigError, match=r"--shard takes I/N with I from 1 to N"):
        rooms.config(tmp_path, shard=text)


def test_more_parts_than_scenes_are_refused(rooms: RoomScans, tmp_path: Path):
    with pytest.raises(ConfigError, match="2 scenes cannot be cut into 3 parts"):
        run_settings(rooms.config(tmp_path, shard="1/3"))


def test_merged_parts_equal_one_run_and_share_only_images(one_run: Path, parts: list[Path], tmp_path: Path):
    before = [contents(part) for part in parts]
    merge(tmp_path / "merged", parts)
    assert results(tmp_path / "merged") == results(one_run)
    assert trajectories(tmp_path / "merged") == trajectories(one_run)
    assert scores(tmp_path / "merged") == scores(one_run)
    assert [contents(part) for part in parts] == before
    first = next(parts[0].glob("q[0-9]*"))
    image, journal = (
        (first / name, tmp_path / "merged" / first.name / name) for name in ("render_00.png", "turns.jsonl")
    )
    assert image[0].samefile(image[1]) and not journal[0].samefile(journal[1])


def test_scores_are_computed_again(one_run: Path, parts: list[Path], tmp_path: Path, caplog):
    there = copies(parts, tmp_path)
    rows = [json.loads(line) for line in (there[0] / "results.jsonl").read_text().splitlines()]
    rows[0]["score"] = 0.5
    (there[0] / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    merge(tmp_path / "merged", there)
    assert f"q{rows[0]['number']:03d} scores" in caplog.text
    assert scores(tmp_path / "merged") == scores(one_run)


def test_a_part_resumes_without_the_question_file(six_rooms: RoomScans, parts: list[Path], tmp_path: Path):
    (part,) = copies(parts[:1], tmp_path)
    keep_rows(part, 1)
    config = changed(saved_settings(RunReader(part)), questions=tmp_path / "gone.jsonl")
    facts = json.loads((part / "run.json").read_text())
    facts["config"]["questions"] = str(config.questions)
    (part / "run.json").write_text(json.dumps(facts))
    assert run_settings(config, part).status == 0
    assert results(part) == results(parts[0])


def test_a_missing_part_is_named_and_nothing_is_left(parts: list[Path], tmp_path: Path):
    with pytest.raises(RunError, match=f"part 2 of {SHARDS} missing"):
        merge(tmp_path / "merged", [parts[0], parts[2]])
    assert not list(tmp_path.iterdir())


def test_an_unfinished_merge_is_labelled_and_resumes_to_the_whole_run(
    six_rooms: RoomScans, one_run: Path, parts: list[Path], tmp_path: Path
):
    there = copies(parts, tmp_path / "parts")
    keep_rows(there[1], 1)
    before = [contents(part) for part in there]
    found = merge(tmp_path / "merged", there[:2], partial=True)
    assert found.pending == len(RunReader(there[2]).rows) + len(RunReader(parts[1]).rows) - 1
    assert str(found.asked.label).startswith("unfinished_")
    assert run_settings(six_rooms.config(tmp_path), tmp_path / "merged").status == 0
    assert results(tmp_path / "merged") == results(one_run)
    assert trajectories(tmp_path / "merged") == trajectories(one_run)
    assert [contents(part) for part in there] == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 3}, r"setting steps \(8 and 3\)"),
        ({"shard": "2/2"}, r"number of parts \(3 and 2\)"),
        ({"num_questions": 10}, "whole question list"),
    ],
)
def test_parts_of_different_runs_are_refused(
    six_rooms: RoomScans, parts: list[Path], tmp_path: Path, changes: dict, words: str
):
    begin(six_rooms.config(tmp_path, **({"shard": "2/3"} | changes)))
    with pytest.raises(RunError, match=f"differ in their {words}"):
        merge(tmp_path / "merged", [parts[0], only_run(tmp_path)])


def test_a_shard_job_begins_and_resumes_by_the_same_command(six_rooms: RoomScans, parts: list[Path], tmp_path: Path):
    flags = six_rooms.flags(tmp_path, "--shard", "1/3", "--continue", "recent")
    assert run_main(flags).returncode == 0
    folder = only_run(tmp_path)
    keep_rows(folder, 1)
    begin(six_rooms.config(tmp_path, shard="2/3"))  # newer, but another part
    ended = run_main(flags)
    assert (ended.returncode, len(run_folders(tmp_path))) == (0, 2), ended.stderr
    assert results(folder) == results(parts[0])


@pytest.fixture
def on_workers(six_rooms: RoomScans, parts: list[Path], tmp_path: Path) -> Iterator[Parts]:
    """The parts of a run, as workers have left them."""
    settings = six_rooms.config(tmp_path, gpus=tuple(map(str, range(SHARDS))), device="cpu")
    begin(changed(settings, gpus=("none",)))
    folder = only_run(tmp_path)
    copies(parts, folder / "parts")
    with ExitStack() as stack:
        workers = {"gpus": settings.gpus, "device": "cpu"}
        yield Parts(divide(resolve(workers, saved_settings(RunReader(folder))), Request(run=RunReader(folder))), stack)


def folder_of(parts: Parts, number: int) -> Path:
    """The folder of a part."""
    assert parts.log is not None
    folder = find_part(parts.log.folder / "parts", number, SHARDS)
    assert folder is not None
    return folder


def test_a_failure_on_a_worker_is_logged_and_what_it_had_finished_before_is_not_counted_again(
    on_workers: Parts, caplog
):
    folder = folder_of(on_workers, 1)
    file = folder / "results.jsonl"
    first, *others = file.read_text().splitlines()
    failed = json.loads(first) | {"status": "failed", "failed_part": "scene", "error": "torn", "answer": None}
    said = f"[Q{failed['number']:03d}] Failed (scene): torn"
    file.write_text("\n".join([*others, ""]))
    with Progress(99, (), shown=False) as progress:
        watch = Watch(on_workers.log, progress, retries=False)
        watch()
        assert progress.done == 0
        file.write_text("\n".join([*others, json.dumps(failed), ""]))
        watch()
        assert (progress.done, caplog.messages.count(said)) == (1, 1)
        again = Watch(on_workers.log, progress, retries=True)
        again()
        assert (progress.done, caplog.messages.count(said)) == (1, 1), "not retried yet"
        resuming = RunWriter(folder, "again")
        resuming.note_resumption({})
        resuming.close()
        again()
        assert (progress.done, caplog.messages.count(said)) == (2, 2)


def machine(cpus: int, gpus: int = 0) -> dict:
    """A machine as Ray lists it."""
    return {"Alive": True, "Resources": {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}}


def replicas(machines: list[dict], **settings: Any) -> Replicas:
    """The workers of a run with these settings on a cluster of these machines."""
    given = settings_of(ray=True, **settings)
    return replicas_of(
        machines, given.replicas, gpus_of_worker(given.tensor_parallel_size, given.device, given.loads_weights)
    )


@pytest.mark.parametrize(
    ("machines", "settings", "reserved"),
    [
        ([machine(16, 2), machine(32, 8), machine(4)], {}, (10, 1, 4)),
        ([machine(16, 2)], {"replicas": 1}, (1, 1, 8)),
        ([machine(16, 4), machine(8, 1)], {"engine": "vllm", "tensor_parallel_size": 2}, (2, 2, 8)),
        ([machine(16, 2)], {"device": "cpu"}, (1, 0, 16)),
        ([machine(16, 2)], {"policy": "random", "replicas": 4}, (4, 0, 4)),
        ([machine(16), machine(4)], {}, (2, 0, 8)),
        ([machine(3), machine(3), {"Alive": False, "Resources": {"CPU": 64.0}}], {"replicas": 3}, (3, 0, 1)),
    ],
)
def test_a_replica_is_a_gpu_or_a_share_of_the_cores(machines: list[dict], settings: dict, reserved: tuple):
    found = replicas(machines, **settings)
    assert (found.count, found.gpus, found.cpus) == reserved
