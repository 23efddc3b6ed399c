"""Runs: any batch size gives the same trajectories, and a bad question never stops the others."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Event
from threading import enumerate as threads
from typing import Any

import numpy as np
import pytest
from conftest import (
    RoomScans,
    only_run,
    results,
    run_in_process,
    run_main,
    scripted,
    trajectories,
)
from planned import run_settings, settings_of
from scripted_model import ScriptedBackend, random_policy
from waiting import PATIENCE_S

from roomscout.agent.loop import answer_questions
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.running import library_of
from roomscout.agent.scheduler import Scheduler
from roomscout.agent.state import QuestionState
from roomscout.agent.turns import Run
from roomscout.base.errors import ConfigError
from roomscout.command.runs import look_ahead
from roomscout.data.scans import ScanNotFound
from roomscout.edge.parts import cuda_device_of
from roomscout.edge.planning import plan
from roomscout.envs.actions import CameraAction
from roomscout.models import ModelError, OutOfMemory, Reply, ReplyFormat
from roomscout.models.conversation import Conversation, Message
from roomscout.rendering.renderers import make_renderer
from roomscout.runs.journal import MemoryJournal
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
        ({"batch_size": 1, "max_batched_turns": 99, "concurrency": 1}, 0, 1),
        ({"batch_size": 2, "max_batched_turns": 4, "concurrency": 1}, 4, 1),
        ({"batch_size": 3, "max_batched_turns": 0, "concurrency": 1}, 0, 1),
        ({"batch_size": 3, "max_batched_turns": "all"}, 0, 3),
        ({"batch_size": 5, "max_batched_turns": 1, "concurrency": 2}, 1, 2),
        ({"batch_size": 5, "max_batched_turns": 1}, 1, 5),
    ],
)
def test_any_schedule_gives_the_same_trajectories(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path, schedule: dict[str, Any], since: int, size: int
):
    folder = run_in_process(rooms.config(tmp_path, **schedule), scripted())
    assert trajectories(folder) == trajectories(one_by_one)
    assert results(folder) == results(one_by_one)
    assert max(len(turn.batch) for turn in RunReader(folder).all_turns() if turn.turn >= since) == size


def test_questions_of_a_cohort_share_their_batched_turns(rooms: RoomScans, tmp_path: Path):
    folder = run_in_process(rooms.config(tmp_path, batch_size=3, max_batched_turns=2, concurrency=1), scripted())
    reader = RunReader(folder)
    for turn in reader.all_turns():
        assert len(turn.batch) == 1 or turn.turn < 2
    assert list(reader.turns(EpisodeId(1))[0].batch) == [row.id for row in reader.rows[:3]]


def test_the_last_cohort_begins_in_places_that_become_free(rooms: RoomScans, tmp_path: Path):
    folder = run_in_process(rooms.config(tmp_path, batch_size=6))
    reader = RunReader(folder)
    first = {row.id: reader.turns(row.episode)[0].batch for row in reader.rows}
    joined = [batch for batch in first.values() if any(first[other] != batch for other in batch)]
    assert joined and len(first) == 8 and all(len(turn.batch) <= 6 for turn in reader.all_turns())


def test_the_log_names_the_phases_and_answers(rooms: RoomScans, tmp_path: Path):
    shown = run_main(rooms.flags(tmp_path, "--max-batched-turns", "2", "--batch-size", "3")).stdout
    lines = shown.splitlines()
    assert "BATCHED TURN 0/1, cohort 1 of 3" in lines
    assert "Processing 3 active questions in batch" in lines
    assert any(re.fullmatch(r"SEQUENTIAL PHASE: [23] at a time", line) for line in lines)
    final = r"\[Q\d{3}\] Final answer: \S+( m| cm| m²)? \((\w+), truth (\S+), score [01](\.\d)?, \d turns?\)"
    assert sum(bool(re.fullmatch(final, line)) for line in lines) == len(rooms.rows)


@pytest.mark.parametrize(("said", "warned"), [("!" * 40, True), ("I look further. " + '{"done": false}', False)])
def test_replies_that_could_not_be_read_are_a_warning_of_the_run(rooms: RoomScans, tmp_path: Path, said, warned):
    ids = (str(rooms.rows[0]["id"]),)
    run_settings(rooms.config(tmp_path, ids=ids, steps=2), policy=ModelPolicy(ScriptedBackend(lambda _: said)))
    reader = RunReader(only_run(tmp_path))
    warnings = reader.summary.to_json().get("warnings", [])
    assert [each.startswith("3 of 3 replies could not be read as an action") for each in warnings] == [True] * warned
    assert all(each in (reader.folder / "run.log").read_text(encoding="utf-8") for each in warnings)


def test_the_log_of_one_question_is_its_whole_story(rooms: RoomScans, tmp_path: Path):
    def replies(conversation: Conversation) -> str:
        if len(conversation.images) == 2:
            return '{"answer": "A", "done": true}'
        return 'I see a bed.\nI go on.\n{"forward_meters": 2, "rotation_angle_degrees": 30, "done": false}'

    ids = (str(next(row["id"] for row in rooms.rows if row["options"])),)
    run_settings(rooms.config(tmp_path, ids=ids), policy=ModelPolicy(ScriptedBackend(replies)))
    reader = RunReader(only_run(tmp_path))
    (question,), (row,) = reader.questions, reader.rows
    move = reader.turns(EpisodeId(1))[0].move
    assert move is not None
    outcome = f"; moved {move.moved_m:.2f} of {move.requested_m:.2f} m" if move.blocked or move.clipped else ""
    lines = (reader.folder / "run.log").read_text(encoding="utf-8").splitlines()
    story = [line.partition("[Q001] ")[2] for line in lines if "[Q001]" in line]
    about = f"{question.dataset} {question.scene_name} ({question.question_type}, id {question.id})"
    said = question.question.replace("\n", "\\n")
    options = [f"    {option}" for option in question.options]
    assert story[: len(options) + 5] == [
        f"asked in {about}: {said}",
        *options,
        f"    ground truth: {question.ground_truth}",
        "turn 0 said: I see a bed.",
        "    I go on.",
        '    {"forward_meters": 2, "rotation_angle_degrees": 30, "done": false}',
    ]
    assert story[len(options) + 5].startswith(f"  -> left 30°, forward 2 m{outcome}")
    assert story[-1] == (
        f"Final answer: A ({question.question_type}, truth {question.ground_truth}, score {row.score:g}, 2 turns)"
    )


def test_run_log_has_short_prefixes_and_details_that_the_terminal_lacks(rooms: RoomScans, tmp_path: Path):
    shown = run_main(rooms.flags(tmp_path, "--num-questions", "2")).stdout
    lines = (only_run(tmp_path) / "run.log").read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
    said = {line[15:] for line in lines}
    assert said >= {"BATCHED TURN 0/3, cohort 1 of 1", "Processing 2 active questions in batch"}
    assert any(line.startswith("Batch size 2: random needs no memory") for line in said)
    assert "needs no memory" not in shown and shown.startswith("2 questions about 1 scene, all with a scan\n")


def test_a_missing_or_damaged_scan_is_a_failed_row(rooms: RoomScans, tmp_path: Path):
    root = shutil.copytree(rooms.root, tmp_path / "scans")
    missing, broken = sorted(root.glob("scannet/scans/*/*.ply"))
    missing.unlink()
    broken.write_bytes(broken.read_bytes()[:5000])
    config = rooms.config(tmp_path / "logs", scan_root=root)
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


def test_an_unexpected_error_stops_the_run_which_can_be_resumed(rooms: RoomScans, tmp_path: Path, caplog):
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
    undisturbed = run_in_process(rooms.config(tmp_path / "whole", batch_size=2), scripted())
    assert results(folder) == results(undisturbed)


def test_an_unexpected_error_before_the_run_has_the_same_status(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("roomscout.command.runs.plan", None)
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
    config = settings_of(batch=True, questions=rooms.questions, scan_root=tmp_path, log_root=tmp_path / "logs")
    with pytest.raises(ScanNotFound, match="has no scan of 2 scenes asked about: --scan-root takes"):
        run_settings(config, policy=scripted())
    assert not (tmp_path / "logs").exists()


def test_missing_scenes_are_listed_once_with_the_paths_tried(rooms: RoomScans, tmp_path: Path, caplog):
    root = shutil.copytree(rooms.root, tmp_path / "rooms")
    missing, _ = sorted(root.glob("scannet/scans/*"))
    shutil.rmtree(missing)
    caplog.set_level("INFO", "roomscout")
    config = settings_of(check_data=True, questions=rooms.questions, scan_root=root, log_root=tmp_path / "logs")
    assert look_ahead(config, None) == 1 and not (tmp_path / "logs").exists()
    first, second = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert first == f"no scan, so their questions fail: scannet {missing.name}"
    assert f"{missing.name}_vh_clean_2.ply" in second and f"of {len(rooms.rows)}" in caplog.text


def test_a_plan_needs_no_scans(rooms: RoomScans, tmp_path: Path, caplog):
    config = rooms.config(tmp_path, scan_root=tmp_path / "nowhere", plan=True)
    with caplog.at_level("INFO"):
        assert look_ahead(config, None) == 0
    assert "Scans: none yet" in caplog.text
    assert f"Questions: {len(rooms.rows)} on 2 scans" in caplog.text


@pytest.mark.parametrize(("truth", "score"), [("A", "1"), ("B", "0")])
def test_a_single_question_with_a_ground_truth_is_scored(
    rooms: RoomScans, tmp_path: Path, caplog, truth: str, score: str
):
    scan = min(rooms.root.glob("scannet/scans/*/*.ply"))
    config = settings_of(
        ply=scan,
        question="What colour is the bed?",
        options=("red", "blue"),
        ground_truth=truth,
        policy="random",
        renderer="blind",
        log_root=tmp_path,
        steps=0,
    )
    answering = ScriptedBackend(lambda _: '{"answer": "A", "done": true}')
    with caplog.at_level("INFO"):
        run_settings(config, policy=ModelPolicy(answering))
    assert caplog.messages[-2] == f"Score: {score} of 1 (correct answer: {truth})"
    (row,) = results(only_run(tmp_path))
    assert (row["question_type"], row["score"]) == ("open_choice", float(score))
    summary = json.loads((only_run(tmp_path) / "summary.json").read_text())
    assert summary["asked"]["overall_label"] == "overall_over_questions", "own questions belong to no task"


def test_the_model_sees_that_its_reply_was_truncated(rooms: RoomScans, tmp_path: Path):
    class Rambling(ScriptedBackend):
        def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
            text = 'Well, {"rotation_angle_degrees": 30, "seen": {"chair": 2, "done": true, "answer": "A"}, "forw'
            return [Reply(text, tokens=(1, 2, 3), generated_tokens=3, finish_reason="length") for _ in conversations]

    folder = run_in_process(rooms.config(tmp_path, steps=1, num_questions=1), ModelPolicy(Rambling(random_policy())))
    said = (folder / "q001" / "messages.json").read_text()
    assert "it was truncated after 3 tokens" in said


class Limited(ScriptedBackend):
    """Replies like the random policy, but fits at most `most` conversations and fails for those in `refused`."""

    def __init__(self, most: int = 99, refused: Sequence[str] = ()) -> None:
        super().__init__(random_policy())
        self.most, self.refused, self.sizes = most, refused, []

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        if len(conversations) > self.most:
            raise OutOfMemory(f"{len(conversations)} conversations do not fit")
        if bad := [c.id for c in conversations if c.id in self.refused]:
            raise ModelError(f"{bad} are too long")
        self.sizes.append(len(conversations))
        return super().generate(conversations, reply_format)


def run_with(backend: Limited, rooms: RoomScans, log_root: Path, batch_size: int, **changes: int) -> Path:
    """A run with a custom backend."""
    return run_in_process(rooms.config(log_root, batch_size=batch_size, **changes), ModelPolicy(backend))


def test_out_of_memory_halves_the_batch_permanently_and_changes_nothing_else(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path
):
    backend = Limited(most=2)
    folder = run_with(backend, rooms, tmp_path, batch_size=5, max_batched_turns=99)
    assert trajectories(folder) == trajectories(one_by_one)
    assert max(backend.sizes) == 2


class Crammed(Limited):
    """Fits conversations of at most `room` views in all."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.at_first = room, []

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        views = [conversation.views for conversation in conversations]
        if sum(views) > self.room and len(views) > 1:
            raise OutOfMemory(f"{sum(views)} views do not fit")
        self.at_first += [len(views)] * (views == [1] * len(views))
        return super().generate(conversations, reply_format)


@pytest.mark.parametrize("schedule", [{"max_batched_turns": 99}, {"max_batched_turns": 1}])
def test_the_batch_grows_again_when_the_next_questions_are_short(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path, schedule: dict[str, int], caplog
):
    backend = Crammed(room=5)
    folder = run_with(backend, rooms, tmp_path, batch_size=3, **schedule)
    assert trajectories(folder) == trajectories(one_by_one)
    assert backend.at_first[:2] == [3, 3] and min(backend.sizes) == 1
    assert "Out of memory with 2 questions in a batch: 1 at a time from turn 2 on" in caplog.text


def test_a_question_at_fault_fails_alone(rooms: RoomScans, one_by_one: Path, tmp_path: Path):
    for backend in (Limited(most=0), Limited(refused=[str(rooms.rows[1]["id"])])):
        folder = run_with(backend, rooms, tmp_path / str(backend.most), batch_size=4)
        failed = [row["number"] for row in results(folder) if row["failed_part"] == "model"]
        assert failed == (list(range(1, len(rooms.rows) + 1)) if backend.most == 0 else [2])


class TurnLeft(Policy):
    """Turns left forever."""

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        return [Decision(CameraAction(rotation_angle_degrees=30.0)) for _ in states]


def test_questions_with_different_steps_share_one_batch(rooms: RoomScans, tmp_path: Path, caplog):
    caplog.set_level("INFO", "roomscout.agent.loop")
    spec, journal = plan(rooms.config(tmp_path)), MemoryJournal()
    states = [QuestionState(number, each, number) for number, each in enumerate(spec.questions.here[:3], start=1)]
    with closing(library_of(spec.world, make_renderer("raycast"))) as library, ThreadPoolExecutor() as pool:
        answer_questions(Scheduler(states, 3, 4), Run(library, TurnLeft(), journal, pool), 3)
    assert [row.turns for row in journal.rows] == [2, 3, 4]
    assert [len(journal.turns_of(EpisodeId(number))) for number in (1, 2, 3)] == [2, 3, 4]
    assert "BATCHED TURN 3/3" in caplog.text


def test_a_custom_policy_is_named_and_only_the_same_one_may_resume(rooms: RoomScans, tmp_path: Path, caplog):
    config = rooms.config(tmp_path, num_questions=2, steps=3)
    with caplog.at_level("INFO"):
        assert run_settings(config, policy=TurnLeft()).status == 0
    assert "[Q001] No answer by the last turn" in caplog.messages
    reader = RunReader(only_run(tmp_path))
    assert [row.status for row in reader.rows] == ["exhausted"] * 2
    headings = [turn.pose.heading_deg for turn in reader.turns(EpisodeId(1))]
    assert [(b - a) % 360 for a, b in pairwise(headings)] == pytest.approx([30.0] * 3)
    assert reader.facts.config["model"] == reader.summary.to_json()["model"] == "TurnLeft"
    with pytest.raises(ConfigError, match=r"was begun with TurnLeft, not random"):
        run_settings(config, reader.folder)


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

    config = rooms.config(tmp_path, batch_size=3)
    assert run_settings(config, policy=ModelPolicy(Broken())).status == 3
    assert run_settings(config, only_run(tmp_path), ModelPolicy(Engine())).status == 0


def test_one_question_on_one_scan(rooms: RoomScans, tmp_path: Path):
    ply = next(rooms.root.glob("scannet/scans/*/*.ply"))
    flags = ["--ply", str(ply), "--question", "How many chairs are in this room?", "--ground-truth", "2"]
    ended = run_main([*flags, "--log-root", str(tmp_path), "--policy", "random", "--renderer", "raycast"])
    assert ended.returncode == 0, ended.stderr
    folder = only_run(tmp_path)
    assert not folder.name.endswith("_batched")
    assert results(folder)[0]["question_type"] == "object_counting"
    assert "[Q001] turn 0: " in ended.stdout, "a policy without a model says nothing"
    assert not re.search("batch|1 questions|sequential", ended.stdout, re.I), "there is nothing to batch"


@pytest.mark.parametrize(
    ("device", "ordinal"),
    [("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:12", 12), ("cpu", None), ("cuda:x", None), ("automatic", None)],
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


def test_a_message_with_an_image_of_no_observation_is_named(rooms: RoomScans, tmp_path: Path):
    class Painter(Policy):
        def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
            for state in states:
                state.conversation.append(Message("system", "You paint."))
                state.conversation.append(Message.of_views("Look.", np.zeros((4, 4, 3), np.uint8)))
            return [Decision(CameraAction(rotation_angle_degrees=30.0)) for _ in states]

    outcome = run_settings(rooms.config(tmp_path), policy=Painter())
    assert outcome.status == 3
    assert "a message shows the image 'rgb', which is in none of the question's observations" in str(outcome.error)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_run_survives_an_output_that_takes_no_more(rooms: RoomScans, tmp_path: Path):
    command = rooms.command(tmp_path / "runs", "--num-questions", "2")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Final answer" in (only_run(tmp_path / "runs") / "run.log").read_text()


class Asleep(ScriptedBackend):
    """An engine that sleeps, so that the views of the next questions are there before it replies."""

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        time.sleep(0.1)
        return super().generate(conversations, reply_format)


@pytest.mark.parametrize("cache", [0, 2**32])
def test_views_drawn_ahead_are_those_that_would_be_drawn_in_time(
    rooms: RoomScans, one_by_one: Path, tmp_path: Path, cache: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("roomscout.agent.running._cache_bytes", lambda: cache)
    config = rooms.config(tmp_path, batch_size=2, max_batched_turns="all")
    folder = run_in_process(config, ModelPolicy(Asleep(random_policy())))
    assert trajectories(folder) == trajectories(one_by_one)
    assert results(folder) == results(one_by_one)


def test_an_error_while_views_are_drawn_ahead_belongs_to_its_question(rooms: RoomScans, tmp_path: Path, caplog):
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
