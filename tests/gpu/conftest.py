"""The device and models for tests that need a GPU.

They need only torch, transformers, numpy, Pillow, pydantic, rich and pytest. `--device cpu` runs them with tiny
models and simulates running out of memory: that tests the tests, not a GPU.
"""

from collections.abc import Iterator

import pytest
import torch

from benchmarks.gpu.lab import Lab, open_lab


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cuda", help="where tests/gpu run: cuda, cuda:N or cpu (default cuda)")


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[Lab]:
    # The option is unknown to pytest when this folder is not named on the command line.
    device = pytestconfig.getoption("device", default="cuda")
    if device.startswith("cuda") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device (pytest tests/gpu --device cpu runs it with tiny models)")
    with open_lab(device) as lab:
        yield lab
