"""OBJ files and materials as exporters write them, against the colours and shapes that they describe."""

import numpy as np
import pytest
from gltf_files import BROWN, FOUR, image_bytes, picture
from PIL import Image
from simple_rooms import BLUE, GREEN, RED
from test_gltf import assert_shows

from roomscout.rendering.scene import SceneError, load_scene

SQUARE = "v 0 0 0\nv 1 0 0\nv 1 0 1\nv 0 0 1\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"
FACE = "f 1/1 2/2 3/3 4/4\n"
TEXTURED = f"mtllib scan.mtl\n{SQUARE}usemtl wall\n{FACE}"
MATERIAL = "newmtl wall\nKd 1 1 1\nmap_Kd wall.png\n"


@pytest.fixture
def scan(tmp_path):
    """Writes an OBJ file with a .mtl file and textures beside it, and loads it."""

    def load(obj=TEXTURED, mtl=MATERIAL, textures=("wall.png",), libraries=("scan.mtl",), image=None):
        for name in textures:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(image_bytes(image or picture()))
        for name in libraries:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(mtl if isinstance(mtl, bytes) else mtl.encode())
        path = tmp_path / "scan.obj"
        path.write_bytes(obj if isinstance(obj, bytes) else obj.encode())
        return load_scene(path)

    return load


def relative(face: str) -> str:
    return face.replace("1/1 2/2 3/3 4/4", "-4/-4 -3/-3 -2/-2 -1/-1")


SHIFTED = SQUARE.replace("v 1 ", "v 3 ").replace("v 0 ", "v 2 ")


@pytest.mark.parametrize(
    "obj",
    [
        TEXTURED,
        TEXTURED.replace("\n", "\r\n"),
        "\ufeff" + TEXTURED,
        "# made in C:\\scans\\\n" + TEXTURED,
        TEXTURED.replace("v ", "v   ").replace("v ", "v\t").replace("f ", "  f\t"),
        TEXTURED.replace("4/4", "4/4 # a square"),
        TEXTURED.replace("1/1", "1/1/1").replace("2/2", "2/2/1").replace("3/3", "3/3/1").replace("4/4", "4/4/1"),
        TEXTURED.replace(FACE, "f 1/1 2/2 3/3\nf 1/1 3/3 4/4\n"),
        TEXTURED.replace(FACE, "f 1/1 2/2 3/3\ng other\ns 1\nf 1/1 3/3 4/4\n"),
        TEXTURED.replace(FACE, relative(FACE)),
        f"mtllib scan.mtl\nusemtl wall\no one\n{SQUARE}{relative(FACE)}o two\n{SHIFTED}{relative(FACE)}",
        f"mtllib scan.mtl\nusemtl wall\no one\n{SQUARE}{FACE}o two\n{SHIFTED}{relative(FACE)}",
        f"mtllib scan.mtl\nusemtl wall\nusemap other\n{FACE}{SQUARE}",
        TEXTURED.replace("mtllib scan.mtl", "mtllib other.mtl scan.mtl").replace("other.mtl", "scan.mtl"),
        TEXTURED.replace("mtllib scan.mtl", "mtllib C:\\scans\\scan.mtl"),
    ],
)
def test_the_square_has_its_four_colours(scan, obj):
    assert_shows(scan(obj), FOUR)


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("map_Kd -s 1 1 1 -o 0 0 0 -bm 0.5 -mm 0 1 -clamp on -blendu on wall.png", "wall.png"),
        ("map_Kd -o 0 0 wall 2.png", "wall 2.png"),
        ("map_Kd -s 1 1 1 2.png", "2.png"),
        ("map_Kd textures\\wall.png", "textures/wall.png"),
        ("map_Kd C:\\Users\\me\\textures\\wall.png", "textures/wall.png"),
        ("map_Kd /home/me/scan/wall.png", "wall.png"),
        ("map_Kd ../wall.png", "wall.png"),
        ("MAP_KD\twall.png", "wall.png"),
        ("map_Ke wall.png\nKe 1 1 1", "wall.png"),
        ("map_Kd wänd.png", "wänd.png"),
        ("map_Kd wall #1.png", "wall #1.png"),
    ],
)
def test_textures_are_found_by_their_names(scan, line, file):
    assert_shows(scan(mtl=f"newmtl wall\n{line}\n", textures=(file,)), FOUR)


def test_a_texture_is_scaled_and_moved(scan):
    """The coordinates times 2, moved by half: the square begins in the middle of the texture."""
    shown = scan(mtl="newmtl wall\nmap_Kd -s 2 2 1 -o 0.5 0.5 0 wall.png\n")
    assert_shows(shown, {(0.1, 0.1): GREEN, (0.4, 0.1): RED, (0.1, 0.4): BROWN, (0.4, 0.4): BLUE, (0.6, 0.1): GREEN})


def test_a_texture_is_clamped(scan):
    shown = scan(mtl="newmtl wall\nmap_Kd -clamp on -s 2 2 1 wall.png\n")
    assert_shows(shown, {(0.1, 0.1): BLUE, (0.9, 0.9): GREEN, (0.9, 0.1): BROWN})


@pytest.mark.parametrize(
    ("kd", "tint"),
    [("0 0 0", (1, 1, 1)), ("0.64 0.64 0.64", (1, 1, 1)), ("0.8 0.4 0", (1, 0.5, 0)), ("spectral x", (1, 1, 1))],
)
def test_the_hue_of_a_material_tints_its_texture(scan, kd, tint):
    expected = {place: tuple(np.array(colour) * tint) for place, colour in FOUR.items()}
    assert_shows(scan(mtl=f"newmtl wall\nKd {kd}\nmap_Kd wall.png\n"), expected)


COLOURED = SQUARE.replace("v 0 0 0", "v 0 0 0 0.5 0 0").replace("v 1 0 0", "v 1 0 0 0.5 0 0")
COLOURED = COLOURED.replace("v 1 0 1", "v 1 0 1 0.5 0 0").replace("v 0 0 1", "v 0 0 1 0.5 0 0")


def test_a_texture_replaces_vertex_colours_unless_it_is_plain(scan):
    obj = TEXTURED.replace(SQUARE, COLOURED)
    assert_shows(scan(obj), FOUR)
    assert_shows(scan(obj, image=Image.new("RGB", (4, 4), (255, 255, 255))), {(0.5, 0.5): (128, 0, 0)})


def test_faces_without_texture_coordinates_have_the_colour_of_their_material(scan, caplog):
    obj = TEXTURED.replace(FACE, "f 1/1 2/2 3/3\nf 1 3 4\n")
    assert_shows(scan(obj, MATERIAL.replace("1 1 1", "0 0 1")), {(0.2, 0.8): (0, 0, 255)})
    assert "1 triangles with the texture wall.png have no texture coordinates" in caplog.text


def test_points_are_drawn_beside_faces(scan):
    grid = np.stack(np.meshgrid(np.linspace(2, 3, 40), [0.0], np.linspace(0, 1, 40)), axis=-1).reshape(-1, 3)
    points = "".join(f"v {x} {y} {z} 1 0 0\n" for x, y, z in grid)
    obj = (
        TEXTURED.replace(SQUARE, COLOURED)
        + points
        + "p "
        + " ".join(str(-number - 1) for number in range(len(grid)))
        + "\n"
    )
    assert_shows(scan(obj), {**FOUR, (2.5, 0.5): (255, 0, 0)})


def test_vertices_alone_are_a_cloud(scan):
    scene = scan("v 0 0 0 255 0 0\nv 1 0 0 0 255 0\nv 1 0 1 0 0 255\n")
    assert len(scene.faces) == 0
    assert sorted(scene.colours.tolist()) == [[0, 0, 255], [0, 255, 0], [255, 0, 0]]


def test_glass_is_left_out(scan, caplog):
    pane = "v 0 -1 0\nv 1 -1 0\nv 1 -1 1\nv 0 -1 1\nusemtl glass\nf 5 6 7 8\n"
    assert_shows(scan(TEXTURED + pane, MATERIAL + "newmtl glass\nKd 1 1 1\nd 0.1\n"), FOUR)
    assert "left out 2 of 4 triangles" in caplog.text


def test_a_mask_cuts_out(scan, caplog):
    pane = "v 0 -1 0\nv 1 -1 0\nv 1 -1 1\nv 0 -1 1\nusemtl leaf\nf 5/1 6/2 7/3 8/4\n"
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    leaf = "newmtl leaf\nmap_Kd leaf.png\nmap_d leaf.png\n"
    scan(textures=("leaf.png",), image=clear)
    assert_shows(scan(TEXTURED + pane, MATERIAL + leaf), FOUR)
    assert_shows(scan(TEXTURED + pane, MATERIAL + leaf.replace("map_d leaf.png\n", "")), FOUR)
    assert caplog.text.count("left out 2 of 4 triangles") == 2


@pytest.mark.parametrize(
    ("obj", "mtl", "message"),
    [
        (TEXTURED, MATERIAL.replace("wall.png", "gone.png"), "the texture gone.png: the file gone.png is missing"),
        (TEXTURED.replace("scan.mtl", "gone.mtl"), MATERIAL, "a material file: the file gone.mtl is missing"),
        (TEXTURED.replace("usemtl wall", "usemtl roof"), MATERIAL, "its .mtl files do not have its materials roof"),
        (TEXTURED + "l 1 2 3\nl 2 3\n", MATERIAL, "its lines, curves and free-form surfaces are not drawn"),
        (SQUARE + "f 1 2 3\n", MATERIAL, "no colours read; it has neither materials nor colours of vertices"),
        (TEXTURED + "v 0 0 2\nv 1 0 2\n", MATERIAL, "not drawing 2 of its 6 vertices, which no face uses"),
        (TEXTURED, MATERIAL + "d 0.8\n", "partly transparent surfaces are drawn opaque"),
        (TEXTURED, MATERIAL.replace("wall.png", "scan.mtl"), "the texture scan.mtl: it is damaged, or not an image"),
    ],
)
def test_what_is_not_drawn_is_logged_once(scan, caplog, obj, mtl, message):
    scan(obj, mtl)
    assert caplog.text.count(message) == 1


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (SQUARE + "\nf 1 2 9\n", "line 10: a face refers to vertex 9, but there are 4"),
        (SQUARE + "f 1 2 0\n", "line 9: a face refers to vertex 0"),
        (SQUARE + "f 1 2 -5\n", "line 9: a face refers to vertex -5"),
        (SQUARE + "f 1/1 2/2 3/9\n", "line 9: a face refers to texture coordinate 9, but there are 4"),
        (SQUARE + "f 1 2 x\n", "line 9: 'x' is not a number"),
        (SQUARE + "f 1 2 2.5\n", "line 9: a face refers to vertex 2.5"),
        (SQUARE + "f 1 2 99999999999999999999\n", "line 9: a face refers to vertex 1e"),
        (SQUARE + "f 1/1 2 3\n", "line 9: the corners of a face have different forms"),
        (SQUARE.replace("v 1 0 1", "v 1,5 0 1") + "f 1 2 3\n", "line 3: '1,5' is not a number"),
        (SQUARE.replace("v 1 0 1", "v 1.5.5 0 1") + "f 1 2 3\n", "line 3: '1.5.5' is not a number"),
        (SQUARE.replace("v 1 0 1", "v 1 0") + "f 1 2 3\n", "line 3 has 2 numbers instead of 3"),
        (SQUARE.replace("v 1 0 1", "v 1 0 1 1 0 0") + "f 1 2 3\n", "line 3 has 6 numbers instead of 3"),
    ],
)
def test_damage_is_named_with_its_line(scan, obj, message):
    with pytest.raises(SceneError, match=message):
        scan(obj)
