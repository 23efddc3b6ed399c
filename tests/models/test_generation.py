"""--generation: penalties and truncation that treat each row alone, and sampling as a checkpoint publishes it."""

import json

import pytest
import torch
from conftest import run_in_process, traced
from planned import run_settings
from test_backends import ACTION, begin, different_conversations, proceed
from untrained_checkpoints import write_untrained_checkpoint

from roomscout import load_policy
from roomscout.base.errors import ConfigError
from roomscout.models import ModelError, ModelOptions
from roomscout.models.conversation import Conversation
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.decoding import Penalties
from roomscout.runs.reader import RunReader

TRUNCATED = {"top_p": 0.95, "top_k": 40, "min_p": 0.01}
ALL = {**TRUNCATED, "presence_penalty": 0.1, "frequency_penalty": 0.2, "repetition_penalty": 1.3}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny")
    file = folder / "generation_config.json"
    published = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0}
    file.write_text(json.dumps(json.loads(file.read_text()) | published))
    return str(folder)


def backend_of(checkpoint, temperature, **generation):
    options = ModelOptions(device="cpu", max_new_tokens=16, temperature=temperature, generation=generation)
    return TransformersBackend.from_checkpoint(checkpoint, options)


def tokens(backend, *conversations):
    return [reply.tokens for reply in backend.generate(conversations, ACTION)]


@pytest.mark.parametrize("loop", [lambda backend: backend, pytest.param(traced, marks=pytest.mark.slow)])
def test_neither_a_batch_nor_a_resume_changes_replies(checkpoint, loop):
    backend, together, alone = loop(backend_of(checkpoint, 0.7, **ALL)), *map(different_conversations, (3, 3))
    for turn in range(3):
        replies = backend.generate(together, ACTION)
        for here, there, reply in zip(together, alone, replies, strict=True):
            assert tokens(backend, there) == [reply.tokens] and (reply.reused_tokens > 0) == (turn > 0)
            proceed(here, reply, seed=turn)
            proceed(there, reply, seed=turn)
    resumed = [Conversation(each.id, each.messages) for each in together]
    assert tokens(backend_of(checkpoint, 0.7, **ALL), *resumed) == tokens(backend, *together)
    assert tokens(backend_of(checkpoint, 0.7), *resumed) != tokens(backend, *together)


def test_the_repetition_penalty_is_that_of_transformers_also_where_ids_are_cached(checkpoint):
    backend, conversation = backend_of(checkpoint, 0.0, repetition_penalty=1.3), begin("q")
    model, banned = backend._runner._model, backend._runner._always[0]._ids.tolist()
    for turn in range(3):
        encoded = backend._encoder.encode(conversation)
        images, ids = list(map(backend._encoder.image_inputs, encoded.turns)), torch.tensor([encoded.ids])
        output = model.generate(
            input_ids=ids, mm_token_type_ids=(ids == model.config.image_token_id).int(), do_sample=False,
            max_new_tokens=16, suppress_tokens=banned, repetition_penalty=1.3,
            **{name: torch.cat([each[name] for each in images]) for name in images[0]},
        )  # fmt: skip
        (reply,) = backend.generate([conversation], ACTION)
        assert list(reply.tokens) == output[0, ids.shape[1] :].tolist() and (reply.reused_tokens > 0) == (turn > 0)
        proceed(conversation, reply, seed=turn)
        backend._encoder.release(conversation.key)


def test_truncation_leaves_the_most_probable_token(checkpoint):
    greedy = tokens(backend_of(checkpoint, 0.0), begin("q"))
    for given in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert tokens(backend_of(checkpoint, 5.0, **given), begin("q")) == greedy


def test_presence_and_frequency_count_the_tokens_of_the_reply_alone():
    given, ids = {"presence_penalty": 1.0, "frequency_penalty": 0.5}, torch.tensor([[0, 1, 3, 3], [1, 1, 0, 1]])
    penalties = Penalties([[1], [1]], given, ids.device)
    assert not penalties(ids[:, :2], torch.zeros(2, 4)).any()
    assert penalties(ids, torch.zeros(2, 4)).tolist() == [[0, 0, 0, -2], [-1.5, -1.5, 0, 0]]


def test_a_run_as_published_records_what_was_used_and_resumes(rooms, checkpoint, tmp_path):
    given = {"model": checkpoint, "generation": "checkpoint", "max_new_tokens": 4, "samples": 2}
    config = rooms.config(tmp_path, num_questions=1, steps=1, **given)
    folder = run_in_process(config)
    facts = RunReader(folder).facts
    assert (facts.config["temperature"], facts.conditions["generation"]) == (0.7, ["top_p=0.8", "top_k=20"])
    assert ", temperature=0.7, " in facts.protocol and ", generation=top_p=0.8 top_k=20, " in facts.protocol
    assert run_settings(config, folder).status == 0


def test_a_given_temperature_wins_and_what_publishes_none_gives_no_samples(rooms, checkpoint, tmp_path):
    settings = load_policy(checkpoint, device="cpu", generation="checkpoint", temperature=0.0).settings
    assert (settings["temperature"], settings["generation"]) == (0.0, ("top_p=0.8", "top_k=20"))
    with pytest.raises(ConfigError, match="--samples 2 would repeat one answer"):
        run_settings(rooms.config(tmp_path, model="embedded", generation="checkpoint", samples=2))
    (write_untrained_checkpoint(tmp_path / "bare") / "generation_config.json").unlink()
    with pytest.raises(ModelError, match=r"bare has no generation_config\.json, .*name the parameters") as caught:
        load_policy(str(tmp_path / "bare"), device="cpu", generation="checkpoint")
    assert caught.value.setting == "generation"
