"""Images in every mode, and which faces a texture makes transparent."""

import numpy as np
import pytest
from gltf_files import image_bytes
from PIL import Image

from roomscout.rendering.textures import Opacity, decoded

LEFT_HALF = [[0.1, 0.2], [0.4, 0.2], [0.1, 0.9]]
RIGHT_HALF = [[0.6, 0.2], [0.9, 0.2], [0.6, 0.9]]
BOTH = [[0.1, 0.2], [0.9, 0.2], [0.6, 0.9]]


@pytest.mark.parametrize("width", [10, 5000])
@pytest.mark.parametrize("wrap", ["repeat", "clamp"])
def test_faces_are_transparent_by_the_texels_around_them(width, wrap):
    opaque = np.zeros((7, width), dtype=bool)
    opaque[:, : width // 2] = True
    opacity = Opacity(opaque, (wrap, wrap))
    none, only = opacity.of_faces(np.float32([LEFT_HALF, RIGHT_HALF, BOTH]))
    assert none.tolist() == [False, True, False]
    assert only.tolist() == [True, False, False]


def test_a_face_in_another_tile_is_looked_up_in_the_image():
    opaque = np.arange(10)[None, :].repeat(4, axis=0) < 5
    none, _ = Opacity(opaque, ("repeat", "repeat")).of_faces(np.float32([LEFT_HALF, RIGHT_HALF]) + np.float32([3, -2]))
    assert none.tolist() == [False, True]


def test_one_opaque_texel_keeps_a_face():
    opaque = np.zeros((3000, 3000), dtype=bool)
    opaque[1500, 700] = True
    none, _ = Opacity(opaque, ("repeat", "repeat")).of_faces(np.float32([[[0, 0], [1, 0], [1, 1]], RIGHT_HALF]))
    assert none.tolist() == [False, True]


@pytest.mark.parametrize(
    ("mode", "colour", "shown"),
    [
        ("I;16", 0x8000, (128, 128, 128)),
        ("I;16", 200, (200, 200, 200)),
        ("L", 77, (77, 77, 77)),
        ("LA", (77, 255), (77, 77, 77)),
        ("P", 5, (9, 8, 7)),
        ("1", 1, (255, 255, 255)),
        ("RGBA", (10, 20, 30, 255), (10, 20, 30)),
    ],
)
def test_images_of_any_mode_are_decoded(mode, colour, shown):
    image = Image.new(mode, (8, 8), colour)
    if mode == "P":
        image.putpalette([9, 8, 7] * 256)
    assert (decoded(image_bytes(image)).pixels == shown).all()
