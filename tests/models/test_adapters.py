"""An adapter changes replies, exactly alike however they are computed, and fits its own base model alone."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import RoomScans, run_in_process
from peft import LoraConfig, get_peft_model
from planned import changed, run_settings
from transformers import AutoModelForImageTextToText
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.agent.policies.replies import action_format
from roomscout.analysis.titles import short_title
from roomscout.base.errors import ConfigError
from roomscout.models import ModelError, ModelOptions
from roomscout.models.adapters import adapter_sha256, write_merged
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.runs.reader import RunReader

ACTION = action_format()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def adapter(tiny, tmp_path_factory) -> Path:
    """LoRA in the language model and the image encoder, with weights that change every reply."""
    tuned = get_peft_model(AutoModelForImageTextToText.from_pretrained(tiny), LoraConfig(target_modules="all-linear"))
    with torch.no_grad():
        for number, (name, weights) in enumerate(sorted(tuned.named_parameters())):
            if "lora_B" in name:
                weights.normal_(std=0.05, generator=torch.Generator().manual_seed(number))
    folder = tmp_path_factory.mktemp("adapters") / "tuned"
    tuned.save_pretrained(folder)
    return folder


def backend(tiny: Path, adapter: Path | None, **options) -> TransformersBackend:
    settings = ModelOptions(device="cpu", max_new_tokens=8, adapter=adapter, **options)
    return TransformersBackend.from_checkpoint(str(tiny), settings)


def begin(number: int) -> Conversation:
    view = np.random.default_rng(number).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    asked = Message.of_views("Where is the door? " * (9 * number + 1), view)
    return Conversation(f"q{number}", [Message("system", "You are inside the 3D scan of a room."), asked])


def replies(backend: TransformersBackend, together: bool) -> list[tuple[int, ...]]:
    """The tokens of three turns of three conversations."""
    conversations, tokens = [begin(number) for number in range(3)], []
    for _ in range(3):
        groups = [conversations] if together else [[each] for each in conversations]
        given = [reply for group in groups for reply in backend.generate(group, ACTION)]
        for conversation, reply in zip(conversations, given, strict=True):
            tokens.append(reply.tokens)
            conversation.append(reply.message)
            conversation.append(Message.of_views("You moved.", conversation.images[-1][:, ::-1].copy()))
    return tokens


def test_replies_are_equal_together_alone_and_without_reuse(tiny, adapter):
    together = replies(backend(tiny, adapter), together=True)
    assert together == replies(backend(tiny, adapter), together=False)
    assert together == replies(backend(tiny, adapter, kv_reuse=False), together=False)
    assert all(a != b for a, b in zip(together, replies(backend(tiny, None), together=True), strict=True))


def test_the_merged_checkpoint_for_vllm_replies_the_same(tiny, adapter, tmp_path):
    write_merged(str(tiny), adapter, "float32", tmp_path / "merged")
    served = backend(tmp_path / "merged", None)
    assert replies(served, together=True) == replies(backend(tiny, adapter), together=True)


def test_a_run_names_the_adapter_in_its_protocol_and_resumes_with_it(rooms: RoomScans, tiny, adapter, tmp_path):
    config = rooms.config(tmp_path, model=str(tiny), num_questions=1, steps=1, max_new_tokens=4, adapter=adapter)
    folder = run_in_process(config)
    assert short_title(RunReader(folder).facts) == "tiny + tuned"
    words = f", adapter_sha256={adapter_sha256(adapter)[:12]}, "
    assert words in RunReader(folder).facts.protocol
    with pytest.raises(ConfigError, match="--adapter would change answers"):
        run_settings(changed(config, adapter=None), folder)


class TestRefused:
    def test_a_folder_without_one(self, tiny, tmp_path):
        with pytest.raises(ModelError, match=r" has no adapter_config\.json") as caught:
            backend(tiny, tmp_path)
        assert caught.value.setting == "adapter"

    def test_of_another_base_model_by_name(self, tiny, adapter, tmp_path):
        other = write_untrained_checkpoint(tmp_path / "other")
        with pytest.raises(ModelError, match=f"was trained on {tiny}, not on {other}: use {tiny}, ") as caught:
            backend(other, adapter)
        assert caught.value.setting == "model"

    def test_a_kind_that_cannot_be_merged(self, tiny, adapter, tmp_path):
        config = json.loads((adapter / "adapter_config.json").read_text())
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "NONSENSE"}))
        (tmp_path / "adapter_model.safetensors").symlink_to(adapter / "adapter_model.safetensors")
        with pytest.raises(ModelError, match="does not fit"):
            backend(tiny, tmp_path)
