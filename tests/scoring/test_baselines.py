"""Baselines of a run: the most frequent answer elsewhere, and the same run blind."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import RoomScans, only_run, run_in_process, vsi_question
from planned import changed, run_settings
from transformers import LogitsProcessorList

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.state import QuestionState
from roomscout.data.benchmark import FrequentAnswers
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.questions import Question, QuestionSource, Selection, load_questions
from roomscout.edge.api import explore
from roomscout.edge.declaring import Role
from roomscout.edge.record import answerer_of, conditions_of, scoring_of
from roomscout.edge.settings import TYPES, Settings, names_of
from roomscout.envs.actions import CameraAction
from roomscout.models.transformers.decoding import Penalties, RowSampling
from roomscout.rendering.registry import RENDERERS
from roomscout.runs.conditions import hash_of, is_blind_run_of
from roomscout.runs.merge import merge
from roomscout.runs.provenance import hashes_of
from roomscout.runs.reader import RunReader, run_folders
from roomscout.scoring.baselines import frequency_baseline, frequent_guesses
from roomscout.scoring.scores import Baseline

SIZE = "object_size_estimation"


def counting(
    *answers: tuple[str, str | None], dataset: str = "scannet", kind: str = "object_counting"
) -> list[Question]:
    """A counting question for each scene and ground truth, with ids from 0."""
    return [
        vsi_question(str(number), dataset, scene, kind, "How many?", (), truth)
        for number, (scene, truth) in enumerate(answers)
    ]


def guesses(questions: Sequence[Question], source: Sequence[Question] | None = None) -> list[str | None]:
    asked = Selection(questions, QuestionSource("questions.jsonl", source or questions))
    return list(frequent_guesses(questions, asked, BENCHMARK).answers.values())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param("a2 a2 b3 c4 c4", "4 4 2 2 2", id="never from its own scene, the first on a tie"),
        pytest.param("a2 a2", "- -", id="none without others of its type elsewhere"),
        pytest.param("a2 b- c5", "5 2", id="neither for nor from a question without a ground truth"),
    ],
)
def test_a_guess_is_the_most_frequent_answer_in_other_scenes(asked: str, expected: str):
    questions = counting(*((scene, None if truth == "-" else truth) for scene, truth in asked.split()))
    assert [each or "-" for each in guesses(questions)] == expected.split()


def test_a_benchmark_may_bring_the_answers_of_its_training_split():
    trained = replace(BENCHMARK, frequent_answers=FrequentAnswers("the training split", {"object_counting": "4"}))
    questions = counting(("a", "4"), ("b", "2"))
    found = frequent_guesses(questions, Selection.all_of(questions), trained)
    assert (found.source, found.answers) == ("the training split", {"0": "4", "1": "4"})


def test_the_rooms_are_compared_with_the_answers_of_other_rooms():
    rooms = find_benchmark("rooms")
    questions = counting(("a", "3"), ("b", "3"), dataset="bare")
    found = frequency_baseline(frequent_guesses(questions, Selection.all_of(questions), rooms), questions, rooms)
    assert found is not None and found.overall == 100.0
    assert found.source.endswith("in 300 other rooms of the same levels")


def test_the_rooms_are_compared_with_what_their_text_alone_tells():
    known = find_benchmark("rooms").frequent_answers
    assert known is not None
    sizes = {
        name: known.answer_to(SIZE, f"What is the length of the longest dimension (length, width, or height) of the "
                              f"{name}, measured in centimeters?") for name in ("bed", "clock", "unicorn")
    }  # fmt: skip
    assert sizes == {"bed": "192", "clock": "35", "unicorn": known.by_type[SIZE]}
    assert known.answer_to("object_counting", "How many picture(s) are in this room?") == "5"
    assert known.answer_to("object_abs_distance", "Measuring ... the bed (in meters)?") == "3.1"


def test_a_baseline_without_a_task_has_no_overall():
    questions = [*counting(("a", "2"), ("b", "2")), *counting(("a", "3.0"), kind="room_size_estimation")]
    questions = [replace(each, id=str(number)) for number, each in enumerate(questions)]
    found = frequency_baseline(
        frequent_guesses(questions, Selection.all_of(questions), BENCHMARK), questions, BENCHMARK
    )
    assert found == Baseline(
        source="most frequent answer of the type in other scenes of the list of questions",
        questions=2,
        tasks={"object_counting": 100.0},
    )


def baselines(folder: Path) -> dict[str, Baseline]:
    return RunReader(folder).summary.baselines


def test_a_resumed_run_keeps_its_baseline_without_the_question_file(rooms: RoomScans, tmp_path: Path):
    own = RoomScans(shutil.copytree(rooms.root, tmp_path / "rooms"), tmp_path / "rooms" / "few.jsonl")
    config = own.config(tmp_path / "logs", steps=0)
    run = run_in_process(config)
    before = baselines(run)["most_frequent"]
    own.questions.unlink()
    lines = (run / "results.jsonl").read_text().splitlines(keepends=True)
    (run / "results.jsonl").write_text("".join(lines[:-1]))
    assert run_settings(config, run).status == 0
    assert baselines(run)["most_frequent"] == before


def test_merged_parts_have_the_baseline_of_an_undivided_run(six_rooms: RoomScans, one_run: Path, tmp_path: Path):
    logs = [tmp_path / str(number) for number in (1, 2)]
    parts = [run_in_process(six_rooms.config(log, shard=f"{number}/2")) for number, log in enumerate(logs, start=1)]
    merge(tmp_path / "merged", parts)
    assert baselines(tmp_path / "merged") == baselines(one_run)


def test_question_objects_are_compared_with_those_of_other_scenes_in_the_list(rooms: RoomScans, tmp_path: Path):
    questions = load_questions(rooms.questions)
    settings = {"scan_root": rooms.root, "renderer": "blind", "image_size": (32, 24), "steps": 0}
    explore(questions, policy="random", log_root=tmp_path, **settings)
    assert "other scenes of the list of questions" in baselines(only_run(tmp_path))["most_frequent"].source


class SaysA(Policy):
    """Answers at once: the first option, or 1."""

    name = "SaysA"

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        answers = ("A" if state.question.options else "1" for state in states)
        return [Decision(CameraAction(answer=answer, done=True)) for answer in answers]


def test_the_blind_baseline_is_the_newest_finished_blind_run_of_the_same(rooms: RoomScans, tmp_path: Path):
    config = rooms.config(tmp_path, image_size=(32, 24), num_questions=4, steps=0)
    for changes in ({"steps": 1}, {"num_questions": 3}, {}):
        run_settings(changed(config, renderer="blind", **changes), policy=SaysA())
    blind = run_folders(tmp_path)[-1]
    run_settings(config, policy=SaysA())
    found, scores = baselines(run_folders(tmp_path)[-1])["blind"], RunReader(blind).summary.asked
    assert found == Baseline(
        source=f"{blind.name}: the same questions with grey views",
        questions=4,
        tasks=scores.tasks,
        overall=scores.overall,
    )


OTHER_CONDITIONS: dict[str, Any] = {
    "renderer": "pyrender", "up_axis": "y", "scale": 0.5, "image_size": (320, 200),
    "focal": 80.0, "camera_height": 1.2, "camera_pitch": 0.0, "see": ("rgb", "depth"), "prompts": Path("own.yaml"),
    "max_new_tokens": 9, "temperature": 0.7, "constrained": not Settings().constrained, "steps": 3,
    "generation": ("top_p=0.9",),
    "moves": "spin", "present": "once", "frames": 3, "keep_views": 1, "given": ("boxes",), "min_turns": 1,
    "actions": "discrete", "translation": False, "tell": ("pose",), "extra_body": '{"top_p": 0.9}',
}  # fmt: skip
"""Another value of each setting that changes the conditions of an answer."""


@pytest.mark.parametrize("name", names_of(Role.ANSWER))
def test_another_value_of_a_setting_gives_other_conditions_and_no_blind_baseline(
    name: str, rooms: RoomScans, one_run: Path, tmp_path: Path
):
    config = rooms.config(tmp_path)
    prompts = replace(Prompts(), opening="Q: {question}") if name == "prompts" else Prompts()
    usual = conditions_of(config.as_json, Prompts())
    value = one_run if name == "moves_of" else OTHER_CONDITIONS[name]
    other = conditions_of(changed(config, **{name: value}).as_json, prompts)
    assert hash_of(usual) != hash_of(other)
    facts = replace(RunReader(one_run).facts, conditions=usual)
    blind = replace(facts, config=facts.config | {"renderer": "blind"}, conditions=usual | {"renderer": "blind"})
    assert is_blind_run_of(facts, blind)
    assert not is_blind_run_of(facts, replace(facts, conditions=other))
    if name != "renderer":
        assert not is_blind_run_of(facts, replace(blind, conditions=other | {"renderer": "blind"}))


SAMPLING = {
    "top_p": (1.0, 0.3), "top_k": (1,), "min_p": (0.0, 0.9), "presence_penalty": (0.0, 1.9),
    "frequency_penalty": (0.0, 1.9), "repetition_penalty": (1.0, 5.0),
}  # fmt: skip


def drawn(temperature: float, generation: dict[str, float]) -> list[int]:
    """The tokens that the engine of this process takes of random logits, the second of each row by the first."""
    prompts = [[1, 2, 3]] * 256
    logits = torch.randn(2, len(prompts), 20, generator=torch.Generator().manual_seed(1))
    processors = LogitsProcessorList()
    if any(name.endswith("penalty") for name in generation):
        processors.append(Penalties(prompts, generation, torch.device("cpu")))
    if temperature:
        streams = list(map(str, range(len(prompts))))
        processors.append(RowSampling(temperature, streams, torch.device("cpu"), generation))
    ids = torch.tensor(prompts)
    for step in logits:
        ids = torch.cat([ids, processors(ids, step).argmax(1, keepdim=True)], dim=1)
    return ids.flatten().tolist()


@pytest.mark.parametrize("others", [{}, {"steps": 3}, {"see": ("rgb", "depth"), "image_size": (320, 200)}])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("name", SAMPLING)
def test_a_parameter_of_sampling_is_a_condition_if_it_can_change_a_reply(
    name: str, temperature: float, others: dict[str, Any], rooms: RoomScans, tmp_path: Path
):
    def hashed(engine: str, *generation: str) -> str:
        values = {"temperature": temperature, "engine": engine, "generation": generation, **others}
        return hash_of(conditions_of(rooms.config(tmp_path, **values).as_json, None))

    for value in SAMPLING[name]:
        is_neutral = drawn(temperature, {}) == drawn(temperature, {name: value})
        for engine in ("transformers", "vllm"):
            assert (hashed(engine) == hashed(engine, f"{name}={value}")) == is_neutral
            beside = hashed(engine, "presence_penalty=1", f"{name}={value}") if name != "presence_penalty" else None
            assert beside is None or (beside == hashed(engine, "presence_penalty=1")) == is_neutral
        never = temperature == 0 and not name.endswith("penalty")  # a server of others may have another default
        assert (hashed("openai") == hashed("openai", f"{name}={value}")) == never


def test_conditions_of_a_checkpoint_that_is_not_here_are_those_that_were_asked_for(rooms: RoomScans, tmp_path: Path):
    assert conditions_of(rooms.config(tmp_path, generation="checkpoint").as_json, None)["generation"] == ["checkpoint"]


def test_each_renderer_has_conditions_of_its_own(rooms: RoomScans, tmp_path: Path):
    hashes = {hash_of(conditions_of(rooms.config(tmp_path, renderer=each).as_json, None)) for each in RENDERERS}
    assert len(hashes) == len(RENDERERS)


def test_code_of_others_is_recorded_by_its_hash(rooms: RoomScans, tmp_path: Path):
    own = tmp_path / "mine.py"
    own.write_text("SPACE = 1")
    config = rooms.config(tmp_path, **dict.fromkeys(("actions", "policy", "benchmark"), f"{own}:SPACE")).as_json
    before = conditions_of(config, None), answerer_of(config), scoring_of(config)
    own.write_text("SPACE = 2")
    after = conditions_of(config, None), answerer_of(config), scoring_of(config)
    assert all(first != second for first, second in zip(before, after, strict=True))


def test_a_run_with_another_score_is_another_run(one_run: Path, tmp_path: Path):
    own, facts = tmp_path / "mine.py", RunReader(one_run).facts
    own.write_text("def score(): return 1")
    first = replace(facts, scoring=scoring_of(facts.config | {"benchmark": f"{own}:CLOCK"}))
    own.write_text("def score(): return 0")
    second = replace(facts, scoring=scoring_of(facts.config | {"benchmark": f"{own}:CLOCK"}))
    grey = {"renderer": "blind"}
    blind = replace(first, config=facts.config | grey, conditions=facts.conditions | grey)
    assert is_blind_run_of(first, blind) and not is_blind_run_of(second, blind)
    assert str(hashes_of(first, ["scan"])) != str(hashes_of(second, ["scan"]))
    assert scoring_of(facts.config) == {"benchmark": "vsi-bench", "samples": 1}


def test_the_folder_of_equal_files_is_no_condition(rooms: RoomScans, one_run: Path, tmp_path: Path):
    found = []
    for folder in (tmp_path / "here", tmp_path / "there"):
        shutil.copytree(one_run, folder / one_run.name)
        (folder / "mine.py").write_text("SPACE = 1")
        (folder / "benchmark.yaml").write_text("name: kitchens")
        config = rooms.config(tmp_path, actions=f"{folder / 'mine.py'}:SPACE", moves_of=folder / one_run.name)
        own = scoring_of(config.as_json | {"benchmark": f"{folder / 'mine.py'}:CLOCK"})
        found.append((conditions_of(config.as_json, None), own))
        of_folder = scoring_of(config.as_json | {"benchmark": str(folder)})
        assert (of_folder["benchmark"], len(of_folder["benchmark_sha256"])) == (folder.name, 64)
    assert found[0] == found[1]
    assert (found[0][0]["actions"], found[0][0]["moves_of"]) == ("mine.py:SPACE", one_run.name)


def test_each_setting_that_names_a_path_is_a_condition_by_its_hash():
    paths = {name for name in names_of(Role.ANSWER, Role.SCORING) if Path in TYPES[name]}
    assert paths == {"prompts", "moves_of"}, "the hash of its content belongs into conditions_of"


def test_the_protocol_names_the_basics_and_each_condition_that_is_not_default(one_run: Path):
    facts = RunReader(one_run).facts
    assert facts.protocol.startswith("moves=model, steps=8, image_size=160 96, renderer=raycast, temperature=0, ")
    assert facts.protocol.endswith(", max_new_tokens=512, tell=pose turns, VSI-Bench scoring")
    more = {"light": 0.5, "fog": False, "rain": True}
    config, conditions = facts.config | more, facts.conditions | more | {"prompts": 64 * "a"}
    dim = replace(facts, config=config, conditions=conditions, flags=(*facts.flags, "--light", "0.5", "--no-fog"))
    told = facts.protocol.replace("temperature=0, ", "temperature=0, prompts=aaaaaaaaaaaa, ")
    assert dim.protocol == told.replace(", VSI-Bench", ", light=0.5, fog=False, VSI-Bench")


def test_the_protocol_says_what_moves_the_camera_and_whether_views_are_grey(one_run: Path):
    facts = RunReader(one_run).facts
    for values, begins in (
        ({"moves": "none"}, "moves=none, image_size="),
        ({"moves_of": "20260101_000000"}, "moves_of=20260101_000000, steps=8, "),
        ({"given": ["path"]}, "given=path, steps=8, "),
        ({"renderer": "blind"}, "BLIND, every view grey, moves=model, "),
    ):
        other = replace(facts, config=facts.config | values, conditions=facts.conditions | values)
        assert other.protocol.startswith(begins)
