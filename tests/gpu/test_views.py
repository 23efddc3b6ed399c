"""Views drawn on a GPU."""

from collections.abc import Callable

import pytest

from benchmarks.gpu.lab import Lab
from roomscout.rendering.renderers.pyrender_egl import cuda_ordinals

Record = Callable[[str, object], None]


def test_the_gpu_has_an_egl_device(lab: Lab, record_property: Record) -> None:
    try:
        ordinals = cuda_ordinals()
    except OSError as error:
        pytest.skip(f"EGL is not available: {error}")
    if not ordinals:
        pytest.skip("EGL has no devices: no EGL driver is installed")
    record_property("finding", f"CUDA ordinals of EGL devices: {ordinals}")
    assert not lab.is_cuda or lab.device.index in ordinals


def test_pyrender_draws_on_a_gpu(lab: Lab, record_property: Record) -> None:
    if not lab.is_cuda:
        pytest.skip("needs a GPU")
    for module in ("open3d", "pyrender"):
        pytest.importorskip(module)
    from benchmarks.renderers import measure, poses, room
    from roomscout.rendering.camera import Intrinsics

    row = measure("pyrender", room(200_000), Intrinsics(640, 480, focal_px=300.0), poses(12))
    summary = f"{row.view_ms:.1f} ms per view of {row.faces:,} faces, the first {row.first_view_ms:.0f} ms"
    record_property("finding", f"{summary}, by {row.device}")
    assert not any(word in row.device.lower() for word in ("llvmpipe", "softpipe", "swrast", "software"))
