"""A machine that loses its power leaves half a line, lines of NULs, or images of NULs: resuming mends each of them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RoomScans, interrupted, results, run_in_process, scripted, trajectories
from planned import changed, run_settings

from roomscout.agent.policies import Policy
from roomscout.edge.settings import Settings
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.writer import RunWriter

BLOCK = 4096
ENDS: dict[str, Callable[[bytes], bytes]] = {
    "half a line": lambda line: line[: len(line) // 2],
    "NULs": lambda line: bytes(len(line)),
    "NULs and a line end": lambda line: bytes(len(line) - 1) + b"\n",
    "lines of NULs": lambda line: 3 * (bytes(len(line) - 1) + b"\n"),
    "half a line, then NULs": lambda line: line[:40] + bytes(len(line) - 40),
    "half a line, then NULs and a line end": lambda line: line[:40] + bytes(len(line) - 41) + b"\n",
    "NULs, then the end of a line": lambda line: bytes(len(line) - 40) + line[-40:],
    "a block of NULs": lambda line: bytes(BLOCK),
}
"""What is at the end of a journal in place of its last line."""
JOURNALS = ("results.jsonl", "q002/turns.jsonl")


@pytest.fixture(scope="module")
def config(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return rooms.config(tmp_path_factory.mktemp("crash"), num_questions=3, steps=2, batch_size=3)


@pytest.fixture(scope="module")
def undisturbed(config: Settings) -> Path:
    return run_in_process(config)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", JOURNALS)
def test_the_end_of_a_journal_is_mended(config: Settings, undisturbed: Path, tmp_path: Path, name: str, end: str):
    folder = Path(shutil.copytree(undisturbed, tmp_path / undisturbed.name))
    if name != "results.jsonl":  # as if no question had been finished
        (folder / "results.jsonl").unlink()
    *before, last = (folder / name).read_bytes().splitlines(keepends=True)
    (folder / name).write_bytes(b"".join(before) + ENDS[end](last))
    reader = RunReader(folder)
    read = reader.rows if name == "results.jsonl" else reader.turns(reader.begun[1])
    assert len(read) == len(before)
    run_settings(config, folder)
    assert results(folder) == results(undisturbed)
    assert trajectories(folder) == trajectories(undisturbed)
    assert b"\0" not in (folder / name).read_bytes()


@pytest.mark.parametrize("name", JOURNALS)
def test_nuls_before_a_whole_line_are_damage(undisturbed: Path, tmp_path: Path, name: str):
    folder = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    first, *others = (folder / name).read_bytes().splitlines(keepends=True)
    (folder / name).write_bytes(b"".join([bytes(len(first) - 1) + b"\n", *others]))
    with pytest.raises(RunError, match=rf"{name}, line 1 is damaged"):
        _ = RunReader(folder).rows, list(RunReader(folder).all_turns())
    if name == "results.jsonl":
        with pytest.raises(RunError, match="line 1 is damaged"):
            RunWriter(folder)


IMAGES: dict[str, Callable[[bytes], bytes]] = {
    "NULs": lambda png: bytes(len(png)),
    "NULs at its end": lambda png: png[: len(png) // 2] + bytes(len(png) - len(png) // 2),
    "nothing": lambda png: b"",
    "half of it": lambda png: png[: len(png) // 2],
}


@pytest.mark.parametrize("left", IMAGES)
@pytest.mark.parametrize(
    ("policy", "finished"),
    [(None, "this question"), (scripted, "this question"), (None, "the run"), (scripted, "nothing")],
)
def test_an_incomplete_image_is_drawn_again(
    rooms: RoomScans, tmp_path: Path, policy: Callable[[], Policy] | None, left: str, finished: str
):
    model = {} if policy is None else {"model": "Qwen/Qwen3-VL-8B-Instruct"}
    config = rooms.config(tmp_path / "logs", num_questions=2, steps=2, see=("rgb", "depth"), batch_size=3, **model)
    folder = run_in_process(config, policy and policy())
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    if finished == "nothing":
        interrupted(folder, 2)
    elif finished == "this question":
        first, *_ = (folder / "results.jsonl").read_text().splitlines(keepends=True)
        (folder / "results.jsonl").write_text(first)
    question = folder / f"q{json.loads((whole / 'results.jsonl').read_text().splitlines()[0])['number']:03d}"
    for name in ("render_00.png", "render_00_depth.png", "render_01.png"):
        if (question / name).exists():
            (question / name).write_bytes(IMAGES[left]((question / name).read_bytes()))
    assert run_settings(config, folder, policy=policy and policy()).status == 0
    assert results(folder) == results(whole)
    assert trajectories(folder) == trajectories(whole)


def test_an_answer_stays_if_its_image_cannot_be_drawn(config: Settings, undisturbed: Path, tmp_path: Path):
    folder = Path(shutil.copytree(undisturbed, tmp_path / undisturbed.name))
    (folder / "q001" / "render_00.png").write_bytes(b"")
    root = Path(shutil.copytree(config.scan_root, tmp_path / "scans"))
    shutil.rmtree(root / "scannet" / "scans" / RunReader(folder).rows[0].scene_name)
    assert run_settings(changed(config, scan_root=root), folder).status == 0
    assert results(folder) == results(undisturbed)


def test_whoever_reads_a_question_that_is_written_takes_nothing_away(
    config: Settings, undisturbed: Path, tmp_path: Path
):
    folder = Path(shutil.copytree(undisturbed, tmp_path / undisturbed.name))
    draft = folder / "q001" / ".0123456789abcdef.tmp"
    draft.touch()
    writer = RunWriter(folder)
    assert not draft.exists(), "what a killed process left goes before anybody writes"
    episode = writer.reader.begun[0]
    for count in range(200):
        writer.messages(episode, [{"role": "user", "text": str(count)}])
        assert writer.has_turns(episode) and len(writer.turns_of(episode)) == len(writer.reader.turns(episode))
    writer.flush()
    assert writer.reader.messages(episode) == [{"role": "user", "text": "199"}]
    writer.close()
