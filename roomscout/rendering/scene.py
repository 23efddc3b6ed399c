"""Scans in memory: geometry, bounds, ray casting and a cache."""

import logging
import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roomscout import UpAxis
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.discs import disc_mesh, downsampled
from roomscout.rendering.geometry import (
    NO_FACES,
    Geometry,
    SceneError,
    Texturing,
    cleaned,
    coloured,
    face_normals,
    wide_box,
)
from roomscout.rendering.open3d_import import import_open3d
from roomscout.rendering.orientation import name_in_file, resolved, tilt_deg, turned_upright, upper_side
from roomscout.rendering.readers import READERS, read_geometry
from roomscout.rendering.splats import Splats
from roomscout.rendering.storeys import Bounds, Storey, storeys_of, under, without_ground

if TYPE_CHECKING:
    import open3d

__all__ = ["Bounds", "Scene", "SceneCache", "SceneError", "Surface", "load_scene", "make_scene"]

_log = logging.getLogger(__name__)

FAR_M = 1000.0  # up to this distance float32 resolves a tenth of a millimetre
COARSEST_M = 0.01  # coordinates that a file stores in coarser steps are warned of
MIN_ROOM_M, MAX_ROOM_M = 0.5, 200.0  # the longest side of a scan is between these; buildings are scanned too
APART_M = 20.0  # points behind so wide a gap are no part of a building
NEAR_SHARE, NEAR_M = 0.6, 0.1  # of the bounds: points farther from the middle do not count in the size
USUAL_ROOM_M = (1.5, 25.0)
UNITS_M = {
    "metres": 1.0, "centimetres": 0.01, "millimetres": 0.001, "inches": 0.0254, "feet": 0.3048, "kilometres": 1000.0,
}  # fmt: skip
TALL_ROOM_M = 3.5  # higher rooms that are taller than wide may lie on their side, and are warned of
MAX_FACES_SHOWING_UP = 200_000
SURFACE_SAMPLES = 20_000
ABOUT_AS_MUCH = 0.8  # of the floor of the largest storey
MAX_FACES_SAMPLED = 2_000_000
MESH_INSIDE, MESH_MARGIN_M = 0.5, 0.5  # the least share of solid Gaussians within this margin of their mesh's bounds
# Embree's BVH plus Open3D's copies of vertices and faces, measured 80 to 87 on scans of 5 and 20 million faces, and the
# 12 of `corner_colours`.
RAY_CASTING_BYTES_PER_FACE = 90 + 12


@dataclass(frozen=True, eq=False)
class Surface:
    """The triangles for rendering and collisions: `vertices` (N, 3) float32 metres, `faces` (M, 3) int32, `colours` (N,
    3) uint8, and `texturing` if any face has a texture."""

    vertices: np.ndarray
    faces: np.ndarray
    colours: np.ndarray
    texturing: Texturing | None = None

    @cached_property
    def corner_colours(self) -> np.ndarray:
        """(3, M, 4) uint8: red, green, blue and padding of each face's first, second and third vertex."""
        padded = np.pad(self.colours, ((0, 0), (0, 1)))
        return padded[self.faces.T]


@dataclass(frozen=True, eq=False)
class Scene:
    """One scan, read-only.

    Poses, boxes, starts, answers and all places outside of this class and the renderers are in the scan's coordinates:
    metres, z up, from the origin of its file. Its geometry is in the scene's own, which count from `origin`, since
    float32 resolves no millimetres far from one, as in a national grid. `own` and `in_scan` convert.
    """

    name: str  # of the file, without its ending
    vertices: np.ndarray = field(repr=False)  # (N, 3) float32 metres, own coordinates
    faces: np.ndarray = field(repr=False)  # (M, 3) int32; M = 0 for a cloud
    colours: np.ndarray = field(repr=False)  # (N, 3) uint8 of the vertices
    surface: Surface = field(repr=False)  # what renderers and rays use; that of a cloud are discs
    splats: Splats | None = field(default=None, repr=False)  # what renderers of Gaussian splats use
    origin: np.ndarray = field(default_factory=partial(np.zeros, 3))  # (3,) float64: of its own coordinates, metres
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)  # held to build the ray caster

    @property
    def surface_points(self) -> np.ndarray:
        """(K, 3) points sampled evenly over a mesh's area without outliers, or a cloud's points: float32, or float64 if
        `origin` is not 0."""
        return self.samples[0]

    @cached_property
    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """`surface_points`, and for a mesh a normal (K, 3) of any length and sign at each."""
        points, normals = _surface_samples(self.vertices, self.faces)
        return self.in_scan(points), normals

    def own(self, points: np.ndarray) -> np.ndarray:
        """Points (..., 3) of the scan's coordinates in the scene's own."""
        return points - self.origin if self.origin.any() else points

    def in_scan(self, points: np.ndarray) -> np.ndarray:
        """Points (..., 3) of the scene's own coordinates in the scan's."""
        return points + self.origin if self.origin.any() else points

    def own_pose(self, pose: CameraPose) -> CameraPose:
        """A pose of the scan's coordinates in the scene's own."""
        return pose.at(self.own(pose.position))

    @cached_property
    def box(self) -> Bounds:
        """The box around all points."""
        return Bounds(self.in_scan(self.vertices.min(axis=0)), self.in_scan(self.vertices.max(axis=0)))

    @cached_property
    def space(self) -> np.ndarray:
        """(K, 3) `surface_points` without the ground around a building: those that say how large the scan is."""
        return without_ground(self.surface_points)

    @cached_property
    def bounds(self) -> Bounds:
        """The box from the 2nd to the 98th percentile of `space`, which is robust to outliers."""
        return Bounds.around(self.space)

    @cached_property
    def storeys(self) -> tuple[Storey, ...]:
        """The storeys, the lowest first; at least one."""
        return storeys_of(self)

    @property
    def main_storey(self) -> Storey:
        """That with the most floor, the lowest of those that have about as much: where a camera without a height is."""
        most = max(storey.floor_m2 for storey in self.storeys)
        return next(storey for storey in self.storeys if storey.floor_m2 >= ABOUT_AS_MUCH * most)

    def storey_at(self, z_m: float) -> Storey:
        """The storey of a camera at a height, metres: the highest whose floor is below it, or the lowest."""
        return under(self.storeys, z_m)

    @property
    def size(self) -> str:
        """Width, depth and height in words, metres: "4.2 x 5.1 x 2.5"; of all points but those far outside."""
        as_text = partial(np.format_float_positional, precision=3, unique=False, fractional=False, trim="-")
        lower = self.own(self.bounds.lower)
        upper = self.own(self.bounds.upper)
        middle = self.own(self.bounds.middle)
        near = (np.abs(self.vertices - middle) <= self.bounds.extent * NEAR_SHARE + NEAR_M).all(axis=1)
        if near.any():
            lower = self.vertices[near].min(axis=0)
            upper = self.vertices[near].max(axis=0)
        return " x ".join(map(as_text, (upper - lower).astype(float)))

    @property
    def nbytes(self) -> int:
        """Estimated memory of the scene, including what ray casting allocates on first use."""
        arrays = {id(a): a.nbytes for part in (self, self.surface) for a in (part.vertices, part.faces, part.colours)}
        textures = self.surface.texturing.nbytes if self.surface.texturing else 0
        splats = self.splats.nbytes if self.splats else 0
        return sum(arrays.values()) + textures + splats + RAY_CASTING_BYTES_PER_FACE * len(self.surface.faces)

    def hits(self, rays: np.ndarray) -> dict[str, np.ndarray]:
        """What Open3D says of where `rays` (..., 6) float32, origins in own coordinates and directions, first hit
        `surface`, by Embree's ray caster, which is built on first use. Thread-safe."""
        with self._lock:
            caster = self._ray_caster
        answers = caster.cast_rays(import_open3d().core.Tensor.from_numpy(rays))
        return {name: values.numpy() for name, values in answers.items()}

    @cached_property
    def _ray_caster(self) -> "open3d.t.geometry.RaycastingScene":
        o3d = import_open3d()
        caster = o3d.t.geometry.RaycastingScene()
        caster.add_triangles(
            o3d.core.Tensor(self.surface.vertices), o3d.core.Tensor(self.surface.faces.astype(np.uint32))
        )
        # Cast a ray to build the BVH while the lock is held: two threads must not build it at once.
        caster.cast_rays(o3d.core.Tensor(np.array([[0, 0, 0, 0, 0, 1]], dtype=np.float32)))
        return caster

    def heights_at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All surfaces on vertical lines through `places` (K, 2), metres: the index of the line (N,), and the height
        (N,), in any order."""
        top = float(self.surface.vertices[:, 2].max()) + 1.0
        down = np.zeros((len(places), 6), dtype=np.float32)
        down[:, :2] = places - self.origin[:2]
        down[:, 2] = top
        down[:, 5] = -1.0
        with self._lock:
            caster = self._ray_caster
        found = caster.list_intersections(import_open3d().core.Tensor.from_numpy(down))
        heights = top - found["t_hit"].numpy().astype(np.float64) + self.origin[2]
        return found["ray_ids"].numpy().astype(np.int64), heights

    def heights_below(self, points: np.ndarray) -> np.ndarray:
        """(K,) heights, metres, of the first surface directly below `points` (K, 3); -inf if there is none."""
        return points[:, 2] - self.cast(points, np.tile([0.0, 0.0, -1.0], (len(points), 1)))

    def cast(self, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """(R,) float32 metres from `origins` (R, 3) along unit `directions` (R, 3) to the first surface, or inf."""
        return self.hits(np.concatenate([self.own(origins), directions], axis=1, dtype=np.float32))["t_hit"]


def _surface_samples(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (K, 3) spread evenly over the faces' area, and a normal (K, 3) of any length and sign at each; the
    vertices and no normals if there is no area."""
    none = vertices[:0]
    if not len(faces):
        return vertices, none
    faces = faces[:: 1 + len(faces) // MAX_FACES_SAMPLED]
    lower, upper = wide_box(vertices)
    near = np.all((vertices >= lower) & (vertices <= upper), axis=1)
    faces = faces[near[faces].all(axis=1)] if not near.all() else faces
    weights = _face_weights(vertices, faces)
    if not weights.sum() > 0:
        return vertices, none
    # Stratified sampling: one random point in each of SURFACE_SAMPLES equal shares of the total weight.
    rng = np.random.default_rng(0)
    shares = (np.arange(SURFACE_SAMPLES) + rng.random(SURFACE_SAMPLES)) / SURFACE_SAMPLES
    cumulative = np.cumsum(weights)
    chosen = faces[np.searchsorted(cumulative, shares * cumulative[-1]).clip(max=len(faces) - 1)]
    a, b = rng.random((2, SURFACE_SAMPLES, 1), dtype=np.float32)
    beyond = a + b > 1
    a = np.where(beyond, 1 - a, a)
    b = np.where(beyond, 1 - b, b)
    corner = vertices[chosen[:, 0]]
    points = corner + a * (vertices[chosen[:, 1]] - corner) + b * (vertices[chosen[:, 2]] - corner)
    return points, face_normals(vertices, chosen)


def _face_weights(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(M,) float64: each face's area times the square of its quality, 4 sqrt(3) area / (a^2 + b^2 + c^2), which is near
    0 for slivers (R. E. Bank, "PLTMG: A Software Package for Solving Elliptic Partial Differential Equations")."""
    corners = vertices[faces]
    edges = np.square(corners - corners[:, [1, 2, 0]]).sum(axis=(1, 2), dtype=np.float64)
    areas = np.linalg.norm(face_normals(vertices, faces), axis=1).astype(np.float64) / 2
    quality = 4 * np.sqrt(3) * areas / np.where(edges > 0, edges, 1.0)
    return areas * np.square(quality)


def make_scene(name: str, geometry: Geometry, origin: np.ndarray | None = None) -> Scene:
    """Build a scene from a geometry with z up; `origin` (3,) of its own coordinates is chosen unless it is given.
    Raises ValueError if no vertex is usable."""
    if origin is None:
        origin = _origin_of(name, geometry.vertices)
    vertices = geometry.vertices.astype(np.float64) - origin if origin.any() else geometry.vertices
    vertices = np.ascontiguousarray(vertices, dtype=np.float32)
    faces = np.ascontiguousarray(geometry.faces, dtype=np.int32)
    geometry = coloured(cleaned(replace(geometry, vertices=vertices, faces=faces)))
    if not len(geometry.vertices):
        raise ValueError("it has no vertex with finite coordinates within 1000 km of most others")
    if len(geometry.faces):
        colours = geometry.colours
        assert colours is not None, "coloured() colours every mesh"
        surface = Surface(geometry.vertices, geometry.faces, colours, geometry.texturing)
        return Scene(name, geometry.vertices, geometry.faces, colours, surface, origin=origin)
    points, point_colours = downsampled(name, geometry.vertices, geometry.colours)
    surface = Surface(*disc_mesh(points, point_colours))
    if point_colours is None:
        point_colours = np.full_like(points, 160, dtype=np.uint8)
    return Scene(name, points, geometry.faces, point_colours, surface, origin=origin)


def _origin_of(name: str, vertices: np.ndarray) -> np.ndarray:
    """(3,) float64: the rounded median of coordinates too large for millimetres in float32, else 0."""
    none = np.zeros(3)
    if not (np.abs(vertices) >= FAR_M).any():  # true for nearly all scans, and much faster than a median
        return none
    finite = vertices[np.isfinite(vertices).all(axis=1)]
    if not len(finite):
        return none
    centre = np.round(np.median(finite, axis=0)).astype(np.float64)
    if np.abs(centre).max() < FAR_M:
        return none
    _log.debug("%s: moved the origin to (%.0f, %.0f, %.0f)", name, *centre)
    step_m = np.spacing(np.abs(centre).max().astype(vertices.dtype))
    if step_m > COARSEST_M:
        why = "its coordinates are stored in steps of %.2g m, which distorts the room"
        _log.warning(f"%s: {why}: export it with doubles, or with a local origin", name, step_m)
    return centre


def _require_size_of_a_room(path: Path, scene: Scene, vertices: np.ndarray, scale: float) -> None:
    """Raise SceneError for a scan that is not a room of a person's size; names the scale if it is in a known unit."""
    extent = scene.size
    longest_m = float(max(Bounds.around(scene.surface_points).extent))  # a lawn counts here
    if MIN_ROOM_M < longest_m < MAX_ROOM_M:
        return
    away = np.abs(vertices - np.median(vertices, axis=0)).max(axis=1)
    far = int((away >= MAX_ROOM_M / 2).sum())
    apart = np.diff(np.sort(away[away >= APART_M / 2]), prepend=APART_M / 2).max(initial=0.0) >= APART_M
    if apart and 0 < far < len(away) / 2:
        why = f"{far:,} of its {len(away):,} points are far from the others, so it spans {extent} m: remove them"
        raise SceneError(f"{path} cannot be used: {why}")
    fix = "set the scale to the metres of its unit"
    for unit, metres in UNITS_M.items():
        if USUAL_ROOM_M[0] < longest_m / scale * metres < USUAL_ROOM_M[1]:
            advice = "leave out the scale" if metres == 1 else f"set the scale to {metres:g}"
            fix = f"if it is in {unit}, {advice}"
            break
    if longest_m >= MAX_ROOM_M:
        fix += f", or if it is so large, cut it into parts of at most {MAX_ROOM_M:g} m"
    scaled = "" if scale == 1 else f" at the given scale of {scale:g}"
    why = f"it spans {extent} m{scaled}, which is not the size of a room: {fix}"
    raise SceneError(f"{path} cannot be used: {why}", setting="scale")


def _why_on_its_side(scene: Scene, up_axis: UpAxis) -> str | None:
    """Why a scan, loaded with `up_axis`, seems not to be upright, and what to try."""
    points, normals = scene.samples
    if not len(normals):  # a cloud, whose discs have normals
        stride = 1 + len(scene.surface.faces) // MAX_FACES_SHOWING_UP
        points, normals = _surface_samples(scene.surface.vertices, scene.surface.faces[::stride])
    side = upper_side(points, normals) if len(normals) else None
    if side is not None and side != (2, 1):
        fix = name_in_file(*side, up_axis)
        how = "hang upside down" if side == (2, -1) else "lie on its side"
        return f"it seems to {how}, judging by its floor and furniture: if it does, set the up axis to {fix}"
    tilt = tilt_deg(normals)
    if tilt is not None:
        why = f"its largest plane is {tilt:.0f} degrees off every axis, so it seems to be tilted, and no up axis"
        return f"{why} sets it upright: level it in a program such as CloudCompare"
    extent = scene.bounds.extent
    if extent[2] <= TALL_ROOM_M or extent.argmin() == 2 or side is not None:
        return None
    axis = name_in_file(int(extent.argmin()), 1, up_axis).removeprefix("-")
    advice = f"if it lies on its side, set the up axis to {axis}, or to -{axis} if it then hangs upside down"
    return f"it spans {scene.size} m, taller than wide: {advice}"


def load_scene(path: str | Path, up_axis: UpAxis = "auto", scale: float = 1.0, as_points: bool = False) -> Scene:
    """Load a PLY, PCD, GLB, GLTF or OBJ file, in metres and rotated so that z is up. `up_axis` is the up axis of the
    file; "auto" means y for glTF, as its specification requires, else z. `scale` is its unit in metres. `as_points`
    makes a cloud of Gaussian splats, which else have as surface the mesh NAME_mesh.ply, .glb, .gltf or .obj beside
    NAME.ply, or their solid points. Raises SceneError, also for a scan that has not the size of a room."""
    path = Path(path)
    up = resolved(up_axis, path)
    try:
        geometry = upright(read_geometry(path), up, scale)
        if geometry.splats and as_points:
            _log.warning("%s: drawing its Gaussian splats as points; the renderer splats draws them", path)
        if geometry.splats is None or as_points:
            scene = make_scene(path.stem, geometry)
        else:
            scene = _splat_scene(path, geometry.splats, up_axis, scale)
    except ValueError as error:
        raise SceneError(f"{path} cannot be used ({error}): download or export it again") from error
    except MemoryError as error:
        raise SceneError(f"{path} does not fit into memory: simplify it, or use a machine with more memory") from error
    _require_size_of_a_room(path, scene, geometry.vertices, scale)
    if wrong := _why_on_its_side(scene, up):
        _log.warning("%s: %s", path, wrong)
    return scene


def upright(geometry: Geometry, up: UpAxis, scale: float) -> Geometry:
    """The geometry in metres, turned so that its axis `up` is z."""
    vertices = geometry.vertices if scale == 1 else geometry.vertices * np.float64(scale)
    splats = geometry.splats and replace(
        geometry.splats,
        means=geometry.splats.means * scale,
        deviations=geometry.splats.deviations * np.float32(scale),
        to_world=turned_upright(np.eye(3), up).T,
    )
    return replace(geometry, vertices=turned_upright(vertices, up), splats=splats)


def _splat_scene(path: Path, splats: Splats, up_axis: UpAxis, scale: float) -> Scene:
    """The scene of a file of splats; raises SceneError for a mesh beside it that cannot be read."""
    points, colours = splats.solid_points()
    origin = _origin_of(path.stem, points)
    splats = replace(splats, means=(splats.means - origin @ splats.to_world).astype(np.float32))
    solid = Geometry(points, NO_FACES, colours)
    meshes = (path.with_name(f"{path.stem}_mesh{suffix}") for suffix in READERS)
    beside = next((mesh for mesh in meshes if mesh.is_file()), None)
    if beside is None:
        return replace(make_scene(path.stem, solid, origin), splats=splats)
    mesh = upright(read_geometry(beside), resolved(up_axis, beside), scale)
    if not len(mesh.faces):
        raise SceneError(f"{beside}, the surface of {path.name}, has no faces: export a mesh, or rename it")
    scene = make_scene(path.stem, mesh, origin)
    off_m = np.abs(solid.vertices - scene.bounds.middle) - scene.bounds.extent / 2
    inside = (off_m < MESH_MARGIN_M).all(axis=1).mean()
    if inside < MESH_INSIDE:
        why = "only %.0f %% of the Gaussians are where the mesh %s is: export both with the same axes, origin and unit"
        _log.warning(f"%s: {why}", path, 100 * inside, beside.name)
    return replace(scene, splats=splats)


class SceneCache:
    """A thread-safe LRU cache of scenes by path and arguments of `load_scene`, of `max_bytes`, or the newest scene."""

    def __init__(self, max_bytes: int, up_axis: UpAxis = "auto", scale: float = 1.0, as_points: bool = False) -> None:
        self.max_bytes = max_bytes
        self._scale = scale
        self._as_points = as_points
        self._up_axis: UpAxis = up_axis
        self._scenes: OrderedDict[Path, Scene] = OrderedDict()
        self._loading: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def get(self, path: str | Path, up_axis: UpAxis | None = None, scale: float | None = None) -> Scene:
        """The scene of this file, whose `up_axis` and `scale` are the same in each call. Raises SceneError."""
        path = Path(path)
        with self._lock:
            loading = self._loading[path]
        with loading:
            scene = self._scenes.get(path)
            if scene is None:
                scale = self._scale if scale is None else scale
                scene = load_scene(path, up_axis or self._up_axis, scale, self._as_points)
            with self._lock:
                self._scenes[path] = scene
                self._scenes.move_to_end(path)
                while len(self._scenes) > 1 and sum(kept.nbytes for kept in self._scenes.values()) > self.max_bytes:
                    self._scenes.popitem(last=False)
        return scene
