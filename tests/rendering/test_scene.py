import json
import re
import struct
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from PIL import Image
from simple_rooms import BLUE, GREEN, GREY, RED, box, closed_room

from roomscout.rendering.discs import downsampled
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.scene import SceneError, load_scene, make_scene

NUMPY_TYPES = {"uchar": "u1", "float": "f4", "double": "f8", "int": "i4"}


def ply(vertices, faces=(), encoding="binary_little_endian", kind="float", colours=None, alpha=False) -> bytes:
    """A PLY file with these coordinates, polygons and colours."""
    names = [(kind, name) for name in "xyz"]
    if colours is not None:
        names += [("uchar", name) for name in ("red", "green", "blue", *(["alpha"] if alpha else []))]
    lines = ["ply", f"format {encoding} 1.0", "comment made by a test", f"element vertex {len(vertices)}"]
    lines += [f"property {kind_} {name}" for kind_, name in names]
    if len(faces):
        lines += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
    rows = [
        [*vertex, *([] if colours is None else [*colours[i], *([128] if alpha else [])])]
        for i, vertex in enumerate(vertices)
    ]
    header = "\n".join([*lines, "end_header", ""]).encode()
    if encoding == "ascii":
        body = "\n".join(" ".join(map(str, row)) for row in [*rows, *([len(face), *face] for face in faces)])
        return header + body.encode() + b"\n"
    order = ">" if "big" in encoding else "<"
    body = b"".join(
        np.array(value, order + NUMPY_TYPES[kind_]).tobytes()
        for row in rows
        for value, (kind_, _) in zip(row, names, strict=True)
    )
    for face in faces:
        body += bytes([len(face)]) + np.array(face, order + "i4").tobytes()
    return header + body


CORNERS = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [0.0, 2.0, 0.5]]
TRIANGLES = [[0, 1, 2], [0, 2, 3]]
FOUR_COLOURS = [RED, GREEN, BLUE, GREY]


@pytest.fixture
def file(tmp_path):
    """Writes bytes or text to a file of the given name and returns its path."""

    def write(name: str, content: bytes | str):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.mark.parametrize("encoding", ["ascii", "binary_little_endian", "binary_big_endian"])
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("alpha", [False, True])
def test_a_ply_mesh_is_read_in_every_encoding(file, encoding, kind, alpha):
    path = file("scan.ply", ply(CORNERS, TRIANGLES, encoding, kind, FOUR_COLOURS, alpha))
    scene = load_scene(path)
    assert scene.name == "scan"
    assert (scene.vertices == np.float32(CORNERS)).all()
    assert (scene.faces == TRIANGLES).all()
    assert (scene.colours == FOUR_COLOURS).all()
    assert (scene.vertices.dtype, scene.faces.dtype, scene.colours.dtype) == (np.float32, np.int32, np.uint8)


@pytest.mark.parametrize("encoding", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_polygons_are_triangulated(file, encoding):
    scene = load_scene(file("scan.ply", ply([*CORNERS, [5, 5, 5]], [[0, 1, 2, 3], [0, 1, 4]], encoding, "float")))
    assert len(scene.faces) == 3


@pytest.mark.parametrize("faces", [b"", b"element face 0\nproperty list uchar int vertex_indices\n"])
def test_a_ply_without_faces_is_a_cloud(file, faces):
    scene = load_scene(file("scan.ply", ply(CORNERS).replace(b"end_header", faces + b"end_header")))
    assert scene.faces.shape == (0, 3) and len(scene.surface.faces) > 0
    assert (scene.vertices == np.float32(CORNERS)).all()


@pytest.mark.parametrize("faces", [["4 0 1 2 3 8 0 0 1 0 1 1 0 1"], ["3 0 1 2 6 0 0 1 0 1 1", "3 0 2 3 0"]])
def test_a_ply_texture_is_ignored_and_logged(file, caplog, faces):
    lines = ["ply", "format ascii 1.0", "comment TextureFile wood.png", "element vertex 4"]
    lines += [f"property float {name}" for name in "xyz"]
    lines += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
    lines += ["property list uchar float texcoord", "end_header"]
    rows = [" ".join(map(str, corner)) for corner in CORNERS]
    scene = load_scene(file("scan.ply", "\n".join([*lines, *rows, *faces, ""])))
    assert scene.vertices[scene.faces].tolist() == np.float32(CORNERS)[TRIANGLES].tolist()
    assert scene.surface.texturing is None and scene.colours is not None
    assert "scan.ply: ignoring its texture; export the scan as GLB or OBJ to keep it" in caplog.text


def test_nan_and_unreferenced_vertices_are_dropped(file):
    vertices = [*CORNERS, [np.nan, 0, 0], [0, np.inf, 0], [0, -1e30, 0], [900.0, 900.0, 900.0]]
    faces = [*TRIANGLES, [0, 1, 4], [1, 2, 5], [0, 1, 6], [1, 1, 2]]
    scene = load_scene(file("scan.ply", ply(vertices, faces)))
    assert len(scene.faces) == 2
    assert np.isfinite(scene.vertices).all()
    assert scene.vertices.max() == 2.0


@pytest.mark.parametrize("origin", [(5e5, 4.6e6, 120.0), (-3e3, 0.0, 0.0)])
def test_a_scan_in_national_grid_coordinates_keeps_its_shape(file, caplog, origin):
    near, faces = np.array([*CORNERS, [0.1234, 0.5678, 0.9012]]), [*TRIANGLES, [0, 1, 4]]
    with caplog.at_level("DEBUG"):
        scene = load_scene(file("far.ply", ply((near + origin).tolist(), faces, kind="double")))
    corners = scene.vertices[scene.faces]
    np.testing.assert_allclose(corners - corners[0, 0], near[faces], atol=1e-5)
    assert np.abs(scene.vertices).max() < 10
    assert "far: moved the origin to (" in caplog.text


@pytest.mark.parametrize(
    ("units_per_metre", "fix"),
    [
        (1000, "if it is in millimetres, set the scale to 0.001"),
        (100, "if it is in centimetres, set the scale to 0.01"),
        (1 / 1000, "if it is in kilometres, set the scale to 1000"),
        (1e5, "set the scale to the metres of its unit"),
    ],
)
def test_a_scan_that_has_not_the_size_of_a_room_is_refused(file, units_per_metre: float, fix: str):
    scan = file("room.ply", ply((units_per_metre * 2.5 * np.array(CORNERS)).tolist(), TRIANGLES))
    with pytest.raises(SceneError, match=re.escape(fix)) as caught:
        load_scene(scan)
    assert caught.value.setting == "scale"
    assert load_scene(scan, scale=1 / units_per_metre).vertices.max(axis=0) == pytest.approx([2.5, 5, 1.25])


@pytest.mark.parametrize(("up_axis", "warned"), [("auto", True), ("z", True), ("y", False)])
def test_a_room_on_its_side_logs_a_warning(file, caplog, up_axis, warned):
    room = trimesh.creation.box(bounds=[[0, 0, 0], [6, 2.5, 5]])
    load_scene(file("room.obj", room.export(file_type="obj")), up_axis)
    assert ("if it lies on its side, set the up axis to y" in caplog.text) == warned


def dense_room(step: float = 0.1) -> Geometry:
    """A hollow room of 6 x 5 x 2.5 m in small triangles."""
    room = box((0, 0, 0), (6, 5, 2.5))
    vertices, faces = trimesh.remesh.subdivide_to_size(room.vertices, room.faces, step)
    return Geometry(vertices.astype(np.float32), faces.astype(np.int32), np.full(vertices.shape, 99, dtype=np.uint8))


@pytest.mark.parametrize("distance_m", [8, 50, 5000])
def test_outliers_do_not_widen_the_bounds(distance_m):
    room = dense_room()
    vertices = room.vertices.copy()
    vertices[:: len(vertices) // 40] += np.float32(distance_m)
    bounds = make_scene("room", Geometry(vertices, room.faces, room.colours)).bounds
    assert bounds.lower == pytest.approx([0, 0, 0], abs=0.05)
    assert bounds.upper == pytest.approx([6, 5, 2.5], abs=0.05)


def test_the_size_is_that_of_all_points_but_those_far_outside():
    geometry = dense_room()
    exact = " x ".join(f"{each:g}" for each in np.ptp(geometry.vertices, axis=0).round(3))
    assert make_scene("room", geometry).size == exact
    vertices = geometry.vertices.copy()
    vertices[len(vertices) // 2] = (40, 0, 0)
    assert make_scene("room", replace(geometry, vertices=vertices)).size == exact


def test_points_far_from_the_others_are_named_instead_of_a_scale(file):
    rng = np.random.default_rng(0)
    points = np.vstack([rng.uniform(0, (4, 3, 2.5), (900, 3)), rng.uniform(-9e4, 9e4, (60, 3))])
    with pytest.raises(SceneError, match=r"60 of its 960 points are far from the others.*: remove them") as caught:
        load_scene(file("room.ply", ply(points)))
    assert caught.value.setting is None and "scale" not in str(caught.value)


def test_rays_from_inside_a_room_measure_metres():
    distances = closed_room().cast(
        np.array([[1, 2, 1], [1, 2, 1], [1, 2, 9]]), np.array([[1, 0, 0], [0, 0, -1], [0, 0, 1]])
    )
    assert distances.dtype == np.float32
    assert distances == pytest.approx([5, 1, np.inf])


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: data[:29], "header has the malformed line"),
        (lambda data: data[: data.index(b"end_header") + 11], "declares 4 vertex rows, but only 0 can be read"),
        (lambda data: data[:-27], "declares 4 vertex rows, but only 3 can be read"),
        (lambda data: data[:-13], "declares 2 face rows, but only 1 can be read"),
        (lambda data: data[:-1], "declares 2 face rows, but only 1 can be read"),
        (lambda data: b"nothing", "not a PLY file"),
        (lambda data: data.replace(b"float", b"quark"), "malformed line 'property quark x'"),
        (lambda data: data.replace(b"vertex 4", b"vertex -4"), ""),
        (lambda data: data.replace(b"vertex 4", b"vertex many"), ""),
        (lambda data: data.replace(b"binary_little", b"binary_middle"), "format"),
    ],
)
def test_the_error_for_a_damaged_ply_names_file_and_damage(file, cut, message):
    path = file("scan.ply", cut(ply(CORNERS, TRIANGLES)))
    with pytest.raises(SceneError, match=f"(?s)scan.ply.*{message}.*download or export it again"):
        load_scene(path)


@pytest.mark.parametrize("where", ["roomscout.rendering.scene.read_geometry", "roomscout.rendering.scene.make_scene"])
def test_a_scan_that_does_not_fit_into_memory_is_an_error(file, monkeypatch, where):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(where, full)
    with pytest.raises(SceneError, match=r"scan.ply does not fit into memory"):
        load_scene(file("scan.ply", ply(CORNERS, TRIANGLES)))


def texture_image(colour) -> Image.Image:
    """An image of one colour with a black upper left quarter."""
    image = Image.new("RGB", (32, 32), colour)
    image.paste((0, 0, 0), (0, 0, 16, 16))
    return image


def textured_quad(colour, factor=None) -> trimesh.Trimesh:
    """A textured square, 1 m wide, in the plane z = 0."""
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=texture_image(colour), baseColorFactor=factor)
    visual = trimesh.visual.TextureVisuals(uv=[[0, 0], [1, 0], [1, 1], [0, 1]], material=material)
    corners = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    return trimesh.Trimesh(corners, [[0, 1, 2], [0, 2, 3]], visual=visual, process=False)


@pytest.fixture
def glb() -> bytes:
    """Two textured squares, a plain box and a coloured box, each with its own transform; y is up."""
    coloured = trimesh.creation.box((1, 1, 1))
    coloured.visual = trimesh.visual.ColorVisuals(coloured, vertex_colors=np.tile([*GREEN, 255], (8, 1)))
    world = trimesh.Scene()
    for index, part in enumerate([textured_quad(RED), textured_quad(BLUE), trimesh.creation.box((1, 1, 1)), coloured]):
        world.add_geometry(part, transform=trimesh.transformations.translation_matrix([3 * index, 2, 0]))
    return world.export(file_type="glb")


def test_a_glb_keeps_parts_transforms_and_textures(file, glb):
    scene = load_scene(file("scan.glb", glb))
    assert scene.vertices[:, 0].max() == pytest.approx(9.5)
    assert scene.vertices[:, 2].min() == pytest.approx(1.5)
    assert scene.vertices[:, 2].max() == pytest.approx(3.0)
    assert sorted(tuple(image[-1, -1]) for image in scene.surface.texturing.images) == [BLUE, RED]
    assert np.bincount(scene.surface.texturing.face_image + 1).tolist() == [24, 2, 2]
    assert GREEN in {tuple(colour) for colour in scene.colours.tolist()}


@pytest.mark.parametrize(("up_axis", "top"), [("auto", [0, 0, 1]), ("y", [0, 0, 1]), ("z", [0, 1, 0])])
def test_a_gltf_is_rotated_upright(file, up_axis, top):
    data = trimesh.creation.box(bounds=[[0, 0, 0], [0.1, 1, 0.1]]).export(file_type="glb")
    extent = np.ptp(load_scene(file("scan.glb", data), up_axis).vertices, axis=0)
    assert extent.argmax() == np.argmax(top)


UP = {"x": [1, 0, 0], "-x": [-1, 0, 0], "y": [0, 1, 0], "-y": [0, -1, 0], "z": [0, 0, 1], "-z": [0, 0, -1]}


@pytest.mark.parametrize(("up_axis", "up"), [*UP.items(), ("auto", [0, 0, 1])])
def test_every_axis_can_point_up(file, up_axis, up):
    """The corner of a box that is highest along `up` becomes the highest along z; the box is not mirrored."""
    corners = np.array([[0, 0, 0], *(np.eye(3) * [1, 2, 3])])
    scan = file("scan.ply", ply(corners.tolist(), [[0, 1, 2], [0, 2, 3], [0, 3, 1]], colours=FOUR_COLOURS))
    vertices = load_scene(scan, up_axis).vertices
    assert vertices[:, 2] == pytest.approx(corners @ up)
    assert np.linalg.det(vertices[1:] - vertices[0]) == pytest.approx(6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda glb: glb[: len(glb) // 2], "truncated: its header declares"),
        (lambda glb: glb[:10], "damaged"),
        (lambda glb: glb[:4] + struct.pack("<I", 1) + glb[8:], "only glTF 2 is supported"),
        (lambda glb: b"hello", "its JSON is damaged"),
        (lambda glb: changed_glb(glb, lambda tree: tree["meshes"][0].update(primitives=[None])), "damaged"),
        (lambda glb: changed_glb(glb, lambda tree: tree["bufferViews"][0].update(byteLength=10**15)), "truncated"),
    ],
)
def test_a_damaged_glb_is_an_error(file, glb, content, message):
    with pytest.raises(SceneError, match=f"scan.glb is not a scan that can be read .*{message}.*: download"):
        load_scene(file("scan.glb", content(glb)))


def changed_glb(data: bytes, change) -> bytes:
    """The GLB with its JSON chunk changed in place by `change`."""
    (length,) = struct.unpack_from("<I", data, 12)
    header = json.loads(data[20 : 20 + length])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4)
    rest = data[20 + length :]
    return data[:8] + struct.pack("<II", 20 + len(text) + len(rest), len(text)) + data[16:20] + text + rest


def test_a_dense_cloud_is_downsampled_and_logged(caplog, monkeypatch):
    monkeypatch.setattr("roomscout.rendering.discs.CLOUD_MAX_POINTS", 8_000)
    random = np.random.default_rng(0)
    points = np.column_stack([random.random((100_000, 2)), np.zeros(100_000)]).astype(np.float32)
    few, colours = downsampled("crowd", points, np.zeros_like(points))
    assert 4_000 < len(few) <= 8_000
    assert len(colours) == len(few)
    assert "crowd: downsampled 100000 points to" in caplog.text
