"""The vLLM engine: replies as with transformers, one server a run, and none left behind.

Tests that start vLLM run where VLLM_PYTHON names the Python of an environment that has it: `make test-vllm`.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import COMMAND, results, run_in_process, trajectories
from other_checkpoints import write_other
from planned import changed, memory_plan
from transformers import AutoProcessor
from untrained_checkpoints import write_untrained_family
from waiting import wait_until

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import checkpoint_prompts
from roomscout.agent.policies.replies import action_format
from roomscout.models import EMBEDDED, EXPLORER, ModelError, ModelOptions
from roomscout.models.checkpoint_files import view_settings_of
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.loading import checkpoint_config, checkpoint_part
from roomscout.models.transformers.weights import load_checkpoint
from roomscout.models.vllm import VllmOptions
from roomscout.models.vllm.backend import LayoutEncoder, VllmBackend, prompt_ids
from roomscout.models.vllm.server import Build, ServerProcess, VllmServer, build_of, server_command, server_environment
from roomscout.runs.reader import RunReader, run_folders

WATCHDOG = Path(__file__).parents[2] / "roomscout" / "models" / "watchdog.py"
VLLM_PYTHON = os.environ.get("VLLM_PYTHON")
needs_vllm = pytest.mark.skipif(not VLLM_PYTHON, reason="VLLM_PYTHON names no environment with vLLM")
VIEWS = view_settings_of(EMBEDDED)
OPTIONS = ModelOptions(dtype="float32", device="cpu", max_new_tokens=VIEWS.max_new_tokens)
pytestmark = pytest.mark.usefixtures("one_thread")
TIE = 1e-4
"""Logits that differ by less are equal up to rounding in float32."""


def is_running(process):
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def session_of(process):
    """The processes of the session that a process leads."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and is_running(entry.name):
            try:
                session = os.getsid(int(entry.name))
            except ProcessLookupError:
                continue
            if session == process:
                found.append(int(entry.name))
    return found


def children_of(process):
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in listed.split()]


# A server of two processes, both deaf to SIGTERM.
STUBBORN = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); "
    "print(os.getpid(), flush=True); time.sleep(600)"
)
# A parent that starts the watchdog as roomscout.models.vllm.server does, and says which process it is once all are
# there.
PARENT = f"""
import subprocess, sys, time
command = [sys.executable, {str(WATCHDOG)!r}, sys.executable, "-c", {STUBBORN!r}]
watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True)
watchdog.stdout.readline(), watchdog.stdout.readline()
print(watchdog.pid, flush=True)
time.sleep(600)
"""


class TestWatchdog:
    @pytest.mark.slow
    def test_no_process_outlives_a_parent_that_was_killed(self):
        with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
            try:
                watchdog = int(parent.stdout.readline())
                members = session_of(watchdog)
            finally:
                parent.kill()
        assert len(members) == 3
        wait_until(lambda: not session_of(watchdog))

    def test_no_process_outlives_a_watchdog_that_was_killed_once_the_server_is_stopped(self):
        command = [sys.executable, WATCHDOG, sys.executable, "-c", STUBBORN]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        server = ServerProcess(1, "key", subprocess.Popen(command, start_new_session=True, **pipes))
        try:
            wait_until(lambda: len(server.lines) == 2)
            server.process.kill()
            server.process.wait()
            assert session_of(server.process.pid)
        finally:
            server.stop()
        wait_until(lambda: not session_of(server.process.pid))


class TestStart:
    @pytest.mark.parametrize("script", [None, "exit 3", "echo {}"], ids=["missing", "broken", "without vLLM"])
    def test_a_python_without_vllm_is_one_sentence_with_the_command_that_makes_one(self, tmp_path, script):
        if script is not None:
            (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "python").chmod(0o755)
        with pytest.raises(ModelError, match=r"VLLM_PYTHON, .*install_vllm\.sh.*the engine transformers"):
            build_of(tmp_path / "python")

    @pytest.mark.parametrize(("device", "is_cpu"), [("cpu", False), ("cuda:1", True)])
    def test_a_build_for_another_device_is_refused(self, device, is_cpu):
        with pytest.raises(ModelError, match=f"not for {device}: make another environment") as caught:
            server_command("org/model", ModelOptions(device=device), VllmOptions(9), Build("0.33.0", is_cpu), 1234)
        assert caught.value.setting == "device"

    def test_the_key_is_on_no_command_line(self):
        command = server_command("org/model", ModelOptions(), VllmOptions(9), Build("0.33.0", False), 1234)
        assert "--api-key" not in command
        assert server_environment("secret", "org/model", "auto", 1)["VLLM_API_KEY"] == "secret"

    @pytest.mark.parametrize(("device", "visible", "expected"), [("cuda:0", None, "0,1"), ("cuda:1", "4,5,6", "5,6")])
    def test_the_server_sees_the_gpus_from_the_chosen_one_on(self, monkeypatch, device, visible, expected):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert server_environment("key", "org/model", device, 2)["CUDA_VISIBLE_DEVICES"] == expected

    def test_a_server_that_exits_is_quoted(self, tmp_path):
        script = """#!/bin/sh\n[ "$1" = -c ] && echo '{"vllm": "1"}' || echo the cause\n"""
        (tmp_path / "python").write_text(script)
        (tmp_path / "python").chmod(0o755)
        with pytest.raises(ModelError, match=r"(?s)exited with status 0\. .*the engine transformers.*the cause"):
            VllmServer("org/model", ModelOptions(), VllmOptions(1, tmp_path / "python"), {})


def two_views(sizes):
    """A conversation with views of these two sizes, (height, width)."""
    conversation = Conversation("q", [Message("system", "rules")])
    conversation.append(Message.of_views("look", np.zeros((*sizes[0], 3), np.uint8)))
    conversation.append(Message("assistant", "I see a chair."))
    conversation.append(Message.of_views("and now", np.zeros((*sizes[1], 3), np.uint8)))
    return conversation


@pytest.fixture(scope="module")
def checkpoint(request, tmp_path_factory):
    """An untrained checkpoint of the kind that a test is parametrised with."""
    return str(write_untrained_family(tmp_path_factory.mktemp("models") / "tiny", request.param))


class TestPrompts:
    @pytest.mark.parametrize("checkpoint", ["qwen2_5_vl", "internvl"], indirect=True)
    def test_ids_without_pixels_equal_those_with_pixels(self, checkpoint):
        config, processor = checkpoint_config(checkpoint), checkpoint_part(AutoProcessor, checkpoint)
        tiles = 4 if family_of(config).tiled else 1
        side = 28 if config.model_type == "qwen2_5_vl" else 56
        conversation = two_views([(2 * side, 2 * side), (2 * side, 3 * side)])
        encoders = (kind(processor, config, tiles_per_view=tiles) for kind in (LayoutEncoder, ConversationEncoder))
        ours, expected = (encoder.encode(conversation) for encoder in encoders)
        assert ours.ids == expected.ids

    @pytest.mark.parametrize("checkpoint", ["internvl"], indirect=True)
    def test_one_id_stands_for_an_image_and_its_marks(self, checkpoint):
        config, processor = checkpoint_config(checkpoint), checkpoint_part(AutoProcessor, checkpoint)
        encoded = LayoutEncoder(processor, config).encode(two_views([(56, 56), (56, 84)]))
        ids = prompt_ids(encoded, config.image_token_id)
        assert ids.count(config.image_token_id) == 2
        assert encoded.ids.count(processor.start_image_token_id) == 2 and processor.start_image_token_id not in ids

    @pytest.mark.parametrize("checkpoint", ["llava_onevision", "qwen3_5"], indirect=True)
    def test_families_that_were_not_compared_get_a_line(self, checkpoint, tmp_path, caplog):
        with pytest.raises(ModelError, match="no such python"):
            VllmBackend(checkpoint, OPTIONS, VllmOptions(2, tmp_path / "no such python"))
        assert "were not compared with those of the engine transformers" in caplog.text

    def test_other_models_get_the_text_of_their_template_to_expand(self, tmp_path):
        folder = str(write_other(tmp_path / "tiny", "idefics3"))
        config, processor = checkpoint_config(folder), checkpoint_part(AutoProcessor, folder)
        ids = LayoutEncoder(processor, config).unexpanded(two_views([(56, 56), (56, 84)]))
        assert ids.count(config.image_token_id) == 2


class TestConfig:
    def test_memory_is_planned_for_the_questions_in_flight(self, rooms, tmp_path):
        config = rooms.config(tmp_path, model=EMBEDDED, engine="vllm", device="cpu", image_size="auto")
        one, two = (memory_plan(changed(config, concurrency=number)).kv_bytes for number in (1, 2))
        assert two == 2 * one < 2**30


def view(seed):
    width, height = VIEWS.image_size
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def begin(name, words="How many chairs are in this room?", seed=0):
    conversation = Conversation(name)
    conversation.append(Message("system", "You are inside the 3D scan of a room."))
    conversation.append(Message.of_views(words, view(seed)))
    return conversation


def proceed(conversation, reply, seed):
    conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
    conversation.append(Message.of_views("You moved 0.5 m.", view(seed)))


def config_of(rooms, log_root, **changes):
    return rooms.config(log_root, model=EMBEDDED, device="cpu", dtype="float32", **asdict(VIEWS), **changes)


class BothBackends:
    """Replies with the first of two backends, and keeps what both replied to each conversation."""

    concurrent = False
    name = "both"

    def __init__(self, first, second):
        self.first, self.second = first, second
        self.pairs = []

    def generate(self, conversations, reply_format):
        replies = self.first.generate(conversations, reply_format)
        for conversation, *both in zip(
            conversations, replies, self.second.generate(conversations, reply_format), strict=True
        ):
            copy = Conversation(conversation.id, list(conversation.messages))
            self.pairs.append((copy, *both))
        return replies

    def release(self, conversation):
        self.first.release(conversation)
        self.second.release(conversation)

    def peak_memory_bytes(self):
        return 0

    def close(self):
        """Both are used by other tests."""


@torch.inference_mode()
def gap_of(conversation, tokens, ours, theirs):
    """How far apart the logits of two tokens are behind a conversation and a begun reply, computed by transformers."""
    model, processor = load_checkpoint(str(EXPLORER), torch.float32, torch.device("cpu"))
    encoder = ConversationEncoder(processor, model.config, torch.float32)
    encoded = encoder.encode(conversation)
    images = [encoder.image_inputs(turn) for turn in encoded.turns]
    behind = int(encoded.positions.max()) + 1 + torch.arange(len(tokens)).repeat(3, 1)
    output = model(
        input_ids=torch.tensor([[*encoded.ids, *tokens]]),
        position_ids=torch.cat([encoded.positions, behind], dim=1)[:, None],
        **{name: torch.cat([each[name] for each in images]) for name in images[0]},
    )
    logits = output.logits[0, -1]
    return float(logits.max() - logits[ours]), float(logits[ours] - logits[theirs])


@pytest.fixture(scope="module")
def served():
    """A vLLM server with the explorer, used by all tests of this module."""

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"  # has the server offer to empty its caches
    backend = VllmBackend(str(EXPLORER), OPTIONS, VllmOptions(9, Path(VLLM_PYTHON), max_model_len=4096))
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def both(served, rooms, tmp_path_factory):
    """What transformers and vLLM replied to every turn of a run, and its folder."""
    backends = BothBackends(TransformersBackend.from_checkpoint(str(EXPLORER), OPTIONS), served)
    policy = ModelPolicy(backends, prompts=checkpoint_prompts(str(EXPLORER)))
    folder = run_in_process(config_of(rooms, tmp_path_factory.mktemp("both")), policy)
    return backends.pairs, folder


@needs_vllm
class TestReplies:
    def test_every_reply_equals_that_of_transformers_up_to_ties(self, both):
        pairs, _ = both
        assert len(pairs) > 20
        for conversation, ours, theirs in pairs:
            if ours.tokens == theirs.tokens:
                assert (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason)
                continue
            at = next(i for i, (a, b) in enumerate(zip(ours.tokens, theirs.tokens, strict=False)) if a != b)
            from_best, gap = gap_of(conversation, ours.tokens[:at], ours.tokens[at], theirs.tokens[at])
            assert from_best < TIE and abs(gap) < TIE, f"{conversation.id}, token {at}: logits differ by {gap}"

    def test_later_turns_find_tokens_in_the_cache(self, both):
        pairs, _ = both
        later = [theirs for conversation, _, theirs in pairs if len(conversation.images) > 1]
        assert later and all(reply.reused_tokens > 0 for reply in later)

    def test_it_computes_hardly_more_prompt_tokens_than_transformers(self, both):
        pairs, _ = both
        ours, theirs = (sum(pair[i].prompt_tokens - pair[i].reused_tokens for pair in pairs) for i in (1, 2))
        assert theirs <= 1.15 * ours

    def test_constrained_replies_are_equal(self, served):
        ours = TransformersBackend.from_checkpoint(str(EXPLORER), OPTIONS)
        conversation, reply_format = begin("constrained"), action_format(constrained=True)
        for seed in (1, 2):
            (expected,), (reply,) = (each.generate([conversation], reply_format) for each in (ours, served))
            assert reply.tokens == expected.tokens
            proceed(conversation, reply, seed)

    def test_an_image_is_sent_once(self, served):
        conversation = begin("once", seed=70)
        (reply,) = served.generate([conversation], action_format())
        assert conversation.shots[0].sha256 in served._server.current.images
        proceed(conversation, reply, 71)
        assert served.generate([conversation], action_format())[0].images_encoded == 1

    def test_an_evicted_image_is_sent_again(self, served, caplog):
        conversation = begin("evicted", seed=80)
        (reply,) = served.generate([conversation], action_format())
        proceed(conversation, reply, 81)
        (before,) = served.generate([conversation], action_format())
        served._server.current.request("/reset_mm_cache", {})
        with caplog.at_level(logging.DEBUG, "roomscout.models.vllm"):
            (after,) = served.generate([conversation], action_format())
        assert "an image was evicted" in caplog.text
        assert after.tokens == before.tokens

    def test_a_prompt_that_is_too_long_fails_its_question_alone(self, served):
        with pytest.raises(ModelError, match=r"the conversation needs \d+ tokens.*4096: use a shorter question"):
            served.generate([begin("long", "Where is the door? " * 1500)], action_format())
        assert served.generate([begin("short")], action_format())[0].text

    def test_sampling_repeats_itself_with_the_seed(self, served):
        options = served._options
        try:
            served._options = replace(options, temperature=1.0, seed=4, generation={"top_p": 0.99, "top_k": 400})
            first, again = (served.generate([begin("sampled")], action_format())[0] for _ in range(2))
            served._options = replace(options, temperature=1.0, seed=5, generation={"presence_penalty": 0.1})
            other = served.generate([begin("sampled")], action_format())[0]
        finally:
            served._options = options
        assert first.tokens == again.tokens != other.tokens


@needs_vllm
@pytest.mark.parametrize(
    ("checkpoint", "tiles"),
    [("qwen2_5_vl", 1), ("qwen2_vl", 1), ("internvl", 1), ("internvl", 4)],
    indirect=["checkpoint"],
)
def test_other_families_reply_as_with_transformers(checkpoint, tiles, monkeypatch):
    """Over two turns of three conversations with views of two sizes, which differ in tiles where there are several."""

    def look(number):
        height, width = [(2 * side, 2 * side), (2 * side, 3 * side)][number % 2]
        return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)

    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    side = 56 if checkpoint_config(checkpoint).model_type == "internvl" else 28
    options = replace(OPTIONS, max_new_tokens=8, tiles_per_view=tiles)
    conversations = []
    for number in range(3):
        conversation = Conversation(f"q{number}", [Message("system", "You are inside the 3D scan of a room.")])
        conversation.append(Message.of_views("Where is the door? " * (3 * number + 1), look(number)))
        conversations.append(conversation)
    ours, theirs = (
        TransformersBackend.from_checkpoint(checkpoint, options),
        VllmBackend(checkpoint, options, VllmOptions(2, Path(VLLM_PYTHON))),
    )
    try:
        for turn in range(2):
            expected, replies = (each.generate(conversations, action_format()) for each in (ours, theirs))
            assert [reply.tokens for reply in replies] == [reply.tokens for reply in expected]
            assert len({reply.tokens for reply in replies}) == 3  # equal replies to all would prove nothing
            assert turn == 0 or all(reply.reused_tokens > 0 for reply in replies)
            for number, (conversation, reply) in enumerate(zip(conversations, expected, strict=True)):
                conversation.append(Message("assistant", reply.text, tokens=reply.tokens))
                conversation.append(Message.of_views("You moved 0.5 m.", look(number + 1)))
    finally:
        theirs.close()


@needs_vllm
class TestServer:
    def test_a_server_killed_in_mid_run_is_replaced_and_the_run_goes_on(self, served, both, rooms, tmp_path):
        def kill_when_begun():
            wait_until(lambda: any(RunReader(folder).rows for folder in run_folders(tmp_path)), 300)
            os.kill(children_of(server.process.pid)[0], signal.SIGKILL)

        _, undisturbed = both
        server = served._server.current
        killer = threading.Thread(target=kill_when_begun)
        killer.start()
        folder = run_in_process(config_of(rooms, tmp_path, batch_size=4), ModelPolicy(served))
        killer.join()
        assert served._server.current is not server
        assert results(folder) == results(undisturbed)
        assert not session_of(server.process.pid)

    def test_memory_that_is_too_small_ends_the_start_with_the_servers_words(self, monkeypatch):
        monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
        with pytest.raises(ModelError, match=r"(?s)the memory fraction.*the engine transformers"):
            VllmBackend(str(EXPLORER), replace(OPTIONS, kv_cache_bytes=2**45), VllmOptions(2, Path(VLLM_PYTHON)))

    def test_a_command_that_is_killed_leaves_no_server_and_resumes(self, both, rooms, tmp_path):
        command = [
            sys.executable, str(COMMAND), "--batch", "--questions", str(rooms.questions), "--scan-root",
            str(rooms.root), "--log-root", str(tmp_path), "--model", EMBEDDED, "--renderer", "raycast", "--engine",
            "vllm", "--dtype", "float32", "--concurrency", "2",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            wait_until(lambda: any(RunReader(folder).rows for folder in run_folders(tmp_path)), 400)
            (watchdog,) = (each for each in children_of(running.pid) if os.getsid(each) == each)
            assert len(session_of(watchdog)) > 2
            running.kill()
        wait_until(lambda: not session_of(watchdog))
        (folder,) = run_folders(tmp_path)
        assert "VLLM_API_KEY" not in (folder / "run.log").read_text()
        resumed = subprocess.run(
            [sys.executable, str(COMMAND), "--continue", str(folder)], capture_output=True, text=True, check=False
        )
        _, undisturbed = both
        assert resumed.returncode == 0, resumed.stdout
        assert results(folder) == results(undisturbed)
        assert trajectories(folder).keys() == trajectories(undisturbed).keys()
        assert json.loads((folder / "run.json").read_text())["config"]["engine"] == "vllm"
