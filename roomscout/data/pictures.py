"""Pictures that belong to a question: image files beside its question file, known by their bytes."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from PIL import Image

from roomscout.base.files import FileRefused, file_name, folder_of, own_folders, require_own, require_regular
from roomscout.base.pictures import PictureError, opened
from roomscout.base.text import json_in, on_disk
from roomscout.data.options import AS_JSON
from roomscout.data.scan_frames import is_empty

ENDINGS = (".png", ".jpg", ".jpeg")
MADE = "made"  # in place of the hash of a picture that is drawn with its scan, perhaps elsewhere with other rounding
MOST_BYTES = 2**26  # of a file: a photograph of 100 million pixels has some 40 MB as JPEG, a view as PNG some 2
FORMS = 'a list of PNG and JPEG files, such as ["goal.png"], or their names with | between: goal.png|b.jpg'
_SEVERAL = re.compile(r"\.(?:png|jpe?g)[\"']?\s*[,;\n]", re.IGNORECASE)  # names with another mark between than |
_CONTENT = re.compile(r"data:|iVBOR|/9j/|UklGR|R0lG|Qk0")  # how a picture in base64 begins, in place of its name


class QuestionPictureError(Exception):
    """A picture of a question cannot be shown. The message names its file."""


@dataclass(frozen=True)
class Picture:
    """An image file, and the SHA-256 of its bytes when its question was read: empty if it was not there, or MADE."""

    file: str
    sha256: str = ""

    @classmethod
    def read(cls, cell: Any) -> tuple[Self, ...]:
        """The pictures in a cell of the column `images`: a file name, several with | between, a list of them, or its
        JSON text. Raises ValueError, which never shows the bytes of a picture."""
        if isinstance(cell, str):
            text = cell.strip()
            try:
                cell = json_in(text) if text == "null" or text[:1] in ("[", "{") else text and text.split("|")
            except ValueError as error:
                raise ValueError(f"images is not JSON ({error}): {AS_JSON}") from None
        if is_empty(cell) or cell in ([], ()):
            return ()
        items = cell if isinstance(cell, list | tuple) else [cell]
        if any(map(_is_content, items)):
            raise ValueError("images has a picture itself: save it as a file beside the question file, and name that")
        if items is not cell:
            raise ValueError(f"images {repr(cell)[:80]} must be {FORMS}")
        return tuple(map(cls._named, items))

    @classmethod
    def _named(cls, item: object) -> Self:
        fields = item if isinstance(item, Mapping) else {"file": item}
        file = file_name(fields.get("file"), "images")
        sha256 = fields.get("sha256", "")
        if not file.lower().endswith(ENDINGS) or _SEVERAL.search(file) or not {"file", "sha256"}.issuperset(fields):
            raise ValueError(f"images {repr(item)[:80]} must be {FORMS}")
        if not isinstance(sha256, str) or not re.fullmatch(f"|{MADE}|[0-9a-f]{{64}}", sha256):
            raise ValueError(f"images: sha256 {repr(sha256)[:80]} must be 64 digits, as sha256sum writes them")
        return cls(file, sha256)

    def beside(self, source: Path | None) -> "Picture":
        """The same picture by its absolute path and its hash; `source` is the question file, or folder of them, that
        names it, None for code. Raises ValueError for a file that must not be opened."""
        path = on_disk(folder_of(source or Path()).absolute() / self.file)
        try:
            if source is None:
                require_regular(path, MOST_BYTES)
            else:
                require_own(path, own_folders(source), "the folder of the question file", MOST_BYTES)
            with path.open("rb") as content:
                sha256 = self.sha256 or hashlib.file_digest(content, "sha256").hexdigest()
        except FileRefused as error:
            why = f"is {error}: put a picture of at most {MOST_BYTES >> 20} MB beside the question file"
            raise ValueError(f"images {self.file[:80]!r} {why}") from None
        except OSError:  # it is missing, or cannot be read: its question fails alone
            return Picture(str(path), self.sha256)
        return Picture(str(path), sha256)

    def decoded(self) -> Image.Image:
        """The picture, RGB or RGBA; raises QuestionPictureError if it is missing, damaged or another one than when its
        question was read."""
        path = Path(self.file)
        try:
            require_regular(path, MOST_BYTES)
            data = path.read_bytes()
            image = opened(data)
        except OSError as error:
            raise QuestionPictureError(f"{self.file} cannot be read ({error.strerror or error})") from None
        except PictureError as error:
            raise QuestionPictureError(f"{self.file} cannot be shown: {error}") from None
        if self.sha256 not in ("", MADE) and hashlib.sha256(data).hexdigest() != self.sha256:
            raise QuestionPictureError(f"{self.file} has changed since its question was read: restore it")
        return image

    def shown(self, width: int, height: int) -> np.ndarray:
        """The picture as (height, width, 3) uint8 RGB: in the middle, as large as fits, on white. Raises
        QuestionPictureError as `decoded`."""
        image = self.decoded()
        scale = min(width / image.width, height / image.height)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        page = Image.new("RGBA", (width, height), "white")
        fitted = image.convert("RGBA")
        fitted = fitted if size == image.size else fitted.resize(size, Image.Resampling.LANCZOS)
        page.alpha_composite(fitted, ((width - size[0]) // 2, (height - size[1]) // 2))
        return np.array(page.convert("RGB"))


def _is_content(item: object) -> bool:
    """Whether this is a picture, in place of its name, as Parquet files of the library `datasets` and JSON hold it."""
    if isinstance(item, str):
        return _CONTENT.match(item) is not None and not item.lower().endswith(ENDINGS)
    return isinstance(item, bytes) or (isinstance(item, Mapping) and "bytes" in item)
