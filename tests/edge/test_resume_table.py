"""What a finished run says to each setting that another value is given for when it is resumed, through the command."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, made_once, only_run, results, run_main

from roomscout.base.errors import flag
from roomscout.edge.declaring import Role
from roomscout.edge.settings import SETTINGS

TAKEN_ROLES = {Role.DISPLAY, Role.SPEED, Role.PLACE, Role.OUTPUT}
"""The roles of settings that may change when a run is resumed."""
ANSWERS, RECORDS = "would change answers of this run", "would change the records of this run"
SERVERS: Mapping[str, Any] = {"policy": None, "model": "m", "engine": "openai", "base_url": ["http://127.0.0.1:9/v1"]}
"""A run by a model: nothing is asked once all is answered, and no checkpoint takes its time."""
PERSON: Mapping[str, Any] = {"policy": "human", "model": "human"}
VIDEO: Mapping[str, Any] = {**SERVERS, "present": "video", "videos": "{frames}", "frames": 2, "max_new_tokens": 16}


@dataclass(frozen=True)
class Other:
    """A setting with another value than that of the run, as flags."""

    flags: str
    """What is typed: {root}, {rooms}, {questions}, {prices} and {frames} stand for paths, {logs} for another folder."""
    refused: str = ""
    """What the refusal says; empty if the setting is taken."""
    of: Mapping[str, Any] = field(default_factory=dict)
    """The settings with which the run was begun, where the setting needs others than those of a random policy."""


OTHERS: dict[str, Other] = {
    # questions
    "benchmark": Other("--benchmark sqa3d", ANSWERS),
    "questions": Other("--questions {questions}"),
    "datasets": Other("--datasets scannet", ANSWERS),
    "question_types": Other("--question-types object_counting", ANSWERS),
    "scenes": Other("--scenes somewhere", ANSWERS),
    "ids": Other("--ids 1", ANSWERS),
    "num_questions": Other("--num-questions 1", ANSWERS),
    "samples": Other("--samples 2", ANSWERS),
    # scans and views
    "scan_root": Other("--scan-root {rooms}"),
    "renderer": Other("--renderer blind", ANSWERS),
    "up_axis": Other("--up-axis y", ANSWERS),
    "scale": Other("--scale 2", ANSWERS),
    "image_size": Other("--image-size 64 64", ANSWERS),
    "focal": Other("--focal 80", ANSWERS),
    "camera_height": Other("--camera-height 1.5", ANSWERS),
    "camera_pitch": Other("--camera-pitch -5", ANSWERS),
    "see": Other("--see depth", ANSWERS),
    # the model
    "model": Other("--model embedded", "was begun with random, not embedded: resume it with random"),
    "engine": Other("--engine vllm", ANSWERS),
    "revision": Other("--revision main", ANSWERS),
    "adapter": Other("--adapter {logs}", ANSWERS),
    "prompts": Other("--prompts {prices}", ANSWERS),
    "policy": Other("--policy stay", ANSWERS),
    "dtype": Other("--dtype float32", ANSWERS),
    "quantize": Other("--quantize 4bit", ANSWERS),
    "device": Other("--device cpu"),
    "max_new_tokens": Other("--max-new-tokens 7", ANSWERS),
    "temperature": Other("--temperature 0.5", ANSWERS),
    "generation": Other("--generation top_p=0.5", ANSWERS),
    "seed": Other("--seed 3", ANSWERS),
    "constrained": Other("--constrained", ANSWERS),
    "memory_fraction": Other("--memory-fraction 0.5"),
    "compile": Other("--compile"),
    "tiles_per_view": Other("--tiles-per-view 2", ANSWERS),
    "logprobs": Other("--logprobs", RECORDS),
    # turns and batches
    "steps": Other("--steps 2", ANSWERS),
    "max_batched_turns": Other("--max-batched-turns all"),
    "batch_size": Other("--batch-size 3"),
    "max_batch_size": Other("--max-batch-size 3"),
    "refill": Other("--refill --max-batched-turns all"),
    "concurrency": Other("--concurrency 3"),
    # controls
    "moves": Other("--moves spin", ANSWERS),
    "moves_of": Other("--moves-of {logs}", ANSWERS),
    "present": Other("--present once", ANSWERS),
    "videos": Other("--videos {frames}/again", of=VIDEO),
    "frames": Other("--frames 3", ANSWERS, of=VIDEO),
    "keep_views": Other("--keep-views 1", ANSWERS),
    "given": Other("--given boxes", ANSWERS),
    "min_turns": Other("--min-turns 1", ANSWERS),
    "actions": Other("--actions discrete", ANSWERS),
    "translation": Other("--no-translation", ANSWERS),
    "tell": Other("--tell nothing", ANSWERS),
    "anytime": Other("--anytime", RECORDS),
    "probe": Other("--probe map", RECORDS),
    # servers
    "base_url": Other("--base-url http://127.0.0.1:9/v2", of=SERVERS),
    "api_key_env": Other("--api-key-env KEY_OF_A_TEST", of=SERVERS),
    "request_timeout": Other("--request-timeout 5", of=SERVERS),
    "extra_body": Other("""--extra-body {{"top_k":1}}""", ANSWERS, of=SERVERS),
    "tensor_parallel_size": Other("--tensor-parallel-size 2", of={"engine": "vllm"}),
    # people
    "annotator": Other("--annotator anna", ANSWERS, of=PERSON),
    "instructions": Other("--instructions {prices}", ANSWERS, of=PERSON),
    "thanks": Other("--thanks {prices}", of=PERSON),
    "words": Other("--words de", ANSWERS, of=PERSON),
    "address": Other("--address 127.0.0.1:0", of=PERSON),
    # output
    "log_root": Other("--log-root {logs}"),
    "name": Other("--name another", "--name another names a new run: leave it out to resume one"),
    "report": Other("--report"),
    "judge": Other("--judge m", "--judge marks answers in free text, and no question has one: leave it out"),
    "prices": Other("--prices {prices}", of=SERVERS),
    "budget": Other("--budget 3 --prices {prices}", of=SERVERS),
    "log_level": Other("--log-level result"),
    # parts and workers
    "shard": Other("--shard 1/2", ANSWERS),
    "gpus": Other("--gpus 0,1 --device cpu"),
    "ray": Other("--ray"),
    "replicas": Other("--replicas 2 --ray"),
}
"""For each setting of a run, another value than that of the run, and what is said to it."""


@pytest.fixture(scope="module")
def finished(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of a random policy; nobody may change it."""

    def make(root: Path) -> None:
        ended = run_main(rooms.flags(root / "logs", "--num-questions", "2", "--steps", "1"))
        assert ended.returncode == 0, ended.stderr
        (root / "prices.yaml").write_text("m: {input: 1.0, output: 4.0}\n")
        for row in rooms.rows[:2]:
            for frames in (root / "frames", root / "frames" / "again"):
                (frames / row["dataset"] / row["scene_name"]).mkdir(parents=True, exist_ok=True)

    return made_once(tmp_path_factory, "finished_random_run", make)


def as_if_begun_with(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write into a finished run that it was begun with these settings: none of them is used once all is answered."""
    file = folder / "run.json"
    facts = json.loads(file.read_text())
    facts["config"] |= settings
    facts["conditions"] |= {"words": "of its protocol", "video_input": "frames"}
    file.write_text(json.dumps(facts))


def in_paths(value: Any, paths: Mapping[str, Path]) -> Any:
    """A value of a setting, with the paths that its text stands for."""
    return value.format(**paths) if isinstance(value, str) else value


def test_the_table_has_every_setting_of_a_run_as_its_role_says():
    assert OTHERS.keys() == SETTINGS.keys(), "give each setting another value, and say what comes of it"
    for name, other in OTHERS.items():
        role, refusal = SETTINGS[name].role, other.refused
        assert other.flags.startswith((flag(name), flag(name, False))), name
        if refusal in ("", ANSWERS, RECORDS):  # else the setting has a refusal of its own
            assert (refusal == "") == (role in TAKEN_ROLES) and (refusal == RECORDS) == (role is Role.RECORD), name


@pytest.mark.parametrize("name", OTHERS)
def test_a_setting_may_change_only_if_no_answer_and_no_record_depends_on_it(
    name: str, finished: Path, rooms: RoomScans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other, folder = OTHERS[name], tmp_path / "run"
    shutil.copytree(only_run(finished / "logs"), folder)
    paths = {
        "rooms": Path(shutil.copytree(rooms.root, tmp_path / "rooms")) if name == "scan_root" else rooms.root,
        "questions": Path(shutil.copy(rooms.questions, tmp_path / "same.jsonl")),
        "logs": tmp_path / "elsewhere",
        "prices": finished / "prices.yaml",
        "frames": finished / "frames",
    }
    as_if_begun_with(folder, {key: in_paths(value, paths) for key, value in other.of.items()})
    before = results(folder)
    monkeypatch.setenv("KEY_OF_A_TEST", "key")
    monkeypatch.setattr("roomscout.base.extras.is_installed", lambda module: True)  # no worker is started
    ended = run_main(["--continue", str(folder), *(word.format(**paths) for word in other.flags.split())])
    if other.refused:
        assert (ended.returncode, other.refused in ended.stderr) == (2, True), ended.stderr
        assert name == "model" or flag(name) in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
        assert "Nothing to do: every question of" in ended.stdout
    assert results(folder) == before
