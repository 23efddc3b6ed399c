"""What files of others may name: regular files of bounded size in their own folder, whatever the kind of either."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from roomscout.base.files import own_folders, require_own
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.pictures import MADE, Picture
from roomscout.data.questions import QuestionError, load_questions
from roomscout.data.video_frames import FrameSize, VideoError, VideoNotFound, frames_of_folder, frames_path
from roomscout.rendering.geometry import SceneError
from roomscout.rendering.readers import read_geometry

SECRET = b"KEY=0123456789abcdef" * 20
ROW = {"scan": "room.ply", "question": "How many?", "question_type": "object_counting", "ground_truth": 2}
OBJ = "mtllib {}\nusemtl a\nv 0 0 0\nv 4 0 0\nv 0 4 0\nvt 0 0\nvt 1 0\nvt 0 1\nf 1/1 2/2 3/3\n"
UPRIGHT = [[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]]


def picture(folder: Path, name: str) -> None:
    (folder / "q.jsonl").write_text(json.dumps({**ROW, "images": [name]}))
    load_questions(folder / "q.jsonl")


def viewsuite(folder: Path, name: str) -> None:
    views = ("init_view", "target_view", "top_down_view")
    details = {view: {"path": name, "c2w_extrinsics": UPRIGHT} for view in views}
    row = {"scene_id": "s", "sample_id": "1", "image_detail": details, "gt_answer": None}
    (folder / "q.jsonl").write_text(json.dumps(row))
    load_questions(folder / "q.jsonl", find_benchmark("viewsuite"))


def gltf(folder: Path, name: str) -> None:
    attributes = {"attributes": {"POSITION": 0}, "mode": 0}
    tree = {
        "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [attributes]}], "buffers": [{"uri": name, "byteLength": 36}],
        "bufferViews": [{"buffer": 0, "byteLength": 36}],
        "accessors": [{"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"}],
    }  # fmt: skip
    (folder / "scan.gltf").write_text(json.dumps(tree))
    read_geometry(folder / "scan.gltf")


def material(folder: Path, name: str) -> None:
    (folder / "scan.obj").write_bytes(OBJ.format(name).encode("utf-8", "surrogatepass"))
    read_geometry(folder / "scan.obj")


def texture(folder: Path, name: str) -> None:
    (folder / "own.mtl").write_bytes(f"newmtl a\nmap_Kd {name}\n".encode("utf-8", "surrogatepass"))
    material(folder, "own.mtl")


def video(folder: Path, name: str) -> None:
    frames_path(folder, "{scene}.mp4", "d", name.removesuffix(".mp4"))


def frame(folder: Path, name: str) -> None:
    frames_of_folder(folder, 1, FrameSize(100), folder)


Names = Callable[[Path, str], None]
IN_TEXT: dict[Names, str] = {picture: ".png", viewsuite: ".jpg", gltf: ".bin", material: ".mtl", texture: ".png"}
ALL: dict[Names, str] = {**IN_TEXT, video: ".mp4", frame: ".png"}


def why_refused(names: Names, folder: Path, name: str, caplog: pytest.LogCaptureFixture) -> str:
    """The one sentence with which a file that names another is refused, or drawn without it."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        if names in (material, texture):
            names(folder, name)
            (said,) = [record.getMessage() for record in caplog.records if "drawing without" in record.getMessage()]
        else:
            with pytest.raises((QuestionError, SceneError, VideoError, VideoNotFound)) as refused:
                names(folder, name)
            said = str(refused.value)
    assert "\n" not in said and len(said) < 700 and "KEY=" not in said
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a stranger, beside what is none of its business."""
    for ending in ALL.values():
        (tmp_path / f"secret{ending}").write_bytes(SECRET)
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


PLACED: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "link": (lambda bad, secret: bad.symlink_to(secret), "outside"),
    "link to nothing": (lambda bad, secret: bad.symlink_to(secret.with_name("none")), "outside"),
    "device": (lambda bad, secret: bad.symlink_to("/dev/zero"), "outside"),
    "process": (lambda bad, secret: bad.symlink_to("/proc/self/environ"), "outside"),
    "link to itself": (lambda bad, secret: bad.symlink_to(bad.name), "symbolic links"),
    "pipe": (lambda bad, secret: os.mkfifo(bad), "a folder, a pipe or a device"),
    "folder": (lambda bad, secret: bad.mkdir(), "a folder, a pipe or a device"),
    "large": (lambda bad, secret: os.close(_sparse(bad)), "too large, with"),
}


def _sparse(path: Path) -> int:
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.ftruncate(file, 2**36 + 1)
    return file


@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize("names", ALL)
def test_what_lies_there_under_a_plain_name_is_looked_at(
    names: Names, placed: str, folder: Path, caplog: pytest.LogCaptureFixture
):
    place, why = PLACED[placed]
    bad = folder / f"bad{ALL[names]}"
    place(bad, folder.parent / f"secret{ALL[names]}")
    said = why_refused(names, folder, bad.name, caplog)
    assert why in said and bad.name in said


BAD_NAMES = {
    "absolute": "{parent}/secret{ending}", "above": "../secret{ending}", "backslashes": "..\\secret{ending}",
    "through a link": "up/secret{ending}", "through itself": "../own/../secret{ending}",
    "long": "x" * 5000 + "{ending}", "long part": "x" * 300 + "{ending}", "nul": "a\0{ending}",
    "surrogate": "\ud800{ending}",
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize("names", IN_TEXT)
def test_no_name_leads_out_of_the_folder_or_breaks_a_reader(
    names: Names, bad: str, folder: Path, caplog: pytest.LogCaptureFixture
):
    (folder / "up").symlink_to("..")
    name = BAD_NAMES[bad].format(parent=folder.parent, ending=IN_TEXT[names])
    said = why_refused(names, folder, name, caplog)
    assert any(why in said for why in ("outside", "missing", "not a name", "not a file that can be opened"))


@pytest.mark.parametrize("names", ALL)
@pytest.mark.parametrize("where", ["plain", "link inside", "cache of the hub"])
def test_what_is_inside_is_opened(names: Names, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder = tmp_path / "snapshots" / "1a2b"
    contents = {"cache of the hub": tmp_path / "blobs", "link inside": folder / "more"}.get(where, folder)
    for each in (folder, contents):
        each.mkdir(parents=True, exist_ok=True)
    ending = ALL[names]
    file = contents / ("file" if where == "cache of the hub" else f"file{ending}")
    if ending in (".png", ".jpg"):
        Image.new("RGB", (4, 4), "red").save(file, "PNG")
    else:
        file.write_bytes(b"newmtl a\nKd 1 0 0\n" if ending == ".mtl" else np.eye(3, dtype=np.float32).tobytes())
    if contents != folder:
        (folder / f"good{ending}").symlink_to(os.path.relpath(file, folder))
    else:
        file.rename(folder / f"good{ending}")
    names(folder, f"good{ending}")
    assert "drawing without" not in caplog.text


def test_the_blobs_of_a_repository_are_its_own_only_where_they_are(tmp_path: Path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.png").write_bytes(SECRET)
    folder = tmp_path / "repository" / "snapshots" / "1"
    folder.mkdir(parents=True)
    (tmp_path / "repository" / "blobs").symlink_to(tmp_path / "private")
    (folder / "a.png").symlink_to("../../blobs/a.png")
    with pytest.raises(OSError, match="outside its folder"):
        require_own(folder / "a.png", own_folders(folder / "q.jsonl"), "its folder", 1000)


# Cells


@pytest.fixture
def goal(tmp_path: Path) -> Path:
    (tmp_path / "pics").mkdir()
    Image.new("RGB", (4, 3), "red").save(tmp_path / "pics" / "goal.png")
    return tmp_path / "pics" / "goal.png"


def read(folder: Path, cell: object, column: str = "images") -> list[str]:
    """The pictures of a question with this cell."""
    (folder / "q.jsonl").write_text(json.dumps({**ROW, column: cell}))
    (question,) = load_questions(folder / "q.jsonl")
    return [image.file for image in question.images]


@pytest.mark.parametrize("form", ["{}", " {} ", "{}|{}", "{} | {}", '["{}"]', '["{}", "{}"]'])
@pytest.mark.parametrize("name", ["pics/goal.png", "./pics/goal.png", "pics\\goal.png"])
def test_a_name_several_a_list_and_json_are_read(goal: Path, form: str, name: str):
    text = form.format(*[name.replace("\\", "\\\\") if "[" in form else name] * 2)
    assert read(goal.parents[1], text) == [str(goal)] * form.count("{}")
    assert read(goal.parents[1], [name]) == [str(goal)]


def test_a_name_as_an_ascii_locale_has_it_is_read_again():
    (picture,) = Picture.read([{"file": "/data/\udcc3\udcbc.png", "sha256": ""}])
    assert picture.file == "/data/\udcc3\udcbc.png"


@pytest.mark.parametrize("cell", [None, float("nan"), "", "  ", [], "[]", "null"])
def test_an_empty_cell_is_no_picture(tmp_path: Path, cell: object):
    assert read(tmp_path, cell) == []


CONTENT = "iVBORw0KGgo" + "SECRET" * 900


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("['pics/goal.png']", "is not JSON"),
        ('["pics/goal.png"', "is not JSON"),
        ("[" * 5000, "nested too deeply"),
        (5, "5 must be a list of PNG and JPEG files"),
        (0, "0 must be a list"),
        (False, "False must be a list"),
        ([None], "None must be a list"),
        (["pics/goal.png", float("nan")], "nan must be a list"),
        ("pics/goal.png|", "must be a list"),
        *((f"goal.png{mark}pics/goal.png", "must be .* with . between") for mark in (";", "; ", ", ", "\n")),
        ("x" * 5000, "is not a name"),
        ([["pics/goal.png"]], "must be a list"),
        ({"file": "pics/goal.png"}, "must be a list"),
        ([{"file": "pics/goal.png", "of": 1}], "must be a list"),
        ("file:///pics/goal.png", "is a URL"),
        (["https://example.invalid/goal.png"], "is a URL"),
        ({"bytes": CONTENT, "path": "goal.png"}, "has a picture itself"),
        ([{"bytes": CONTENT, "path": None}], "has a picture itself"),
        (json.dumps({"bytes": CONTENT}), "has a picture itself"),
        (f"{{'bytes': {CONTENT.encode()!r}}}", "is not JSON"),
        (CONTENT, "has a picture itself"),
        ([f"data:image/png;base64,{CONTENT}"], "has a picture itself"),
        ([{"file": "pics/goal.png", "sha256": 5}], "sha256 5 must be"),
        ([{"file": "pics/goal.png", "sha256": ["x"]}], "must be"),
        ([{"file": "pics/goal.png", "sha256": MADE}], "cannot have the sha256 'made'"),
    ],
)
@pytest.mark.parametrize("benchmark", [None, "rooms"])
def test_any_other_cell_is_refused_by_its_column(
    goal: Path, cell: object, why: str, benchmark: str | None, monkeypatch: pytest.MonkeyPatch
):
    folder = goal.parents[1]
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "q.jsonl").write_text(json.dumps({**ROW, "images": cell}))
    with pytest.raises(QuestionError, match=f"q.jsonl(, row 1 .id 1.)?: images.* {why}") as refused:
        load_questions(folder / "q.jsonl", find_benchmark(benchmark) if benchmark else None)
    assert len(str(refused.value)) < len(str(folder)) + 300 and "SECRET" not in str(refused.value)


def test_the_bytes_in_a_parquet_file_are_never_printed(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    rows = [{**ROW, "images": [{"bytes": SECRET, "path": "goal.png"}]}, {**ROW, "images": None}]
    pandas.DataFrame(rows).to_parquet(tmp_path / "q.parquet")
    with pytest.raises(QuestionError, match=r"row 1 .*images has a picture itself: save it as a file") as refused:
        load_questions(tmp_path / "q.parquet")
    assert "KEY=" not in str(refused.value)


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        ("image", "images"), ("image_path", "images"), ("image_paths", "images"), ("Images", "images"),
        ("img", "images"), ("pictures", "images"), ("starts", "start"), ("start_", "start"), ("upaxis", "up_axis"),
        ("option", "options"), ("units", "unit"),
    ],
)  # fmt: skip
def test_a_column_that_is_nearly_one_of_ours_is_asked_about(goal: Path, column: str, meant: str):
    with pytest.raises(QuestionError, match=rf"column '{column}' is not read: did you mean {meant}\?"):
        read(goal.parents[1], "pics/goal.png", column)
    assert read(goal.parents[1], None, column) == []  # as a table leaves it without a value


@pytest.mark.parametrize("column", ["image_id", "split", "answer", "category", "scene_id", "status", "scaled", "unity"])
def test_other_columns_are_still_ignored(goal: Path, column: str, caplog: pytest.LogCaptureFixture):
    assert read(goal.parents[1], "x", column) == [] and f"ignoring unknown columns: {column}" in caplog.text


@pytest.mark.parametrize("name", ["file:///room.ply", "s3://bucket/room.ply", "a\0.ply", "x" * 5000, "\ud800.ply"])
def test_a_scan_that_is_not_a_name_is_refused(tmp_path: Path, name: str):
    with pytest.raises(QuestionError, match=r"row 1: scan '.*' is (a URL|not a name)") as refused:
        read(tmp_path, name, "scan")
    assert len(str(refused.value)) < len(str(tmp_path)) + 200
