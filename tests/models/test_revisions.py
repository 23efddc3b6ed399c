"""Revisions of a checkpoint in the hub's cache: a folder with two commits, as a download leaves it."""

from pathlib import Path

import huggingface_hub.constants
import pytest
from conftest import RoomScans, run_in_process
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.analysis.compare.command import main as compare
from roomscout.models import EXPLORER, ModelError, ModelOptions
from roomscout.models.transformers.loading import checkpoint_processor, generation_settings
from roomscout.models.transformers.source import checkpoint_of, hub_revision
from roomscout.models.vllm import VllmOptions
from roomscout.models.vllm.server import Build, server_command
from roomscout.runs.reader import RunReader

OLD, NEW = "1" * 40, "2" * 40


@pytest.fixture
def on_hub(tmp_path: Path, monkeypatch) -> str:
    """The hub id of a checkpoint with another commit behind its tag v1 than on its main branch."""
    repository = tmp_path / "hub" / "models--acme--tiny"
    (repository / "refs").mkdir(parents=True)
    for seed, (name, commit) in enumerate({"v1": OLD, "main": NEW}.items()):
        folder = write_untrained_checkpoint(repository / "snapshots" / commit, seed)
        (repository / "refs" / name).write_text(commit)
        template = folder / "chat_template.jinja"
        template.write_text(f"{{# {name} #}}{template.read_text()}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return "acme/tiny"


def test_a_revision_is_that_of_weights_template_protocol_and_record(
    on_hub: str, rooms: RoomScans, tmp_path: Path, capsys
):
    few = {"model": on_hub, "num_questions": 1, "steps": 0, "max_new_tokens": 6, "renderer": "blind"}
    runs = {
        name: run_in_process(rooms.config(tmp_path / str(name), revision=name, **few)) for name in ("v1", None, OLD)
    }
    said = {name: next(iter(RunReader(run).all_turns())).reply.tokens for name, run in runs.items()}
    facts = {name: RunReader(run).facts for name, run in runs.items()}
    assert said["v1"] == said[OLD] != said[None]
    assert [facts[name].last_versions.model_revision for name in ("v1", None, OLD)] == [OLD, NEW, OLD]
    assert ", revision=v1, " in facts["v1"].protocol and "revision" not in facts[None].protocol
    templates = [checkpoint_processor(checkpoint_of(on_hub, name)).chat_template for name in ("v1", None)]
    assert [template.split(" #}")[0] for template in templates] == ["{# v1", "{# main"]
    compare([str(runs["v1"]), str(runs[None])])
    assert "model acme/tiny, revision v1" in capsys.readouterr().out


def test_generation_settings_of_a_revision_and_of_a_folder_are_found(on_hub: str):
    for name in (checkpoint_of(on_hub, "v1"), str(EXPLORER)):
        assert generation_settings(name).eos_token_id is not None


def test_a_revision_that_is_not_there_is_named(on_hub: str):
    with pytest.raises(ModelError, match="acme/tiny@v9 is not on this machine"):
        checkpoint_processor(checkpoint_of(on_hub, "v9"))
    assert hub_revision("acme/tiny@v9") is None


def test_vllm_serves_the_revision():
    command = server_command("acme/tiny@v1", ModelOptions(), VllmOptions(1), Build("0.33", is_cpu=False), 1)
    assert command[command.index("--model") + 1] == "acme/tiny"
    assert command[command.index("--revision") + 1] == command[command.index("--tokenizer-revision") + 1] == "v1"
