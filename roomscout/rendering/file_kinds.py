"""Recognizes what a file really is by its first bytes, whatever its name says."""

import json
import re
import shlex
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

_HEAD_BYTES = 4096
_AGAIN = "download it again"
_TO_PLY = "convert it to PLY, for example with MeshLab or Blender"
_TO_PLY_CLOUD = "convert it to PLY, for example with CloudCompare"
_SPLAT_TO_PLY = "convert it to an uncompressed PLY, for example with PlayCanvas' splat-transform or SuperSplat"


@dataclass(frozen=True)
class FileKind:
    """What a file is, such as "a PLY file", how to make a scan of it, and its own suffix if it is a readable scan."""

    what: str
    fix: str
    suffix: str = ""


_OURS = {
    ".ply": re.compile(rb"(?i)\s*ply[ \t]*[\r\n]"),
    ".glb": re.compile(rb"glTF"),
    ".pcd": re.compile(rb"(?i)\s*(?:# ?\.pcd|(?:#[^\r\n]*[\r\n]+)*\s*(?:version\s+[\d.]+\s*)?(?:fields|columns)\s)"),
}
_OBJ = re.compile(rb"(?:(?:#[^\n]*|[og]\s[^\n]*)?[ \t\r]*\n)*(?:mtllib\s|v\s+-?[\d.])")
_MAGIC = (
    (rb"\x28\xb5\x2f\xfd", "a file compressed with Zstandard", "unpack it with zstd -d < {file} > {unpacked}"),
    (rb"BZh[1-9]", "a file compressed with bzip2", "unpack it with bunzip2 < {file} > {unpacked}"),
    (rb"\xfd7zXZ\x00", "a file compressed with xz", "unpack it with xz -d < {file} > {unpacked}"),
    (rb"\x04\x22\x4d\x18", "a file compressed with LZ4", "unpack it with lz4 -d < {file} > {unpacked}"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it with 7z x {file}"),
    (rb"Rar!\x1a\x07", "a RAR archive", "unpack it with unrar x {file}"),
    (rb".{257}ustar", "a tar archive", "unpack it with tar -xf {file}"),
    (rb"LASF.{100}[\x80-\xff]", "a LAZ point cloud", "convert it to PLY with pdal translate {file} {ply}"),
    (rb"LASF", "a LAS point cloud", "convert it to PLY with pdal translate {file} {ply}"),
    (rb"ASTM-E57", "an E57 point cloud", f"{_TO_PLY_CLOUD}"),
    (rb"Kaydara FBX Binary|; FBX ", "an FBX model", _TO_PLY),
    (rb"PXR-USDC|#usda ", "a USD model", "convert it to GLB, for example with Blender"),
    (rb"BLENDER", "a Blender project", "open it in Blender and export it as GLB"),
    (rb"(?:CO|N|ST|4)*OFF\s", "an OFF model", _TO_PLY),
    (rb"#VRML|#X3D", "a VRML model", _TO_PLY),
    (rb"# vtk DataFile", "a VTK file", "convert it to PLY, for example with ParaView"),
    (rb"ISO-10303-21", "a STEP model", "convert it to PLY, for example with FreeCAD"),
    (rb"NGSP", "a Gaussian splat in the format SPZ", _SPLAT_TO_PLY),
    (rb"DRACO", "a mesh compressed with Draco", "decompress it to PLY with draco_decoder"),
    (rb"\x89HDF", "an HDF5 file", _TO_PLY_CLOUD),
    (rb"\x93NUMPY", "a NumPy array", _TO_PLY_CLOUD),
    (rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF.{4}WEBP|\xabKTX", "a picture", "name the file of the geometry"),
    (rb"%PDF", "a PDF document", "name the file of the geometry"),
    (rb"SQLite format 3", "a database", "name the file of the geometry"),
    (rb"\x00\x05\x16\x07", "macOS's metadata of another file", "name the file without ._ at its beginning"),
    (rb"b3dm|i3dm|pnts|cmpt|subt", "a tile of 3D Tiles", "convert it to GLB, for example with 3d-tiles-tools"),
    (rb"\s*0\s+SECTION\s", "a DXF drawing", _TO_PLY),
    (rb"AC10\d\d", "a DWG drawing", _TO_PLY),
    (rb"#ROSBAG|\x89MCAP|ROSX", "a recording of ROS", "export its point cloud as PLY or PCD"),
    (rb".{4}ftyp|\x1aE\xdf\xa3", "a video", "name the file of the geometry"),
    (rb"PAR1", "a Parquet table", "name the file of the geometry"),
    (rb"\xd0\xcf\x11\xe0", "a project of 3ds Max or a Microsoft Office file", _TO_PLY),
    (rb"\xff\xfeS\x00k\x00e\x00t|.{0,4}S\x00k\x00e\x00t\x00c\x00h\x00U\x00p", "a SketchUp model", _TO_PLY),
    (rb"newmtl\s", "the materials of an OBJ file", "name the .obj file beside it"),
)
# In the beginning of scans that are text, or begin with text.
_TEXT_OF_SCANS = rb"(?i)[\r\n]\s*v\s|\bDATA\s|\{\s*\""
_KINDS = tuple((re.compile(magic, re.DOTALL), what, fix) for magic, what, fix in _MAGIC)
_SUFFIXES = {
    **{each: (f"a Gaussian splat in the format {each}", _SPLAT_TO_PLY) for each in (".splat", ".ksplat")},
    ".spz": ("a Gaussian splat in the format SPZ", _SPLAT_TO_PLY),
    ".sog": ("a Gaussian splat in PlayCanvas' format SOG", _SPLAT_TO_PLY),
    **dict.fromkeys((".xyz", ".pts", ".ptx"), ("a point cloud as rows of text", _TO_PLY_CLOUD)),
    ".las": ("a LAS point cloud", "convert it to PLY with pdal translate {file} {ply}"),
    ".laz": ("a LAZ point cloud", "convert it to PLY with pdal translate {file} {ply}"),
    ".mtl": ("the materials of an OBJ file", "name the .obj file beside it"),
    ".dae": ("a COLLADA model", _TO_PLY),
    ".3ds": ("a 3DS model", _TO_PLY),
    ".stl": ("an STL model", _TO_PLY),
    ".fbx": ("an FBX model", _TO_PLY),
}
"""What files are whose bytes do not tell."""


def other_kind(path: Path) -> FileKind | None:
    """What a file is, if not what its suffix says; None if it may be that, or is nothing known. Raises OSError."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    if suffix in _OURS and _OURS[suffix].match(head):
        return None
    return _kind(path, head, suffix)


def _kind(path: Path, head: bytes, suffix: str) -> FileKind | None:
    ours = next((each for each, magic in _OURS.items() if magic.match(head)), None)
    if ours is None and re.match(rb"\s*\{", head) and b'"asset"' in head:
        ours = ".gltf"
    elif ours is None and _OBJ.match(head):
        ours = ".obj"
    if ours is not None and ours != suffix:
        name = ours[1:].upper().replace("GLTF", "glTF")
        article = "an" if name == "OBJ" else "a"
        renamed = path.with_suffix(ours)
        return FileKind(
            f"{article} {name} file", f"rename it with mv {shlex.quote(str(path))} {shlex.quote(str(renamed))}", ours
        )
    found = _of_text(head, suffix) or _packed(path, head) or _of_bytes(path, head)
    found = found or (FileKind(*_SUFFIXES[suffix]) if suffix in _SUFFIXES else None)
    return found and FileKind(found.what, _with_names(found.fix, path))


def _with_names(fix: str, path: Path) -> str:
    unpacked = path.with_suffix("") if path.suffix.lower() in (".gz", ".zst", ".bz2", ".xz", ".lz4") else path
    if unpacked == path:
        unpacked = path.with_name(f"unpacked_{path.name}")
    names = {"file": path, "unpacked": unpacked, "ply": path.with_suffix(".ply")}
    if names["ply"] == path:
        names["ply"] = path.with_name(f"converted_{path.name}")
    for key, value in names.items():
        fix = fix.replace(f"{{{key}}}", shlex.quote(str(value)))
    return fix


def _of_text(head: bytes, suffix: str) -> FileKind | None:
    """Pointers of version control, web pages and messages of servers."""
    start = head.lstrip().lower()
    if re.match(rb"version https?://(git-lfs|hawser)", start):
        return FileKind("a Git LFS pointer instead of the scan", "run git lfs pull in its repository")
    if b"annex/objects/" in head[:1024]:
        return FileKind("a git-annex pointer instead of the scan", "run git annex get {file}")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return FileKind("text in UTF-16", "save it as plain text or UTF-8")
    if start.startswith(b"<") and re.search(rb"<!doctype html|<html|<head|<body|<meta|<script", start):
        title = re.search(rb"(?is)<title[^>]*>(.*?)</title>", head)
        words = " ".join(title[1].decode("utf-8", "replace").split())[:60] if title else ""
        called = f" ({words!r})" if words else ""
        return FileKind(f"a web page{called} instead of the scan", "log in where it is from, and download it again")
    if start.startswith(b"<"):
        for tag, what in ((b"<collada", "a COLLADA model"), (b"<x3d", "an X3D model")):
            if tag in start:
                return FileKind(what, _TO_PLY)
        if re.search(rb"<error|<code>|accessdenied", start):
            return FileKind(f"an error message of a server ({_beginning(head)})", "check the address and your access")
        return FileKind("XML", "name the file of the geometry, or convert it to PLY")
    if start.startswith((b"{", b"[")):
        if b'"means"' in head and b'"quats"' in head:
            return FileKind("the description of a Gaussian splat in PlayCanvas' format SOG", _SPLAT_TO_PLY)
        if suffix != ".gltf" or _has_no_asset(head):
            return FileKind(
                f"JSON that is not a scan ({_beginning(head)})", "check where it is from, and download it again"
            )
    return None


def _has_no_asset(head: bytes) -> bool:
    """Whether this is all of a JSON text, without the key that every glTF file has."""
    if len(head) >= _HEAD_BYTES:
        return False
    try:
        content = json.loads(head)
    except ValueError:
        return False
    return not isinstance(content, dict) or "asset" not in content


def _packed(path: Path, head: bytes) -> FileKind | None:
    """Archives and compressed files, with what is in them."""
    if head.startswith(b"\x1f\x8b"):
        inside = _unzipped(head)
        if inside.startswith(b"NGSP"):
            return FileKind("a Gaussian splat in the format SPZ", _SPLAT_TO_PLY)
        if inside[257:262] == b"ustar":
            return FileKind("a tar archive compressed with gzip", "unpack it with tar -xzf {file}")
        return FileKind("a file compressed with gzip", "unpack it with gunzip < {file} > {unpacked}")
    if not head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return FileKind("a truncated or damaged ZIP archive", _AGAIN)
    if names and names[0].lower().endswith((".usd", ".usda", ".usdc")):
        return FileKind("a USDZ model", "convert it to GLB, for example with Blender")
    if "meta.json" in names and any(name.endswith(".webp") for name in names):
        return FileKind("a Gaussian splat in PlayCanvas' format SOG", _SPLAT_TO_PLY)
    return FileKind(f"a ZIP archive ({_some(names)})", "unpack it with unzip {file}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "empty"


def _unzipped(head: bytes) -> bytes:
    """The beginning of a file compressed with gzip."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 1024)
    except zlib.error:
        return b""


def _of_bytes(path: Path, head: bytes) -> FileKind | None:
    for magic, what, fix in _KINDS:
        if magic.match(head):
            return FileKind(what, fix)
    size = path.stat().st_size
    is_binary_stl = len(head) >= 84 and size == 84 + 50 * struct.unpack_from("<I", head, 80)[0]
    if is_binary_stl or (re.match(rb"solid\s", head) and b"facet" in head):
        return FileKind("an STL model", _TO_PLY)
    if not head.strip(b"\x00"):
        return FileKind("a file of zeros, such as an unfinished download", _AGAIN)
    if path.suffix.lower() != ".obj" and re.match(rb"(?:\s*[-+]?[\d.]+(?:e[-+]?\d+)?[ \t,;]+){2}[-+\d.]", head):
        return FileKind("a point cloud as rows of text", _TO_PLY_CLOUD)
    text = size < _HEAD_BYTES and re.fullmatch(rb"[\t\r\n -~\x80-\xff]*", head) and len(head.split()) > 1
    ours = {".obj": rb"(?:\A|[\r\n])\s*[vV]\s", ".gltf": rb"\A\s*\{"}.get(path.suffix.lower())
    if path.suffix.lower() in (".obj", ".gltf", ".pcd") and b"\0" in head and not re.search(_TEXT_OF_SCANS, head):
        return FileKind("binary data of an unknown format", _AGAIN)
    if text and not (ours and re.search(ours, head)):
        return FileKind(f"a short text ({_beginning(head)})", "check where it is from, and download it again")
    return None


def _beginning(head: bytes) -> str:
    """The first words of a text, in quotes."""
    words = " ".join(head.decode("utf-8", "replace").split())
    return repr(words if len(words) <= 60 else f"{words[:60]}...")
