"""The package as it is installed: one name, all files, beside projects with folders of the same names."""

import os
import re
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import COMMAND, RoomScans, run_command

import roomscout

ROOT = COMMAND.parent
FOLDERS = tuple(sorted(path.parent.name for path in (ROOT / "roomscout").glob("*/__init__.py")))


def test_the_public_names_are_listed_and_there():
    assert {"ask", "explore", "load_policy", "load_trajectories", "Question", "Policy"} <= set(dir(roomscout))
    assert all(getattr(roomscout, name) is not None for name in roomscout.__all__)
    with pytest.raises(AttributeError, match="'roomscout' has no attribute 'explode'"):
        _ = roomscout.explode


def test_the_version_is_the_same_everywhere():
    """The package's own is that of the build; the changelog's newest entry is that version, released or not."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    (in_readme,) = re.findall(r"note\s*= {Version (.*)}", (ROOT / "README.md").read_text())
    newest = re.search(r"^## (\S+),", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and {cited, in_readme, newest[1]} == {roomscout.__version__}


def test_every_file_of_the_package_is_in_the_wheel():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    data = {
        path
        for name, patterns in declared.items()
        for pattern in patterns
        for path in (ROOT / name.replace(".", "/")).glob(pattern)
    }
    files = {path for path in (ROOT / "roomscout").rglob("*") if path.is_file()} - data
    assert not [path for path in files if path.suffix not in (".py", ".pyc")], "declare it as package-data"
    folders = {path.parent for path in (ROOT / "roomscout").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()], "setuptools would not find it"


@pytest.mark.slow
def test_a_wheel_answers_beside_a_project_with_folders_of_the_same_names(rooms: RoomScans, tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = run_command(build)  # an sdist, and of it the wheel
    assert built.returncode == 0, built.stderr
    (wheel,), (_,) = tmp_path.glob("roomscout-*.whl"), tmp_path.glob(f"roomscout-{roomscout.__version__}.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"roomscout"}
    tracked = run_command(["git", "-C", str(ROOT), "ls-files", "roomscout"]).stdout.split()
    assert not set(tracked) - set(names)

    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    run_command([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], env=environment)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # Its dependencies are those of this environment; only its .pth files, with an editable install, are left out.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    assert {path.name.split("-")[0] for path in site.iterdir()} == {"roomscout", "dependencies.pth"}

    project = tmp_path / "project"
    for name in (*FOLDERS, "checkpoints"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise RuntimeError('the project of somebody else')\n")
    scan = next(rooms.root.rglob("*.ply"))
    asked = ["--ply", str(scan), "--question", "How many chair(s) are in this room?", "--model", "embedded"]
    asked += ["--renderer", "raycast", "--log-root", "logs", "--steps", "1", "--image-size", "160", "96"]
    ended = run_command([str(python.with_name("roomscout")), *asked], cwd=project, env=environment)
    assert ended.returncode == 0 and "Final answer" in ended.stdout, ended.stdout + ended.stderr
    code = "import roomscout; print(roomscout.__file__)"
    ended = run_command([str(python), "-c", code], cwd=project, env=environment)
    assert Path(ended.stdout.strip()).is_relative_to(site), ended.stderr


@pytest.mark.parametrize("first", ["agent.state", "roomscout.agent.state"])
def test_the_links_of_a_checkout_give_the_same_modules(first: str):
    code = (
        f"import {first}, agent.state, data.questions, rendering.renderers.base\n"
        "from agent.policies import controls\n"
        "import roomscout.agent.state, roomscout.data.questions, roomscout.agent.policies.controls\n"
        "assert agent.state.QuestionState is roomscout.agent.state.QuestionState\n"
        "assert data is roomscout.data and rendering.renderers.base is roomscout.rendering.renderers.base\n"
        "assert controls is roomscout.agent.policies.controls\n"
        "import agent.nothing\n"
    )
    ended = run_command([sys.executable, "-c", code], cwd=ROOT)
    assert ended.stderr.splitlines()[-1:] == ["ModuleNotFoundError: No module named 'roomscout.agent.nothing'"]
