"""The teacher, its demonstrations, the tokenizer and the training loop, on one room and a tiny model."""

import csv
import dataclasses
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from explorer import __main__ as command
from explorer.batches import RowMaker, collate
from explorer.curriculum import FEWEST_ROOMS, HELD_OUT_ROOMS, CannotTrain, Leg, Plan
from explorer.episodes import room_episodes
from explorer.model import use_fast_layers, write_untrained
from explorer.reading import asked
from explorer.splits import SPLITS
from explorer.store import Transcript, read_shard, shard_path, write_shard
from explorer.train import CURVE, Trainer
from roomscout.agent.policies.replies import parse_action
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.shapes import ModelSizes
from roomscout.rooms import ScanStyle, make_room, room_questions
from tests.conftest import vsi_question

TINY = ModelSizes(hidden=64, layers=2, heads=2, kv_heads=2, head_dim=32, mlp=96, vision_hidden=32)
LEGS = (Leg(5e-3, (0, 1), (("words", 2), ("views", 4))), Leg(4e-3, (0, 1), (("conversations", 4),)))
PLAN = Plan(LEGS, view_rows=4, episode_rows=2, warmup=2, save_every=4)


@pytest.fixture(scope="module")
def episodes():
    """Some are blind or hurried, and a walk is blocked."""
    return list(room_episodes(seed=8, index=1))


@pytest.fixture(scope="module")
def shards(episodes, tmp_path_factory):
    """Most demonstrations in a room to learn from, and few in those held out, which every save evaluates."""
    folder = tmp_path_factory.mktemp("demonstrations")
    kept = len(episodes) - len(HELD_OUT_ROOMS)
    parts = [episodes[:kept], *([each] for each in episodes[kept:])]
    for part, chosen in enumerate(parts):
        write_shard(folder / f"room_8_{part:05d}.npz", chosen)
    return sorted(folder.glob("*.npz"))


@pytest.fixture(scope="module")
def checkpoint(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorer")
    texts = [text for path in shards for each in read_shard(path) for text in (each.system, *each.user, *each.replies)]
    write_untrained(folder, texts, seed=0, sizes=TINY)
    return folder


@pytest.fixture(scope="module")
def maker(checkpoint):
    return RowMaker(AutoModelForImageTextToText.from_pretrained(checkpoint), AutoProcessor.from_pretrained(checkpoint))


class Killed(Exception):
    """Ends a training as a signal would."""


def trainer(folder, shards, plan=PLAN, sizes=TINY):
    """All rooms to learn from are the first shard, those held out the others."""

    def demonstrations(rooms):
        return shards[1:] if rooms == HELD_OUT_ROOMS else shards[:1]

    return Trainer(folder, plan, demonstrations, torch.device("cpu"), sizes)


def test_the_teacher_answers_nearly_all_questions(episodes):
    unhurried = [each for each in episodes if not each.blind and "last turn" not in each.user[-1]]
    kinds = BENCHMARK.by_name
    scores = [kinds[each.question_type].kind.score(each.answer, each.ground_truth) for each in unhurried]
    assert np.mean(scores) > 0.9


def test_a_room_always_gives_the_same_demonstrations(episodes):
    """Poses, moves and notes are in what is said."""
    assert any(each.blind for each in episodes) and any(each.out_of_moves for each in episodes)
    texts = [[getattr(each, field.name) for field in dataclasses.fields(Transcript)] for each in episodes]
    found = hashlib.sha256(repr(texts).encode()).hexdigest()
    assert found == "a1b187190771a9becf7ab5e1ef623f0e820d8028600420b98187781f654b1891"


def test_the_splits_share_no_room():
    rooms = [make_room(seed, 0, ScanStyle(resolution_m=0.5)) for seed in SPLITS.values()]
    assert len({room.plan.corners.tobytes() for room in rooms}) == len(rooms)


def test_every_procedural_question_is_parsed():
    room = make_room(7)
    named = {thing.category for thing in room.objects}
    for row in room_questions(room, 7):
        question = vsi_question(**row | {"id": "0", "options": tuple(row["options"] or ())})
        assert named.issuperset(asked(question).names)


def test_a_shard_round_trips(episodes, shards):
    stored = read_shard(shards[0])[0]
    assert stored.replies == episodes[0].replies
    assert np.abs(stored.images[0].astype(int) - episodes[0].images[0]).mean() < 6


def test_the_tokenizer_is_compact_and_lossless(episodes, checkpoint):
    tokenizer = AutoProcessor.from_pretrained(checkpoint).tokenizer
    ids = tokenizer(episodes[0].system, add_special_tokens=False)["input_ids"]
    assert len(ids) < 60
    for text in (episodes[0].system, *episodes[0].user, *episodes[0].replies, "Zwölf Stühle — 房间?\n\t{}"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_only_replies_and_their_end_tokens_are_learned(shards, checkpoint, maker):
    tokenizer = AutoProcessor.from_pretrained(checkpoint).tokenizer
    stored = read_shard(shards[0])[0]
    row = maker.episode(stored)
    end = tokenizer.eos_token
    assert tokenizer.decode(row.ids[row.spoken]) == "".join(reply + end for reply in stored.replies)
    assert tokenizer.decode(row.ids[row.answer_at]) == stored.answer


def test_a_row_has_the_ids_and_positions_of_evaluation(shards, checkpoint, maker):
    stored = read_shard(shards[0])[0]
    processor = AutoProcessor.from_pretrained(checkpoint)
    conversation = Conversation("c", [Message("system", stored.system)])
    for turn, (user, image) in enumerate(zip(stored.user, stored.images, strict=True)):
        if turn:
            conversation.append(Message("assistant", stored.replies[turn - 1]))
        conversation.append(Message.of_views(user, image))
    encoded = ConversationEncoder(processor, AutoConfig.from_pretrained(checkpoint)).encode(conversation)
    row = maker.episode(stored)
    assert row.ids[: len(encoded.ids)].tolist() == encoded.ids
    assert torch.equal(torch.from_numpy(row.positions[:, : len(encoded.ids)]).long(), encoded.positions)


def test_padding_does_not_change_the_logits(shards, checkpoint, maker):
    model = AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
    rows = sorted((maker.episode(each) for each in read_shard(shards[0])), key=lambda row: len(row.ids))
    short, long = rows[0], rows[-1]
    with torch.no_grad():
        alone, beside = (
            model(**collate(part, 0).inputs(model.config)).logits[0, : len(short.ids)]
            for part in ([short], [short, long])
        )
    torch.testing.assert_close(alone, beside, atol=1e-4, rtol=1e-4)


def test_the_fast_layers_give_the_same_logits(shards, checkpoint, maker):
    plain, fast = (AutoModelForImageTextToText.from_pretrained(checkpoint).eval() for _ in range(2))
    use_fast_layers(fast)
    batch = collate([maker.episode(each) for each in read_shard(shards[0])[:3]], 0)
    with torch.no_grad():
        wanted, found = (model(**batch.inputs(plain.config)).logits for model in (plain, fast))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_the_loss_falls_and_a_killed_run_ends_with_the_same_weights_and_curve(shards, tmp_path, monkeypatch):
    whole = trainer(tmp_path / "whole", shards)
    whole.run()
    losses = [float(row[2]) for row in whole.curve]
    assert losses[-1] < losses[0]
    assert [row[:2] for row in whole.curve[1:3]] == [["6", "views"], ["8", "conversations"]]
    killed = trainer(tmp_path / "killed", shards)
    learn = killed._train_step

    def until_the_second_leg(batch):
        if killed.step == 7:
            raise Killed
        return learn(batch)

    monkeypatch.setattr(killed, "_train_step", until_the_second_leg)
    with pytest.raises(Killed):
        killed.run()
    resumed = trainer(tmp_path / "killed", shards)
    assert resumed.step == 6
    resumed.run()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    curves = [
        [row | {"seconds": None} for row in csv.DictReader((tmp_path / name / CURVE).read_text().splitlines())]
        for name in ("whole", "killed")
    ]
    assert curves[0] == curves[1] and len(curves[0]) == 4


def test_a_run_killed_while_saving_resumes(shards, tmp_path, monkeypatch):
    def interrupted(model, folder, **_):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "model.safetensors").write_bytes(b"half of it")
        raise Killed

    started = trainer(tmp_path / "run", shards)
    started.run(until=1)
    model_class = type(started.model)
    with monkeypatch.context() as patch:
        patch.setattr(model_class, "save_pretrained", interrupted)
        with pytest.raises(Killed):
            started.run(until=2)
        with pytest.raises(Killed):
            trainer(tmp_path / "other", shards)
    resumed = trainer(tmp_path / "run", shards)
    assert resumed.step == 2
    resumed.run(until=3)
    AutoModelForImageTextToText.from_pretrained(tmp_path / "run" / "checkpoint")
    assert trainer(tmp_path / "other", shards).step == 0


def test_a_run_resumes_only_with_its_own_plan(shards, tmp_path):
    trainer(tmp_path, shards).save()
    other = dataclasses.replace(PLAN, scale=0.5, seed=1)
    with pytest.raises(CannotTrain, match="another scale, seed:"):
        trainer(tmp_path, shards, other)
    with pytest.raises(CannotTrain, match="another sizes:"):
        trainer(tmp_path, shards, sizes=dataclasses.replace(TINY, layers=3))


@pytest.mark.slow
def test_the_command_makes_rooms_and_trains_through_all_legs(shards, tmp_path, capsys, monkeypatch):
    legs = tuple(dataclasses.replace(leg, stages=tuple((stage, 1) for stage, _ in leg.stages)) for leg in LEGS)
    plan = dataclasses.replace(PLAN, legs=legs, scale=0.5)
    monkeypatch.setattr(command, "Plan", lambda scale, seed: dataclasses.replace(plan, scale=scale, seed=seed))
    for index in (*range(FEWEST_ROOMS), *HELD_OUT_ROOMS):  # small ones, which the command keeps
        path = shard_path(tmp_path / "demonstrations", SPLITS["training"], index)
        path.parent.mkdir(exist_ok=True)
        shutil.copy(shards[0] if index < FEWEST_ROOMS else shards[-1], path)
    assert command.main([str(tmp_path), "--scale", "0.5", "--workers", "0"]) == 0
    *_, last = (tmp_path / CURVE).read_text().splitlines()
    assert last.startswith("3,conversations,")
    with Image.open(tmp_path / "curve.png") as curve:
        assert min(curve.size) > 200
    assert command.main([str(tmp_path), "--scale", "1"]) == 2
    assert "started with another scale" in capsys.readouterr().err


def test_the_teachers_replies_are_valid_actions(episodes):
    question = vsi_question("0", "scannet", "s", "object_counting", "How many chairs?", (), "2")
    replies = [reply for each in episodes for reply in each.replies[:-1]]
    assert all(parse_action(reply, question).error is None for reply in replies)
