"""Gaussian splats: 3D Gaussians with opacities and view-dependent colours, as radiance fields are stored.

Format: point_cloud.ply of B. Kerbl et al., "3D Gaussian Splatting for Real-Time Radiance Field Rendering", 2023, which
nerfstudio and Postshot write, too.
"""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roomscout.rendering.discs import CLOUD_MAX_POINTS
from roomscout.rendering.geometry import MAX_COORDINATE_M
from roomscout.rendering.tables import HARMONICS, SH_C0, Table, by_plain_name, colours, plain_name

_log = logging.getLogger(__name__)

_SHAPE = ("opacity", "scale_0", "scale_1", "rot_0", "rot_1", "rot_2", "rot_3")
_NUMBERS_OF_REST = (0, 9, 24, 45)
SOLID_OPACITY, _SOLID_PERCENTILE = 0.5, 90.0  # Gaussians so opaque are solid; if they are few, the most opaque tenth
# A floater's third neighbour is farther than this many of its deviations, and than this many medians.
_NEIGHBOURS, _FAR_DEVIATIONS, _FAR_MEDIANS = 3, 6.0, 5.0
_REACH, _MOST_POINTS = 1.5, 64  # how many deviations a solid Gaussian reaches; the larger ones are so many points


@dataclass(frozen=True, eq=False)
class Splats:
    """N Gaussians in the axes of their file, float32."""

    means: np.ndarray  # (N, 3) metres; float64 if the file has doubles
    quaternions: np.ndarray  # (N, 4) of length 1, w first
    deviations: np.ndarray  # (N, 3) metres along the axes that the quaternions turn
    opacities: np.ndarray  # (N,) 0 to 1
    harmonics: np.ndarray  # (N, K, 3): per channel, coefficients of K = 1, 4, 9 or 16 real spherical harmonics
    to_world: np.ndarray  # (3, 3) turns the file's axes to the world's

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values())

    @property
    def roots(self) -> np.ndarray:
        """(N, 3, 3): the columns are each Gaussian's axes, as long as its deviations along them."""
        from scipy.spatial.transform import Rotation

        return Rotation.from_quat(self.quaternions[:, [1, 2, 3, 0]]).as_matrix() * self.deviations[:, None, :]

    def only(self, keep: np.ndarray) -> "Splats":
        """The Gaussians that `keep`, a mask or indices, selects."""
        rows = {name: array[keep] for name, array in vars(self).items() if name != "to_world"}
        return replace(self, **rows)

    def solid_points(self) -> tuple[np.ndarray, np.ndarray]:
        """World points (K, 3) spread over the solid Gaussians, of larger ones more, and their colours (K, 3) uint8,
        without floaters, which have no solid neighbours."""
        from scipy.spatial import cKDTree

        solid = self.only(self.opacities >= min(SOLID_OPACITY, np.percentile(self.opacities, _SOLID_PERCENTILE)))
        if len(solid.means) > _NEIGHBOURS:
            distances = cKDTree(solid.means).query(solid.means, k=_NEIGHBOURS + 1, workers=-1)[0][:, -1]
            near = np.maximum(_FAR_DEVIATIONS * solid.deviations.max(axis=1), _FAR_MEDIANS * np.median(distances))
            solid = solid.only(distances <= near)
        area = np.sort(solid.deviations, axis=1)[:, 1:].prod(axis=1)
        unit = max(np.median(area), area.clip(max=_MOST_POINTS * np.median(area)).sum() / CLOUD_MAX_POINTS, 1e-12)
        counts = np.ceil(area / unit).clip(1, _MOST_POINTS).astype(np.int64)
        index = np.repeat(np.arange(len(counts)), counts)
        offsets = np.random.default_rng(0).uniform(-_REACH, _REACH, (len(index), 3))
        offsets[np.cumsum(counts) - 1] = 0  # the centre itself
        points = solid.means[index] + np.einsum("kij,kj->ki", solid.roots[index], offsets)
        base = (0.5 + SH_C0 * solid.harmonics[index, 0]).clip(0, 1)
        return points @ self.to_world.T, (base * 255 + 0.5).astype(np.uint8)


def are_splats(names: Iterable[str]) -> bool:
    """Whether columns of these names hold Gaussian splats."""
    return {plain_name(name) for name in names} >= set(_SHAPE)


def read_splats(path: Path, table: Table, points: np.ndarray) -> Splats | None:
    """The Gaussians of a table with `points` (N, 3); None if they are to be drawn as points. Scales are logarithms, the
    opacity is a logit, and all harmonics of red come first. Without f_dc, takes the table's colours, or grey; without
    scale_2, the Gaussians are flat. Drops rows with NaN, or with sizes or coordinates beyond MAX_COORDINATE_M, and
    takes a quaternion of zeros as no rotation. Files with another number of harmonics than a degree up to 3 has, or
    without a row left, are points. Warns of all this."""
    columns = by_plain_name(table)
    if not are_splats(columns):
        return None
    rest = sorted((name for name in columns if re.fullmatch(r"f_rest_\d+", name)), key=lambda name: int(name[7:]))
    if len(rest) not in _NUMBERS_OF_REST:
        why = "drawing its Gaussians as points: it has %d columns f_rest, and degrees 0 to 3 have 0, 9, 24 or 45"
        _log.warning(f"%s: {why}", path, len(rest))
        return None
    if not columns.keys() >= set(HARMONICS):
        rgb = colours(table)
        if rgb is None:
            rgb = np.full((len(points), 3), 128)
        columns |= zip(HARMONICS, (rgb.T / 255 - 0.5) / SH_C0, strict=True)
    columns.setdefault("scale_2", np.full(len(points), -np.inf))

    def stacked(*names: str) -> np.ndarray:
        return np.stack([columns[name] for name in names], axis=1, dtype=np.float32, casting="unsafe")

    higher = len(rest) // 3
    channels = [stacked(name, *rest[i * higher : (i + 1) * higher]) for i, name in enumerate(HARMONICS)]
    harmonics = np.stack(channels, axis=2)
    opacity = stacked("opacity")[:, 0]
    logs = stacked("scale_0", "scale_1", "scale_2")
    turns = stacked("rot_0", "rot_1", "rot_2", "rot_3")
    kept = np.isfinite(harmonics).all(axis=(1, 2)) & np.isfinite(turns).all(axis=1) & ~np.isnan(opacity)
    away = np.abs(points - np.nanmedian(points, axis=0))
    kept &= (logs < np.log(MAX_COORDINATE_M)).all(axis=1) & (away < MAX_COORDINATE_M).all(axis=1)
    if not kept.any():
        _log.warning("%s: drawing its Gaussians as points: all have NaN or are too large", path)
        return None
    lengths = np.linalg.norm(turns, axis=1, keepdims=True)
    unturned = kept & (lengths[:, 0] == 0)
    if unturned.any() or not kept.all():
        what = "of %d Gaussians, dropped %d with NaN or too large; %d have a rotation of zeros, taken as none"
        _log.warning(f"%s: {what}", path, len(kept), np.count_nonzero(~kept), np.count_nonzero(unturned))
    turns = np.where(lengths > 0, turns / lengths.clip(1e-30), np.array([1, 0, 0, 0], np.float32))
    opacities = 1 / (1 + np.exp(-opacity.clip(-80, 80)))
    return Splats(points, turns, np.exp(logs), opacities, harmonics, np.eye(3)).only(kept)
