"""What the materials of an OBJ file look like without light."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roomscout.rendering.parts import OPAQUE_ALPHA
from roomscout.rendering.resources import find_file
from roomscout.rendering.textures import ImageError, Opacity, Picture, Pictures, Texture, Wrap, opacity_of, resized

# An option of a texture, which comes before the name of its file, and its values.
_OPTION = re.compile(r"-(\w+)((?:\s+(?:on|off|[-+]?[\d.]+(?:e[-+]?\d+)?)(?=\s))+)\s+", re.IGNORECASE)
_NAMES_SHOWN = 5
# Drawn opaque, but not without a word: `Tr` is transparency to some programs and opacity to others.
_PERHAPS_TRANSPARENT = 0.9


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


class MtlReader(Pictures):
    """The materials of an OBJ file."""

    def __init__(self, scan: Path, libraries: Sequence[str], used: Sequence[str]) -> None:
        super().__init__(scan)
        self._statements: dict[str, dict[str, str]] = {}
        self._file_of: dict[str, Path] = {}
        self._textures: dict[tuple[object, ...], Texture] = {}
        self._materials: dict[str, Mtl] = {}
        # A line names one file, whose name may have blanks, or several.
        names = [name for line in libraries for name in (line.split() if line.count(".mtl") > 1 else [line])]
        files = [find_file(scan, name) for name in names]
        for name, file in zip(names, files, strict=True):
            if file is None:
                self.problem(f"its material file {name} is missing: put it beside the scan")
            else:
                found = _statements(file)
                self._statements.update(found)
                self._file_of.update(dict.fromkeys(found, file))
        if None not in files and (unknown := [name for name in used if name not in self._statements]):
            self.problem(f"its .mtl files do not have its materials {', '.join(unknown[:_NAMES_SHOWN])}")

    def material(self, name: str) -> Mtl:
        """The material of this name; one without colour if it is unknown."""
        if name not in self._materials:
            self._materials[name] = self._material(self._statements.get(name, {}), self._file_of.get(name, self.scan))
        return self._materials[name]

    def _material(self, said: dict[str, str], beside: Path) -> Mtl:
        diffuse, emitted = _colour(said.get("kd")), _colour(said.get("ke"))
        glow = np.zeros(3, dtype=np.uint8) if emitted is None else _bytes(emitted)
        constant = None if diffuse is None else np.maximum(_bytes(diffuse), glow)
        base, emission, cut_out = (said.get(keyword) for keyword in ("map_kd", "map_ke", "map_d"))
        alpha = _alpha(said)
        options, shown = _options_and_name(base or emission or "")
        picture = self._picture(beside, shown) if shown else None
        if picture is None:
            # Shading shows shapes where a texture cannot be used.
            return Mtl(None if shown else constant, alpha=alpha)
        # Exporters write any brightness beside a texture, often black; a hue is meant.
        tint = np.ones(3) if diffuse is None or not base or not diffuse.any() else diffuse / diffuse.max()
        over = self._picture(beside, _options_and_name(emission)[1]) if base and emission else None
        wrap: Wrap = "clamp" if options.get("clamp") == ["on"] else "repeat"
        key = (beside.parent, shown, over and emission, tint.tobytes(), wrap)
        if key not in self._textures:
            pixels = picture.pixels if (tint == 1).all() else (picture.pixels * tint).round().astype(np.uint8)
            if over:
                pixels = np.maximum(pixels, resized(over.pixels, pixels))
            self._textures[key] = Texture(pixels, (wrap, wrap))
        texture = self._textures[key]
        mask = self._picture(beside, _options_and_name(cut_out)[1]) if cut_out else picture
        opacity = None
        if mask is not None and (cut_out or mask.alpha is not None):
            mask_alpha = mask.pixels[..., 0] if mask.alpha is None else mask.alpha
            opacity = opacity_of(mask_alpha, OPAQUE_ALPHA, (wrap, wrap))
        scale = [float(value) for value in options.get("s", [])] + [1.0, 1.0]
        shift = [float(value) for value in options.get("o", [])] + [0.0, 0.0]
        is_plain = bool((texture.pixels == texture.pixels[0, 0]).all())
        return Mtl(constant, texture, shown, (scale[0], scale[1]), (shift[0], shift[1]), is_plain, alpha, opacity)

    def _picture(self, beside: Path, name: str) -> Picture | None:
        """A texture, named relative to its .mtl file or to the scan; None if it cannot be used, which is logged."""

        def read() -> bytes:
            file = find_file(beside, name) or find_file(self.scan, name)
            if file is None:
                raise ImageError("the file is missing: put it beside the scan")
            return file.read_bytes()

        return self.picture((beside.parent, name), name, read)


def _statements(file: Path) -> dict[str, dict[str, str]]:
    """By material: what follows each keyword, in lower case, of a .mtl file."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in file.read_bytes().removeprefix(codecs.BOM_UTF8).replace(b"\t", b" ").splitlines():
        keyword, _, rest = line.decode("utf-8", "backslashreplace").strip().partition(" ")
        if keyword == "newmtl":
            current = found.setdefault(rest.strip(), {})
        else:
            current[keyword.lower()] = rest.strip()
    return found


def _colour(text: str | None) -> np.ndarray | None:
    """(3,) floats, 0 to 1; None if there are none, or they are a spectrum."""
    try:
        return np.array([float(word) for word in (text or "").split()[:3]]).reshape(3).clip(0, 1)
    except ValueError:
        return None


def _bytes(colour: np.ndarray) -> np.ndarray:
    return (255 * colour).round().astype(np.uint8)


def _alpha(said: dict[str, str]) -> float:
    """From `d`, which may be `d -halo 0.5`, else from `Tr`; 1 if there is neither."""
    try:
        if "d" in said:
            return float(said["d"].split()[-1])
        return _PERHAPS_TRANSPARENT if 0 < float(said.get("tr", 0)) < 1 else 1.0
    except (ValueError, IndexError):
        return 1.0


def _options_and_name(text: str) -> tuple[dict[str, list[str]], str]:
    """The options of a texture by name, and the name of its file."""
    options: dict[str, list[str]] = {}
    while match := _OPTION.match(text):
        options[match[1].lower()] = match[2].lower().split()
        text = text[match.end() :]
    return options, text
