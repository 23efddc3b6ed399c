"""Camera pose and projection. All axis and sign conventions are defined here.

World: metres, z up. Heading: degrees about +z; 0 looks along +x and 90 along +y, so a *positive*
rotation turns the camera to its *left* (counter-clockwise seen from above). Pitch: degrees above the
horizon; negative looks down. Camera: OpenCV axes, x right, y down, z forward. Pixels: (0, 0) is the
outer corner of the top left pixel, whose centre is (0.5, 0.5).
"""

import math
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera without distortion, in pixels; the principal point is the image's centre."""

    width: int
    height: int
    focal_px: float

    @property
    def matrix(self) -> np.ndarray:
        """The (3, 3) float64 matrix K that maps camera coordinates to homogeneous pixels."""
        return np.array([[self.focal_px, 0, self.width / 2], [0, self.focal_px, self.height / 2], [0, 0, 1]])

    def ray(self, x: float, y: float) -> np.ndarray:
        """(3,) float64: the direction through a pixel in camera axes, 1 along the optical axis."""
        return np.array([(x - self.width / 2) / self.focal_px, (y - self.height / 2) / self.focal_px, 1.0])

    def thinned(self, every: int) -> "Intrinsics":
        """The camera with the same field of view and every second, third, ... pixel."""
        return Intrinsics(max(1, self.width // every), max(1, self.height // every), self.focal_px / every)

    @property
    def horizontal_fov_deg(self) -> float:
        """The angle between the left and the right edge of an image."""
        return math.degrees(2 * math.atan2(self.width / 2, self.focal_px))

    @property
    def vertical_fov_deg(self) -> float:
        """The angle between the upper and the lower edge of an image."""
        return math.degrees(2 * math.atan2(self.height / 2, self.focal_px))


@dataclass(frozen=True)
class CameraPose:
    """Where a camera is, in world metres, and which way it looks."""

    x_m: float  # to where heading 0 looks
    y_m: float  # to where heading 90 looks
    z_m: float  # up
    heading_deg: float  # counter-clockwise from +x, seen from above
    pitch_deg: float = 0.0  # above the horizon

    @classmethod
    def of_text(cls, text: str) -> "CameraPose":
        """The pose in the first five numbers of a text: x, y, z, heading and pitch. Raises ValueError."""
        x, y, z, heading_deg, pitch_deg = map(float, text.split(",")[:5])
        return cls(x, y, z, heading_deg, pitch_deg)

    @property
    def place(self) -> str:
        """The position in words."""
        return f"x {self.x_m:.2f}, y {self.y_m:.2f}, z {self.z_m:.2f} m"

    @property
    def position(self) -> np.ndarray:
        """(3,) float64, world metres."""
        return np.array([self.x_m, self.y_m, self.z_m])

    @property
    def forward(self) -> np.ndarray:
        """(3,) horizontal unit vector along the heading. Ignores pitch, so walking stays level."""
        heading = math.radians(self.heading_deg)
        return np.array([math.cos(heading), math.sin(heading), 0.0])

    @property
    def left(self) -> np.ndarray:
        """(3,) unit vector to the camera's left, horizontal."""
        heading = math.radians(self.heading_deg)
        return np.array([-math.sin(heading), math.cos(heading), 0.0])

    @property
    def camera_to_world(self) -> np.ndarray:
        """(4, 4) float64; columns are the camera's right, down and forward axes and its position."""
        pitch = math.radians(self.pitch_deg)
        up = np.array([0.0, 0.0, 1.0])
        look = math.cos(pitch) * self.forward + math.sin(pitch) * up
        right = -self.left
        matrix = np.eye(4)
        matrix[:3, 0] = right
        matrix[:3, 1] = np.cross(look, right)
        matrix[:3, 2] = look
        matrix[:3, 3] = self.position
        return matrix

    @property
    def world_to_camera(self) -> np.ndarray:
        """(4, 4) float64, the inverse of `camera_to_world`."""
        rotation = self.camera_to_world[:3, :3].T
        matrix = np.eye(4)
        matrix[:3, :3] = rotation
        matrix[:3, 3] = -rotation @ self.position
        return matrix

    def relative(self, other: "CameraPose") -> "CameraPose":
        """Another pose as seen from this one: x along this heading, y to its left; height and pitch stay."""
        away = other.position - self.position
        heading = (other.heading_deg - self.heading_deg) % 360.0
        return replace(other, x_m=float(away @ self.forward), y_m=float(away @ self.left), heading_deg=heading)

    def turn_to(self, other: "CameraPose") -> float:
        """The turn, -180 to 180 degrees, to the left if positive, after which this heading is that of another pose."""
        return (other.heading_deg - self.heading_deg + 180) % 360 - 180

    def turned(self, rotation_deg: float) -> "CameraPose":
        """The pose after turning left by `rotation_deg` (negative: right); heading stays in [0, 360)."""
        return replace(self, heading_deg=(self.heading_deg + rotation_deg) % 360.0)

    def at(self, position: np.ndarray) -> "CameraPose":
        """The same viewing direction at another (3,) position, world metres."""
        x, y, z = map(float, position)
        return replace(self, x_m=x, y_m=y, z_m=z)

    def moved(self, rotation_deg: float, forward_m: float, left_m: float, up_m: float) -> "CameraPose":
        """The pose after turning, then moving along the new heading; ignores obstacles."""
        turned = self.turned(rotation_deg)
        return turned.at(self.position + forward_m * turned.forward + left_m * turned.left + [0.0, 0.0, up_m])
