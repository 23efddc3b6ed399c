"""The shortest free paths of a camera between the places of a grid, in straight moves that nothing stops."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree

from roomscout.rendering.motion import free_m
from roomscout.rendering.scene import Scene

GRID_M = 0.3
_SAME_M = 0.001
_AT_ONCE = 20_000  # moves whose rays are cast together


@dataclass(frozen=True, eq=False)
class Paths:
    """The shortest paths from a start (3,), at its height, in moves of at most `most_m` each. A path leads over a grid
    of 0.3 m, so that it is at most some percent longer than the shortest of all."""

    scene: Scene
    start: np.ndarray
    most_m: float

    @cached_property
    def places(self) -> np.ndarray:
        """(P, 3): the start, then the grid within the bounds of its storey."""
        bounds = self.scene.storey_at(self.start[2]).bounds
        (x0, y0, _) = bounds.lower
        (x1, y1, _) = bounds.upper
        x, y = np.meshgrid(np.arange(x0, x1, GRID_M) + GRID_M / 2, np.arange(y0, y1, GRID_M) + GRID_M / 2)
        grid = np.stack([x.ravel(), y.ravel(), np.full(x.size, self.start[2])], axis=1)
        return np.concatenate([self.start[None], grid])

    @cached_property
    def lengths(self) -> np.ndarray:
        """(P,) metres of the shortest path to each place; inf where there is none."""
        return self._shortest[0]

    @cached_property
    def _shortest(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = KDTree(self.places).query_pairs(self.most_m, output_type="ndarray")
        both = np.concatenate([pairs, pairs[:, ::-1]])
        free = self._is_free(self.places[both[:, 0]], self.places[both[:, 1]])
        starts, ends = both[free].T
        metres = np.linalg.norm(self.places[ends] - self.places[starts], axis=1)
        graph = csr_matrix((metres, (starts, ends)), shape=(len(self.places),) * 2)
        return dijkstra(graph, indices=0, return_predecessors=True)

    def to(self, goal: np.ndarray) -> list[np.ndarray] | None:
        """The places (3,) of the shortest path to a goal (3,) at any height, without the start; None without one."""
        away = np.linalg.norm(self.places - goal, axis=1)
        near = np.flatnonzero((away <= self.most_m) & np.isfinite(self.lengths))
        near = near[self._is_free(self.places[near], np.repeat(goal[None], len(near), axis=0))]
        if not len(near):
            return None
        place = int(near[np.argmin(self.lengths[near] + away[near])])
        path = [goal]
        while place > 0:
            if np.linalg.norm(self.places[place] - path[-1]) > _SAME_M:
                path.append(self.places[place])
            place = int(self._shortest[1][place])
        return path[::-1]

    def _is_free(self, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """(N,) whether nothing stops the move from each start to its goal, (N, 3) each."""
        steps = goals - starts
        bounds = self.scene.bounds
        metres = np.linalg.norm(steps, axis=1)
        ahead = np.where(metres[:, None] > 0, steps, [1.0, 0.0, 0.0]) / np.where(metres > 0, metres, 1.0)[:, None]
        free = np.empty(len(steps))
        for first in range(0, len(steps), _AT_ONCE):
            block = slice(first, first + _AT_ONCE)
            free[block] = free_m(self.scene, starts[block], ahead[block])
        inside = ((goals >= bounds.lower) & (goals <= bounds.upper)).all(axis=1)
        return inside & ((free >= metres) | (metres == 0))


def length_m(start: np.ndarray, path: list[np.ndarray]) -> float:
    """The metres of a path from a start."""
    return float(sum(np.linalg.norm(after - before) for before, after in zip([start, *path], path, strict=False)))
