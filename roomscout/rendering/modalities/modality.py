"""The Modality record: a kind of image that --see adds to each observation."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics

if TYPE_CHECKING:
    from roomscout.rendering.renderers.base import Renderer
    from roomscout.rendering.scene import Scene


@dataclass(frozen=True)
class Modality:
    """A kind of image: its name, how it is drawn, and what the system prompt says of it.

    `draw` returns (H, W, 3) uint8 RGB and raises RenderError. The name is part of file names; raises ValueError for one
    that is not lower-case letters and digits.
    """

    name: str
    draw: Callable[["Renderer", "Scene", CameraPose, Intrinsics], np.ndarray]
    sentence: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z][a-z0-9]{0,39}", self.name):
            raise ValueError(f"a modality's name has lower-case letters and digits, at most 40, not {self.name!r}")
