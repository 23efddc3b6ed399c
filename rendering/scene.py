"""A scan in memory: its geometry, its bounds and what a ray through it meets; and a cache of many."""

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from rendering.discs import disc_mesh
from rendering.geometry import Geometry, SceneError, Texturing, cleaned, coloured, face_normals
from rendering.readers import read_geometry

if TYPE_CHECKING:
    import open3d

__all__ = ["Bounds", "Scene", "SceneCache", "SceneError", "Surface", "load_scene", "make_scene"]

_log = logging.getLogger(__name__)

UpAxis = Literal["auto", "y", "z"]
# glTF 2.0 specification, 3.4 "Coordinate System and Units": +Y is up.
_Y_UP_SUFFIXES = (".glb", ".gltf")

# Up to here float32 keeps coordinates to a tenth of a millimetre.
FAR_M = 1000.0
SMALLEST_ROOM_M, LARGEST_ROOM_M = 0.5, 100.0
# A higher one is looked at twice: rooms on their side are as high as they are long.
HIGH_ROOM_M = 3.5
BOUNDS_PERCENTILES = (2.0, 98.0)
# A vertex this many robust extents outside of most others is a stray, and so is a face that touches it. Many, because
# most vertices of a room whose walls are two triangles each may belong to its lamp. Nearer strays are known by the
# slivers of faces that they pull out of the room.
STRAY_EXTENTS = 10.0
SURFACE_SAMPLES = 20_000
# Looks down for the floor, along each side of the room, and what counts as the floor: steps, rugs and thresholds do,
# beds and tables do not.
FLOOR_RAYS = 32
FLOOR_TOLERANCE_M = 0.25
FACES_TO_SAMPLE = 2_000_000
# A cloud becomes 8 vertices and 12 faces a point: 6 million faces at this limit.
CLOUD_MAX_POINTS = 500_000
# Embree's tree and Open3D's copies of vertices and faces: 80 to 87 measured on scans of 5 and 20 million faces.
BVH_BYTES_PER_FACE = 90


@dataclass(frozen=True)
class Bounds:
    """A room's box, world metres: `lower` and `upper` are (3,) float64."""

    lower: np.ndarray
    upper: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        """(3,) float64, metres."""
        return (self.lower + self.upper) / 2

    @property
    def extent(self) -> np.ndarray:
        """(3,) float64, metres."""
        return self.upper - self.lower


@dataclass(frozen=True, eq=False)
class Surface:
    """The triangles that are drawn and bumped into: `vertices` (N, 3) float32 metres, `faces` (M, 3) int32, `colours`
    (N, 3) uint8, and `texturing` where faces have images."""

    vertices: np.ndarray
    faces: np.ndarray
    colours: np.ndarray
    texturing: Texturing | None = None

    @cached_property
    def corners(self) -> np.ndarray:
        """(3, M) int32: the faces' vertices by corner, each row contiguous."""
        return np.ascontiguousarray(self.faces.T)

    @cached_property
    def channels(self) -> np.ndarray:
        """(3, N) float32: the colours by channel, each row contiguous."""
        return np.ascontiguousarray(self.colours.T, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Scene:
    """One scan, read-only and shared by all who look at it; world z is up.

    `vertices` (N, 3) float32 metres; `faces` (M, 3) int32, M = 0 for a cloud; `colours` (N, 3) uint8, a cloud without
    any is grey. What renderers draw and rays meet is `surface`.
    """

    name: str
    vertices: np.ndarray = field(repr=False)
    faces: np.ndarray = field(repr=False)
    colours: np.ndarray = field(repr=False)
    surface: Surface = field(repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def texturing(self) -> Texturing | None:
        """The images of a textured mesh."""
        return self.surface.texturing

    @cached_property
    def surface_points(self) -> np.ndarray:
        """(K, 3) float32 points strewn evenly over a mesh's area without strays, or a cloud's points.

        Counting these instead of vertices makes a wall of two triangles weigh as much as one of two thousand.
        Deterministic: every scene's points are drawn with the same seed.
        """
        return _surface_points(self.vertices, self.faces)

    @cached_property
    def bounds(self) -> Bounds:
        """The box from the 2nd to the 98th percentile of the scanned surface, so that strays do not widen it."""
        lower, upper = np.percentile(self.surface_points.astype(np.float64), BOUNDS_PERCENTILES, axis=0)
        return Bounds(lower, upper)

    @cached_property
    def floor_z_m(self) -> float:
        """Height of the floor, world metres: the lower end of the bounds, unless nothing lies there when one looks down
        from half the room's height, and most of what does lies at one other height. Then what is below it is no room: a
        mirror's or a stairwell's ghost of a floor."""
        x, y = (np.linspace(self.bounds.lower[axis], self.bounds.upper[axis], FLOOR_RAYS) for axis in (0, 1))
        start = np.stack(np.broadcast_arrays(x[:, None], y, self.bounds.middle[2]), axis=-1).reshape(-1, 3)
        below = self.heights_below(start)
        lowest = float(self.bounds.lower[2])
        if (np.abs(below - lowest) <= FLOOR_TOLERANCE_M).any():
            return lowest
        floor = float(np.median(below))
        if not np.isfinite(floor):  # most of it is holes
            return lowest
        level = np.abs(below - floor) <= FLOOR_TOLERANCE_M
        return floor if level.mean() > 0.5 else lowest

    @property
    def nbytes(self) -> int:
        """Bytes of the scene with what ray casting builds on first use; an estimate."""
        arrays = {id(a): a.nbytes for part in (self, self.surface) for a in (part.vertices, part.faces, part.colours)}
        textures = self.texturing.nbytes if self.texturing else 0
        per_channel = 12 * (len(self.surface.faces) + len(self.surface.vertices))
        return sum(arrays.values()) + textures + per_channel + BVH_BYTES_PER_FACE * len(self.surface.faces)

    def ray_caster(self) -> "open3d.t.geometry.RaycastingScene":
        """Embree's structure over `surface`, built by the first caller and shared; safe to cast from many threads."""
        with self._lock:
            return self._ray_caster

    @cached_property
    def _ray_caster(self) -> "open3d.t.geometry.RaycastingScene":
        import open3d as o3d

        caster = o3d.t.geometry.RaycastingScene()
        caster.add_triangles(
            o3d.core.Tensor(self.surface.vertices), o3d.core.Tensor(self.surface.faces.astype(np.uint32))
        )
        # The tree is built by the first ray, which must not happen in two threads at once.
        caster.cast_rays(o3d.core.Tensor(np.array([[0, 0, 0, 0, 0, 1]], dtype=np.float32)))
        return caster

    def heights_below(self, places: np.ndarray) -> np.ndarray:
        """(K,) world metres, the height of the first surface straight below each of (K, 3) places; -inf where none."""
        return places[:, 2] - self.cast(places, np.tile([0.0, 0.0, -1.0], (len(places), 1)))

    def cast(self, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Distances (R,) float32 metres from `origins` (R, 3) along unit `directions` (R, 3) to the first surface,
        inf where there is none."""
        import open3d as o3d

        rays = np.concatenate([origins, directions], axis=1, dtype=np.float32)
        return self.ray_caster().cast_rays(o3d.core.Tensor(rays))["t_hit"].numpy()


def _wide_box(vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner, (3,) each, of a box with much room around the scan: what is outside is a stray."""
    lower, upper = np.percentile(vertices, BOUNDS_PERCENTILES, axis=0)
    margin = STRAY_EXTENTS * max(upper - lower)
    return lower - margin, upper + margin


def _surface_points(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    if not len(faces):
        return vertices
    # Of a huge mesh every k-th face is plenty to choose from.
    faces = faces[:: 1 + len(faces) // FACES_TO_SAMPLE]
    lower, upper = _wide_box(vertices)
    near = np.all((vertices >= lower) & (vertices <= upper), axis=1)
    faces = faces[near[faces].all(axis=1)] if not near.all() else faces
    weights = _face_weights(vertices, faces)
    if not weights.sum() > 0:
        return vertices
    # One sample in each of K equal shares of the area, at a random spot of its triangle.
    random = np.random.default_rng(0)
    shares = (np.arange(SURFACE_SAMPLES) + random.random(SURFACE_SAMPLES)) / SURFACE_SAMPLES
    cumulated = np.cumsum(weights)
    chosen = faces[np.searchsorted(cumulated, shares * cumulated[-1]).clip(max=len(faces) - 1)]
    a, b = random.random((2, SURFACE_SAMPLES, 1), dtype=np.float32)
    beyond = a + b > 1
    a, b = np.where(beyond, 1 - a, a), np.where(beyond, 1 - b, b)
    corner = vertices[chosen[:, 0]]
    return corner + a * (vertices[chosen[:, 1]] - corner) + b * (vertices[chosen[:, 2]] - corner)


def _face_weights(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(M,) float64: each face's area, times the square of its shape's quality, which is 1 for an equilateral triangle
    and near 0 for a sliver: 4 sqrt(3) area / (a^2 + b^2 + c^2), from R. E. Bank, "PLTMG: A Software Package for
    Solving Elliptic Partial Differential Equations"."""
    corners = vertices[faces]
    edges = np.square(corners - corners[:, [1, 2, 0]]).sum(axis=(1, 2), dtype=np.float64)
    areas = np.linalg.norm(face_normals(vertices, faces), axis=1).astype(np.float64) / 2
    quality = 4 * np.sqrt(3) * areas / np.where(edges > 0, edges, 1.0)
    return areas * np.square(quality)


def make_scene(name: str, geometry: Geometry) -> Scene:
    """The scene of a geometry whose z is up; raises ValueError when nothing of it can be used."""
    vertices = np.ascontiguousarray(near_origin(name, geometry.vertices), dtype=np.float32)
    faces = np.ascontiguousarray(geometry.faces, dtype=np.int32)
    geometry = coloured(cleaned(replace(geometry, vertices=vertices, faces=faces)))
    if not len(geometry.vertices):
        raise ValueError("it has no vertex with finite coordinates within 1000 km of most others")
    if len(geometry.faces):
        colours = geometry.colours
        assert colours is not None, "coloured() colours every mesh"
        surface = Surface(geometry.vertices, geometry.faces, colours, geometry.texturing)
        return Scene(name, geometry.vertices, geometry.faces, colours, surface)
    points, known_colours = thinned(name, geometry.vertices, geometry.colours)
    surface = Surface(*disc_mesh(points, known_colours))
    grey = np.full_like(points, 160, dtype=np.uint8)
    return Scene(name, points, geometry.faces, grey if known_colours is None else known_colours, surface)


def near_origin(name: str, vertices: np.ndarray) -> np.ndarray:
    """The vertices, counted from a place among them where they lie so far from the origin (in a country's grid, say)
    that float32 would lose millimetres; a line in the log then says from where."""
    if not (np.abs(vertices) >= FAR_M).any():  # nearly all scans, and much faster than a median
        return vertices
    finite = vertices[np.isfinite(vertices).all(axis=1)]
    if not len(finite):
        return vertices
    middle = np.round(np.median(finite, axis=0)).astype(np.float64)
    if np.abs(middle).max() < FAR_M:
        return vertices
    _log.info("%s: its coordinates are counted from (%.0f, %.0f, %.0f)", name, *middle)
    return vertices.astype(np.float64) - middle


def warn_of_its_size(scene: Scene, path: Path) -> None:
    """A line in the log where a scan cannot be a room in metres, or seems to lie on its side."""
    width, depth, height = (float(side) for side in scene.bounds.extent)
    extent = f"{width:.3g} x {depth:.3g} x {height:.3g}"
    if not SMALLEST_ROOM_M < max(width, depth, height) < LARGEST_ROOM_M:
        _log.warning("%s spans %s m, which is no room's size: are its coordinates in metres?", path, extent)
    elif height > HIGH_ROOM_M and height > min(width, depth):
        _log.warning(
            "%s spans %s m and is higher than wide: if it lies on its side, say --up-axis y or z", path, extent
        )


def thinned(
    name: str, points: np.ndarray, colours: np.ndarray | None, max_points: int = CLOUD_MAX_POINTS
) -> tuple[np.ndarray, np.ndarray | None]:
    """The cloud's points (K, 3) and colours (K, 3), one for each cell of a grid of a millimetre.

    A cloud of more than `max_points` gets a coarser grid, and a line in the log.
    """
    lower, upper = _wide_box(points)
    # Cells are numbered by integers: at most a million along each axis.
    cell_m = max(1e-3, float(max(upper - lower)) / 1e6)
    kept = _one_per_cell(points, cell_m)
    while len(kept) > max_points:
        # Points lie on surfaces, so their number falls with the square of the cell's size.
        cell_m *= 1.05 * (len(kept) / max_points) ** 0.5
        kept = kept[_one_per_cell(points[kept], cell_m)]
        if len(kept) <= max_points:
            _log.warning("%s: thinned %d points to %d, one per %.1f mm", name, len(points), len(kept), 1000 * cell_m)
    return points[kept], None if colours is None else colours[kept]


def _one_per_cell(points: np.ndarray, cell_m: float) -> np.ndarray:
    """Sorted indices of the first point in each cell of a grid."""
    # Strays are counted at the border of the wide box, so that the number of cells fits into an integer.
    lower, upper = _wide_box(points)
    cells = ((points.clip(lower, upper) - lower) / cell_m).astype(np.int64)
    sizes = cells.max(axis=0) + 1
    keys = (cells[:, 0] * sizes[1] + cells[:, 1]) * sizes[2] + cells[:, 2]
    return np.sort(np.unique(keys, return_index=True)[1])


def load_scene(path: str | Path, up_axis: UpAxis = "auto") -> Scene:
    """The scan in a PLY, PCD, GLB, GLTF or OBJ file, turned so that z is up.

    `up_axis` says which axis is up in the file; "auto" takes y for glTF, as its specification says, else z. Raises
    SceneError, one sentence that names the file and the mend.
    """
    path = Path(path)
    try:
        geometry = read_geometry(path)
        if up_axis == "y" or (up_axis == "auto" and path.suffix.lower() in _Y_UP_SUFFIXES):
            x, y, z = geometry.vertices.T
            geometry = replace(geometry, vertices=np.stack([x, -z, y], axis=1))
        scene = make_scene(path.stem, geometry)
    except ValueError as error:
        raise SceneError(f"{path} cannot be used, {error}: download or export it again") from error
    except MemoryError as error:
        raise SceneError(f"{path} does not fit into memory: thin it out, or download it again") from error
    warn_of_its_size(scene, path)
    return scene


@dataclass(eq=False)
class _Entry:
    """A place in the cache: empty until whoever holds the lock has loaded the scene."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    scene: Scene | None = None


class SceneCache:
    """Scenes by path, the least recently used dropped when together they exceed `max_bytes`; loaded with `up_axis`.

    Safe to use from several threads; a scene that two ask for at once is loaded once. One scene larger than
    `max_bytes` is still given out, alone. A dropped scene is freed when nobody holds it any more.
    """

    def __init__(self, max_bytes: int, up_axis: UpAxis = "auto") -> None:
        self._max_bytes = max_bytes
        self._up_axis: UpAxis = up_axis
        self._entries: OrderedDict[Path, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str | Path) -> Scene:
        """The scene of this file, loaded if need be; raises SceneError, which the cache does not remember."""
        path = Path(path)
        with self._lock:
            entry = self._entries.setdefault(path, _Entry())
            self._entries.move_to_end(path)
        with entry.lock:
            if entry.scene is None:
                entry.scene = load_scene(path, self._up_axis)
            scene = entry.scene
        self._shrink()
        return scene

    def _shrink(self) -> None:
        """Drop the oldest loaded scenes, but never the newest, until the rest fits."""
        with self._lock:
            sizes = {path: entry.scene.nbytes for path, entry in self._entries.items() if entry.scene}
            total = sum(sizes.values())
            for path in list(sizes)[:-1]:
                if total <= self._max_bytes:
                    break
                del self._entries[path]
                total -= sizes[path]
