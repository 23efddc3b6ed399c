"""`RoomEnv` in the shapes that other trainers take: one module for each, imported by those who use it.

`roomscout.training.faces.gymnasium` needs the library gymnasium, and so on. Each module says what it offers.
"""

import base64
import io
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from PIL import Image

from roomscout.base.extras import importing
from roomscout.training.environment import RoomEnv, Step


class LibraryMissing(ImportError):
    """A face's library is not installed; the message says how to install it."""


def library(name: str) -> AbstractContextManager[None]:
    """Raise LibraryMissing for a library, or one that it needs, that the block cannot import."""
    return importing(name, f"roomscout.training.faces.{name}", LibraryMissing)


def shared_env(settings: Mapping[str, Any]) -> RoomEnv:
    """An environment that shares scans and renderer with all of this process that have the same settings.

    For trainers that make an environment for each episode. The settings are plain values, as in a configuration file.
    """
    return _first(json.dumps(settings, sort_keys=True)).another()


@cache
def _first(settings: str) -> RoomEnv:
    return RoomEnv(**json.loads(settings))


def plain_info(step: Step) -> dict[str, Any]:
    """The facts of a step that are plain values: all but its turn, which `RoomEnv.state` has."""
    return {name: value for name, value in step.info.items() if name != "turn"}


def png_base64(image: Image.Image) -> str:
    """An image as a PNG file in base64."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode("ascii")
