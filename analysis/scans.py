"""The scans of a run, as the run saw them."""

from pathlib import Path

from roomscout.data.scans import scan_sha256
from roomscout.rendering.scene import Scene, SceneError, UpAxis, load_scene
from roomscout.runs.records import ScanRecord


def recorded_scene(scan: ScanRecord, up_axis: UpAxis, scale: float) -> Scene:
    """Load a scan that a run recorded, with the run's settings.

    Raises SceneError if it is missing, has changed since, or cannot be used.
    """
    try:
        changed = scan_sha256(Path(scan.file)) != scan.sha256
    except OSError as error:
        raise SceneError(f"{scan.file} cannot be read ({error.strerror})") from None
    if changed:
        raise SceneError(f"{scan.file} has changed since the run")
    return load_scene(scan.file, up_axis, scale)
