"""GLB and glTF files as exporters write them, against the colours and shapes that they describe."""

import base64

import numpy as np
import pytest
from gltf_files import BROWN, CORNERS, FOUR, TRIANGLES, UV, Gltf, image_bytes, picture
from PIL import Image
from simple_rooms import BLUE, GREEN, RED

from roomscout.rendering.renderers.raycast import colours_of_hits
from roomscout.rendering.scene import SceneError, load_scene

WHITE = (255, 255, 255)


def seen(scene, places):
    """Colours of the first surface behind places (x, z), metres, looking along +y; the background if there is none."""
    rays = np.float32([[x, -9, z, 0, 1, 0] for x, z in places])
    return colours_of_hits(scene, scene.hits(rays)).astype(int)


def assert_shows(scene, colours, tolerance=4):
    shown = seen(scene, list(colours))
    assert np.abs(shown - list(colours.values())).max() <= tolerance, dict(zip(colours, shown.tolist(), strict=True))


def textured(file: Gltf, primitive: dict | None = None, info=None, **material) -> Gltf:
    texture = file.texture(image_bytes(picture()))
    primitive = primitive or file.square()
    file.mesh({**primitive, "material": file.material(texture, info, **material)})
    return file


def moved(extension: dict) -> dict:
    return {"extensions": {"KHR_texture_transform": extension}}


def scaled_and_shifted(f):
    uv = f.accessor((UV - np.float32([0.25, 0.5])) / np.float32([2, 0.5]))
    textured(f, f.square(TEXCOORD_0=uv), moved({"offset": [0.25, 0.5], "scale": [2, 0.5]}))


def turned(f):
    # The extension turns (u, v) into (v, -u) for a quarter turn, v down.
    uv = f.accessor(np.stack([1 - UV[:, 1], UV[:, 0]], axis=1))
    textured(f, f.square(TEXCOORD_0=uv), moved({"offset": [0, 1], "rotation": np.pi / 2}))


def other_coordinates(f):
    textured(f, f.square(TEXCOORD_0=f.accessor(UV * 0), TEXCOORD_1=f.accessor(UV)), {"texCoord": 1})


def integer_coordinates(f):
    textured(f, f.square(TEXCOORD_0=f.accessor((UV * 65535).astype("u2"), normalized=True)))


def quantized_positions(f):
    f.tree.update(extensionsUsed=["KHR_mesh_quantization"], extensionsRequired=["KHR_mesh_quantization"])
    positions = f.accessor(np.int16((CORNERS - 0.5) * 2 * 32767), normalized=True)
    textured(f, f.square(POSITION=positions))
    f.tree["nodes"][0].update(scale=[0.5, 0.5, 0.5], translation=[0.5, 0.5, 0])


def strip(f):
    textured(f, {**f.square(), "indices": f.accessor(np.uint8([0, 1, 3, 2])), "mode": 5})


def fan(f):
    textured(f, {**f.square(), "indices": f.accessor(np.uint32([0, 1, 2, 3])), "mode": 6})


def no_indices(f):
    order = TRIANGLES.astype(int)
    primitive = f.square(POSITION=f.accessor(CORNERS[order]), TEXCOORD_0=f.accessor(UV[order]))
    del primitive["indices"]
    textured(f, primitive)


def interleaved(f):
    view = f.view(np.concatenate([CORNERS, UV], axis=1).astype("f4").tobytes(), byteStride=20)
    common = {"bufferView": view, "componentType": 5126, "count": 4}
    positions = f.add("accessors", type="VEC3", **common)
    uv = f.add("accessors", type="VEC2", byteOffset=12, **common)
    textured(f, f.square(POSITION=positions, TEXCOORD_0=uv))


def sparse(f, with_view=True):
    values = CORNERS.copy() if with_view else CORNERS * 0
    values[2:] = 0
    changed = [2, 3] if with_view else [0, 1, 2, 3]
    index = f.accessor(values)
    entry = f.tree["accessors"][index]
    if not with_view:
        del entry["bufferView"]
    entry["sparse"] = {
        "count": len(changed),
        "indices": {"bufferView": f.view(np.uint8(changed).tobytes()), "componentType": 5121},
        "values": {"bufferView": f.view(CORNERS[changed].tobytes())},
    }
    textured(f, f.square(POSITION=index))


def sparse_alone(f):
    sparse(f, with_view=False)


def webp(f):
    f.tree["extensionsRequired"] = ["EXT_texture_webp"]
    texture = f.texture(image_bytes(picture(), "WEBP", lossless=True), "EXT_texture_webp")
    f.mesh({**f.square(), "material": f.material(texture)})


def embedded_in_the_json(f):
    uri = "data:image/png;base64," + base64.b64encode(image_bytes(picture())).decode()
    texture = f.add("textures", source=f.add("images", uri=uri))
    f.mesh({**f.square(), "material": f.material(texture)})


def emission_over_black(f):
    texture = {"index": f.texture(image_bytes(picture()))}
    black = {"baseColorFactor": [0, 0, 0, 1]}
    material = f.add("materials", pbrMetallicRoughness=black, emissiveTexture=texture, emissiveFactor=[1, 1, 1])
    f.mesh({**f.square(), "material": material})


def emission_alone(f):
    texture = {"index": f.texture(image_bytes(picture()))}
    f.mesh({**f.square(), "material": f.add("materials", emissiveTexture=texture, emissiveFactor=[1, 1, 1])})


def draco_with_plain_data(f):
    f.tree["extensionsUsed"] = ["KHR_draco_mesh_compression"]
    textured(f, {**f.square(), "extensions": {"KHR_draco_mesh_compression": {"bufferView": 0, "attributes": {}}}})


def mirrored_node(f):
    textured(f, f.square(POSITION=f.accessor(CORNERS * np.float32([-1, 1, 1]))))
    f.tree["nodes"][0]["scale"] = [-1, 1, 1]


def nested_turns(f):
    textured(f)
    half = np.sqrt(0.5)
    f.tree["nodes"][0].update(rotation=[0, 0, half, half], translation=[0, 0, 0])
    f.tree["scenes"][0]["nodes"] = [f.add("nodes", children=[0], rotation=[0, 0, -half, half])]


def transparent_pixels_of_an_opaque_material(f):
    image = picture("RGBA")
    image.putalpha(0)
    f.mesh({**f.square(), "material": f.material(f.texture(image_bytes(image)))})


def glass_before_it(f):
    textured(f)
    glass = f.add("materials", alphaMode="BLEND", pbrMetallicRoughness={"baseColorFactor": [1, 1, 1, 0.08]})
    f.mesh({**f.square(TEXCOORD_0=None), "material": glass}, translation=[0, 0, 1])


def cut_out_before_it(f):
    textured(f)
    clear = f.texture(image_bytes(Image.new("RGBA", (8, 8), (255, 255, 255, 100))))
    f.mesh({**f.square(), "material": f.material(clear, alphaMode="MASK")}, translation=[0, 0, 1])


def hidden_node(f):
    textured(f)
    f.mesh(f.square(), translation=[0, 0, 1], extensions={"KHR_node_visibility": {"visible": False}})


SAME = [
    textured, scaled_and_shifted, turned, other_coordinates, integer_coordinates, quantized_positions, strip, fan,
    no_indices, interleaved, sparse, sparse_alone, webp, embedded_in_the_json, emission_over_black, emission_alone,
    draco_with_plain_data, mirrored_node, nested_turns, transparent_pixels_of_an_opaque_material, glass_before_it,
    cut_out_before_it, hidden_node,
]  # fmt: skip


@pytest.mark.parametrize("write", SAME, ids=lambda write: write.__name__)
def test_the_square_has_its_four_colours(tmp_path, write):
    file = Gltf()
    write(file)
    scene = load_scene(file.glb(tmp_path / "scan.glb"))
    assert np.ptp(scene.vertices, axis=0) == pytest.approx([1, 0, 1], abs=1e-3)
    assert_shows(scene, FOUR)


@pytest.mark.parametrize(
    ("binary", "uri"),
    [("my dätä.bin", "my%20d%C3%A4t%C3%A4.bin"), ("my data.bin", "my data.bin"), ("d.bin", "C:\\a\\d.bin")],
)
def test_files_beside_a_gltf_are_found(tmp_path, binary, uri):
    assert_shows(load_scene(textured(Gltf()).gltf(tmp_path / "scan.gltf", binary, uri)), FOUR)


@pytest.mark.parametrize(
    ("wrap", "right", "above"),
    [
        ({}, RED, BLUE),
        ({"wrapS": 33071, "wrapT": 33071}, GREEN, RED),
        ({"wrapS": 33648, "wrapT": 33648}, GREEN, RED),
        ({"wrapS": 33071}, GREEN, BLUE),
        ({"wrapT": 33648}, RED, RED),
    ],
)
def test_textures_continue_as_their_sampler_says(tmp_path, wrap, right, above):
    """The square shows the texture twice along each axis; the lower left quarter is always as it is."""
    file = Gltf()
    texture = file.texture(image_bytes(picture()), **wrap)
    uv = file.accessor(UV * 2 + np.float32([0, -1]))
    file.mesh({**file.square(TEXCOORD_0=uv), "material": file.material(texture)})
    scene = load_scene(file.glb(tmp_path / "scan.glb"))
    assert_shows(scene, {(x / 2, z / 2): colour for (x, z), colour in FOUR.items()})
    assert_shows(scene, {(0.6, 0.4): right, (0.1, 0.6): above})


COLOURS = np.float32([RED, GREEN, BLUE, BROWN]) / 255


@pytest.mark.parametrize(
    ("values", "normalized"),
    [
        (COLOURS, False),
        (np.pad(COLOURS, ((0, 0), (0, 1)), constant_values=1), False),
        (np.uint8((COLOURS * 255).round()), True),
        (np.uint8((COLOURS * 255).round()), False),
        (np.uint16((COLOURS * 65535).round()), True),
        ((COLOURS * 255).astype("f4"), False),
    ],
)
def test_vertex_colours_are_read_in_any_type(tmp_path, values, normalized):
    file = Gltf()
    file.mesh(file.square(TEXCOORD_0=None, COLOR_0=file.accessor(values, normalized)))
    colours = load_scene(file.glb(tmp_path / "scan.glb")).colours
    assert np.abs(colours.astype(int) - [RED, GREEN, BLUE, BROWN]).max() <= 1


def test_vertex_colours_multiply_texture_and_factor(tmp_path):
    file = Gltf()
    white = file.texture(image_bytes(Image.new("RGB", (4, 4), WHITE)))
    material = file.add(
        "materials", pbrMetallicRoughness={"baseColorTexture": {"index": white}, "baseColorFactor": [1, 0.5, 0, 1]}
    )
    colours = file.accessor(np.tile(np.uint8([200, 100, 50]), (4, 1)), normalized=True)
    file.mesh({**file.square(COLOR_0=colours), "material": material})
    assert_shows(load_scene(file.glb(tmp_path / "scan.glb")), {(0.5, 0.5): (200, 100 * 188 // 255, 0)})


def test_instances_are_all_drawn(tmp_path):
    file = textured(Gltf())
    name = "EXT_mesh_gpu_instancing"
    file.tree["extensionsRequired"] = [name]
    places = file.accessor(np.float32([[0, 0, 0], [2, 0, 0], [4, 0, 0], [6, 0, 0]]))
    scales = file.accessor(np.float32([[1, 1, 1]] * 3 + [[2, 2, 2]]))
    file.tree["nodes"][0]["extensions"] = {name: {"attributes": {"TRANSLATION": places, "SCALE": scales, "_ID": 99}}}
    scene = load_scene(file.glb(tmp_path / "scan.glb"))
    assert len(scene.faces) == 8 and len(scene.surface.texturing.images) == 1
    assert_shows(scene, {(x + 2 * n, z): colour for n in range(3) for (x, z), colour in FOUR.items()})
    assert_shows(scene, {(6 + 2 * x, 2 * z): colour for (x, z), colour in FOUR.items()})


def test_points_are_drawn_beside_meshes(tmp_path):
    file = textured(Gltf())
    grid = np.stack(np.meshgrid(np.linspace(2, 3, 60), np.linspace(0, 1, 60), [0.0]), axis=-1).reshape(-1, 3)
    colours = file.accessor(np.tile(np.uint8(RED), (len(grid), 1)), normalized=True)
    cloud = {"POSITION": file.accessor(grid.astype("f4")), "COLOR_0": colours}
    file.mesh({"attributes": cloud, "mode": 0})
    scene = load_scene(file.glb(tmp_path / "scan.glb"))
    assert_shows(scene, {**FOUR, (2.5, 0.5): RED, (2.1, 0.9): RED})


def test_a_missing_base_texture_beside_an_emissive_one_is_shaded(tmp_path):
    file = Gltf()
    lamps = {"index": file.texture(image_bytes(Image.new("RGB", (32, 32))))}
    gone = file.add("textures", source=file.add("images", uri="gone.png"))
    file.mesh({**file.square(), "material": file.material(gone, emissiveTexture=lamps, emissiveFactor=[1, 1, 1])})
    scene = load_scene(file.glb(tmp_path / "scan.glb"))
    assert scene.surface.texturing is None and scene.colours.max() < 255


def basis(f):
    texture = f.texture(b"\xabKTX 20\xbb\r\n\x1a\n" + b"\0" * 64, "KHR_texture_basisu")
    f.mesh({**f.square(), "material": f.material(texture)})


def missing_image(f):
    texture = f.add("textures", source=f.add("images", uri="my%20wall.png"))
    f.mesh({**f.square(), "material": f.material(texture)})


def lines(f):
    textured(f)
    f.mesh({**f.square(), "mode": 1})


def unknown_extension(f):
    textured(f)
    f.tree["extensionsUsed"] = ["KHR_lights_punctual", "ACME_paint"]


def skin(f):
    textured(f)
    f.tree["nodes"][0]["skin"] = 0


def half_transparent(f):
    textured(f)
    glass = f.add("materials", alphaMode="BLEND", pbrMetallicRoughness={"baseColorFactor": [1, 1, 1, 0.7]})
    f.mesh({**f.square(TEXCOORD_0=None), "material": glass}, translation=[0, 0, -1])


def leaves(f):
    image = picture("RGBA")
    image.paste((0, 0, 0, 0), (0, 0, 4, 4))
    f.mesh({**f.square(), "material": f.material(f.texture(image_bytes(image)), alphaMode="MASK")})


def all_transparent(f):
    textured(f)
    f.tree["materials"][0].update(alphaMode="BLEND")
    f.tree["materials"][0]["pbrMetallicRoughness"]["baseColorFactor"] = [1, 1, 1, 0]


def no_colours(f):
    f.mesh(f.square(TEXCOORD_0=None, _RGB=f.accessor(CORNERS)))


WARNINGS = [
    (no_colours, "no colours read; it has the attributes POSITION, _RGB"),
    (basis, "drawing without the texture image 0: it is KTX2"),
    (missing_image, "the file my wall.png is missing: put it beside the scan"),
    (lines, "its lines are not drawn (1 primitives)"),
    (unknown_extension, "ignoring ACME_paint, which may change"),
    (skin, "ignoring the skin of its meshes"),
    (glass_before_it, "left out 2 of 4 triangles"),
    (half_transparent, "partly transparent surfaces are drawn opaque, in 1 of its meshes"),
    (leaves, "partly transparent surfaces are drawn opaque, in 1 of its meshes"),
    (all_transparent, "all its surfaces are transparent; they are drawn opaque"),
]


@pytest.mark.parametrize(("write", "message"), WARNINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_not_drawn_is_logged_once(tmp_path, caplog, write, message):
    file = Gltf()
    write(file)
    assert len(load_scene(file.glb(tmp_path / "scan.glb")).faces)
    assert caplog.text.count(message) == 1


def requires(name):
    def write(f):
        textured(f)
        f.tree["extensionsRequired"] = [name]

    return write


def draco(f):
    textured(f, {**f.square(), "extensions": {"KHR_draco_mesh_compression": {"bufferView": 0}}})
    for accessor in f.tree["accessors"]:
        del accessor["bufferView"]


def cycle(f):
    textured(f)
    f.tree["nodes"][0]["children"] = [f.add("nodes", children=[0])]


def index_out_of_range(f):
    textured(f, {**f.square(), "indices": f.accessor(np.uint16([0, 1, 9]))})


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (requires("KHR_texture_basisu"), "requires KHR_texture_basisu, which is not supported: .*ktxdecompress"),
        (requires("ACME_paint"), "requires ACME_paint, which is not supported"),
        (draco, "compressed with KHR_draco_mesh_compression alone"),
        (cycle, "below itself"),
        (index_out_of_range, "a face refers to a vertex that does not exist"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(tmp_path, write, message):
    file = Gltf()
    write(file)
    with pytest.raises(SceneError, match=message):
        load_scene(file.glb(tmp_path / "scan.glb"))


def test_a_missing_buffer_is_named(tmp_path):
    path = textured(Gltf()).gltf(tmp_path / "scan.gltf", "d.bin", "my%20data.bin")
    with pytest.raises(SceneError, match=r"the file my data.bin is missing: put it beside the scan"):
        load_scene(path)


def test_primitives_that_share_vertices_keep_their_own(tmp_path):
    file = Gltf()
    texture = file.texture(image_bytes(picture()))
    shared = file.square(
        POSITION=file.accessor(np.tile(CORNERS, (3, 1))), TEXCOORD_0=file.accessor(np.tile(UV, (3, 1)))
    )
    halves = [{**shared, "indices": file.accessor(np.uint32(half))} for half in ([8, 9, 10], [4, 6, 7])]
    file.mesh(*({**half, "material": file.material(texture)} for half in halves))
    scene = load_scene(file.glb(tmp_path / "scan.glb"))
    assert len(scene.vertices) == 6
    assert_shows(scene, {place: colour for place, colour in FOUR.items() if place != (0.75, 0.25)})
