"""The first view of a scan, drawn in a child process while this one imports the libraries of a model."""

import io
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Self

from roomscout import UpAxis
from roomscout.base.processes import environment
from roomscout.envs.library import CameraSettings, draw_first_view
from roomscout.rendering.renderers.splats import SplatRenderer
from roomscout.rendering.scene import load_scene


@dataclass(frozen=True)
class FirstLookSettings:
    """The scan file and the camera of its first view, as for the views of a run."""

    scan: str
    up_axis: UpAxis
    scale: float
    camera: CameraSettings

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings of `json.dumps(asdict(settings))`."""
        values = json.loads(text)
        camera = values.pop("camera")
        return cls(
            **values, camera=CameraSettings(tuple(camera.pop("image_size")), see=tuple(camera.pop("see")), **camera)
        )


@dataclass(frozen=True)
class FirstLook:
    """The first view as a PNG, the size of the room in words, and the seconds since the drawing was started."""

    png: bytes
    size: str
    seconds: float


class FirstLookProcess:
    """Draws the first view in a child process and passes it to `drawn`, on a thread.

    The CPU draws the view, whatever renderer the run uses. `drawn` is not called if the scan cannot be drawn: the run
    then says why. Leaving the `with` block ends the child.
    """

    def __init__(self, settings: FirstLookSettings, drawn: Callable[[FirstLook], None]) -> None:
        self._started = time.perf_counter()
        # A new session keeps Ctrl-C from reaching the child.
        self._child = subprocess.Popen(
            [sys.executable, "-m", "roomscout.envs.first_look", json.dumps(asdict(settings))],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._drawn = drawn
        self._thread = threading.Thread(target=self._wait, name="first-look", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._thread.join()

    def join(self) -> None:
        """Wait until the view is drawn, or cannot be."""
        self._thread.join()

    def _wait(self) -> None:
        assert self._child.stdout is not None, "the child writes to a pipe"
        with self._child.stdout as output:
            heading, png = output.readline(), output.read()
        if self._child.wait() == 0:
            self._drawn(FirstLook(png, json.loads(heading)["size"], time.perf_counter() - self._started))


def draw(settings: FirstLookSettings) -> tuple[str, bytes]:
    """The size of the scan's room in words, and its first view as a PNG; raises SceneError or RenderError."""
    from PIL import Image

    scene = load_scene(settings.scan, settings.up_axis, settings.scale)
    view = draw_first_view(scene, SplatRenderer(), settings.camera)
    png = io.BytesIO()
    Image.fromarray(view.image).save(png, format="PNG", compress_level=1)
    return scene.size, png.getvalue()


if __name__ == "__main__":
    logging.disable()  # the run reports what is wrong with the scan
    words, picture = draw(FirstLookSettings.from_json(sys.argv[1]))
    sys.stdout.buffer.write(json.dumps({"size": words}).encode() + b"\n" + picture)
