"""Questions with pictures, and answers that are the pose of the camera."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL_VIEW, RoomScans, run_in_process, run_main
from PIL import Image
from planned import spec_of

from roomscout import RoomEnv
from roomscout.agent.policies import Policy
from roomscout.agent.policies.movers import way_to_truth
from roomscout.agent.policies.replies import parser_of
from roomscout.analysis.rescore import reparsed, rescored
from roomscout.data.answers import POSE_KIND, Pose
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.pictures import Picture, QuestionPictureError
from roomscout.data.questions import fingerprint, load_questions
from roomscout.models import Reply
from roomscout.rooms.writer import write_rooms
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId

HERE = '{"rotation_angle_degrees": 0, "answer": "here", "done": true}'


@pytest.fixture(scope="module")
def views(tmp_path_factory) -> RoomScans:
    """Two rooms with a question each whose answer is a pose."""
    root = tmp_path_factory.mktemp("views")
    write_rooms(root, rooms=2, seed=5, per_type={}, views=True)
    return RoomScans(root, root / "questions.jsonl")


def turned(action) -> str:
    """A move as a reply."""
    return json.dumps({**{name: getattr(action, name) for name in ("rotation_angle_degrees", "forward_meters")},
                       "left_meters": action.left_meters, "z_delta_meters": action.z_delta_meters})  # fmt: skip


class Finder(Policy):
    """Goes to the truth as a model would: by replies."""

    name, reads_prompts = "finder", True

    def decide(self, states):
        return [self._answer(state) for state in states]

    def _answer(self, state):
        state.messages()
        way = way_to_truth(state.environment, state.question)
        there = np.hypot(way[0].forward_meters, way[0].left_meters) < 0.1 and abs(way[0].rotation_angle_degrees) < 5
        return state.read(Reply(HERE if there or state.is_last_turn else turned(way[0]), prompt_tokens=1))

    def answer_now(self, states):
        return [state.read(Reply(HERE), last_turn=True) for state in states]


class TestPose:
    TRUTH = "1, 2, 1.5, 350, -15, 2.0"

    @pytest.mark.parametrize(
        ("answer", "score", "wide", "spl"),
        [
            ("1, 2, 1.5, 350, -15, 2.0", 1, 1, 1.0),
            ("1, 2.25, 1.5, 5, -15, 4.0", 1, 1, 0.5),
            ("1, 2.26, 1.5, 350, -15, 2.0", 0, 1, 0.0),
            ("1, 2, 1.5, 350, 1, 2.0", 0, 1, 0.0),
            ("1, 2, 1.5, 170, -15, 0.0", 0, 0, 0.0),
            ("1, 2, 1.5, 350, -15, 0.5", 1, 1, 1.0),  # shorter than the shortest over the grid
            ("here", 0, 0, 0.0),
            (None, 0, 0, 0.0),
        ],
    )
    def test_is_scored_within_thresholds_of_place_and_direction(self, answer, score, wide, spl):
        more = POSE_KIND.more_scores(answer, self.TRUTH)
        assert (POSE_KIND.score(answer, self.TRUTH), more["success_wide"], more["spl"]) == (score, wide, spl)

    def test_the_angle_is_between_the_directions_of_view(self):
        apart = POSE_KIND.apart("0, 0, 0, 10, 80", "0, 0, 0, 190, 80")
        assert apart == (0.0, pytest.approx(20.0))
        assert Pose(near_deg=21).score("0, 0, 0, 10, 80", "0, 0, 0, 190, 80") == 1

    @pytest.mark.parametrize("truth", ["1, 2, 3", "here", "1, 2, 3, 4, x", ""])
    def test_a_truth_that_is_no_pose_is_refused(self, truth):
        assert "not x, y, z, heading and pitch" in str(POSE_KIND.wrong_truth(truth, ()))


class TestPictures:
    def test_come_before_the_first_view_with_a_sentence_each_and_stay(self, views):
        with RoomEnv(views.questions, scan_root=views.root, image_size=(128, 96), focal=60) as env:
            _, user = env.reset(0)
            assert user.text.startswith("Image 1 of this message is a picture") and len(user.images) == 2
            picture, view = (np.asarray(image) for image in user.images)
            assert picture.shape == view.shape == (96, 128, 3) and (picture != view).any()
            assert np.array_equal(view, env.state.observation.view)
            env.step(turned(way_to_truth(env.state.environment, env.state.question)[0]))
            assert len(env.messages[1].images) == 2 and len(env.messages[-1].images) == 1
            env.state.rules = replace(env.state.rules, keep_views=0)
            assert len(env.state.shown.messages[1].shots) == 2

    def test_are_recorded_beside_the_first_view_and_found_again(self, views, tmp_path):
        folder = run_in_process(views.config(tmp_path, policy="stay"))
        run = RunReader(folder)
        (turn,) = run.turns(EpisodeId(1, 1))
        assert turn.see == ("picture1",) and [shot.name for shot in turn.shots] == ["rgb", "picture1"]
        shown = run.questions[0].images[0].shown(*SMALL_VIEW)
        assert np.array_equal(turn.shots[1].image, shown)

    def test_count_in_the_fingerprint_by_their_bytes(self, views, tmp_path):
        here = load_questions(views.questions)
        shutil.copytree(views.root, copy := tmp_path / "copy")
        assert fingerprint(load_questions(copy / "questions.jsonl")) == fingerprint(here)
        Image.new("RGB", (64, 48)).save(copy / json.loads(views.questions.read_text().splitlines()[0])["images"][0])
        assert fingerprint(load_questions(copy / "questions.jsonl")) != fingerprint(here)

    @pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), (b"GIF89a", "cannot be shown")])
    def test_a_missing_or_damaged_one_fails_its_question_alone(self, views, tmp_path, content, why):
        shutil.copytree(views.root, copy := tmp_path / "copy")
        first = copy / json.loads(views.questions.read_text().splitlines()[0])["images"][0]
        first.unlink() if content is None else first.write_bytes(content)
        config = RoomScans(copy, copy / "questions.jsonl").config(tmp_path / "runs", policy="planner")
        bad, good = RunReader(run_in_process(config)).rows
        assert (bad.failed_part, why in bad.error, str(first) in bad.error) == ("picture", True, True)
        assert (good.status, good.score) == ("answered", 1)

    def test_one_that_changes_after_the_question_was_read_is_refused(self, tmp_path):
        Image.new("RGB", (4, 3), "red").save(tmp_path / "a.png")
        picture = Picture("a.png").beside(tmp_path)
        assert picture.shown(8, 8)[4, 4].tolist() == [255, 0, 0] and picture.shown(8, 8)[0, 0].tolist() == [255] * 3
        Image.new("RGB", (4, 3)).save(tmp_path / "a.png")
        with pytest.raises(QuestionPictureError, match="has changed since its question was read"):
            picture.shown(8, 8)

    @pytest.mark.parametrize("cell", ["a.gif", ["a.gif"], [3], {"file": "a.png"}])
    def test_a_column_that_is_no_list_of_files_is_refused(self, cell):
        with pytest.raises(ValueError, match=r"must be a list of PNG and JPEG files|not JSON|Expecting"):
            Picture.read(cell)

    def test_are_as_blind_as_the_views(self, views):
        with RoomEnv(views.questions, scan_root=views.root, renderer="blind", image_size=(64, 48)) as env:
            (picture,) = env.reset(0)[1].images[:1]
            assert np.unique(np.asarray(picture)).tolist() == [128]

    def test_count_in_the_plan(self, views, tmp_path):
        said = run_main(["plan", *views.flags(tmp_path, "--steps", "3")[1:]]).stdout
        assert "Images: at most 10 of" in said  # 2 questions, 4 turns and a picture each


class TestViewFinding:
    def test_the_planner_finds_each_view_and_sees_the_picture(self, views, tmp_path):
        folder = run_in_process(views.config(tmp_path, policy="planner", image_size=(640, 480), focal=300))
        for number, row in enumerate(RunReader(folder).rows, start=1):
            assert row.score == 1 and row.scores["spl"] > 0.98 and row.scores["distance_m"] < 0.01
            turns = RunReader(folder).turns(EpisodeId(number, 1))
            picture, last = turns[0].shots[1].image, turns[-1].shots[0].image
            assert np.abs(picture.astype(int) - last).mean() < 2

    @pytest.mark.parametrize("policy", ["stay", "random"])
    def test_whoever_does_not_look_finds_none(self, views, tmp_path, policy):
        rows = RunReader(run_in_process(views.config(tmp_path, policy=policy))).rows
        assert [(row.status, row.score, row.scores["spl"]) for row in rows] == [("answered", 0, 0)] * 2
        moved = [float(row.answer.split(", ")[-1]) for row in rows]
        assert (max(moved) > 0) == (policy == "random")

    @pytest.mark.parametrize(
        ("changes", "flag"),
        [
            ({"moves": "spin"}, "--moves spin"),
            ({"translation": False}, "--no-translation"),
            ({"steps": 0}, "--steps 0"),
        ],
    )
    def test_is_refused_at_once_where_the_model_does_not_move(self, views, tmp_path, changes, flag):
        with pytest.raises(Exception, match=f"{flag}: a pose is scored where the model itself moves"):
            spec_of(views.config(tmp_path, policy="random", **changes))

    def test_a_given_path_ends_at_the_truth(self, views, tmp_path):
        rows = RunReader(run_in_process(views.config(tmp_path, policy="random", given=("path",)))).rows
        assert [row.score for row in rows] == [1, 1]

    def test_an_env_rewards_success_and_progress(self, views):
        settings = {"scan_root": views.root, "image_size": (64, 48), "rewards": {"progress": 1.0}}
        with RoomEnv(views.questions, **settings) as env:
            env.reset(0)
            steps = [env.step(turned(each)) for each in way_to_truth(env.state.environment, env.state.question)]
            assert sum(each.info["rewards"]["progress"] for each in steps) == pytest.approx(1, abs=0.01)
            assert env.step(HERE).info["rewards"] == {"score": 1.0, "progress": 0.0}

    def test_endless_rooms_have_views_to_find(self):
        with RoomEnv(endless=True, question_types=["view_finding"], image_size=(64, 48)) as env:
            first = env.reset(3)
            assert len(first[1].images) == 2 and env.state.question.start is not None
            again = env.reset(3)
            assert np.array_equal(np.asarray(first[1].images[0]), np.asarray(again[1].images[0]))
            for each in way_to_truth(env.state.environment, env.state.question):
                env.step(turned(each))
            assert env.step(HERE).info["score"] == 1

    def test_the_pose_of_each_turn_is_scored_anytime(self, views, tmp_path):
        folder = run_in_process(views.config(tmp_path, anytime=True), Finder())
        for turn in RunReader(folder).turns(EpisodeId(1, 1))[:-1]:
            pose = [*turn.pose.position, turn.pose.heading_deg, turn.pose.pitch_deg]
            assert [float(each) for each in turn.forced.answer.split(", ")[:5]] == pytest.approx(pose, abs=1e-3)
            assert turn.forced.score == 0

    def test_several_answers_vote_for_the_most_central_pose(self):
        near = ["1, 2, 1.5, 90, 0, 2", "1.1, 2, 1.5, 95, 0, 3", "5, 5, 1.5, 270, 0, 9"]
        assert POSE_KIND.vote(near) == near[1] and POSE_KIND.parse("**Here.**", ()) == "here"

    def test_the_planner_goes_to_another_height_in_several_moves(self, views, tmp_path):
        rows = RunReader(run_in_process(views.config(tmp_path, policy="planner", given=(), steps=12))).rows
        low = [replace(each, start=replace(each.start, z_m=0.5)) for each in load_questions(views.questions)]
        with RoomEnv(low, scan_root=views.root, image_size=(64, 48)) as env:
            env.reset(0)
            way = way_to_truth(env.state.environment, env.state.question)
            assert [each.z_delta_meters for each in way[:4]] == pytest.approx([1.1 / 3] * 3 + [0], abs=1e-3)
        assert [row.score for row in rows] == [1, 1]

    def test_is_apart_from_the_overall_of_rooms(self):
        rooms = find_benchmark("rooms")
        assert "view_finding" not in rooms.by_name and rooms.type_of("view_finding").kind == POSE_KIND


def test_rescoring_reads_the_same_poses_from_replies(views, tmp_path):
    reader = RunReader(run_in_process(views.config(tmp_path), Finder()))
    again = rescored(reader, reparsed(reader, parser_of(reader, allow_code=False)))
    assert [each.row.answer for each in again] == [row.answer for row in reader.rows]
    assert [each.row.score for each in again] == [1, 1]


def test_a_folder_of_pictures_is_found_from_anywhere(views, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (question, _) = load_questions(views.questions)
    assert Path(question.images[0].file).is_absolute() and len(question.images[0].sha256) == 64
