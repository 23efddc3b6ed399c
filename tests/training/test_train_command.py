"""`roomscout train WHAT` up to the training that it starts."""

import pytest

from roomscout.command.main import main
from roomscout.training.command import TRAININGS


@pytest.mark.parametrize("name", TRAININGS)
def test_each_training_has_help(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["train", name, "--help"])
    assert "usage: roomscout train" in capsys.readouterr().out


def test_a_training_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "grop"]) == 2
    assert capsys.readouterr().err == "error: there is no training grop; did you mean grpo?\n"
    assert main(["train"]) == 2
    assert "grpo, a vision-language model by the score" in " ".join(capsys.readouterr().out.split())
