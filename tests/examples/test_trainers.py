"""The examples of trainers run with their real libraries.

Other libraries than Gymnasium are in environments of their own below the folder that FACES_VENVS names:
`make test-faces`. There, each example runs as a user would run it.
"""

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from conftest import run_command

from roomscout.training.environment import Message

ROOT = Path(__file__).parents[2]
FACES_VENVS = os.environ.get("FACES_VENVS")


@pytest.mark.skipif(not FACES_VENVS, reason="FACES_VENVS names no folder of environments with the libraries")
@pytest.mark.parametrize(
    ("environment", "example", "says"),
    [
        ("openenv", "openenv_rooms.py", "score 1.0"),
        ("verifiers", "verifiers_rooms.py", "score 1.0"),
        ("verl", "vagen_rooms.py", "success True"),
        ("verl", "verl_rooms.py", "score 1.0"),
    ],
)
def test_an_example_runs_with_the_real_library(environment: str, example: str, says: str, tmp_path: Path):
    python = Path(str(FACES_VENVS)) / environment / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = run_command([str(python), str(ROOT / "examples" / example)], cwd=tmp_path, env=environment, timeout=500)
    assert ran.returncode == 0 and says in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_example_of_gymnasium_runs(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(ROOT / "examples" / "gymnasium_rooms.py"))
    assert "4 episodes" in capsys.readouterr().out


def test_the_words_of_a_placeholder_are_no_image_for_vagen(monkeypatch: pytest.MonkeyPatch):
    for name in ("vagen", "vagen.envs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vagen.envs.gym_image_env", SimpleNamespace(GymImageEnv=object))  # type: ignore
    monkeypatch.syspath_prepend(ROOT / "examples")
    import vagen_rooms

    shown = vagen_rooms._observation([Message("user", "What is <image> here?", ("a view",))])  # type: ignore[arg-type]
    assert shown["obs_str"] == "<image>What is <image > here?"
    assert shown["multi_modal_input"] == {"<image>": ["a view"]}
