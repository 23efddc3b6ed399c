"""--anytime: an answer after each turn, outside the conversation, that costs only its own tokens."""

from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, results, run_in_process, scripted, trajectories

from roomscout.agent.policies.model import ModelPolicy
from roomscout.models import ModelOptions
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.untrained import write_untrained_checkpoint
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, Turn

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENS = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny untrained checkpoint."""
    return str(write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny"))


def tiny(checkpoint: str, **options: Any) -> ModelPolicy:
    values = {"device": "cpu", "max_new_tokens": TOKENS, "temperature": 1.5, **options}
    return ModelPolicy(TransformersBackend.from_checkpoint(checkpoint, ModelOptions(**values)))


def turns_of(folder: Path) -> dict[EpisodeId, list[Turn]]:
    reader = RunReader(folder)
    return {episode: reader.turns(episode) for episode in reader.begun}


def replies(folder: Path) -> dict[EpisodeId, list[Any]]:
    """What each turn said, with its tokens, but not its times."""
    return {
        episode: [
            (turn.reply.tokens, turn.reply.text, turn.reply.prompt_tokens, turn.reply.reused_tokens) for turn in turns
        ]
        for episode, turns in turns_of(folder).items()
    }


@pytest.mark.parametrize("kv_reuse", [True, False])
def test_the_run_is_the_same_with_and_without_it(rooms: RoomScans, checkpoint: str, tmp_path: Path, kv_reuse: bool):
    settings = {"steps": 3, "batch_size": 3, "max_batched_turns": 2, "concurrency": 2}
    without = run_in_process(rooms.config(tmp_path / "1", **settings), tiny(checkpoint, kv_reuse=kv_reuse))
    with_it = run_in_process(
        rooms.config(tmp_path / "2", anytime=True, **settings), tiny(checkpoint, kv_reuse=kv_reuse)
    )
    assert replies(with_it) == replies(without)
    assert trajectories(with_it) == trajectories(without)
    assert results(with_it) == results(without)


def test_every_turn_but_the_last_has_a_forced_answer(rooms: RoomScans, tmp_path: Path):
    folder = run_in_process(rooms.config(tmp_path, anytime=True, steps=4), scripted())
    for turns in turns_of(folder).values():
        assert [turn.forced is not None for turn in turns] == [True] * (len(turns) - 1) + [False]


def test_it_is_what_the_model_would_say_if_the_turn_were_its_last(rooms: RoomScans, checkpoint: str, tmp_path: Path):
    """Where the prompts do not count the turns, a run with fewer moves is the same up to its last turn."""
    settings = {"tell": "pose", "batch_size": 4, "max_new_tokens": TOKENS}
    probed = run_in_process(rooms.config(tmp_path / "0", anytime=True, steps=2, **settings), tiny(checkpoint))
    for steps in (0, 1):
        shorter = run_in_process(rooms.config(tmp_path / f"{steps + 1}", steps=steps, **settings), tiny(checkpoint))
        for episode, turns in turns_of(shorter).items():
            forced = turns_of(probed)[episode][steps].forced
            assert forced is not None and forced.reply.tokens == turns[-1].reply.tokens
