"""Renders in a child process, because graphics drivers can crash or hang their process, as `eglInitialize` has done.

A crash only ends the child, and a child that hangs is killed after a time limit.
"""

import logging
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from roomscout.base.interrupts import undone_on_failure
from roomscout.base.processes import environment
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.registry import RENDERERS
from roomscout.rendering.renderers.base import BACKGROUND_RGB, RenderError
from roomscout.rendering.scene import Scene, Surface

if TYPE_CHECKING:
    from roomscout.rendering.renderers.pyrender_egl import PyrenderPainter

_log = logging.getLogger(__name__)

START_LIMIT_S = 60.0
VIEW_LIMIT_S = 60.0


class ChildRenderer:
    """Renders with a class such as PyrenderPainter in a child process, see `Renderer`. A new child must first render a
    test image; after a crash or timeout the view is tried once in another child, then raises RenderError."""

    def __init__(self, name: str, cuda_device: int | None = None, view_limit_s: float = VIEW_LIMIT_S) -> None:
        """Launch a child with the painter of RENDERERS[name], pyrender's on `cuda_device`; `started` waits for it."""
        self.name = name
        self._cuda_device = cuda_device
        self.view_limit_s = view_limit_s
        self.device = ""
        self._lock = threading.Lock()
        self._keys: weakref.WeakKeyDictionary[Scene, int] = weakref.WeakKeyDictionary()
        self._sent: set[int] = set()
        self._new_key = count()
        # Keys of freed scenes. Finalizers append to it, possibly while the lock is held, so they must not lock.
        self._freed: deque[int] = deque()
        self.process: subprocess.Popen | None = None
        self._starting = True
        self._launch()

    def started(self) -> Self:
        """Wait until the child has rendered its test image; raises RenderError if it cannot."""
        with undone_on_failure(self._stop):  # also on an interrupt: a hanging child must not outlive this process
            if self._starting:
                self.device = self._receive(START_LIMIT_S)
                self._starting = False
                _log.debug("the renderer %s runs on %s", self.name, self.device)
        return self

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB; raises RenderError."""
        return self._view("image", scene, pose, intrinsics)

    def depth(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """Depth (H, W) float32, metres along the optical axis, inf if there is no surface; raises RenderError."""
        return self._view("depth", scene, pose, intrinsics)

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._stop()

    def _view(self, kind: str, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        with self._lock:
            try:
                return self._view_once(kind, scene, pose, intrinsics)
            except RenderError as error:
                _log.warning("%s; retrying this view in a new process", error)
                return self._view_once(kind, scene, pose, intrinsics)

    def _view_once(self, kind: str, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        if self.process is None:
            self._launch()
        self.started()
        while self._freed:
            key = self._freed.popleft()
            if key in self._sent:  # otherwise it was sent to an earlier child
                self._sent.remove(key)
                self._request("drop", key)
        if scene not in self._keys:
            key = next(self._new_key)
            self._request("add", key, scene.surface)
            self._keys[scene] = key
            self._sent.add(key)
            weakref.finalize(scene, self._freed.append, key).atexit = False
        return self._request(kind, self._keys[scene], scene.own_pose(pose), intrinsics)

    def _launch(self) -> None:
        self._connection, theirs = Pipe()
        self._output: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        cuda_device = "" if self._cuda_device is None else str(self._cuda_device)
        # A new session keeps Ctrl-C from reaching the child: the run may still be waiting for a view.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "roomscout.rendering.renderers.child", self.name, str(theirs.fileno()), cuda_device],
            pass_fds=[theirs.fileno()],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        theirs.close()
        self._keys.clear()
        self._sent.clear()
        self._starting = True

    def _request(self, *request: object) -> Any:
        try:
            self._connection.send(request)
        except OSError as error:
            raise self._failure("crashed") from error
        return self._receive(self.view_limit_s)

    def _receive(self, limit_s: float) -> Any:
        try:
            if self._connection.poll(limit_s):
                return self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._failure("crashed") from error
        raise self._failure(f"did not answer within {limit_s:g} s")

    def _failure(self, problem: str) -> RenderError:
        """Stop the child; the error quotes the last line that it printed."""
        self._output.seek(0)
        output = self._output.read().decode(errors="replace").strip()
        self._stop()
        lines = output.splitlines()
        _log.debug("output of the renderer %s:" + "\n  %s" * len(lines), self.name, *lines)
        last = f" ({lines[-1].strip()})" if lines else ""
        fix = f"{RENDERERS[self.name].fix}, or use the renderer raycast"
        return RenderError(f"the renderer {self.name} {problem}{last}: {fix}", setting="renderer")

    def _stop(self) -> None:
        if self.process is None:
            return
        self._connection.close()
        self._output.close()
        self.process.kill()
        self.process.wait()
        self.process = None


def _render_test_image(painter: "PyrenderPainter") -> None:
    """Render a square, red on the left and blue on the right; raises RuntimeError if colours or depth are wrong."""
    pose = CameraPose(0.0, 0.0, 0.0, heading_deg=0.0)
    intrinsics = Intrinsics(64, 64, 64.0)
    red, blue = (200, 40, 20), (20, 40, 200)
    y = np.array([0.25, 0.25, 0.0, 0.0, 0.0, 0.0, -0.25, -0.25])
    z = np.array([-0.25, 0.25, 0.25, -0.25] * 2)
    vertices = np.column_stack([np.ones(8), y, z]).astype(np.float32)
    faces = np.array([[0, 1, 2], [0, 2, 3], [4, 5, 6], [4, 6, 7]], dtype=np.int32)
    painter.add(-1, Surface(vertices, faces, np.array([red] * 4 + [blue] * 4, dtype=np.uint8)))
    image = painter.image(-1, pose, intrinsics).astype(int)
    depth = painter.depth(-1, pose, intrinsics)
    painter.drop(-1)
    expected = {(32, 24): red, (32, 40): blue, (4, 4): BACKGROUND_RGB}
    if any(np.abs(image[pixel] - colour).max() > 3 for pixel, colour in expected.items()):
        raise RuntimeError("it renders a test image in wrong colours")
    if not (abs(depth[32, 24] - 1.0) < 0.01 and np.isinf(depth[4, 4])):
        raise RuntimeError("it renders wrong depths for a test image")


def _serve(name: str, connection: Connection, cuda_device: int | None) -> None:
    painter: PyrenderPainter = RENDERERS[name].load()(cuda_device)
    _render_test_image(painter)
    connection.send(painter.device)
    while True:
        try:
            method, *arguments = connection.recv()
        except EOFError:
            return
        connection.send(getattr(painter, method)(*arguments))


if __name__ == "__main__":
    name, descriptor, cuda_device = sys.argv[1:]
    device = int(cuda_device) if cuda_device else None
    _serve(name, Connection(int(descriptor)), device)
