"""The depth of each pixel in shades of grey."""

import numpy as np

from roomscout.rendering.modalities.modality import Modality, Sight

LEVELS_PER_M = 30
FARTHEST_M = 8  # larger depths are drawn as this one, which is darker than the white of holes
WHITE = 255


def draw(sight: Sight) -> np.ndarray:
    """(H, W, 3) uint8: LEVELS_PER_M for each metre along the optical axis up to FARTHEST_M, WHITE without a surface."""
    depth = sight.depth
    grey = np.where(np.isfinite(depth), np.minimum(depth, FARTHEST_M) * LEVELS_PER_M + 0.5, WHITE).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


DEPTH = Modality(
    "depth",
    draw,
    "A depth image from the same camera follows each view. Its shades of grey are distances along the viewing "
    f"direction: black is 0 m, each metre adds {LEVELS_PER_M} of 255 levels, light grey ({LEVELS_PER_M * FARTHEST_M}) "
    f"is {FARTHEST_M} m or more, and white is a hole in the scan.",
)
