"""The whole room from above, with the camera's path."""

import numpy as np

from roomscout.rendering.geometry import BOUNDS_PERCENTILES
from roomscout.rendering.modalities.modality import Modality, Sight
from roomscout.rendering.top_down import WORDS, TopDown, looking_down, with_path


def draw(sight: Sight) -> np.ndarray:
    """(H, W, 3) uint8: what lies below the cut of a storey's plan, which is drawn once an episode, and the path."""
    storey = sight.storey
    kept = f"plan {storey.floor_z_m}"
    if kept not in sight.kept:
        points = storey.points - sight.origin.position
        origin = sight.origin
        from_origin = np.stack([points @ origin.forward, points @ origin.left], axis=1)
        lower, upper = np.percentile(from_origin, BOUNDS_PERCENTILES, axis=0)
        lies = TopDown.around(origin, lower, upper, sight.camera)
        sight.kept[kept] = lies, looking_down(sight.scene, storey, lies.ground)
    lies, image = sight.kept[kept]
    return with_path(image, lies, sight.path, sight.camera)


PLAN = Modality(
    "plan",
    draw,
    "A plan follows each view: the whole room from above without its ceiling, also what the camera has not seen; white "
    f"is outside of the scan. {WORDS}",
    tells_extent=True,
)
