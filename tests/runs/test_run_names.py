"""Runs by name: --name, and RUN as the verbs take it."""

import json
from pathlib import Path

import pytest
from conftest import RoomScans
from planned import settings_of

from roomscout.base.errors import ConfigError
from roomscout.command.main import main
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader, find_part, find_run, named_run
from roomscout.runs.writer import named_folder, new_run_folder


def run_of(folder: Path, started: str, **config: object) -> Path:
    """A folder with as much of a run.json as a search for runs reads."""
    folder.mkdir(parents=True)
    facts = {
        "schema": 2, "started": started, "config": {"ply": None, "model": "embedded", "name": None, **config},
        "questions": 1, "questions_sha256": "",
        "conditions": {}, "answerer": {}, "scoring": {}, "flags": [],
        "git_revision": None, "packages": {}, "python": "", "host": "",
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder of two runs; the newest comes first by name."""
    run_of(tmp_path / "logs" / "later", "2026-11-25T10:00:00+00:00", name="later")
    run_of(tmp_path / "logs" / "z_earlier", "2026-11-25T09:00:00+00:00")
    return tmp_path / "logs"


@pytest.mark.parametrize("name", ["free", "Qwen3-VL_8B.spin", "7"])
def test_a_run_takes_a_name(tmp_path: Path, name: str):
    assert settings_of(name=name).name == name
    assert new_run_folder(tmp_path, True, name=name) == tmp_path / name


@pytest.mark.parametrize("name", ["", "a b", "../a", "a/b", ".hidden", "-x", "recent", "ü", "x" * 101])
def test_a_name_that_is_no_plain_folder_name_is_refused(name: str):
    with pytest.raises(ConfigError, match="--name"):
        settings_of(name=name)


def test_a_name_is_given_once(tmp_path: Path):
    run_of(tmp_path / "free", "2026-11-25T10:00:00+00:00")
    with pytest.raises(RunError, match=r"free exists already: choose another name, or continue it") as refused:
        new_run_folder(tmp_path, True, name="free")
    assert refused.value.setting == "name"
    assert named_folder(tmp_path, "free", (1, 4)).name == "free_shard1of4"


def test_a_part_is_found_by_the_name_of_its_run(tmp_path: Path):
    part = {"number": 1, "of": 2, "questions": 2, "questions_sha256": "", "settings": []}
    for name, hour in (("a", 10), ("b", 11)):
        folder = run_of(tmp_path / f"{name}_shard1of2", f"2026-11-25T{hour}:00:00+00:00", name=name)
        facts = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(facts | {"part": part}))
    assert find_part(tmp_path, 1, 2, "a") == tmp_path / "a_shard1of2"
    assert find_part(tmp_path, 1, 2) == tmp_path / "b_shard1of2"


def test_a_run_is_named_by_its_path_or_its_name(logs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(logs.parent)
    for named in ("later", "logs/later", str(logs / "later")):
        assert named_run(Path(named), Path("logs")).resolve() == logs / "later"
    assert find_run("later", logs) == logs / "later"
    with pytest.raises(
        RunError, match=r"latre does not exist, and .*logs has no run of that name: did you mean .*ater"
    ):
        named_run(Path("latre"), logs)


def test_a_named_run_is_recorded_resumed_and_looked_at_by_its_name(
    rooms: RoomScans, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    few = ("--num-questions", "1", "--steps", "0", "--image-size", "32", "24", "--name", "free")
    assert main(rooms.flags(tmp_path, *few)) == 0
    assert RunReader(tmp_path / "free").facts.name == "free"
    again = ["--log-root", str(tmp_path)]
    assert main(["resume", "free", *again]) == main(["wrong", "free", *again]) == main(["wrong", *again]) == 0
    assert main(["resume", "free", *again, "--name", "other"]) == main(rooms.flags(tmp_path, *few)) == 2
    said = capsys.readouterr().err
    assert "--name other names a new run: leave it out to resume one" in said
    assert f"--name: {tmp_path / 'free'} exists already" in said
