"""The whole room from above, with the camera's path."""

import numpy as np

from roomscout.rendering.modalities.modality import Modality, Sight
from roomscout.rendering.scene import BOUNDS_PERCENTILES
from roomscout.rendering.top_down import WORDS, TopDown, looking_down, with_path


def draw(sight: Sight) -> np.ndarray:
    """(H, W, 3) uint8: what lies below the cut of a plan, which is drawn once an episode, and the path so far."""
    if "plan" not in sight.kept:
        points = sight.scene.surface_points - sight.origin.position
        origin = sight.origin
        from_origin = np.stack([points @ origin.forward, points @ origin.left], axis=1)
        lower, upper = np.percentile(from_origin, BOUNDS_PERCENTILES, axis=0)
        lies = TopDown.around(origin, lower, upper, sight.camera)
        sight.kept["plan"] = lies, looking_down(sight.scene, lies.ground)
    lies, image = sight.kept["plan"]
    return with_path(image, lies, sight.path, sight.camera)


PLAN = Modality(
    "plan",
    draw,
    "A plan follows each view: the whole room from above without its ceiling, also what the camera has not seen; white "
    f"is outside of the scan. {WORDS}",
    tells_extent=True,
)
