"""The weights that ship: what they see in rooms that they were never trained on."""

from agent.backends import EXPLORER_SETTINGS, make_backend
from training.episodes import room_episodes
from training.eyes import look, single_views
from training.store import shard_path, write_shard


def test_the_explorer_describes_views_of_new_rooms(tmp_path):
    for index in range(2):
        write_shard(shard_path(tmp_path, 7, index), room_episodes(seed=7, index=index))
    sight = look(
        make_backend("embedded", max_new_tokens=EXPLORER_SETTINGS["max_new_tokens"]),
        list(single_views(tmp_path, rooms=2)),
    )
    assert sight.views > 20
    assert sight.precision > 0.6 and sight.recall > 0.6
    assert sight.place_error_m < 0.5
