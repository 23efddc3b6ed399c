"""A checkpoint states the questions that it was trained on, and a run warns of others."""

import json
import shutil
import warnings
from pathlib import Path

import pytest
from conftest import RoomScans, only_run, run_main, scripted

from roomscout import ask, explore, load_policy
from roomscout.agent.config import ModelSettings
from roomscout.agent.unfamiliar import unfamiliar_questions
from roomscout.data.questions import ask_one, load_questions
from roomscout.models import EXPLORER, ModelError
from roomscout.models.trained_questions import TrainedQuestions, Wording, trained_questions_of
from roomscout.rooms import QUESTIONS_PER_TYPE, ScanStyle, make_room, room_questions
from roomscout.training.reading import TRAINED_QUESTIONS

BRIEF = {"steps": 0, "renderer": "raycast"}
FEW_TOKENS = {"max_new_tokens": 8}
SIDES = ("A. left", "B. right")
SIDE = "If I am standing by the sofa and facing the {}, is the bed to the left or the right of the {}?"


@pytest.fixture(scope="module")
def explorer() -> TrainedQuestions:
    found = trained_questions_of("embedded")
    assert found is not None
    return found


def test_every_question_of_the_procedural_rooms_is_familiar(explorer: TrainedQuestions):
    rooms = [(seed, make_room(seed, style=ScanStyle(resolution_m=0.5))) for seed in (0, 7, 11)]
    rows = [row for seed, room in rooms for row in room_questions(room, seed)]
    assert len(rows) > 50 and {row["question_type"] for row in rows} == QUESTIONS_PER_TYPE.keys()
    assert [row for row in rows if explorer.why_unfamiliar(row["question"], row["options"] or ())] == []


@pytest.mark.parametrize(
    ("question", "options", "words"),
    [
        ("Describe this room.", (), "the wording is unknown"),
        ("How many elephants are in this room?", (), 'nearest known is "How many {object}(s) are in this room?"'),
        ("How many elephant(s) are in this room?", (), "object 'elephant' is unknown"),
        ("How many Chair(s) are in this room?", (), "object 'Chair' is unknown"),
        ("how many chair(s) are in this room?", (), "the wording is unknown"),
        (SIDE.format("ceiling light", "ceiling light"), SIDES, "object 'ceiling light' is unknown"),
        (SIDE.format("tv", "tv"), ("A. left", "B. above"), "option 'above' is unknown"),
        (SIDE.format("tv", "tv"), (), "it needs options: left, right"),
        ("How many chair(s) are in this room?", ("A. 2", "B. 3"), "it takes no options"),
        (
            "Measuring from the closest point of each object, which of these objects (bed, sofa, tv, table) is the "
            "closest to the door?",
            ("A. bed", "B. sofa", "C. tv", "D. piano"),
            "object 'piano' is unknown",
        ),
    ],
)
def test_what_is_unfamiliar_is_named(explorer: TrainedQuestions, question: str, options: tuple[str, ...], words: str):
    assert words in (explorer.why_unfamiliar(question, options) or "")


def test_letters_of_options_do_not_count(explorer: TrainedQuestions):
    assert explorer.why_unfamiliar(SIDE.format("tv", "tv"), ("(A) left", "right")) is None


def test_a_question_about_one_object_that_it_knows_is_familiar(explorer: TrainedQuestions):
    assert explorer.why_unfamiliar("How many bathtub(s) are in this room?") is None


def test_the_questions_saved_with_the_explorer_are_those_that_training_writes(explorer: TrainedQuestions):
    assert explorer == TRAINED_QUESTIONS


def test_a_wording_with_an_undefined_name_is_refused():
    with pytest.raises(ValueError, match=r"\{thing\} in 'Where is the \{thing\}\?' is not one of the words"):
        TrainedQuestions((Wording("Where is the {thing}?"),), {"object": ("bed",)})


@pytest.mark.parametrize("name", ["embedded", "a copy"])
def test_asking_warns_before_the_run(rooms: RoomScans, tmp_path: Path, name: str):
    model = str(shutil.copytree(EXPLORER, tmp_path / "copy")) if name == "a copy" else name
    scan = min(rooms.root.rglob("*.ply"))
    with pytest.warns(UserWarning, match=r"The question is unlike those that .*\n.*the wording is unknown") as caught:
        ask(scan, "Describe this room.", model=model, **BRIEF, **FEW_TOKENS)
    assert [warning.filename for warning in caught] == [__file__], "the warning is about the caller's line"


def test_a_loaded_policy_warns_too(rooms: RoomScans):
    policy, scan = load_policy("embedded", **FEW_TOKENS), min(rooms.root.rglob("*.ply"))
    with pytest.warns(UserWarning, match="object 'elephant' is unknown"):
        ask(scan, "How many elephant(s) are in this room?", policy=policy, **BRIEF)


def test_questions_of_its_training_are_asked_without_a_warning(rooms: RoomScans):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        explore(
            rooms.questions, scan_root=rooms.root, model="embedded", num_questions=2, progress=False, **BRIEF,
            **FEW_TOKENS,
        )  # fmt: skip


def test_a_run_warns_once_on_the_console_and_in_its_log(rooms: RoomScans, tmp_path: Path):
    rows = [{**rooms.rows[0], "id": f"q{number}", "question": f"Is this room {number}?"} for number in range(5)]
    rows.append(rooms.rows[0])
    questions = tmp_path / "own.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--model", "embedded", "--questions", str(questions), "--steps", "0", "--image-size", "auto"]
    flags += ["--max-new-tokens", "8"]
    given = [each for each in rooms.flags(tmp_path / "runs") if each not in ("--focal", "75")]
    shown = run_main([*given, *flags])
    assert shown.returncode == 0, shown.stderr
    for text in (shown.stdout, (only_run(tmp_path / "runs") / "run.log").read_text()):
        assert text.count("5 of 6 questions are unlike those that embedded was trained on") == 1
        assert '"Is this room 2?": the wording is unknown' in text and "and 2 more" in text
        assert text.index("unlike those") < text.index("BATCHED TURN")


@pytest.mark.parametrize("model", ["gpt-9", "Qwen/Qwen3-VL-8B-Instruct", "scripted:random"])
def test_models_that_state_no_questions_get_no_warning(model: str):
    assert unfamiliar_questions(None, ModelSettings(model=model), [ask_one("Describe this room.", "room")]) == []


def test_a_policy_that_asks_no_checkpoint_gets_no_warning(rooms: RoomScans):
    assert unfamiliar_questions(scripted(), ModelSettings(model="embedded"), load_questions(rooms.questions)) == []


@pytest.mark.parametrize("text", ["{", '{"wordings": [{"question": "{x}"}], "words": {}}', '{"words": {}}'])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str):
    (tmp_path / "trained_questions.json").write_text(text)
    with pytest.raises(
        ModelError, match=r"^[^\n]*trained_questions\.json is damaged \([^\n]*: fix it, or remove it to "
    ):
        trained_questions_of(str(tmp_path))
