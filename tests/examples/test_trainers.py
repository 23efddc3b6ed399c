"""The examples of trainers run with their real libraries.

Other libraries than Gymnasium are in environments of their own below the folder that FACES_VENVS names:
`make test-faces`. There, each example runs as a user would run it.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from roomscout.training.environment import Message

ROOT = Path(__file__).parents[2]
FACES_VENVS = os.environ.get("FACES_VENVS")


def run_example(python: Path, example: str, folder: Path) -> str:
    """What an example prints; its exit status must be 0."""
    ran = subprocess.run(
        [python, ROOT / "examples" / example],
        cwd=folder, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


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
    assert says in run_example(Path(str(FACES_VENVS)) / environment / "bin" / "python", example, tmp_path)


@pytest.mark.slow
def test_the_example_of_gymnasium_runs(tmp_path: Path):
    assert "4 episodes" in run_example(Path(sys.executable), "gymnasium_rooms.py", tmp_path)


def test_the_words_of_a_placeholder_are_no_image_for_vagen(monkeypatch: pytest.MonkeyPatch):
    for name in ("vagen", "vagen.envs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vagen.envs.gym_image_env", SimpleNamespace(GymImageEnv=object))  # type: ignore
    monkeypatch.syspath_prepend(ROOT / "examples")
    import vagen_rooms

    shown = vagen_rooms._observation([Message("user", "What is <image> here?", ("a view",))])  # type: ignore[arg-type]
    assert shown["obs_str"] == "<image>What is <image > here?"
    assert shown["multi_modal_input"] == {"<image>": ["a view"]}
