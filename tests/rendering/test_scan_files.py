"""PLY and PCD files as programs write them, and files that are not what their names say."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from roomscout.rendering.geometry import Geometry, SceneError
from roomscout.rendering.readers import read_geometry
from roomscout.rendering.tables import SH_C0

SQUARE = [[0, 0, 0], [2, 0, 0], [2, 1, 0], [0, 1, 0.5]]
TWO = [[0, 1, 2], [0, 2, 3]]
RGB = [[255, 0, 0], [0, 128, 0], [10, 20, 255], [90, 90, 90]]
NUMPY = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8",
}  # fmt: skip


def read(tmp_path: Path, content: bytes | str, name: str = "scan.ply") -> Geometry:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return read_geometry(tmp_path / name)


def text_ply(vertex: str, rows: list, face: str = "", faces: list | None = None, element: str = "face") -> str:
    """A PLY of text; `vertex` and `face` list properties as "float x, uchar red"."""
    lines = ["ply", "format ascii 1.0", f"element vertex {len(rows)}"]
    lines += [f"property {each}" for each in vertex.split(", ")]
    if face:
        lines += [f"element {element} {len(faces or [])}", *(f"property {each}" for each in face.split(", "))]
    return "\n".join([*lines, "end_header", *(" ".join(map(str, row)) for row in [*rows, *(faces or [])]), ""])


def coloured_cloud(columns: str, values: list) -> str:
    """A cloud of the corners of SQUARE with these columns and values."""
    return text_ply(f"float x, float y, float z, {columns}", [[*a, *b] for a, b in zip(SQUARE, values, strict=True)])


def binary_cloud(columns: str, values: list) -> bytes:
    """The same in binary."""
    types = [("xyz", "<f4", (3,))]
    types += [(each.split()[1], f"<{NUMPY[each.split()[0]]}") for each in columns.split(", ")]
    rows = np.array([(tuple(a), *b) for a, b in zip(SQUARE, values, strict=True)], dtype=types)
    header = text_ply(f"float x, float y, float z, {columns}", [])
    header = header.replace("ascii", "binary_little_endian").replace("vertex 0", f"vertex {len(values)}")
    return header.rstrip("\n").encode() + b"\n" + rows.tobytes()


def mesh(faces: list | None = None, names: str = "list uchar int vertex_indices", element: str = "face") -> str:
    """A mesh of the corners of SQUARE in the colours RGB."""
    rows = [[*corner, *colour] for corner, colour in zip(SQUARE, RGB, strict=True)]
    vertex = "float x, float y, float z, uchar red, uchar green, uchar blue"
    return text_ply(vertex, rows, names, [[3, *each] for each in TWO] if faces is None else faces, element)


@pytest.mark.parametrize(
    "names",
    ["Red Green Blue", "r g b", "R G B", "diffuse_red diffuse_green diffuse_blue",
     "scalar_red scalar_green scalar_blue"],
)  # fmt: skip
def test_colours_are_found_by_their_names(tmp_path: Path, names: str):
    columns = ", ".join(f"uchar {name}" for name in names.split())
    assert read(tmp_path, coloured_cloud(columns, RGB)).colours.tolist() == RGB
    floats = ", ".join(f"float {name}" for name in names.split())
    assert read(tmp_path, coloured_cloud(floats, (np.array(RGB) / 255).tolist())).colours.tolist() == RGB


@pytest.mark.parametrize(
    ("kind", "scale"),
    [("ushort", 1), ("int", 1), ("short", 1), ("float", 1), ("float", 1 / 255), ("double", 1 / 255),
     ("ushort", 1023 / 255), ("ushort", 4095 / 255), ("ushort", 257), ("float", 257), ("uint", 257 * 65537)],
)  # fmt: skip
def test_the_range_of_colours_is_decided_per_file(tmp_path: Path, kind: str, scale: float):
    values = (np.array(RGB) * scale).tolist() if scale < 1 else (np.array(RGB) * scale).round().astype(int).tolist()
    columns = f"{kind} red, {kind} green, {kind} blue"
    for content in (coloured_cloud(columns, values), binary_cloud(columns, values)):
        assert read(tmp_path, content).colours.tolist() == RGB


@pytest.mark.parametrize(
    ("columns", "values", "seen"),
    [
        ("float red, float green, float blue", [[1.02, 0, 0], [0, 0.5, 0], [7, 0.2, 1], [0, -0.1, 0]],
         [[255, 0, 0], [0, 128, 0], [255, 51, 255], [0, 0, 0]]),  # outliers are clipped
        ("uchar red, uchar green, uchar blue", [[0.5, 0, 0], [0, 0.25, 0], [0, 0, 1], [1, 1, 1]],
         [[128, 0, 0], [0, 64, 0], [0, 0, 255], [255, 255, 255]]),  # text whose header declares the wrong type
        ("uchar red, uchar green, uchar blue", [["nan", 0, 9], *[[8, 8, 8]] * 3], [[0, 0, 9], *[[8, 8, 8]] * 3]),
        ("float f_dc_0, float f_dc_1, float f_dc_2", [[0, 9, -9], *[[0.5 / SH_C0, 0, 0]] * 3],
         [[128, 255, 0], *[[255, 128, 128]] * 3]),
        ("uchar red, uchar green, uchar blue, float f_dc_0, float f_dc_1, float f_dc_2",
         [[0, 0, 0, 0, 9, -9], *[[0, 0, 0, 0, 0, 0]] * 3], [[128, 255, 0], *[[128] * 3] * 3]),  # all black: not used
    ],
)  # fmt: skip
def test_unusual_colours(tmp_path: Path, columns: str, values: list, seen: list):
    assert read(tmp_path, coloured_cloud(columns, values)).colours.tolist() == seen


@pytest.mark.parametrize(("kind", "name"), [("uint", "rgb"), ("int", "rgba"), ("float", "rgb")])
def test_packed_colours(tmp_path: Path, kind: str, name: str):
    words = [(red << 16) + (green << 8) + blue for red, green, blue in RGB]
    as_bits = np.array(words, dtype=np.uint32).view(NUMPY[kind])
    assert read(tmp_path, binary_cloud(f"{kind} {name}", as_bits[:, None].tolist())).colours.tolist() == RGB


@pytest.mark.parametrize("name", ["scalar_Intensity", "scalar_Intensity_#1", "reflectivity"])
def test_a_cloud_with_intensities_alone_is_drawn_in_grey(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str):
    geometry = read(tmp_path, coloured_cloud(f"float {name}", [[100], [200], [300], [400]]))
    assert geometry.colours.tolist() == [[level] * 3 for level in (0, 84, 171, 255)]
    assert "no colours read; drawing its " in caplog.text


def test_faces_have_colours_of_their_rows(tmp_path: Path):
    names = "list uchar int vertex_indices, float Red, float Green, float Blue"
    rows = [[3, *TWO[0], 1, 0, 0], [3, *TWO[1], 0, 0.5, 0]]
    assert read(tmp_path, mesh(rows, names)).face_colours.tolist() == [[255, 0, 0], [0, 128, 0]]
    white = [[*row[:4], 1, 1, 1] for row in rows]  # as MeshLab writes faces that nobody painted
    assert read(tmp_path, mesh(white, names)).face_colours is None


@pytest.mark.parametrize("element", ["segment", "neighbours", "tristrips"])
def test_other_lists_are_left_alone_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture, element: str):
    geometry = read(tmp_path, mesh([[3, 0, 1, 2], [4, 0, 1, 2, 77]], "list uchar int point_indices", element))
    assert (len(geometry.vertices), len(geometry.faces)) == (4, 0)
    assert f"scan.ply: ignoring its elements {element}; only vertex and face are drawn" in caplog.text


def test_lists_of_neighbours_at_the_vertices_are_no_faces(tmp_path: Path):
    rows = [[*corner, 3, 0, 1, 2] for corner in SQUARE]
    geometry = read(tmp_path, text_ply("float x, float y, float z, list uchar int vertex_indices", rows))
    assert (geometry.vertices.tolist(), len(geometry.faces)) == (SQUARE, 0)


@pytest.mark.parametrize("names", ["int a, int b, int c", "list uchar int corners"])
def test_faces_without_a_list_of_vertices_are_refused(tmp_path: Path, names: str):
    with pytest.raises(SceneError, match="its faces have no list vertex_indices; the columns are "):
        read(tmp_path, mesh([[3, *each] for each in TWO] if "list" in names else TWO, names))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "  \n"),
        lambda text: text.replace("end_header\n", "end_header\n\n"),
        lambda text: text.replace("format", "comment it ends with end_header\nobj_info a b\nformat"),
        lambda text: text + "\n\n# the end of the file\n",
    ],
)
def test_files_as_exporters_write_them(tmp_path: Path, change):
    geometry = read(tmp_path, change(mesh()))
    assert (geometry.vertices.tolist(), geometry.faces.tolist()) == (SQUARE, TWO)
    assert geometry.colours.tolist() == RGB


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("2 1 0 10", "2 one 0 10", "row 3 of vertex: 'one' is not a number"),
        ("2 1 0 10", "2 1.5.5 0 10", "row 3 of vertex: '1.5.5' is not a number"),
        ("2 1 0 10", "2 1 0 9 10", "row 3 of vertex has 7 numbers instead of 6"),
        ("3 0 2 3", "3 0 2", "row 2 of face has 3 numbers instead of 4"),
        ("property uchar blue\n", "", "row 1 of vertex has 6 numbers instead of 5"),
        ("property uchar blue", "property uchar", "its header has the malformed line 'property uchar'"),
        ("vertex 4", "vertex four", "its header has the malformed line 'element vertex four'"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, old: str, new: str, words: str):
    content = mesh()
    assert old in content
    with pytest.raises(SceneError, match=words):
        read(tmp_path, content.replace(old, new))


def pcd(fields: str, kinds: str, rows: list, data: str = "ascii") -> bytes:
    """A PCD file; `kinds` has the type and size of each field, such as "F4 U1"."""
    names = [f"{name}_{i}" for i, name in enumerate(fields.split())]
    types, sizes = (" ".join(kind[index] for kind in kinds.split()) for index in (0, 1))
    header = ["# .PCD v0.7 - Point Cloud Data", "VERSION 0.7", f"FIELDS {fields}", f"SIZE {sizes}", f"TYPE {types}",
              f"COUNT {' '.join('1' for _ in names)}", f"WIDTH {len(rows)}", "HEIGHT 1",
              f"POINTS {len(rows)}", f"DATA {data}", ""]  # fmt: skip
    if data == "ascii":
        return "\n".join([*header, *(" ".join(map(str, row)) for row in rows), ""]).encode()
    dtype = [(name, f"<{kind.lower()}") for name, kind in zip(names, kinds.split(), strict=True)]
    table = np.array([tuple(row) for row in rows], dtype=dtype)
    if data == "binary":
        return "\n".join(header).encode() + table.tobytes()
    columns = b"".join(table[name].tobytes() for name in names)
    packed = b"".join(
        bytes([len(part) - 1]) + part for part in (columns[i : i + 32] for i in range(0, len(columns), 32))
    )
    return "\n".join(header).encode() + struct.pack("<II", len(packed), len(columns)) + packed


@pytest.mark.parametrize("data", ["ascii", "binary", "binary_compressed"])
@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ("x y z r g b", "F4 F4 F4 U1 U1 U1"),
        ("X Y Z red green blue", "F8 F8 F8 U2 U2 U2"),
        ("_ x y z Red Green Blue", "U1 F8 F8 F8 F4 F4 F4"),
    ],
)
def test_a_pcd_is_read_with_its_colours(tmp_path: Path, data: str, fields: str, kinds: str):
    rows = [[*([7] if "_" in fields else []), *a, *b] for a, b in zip(SQUARE, RGB, strict=True)]
    geometry = read(tmp_path, pcd(fields, kinds, rows, data), "scan.pcd")
    assert geometry.vertices.tolist() == SQUARE
    assert geometry.colours.tolist() == RGB


@pytest.mark.parametrize("data", ["binary", "binary_compressed"])
def test_a_pcd_has_the_colours_that_open3d_writes(tmp_path: Path, data: str):
    o3d = pytest.importorskip("open3d")
    points = np.tile(np.float64(SQUARE), (50, 1))  # repeats, which LZF compresses
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(points))
    cloud.colors = o3d.utility.Vector3dVector(np.tile(np.array(RGB) / 255, (50, 1)))
    o3d.io.write_point_cloud(str(tmp_path / "scan.pcd"), cloud, compressed=data == "binary_compressed")
    geometry = read_geometry(tmp_path / "scan.pcd")
    assert geometry.vertices == pytest.approx(points)
    assert geometry.colours.tolist() == RGB * 50


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid a\nsize 4\n", "a Git LFS pointer .*: run git lfs pull"),
        (b"<!DOCTYPE html><title>Sign\nin</title>", "a web page instead of the file: log in"),
        (b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>', "a web page instead"),
        (gzip.compress(b"ply\n", mtime=0), "an archive: unpack it"),
        (b"LASF" + bytes(100), "not a scan that can be read"),
        (b"Entry not found", "not a scan that can be read"),
        (b"\x01\x00\xfe" * 2000, "not a scan that can be read"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".ply", ".pcd", ".glb", ".gltf", ".obj", ".laz"])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path, suffix: str, content: bytes, words: str):
    with pytest.raises(SceneError, match=f"scan{suffix} is {words}"):
        read(tmp_path, content, f"scan{suffix}")


@pytest.mark.parametrize("suffix", [".ply", ".pcd", ".glb", ".gltf", ".obj", ".dat"])
def test_a_scan_with_the_suffix_of_another_format_is_named(tmp_path: Path, suffix: str):
    scans = {".ply": mesh().encode(), ".pcd": pcd("x y z", "F4 F4 F4", SQUARE), ".glb": b"glTF\x02\x00\x00\x00"}
    for own, content in scans.items():
        if own != suffix:
            with pytest.raises(SceneError, match=rf"scan{suffix} is a {own} file: rename it to scan{own}"):
                read(tmp_path, content, f"scan{suffix}")
