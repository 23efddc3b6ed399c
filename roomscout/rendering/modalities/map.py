"""What the views of an episode have shown so far from above, with the camera's path."""

from dataclasses import dataclass

import numpy as np

from roomscout.rendering.camera import CameraPose
from roomscout.rendering.modalities.modality import Modality, Sight
from roomscout.rendering.renderers.raycast import depth_and_colours
from roomscout.rendering.top_down import WORDS, TopDown, cut_z_m, with_path

CELL_M = 0.05
MOST_COLUMNS = 240  # points are taken from an image of each pose that is at most as wide
LEVEL_M, FILLED_M = 0.05, 0.5  # pixels above one another with a smaller step in height and place are one surface
EXTENT_PERCENTILES = (0.5, 99.5)
UNSEEN = (0, 0, 0)
SIDE = 2**16  # the most cells along an axis, 3 km
HEIGHTS = 2**20  # the most millimetres from the lowest to the highest point, 1 km


@dataclass(frozen=True, eq=False)
class SeenCells:
    """The highest point below the ceiling in each cell of the ground that the views of a path showed: `codes` (K,)
    int64, sorted, of the cell's place in both axes and the height, and `colours` (K, 3) uint8."""

    first: np.ndarray  # (2,) int64: the cell from which the places in `codes` count
    path: tuple[CameraPose, ...]
    codes: np.ndarray
    colours: np.ndarray

    def and_from(self, pose: CameraPose, points: np.ndarray, colours: np.ndarray) -> "SeenCells":
        """With the points (K, 3) of a further pose: metres ahead of the origin, to its left, and above the floor."""
        places = np.floor(points[:, :2] / CELL_M).astype(np.int64) - self.first
        ahead, left = (places + SIDE // 2).clip(0, SIDE - 1).T
        heights = (points[:, 2] * 1000 + HEIGHTS // 2).astype(np.int64).clip(0, HEIGHTS - 1)
        codes = np.concatenate([self.codes, (ahead * SIDE + left) * HEIGHTS + heights])
        order = np.argsort(codes, kind="stable")
        cells = codes[order] // HEIGHTS
        highest = order[np.append(cells[1:] != cells[:-1], True)] if len(order) else order
        colours = np.concatenate([self.colours, colours])[highest]
        return SeenCells(self.first, (*self.path, pose), codes[highest], colours)

    @property
    def cells(self) -> np.ndarray:
        """(K, 2) int64: CELL_M ahead of the origin and to its left."""
        return np.stack(np.divmod(self.codes // HEIGHTS, SIDE), axis=1) - SIDE // 2 + self.first


def nothing_seen(start: CameraPose) -> SeenCells:
    """Before the first view of a path from a start, which is in metres from the origin of the map."""
    first = np.floor(start.position[:2] / CELL_M).astype(np.int64)
    return SeenCells(first, (), np.empty(0, np.int64), np.empty((0, 3), np.uint8))


def draw(sight: Sight) -> np.ndarray:
    """(H, W, 3) uint8: the highest surface below the ceiling of the storey under the camera where a view from that
    storey has shown one, else UNSEEN."""
    storey = sight.storey
    path = tuple(pose for pose in sight.path if sight.scene.storey_at(pose.z_m) is storey)
    nothing = nothing_seen(sight.origin.relative(sight.path[0]))
    kept = f"map {storey.floor_z_m}"
    seen = sight.kept.get(kept, nothing)
    if path[: len(seen.path)] != seen.path:  # a step that failed was taken in another way
        seen = nothing
    for pose in path[len(seen.path) :]:
        seen = seen.and_from(pose, *_points(sight, pose))
    sight.kept[kept] = seen
    cells = seen.cells
    extent = [(pose.x_m, pose.y_m) for pose in map(sight.origin.relative, sight.path)]
    if len(cells):
        extent += [*np.percentile(cells * CELL_M, EXTENT_PERCENTILES, axis=0)]
    lies = TopDown.around(sight.origin, np.min(extent, axis=0), np.max(extent, axis=0), sight.camera)
    rows, columns = (np.floor(axis / CELL_M).astype(np.int64) for axis in lies.axes_m)
    ground = np.full((rows[0] - rows[-1] + 1, columns[0] - columns[-1] + 1, 3), UNSEEN, np.uint8)
    places = cells - (rows[-1], columns[-1])
    inside = ((places >= 0) & (places < ground.shape[:2])).all(axis=1)
    ground[tuple(places[inside].T)] = seen.colours[inside]
    image = ground[(rows - rows[-1])[:, None], columns - columns[-1]]
    return with_path(image, lies, sight.path, sight.camera)


def _points(sight: Sight, pose: CameraPose) -> tuple[np.ndarray, np.ndarray]:
    """The points (K, 3) that a pose sees below the ceiling, as `SeenCells.and_from` takes them, and their colours.
    Casts rays whatever the renderer is, but not for splats, whose surface may have no colours. Level surfaces far away
    have pixels more than a cell apart: they are filled in between."""
    camera = sight.camera.thinned(-(-sight.camera.width // MOST_COLUMNS))
    if sight.scene.splats is None:
        depth, colours = depth_and_colours(sight.scene, pose, camera)
    else:
        depth = sight.renderer.depth(sight.scene, pose, camera)
        colours = sight.renderer.render(sight.scene, pose, camera)
    rows, columns = np.indices(depth.shape) + 0.5
    rays = np.stack([columns - camera.width / 2, rows - camera.height / 2, np.full(depth.shape, camera.focal_px)], 2)
    metres = np.where(np.isfinite(depth), depth, np.nan)[..., None] / camera.focal_px  # holes are NaN, below nothing
    points = metres * (rays @ pose.camera_to_world[:3, :3].T) + pose.position
    away = points - sight.origin.position
    origin = sight.origin
    points = np.stack([away @ origin.forward, away @ origin.left, points[..., 2] - sight.storey.floor_z_m], axis=2)
    steps = points[1:] - points[:-1]
    lengths = np.hypot(steps[..., 0], steps[..., 1])
    apart = (np.abs(steps[..., 2]) < LEVEL_M) & (lengths > CELL_M) & (lengths < FILLED_M)
    shares = np.arange(CELL_M, FILLED_M, CELL_M)[:, None, None] / FILLED_M
    filled = points[:-1][apart] + shares * steps[apart]
    points = np.concatenate([points.reshape(-1, 3), filled.reshape(-1, 3)])
    colours = np.concatenate([colours.reshape(-1, 3), np.tile(colours[:-1][apart], (len(shares), 1))])
    below = points[:, 2] < cut_z_m(sight.storey) - sight.storey.floor_z_m
    return points[below], colours[below]


MAP = Modality(
    "map",
    draw,
    "A map follows each view: what all views so far have shown, from above and without the ceiling; black has not been "
    f"seen. {WORDS}",
)
