"""The core without the packages of the extras: it runs, and what needs one of them says how to install it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from conftest import COMMAND, RoomScans
from faulty_servers import FaultyServer, scripted
from scripted_model import random_policy

from roomscout.base.extras import EXTRA_OF, PACKAGE_OF

ROOT = COMMAND.parent
WITHOUT = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder

from roomscout.base.extras import EXTRA_OF

class Hidden:
    \"\"\"Finds no module of an extra, nor any in the folders of one.\"\"\"
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in EXTRA_OF:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden)
from roomscout.command.main import main

ended = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        try: status = main(command)
        except SystemExit as end: status = end.code
    ended.append((status, err.getvalue()))
json.dump([ended, sorted(set(EXTRA_OF) & set(sys.modules))], sys.stdout)
"""


def without_extras(commands: Sequence[Sequence[str]], folder: Path) -> tuple[list[tuple[int, str]], list[str]]:
    """Exit status and stderr of commands in a process without the modules of extras, and those it imported anyway."""
    environment = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_START"}
    environment |= {"PYTHONPATH": str(ROOT)}
    code = [sys.executable, "-c", WITHOUT, json.dumps(commands)]
    done = subprocess.run(code, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ended, imported = json.loads(done.stdout)
    return [(status, err) for status, err in ended], imported


def test_the_table_names_the_packages_of_the_extras_in_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {**project["optional-dependencies"], "core": project["dependencies"]}
    names = {extra: {re.split(r"[<>=\[; ]", each)[0] for each in packages} for extra, packages in listed.items()}
    packages = {
        (each, extra) for extra in set(names) - {"dev", "docs", "core"} for each in names[extra] - {"roomscout"}
    }
    assert packages == {(PACKAGE_OF.get(module, module), extra) for module, extra in EXTRA_OF.items()}
    assert not names["core"] & {PACKAGE_OF.get(each, each) for each in EXTRA_OF}


def test_a_server_and_policies_need_no_extra(rooms: RoomScans, tmp_path: Path):
    scan = next(rooms.root.rglob("*.ply"))
    with FaultyServer(scripted(random_policy())) as server:
        asks = ["--engine", "openai", "--model", "served", "--base-url", server.url]
        flags = ["--num-questions", "2", "--steps", "1"]
        served = rooms.flags(tmp_path, "--name", "served", *flags, *asks)
        commands: list[list[str]] = [
            ["--help"],
            ["rooms", str(tmp_path / "made"), "--rooms", "1", "--resolution", "0.5"],
            ["check", "--questions", str(rooms.questions), "--scan-root", str(rooms.root)],
            ["preview", str(scan), "--out", str(tmp_path / "preview")],
            served,
            rooms.flags(tmp_path, "--name", "part", "--shard", "1/1", *flags),
            ["merge", str(tmp_path / "whole"), str(tmp_path / "part_shard1of1")],
            ["report", str(tmp_path / "served")],
            ["leaderboard", str(tmp_path / "served")],
            ["replay", str(tmp_path / "served"), "q001"],
            ["failures", str(tmp_path / "served")],
            ["rescore", str(tmp_path / "served")],
        ]
        ended, imported = without_extras(commands, tmp_path)
    assert not [(command, *end) for command, end in zip(commands, ended, strict=True) if end[0] != 0]
    assert imported == []


def needing_extras(scans: RoomScans, folder: Path, run: Path) -> dict[str, list[list[str]]]:
    """Commands that need each extra."""
    asked = ["--questions", str(scans.questions), "--scan-root", str(scans.root), "--log-root", str(folder)]
    (folder / "video" / "scannet").mkdir(parents=True)
    for row in scans.rows:
        (folder / "video" / "scannet" / f"{row['scene_name']}.mp4").touch()
    (folder / "rows.parquet").write_bytes(b"PAR1")
    (folder / "own.py").write_text("import torch\n")
    video = ["--videos", str(folder / "video"), "--present", "video"]
    to_train = ["--model", "embedded", "--output", str(folder / "out")]
    return {
        "models": [
            ["eval", *asked, "--model", "embedded"],
            ["eval", *asked, "--model", "embedded", "--engine", "vllm"],
            ["eval", *asked, "--policy", f"{folder / 'own.py'}:Own"],
            ["ask", str(next(scans.root.rglob("*.ply"))), "What?", "--model", "embedded"],
            ["demo", "--log-root", str(folder)],
        ],
        "hub": [["check", "--scan-root", str(scans.root)], ["check", "--questions", str(folder / "rows.parquet")]],
        "video": [
            ["eval", *asked, *video, "--engine", "openai", "--model", "a", "--base-url", "http://127.0.0.1:9/v1"]
        ],
        "ray": [["eval", *asked, "--ray", "--policy", "random"]],
        "train": [["train", "sft", str(run), *to_train], ["train", "grpo", *to_train]],
        "report": [["replay", str(run), "q001", "--rrd"]],
        "paper": [["report", str(run), "--plots", str(folder / "paper")]],
        "inspect": [["export", str(run), "--to", "inspect", "--out", str(folder / "run.eval")]],
    }


def test_what_needs_an_extra_says_so_in_a_sentence(rooms: RoomScans, one_run: Path, tmp_path: Path):
    by_extra = needing_extras(rooms, tmp_path, one_run)
    assert by_extra.keys() == set(EXTRA_OF.values()) - {"quantize"}  # which needs models first
    commands = list(chain(*by_extra.values()))
    extras = [extra for extra, several in by_extra.items() for _ in several]
    ended, imported = without_extras(commands, tmp_path)
    wrong = [
        (command, status, said)
        for command, extra, (status, said) in zip(commands, extras, ended, strict=True)
        if status != 2 or not re.match(f'error: .* pip install "roomscout\\[{extra}\\]"', said.splitlines()[-1])
    ]
    assert not wrong and imported == []
