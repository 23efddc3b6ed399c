"""Runs: any batch size gives the same trajectories, and a bad question never stops the others."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Event
from threading import enumerate as threads
from typing import Any

import pytest
from conftest import RoomScans, only_run, results, run_in_process, run_main, scripted, trajectories
from planned import changed, run_settings, settings_of
from scripted_model import ScriptedBackend, random_policy
from waiting import PATIENCE_S, wait_until

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.controls import RandomPolicy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.state import QuestionState
from roomscout.base.errors import ConfigError
from roomscout.command import check
from roomscout.data.questions import Selection, ask_one
from roomscout.data.scans import ScanNotFound
from roomscout.edge.plan import memory_lines
from roomscout.edge.world import cuda_device_of
from roomscout.envs.actions import CameraAction
from roomscout.models import ModelError, OutOfMemory, Reply, ReplyFormat
from roomscout.models.conversation import Conversation
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId


@pytest.fixture(scope="module")
def one_by_one(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference: each question alone from its first turn to its last."""
    config = rooms.config(tmp_path_factory.mktemp("alone"), batch_size=1, max_batched_turns=0, concurrency=1)
    return run_in_process(config, scripted())


@pytest.mark.parametrize(
    ("schedule", "since", "size"),
    [
        ({"batch_size": 2, "max_batched_turns": 4, "concurrency": 1}, 4, 1),
        ({"batch_size": 3, "max_batched_turns": "all"}, 0, 3),
        ({"batch_size": 5, "max_batched_turns": 1, "concurrency": 2}, 1, 2),
    ],
)
def test_any_schedule_gives_the_same_trajectories(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path, schedule: dict[str, Any], since: int, size: int
):
    folder = run_in_process(rooms.config(tmp_path, **schedule), scripted())
    assert trajectories(folder) == trajectories(one_by_one)
    assert results(folder) == results(one_by_one)
    assert max(len(turn.batch) for turn in RunReader(folder).all_turns() if turn.turn >= since) == size


@pytest.mark.parametrize(("said", "warned"), [("!" * 40, True), ("I look further. " + '{"done": false}', False)])
def test_replies_that_could_not_be_read_are_a_warning_of_the_run(rooms: RoomScans, tmp_path: Path, said, warned):
    ids = (str(rooms.rows[0]["id"]),)
    run_settings(rooms.config(tmp_path, ids=ids, steps=2), policy=ModelPolicy(ScriptedBackend(lambda _: said)))
    warnings = RunReader(only_run(tmp_path)).summary.to_json().get("warnings", [])
    assert [each.startswith("3 of 3 replies could not be read as an action") for each in warnings] == [True] * warned


def test_a_missing_or_damaged_scan_is_a_failed_row(rooms: RoomScans, tmp_path: Path):
    root = shutil.copytree(rooms.root, tmp_path / "scans")
    missing, broken = sorted(root.glob("scannet/scans/*/*.ply"))
    missing.unlink()
    broken.write_bytes(broken.read_bytes()[:5000])
    config = rooms.config(tmp_path / "logs", scan_root=root, steps=0)
    assert run_settings(config).status == 1
    rows = results(only_run(config.log_root))
    parts = {missing.parent.name: "scan", broken.parent.name: "scene"}
    assert [(row["status"], row["failed_part"]) for row in rows] == [
        ("failed", parts[row["scene_name"]]) for row in rows
    ]
    assert all(row["error"] for row in rows)
    summary = json.loads((only_run(config.log_root) / "summary.json").read_text())
    there = sum(row["scene_name"] == broken.parent.name for row in rows)
    assert (summary["asked"]["questions"], summary["with_scan"]["questions"]) == (len(rows), there)
    assert summary["types"]["all"]["without_scan"] == len(rows) - there


def test_an_unexpected_error_stops_the_run_which_can_be_resumed(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path, caplog
):
    class Breaking(ScriptedBackend):
        calls = 0

        def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
            self.calls += 1
            return super().generate(conversations, reply_format) if self.calls < 6 else [1 / 0]

    config = rooms.config(tmp_path / "logs", batch_size=2)
    with caplog.at_level("INFO"):
        outcome = run_settings(config, policy=ModelPolicy(Breaking(random_policy())))
    folder = only_run(config.log_root)
    assert outcome.status == 3 and len(outcome.rows) < len(rooms.rows)
    assert f"--continue {folder}" in caplog.messages[-1]
    assert "ZeroDivisionError" in (folder / "run.log").read_text()
    assert json.loads((folder / "summary.json").read_text())["asked"]["questions"] == len(outcome.rows)
    assert run_settings(config, folder, scripted()).status == 0
    assert results(folder) == results(one_by_one)


def test_an_unexpected_error_before_the_run_has_the_same_status(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("roomscout.command.eval.plan", None)
    ended = run_main(["--batch"])
    assert ended.returncode == 3 and "TypeError" in ended.stderr


def test_a_path_that_is_not_utf8_fails_only_its_own_question(rooms: RoomScans, tmp_path: Path):
    scans = tmp_path / os.fsdecode(b"donn\xe9es")
    shutil.copytree(rooms.root, scans)
    shutil.rmtree(min(scans.glob("scannet/scans/*")))
    folder = run_in_process(rooms.config(tmp_path, scan_root=scans, steps=0))
    assert (folder / "summary.json").exists()
    assert "donn\\udce9es" in (folder / "results.csv").read_text(encoding="utf-8")
    assert "donn\\udce9es" in (folder / "run.log").read_text(encoding="utf-8")
    assert {row["error"] is None for row in results(folder)} == {True, False}


def test_a_scan_root_without_any_scan_is_refused(rooms: RoomScans, tmp_path: Path):
    config = settings_of(questions=rooms.questions, scan_root=tmp_path, log_root=tmp_path / "logs")
    with pytest.raises(ScanNotFound, match="has no scan of 2 scenes asked about: it takes"):
        run_settings(config, policy=scripted())
    assert not (tmp_path / "logs").exists()


def test_missing_scenes_are_listed_once_with_the_paths_tried(rooms: RoomScans, tmp_path: Path, caplog):
    root = shutil.copytree(rooms.root, tmp_path / "rooms")
    missing, _ = sorted(root.glob("scannet/scans/*"))
    shutil.rmtree(missing)
    caplog.set_level("INFO", "roomscout")
    asked = ["--questions", str(rooms.questions), "--scan-root", str(root), "--log-root", str(tmp_path / "logs")]
    assert check.main(asked) == 1 and not (tmp_path / "logs").exists()
    first, second = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert first == f"no scan, so their questions fail: scannet {missing.name}"
    assert f"{missing.name}_vh_clean_2.ply" in second and f"of {len(rooms.rows)}" in caplog.text


def test_a_plan_needs_no_scans(rooms: RoomScans, tmp_path: Path, caplog):
    config = rooms.config(tmp_path, scan_root=tmp_path / "nowhere")
    with caplog.at_level("INFO"):
        lines = memory_lines(config)
    assert "Scans: none yet" in caplog.text
    assert f"Questions: {len(rooms.rows)} on 2 scans" in lines[0]


def test_a_single_question_with_a_ground_truth_is_scored(rooms: RoomScans, tmp_path: Path, caplog):
    scan = min(rooms.root.glob("scannet/scans/*/*.ply"))
    asked = Selection.all_of([ask_one("What colour is the bed?", "a", ("red", "blue"), ground_truth="B")])
    config = settings_of(policy="random", renderer="blind", log_root=tmp_path, steps=0)
    answering = ScriptedBackend(lambda _: '{"answer": "A", "done": true}')
    with caplog.at_level("INFO"):
        run_settings(config, policy=ModelPolicy(answering), asked=asked, ply=scan)
    assert caplog.messages[-2] == "Score: 0 of 1 (correct answer: B)"
    (row,) = results(only_run(tmp_path))
    assert (row["question_type"], row["score"]) == ("open_choice", 0.0)
    summary = json.loads((only_run(tmp_path) / "summary.json").read_text())
    assert summary["asked"]["overall_label"] == "overall_over_questions", "own questions belong to no task"


class Limited(ScriptedBackend):
    """Replies like the random policy, but fails for the conversations in `refused`, and for all without memory."""

    def __init__(self, refused: Sequence[str] = (), has_memory: bool = True) -> None:
        super().__init__(random_policy())
        self.refused, self.has_memory = refused, has_memory

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        if not self.has_memory:
            raise OutOfMemory("nothing fits")
        if bad := [each.id for each in conversations if each.id in self.refused]:
            raise ModelError(f"{bad} are too long")
        return super().generate(conversations, reply_format)


class Crammed(ScriptedBackend):
    """Fits conversations of at most `room` views in all."""

    def __init__(self, room: int) -> None:
        super().__init__(random_policy())
        self.room, self.at_first, self.sizes = room, [], []

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        views = [conversation.views for conversation in conversations]
        if sum(views) > self.room and len(views) > 1:
            raise OutOfMemory(f"{sum(views)} views do not fit")
        self.at_first += [len(views)] * (views == [1] * len(views))
        self.sizes.append(len(views))
        return super().generate(conversations, reply_format)


def test_out_of_memory_halves_the_batch_which_grows_again_when_the_next_questions_are_short(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path, caplog
):
    backend = Crammed(room=5)
    folder = run_in_process(rooms.config(tmp_path, batch_size=3, max_batched_turns=99), ModelPolicy(backend))
    assert trajectories(folder) == trajectories(one_by_one)
    assert backend.at_first[:2] == [3, 3] and min(backend.sizes) == 1
    assert "Out of memory with 2 questions in a batch: 1 at a time from turn 2 on" in caplog.text


def test_a_question_at_fault_fails_alone(rooms: RoomScans, tmp_path: Path):
    at_fault = Limited(refused=[str(rooms.rows[1]["id"])])
    for backend, fail in ((Limited(has_memory=False), [1, 2, 3, 4]), (at_fault, [2])):
        config = rooms.config(tmp_path / str(len(fail)), num_questions=4, batch_size=4, steps=1)
        folder = run_in_process(config, ModelPolicy(backend))
        assert [row["number"] for row in results(folder) if row["failed_part"] == "model"] == fail


class TurnLeft(Policy):
    """Turns left forever."""

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        return [Decision(CameraAction(rotation_angle_degrees=30.0)) for _ in states]


def test_a_custom_policy_is_named_and_only_the_same_one_may_resume(rooms: RoomScans, tmp_path: Path, caplog):
    config = rooms.config(tmp_path, num_questions=2, steps=2)
    with caplog.at_level("INFO"):
        assert run_settings(config, policy=TurnLeft()).status == 0
    assert "[Q001] No answer by the last turn" in caplog.messages
    reader = RunReader(only_run(tmp_path))
    assert [row.status for row in reader.rows] == ["exhausted"] * 2
    headings = [turn.pose.heading_deg for turn in reader.turns(EpisodeId(1))]
    assert [(b - a) % 360 for a, b in pairwise(headings)] == pytest.approx([30.0] * 2)
    assert reader.facts.config["model"] == reader.summary.to_json()["model"] == "TurnLeft"
    with pytest.raises(ConfigError, match=r"was begun with TurnLeft, not random"):
        run_settings(changed(config, policy=None), reader.folder, policy=RandomPolicy())


class Engine(ScriptedBackend):
    """An engine that batches requests itself: the first replies require three concurrent requests."""

    concurrent = True

    def __init__(self) -> None:
        super().__init__(random_policy())
        self.together = Barrier(3)
        self.met = Event()

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        assert len(conversations) == 1
        if not self.met.is_set():
            self.together.wait(PATIENCE_S)
            self.met.set()
        return super().generate(conversations, reply_format)


def test_questions_of_an_engine_that_batches_run_on_separate_threads(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path
):
    folder = run_in_process(rooms.config(tmp_path, batch_size=3), ModelPolicy(Engine()))
    assert trajectories(folder) == trajectories(one_by_one)
    assert results(folder) == results(one_by_one)


def test_an_unexpected_error_on_a_thread_stops_the_run(rooms: RoomScans, tmp_path: Path):
    class Broken(Engine):
        def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
            super().generate(conversations, reply_format)
            return [1 / 0]

    config = rooms.config(tmp_path, batch_size=3, num_questions=3, steps=1)
    assert run_settings(config, policy=ModelPolicy(Broken())).status == 3
    assert run_settings(config, only_run(tmp_path), ModelPolicy(Engine())).status == 0


@pytest.mark.parametrize(
    ("device", "ordinal"),
    [("auto", 0), ("cuda", 0), ("cuda:12", 12), ("cpu", None), ("cuda:x", None)],
)
def test_the_renderer_gets_the_gpu_that_device_names(device, ordinal):
    assert cuda_device_of(device) == ordinal


def test_an_answer_of_the_wrong_form_is_no_answer(rooms: RoomScans, tmp_path: Path):
    class Talker(Policy):
        def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
            return [Decision(CameraAction(answer="somewhere", done=True)) for _ in states]

    outcome = run_settings(rooms.config(tmp_path), policy=Talker())
    assert (outcome.status, outcome.rows) == (3, [])
    assert "the answer 'somewhere' is not" in str(outcome.error)


class Asleep(ScriptedBackend):
    """An engine that sleeps, so that the views of the next questions are there before it replies."""

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        time.sleep(0.02)
        return super().generate(conversations, reply_format)


@pytest.mark.parametrize("cache", [0, 2**32])
def test_views_drawn_ahead_are_those_that_would_be_drawn_in_time(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path, cache: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("roomscout.agent.opening.cache_bytes", lambda: cache)
    config = rooms.config(tmp_path, batch_size=2, max_batched_turns="all")
    folder = run_in_process(config, ModelPolicy(Asleep(random_policy())))
    assert trajectories(folder) == trajectories(one_by_one)
    assert results(folder) == results(one_by_one)


def test_an_error_while_views_are_drawn_ahead_belongs_to_its_question(rooms: RoomScans, tmp_path: Path):
    rows = [row | {"id": f"{number}"} for number, row in enumerate(rooms.rows)]
    rows[3]["scene_name"] = "room_seed5_404"
    rows[5] |= {"start": {"x_m": 1000.0, "y_m": 0.0, "heading_deg": 0.0}}
    file = tmp_path / "asked.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = rooms.config(tmp_path / "runs", questions=file, batch_size=2, steps=1)
    folder = run_in_process(config, ModelPolicy(Asleep(random_policy())))
    failed = {row.id: row.failed_part for row in RunReader(folder).rows if row.failed}
    assert failed == {"3": "scan", "5": "scene"}


def test_an_interrupt_while_views_are_drawn_ahead_leaves_a_run_to_resume(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path
):
    class Interrupted(Asleep):
        calls = 0

        def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
            self.calls += 1
            if self.calls == 3:
                raise KeyboardInterrupt
            return super().generate(conversations, reply_format)

    config = rooms.config(tmp_path, batch_size=2)
    assert run_settings(config, policy=ModelPolicy(Interrupted(random_policy()))).status == 130
    folder = only_run(tmp_path)
    assert not [each.name for each in threads() if each.name.startswith("first-views")]
    assert run_settings(config, folder, ModelPolicy(Asleep(random_policy()))).status == 0
    assert trajectories(folder) == trajectories(one_by_one)


class Early(ScriptedBackend):
    """A lockstep engine that tells each reply when it ends, the last first; the others run out of memory in call 2."""

    def __init__(self, folder: Path) -> None:
        super().__init__(random_policy())
        self.folder, self.calls, self.told, self.prepared = folder, 0, 0, set[int]()

    def generate_each(self, conversations, reply_format, ended) -> None:
        self.calls += 1
        assert all(len(each.messages) == 2 or each.key in self.prepared for each in conversations)
        replies = [*enumerate(self.generate(conversations, reply_format))][::-1]
        ended(replies[0][0], lambda: replies[0][1])
        self.told += 1
        wait_until(lambda: self.lines() >= self.told)  # recorded while the others reply
        if self.calls == 2:
            raise OutOfMemory("full")
        for index, reply in replies[1:]:
            ended(index, partial(replace, reply))
        self.told += len(replies) - 1

    def prepare(self, conversation: Conversation) -> None:
        assert conversation.messages[-1].role == "user"
        self.prepared.add(conversation.key)

    def lines(self) -> int:
        return sum(len(file.read_text().splitlines()) for file in self.folder.rglob("turns.jsonl"))


def test_a_question_is_worked_on_when_its_reply_ends_and_takes_no_turn_twice(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path
):
    backend = Early(tmp_path)
    folder = run_in_process(rooms.config(tmp_path, max_batched_turns="all", batch_size=4), ModelPolicy(backend))
    assert trajectories(folder) == trajectories(one_by_one)
    assert results(folder) == results(one_by_one)


def test_views_that_come_at_once_are_not_prepared_before_the_last(rooms: RoomScans, tmp_path: Path):
    config = rooms.config(tmp_path, present="once", moves="spin", steps=2, num_questions=2, batch_size=2)
    folder = run_in_process(config, ModelPolicy(Early(tmp_path)))
    assert [row.turns for row in RunReader(folder).rows] == [3, 3]
