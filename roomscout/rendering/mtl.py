"""Reads the materials of OBJ files."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roomscout.rendering.parts import OPAQUE_ALPHA
from roomscout.rendering.resources import find_file
from roomscout.rendering.textures import ImageError, Opacity, Picture, Texture, Wrap, decoded, opacity_of, resized

_log = logging.getLogger(__name__)

# The options of a texture that come before its name, and how many words follow each. -o, -s and -t take up to three.
_OPTIONS = {
    "-blendu": 1, "-blendv": 1, "-boost": 1, "-bm": 1, "-cc": 1, "-clamp": 1, "-imfchan": 1, "-mm": 2, "-texres": 1,
    "-type": 1, "-colorspace": 1, "-o": 3, "-s": 3, "-t": 3,
}  # fmt: skip
_NAMES_SHOWN = 5
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class _Map:
    """A texture as a material names it."""

    name: str
    scale: tuple[float, float] = (1.0, 1.0)
    shift: tuple[float, float] = (0.0, 0.0)
    clamped: bool = False


@dataclass(frozen=True, eq=False)
class Mtl:
    """A material: `constant` (3,) uint8 or None if nothing says a colour, and perhaps a texture.

    Texture coordinates are multiplied by `scale` and moved by `shift`. `is_plain` is true for a texture of one colour,
    which vertex colours multiply; other textures replace them. `opacity` belongs to the texture.
    """

    constant: np.ndarray | None = None
    texture: Texture | None = None
    texture_name: str = ""
    scale: tuple[float, float] = (1.0, 1.0)
    shift: tuple[float, float] = (0.0, 0.0)
    is_plain: bool = False
    alpha: float = 1.0
    opacity: Opacity | None = None

    def see_through(self, count: int, face_uv: np.ndarray | None) -> tuple[np.ndarray | None, bool]:
        """Which of `count` faces are transparent, (count,) bool, and whether others have some transparency."""
        if self.alpha < OPAQUE_ALPHA:
            return np.ones(count, dtype=bool), False
        if self.opacity is None or face_uv is None:
            return None, self.alpha < 1
        none, all_ = self.opacity.of_faces(face_uv)
        return none, bool((~none & ~all_).any())


class MtlReader:
    """The materials that an OBJ file names. Decodes each image once. Logs what is missing."""

    def __init__(self, scan: Path, libraries: Sequence[str], used: Sequence[str], has_uv: bool) -> None:
        self._scan = scan
        self._problems: set[str] = set()
        self._statements: dict[str, dict[str, str]] = {}
        self._file_of: dict[str, Path] = {}
        self._pictures: dict[tuple[Path, str], Picture | None] = {}
        self._textures: dict[tuple[object, ...], Texture] = {}
        self._materials: dict[str | None, Mtl] = {}
        complete = self._read_libraries(libraries, used, has_uv)
        self._only = next(iter(self._statements)) if not used and len(self._statements) == 1 else None
        if not used and len(self._statements) > 1 and has_uv:
            self.problem(f"its faces name none of its {len(self._statements)} materials, so they have no texture")
        if complete and (unknown := [name for name in used if self._known(name) is None]):
            self.problem(f"its .mtl files do not have its materials {', '.join(unknown[:_NAMES_SHOWN])}")

    def problem(self, text: str) -> None:
        """Log once that something is not drawn as the file says."""
        if text not in self._problems:
            self._problems.add(text)
            _log.warning("%s: %s", self._scan, text)

    def material(self, name: str | None) -> Mtl:
        """The material of this name; the only one for None; one without colour if it is unknown."""
        name = self._only if name is None else name
        if name not in self._materials:
            self._materials[name] = self._material(name or "")
        return self._materials[name]

    def _known(self, name: str) -> str | None:
        """The name of a material in the .mtl files, after which either side may have a comment."""
        if name in self._statements:
            return name
        alike = [known for known in self._statements if _uncommented(known) == name or known == _uncommented(name)]
        return alike[0] if len(alike) == 1 else None

    def _read_libraries(self, libraries: Sequence[str], used: Sequence[str], has_uv: bool) -> bool:
        """Read the statements of all .mtl files; whether all were found."""
        if not libraries and used:
            beside = find_file(self._scan, f"{self._scan.stem}.mtl")
            if beside is None and has_uv:
                self.problem(f"it names materials but no .mtl file, and there is no {self._scan.stem}.mtl beside it")
            libraries = [] if beside is None else [beside.name]
        complete = bool(libraries)
        for line in libraries:
            # A line may name several files, or one with blanks in its name, in quotes or before a comment.
            whole = find_file(self._scan, line)
            line = line if whole else _uncommented(line).strip('"')
            whole = whole or find_file(self._scan, line)
            for name in [line] if whole or line.lower().count(".mtl") < 2 else line.split():
                file = whole or find_file(self._scan, name)
                if file is None:
                    complete = False
                    self.problem(f"its material file {name} is missing: put it beside the scan")
                else:
                    found = _statements(file)
                    self._statements.update(found)
                    self._file_of.update(dict.fromkeys(found, file))
        return complete

    def _material(self, name: str) -> Mtl:
        known = self._known(name) or ""
        said, beside = self._statements.get(known, {}), self._file_of.get(known, self._scan)
        diffuse, emitted = _colour(said.get("kd")), _colour(said.get("ke"))
        glow = np.zeros(3, dtype=np.uint8) if emitted is None else _bytes(emitted)
        constant = None if diffuse is None else np.maximum(_bytes(diffuse), glow)
        base = _map(said.get("map_kd") or said.get("map_ka"))
        emission = _map(said.get("map_ke"))
        cut_out = _map(said.get("map_d"))
        alpha = _alpha(said)
        shown = base or emission
        picture = self._picture(beside, shown.name) if shown else None
        if shown is None or picture is None:
            # Shading shows shapes where a texture cannot be used.
            return Mtl(None if shown else constant, alpha=alpha)
        # Exporters write any brightness beside a texture, often black; a hue is meant.
        tint = np.ones(3) if diffuse is None or base is None or not diffuse.any() else diffuse / diffuse.max()
        over = self._picture(beside, emission.name) if base and emission else None
        wrap: Wrap = "clamp" if shown.clamped else "repeat"
        key = (beside.parent, shown.name, emission and over and emission.name, tint.tobytes(), wrap)
        if key not in self._textures:
            pixels = picture.pixels if (tint == 1).all() else (picture.pixels * tint).round().astype(np.uint8)
            if over:
                pixels = np.maximum(pixels, resized(over.pixels, pixels))
            self._textures[key] = Texture(pixels, (wrap, wrap))
        texture = self._textures[key]
        return Mtl(
            constant,
            texture,
            shown.name,
            shown.scale,
            shown.shift,
            bool((texture.pixels == texture.pixels[0, 0]).all()),
            alpha,
            self._opacity(picture if cut_out is None else self._picture(beside, cut_out.name), (wrap, wrap), cut_out),
        )

    def _opacity(self, picture: Picture | None, wrap: tuple[Wrap, Wrap], cut_out: _Map | None) -> Opacity | None:
        """Of the texture itself, or of a `map_d`, which may be grey; None if it is opaque everywhere."""
        if picture is None or (picture.alpha is None and cut_out is None):
            return None
        alpha = picture.pixels[..., 0] if picture.alpha is None else picture.alpha
        return opacity_of(alpha, OPAQUE_ALPHA, wrap)

    def _picture(self, beside: Path, name: str) -> Picture | None:
        """A texture, named relative to its .mtl file or to the scan; None if it cannot be used, which is logged."""
        key = beside.parent, name
        if key not in self._pictures:
            self._pictures[key] = None
            names = name, _uncommented(name)
            files = (find_file(place, each) for each in names for place in (beside, self._scan))
            file = next((found for found in files if found), None)
            try:
                if file is None:
                    raise ImageError("the file is missing: put it beside the scan")
                self._pictures[key] = decoded(file.read_bytes())
            except OSError as error:
                self.problem(f"drawing without the texture {name}: it cannot be read: {error.strerror}")
            except ImageError as error:
                self.problem(f"drawing without the texture {name}: {error}")
        return self._pictures[key]


def _statements(file: Path) -> dict[str, dict[str, str]]:
    """By material: what follows each keyword, in lower case, of a .mtl file."""
    data = file.read_bytes()
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    # Not splitlines(), which also breaks lines at characters of other encodings.
    for line in re.sub(r"\r\n?", "\n", text).replace("\\\n", " ").split("\n"):
        keyword, _, rest = line.strip().replace("\t", " ").partition(" ")
        if keyword.lower() == "newmtl":
            current = found.setdefault(rest.strip(), {})
        elif keyword and not keyword.startswith("#"):
            current[keyword.lower()] = rest.strip()
    return found


def _uncommented(text: str) -> str:
    """The text before a comment. Names may have a # of their own, such as 3ds Max's "Material #25"."""
    return re.split(r"\s#", text, maxsplit=1)[0].strip()


def _colour(text: str | None) -> np.ndarray | None:
    """(3,) floats, 0 to 1; None if there are none, or they are a spectrum."""
    words = [] if text is None else text.split()
    if not words or not all(map(_NUMBER.fullmatch, words[:3])):
        return None
    return np.array([float(word) for word in words[:3]] if len(words) >= 3 else [float(words[0])] * 3).clip(0, 1)


def _bytes(colour: np.ndarray) -> np.ndarray:
    return (255 * colour).round().astype(np.uint8)


def _alpha(said: dict[str, str]) -> float:
    """From `d`, which may be `d -halo 0.5`. `Tr` alone is transparency to some programs and opacity to others."""
    words = said.get("d", "").split()
    if words and _NUMBER.fullmatch(words[-1]):
        return float(words[-1])
    other = said.get("tr", "")
    # Drawn opaque, but not without a word.
    return 0.99 if _NUMBER.fullmatch(other) and 0 < float(other) < 1 else 1.0


def _map(text: str | None) -> _Map | None:
    """The name and the options of a texture; None if there is none."""
    words = [] if text is None else text.split()
    options: dict[str, list[str]] = {}
    while words and words[0].lower() in _OPTIONS:
        option = words.pop(0).lower()
        numbers = option in ("-o", "-s", "-t")
        values = options.setdefault(option, [])
        while len(words) > 1 and len(values) < _OPTIONS[option] and not (numbers and not _NUMBER.fullmatch(words[0])):
            values.append(words.pop(0))
    if not words or text is None:
        return None
    name = text.split(None, len(text.split()) - len(words))[-1]
    scale = [float(value) for value in options.get("-s", [])] + [1.0, 1.0]
    shift = [float(value) for value in options.get("-o", [])] + [0.0, 0.0]
    clamped = [value.lower() for value in options.get("-clamp", [])] == ["on"]
    return _Map(name.strip('"'), (scale[0], scale[1]), (shift[0], shift[1]), clamped)
