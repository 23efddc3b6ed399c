"""What SECURITY.md promises about files of others; tests/data/test_named_files.py has what they may name."""

import json
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import RoomScans, run_in_process
from PIL import Image

from roomscout.base.pictures import PictureError, opened
from roomscout.base.processes import environment
from roomscout.command.study import _is_merged
from roomscout.rendering.geometry import SceneError
from roomscout.rendering.readers import read_geometry
from roomscout.runs import RunError
from roomscout.runs.writer import RunWriter

ROOT = Path(__file__).parents[1]


def test_no_code_of_the_current_folder_is_run(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('run')")
    command = [sys.executable, "-m", "roomscout", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_process_of_ours_gets_that_environment():
    starts = r"(?:subprocess\.run|subprocess\.Popen)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    for path in (ROOT / "roomscout").rglob("*.py"):
        for call in re.findall(starts, path.read_text()):
            assert "env=" in call or path.name in ("provenance.py", "watchdog.py"), (path, call)  # git; passed on


def test_pictures_are_opened_in_one_place():
    opening = [path for path in (ROOT / "roomscout").rglob("*.py") if "Image.open(" in path.read_text()]
    assert opening == [ROOT / "roomscout" / "base" / "pictures.py"]


def png(width: int, height: int) -> bytes:
    """A small file of a large black picture."""
    pack = zlib.compressobj(9)
    row = bytes(1 + 3 * width)
    data = b"".join(pack.compress(row) for _ in range(height)) + pack.flush()
    chunks = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", data), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n", "not an image of a known"),
        (png(8192, 4096), "8192 x 4096 pixels, more than 16,777,216: save it smaller"),
    ],
)
def test_a_picture_starts_no_program_and_takes_no_memory_that_its_bytes_do_not_explain(data, why):
    with pytest.raises(PictureError, match=re.escape(why)):
        opened(data)


GLTF = {
    "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}],
    "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "mode": 0}]}],
}  # fmt: skip
FEW, MANY = ({"componentType": 5126, "count": count, "type": "VEC3"} for count in (50_000, 10**8))
REPEATED = {"mesh": 0, "extensions": {"EXT_mesh_gpu_instancing": {"attributes": {"TRANSLATION": 1}}}}
PCD = "FIELDS x y z i\nSIZE 4 4 4 4\nTYPE F F F F\nCOUNT 1 1 1 20000000\nPOINTS 1\nDATA ascii\n1 2 3 4\n"
TRIANGLE = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("zeros.gltf", json.dumps({**GLTF, "nodes": [{"mesh": 0}], "accessors": [MANY]}), "asks for more than"),
        ("repeated.gltf", json.dumps({**GLTF, "nodes": [REPEATED], "accessors": [FEW, FEW]}), "asks for more than"),
        ("wide.pcd", PCD, "20,000,003 numbers a point, and 8 bytes follow"),
        ("polygon.obj", TRIANGLE + f"f {'1 2 3 ' * 5000}\n", "a face has 15,000 corners, more than 10,000"),
        ("long.obj", "v 0 0 0\n" * 60_000 + f"v {'0 ' * 60_000}\n", "line 60001 has 60000 numbers instead of 3"),
        ("nested.gltf", '{"a":' * 50_000 + "1" + "}" * 50_000, "nested too deeply"),
        ("materials.obj", TRIANGLE + "".join(f"usemtl {n}\nf 1 2 3\n" for n in range(20_000)), "20,000 materials"),
    ],
)
def test_a_scan_asks_for_no_more_than_its_bytes_explain(tmp_path, name, text, why):
    (tmp_path / name).write_text(text)
    with pytest.raises(SceneError, match=why):
        read_geometry(tmp_path / name)


def test_a_picture_is_upright_and_has_8_bits(tmp_path):

    ramp = np.linspace(0, 65535, 12).astype(np.uint16).reshape(3, 4)
    exif = Image.Exif()
    exif[0x0112] = 3  # rotated by 180 degrees
    Image.fromarray(ramp).save(tmp_path / "ramp.png", exif=exif)
    shown = np.asarray(opened((tmp_path / "ramp.png").read_bytes()))[..., 0]
    assert np.abs(shown.astype(int) - np.rint(ramp[::-1, ::-1] / 257)).max() <= 1


def test_a_folder_that_is_no_run_is_not_removed_for_a_merged_one(tmp_path: Path, rooms: RoomScans):
    part = run_in_process(rooms.config(tmp_path / "logs", num_questions=1))
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "summary.json").write_text("{}")
    (tmp_path / "merged" / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"run\.json"):
        _is_merged(tmp_path / "merged", [part])
    assert (tmp_path / "merged" / "thesis.tex").read_text() == "precious"


def test_drafts_of_a_killed_process_are_swept_and_other_hidden_files_are_not(tmp_path: Path, rooms: RoomScans):
    run = run_in_process(rooms.config(tmp_path, num_questions=1))
    for name in (".0123456789abcdef.tmp", ".mine.tmp"):
        (run / name).touch()
    RunWriter(run).close()
    assert [path.name for path in run.glob(".*")] == [".mine.tmp"]
