"""Coloured solids made of quads, and their triangulation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roomscout.rendering.geometry import compact

Colour = Sequence[float] | np.ndarray  # red, green, blue in 0..255
Point = Sequence[float] | np.ndarray  # x, y, z in metres


@dataclass(frozen=True, eq=False)
class Shape:
    """A surface of flat-coloured quads: `corners` (Q, 4, 3) metres, counter-clockwise seen from outside, and `colours`
    (Q, 3) in 0..255. In a triangle, the last two corners coincide."""

    corners: np.ndarray
    colours: np.ndarray

    @property
    def bounds(self) -> np.ndarray:
        """(2, 3) smallest and largest coordinates, metres."""
        points = self.corners.reshape(-1, 3)
        return np.array([points.min(axis=0), points.max(axis=0)])

    def moved(self, offset: Point) -> "Shape":
        """The shape shifted by `offset` (3,), metres."""
        return Shape(self.corners + np.asarray(offset), self.colours)

    def turned(self, degrees: float, axis: str = "z", about: Point = (0, 0, 0)) -> "Shape":
        """The shape rotated counter-clockwise about the `axis` ("x", "y" or "z") through the point `about`."""
        angle = np.radians(degrees)
        i = "xyz".index(axis)
        j = (i + 1) % 3
        k = (i + 2) % 3
        rotation = np.eye(3)
        rotation[[j, j, k, k], [j, k, j, k]] = [np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)]
        return Shape((self.corners - about) @ rotation.T + about, self.colours)


def join(*shapes: Shape) -> Shape:
    """All shapes as one."""
    return Shape(np.concatenate([s.corners for s in shapes]), np.concatenate([s.colours for s in shapes]))


def quads(corners: np.ndarray, colour: Colour) -> Shape:
    """Quads (Q, 4, 3) of one colour."""
    return Shape(corners, np.tile(np.asarray(colour, dtype=float), (len(corners), 1)))


_BOX_FACES = np.array([[0, 2, 3, 1], [4, 5, 7, 6], [0, 1, 5, 4], [2, 6, 7, 3], [0, 4, 6, 2], [1, 3, 7, 5]])


def box(lo: Point, hi: Point, colour: Colour) -> Shape:
    """An axis-aligned box between two opposite corners."""
    ends = np.array([lo, hi], dtype=float)
    index = np.arange(8)
    corners = np.stack([ends[index & 1, 0], ends[index >> 1 & 1, 1], ends[index >> 2 & 1, 2]], axis=1)
    return quads(corners[_BOX_FACES], colour)


def grid(points: np.ndarray, colour: Colour) -> Shape:
    """The quads between neighbouring points of an (R, C, 3) grid; rows x columns points outward."""
    corners = np.stack([points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]], axis=2)
    return quads(corners.reshape(-1, 4, 3), colour)


def lathe(center: Point, profile: Sequence[tuple[float, float]], colour: Colour, sides: int = 16) -> Shape:
    """A solid of revolution on a vertical axis: `profile` has (radius, height above `center`) pairs in metres, from the
    bottom outwards, up and back to the axis; outside is to its right."""
    angle = np.arange(sides + 1)[:, None] % sides * (2 * np.pi / sides)  # the last point repeats the first
    radius, height = np.array(profile, dtype=float).T
    points = np.stack(np.broadcast_arrays(radius * np.cos(angle), radius * np.sin(angle), height), axis=-1)
    return grid(points, colour).moved(center)


def rod(
    start: Point, end: Point, radius: float, colour: Colour, end_radius: float | None = None, sides: int = 8
) -> Shape:
    """A capped cylinder, or a cone frustum if `end_radius` is given, between two points."""
    a = np.asarray(start, dtype=float)
    b = np.asarray(end, dtype=float)
    length = float(np.linalg.norm(b - a))
    last = radius if end_radius is None else end_radius
    upright = lathe((0, 0, 0), [(0, 0), (radius, 0), (last, length), (0, length)], colour, sides)
    w = (b - a) / length
    helper = [0.0, 1.0, 0.0] if abs(w[1]) < 0.9 else [1.0, 0.0, 0.0]
    u = np.cross(helper, w)
    u /= np.linalg.norm(u)
    return Shape(upright.corners @ np.stack([u, np.cross(w, u), w]) + a, upright.colours)


def ellipsoid(center: Point, radii: Point, colour: Colour, sides: int = 12) -> Shape:
    """An axis-aligned ellipsoid; `radii` (3,) in metres."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, sides // 2 + 1)
    unit = lathe((0, 0, 0), list(zip(np.cos(angle), np.sin(angle), strict=True)), colour, sides)
    return Shape(unit.corners * np.asarray(radii) + np.asarray(center), unit.colours)


def cushion(lo: Point, hi: Point, colour: Colour, steps: int = 6) -> Shape:
    """A pillow that fills the given bounds: thick in the middle, thin at the seam around it."""
    low = np.array(lo, dtype=float)
    high = np.array(hi, dtype=float)
    u, v = np.meshgrid(*[np.linspace(-1, 1, steps + 1)] * 2, indexing="ij")
    bulge = ((1 - np.abs(u) ** 3) * (1 - np.abs(v) ** 3)) ** 0.5
    flat = np.stack([u, v], axis=-1)
    middle = (low + high) / 2
    half = (high - low) / 2
    top = np.concatenate([flat, bulge[..., None]], axis=-1) * half + middle
    bottom = np.concatenate([flat, -bulge[..., None]], axis=-1) * half + middle
    return join(grid(top, colour), grid(bottom.transpose(1, 0, 2), colour))


def basin(lo: Point, hi: Point, rim: float, depth: float, colour: Colour, inside: Colour) -> Shape:
    """A box with a hollow in its top, `depth` metres deep, and walls `rim` metres thick at the top."""
    x0, y0, z0 = lo
    x1, y1, z1 = hi
    outer = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
    middle = outer.mean(axis=0)
    edge = outer - rim * np.sign(outer - middle)
    floor = edge - np.minimum(rim, depth / 2) * np.sign(outer - middle)

    def band(a: np.ndarray, za: float, b: np.ndarray, zb: float, tint: Colour) -> Shape:
        lower = np.insert(a, 2, za, axis=1)
        upper = np.insert(b, 2, zb, axis=1)
        return quads(np.stack([lower, np.roll(lower, -1, 0), np.roll(upper, -1, 0), upper], axis=1), tint)

    return join(
        band(outer, z0, outer, z1, colour),
        band(outer, z1, edge, z1, colour),
        band(edge, z1, floor, z1 - depth, inside),
        quads(np.insert(floor, 2, z1 - depth, axis=1)[None], inside),
    )


def triangulate(shape: Shape, resolution_m: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide every quad into a grid with steps of at most `resolution_m`, two triangles per cell. Returns vertices (N,
    3) float64, non-degenerate faces (M, 3), and the quad of each vertex (N,)."""
    c = shape.corners
    edge = np.linalg.norm(np.roll(c, -1, axis=1) - c, axis=2)
    longest = np.maximum(edge[:, :2], edge[:, 2:])
    steps = np.maximum(np.ceil(longest / resolution_m).astype(int), 1)
    vertices, faces, quad_of, count = [], [], [], 0
    for nu, nv in np.unique(steps, axis=0):
        index = np.flatnonzero((steps == (nu, nv)).all(axis=1))
        # A bilinear grid of (nu + 1) x (nv + 1) points on each quad, and the triangles of one.
        u, v = np.meshgrid(np.linspace(0, 1, nu + 1), np.linspace(0, 1, nv + 1), indexing="ij")
        weights = np.stack([(1 - u) * (1 - v), u * (1 - v), u * v, (1 - u) * v]).reshape(4, -1)
        grids = np.einsum("cp,qck->qpk", weights, c[index])
        first = (np.arange(nu)[:, None] * (nv + 1) + np.arange(nv)).reshape(-1, 1)
        cells = np.concatenate([first + np.array([0, nv + 1, nv + 2]), first + np.array([0, nv + 2, 1])])
        vertices.append(grids.reshape(-1, 3))
        faces.append((cells[None] + np.arange(len(index))[:, None, None] * grids.shape[1]).reshape(-1, 3) + count)
        quad_of.append(np.repeat(index, grids.shape[1]))
        count += len(vertices[-1])
    points = np.concatenate(vertices)
    triangles = np.concatenate(faces)
    a, b, c = (points[triangles[:, i]] for i in range(3))
    has_area = np.linalg.norm(np.cross(b - a, c - a), axis=1) > 1e-9  # false at the poles of solids of revolution
    triangles, points, quad_of_point = compact(triangles[has_area], points, np.concatenate(quad_of))
    return points, triangles, quad_of_point


def normals(shape: Shape) -> np.ndarray:
    """(Q, 3) unit outward normals."""
    c = shape.corners
    cross = np.cross(c[:, 2] - c[:, 0], c[:, 3] - c[:, 1])
    return cross / np.maximum(np.linalg.norm(cross, axis=1, keepdims=True), 1e-12)
