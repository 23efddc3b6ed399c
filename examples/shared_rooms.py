"""What the examples of trainers share: environments that share their scans, and images as text."""

import base64
import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from PIL import Image

from roomscout import RoomEnv

ROOMS = {"questions": "rooms/questions.jsonl", "scan_root": "rooms", "model": "embedded", "renderer": "raycast"}
"""The settings of the examples, for rooms that `write_rooms(Path("rooms"), rooms=1, seed=1)` makes."""
LOOK = 'I look. {"rotation_angle_degrees": 90, "answer": null, "done": false}'
DONE = 'There are two. {"answer": "2", "done": true}'
"""Scripted replies to the first question of these rooms."""


def shared_env(settings: Mapping[str, Any]) -> RoomEnv:
    """An environment that shares scans and renderer with all of this process that have the same settings.

    For trainers that make an environment for each episode. The settings are plain values, as in a configuration file.
    """
    return _first(json.dumps(settings, sort_keys=True)).another()


@cache
def _first(settings: str) -> RoomEnv:
    return RoomEnv(**json.loads(settings))


def png_base64(image: Image.Image) -> str:
    """An image as a PNG file in base64."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode("ascii")
