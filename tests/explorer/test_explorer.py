"""The included weights: perception and answers in rooms outside the training split."""

from collections import Counter

import pytest
from planned import changed, run_settings, settings_of
from result_rows import result_row

from explorer.episodes import VIEWS, room_episodes
from explorer.eyes import note_accuracy, single_views
from explorer.splits import SPLITS
from explorer.store import shard_path, write_shard
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.questions import load_questions
from roomscout.models import ModelOptions
from roomscout.models.engines import make_backend
from roomscout.rooms import QUESTIONS_PER_TYPE, write_rooms
from roomscout.scoring.summary import aggregate

SEED = 7


def test_the_explorer_notes_objects_in_new_rooms(tmp_path, monkeypatch):
    monkeypatch.setattr("explorer.episodes.QUESTIONS_A_ROOM", {"object_counting": 3})
    write_shard(shard_path(tmp_path, SEED, 0), room_episodes(SEED, 0))
    backend = make_backend("embedded", ModelOptions(max_new_tokens=VIEWS.max_new_tokens))
    accuracy = note_accuracy(backend, list(single_views(tmp_path, rooms=1)))
    assert accuracy.views > 10
    assert accuracy.precision > 0.75 and accuracy.recall > 0.75
    assert accuracy.place_error_m < 0.25


@pytest.mark.slow
def test_the_explorer_beats_blind_and_the_most_frequent_answer_with_few_invalid_replies(tmp_path):
    write_rooms(tmp_path / "rooms", 2, SPLITS["validation"], per_type=QUESTIONS_PER_TYPE)
    config = settings_of(
        questions=tmp_path / "rooms" / "questions.jsonl", scan_root=tmp_path / "rooms", model="embedded",
        max_batched_turns="all",
    )  # fmt: skip
    seeing, blind = (
        run_settings(changed(config, renderer=renderer, log_root=tmp_path / renderer)).rows
        for renderer in ("raycast", "blind")
    )
    overall = aggregate(seeing, BENCHMARK)["overall"]
    assert overall > aggregate(blind, BENCHMARK)["overall"] + 25
    answers: dict[str, Counter] = {}
    questions = load_questions(config.questions)
    for question in questions:
        answers.setdefault(question.question_type, Counter())[question.ground_truth] += 1
    frequent = {name: counted.most_common(1)[0][0] for name, counted in answers.items()}
    rows = [result_row(q.question_type, q.score(frequent[q.question_type])) for q in questions]
    assert overall > aggregate(rows, BENCHMARK)["overall"] + 20
    turns = sum(row.turns for row in seeing)
    assert sum(row.parse_errors for row in seeing) <= 0.04 * turns and turns / len(seeing) < 6
