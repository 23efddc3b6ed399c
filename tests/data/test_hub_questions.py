"""Questions of the hub, read in a new process: with its files, without them, and without loading more."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_questions import COUNTING, ROUTE

CODE = """
import contextlib, io, json, sys
import roomscout.data.scans, roomscout.scoring.summary
from roomscout.data.question_files import HubDataset, QuestionError, hub_rows
from roomscout.data.questions import load_questions
heavy = {'pandas', 'pyarrow', 'datasets', 'torch', 'open3d', 'roomscout.agent', 'roomscout.rendering'}
found = {'heavy': sorted(heavy & set(sys.modules))}
def read(**chosen):
    dataset = HubDataset('owner/dataset', 'test', 'test.jsonl', **chosen)
    try: return [row['id'] for _, row in hub_rows(dataset)]
    except QuestionError as error: return str(error)
with contextlib.redirect_stderr(io.StringIO()) as said:
    try: load_questions(None)
    except QuestionError as error: found |= {'without the hub': str(error), 'setting': error.setting}
found['said'] = said.getvalue()
print(json.dumps(found | {
    'files': read(files=('test_debiased.parquet', 'test_pruned.parquet')),
    'absent file': read(files=('test_absent.parquet',))}))
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is read from a dataset like VSI-Bench's on the hub: ids, or the error, by how its rows are chosen.

    Its configuration full also matches a file of a single type.
    """
    hub = tmp_path_factory.mktemp("hub")
    folder = hub / "owner" / "dataset"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: full\n  default: true\n  data_files:\n  - split: test\n"
        '    path: "test*.parquet"\n---\n'
    )
    rows = pd.DataFrame([{**COUNTING, "id": 1}, {**COUNTING, "id": 2}, {**ROUTE, "id": 3}, {**ROUTE, "id": 4}])
    rows[rows.id % 2 == 1].to_parquet(folder / "test_debiased.parquet", index=False)
    rows[rows.id % 2 == 0].to_parquet(folder / "test_pruned.parquet", index=False)
    rows[rows.question_type == "object_counting"].to_parquet(folder / "test_object_counting.parquet", index=False)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "HF_HOME": str(hub / "home"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", CODE], cwd=hub, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_loads_nothing_heavy(read: dict[str, Any]) -> None:
    assert read["heavy"] == []


def test_without_the_hub_the_error_says_what_to_do(read: dict[str, Any]) -> None:
    assert "then name the file here" in read["without the hub"] and read["setting"] == "questions"
    assert "hf download nyu-visionx/VSI-Bench" in read["without the hub"]
    assert "\n" not in read["without the hub"] and read["said"] == ""


def test_the_files_of_a_hub_dataset_are_read_whatever_its_configurations_match(read: dict[str, Any]) -> None:
    assert read["files"] == [1, 3, 2, 4]


def test_a_file_that_the_hub_lacks_is_named(read: dict[str, Any]) -> None:
    assert "test_absent.parquet" in read["absent file"] and "test.jsonl --repo-type dataset" in read["absent file"]
