"""`roomscout check-model`: what it says of checkpoints, and when its exit status is 0."""

from pathlib import Path

import pytest
from conftest import run_main
from other_checkpoints import write_other
from untrained_checkpoints import write_untrained_family

from roomscout.command.check_model import main
from roomscout.models import EMBEDDED
from roomscout.models.checkpoint_files import VIEWS_FILE, ViewSettings, write_record


@pytest.mark.slow
def test_the_explorer_is_well_also_with_its_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([EMBEDDED, "--run", "--device", "cpu", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "Family: Qwen3-VL (qwen3_vl, Qwen3VLForConditionalGeneration)" in said
    assert "Tokens: 45 of a view of 288x160" in said and "Reused across turns: keys and values\n" in said
    assert said.count("<|im_start|>user") == 2 and "Turned 90 degrees left" in said
    assert said.count("turn 2, a view of 288x160") == 2 and "Replies alone: the same" in said
    assert list((tmp_path / "together").glob("*/run.json"))


@pytest.mark.slow
def test_a_model_without_a_family_says_what_it_reuses_and_that_its_replies_hold_no_action(tmp_path: Path, capsys):
    folder = str(write_other(tmp_path / "tiny", "lfm2_vl"))
    write_record(Path(folder), VIEWS_FILE, ViewSettings((128, 96), 60, max_new_tokens=8))
    assert main([folder, "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "Family: none of its own" in said and "Reused across turns: keys, values and states, up to the last" in said
    assert main([folder, "--device", "cpu", "--run"]) == 1
    said = capsys.readouterr().out
    assert "replies hold no action" in said and said.endswith("Not all is well.\n")


@pytest.mark.slow
def test_why_turns_are_recomputed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(write_other(tmp_path / "tiny", "gemma3")), "--device", "cpu"]) == 0
    assert "Reused across turns: nothing, it has layers, such as those with a sliding window" in capsys.readouterr().out


def test_a_checkpoint_that_cannot_be_used_is_a_sentence(tmp_path: Path):
    folder = write_untrained_family(tmp_path / "tiny", "qwen3_vl")
    (folder / "chat_template.jinja").unlink()
    ended = run_main(["check-model", str(folder)])
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: {folder} has no chat template")
