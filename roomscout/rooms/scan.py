"""Turns a room's shapes into a mesh that looks like a 3D scan: dense, vertex-coloured, uneven, with holes."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from roomscout.rendering.geometry import compact
from roomscout.rooms.geometry import points_in_polygon
from roomscout.rooms.placement import RoomObject
from roomscout.rooms.shapes import Shape, join, normals, quads, triangulate

COLOUR_NOISE = 5.0  # standard deviation per vertex and channel, of 255
SHELL = -1  # `object_index` of floor and walls
MAX_HOLE_SHARE = 0.25  # of an object's surface, so that it stays recognisable
PLANK_M = 0.2
SKIRTING_M = 0.09


@dataclass(frozen=True)
class ScanStyle:
    """The quality of a scan: mesh resolution and RMS displacement in metres, and holes; ValueError if implausible."""

    resolution_m: float = 0.05
    noise_m: float = 0.0
    holes: int = 0

    def __post_init__(self) -> None:
        if not 0.01 <= self.resolution_m <= 1.0:
            raise ValueError(f"resolution must be from 0.01 to 1 metre, not {self.resolution_m}")
        if not 0.0 <= self.noise_m <= 0.1:
            raise ValueError(f"noise must be from 0 to 0.1 metre, not {self.noise_m}")
        if not 0 <= self.holes <= 1000:
            raise ValueError(f"holes must be from 0 to 1000, not {self.holes}")


@dataclass(frozen=True, eq=False)
class RoomMesh:
    """A scanned surface: `vertices` (N, 3) float32 metres, `faces` (M, 3) int32, `colours` (N, 3) uint8. Read-only.
    `object_index` (N,) int32 is the index in `Room.objects` of each vertex's object, -1 for floor and walls."""

    vertices: np.ndarray
    faces: np.ndarray
    colours: np.ndarray
    object_index: np.ndarray

    def __post_init__(self) -> None:
        for array in (self.vertices, self.faces, self.colours, self.object_index):
            array.setflags(write=False)


def shell(polygon: np.ndarray, height: float, floor_tone: np.ndarray, wall_tone: np.ndarray, rng: Generator) -> Shape:
    """Floor planks and one-sided walls of a counter-clockwise polygon (P, 2) with axis-parallel edges; no ceiling,
    which people rarely scan and which would hide the room from above."""
    xs = np.unique(polygon[:, 0])
    ys = np.unique(polygon[:, 1])
    parts = []
    for x0, x1 in itertools.pairwise(xs):
        for y0, y1 in itertools.pairwise(ys):
            if points_in_polygon(np.array([[(x0 + x1) / 2, (y0 + y1) / 2]]), polygon)[0]:
                parts.append(_planks(x0, y0, x1, y1, floor_tone, rng))
    for (ax, ay), (bx, by) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        for low, high, tone in ((0.0, SKIRTING_M, floor_tone * 0.6), (SKIRTING_M, height, wall_tone)):
            face = np.array([[[bx, by, low], [ax, ay, low], [ax, ay, high], [bx, by, high]]])
            parts.append(quads(face, tone))
    return join(*parts)


def _planks(x0: float, y0: float, x1: float, y1: float, tone: np.ndarray, rng: Generator) -> Shape:
    edges = np.append(np.arange(y0, y1, PLANK_M), y1)
    planks = [
        [[x0, low, 0.0], [x1, low, 0.0], [x1, high, 0.0], [x0, high, 0.0]] for low, high in itertools.pairwise(edges)
    ]
    return Shape(np.array(planks), np.clip(tone * rng.uniform(0.88, 1.08, (len(planks), 1)), 0, 255))


def scan(surround: Shape, objects: Sequence[RoomObject], style: ScanStyle, rng: Generator) -> RoomMesh:
    """The mesh of floor, walls and objects, with lighting baked into the vertex colours."""
    shapes = [surround, *(item.surface for item in objects)]
    whole = join(*shapes)
    index_of_quad = np.repeat(np.arange(SHELL, len(objects)), [len(shape.corners) for shape in shapes])
    vertices, faces, quad = triangulate(whole, style.resolution_m)
    azimuth = rng.uniform(0, 2 * np.pi)
    object_index = index_of_quad[quad]
    colours = _lit(whole, vertices, quad, object_index == SHELL, objects, azimuth)
    colours += rng.normal(0.0, COLOUR_NOISE, colours.shape)
    if style.noise_m:
        vertices = vertices + style.noise_m * _drift(vertices, rng)
    if style.holes:
        faces = _punch_holes(vertices, faces, object_index, style.holes, rng)
    return _mesh_of(faces, vertices, colours, object_index)


def scan_by_part(
    surround: Shape,
    objects: Sequence[RoomObject],
    numbers: Sequence[int],
    style: ScanStyle,
    hole_m2: float,
    seed: Sequence[int],
) -> RoomMesh:
    """As `scan`, but what is random of an object depends on its number alone: in two rooms with the same seed, an
    object of the same number is the same to the byte, and so are floor and walls but for shadows. `hole_m2` of surface
    have one hole, on average."""
    azimuth = np.random.default_rng([*seed, 0]).uniform(0, 2 * np.pi)
    parts = []
    count = 0
    for place, shape in enumerate([surround, *(item.surface for item in objects)], start=SHELL):
        rng = np.random.default_rng([*seed, 1 if place == SHELL else 2 + numbers[place]])
        vertices, faces, quad = triangulate(shape, style.resolution_m)
        object_index = np.full(len(vertices), place)
        colours = _lit(shape, vertices, quad, object_index == SHELL, objects, azimuth)
        colours += rng.normal(0.0, COLOUR_NOISE, colours.shape)
        if style.noise_m:  # the same field for all parts, so that what touches still does
            vertices = vertices + style.noise_m * _drift(vertices, np.random.default_rng([*seed, 0]))
        holes = int(rng.poisson(area_m2(shape) / hole_m2))
        faces = _punch_holes(vertices, faces, object_index, holes, rng)
        parts.append((faces + count, vertices, colours, object_index))
        count += len(vertices)
    faces, vertices, colours, object_index = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return _mesh_of(faces, vertices, colours, object_index)


def _lit(
    shape: Shape,
    vertices: np.ndarray,
    quad: np.ndarray,
    is_shell: np.ndarray,
    objects: Sequence[RoomObject],
    azimuth: float,
) -> np.ndarray:
    """(N, 3) colours of vertices under soft light from above and from one side, so that the faces of a solid differ."""
    to_light = np.array([0.5 * np.cos(azimuth), 0.5 * np.sin(azimuth), 0.8])
    side = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
    normal = normals(shape)
    brightness = np.clip(0.78 + 0.24 * normal @ to_light + 0.07 * normal @ side, 0.35, 1.05)
    colours = shape.colours[quad] * brightness[quad, None]
    return colours * _contact_shadow(vertices, normal[quad, 2] > 0.5, is_shell, objects)[:, None]


def _mesh_of(faces: np.ndarray, vertices: np.ndarray, colours: np.ndarray, object_index: np.ndarray) -> RoomMesh:
    faces, vertices, colours, object_index = compact(faces, vertices, colours, object_index)
    rgb = np.clip(np.rint(colours), 0, 255).astype(np.uint8)
    return RoomMesh(vertices.astype(np.float32), faces.astype(np.int32), rgb, object_index.astype(np.int32))


def area_m2(shape: Shape) -> float:
    """Square metres of all quads: of each, two triangles."""
    first, second, third, fourth = np.moveaxis(shape.corners, 1, 0)
    halves = (np.cross(second - first, third - first), np.cross(third - first, fourth - first))
    return float(sum(np.linalg.norm(half, axis=1).sum() for half in halves) / 2)


def _contact_shadow(
    vertices: np.ndarray, upward: np.ndarray, is_shell: np.ndarray, objects: Sequence[RoomObject]
) -> np.ndarray:
    """(N,) brightness: the floor is darker below and beside objects, walls are slightly darker near the floor."""
    factor = np.where(is_shell & ~upward, 1 - 0.15 * np.exp(-vertices[:, 2] / 0.3), 1.0)
    floor = np.flatnonzero(is_shell & upward)
    points = vertices[floor]
    for box in (item.box for item in objects):
        if box.bottom < 0.3:
            outside = np.abs(box.local(points))[:, :2] - np.array(box.size[:2]) / 2
            distance = np.linalg.norm(np.maximum(outside, 0), axis=1)
            factor[floor] = np.minimum(factor[floor], 1 - 0.4 * np.exp(-distance / 0.08))
    return factor


def _drift(points: np.ndarray, rng: Generator, count: int = 24) -> np.ndarray:
    """(N, 3) displacement of RMS length 1 that moves neighbours together, which keeps surfaces closed."""
    direction = rng.normal(size=(count, 3))
    direction *= (2 * np.pi / rng.uniform(0.3, 1.0, (count, 1))) / np.linalg.norm(direction, axis=1, keepdims=True)
    phase = rng.uniform(0, 2 * np.pi, count)
    push = rng.normal(size=(count, 3))
    wave = np.sin(points @ direction.T + phase) @ push
    return wave / np.sqrt((push**2).sum() / 2)


def _punch_holes(
    vertices: np.ndarray, faces: np.ndarray, object_index: np.ndarray, count: int, rng: Generator
) -> np.ndarray:
    """Remove random ragged patches of faces; each spares objects that would lose more than MAX_HOLE_SHARE to it."""
    centres = vertices[faces].mean(axis=1)
    for _ in range(count):
        middle = vertices[faces[rng.integers(len(faces)), 0]]
        radius = rng.uniform(0.1, 0.35) * rng.uniform(0.8, 1.2, len(faces))
        in_patch = np.linalg.norm(centres - middle, axis=1) < radius
        group = object_index[faces[:, 0]] - SHELL
        total = np.bincount(group)
        removed = np.bincount(group[in_patch], minlength=len(total))
        spared = (removed > MAX_HOLE_SHARE * total) & (np.arange(len(total)) > 0)  # group 0 is floor and walls
        kept = ~in_patch | spared[group]
        faces = faces[kept]
        centres = centres[kept]
    return faces
