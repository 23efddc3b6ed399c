"""Several answers to each question: their folders, seeds, resumption, parts, and what they say together."""

import json
from itertools import combinations, permutations
from pathlib import Path
from random import Random

import pytest
from conftest import RoomScans, interrupted, results, run_in_process, run_main, trajectories
from planned import run_settings
from result_rows import result_row

from roomscout.agent.policies.controls import RandomPolicy
from roomscout.base.errors import ConfigError
from roomscout.data.answers import LETTER_KIND, TEXT_KIND, AnswerKind, Number, Text
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.questions import Question, QuestionError, load_questions
from roomscout.edge.api import ask, explore, load_policy
from roomscout.runs.merge import merge
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId
from roomscout.scoring.agreement import agreement_of
from roomscout.scoring.samples import format_samples, pass_at, summarize_samples
from roomscout.scoring.scores import ResultRow, Scores


def test_samples_differ_and_the_first_is_the_answer_of_a_run_without_them(rooms: RoomScans, tmp_path: Path):
    once = run_in_process(rooms.config(tmp_path / "once", num_questions=3))
    three = run_in_process(rooms.config(tmp_path / "three", num_questions=3, samples=3))
    reader = RunReader(three)
    assert [row.episode for row in reader.rows] == [EpisodeId(q, s) for q in (1, 2, 3) for s in (1, 2, 3)]
    assert sorted(path.name for path in three.glob("q*_s*")) == [f"q00{q}_s{s}" for q in (1, 2, 3) for s in (2, 3)]
    single, several = trajectories(once), trajectories(three)
    assert {episode: several[episode] for episode in single} == single
    poses = {str([turn.pose for turn in reader.turns(EpisodeId(1, sample))]) for sample in (1, 2, 3)}
    assert len(poses) == 3
    summary = reader.summary
    assert (summary.samples.questions, summary.types["all"].questions) == (3, 9)
    scores = [row.score for row in reader.rows if row.score is not None]
    assert summary.samples.overall["mean"] == pytest.approx(summary.asked.overall)
    assert summary.samples.overall["pass@3"] >= 100 * sum(scores) / 9
    _, columns, *lines = format_samples(summary)
    assert columns.startswith("percent of 3 questions, 3 answers each  ")
    assert columns.split()[-4:] == ["mean", "pass@2", "pass@3", "majority"]
    assert [line.split()[0] for line in lines] == [*summary.asked.tasks, "overall"]


def test_an_interrupted_run_of_samples_resumes_to_the_same_answers(rooms: RoomScans, tmp_path: Path):
    undisturbed = run_in_process(rooms.config(tmp_path / "undisturbed", samples=2, num_questions=2, steps=3))
    cut = interrupted(undisturbed, 2, tmp_path / "logs" / "cut")
    assert run_main(["--continue", str(cut)]).returncode == 0
    assert results(cut) == results(undisturbed) and trajectories(cut) == trajectories(undisturbed)
    more = run_main(["--continue", str(cut), "--samples", "3"])
    assert more.returncode == 2 and "--samples would change answers" in more.stderr


def test_parts_of_a_run_of_samples_merge_to_the_whole(rooms: RoomScans, tmp_path: Path):
    whole = run_in_process(rooms.config(tmp_path / "whole", samples=2, steps=2))
    parts = [run_in_process(rooms.config(tmp_path / f"part{n}", samples=2, steps=2, shard=f"{n}/2")) for n in (1, 2)]
    merge(tmp_path / "merged", parts)
    assert results(tmp_path / "merged") == results(whole)
    assert trajectories(tmp_path / "merged") == trajectories(whole)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (tmp_path / "merged", whole)]
    assert summaries[0]["samples"] == summaries[1]["samples"] and summaries[0]["pending"] == 0


def test_a_list_may_give_each_question_several_times(rooms: RoomScans, tmp_path: Path):
    looking = {"renderer": "raycast", "image_size": (32, 24), "steps": 2}
    settings = {"scan_root": rooms.root, "log_root": tmp_path, "policy": RandomPolicy(), **looking}
    first, second = load_questions(rooms.questions)[:2]
    mixed = explore([first, second, first, second], **settings)
    assert [(each.question.id, each.sample) for each in mixed] == [
        (first.id, 1), (second.id, 1), (first.id, 2), (second.id, 2)
    ]  # fmt: skip
    sampled = explore([first, second], samples=2, **settings)
    assert [(each.question.id, each.sample, each.answer) for each in sampled] == [
        (each.question.id, each.sample, each.answer) for each in (mixed[0], mixed[2], mixed[1], mixed[3])
    ]
    with pytest.raises(QuestionError, match=f"question {first.id} 2 times and question {second.id} 1 times"):
        explore([first, first, second], **settings)
    with pytest.raises(ConfigError, match="samples cannot be set here"):
        explore([first, first], samples=3, **settings)


def test_equal_answers_are_not_asked_for(rooms: RoomScans, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"--samples 2 would repeat one answer 2 times.*add --temperature"):
        run_settings(rooms.config(tmp_path, model="embedded", image_size="auto", focal="auto", samples=2))
    with pytest.raises(ConfigError, match="call explore with samples"):
        ask(rooms.root / "room.ply", "How many chairs?", samples=2)
    assert not list(tmp_path.iterdir())


def test_a_model_draws_other_tokens_for_each_sample(rooms: RoomScans):
    """The included model at temperature 1: each sample has its own random stream, in a batch as alone."""
    policy = load_policy("embedded", temperature=1.0, max_new_tokens=8)
    questions = load_questions(rooms.questions)[:1]
    settings = {"policy": policy, "scan_root": rooms.root, "steps": 1, "renderer": "raycast"}
    together = explore(questions, samples=2, **settings)
    alone = explore(questions, samples=2, batch_size=1, **settings)
    said = [tuple(turn.reply.tokens for turn in each.turns) for each in together]
    assert len(set(said)) > 1
    assert said == [tuple(turn.reply.tokens for turn in each.turns) for each in alone]


def test_pass_at_k_is_the_mean_of_the_best_over_all_draws():
    draw = Random(0)
    for count in (1, 2, 5, 8):
        scores = [draw.choice((0.0, 0.3, 1.0, draw.random())) for _ in range(count)]
        for k in range(1, count + 1):
            best = [max(chosen) for chosen in combinations(scores, k)]
            assert pass_at(k, scores) == pytest.approx(sum(best) / len(best))
    with pytest.raises(ValueError, match="at least 3"):
        pass_at(3, [1.0, 0.0])


@pytest.mark.parametrize(
    ("kind", "answers", "voted"),
    [
        (LETTER_KIND, ["B", "A", "C", "A"], "A"),
        (LETTER_KIND, ["C", "A"], None),
        (TEXT_KIND, ["Sofa", "a lamp", "sofa.", "A lamp", "bed"], None),
        (TEXT_KIND, ["a lamp", "Sofa", "the sofa", "sofa."], "Sofa"),
        (Number("m"), ["2", "9", "2.5"], "2.5"),
        (Number("m"), ["1", "2"], "1.5"),
    ],
)
def test_the_vote_of_answers(kind: AnswerKind, answers: list[str], voted: str | None):
    assert kind.vote(answers) == voted


def test_agreement_is_between_different_people_and_corrected_for_chance():
    """Krippendorff's own example of nominal data (2011, section C): alpha 0.743 with missing values."""
    coders = [
        "1 2 3 3 2 1 4 1 2 * * *",
        "1 2 3 3 2 2 4 1 2 5 * 3",
        "* 3 3 3 2 3 4 2 2 5 1 *",
        "1 2 3 3 2 4 4 1 2 5 1 *",
    ]
    kind = Text()
    rows, questions, people = [], {}, {}
    for coder, values in enumerate(coders, start=1):
        for unit, value in enumerate(values.split(), start=1):
            answer = None if value == "*" else value
            row = result_row("presence", 0.0, number=unit, id=str(unit), sample=coder, answer=answer)
            rows.append(row)
            people[row.episode] = f"coder {coder}"
            questions[str(unit)] = Question(str(unit), "own", f"scene {unit}", "presence", "?", kind=kind)
    found = agreement_of(rows, questions, people)["text"]
    assert (found.questions, found.missing, found.alpha) == (11, 7, 0.743)
    assert found.interval is not None and found.interval[0] < 0.743 < found.interval[1]
    one = dict.fromkeys(people, "anna")
    assert agreement_of(rows, questions, one) == {}, "nobody agrees with themselves"


def test_numbers_agree_by_their_ratio():
    """Two coders, units (1, 2), (3, 3): alpha from the definition with the metric ((c - k) / (c + k))^2."""
    kind = Number("m")
    given = {"1": ("1", "2"), "2": ("3", "3")}
    questions = {id: Question(id, "own", "scene", "size", "?", kind=kind) for id in given}
    rows = [
        result_row("size", 0.0, number=int(id), id=id, sample=sample, answer=answer)
        for id, answers in given.items()
        for sample, answer in enumerate(answers, start=1)
    ]
    observed = 2 * (1 / 3) ** 2 / 4
    pairs = [(a, b) for a, b in permutations([1, 2, 3, 3], 2)]
    expected = sum(((a - b) / (a + b)) ** 2 for a, b in pairs) / len(pairs)
    assert agreement_of(rows, questions, {})["number"].alpha == pytest.approx(1 - observed / expected, abs=5e-4)


def test_missing_answers_do_not_vote_and_unfinished_questions_do_not_count():
    kind = BENCHMARK.by_name["object_counting"].kind

    def row(id: str, sample: int, answer: str | None, truth: str) -> ResultRow:
        score = kind.score(answer, truth)
        return result_row("object_counting", score, id=id, sample=sample, answer=answer, ground_truth=truth)

    rows = [row("1", 1, None, "3"), row("1", 2, "3", "3"), row("1", 3, None, "3"), row("2", 1, "4", "4")]
    found = summarize_samples(rows, dict.fromkeys(("1", "2"), kind), BENCHMARK, 3)
    assert (found.of_each, found.questions) == (3, 1)
    assert found.overall == pytest.approx({"mean": 100 / 3, "pass@2": 200 / 3, "pass@3": 100.0, "majority": 100.0})
    assert found.tasks["object_counting"] == found.types["object_counting"] == found.overall
    nothing = summarize_samples([], {}, BENCHMARK, 3)
    assert nothing.overall is None and format_samples(Scores(pending=0, samples=nothing)) == []
