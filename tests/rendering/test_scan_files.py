"""PLY and PCD files as programs write them, and files that are not what their names say."""

import bz2
import gzip
import io
import lzma
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from roomscout.data.scans import scan_sha256
from roomscout.rendering.columns import SH_C0
from roomscout.rendering.geometry import Geometry, SceneError
from roomscout.rendering.readers import read_geometry

SQUARE = [[0, 0, 0], [2, 0, 0], [2, 1, 0], [0, 1, 0.5]]
TWO = [[0, 1, 2], [0, 2, 3]]
RGB = [[255, 0, 0], [0, 128, 0], [10, 20, 255], [90, 90, 90]]
NUMPY = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int64": "i8",
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
    ["Red Green Blue", "RED GREEN BLUE", "r g b", "R G B", "diffuse_red diffuse_green diffuse_blue",
     "red8 green8 blue8", "vertexRed vertexGreen vertexBlue",
     "scalar_red scalar_green scalar_blue", "color_r color_g color_b",
     "colorR colorG colorB", "red_f green_f blue_f", "color_0 color_1 color_2", "rgb0 rgb1 rgb2",
     "color1 color2 color3", "color.x color.y color.z", "Cd[0] Cd[1] Cd[2]", "Rf Gf Bf", "Cr Cg Cb"],
)  # fmt: skip
def test_colours_are_found_by_names_of_every_kind(tmp_path: Path, names: str):
    columns = ", ".join(f"uchar {name}" for name in names.split())
    assert read(tmp_path, coloured_cloud(columns, RGB)).colours.tolist() == RGB
    floats = ", ".join(f"float {name}" for name in names.split())
    assert read(tmp_path, coloured_cloud(floats, (np.array(RGB) / 255).tolist())).colours.tolist() == RGB


@pytest.mark.parametrize(
    ("kind", "scale"),
    [("ushort", 1), ("uint", 1), ("int", 1), ("short", 1), ("int64", 1), ("float", 1), ("double", 1),
     ("float", 1 / 255), ("double", 1 / 255), ("ushort", 1023 / 255), ("ushort", 4095 / 255), ("ushort", 257),
     ("uint", 257), ("float", 257), ("uint", 257 * 65537)],
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
        ("ushort red, ushort green, ushort blue", [[255, 0, 0], [0, 7, 0], [9000, 20, 30], [0, 0, 0]],
         [[255, 0, 0], [0, 7, 0], [255, 20, 30], [0, 0, 0]]),
        ("char red, char green, char blue", [[-1, 0, 0], [0, -128, 0], [10, 20, -1], [90, 90, 90]], RGB),
        ("uchar red, uchar green, uchar blue", [[0.5, 0, 0], [0, 0.25, 0], [0, 0, 1], [1, 1, 1]],
         [[128, 0, 0], [0, 64, 0], [0, 0, 255], [255, 255, 255]]),  # text whose header declares the wrong type
        ("uchar red, uchar green, uchar blue", [["nan", 0, 9], *[[8, 8, 8]] * 3], [[0, 0, 9], *[[8, 8, 8]] * 3]),
        ("float f_dc_0, float f_dc_1, float f_dc_2", [[0, 9, -9], *[[0.5 / SH_C0, 0, 0]] * 3],
         [[128, 255, 0], *[[255, 128, 128]] * 3]),
        ("float scalar_f_dc_0, float scalar_f_dc_1, float scalar_f_dc_2", [[0, 9, -9]] * 4, [[128, 255, 0]] * 4),
        ("uchar red, uchar green, uchar blue, float f_dc_0, float f_dc_1, float f_dc_2",
         [[0, 0, 0, 0, 9, -9], *[[0, 0, 0, 0, 0, 0]] * 3], [[128, 255, 0], *[[128] * 3] * 3]),  # all black: not used
        ("uchar ambient_red, uchar ambient_green, uchar ambient_blue, uchar diffuse_red, uchar diffuse_green, "
         "uchar diffuse_blue", [[9, 9, number, *colour] for number, colour in enumerate(RGB)], RGB),
    ],
)  # fmt: skip
def test_unusual_colours(tmp_path: Path, columns: str, values: list, seen: list):
    assert read(tmp_path, coloured_cloud(columns, values)).colours.tolist() == seen


@pytest.mark.parametrize(
    ("kind", "name", "shifts"),
    [("uint", "rgb", (16, 8, 0)), ("int", "rgba", (16, 8, 0, 24)), ("uint", "RGBA", (24, 16, 8, 0)),
     ("uint", "color", (16, 8, 0)), ("uint", "bgr", (0, 8, 16)), ("float", "rgb", (16, 8, 0))],
)  # fmt: skip
def test_packed_colours(tmp_path: Path, kind: str, name: str, shifts: tuple):
    words = [sum(v << s for v, s in zip((*colour, 255), shifts, strict=False)) for colour in RGB]
    as_bits = np.array(words, dtype=np.uint32).view(NUMPY[kind])
    assert read(tmp_path, binary_cloud(f"{kind} {name}", as_bits[:, None].tolist())).colours.tolist() == RGB


def test_packed_colours_may_be_the_value_of_a_float(tmp_path: Path):
    for alpha in (0, 255):  # float32 cannot hold the second
        words = [[(alpha << 24) + (r << 16) + (g << 8) + b] for r, g, b in RGB]
        assert read(tmp_path, coloured_cloud("float rgb", words)).colours.tolist() == RGB


def test_a_cloud_without_colours_names_its_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    columns = "float nx, float ny, float nz, uint label"
    assert read(tmp_path, coloured_cloud(columns, [[0, 0, 1, 7]] * 4)).colours is None
    assert "scan.ply: no colours read; the columns are x, y, z, nx, ny, nz, label" in caplog.text


@pytest.mark.parametrize("name", ["scalar_Intensity", "scalar_Intensity_#1", "reflectivity", "Amplitude"])
def test_a_cloud_with_intensities_alone_is_drawn_in_grey(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str):
    geometry = read(tmp_path, coloured_cloud(f"float {name}", [[100], [200], [300], [400]]))
    assert geometry.colours.tolist() == [[level] * 3 for level in (0, 84, 171, 255)]
    assert f"no colours read; the columns are x, y, z, {name}: drawing {name} in grey" in caplog.text


def test_faces_have_colours_of_their_rows_or_materials(tmp_path: Path):
    names = "list uchar int vertex_indices, float Red, float Green, float Blue"
    rows = [[3, *TWO[0], 1, 0, 0], [3, *TWO[1], 0, 0.5, 0]]
    assert read(tmp_path, mesh(rows, names)).face_colours.tolist() == [[255, 0, 0], [0, 128, 0]]
    white = [[*row[:4], 1, 1, 1] for row in rows]  # as MeshLab writes faces that nobody painted
    assert read(tmp_path, mesh(white, names)).face_colours is None
    corners = "list uchar int vertex_indices, list uchar float color"
    rows = [[3, *TWO[0], 9, *[1, 0, 0] * 3], [3, *TWO[1], 9, 1, 0, 0, 0, 0, 0, 0.5, 0, 0]]
    assert read(tmp_path, mesh(rows, corners)).face_colours.tolist() == [[255, 0, 0], [128, 0, 0]]
    listed = text_ply("float x, float y, float z", SQUARE, "list uchar int vertex_indices, int material_index",
                      [[3, *TWO[0], 1], [3, *TWO[1], 0]])  # fmt: skip
    listed = listed.replace("end_header", "element material 2\nproperty uchar diffuse_red\n"
                            "property uchar diffuse_green\nproperty uchar diffuse_blue\nend_header")  # fmt: skip
    assert read(tmp_path, listed + "1 2 3\n4 5 6\n").face_colours.tolist() == [[4, 5, 6], [1, 2, 3]]


@pytest.mark.parametrize(
    ("names", "element"),
    [(f"list {kinds} {name}", "face") for kinds, name in
     [("uchar int", "vertex_indices"), ("uchar uint", "indices"), ("int int64", "vertexIndices"),
      ("ushort ushort", "vertices"), ("uint8 uint32", "Corners"), ("uchar int", "abc"),
      ("uchar double", "vertex_index")]]
    + [("list uchar int vertex_indices", name) for name in ("faces", "Face", "polygon", "triangles", "tri")],
)  # fmt: skip
def test_any_list_of_integers_is_faces(tmp_path: Path, names: str, element: str):
    assert read(tmp_path, mesh(names=names, element=element)).faces.tolist() == TWO


def test_lists_beside_the_faces_do_not_count(tmp_path: Path):
    names = "list uchar int texture_ids, list uchar int flags, list uchar int vertex_ids"
    rows = [[1, 9, 2, 8, 8, 3, *each] for each in TWO]
    assert read(tmp_path, mesh(rows, names)).faces.tolist() == TWO


def test_points_that_no_face_uses_are_not_drawn_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert len(read(tmp_path, mesh()).faces) == 2
    assert not caplog.text
    assert len(read(tmp_path, mesh([[3, 0, 1, 2]])).faces) == 1
    assert "not drawing 1 of its 4 vertices, which no face uses" in caplog.text
    more = "element point 1\nproperty float x\nproperty float y\nproperty float z\nend_header"
    read(tmp_path, mesh().replace("end_header", more) + "9 9 9\n")
    assert "scan.ply: ignoring the 1 points of its element point" in caplog.text


def test_strips_are_triangles_with_the_winding_of_the_first(tmp_path: Path):
    strips = [[4, 0, 1, 3, 2], [8, 0, 1, 2, -1, 1, 0, 2, 3]]
    geometry = read(tmp_path, mesh(strips, element="tristrips"))
    assert geometry.faces.tolist() == [[0, 1, 3], [3, 1, 2], [0, 1, 2], [1, 0, 2], [2, 0, 3]]


@pytest.mark.parametrize(
    ("faces", "words"),
    [
        ([[3, 0, 1, 2], [3, 0, -1, 3]], "row 2 of face: a face refers to a vertex that does not exist, -1"),
        ([[4, 0, 1, 2, 7]], "row 1 of face: a face refers to a vertex that does not exist, 7"),
        ([[3, 1, 2, 3], [3, 1, 3, 4]], "count vertices from 0 instead of 1"),
        ([[3, 0, 1, 2.5]], "refers to vertex 2.5, which is not a whole number"),
    ],
)
def test_faces_without_their_vertices_are_refused(tmp_path: Path, faces: list, words: str):
    with pytest.raises(SceneError, match=words):
        read(tmp_path, mesh(faces))


def test_faces_without_a_list_are_refused_with_their_columns(tmp_path: Path):
    with pytest.raises(SceneError, match=r"its element face has no list of vertices; its columns are a, b, c.: export"):
        read(tmp_path, mesh(TWO, "int a, int b, int c"))


@pytest.mark.parametrize("names", ["X Y Z", "posx posy posz", "pos_x pos_y pos_z", "PositionX PositionY PositionZ",
                                   "scalar_x scalar_y scalar_z", "x_coord y_coord z_coord"])  # fmt: skip
@pytest.mark.parametrize("kind", ["float", "int"])
def test_coordinates_are_found_by_names_of_every_kind(tmp_path: Path, names: str, kind: str):
    columns = "float nx, float ny, float nz, " + ", ".join(f"{kind} {name}" for name in names.split())
    corners = np.array(SQUARE, dtype=NUMPY[kind])
    rows = [[0, 0, 1, *corner] for corner in corners.tolist()]
    assert read(tmp_path, text_ply(columns, rows)).vertices.tolist() == corners.tolist()


@pytest.mark.parametrize(("columns", "words"), [
    ("float easting, float northing, float height", "no x, y and z; the columns are easting, northing, height"),
    ("uint packed_position, uint packed_rotation, uint packed_scale", "compressed Gaussian splat of PlayCanvas"),
])  # fmt: skip
def test_unknown_coordinates_are_named(tmp_path: Path, columns: str, words: str):
    with pytest.raises(SceneError, match=words) as refused:
        read(tmp_path, text_ply(columns, SQUARE).replace("0.5", "1"))
    assert "download" not in str(refused.value)


def test_elements_may_have_any_order_and_other_lists(tmp_path: Path):
    header = ["element group 2", "property list uchar float weights", "element FACE 2",
              "property list uchar int vertex_indices", "element Vertex 4", "property float x", "property float y",
              "property float z", "element edge 1", "property int vertex1", "property int vertex2"]  # fmt: skip
    header = ["ply", "format ascii 1.0", *header, "end_header"]
    rows = ["2 0.5 1", "0", "3 0 1 2", "3 0 2 3", *(" ".join(map(str, corner)) for corner in SQUARE), "0 1", ""]
    geometry = read(tmp_path, "\n".join([*header, *rows]))
    assert (geometry.faces.tolist(), geometry.vertices.tolist()) == (TWO, SQUARE)


def test_edges_are_not_drawn_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert not len(read(tmp_path, mesh([[0, 1]], "int vertex1, int vertex2", "edge")).faces)
    assert "drawing its vertices as points: it has 1 edges, but no faces" in caplog.text


def with_a_twin(text: str) -> str:
    """The mesh with a second property called blue, which is 7."""
    text = text.replace("blue\n", "blue\nproperty float blue\n")
    for colour in RGB:
        text = text.replace(" ".join(map(str, colour)), " ".join(map(str, [*colour, 7])))
    return text


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r\n", 3),
        lambda text: text.replace("\n", "  \n"),
        lambda text: text.replace("\n", " \t\n\n").replace("\n\n", "\n", 3),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("format", "comment it ends with end_header\nformat"),
        lambda text: text.replace("element", "obj_info a b\nelement"),
        lambda text: text.replace("ply", "PLY", 1),
        lambda text: text.replace("format", "Format").replace("element", "ELEMENT").replace("property", "PROPERTY"),
        lambda text: with_a_twin(text),
        lambda text: text + "\n\n# the end of the file\n",
        lambda text: text.replace("0 1 0.5 90", "0\n1 0.5\n90"),  # rows broken anywhere
        lambda text: text.split("end_header\n")[0] + "end_header\n" + " ".join(text.split("end_header\n")[1].split()),
    ],
)  # fmt: skip
def test_files_as_exporters_write_them(tmp_path: Path, change):
    geometry = read(tmp_path, change(mesh()))
    assert (geometry.vertices.tolist(), geometry.faces.tolist()) == (SQUARE, TWO)
    assert geometry.colours.tolist() == RGB


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("first", [10, 13, 32])
def test_rows_in_binary_may_begin_like_a_line_end(tmp_path: Path, end: bytes, first: int):
    content = binary_cloud("uchar red, uchar green, uchar blue", RGB)
    head, rows = content[: -4 * 15], bytearray(content[-4 * 15 :])
    rows[0] = first
    vertices = read(tmp_path, head.replace(b"\n", end) + rows).vertices
    assert vertices[1:].tolist() == SQUARE[1:] and vertices[0].view(np.uint8)[0] == first


@pytest.mark.parametrize(
    "word",
    [
        "nan",
        "NaN",
        "-nan",
        "-nan(ind)",
        "nan(snan)",
        "inf",
        "-Inf",
        "1.#QNAN",
        "-1.#IND",
        "1.#INF",
        "-1.#IND00",
        "1.#R",
    ],
)
def test_words_for_no_number_are_not_finite(tmp_path: Path, word: str):
    vertices = read(tmp_path, text_ply("float x, float y, float z", [[word, 1, 2], *SQUARE])).vertices
    assert not np.isfinite(vertices[0, 0])
    assert vertices[1:].tolist() == SQUARE


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("2 1 0 10", "2 one 0 10", "vertex contains 'one', which is not a number: '2 one 0 10 20 255'.: correct"),
        ("2 1 0 10", "2 1,5 0 10", r"row 3 of vertex contains '1,5', .*write numbers with a point"),
        ("2 1 0 10", "2 1.5.5 0 10", r"row 3 of vertex contains '1.5.5'"),
        ("2 1 0 10", "2 1 0 9 10", r"row 3 of vertex has 7 values instead of 6: '2 1 0 9 10 20 255'.: correct"),
        ("2 1 0 10", "2 1 10", r"damaged: row 3 of vertex has 5 values instead of 6: '2 1 10 20 255'"),
        ("3 0 2 3", "3 0 2", r"damaged: row 2 of face has 3 values instead of 4: '3 0 2'"),
        ("3 0 2 3", "3 0 2 3 3", r"row 2 of face has 5 values instead of 4: '3 0 2 3 3'"),
        ("property uchar blue\n", "", r"row 1 of vertex has 6 values instead of 5: '0 0 0 255 0 0'"),
        ("property uchar blue", "property uchar", "its header has the malformed line 'property uchar'"),
        ("vertex 4", "vertex four", "its header has the malformed line 'element vertex four'"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(tmp_path: Path, old: str, new: str, words: str):
    content = mesh()
    assert old in content
    with pytest.raises(SceneError, match=words):
        read(tmp_path, content.replace(old, new))


def pcd(fields: str, kinds: str, rows: list, data: str = "ascii", counts: str = "") -> bytes:
    """A PCD file; `kinds` has the type and size of each field, such as "F4 U1"."""
    names = [f"{name}_{i}" for i, name in enumerate(fields.split())]
    types, sizes = (" ".join(kind[index] for kind in kinds.split()) for index in (0, 1))
    header = ["# .PCD v0.7 - Point Cloud Data", "VERSION 0.7", f"FIELDS {fields}", f"SIZE {sizes}", f"TYPE {types}",
              f"COUNT {counts or ' '.join('1' for _ in names)}", f"WIDTH {len(rows)}", "HEIGHT 1",
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


@pytest.mark.parametrize("change", [
    lambda data: data[:-20], lambda data: data[:40], lambda data: data.replace(b"\x1f", b"\xe0", 1),
    lambda data: data.replace(b"POINTS 4", b"POINTS 5"), lambda data: data.replace(b"TYPE F", b"TYPE Q"),
    lambda data: data.replace(b"binary_compressed", b"packed"),
])  # fmt: skip
def test_a_damaged_compressed_pcd_is_an_error(tmp_path: Path, change):
    content = pcd("x y z", "F4 F4 F4", SQUARE, "binary_compressed")
    with pytest.raises(SceneError, match=r"scan.pcd cannot be read .*: download or export it again"):
        read(tmp_path, change(content), "scan.pcd")


def zipped(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "content")
    return stream.getvalue()


STL = bytes(80) + struct.pack("<I", 1) + bytes(50)
OTHER_KINDS = [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 4\n", "a Git LFS pointer .*: run git lfs pull"),
    (b"../../.git/annex/objects/a/b/SHA256E-s1--c.ply\n", "a git-annex pointer .*: run git annex get"),
    (b"<!DOCTYPE html><title>Sign\nin</title>", r"a web page \('Sign in'\) .*: log in"),
    (b'<?xml version="1.0"?>\n<!DOCTYPE html><html></html>', "a web page instead"),
    (
        b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
        "error message of a server .*: check the address",
    ),
    (b'{"error": "Not found"}', r"JSON that is not a scan .*Not found"),
    (b'{"means": {"files": []}, "quats": {}}', "format SOG"),
    (b"Entry not found", "a short text .'Entry not found'.: check where"),
    (gzip.compress(b"ply\n"), "compressed with gzip: unpack it with gunzip <"),
    (gzip.compress(b"NGSP\x02"), "Gaussian splat in the format SPZ: convert"),
    (bz2.compress(b"ply\n"), "compressed with bzip2: unpack it with bunzip2"),
    (lzma.compress(b"ply\n"), "compressed with xz: unpack it with xz -d"),
    (b"\x28\xb5\x2f\xfd\x00", "compressed with Zstandard: unpack it with zstd -d"),
    (b"7z\xbc\xaf\x27\x1c\x00", "a 7-Zip archive: unpack it with 7z x"),
    (zipped("room.ply", "a", "b", "c"), r"a ZIP archive \(room.ply, a, b and 1 more\): unpack it with unzip"),
    (zipped("model.usdc"), "a USDZ model: convert it to GLB"),
    (zipped("meta.json", "means_l.webp"), "format SOG"),
    (zipped("a")[:-9], "a truncated or damaged ZIP archive: download"),
    (b"LASF" + bytes(100) + b"\x83" + bytes(300), "a LAZ point cloud: convert it to PLY with pdal translate"),
    (b"LASF" + bytes(100) + b"\x03" + bytes(300), "a LAS point cloud"),
    (b"ASTM-E57" + bytes(40), "an E57 point cloud"),
    (STL, "an STL model"),
    (b"solid cube\n facet normal 0 0 1\n", "an STL model"),
    (b"Kaydara FBX Binary  \x00", "an FBX model"),
    (b"PXR-USDC\x00", "a USD model"),
    (b"\xff\xfep\x00l\x00y\x00", "text in UTF-16"),
    (bytes(5000), "a file of zeros"),
    (b"1.0 2.0 3.0 255 0 0\n" * 400, "a point cloud as rows of text"),
    (b"\x89PNG\r\n", "a picture"),
    (b"b3dm\x01" + bytes(40), "a tile of 3D Tiles: convert it to GLB"),
    (b"  0\r\nSECTION\r\n  2\r\n", "a DXF drawing"),
    (b"#ROSBAG V2.0\n\x00", "a recording of ROS"),
    (b"\x00\x00\x00\x20ftypisom\x00", "a video"),
]


@pytest.mark.parametrize("suffix", [".ply", ".pcd", ".glb", ".gltf", ".obj"])
def test_a_file_that_is_not_what_its_name_says_is_named(tmp_path: Path, suffix: str):
    for content, words in OTHER_KINDS:
        if not (suffix == ".obj" and words.startswith("a point cloud as rows")):
            with pytest.raises(SceneError, match=f"scan{suffix} is .*{words}"):
                read(tmp_path, content, f"scan{suffix}")


@pytest.mark.parametrize("suffix", [".pcd", ".gltf", ".obj"])
def test_binary_data_instead_of_text_is_named(tmp_path: Path, suffix: str):
    with pytest.raises(SceneError, match=f"scan{suffix} is binary data of an unknown format: download it again"):
        read(tmp_path, b"\x01\x00\xfe" * 2000, f"scan{suffix}")


@pytest.mark.parametrize("suffix", [".ply", ".pcd", ".glb", ".gltf", ".obj", ".dat"])
def test_a_scan_with_the_suffix_of_another_format_is_named(tmp_path: Path, suffix: str):
    scans = {
        ".ply": mesh().encode(),
        ".pcd": pcd("x y z", "F4 F4 F4", SQUARE),
        ".glb": b"glTF\x02\x00\x00\x00",
        ".gltf": b'{"asset": {}}',
        ".obj": b"# Blender\n\nmtllib a.mtl\no room\nv 0 0 0\n",
    }
    for own, content in scans.items():
        if own != suffix:
            words = rf"(?i)scan{suffix} is an? {own[1:]} file: rename it with mv .*scan{own}"
            with pytest.raises(SceneError, match=words):
                read(tmp_path, content, f"scan{suffix}")


@pytest.mark.parametrize("name", ["room.splat", "room.spz", "room.laz", "room.mtl"])
def test_a_file_of_another_format_is_named_by_its_suffix(tmp_path: Path, name: str):
    with pytest.raises(SceneError, match=r"room.\w+ is (a|the) (Gaussian|LAZ|materials)"):
        read(tmp_path, np.random.default_rng(0).bytes(320), name)


def test_what_the_system_does_not_read_is_named(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.ply")
    (tmp_path / "link.ply").symlink_to("gone.ply")
    for name, words in [("pipe.ply", "is not a regular file but a pipe"), ("link.ply", "is a link to gone.ply, which"),
                        ("a\0.ply", "does not exist"), (f"{'a' * 300}.ply", "name too long")]:  # fmt: skip
        with pytest.raises(SceneError, match=f"(?i){words}"):
            read_geometry(tmp_path / name)


def test_a_scan_without_permission_says_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "scan.ply").write_text(mesh())
    monkeypatch.setattr(Path, "open", refuse)  # root may read every file
    with pytest.raises(SceneError, match=r"scan.ply cannot be read \(permission denied\): get permission") as refused:
        read_geometry(tmp_path / "scan.ply")
    assert "download" not in str(refused.value)


def test_a_device_or_a_pipe_is_not_hashed(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.ply")
    for path in (Path("/dev/zero"), tmp_path / "pipe.ply"):
        with pytest.raises(OSError, match="not a regular file"):
            scan_sha256(path)
