"""--keep-views: the first and the last views are shown, and notes stand for the turns between them."""

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, interrupted, run_in_process, scripted, trajectories
from planned import changed, run_settings
from untrained_checkpoints import write_untrained_checkpoint

from roomscout import load_trajectories
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Controls, Prompts
from roomscout.base.errors import ConfigError
from roomscout.edge.settings import Settings
from roomscout.models import ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.runs.reader import RunReader

pytestmark = pytest.mark.usefixtures("one_thread")
NOTE = re.compile(r"Turn (\d), whose images are no longer shown: .*(Moved|Did not).* The camera is at x ", re.DOTALL)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny"))


def policy_of(checkpoint: str, **options: Any) -> ModelPolicy:
    values = {"device": "cpu", "max_new_tokens": 8, "temperature": 1.5, **options}
    return ModelPolicy(TransformersBackend.from_checkpoint(checkpoint, ModelOptions(**values)))


def config_of(rooms: RoomScans, root: Path, **changes: Any) -> Settings:
    return rooms.config(root, **{"steps": 4, "num_questions": 3, "keep_views": 2, "model": "told", **changes})


def run(rooms: RoomScans, root: Path, checkpoint: str, kv_reuse: bool = True, **changes: Any) -> Path:
    return run_in_process(config_of(rooms, root, **changes), policy_of(checkpoint, kv_reuse=kv_reuse))


def tokens(folder: Path) -> dict[str, list[Any]]:
    """The tokens that the model wrote in each turn."""
    reader = RunReader(folder)
    return {str(each): [turn.reply.tokens for turn in reader.turns(each)] for each in reader.begun}


@pytest.fixture(scope="module")
def two_kept(rooms: RoomScans, checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(rooms, tmp_path_factory.mktemp("kept"), checkpoint)


def test_reuse_batches_and_forced_answers_change_no_token(
    rooms: RoomScans, two_kept: Path, checkpoint: str, tmp_path: Path
):
    assert all(len(each) == 5 for each in tokens(two_kept).values())
    assert tokens(run(rooms, tmp_path / "fresh", checkpoint, kv_reuse=False)) == tokens(two_kept)
    anytime = run(rooms, tmp_path / "anytime", checkpoint, anytime=True)
    assert tokens(anytime) == tokens(two_kept)
    plain = run(rooms, tmp_path / "plain", checkpoint, anytime=True, kv_reuse=False)
    forced = [
        [turn.forced.reply.tokens for turn in RunReader(each).all_turns() if turn.forced] for each in (anytime, plain)
    ]
    assert forced[0] == forced[1] and len(forced[0]) == 3 * 4


def test_a_run_resumes_in_the_middle_of_a_question(rooms: RoomScans, two_kept: Path, checkpoint: str, tmp_path: Path):
    folder = run(rooms, tmp_path, checkpoint)
    before = trajectories(folder)
    interrupted(folder, 4)
    config = config_of(rooms, tmp_path)
    with pytest.raises(ConfigError, match=r"keep.views"):
        run_settings(changed(config, keep_views=3), folder, policy_of(checkpoint))
    run_settings(config, folder, policy_of(checkpoint))
    assert tokens(folder) == tokens(two_kept) and trajectories(folder) == before


def test_messages_are_recorded_as_sent_and_every_view_is_kept(two_kept: Path):
    reader = RunReader(two_kept)
    first = reader.begun[0]
    system, *others = reader.messages(first)
    assert "images of the first turn and of the last 2 turns" in system["text"]
    assert [each.get("image") for each in others[::2]] == [
        "render_00.png", None, None, "render_03.png", "render_04.png",
    ]  # fmt: skip
    found = [NOTE.match(each["text"]) for each in others[2:5:2]]
    assert [each[1] for each in found if each] == ["1", "2"]
    assert all("left. Answer" in each["text_in_its_turn"] for each in others[2:5:2])
    assert not any("left. Answer" in each["text"] for each in others[2:5:2]) and "left. Answer" in others[6]["text"]
    assert [each["role"] for each in others] == ["user", "assistant"] * 5
    assert [turn.reply.text for turn in reader.turns(first)] == [each["text"] for each in others[1::2]]
    assert ", keep_views=2, " in reader.facts.protocol
    (trajectory, *_) = load_trajectories(two_kept)
    assert [len(each["images"]) for each in trajectory.messages[1::2]] == [1, 0, 0, 1, 1]
    assert all(turn.view.any() for turn in trajectory.turns)


def test_no_prompt_and_no_protocol_changes_without_it(rooms: RoomScans, tmp_path: Path):
    plain, kept = Prompts().under(Controls()), Prompts().under(Controls(keep_views=1))
    assert "hidden" not in plain.templates and plain.hidden == ""
    assert kept.system == f"{plain.system} {Prompts().variants.kept.replace('{turns}', 'turn')}"
    folder = run_in_process(config_of(rooms, tmp_path, keep_views=None, num_questions=1), scripted())
    assert "keep_views" not in RunReader(folder).facts.protocol


def test_a_server_gets_notes_as_text_and_fewer_images():
    config = changed(Settings(), keep_views=2, steps=8, see="depth")
    assert (config.most_images, config.most_shown) == (18, 6)
    assert changed(config, keep_views=20).most_shown == 18
    shown = Conversation("q", [Message("system", "s"), Message("user", "Turn 1", hidden=2)])
    assert (shown.views, shown.images) == (2, [])
