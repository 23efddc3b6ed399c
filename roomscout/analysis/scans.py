"""The scans of a run, as the run saw them."""

from pathlib import Path

from roomscout import UpAxis
from roomscout.data.scans import scan_sha256
from roomscout.rendering.scene import Scene, SceneError, load_scene
from roomscout.runs.records import ScanRecord


def require_recorded(path: Path, scan: ScanRecord) -> None:
    """Raise SceneError unless the file has the contents of the scan that a run recorded."""
    try:
        changed = scan_sha256(path) != scan.sha256
    except FileNotFoundError:
        raise SceneError(f"the scan {path} is missing: restore it") from None
    except OSError as error:
        raise SceneError(f"the scan {path} cannot be read ({error.strerror or error})") from None
    if changed:
        raise SceneError(f"{path} has changed since the run, or is another scan: restore the one that the run explored")


def recorded_scene(scan: ScanRecord, up_axis: UpAxis, scale: float) -> Scene:
    """Load a scan that a run recorded, with its unit and up axis; raises SceneError if it is missing or has changed."""
    require_recorded(Path(scan.file), scan)
    return load_scene(scan.file, *scan.frame.over(up_axis, scale))
