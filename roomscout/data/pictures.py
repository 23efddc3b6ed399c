"""Pictures that belong to a question: image files beside its question file, known by their bytes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from PIL import Image

from roomscout.base.pictures import PictureError, opened
from roomscout.base.text import json_in, on_disk
from roomscout.data.scan_frames import is_empty

ENDINGS = (".png", ".jpg", ".jpeg")
MADE = "made"  # in place of the hash of a picture that is drawn with its scan, perhaps elsewhere with other rounding


class QuestionPictureError(Exception):
    """A picture of a question cannot be shown. The message names its file."""


@dataclass(frozen=True)
class Picture:
    """An image file, and the SHA-256 of its bytes when its question was read: empty if it was not there, or MADE."""

    file: str
    sha256: str = ""

    @property
    def identity(self) -> str:
        """What a fingerprint of questions has of it, wherever its file is."""
        return Path(self.file).name if self.sha256 in ("", MADE) else self.sha256

    @classmethod
    def read(cls, cell: Any) -> tuple[Self, ...]:
        """The pictures in a cell of the column `images`: a list of file names, or its JSON text; raises ValueError."""
        pictures = json_in(cell) if isinstance(cell, str) and cell.strip() else cell
        if not pictures or is_empty(pictures):
            return ()
        named: Sequence[Any] = pictures if isinstance(pictures, list | tuple) else [None]
        rows = [picture if isinstance(picture, Mapping) else {"file": picture} for picture in named]
        for row in rows:
            file = row.get("file")
            if not isinstance(file, str) or not file.lower().endswith(ENDINGS):
                raise ValueError(f'images {cell!r} must be a list of PNG and JPEG files, such as ["goal.png"]')
        return tuple(cls(row["file"], row.get("sha256", "")) for row in rows)

    def beside(self, folder: Path) -> "Picture":
        """The same picture by its absolute path, which counts from a folder, and its hash."""
        path = on_disk(folder.absolute() / self.file)
        sha256 = self.sha256
        if not sha256 and path.is_file():
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return Picture(str(path), sha256)

    def shown(self, width: int, height: int) -> np.ndarray:
        """The picture as (height, width, 3) uint8 RGB: in the middle, as large as fits, on white. Raises
        QuestionPictureError if it is missing, damaged or another one than when its question was read."""
        try:
            data = Path(self.file).read_bytes()
            image = opened(data)
        except OSError as error:
            raise QuestionPictureError(f"{self.file} cannot be read ({error.strerror or error})") from None
        except PictureError as error:
            raise QuestionPictureError(f"{self.file} cannot be shown: {error}") from None
        if self.sha256 not in ("", MADE) and hashlib.sha256(data).hexdigest() != self.sha256:
            raise QuestionPictureError(f"{self.file} has changed since its question was read: restore it")
        scale = min(width / image.width, height / image.height)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        page = Image.new("RGBA", (width, height), "white")
        fitted = image.convert("RGBA")
        fitted = fitted if size == image.size else fitted.resize(size, Image.Resampling.LANCZOS)
        page.alpha_composite(fitted, ((width - size[0]) // 2, (height - size[1]) // 2))
        return np.array(page.convert("RGB"))
