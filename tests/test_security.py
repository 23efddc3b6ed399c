"""What SECURITY.md promises about files of others."""

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
from gltf_files import image_bytes
from PIL import Image

from roomscout.base.pictures import PictureError, opened
from roomscout.base.processes import environment
from roomscout.command.study import _is_merged
from roomscout.rendering.geometry import SceneError
from roomscout.rendering.readers import read_geometry
from roomscout.runs import RunError
from roomscout.runs.writer import RunWriter

ROOT = Path(__file__).parents[1]
SECRET = b"KEY=0123456789abcdef" * 20
OBJ = "mtllib {}\nusemtl a\nv 0 0 0\nv 4 0 0\nv 0 4 0\nvt 0 0\nvt 1 0\nvt 0 1\nf 1/1 2/2 3/3\n"


def coloured_gltf(uri: str) -> str:
    """A triangle whose vertices have the bytes of another file as colours."""
    accessors = [
        {"componentType": 5126, "count": 3, "type": "VEC3"},
        {"bufferView": 0, "componentType": 5121, "count": 3, "type": "VEC3", "normalized": True},
    ]
    tree = {
        "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0, "COLOR_0": 1}, "mode": 0}]}],
        "buffers": [{"uri": uri, "byteLength": 9}], "bufferViews": [{"buffer": 0, "byteLength": 9}],
        "accessors": accessors,
    }  # fmt: skip
    return json.dumps(tree)


@pytest.fixture
def stranger(tmp_path):
    """The folder of a stranger's scan, beside a file that is none of its business."""
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "secret.png").write_bytes(image_bytes(Image.new("RGB", (1, 1), (9, 8, 7))))
    (tmp_path / "secret.mtl").write_text("newmtl a\nKd 0.2 0.4 0.6\n")
    (tmp_path / "scan").mkdir()
    (tmp_path / "scan" / "link.txt").symlink_to(tmp_path / "secret.txt")
    return tmp_path / "scan"


@pytest.mark.parametrize("uri", ["{}/secret.txt", "../secret.txt", "..\\secret.txt", "%2e%2e/secret.txt", "link.txt"])
def test_a_gltf_reads_no_file_outside_its_folder(stranger, uri):
    (stranger / "scan.gltf").write_text(coloured_gltf(uri.format(stranger.parent)))
    with pytest.raises(SceneError, match=r"is (missing|outside the scan's folder): put it beside the scan"):
        read_geometry(stranger / "scan.gltf")


@pytest.mark.parametrize(("library", "texture"), [("../secret.mtl", None), ("own.mtl", "../secret.png")])
def test_an_obj_reads_no_file_outside_its_folder(stranger, caplog, library, texture):
    (stranger / "scan.obj").write_text(OBJ.format(library))
    (stranger / "own.mtl").write_text(f"newmtl a\nmap_Kd {texture}\n")
    geometry = read_geometry(stranger / "scan.obj")
    assert geometry.texturing is None and geometry.face_colours is None
    assert "outside the scan's folder" in caplog.text


def test_a_scan_in_a_folder_of_links_has_its_files(tmp_path):
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    folder.mkdir()
    (blobs / "1").write_text(coloured_gltf("colours.bin"))
    (blobs / "2").write_bytes(bytes(range(9)))
    for name, blob in (("scan.gltf", "1"), ("colours.bin", "2")):
        (folder / name).symlink_to(blobs / blob)
    assert read_geometry(folder / "scan.gltf").colours.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


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
