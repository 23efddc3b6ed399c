"""What a paper says of a run: its methods, the hashes by which it is known, and BibTeX of what it used."""

import json
import re
import shutil
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import pytest
import yaml
from conftest import RoomScans

from roomscout.analysis.cite import OWN, bibliography, methods
from roomscout.command.verbs import VERBS
from roomscout.data.benchmarks import SCANS_FROM, benchmark_names
from roomscout.models.transformers.families import FAMILIES, citation_of
from roomscout.runs.hashes import known_by
from roomscout.runs.reader import RunReader
from roomscout.runs.recorded_benchmarks import record_of

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"@(\w+)\{([\w.:+-]+),\n((?:  \w+ = \{.*\},?\n)+)\}\n")
FILES = [
    each
    for package in ("roomscout.data.benchmarks", "roomscout.models.transformers.families", "roomscout.models.vllm")
    for each in resources.files(package).iterdir()
    if each.name.endswith(".bib")
]


def entries(text: str) -> dict[str, dict[str, str]]:
    """The fields of BibTeX entries by key; asserts that there is nothing else but comments."""
    left = ENTRY.sub("", text)
    assert all(line.startswith("%") for line in left.splitlines() if line), left
    return {key: dict(re.findall(r"  (\w+) = \{(.*)\},?\n", body)) for _, key, body in ENTRY.findall(text)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_file_is_bibtex_with_balanced_braces(file):
    text = file.read_text(encoding="utf-8")
    for fields in entries(text).values():
        assert {"title", "author", "year"} <= fields.keys()
        assert all(value.count("{") == value.count("}") for value in fields.values())
        assert "eprint" not in fields or re.fullmatch(r"\d{4}\.\d{5}", fields["eprint"])
        assert "arXiv:" not in fields.get("journal", "") or fields["journal"].endswith(fields["eprint"])
    assert "and  " not in text


def test_every_benchmark_dataset_and_family_that_ships_has_an_entry():
    files = {each.name for each in FILES}
    assert {f"{name.replace('-', '_')}.bib" for name in benchmark_names() if name != "rooms"} <= files
    assert {f"{name}.bib" for name in (*SCANS_FROM, "3rscan", "multiscan")} <= files
    assert all(entries(citation_of(family.example)) for family in FAMILIES)


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", "Qwen3-VL"),
        ("qwen2.5-vl-7b", "Qwen2.5-VL"),
        ("Qwen/Qwen3.5-4B", "qwen3.5"),
        ("OpenGVLab/InternVL3_5-8B-HF", "wang2025internvl3_5"),
        ("llava-hf/llava-onevision-qwen2-7b-ov-hf", "li2024llava-onevision"),
    ],
)
def test_a_family_is_known_by_the_names_of_its_models(model: str, key: str):
    assert list(entries(citation_of(model))) == [key]
    assert citation_of("gpt-5-mini") == ""


def test_the_own_entry_agrees_with_the_citation_file():
    (own,) = entries(OWN.format(version="1.0", year=2026)).values()
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert own["title"].strip("{}") == cited["title"]
    assert own["author"].strip("{}") == " and ".join(each["name"] for each in cited["authors"])
    assert own["license"] == cited["license"]


def changed(run: Path, folder: Path, source_own: bool = True, **settings) -> RunReader:
    """A copy of a run that has other settings."""
    copy = Path(shutil.copytree(run, folder))
    facts = json.loads((copy / "run.json").read_text())
    facts["config"] |= settings
    facts["source"]["own"] = source_own
    (copy / "run.json").write_text(json.dumps(facts))
    return RunReader(copy)


def test_a_run_of_a_model_cites_benchmark_scans_family_and_engine(one_run: Path, tmp_path: Path):
    reader = changed(one_run, tmp_path / "run", model="Qwen/Qwen3-VL-8B-Instruct", engine="vllm", dtype="bfloat16")
    assert list(entries(bibliography(reader, lambda model, engine: ""))) == ["roomscout", "yang2025thinking"]
    saved = reader.folder / "questions.jsonl"
    saved.write_text(saved.read_text().replace("room_seed7_000", "scene0000_00").replace("room_seed7_001", "b"))
    bib = bibliography(reader, lambda model, engine: f"% {model} by {engine}\n")
    assert list(entries(bib)) == ["roomscout", "yang2025thinking", "dai2017scannet"]
    assert "% Qwen/Qwen3-VL-8B-Instruct by vllm" in bib
    assert "the model Qwen/Qwen3-VL-8B-Instruct, served by vLLM in bfloat16, answered" in methods(reader)


def test_what_has_no_citation_says_so(one_run: Path, tmp_path: Path):
    reader = changed(one_run, tmp_path / "run", model="/checkpoints/mine")
    bib = bibliography(reader, lambda model, engine: "")
    assert "% No citation is known of the model mine: add the one that its authors ask for." in bib
    saved = reader.folder / "questions.jsonl"
    saved.write_text(
        saved.read_text().replace('"dataset": "scannet", "scene_name": "room', '"dataset": "mine", "scene_name": "')
    )
    unknown = "% No citation is known of the scans called mine: add the one that their owners ask for."
    assert unknown in bibliography(reader, lambda model, engine: "")


def test_files_of_code_are_named_without_their_folders(one_run: Path, tmp_path: Path):
    places = {"policy": "/home/zoe/mine.py:Mine", "benchmark": f"{ROOT}/docs/examples/toy_benchmark.py:TOY"}
    reader = changed(one_run, tmp_path / "run", **places)
    facts = json.loads((reader.folder / "run.json").read_text())
    facts["benchmark"] = asdict(record_of(places["benchmark"]))
    (reader.folder / "run.json").write_text(json.dumps(facts))
    reader = RunReader(reader.folder)
    assert "the policy mine.py:Mine, without" in methods(reader)
    assert "% The benchmark Toy brings no citation" in bibliography(reader, lambda model, engine: "")


def test_the_methods_name_what_was_run_and_the_hashes(one_run: Path, capsys):
    assert VERBS["cite"].run([str(one_run)]) == 0
    paragraph, _, bib = capsys.readouterr().out.partition("\n\n")
    facts = RunReader(one_run).facts
    assert facts.protocol in paragraph
    assert "the policy scripted:random, without a model, answered 21 questions" in paragraph
    assert facts.questions_sha256[:12] in paragraph
    assert "@software{roomscout," in bib
    assert "of the model" not in bib


def test_a_summary_has_the_hashes_and_they_depend_on_the_scans(one_run: Path, rooms: RoomScans):
    found = json.loads((one_run / "summary.json").read_text())["provenance"]
    facts = RunReader(one_run).facts
    assert found["benchmark_sha256"] == facts.source.sha256
    assert found["scans"] == 6
    assert all(re.fullmatch("[0-9a-f]{64}", found[name]) for name in ("scans_sha256", "protocol_sha256"))
    assert found["version"] == facts.packages["roomscout"]
    assert known_by(found).startswith(f"rows of the benchmark {facts.source.sha256[:12]}, scans ")
    assert known_by({}) == ""
