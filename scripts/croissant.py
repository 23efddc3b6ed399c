"""Describes the questions of `rooms` and `rooms-twins` in the Croissant format: python -m scripts.croissant.

The format is MLCommons' (https://docs.mlcommons.org/croissant). The files hold questions; scans are made from them.
"""

import hashlib
import json
import lzma
from datetime import datetime
from pathlib import Path
from typing import Any

import mlcroissant as croissant

from roomscout.rooms import split, twin_split

FOLDER = Path(split.__file__).parent
PUBLISHED = datetime(2026, 11, 29)
COLUMNS = {
    "id": "of the question; of twins the pair and its member",
    "dataset": "the level of difficulty: bare, furnished or cluttered",
    "scene_name": "the room, from whose name it is made",
    "question_type": "one of nine types, named as in VSI-Bench",
    "question": "what is asked",
    "ground_truth": "a number, or the letter of an option",
    "options": "with letters; null for numbers",
    "edit": "what differs between both rooms",
    "canary": "marks the row as test data",
}
SETS = {
    "rooms": (split.SHIPPED, "5,400 questions about 600 procedural furnished rooms", split.VERSION),
    "rooms-twins": (
        twin_split.SHIPPED,
        "600 pairs of procedural rooms that differ in one edit, and the same question about both",
        twin_split.VERSION,
    ),
}


def description_of(name: str) -> dict[str, Any]:
    """The metadata of a benchmark's questions, as JSON-LD; the libraries of Croissant raise an error if it is wrong."""
    file, what, version = SETS[name]
    content = lzma.decompress(file.read_bytes())
    packed = croissant.FileObject(
        id=file.name, name=file.name, content_url=file.name, encoding_formats=["application/x-xz"],
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )  # fmt: skip
    questions = croissant.FileObject(
        id="questions.jsonl", name="questions.jsonl", content_url="questions.jsonl", contained_in=[file.name],
        encoding_formats=["application/jsonlines"], sha256=hashlib.sha256(content).hexdigest(),
    )  # fmt: skip
    known = json.loads(content.splitlines()[0]).keys() & COLUMNS.keys()
    fields = [_field(column, about) for column, about in COLUMNS.items() if column in known]
    metadata = croissant.Metadata(
        name=name,
        description=f"{what}. The package roomscout makes the scans, and compares them with hashes.",
        version=f"{version}.0.0",
        license=["https://creativecommons.org/publicdomain/zero/1.0/"],
        url="https://roomscout.invalid/benchmarks",
        cite_as="RoomScout, CITATION.cff",
        date_published=PUBLISHED,
        data_limitations="35 kinds of furniture, one way to draw each, one style of walls and light.",
        personal_sensitive_information=["None: no people, no photographs."],
        data_release_maintenance_plan="Changed questions or scans count the version up; older ones stay in git.",
        distribution=[packed, questions],
        record_sets=[croissant.RecordSet(id="questions", name="questions", fields=fields)],
    )
    return json.loads(json.dumps(metadata.to_json(), default=str))


def _field(column: str, about: str) -> croissant.Field:
    return croissant.Field(
        id=f"questions/{column}",
        name=column,
        description=about,
        data_types=croissant.DataType.TEXT,
        repeated=column == "options",
        source=croissant.Source(file_object="questions.jsonl", extract=croissant.Extract(column=column)),
    )


def file_of(name: str) -> Path:
    """Where the metadata of a benchmark is kept."""
    return FOLDER / f"{name.replace('-', '_')}.croissant.json"


def main() -> None:
    """Write the metadata of both benchmarks."""
    for name in SETS:
        file_of(name).write_text(json.dumps(description_of(name), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
