"""The cache of scenes loads each file once and keeps to its size."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import trimesh

from roomscout.rendering.scene import Scene, SceneCache, load_scene


@pytest.fixture
def scans(tmp_path):
    """Five files of the same size."""
    square = trimesh.Trimesh(np.float32([[0, 0, 0], [1, 0, 0], [1, 2, 0], [0, 2, 0.5]]), [[0, 1, 2], [0, 2, 3]])
    paths = [tmp_path / f"{name}.ply" for name in "abcde"]
    for path in paths:
        path.write_bytes(square.export(file_type="ply"))
    return paths


def test_the_cache_loads_once_and_evicts_the_least_recently_used(scans):
    size = load_scene(scans[0]).nbytes
    cache = SceneCache(max_bytes=2 * size)
    first, second = cache.get(scans[0]), cache.get(scans[1])
    assert cache.get(scans[0]) is first
    cache.get(scans[2])
    assert cache.get(scans[0]) is first
    assert cache.get(scans[1]) is not second


def test_the_cache_frees_evicted_scenes(scans):
    cache = SceneCache(max_bytes=1)
    alive = [weakref.ref(cache.get(path)) for path in scans]
    gc.collect()
    assert [scene() is not None for scene in alive] == [False, False, False, False, True]


def test_concurrent_requests_load_a_scene_once(scans):
    cache = SceneCache(max_bytes=10**9)
    barrier = threading.Barrier(8)

    def get(index: int) -> Scene:
        barrier.wait()
        return cache.get(scans[index % 2])

    with ThreadPoolExecutor(8) as pool:
        assert len({id(scene) for scene in pool.map(get, range(8))}) == 2
