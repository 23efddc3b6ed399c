"""Textures of GLB files in every mode of image."""

import pytest
from gltf_files import Gltf, image_bytes
from PIL import Image
from simple_rooms import RED
from test_gltf import WHITE, assert_shows

from roomscout.rendering.scene import load_scene


@pytest.mark.parametrize(
    ("mode", "colour", "shown"),
    [
        ("I;16", 0x8000, (128, 128, 128)),
        ("I;16", 200, (200, 200, 200)),
        ("L", 77, (77, 77, 77)),
        ("LA", (77, 255), (77, 77, 77)),
        ("P", 5, None),
        ("1", 1, WHITE),
        ("RGBA", (10, 20, 30, 255), (10, 20, 30)),
    ],
)
def test_images_of_any_mode_are_decoded(tmp_path, mode, colour, shown):
    image = Image.new(mode, (8, 8), colour)
    if mode == "P":
        image.putpalette([9, 8, 7] * 256)
        shown = (9, 8, 7)
    file = Gltf()
    file.mesh({**file.square(), "material": file.material(file.texture(image_bytes(image)))})
    assert_shows(load_scene(file.glb(tmp_path / "scan.glb")), {(0.5, 0.5): shown}, tolerance=1)


def test_a_cmyk_jpeg_is_decoded(tmp_path):
    file = Gltf()
    image = Image.new("RGB", (8, 8), RED).convert("CMYK")
    file.mesh({**file.square(), "material": file.material(file.texture(image_bytes(image, "JPEG")))})
    assert_shows(load_scene(file.glb(tmp_path / "scan.glb")), {(0.5, 0.5): RED}, tolerance=6)
