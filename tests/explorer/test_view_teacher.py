"""The teacher that finds views is right, and writes conversations that a model can learn from."""

import json

import pytest
from conftest import RoomScans, run_in_process

from explorer.view_teacher import ViewTeacher
from roomscout.rooms.writer import write_rooms
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId


@pytest.mark.slow
def test_it_finds_views_and_says_what_it_compares(tmp_path):
    write_rooms(tmp_path, rooms=2, seed=8, per_type={}, views=True)
    rooms = RoomScans(tmp_path, tmp_path / "questions.jsonl")
    folder = run_in_process(rooms.config(tmp_path / "runs", policy=None), ViewTeacher())
    run = RunReader(folder)
    assert [row.score for row in run.rows] == [1, 1] and run.facts.setting("model") == "embedded"
    for number in (1, 2):
        first, *later = run.turns(EpisodeId(number, 1))
        assert first.reply.text.startswith("Photo: ") and all(each.parse_error is None for each in (first, *later))
        assert json.loads(later[-1].reply.text.splitlines()[-1])["answer"] == "here"
        assert [len(each.get("images", ["one"])) for each in run.messages(EpisodeId(number, 1))][1] == 2
