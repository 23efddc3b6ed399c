"""Reads question rows from the hub or from a .jsonl, .json, .csv, .tsv or .parquet file, without validating them."""

import codecs
import csv
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from roomscout.base.extras import require
from roomscout.base.text import escaped
from roomscout.base.wording import named

MAX_CELL_CHARACTERS = 10_000_000
"""Limit of a CSV cell. The standard library's default is 131,072."""
OPTIONAL_COLUMNS = ("id", "options")
COLUMNS = ("id", "dataset", "scene_name", "question_type", "question", "options", "ground_truth")
"""The columns of questions, which are VSI-Bench's; a file may omit OPTIONAL_COLUMNS."""
KIND_COLUMNS = ("answer_kind", "unit")
"""Columns with which a row declares the kind of its answer, for question types that no benchmark defines."""

SCAN_COLUMN = "scan"
"""A column with the path of the row's scan file. Such a row needs no dataset and no scene_name."""
AS_GIVEN = "as_given"
"""A column that is true in the files of `saved`. Such a row skips the benchmark's column mapping and
exclusions, and may have a `ground_truth` of null."""

START_COLUMN = "start"
"""An optional column with the place and the heading at which a question starts: see `roomscout.data.starts`."""
EXTRA_ANSWERS = "extra_answers"
"""An optional column with a list of further right answers, which a judge reads beside the ground truth."""
SCALE_COLUMN = "scale"
UP_AXIS_COLUMN = "up_axis"
"""Optional columns with the unit of the row's scan in metres, and the axis that points up in it."""
OWN_COLUMNS = (SCAN_COLUMN, START_COLUMN, EXTRA_ANSWERS, SCALE_COLUMN, UP_AXIS_COLUMN, AS_GIVEN)
"""Columns that a row may have whatever its benchmark's are."""

MEANT = {
    "ground_truth": "answer answers label labels gt target solution gold truth reference correct correct_answer",
    "question": "query prompt text instruction problem question_text",
    "options": "choices candidates answer_choices multiple_choice alternatives",
    "question_type": "type category task question_category qtype",
    "answer_kind": "answer_type kind answer_format",
    "scan": "image images file path ply mesh scan_path scan_file file_name filename point_cloud model",
    "scene_name": "scene scene_id scan_id room",
    "id": "index idx question_id qid uid",
    "dataset": "source data_source",
    "unit": "units answer_unit",
    "scale": "unit_m metres_per_unit scan_scale",
    "up_axis": "up axis upaxis",
    "start": "start_pose",
}
"""What other files call our columns."""
OPTION_COLUMNS = tuple("ABCDEFGH")
"""Columns with one option each, as in the files of VLMEvalKit."""

_log = logging.getLogger(__name__)

Row = Mapping[str, object]
JsonReader = Callable[[object, Path], list[Any]]
"""Makes the list of rows from the content of a .json file and the path of the file; raises QuestionError."""


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the Hugging Face hub: its repository, split, and the file that a person can download.

    The rows are those of `files`, in their order, or without them those of `config`. Name the files if the pattern of
    the configuration may match others: a question that comes twice is refused.
    """

    repository: str
    split: str
    file: str
    config: str | None = None
    files: tuple[str, ...] = ()


class QuestionError(Exception):
    """Questions cannot be used. The message names the file, the row and how to fix it."""


NumberedRow = tuple[int, Row | QuestionError]


def hub_rows(dataset: HubDataset, columns: Iterable[str] = COLUMNS) -> Iterator[tuple[int, Row]]:
    """(number from 1, row) of a dataset on the hub; raises QuestionError if it cannot be loaded."""
    name = dataset.repository
    require(f"loading {name} from the Hugging Face hub", "datasets", error=QuestionError)
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        with _asking_hub_only_if_reachable(dataset):
            files = {"data_files": {dataset.split: list(dataset.files)}} if dataset.files else {}
            table = load_dataset(name, dataset.config, split=dataset.split, **files)
    except (OSError, ValueError, DatasetsError) as error:
        raise QuestionError(
            f"cannot load {name} from the Hugging Face hub ({_first_line(error)}); on a machine with access, run "
            f"`{_download(dataset)}`, then pass the file with {named(questions='FILE')}"
        ) from error
    _require_each_once(table, dataset)
    yield from enumerate(table.select_columns([each for each in columns if each in table.column_names]), start=1)


def _require_each_once(table: Any, dataset: HubDataset) -> None:
    """Raise QuestionError if a question comes several times, because a pattern on the hub matches several files."""
    if "id" not in table.column_names:
        return
    twice = [id for id, number in Counter(table["id"]).items() if number > 1]
    if twice:
        where = f"configuration {dataset.config}" if dataset.config else listed(dataset.files)
        raise QuestionError(
            f"{dataset.repository} on the Hugging Face hub has {len(twice)} questions several times in {where}, such "
            f"as {listed(map(str, twice), 1)}, so its files have changed: run `{_download(dataset)}`, then pass the "
            f"file with {named(questions='FILE')}"
        )


def _download(dataset: HubDataset) -> str:
    return f"hf download {dataset.repository} {dataset.file} --repo-type dataset --local-dir ."


@contextmanager
def _asking_hub_only_if_reachable(dataset: HubDataset) -> Iterator[None]:
    """If the hub cannot be reached, let its libraries look into their caches only; they would retry for 30 s."""
    from datasets import config
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    before = constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    # The base of the errors of huggingface_hub's HTTP client: httpx before version 2, httpx2 since.
    no_answer: type[BaseException] = HfHubHTTPError.__mro__[1]
    try:
        get_hf_file_metadata(hf_hub_url(dataset.repository, dataset.file, repo_type="dataset"))
    except HfHubHTTPError:
        pass  # it answers, and load_dataset says what is wrong
    except (no_answer, OfflineModeIsEnabled, OSError):
        constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before


def file_rows(
    path: Path, columns: Iterable[str] = COLUMNS, read_json: JsonReader | None = None
) -> Iterator[NumberedRow]:
    """(number, row) of a question file. Numbers count from 1: lines in a .jsonl file, else records.

    `read_json` makes the rows of a .json file that is not a list of them.

    Reads at least `columns`, KIND_COLUMNS and OWN_COLUMNS, and logs a warning that names all other columns.

    For a malformed line of a .jsonl file, yields a QuestionError in place of the row, so that later rows are read too.

    Raises QuestionError for a folder, a missing file, an unknown extension or a malformed file.
    """
    if path.is_dir():
        inside = [
            each for each in sorted(path.iterdir()) if each.suffix.lower() in _READERS and "question" in each.name
        ]
        fix = f"; did you mean {inside[0]}?" if inside else ""
        if (path / "dataset_info.json").is_file():  # as save_to_disk writes it
            fix = "; save the dataset with to_parquet, and name that file"
        raise QuestionError(f"{path} is a folder; {named('questions')} takes a file{fix}")
    if path.suffix.lower() not in _READERS:
        raise QuestionError(f"{path}: unknown extension {path.suffix!r}; {named('questions')} takes {listed(_READERS)}")
    known = (*columns, *KIND_COLUMNS, *OWN_COLUMNS)
    names: dict[str, None] = {}
    reader = _READERS[path.suffix.lower()]
    try:
        if path.suffix.lower() != ".parquet" and (other := _other_content(path)):
            raise QuestionError(f"{path} is {other}")
        own_json = read_json if reader is _read_json else None
        rows = _numbered(own_json(read_json_file(path), path), path) if own_json else reader(path, known)
        for number, row in rows:
            if isinstance(row, Mapping):
                row = _with_our_names(row, known)
                names.update(dict.fromkeys(map(str, row)))
            yield number, row
    except UnicodeDecodeError as error:
        raise QuestionError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise QuestionError(f"cannot read {path}: {error.strerror or error}; check {named('questions')}") from error
    _warn_of_unknown(path, names, known)


def _other_content(path: Path) -> str | None:
    """What a text file is instead of what its name says, and what to do; None if it may be what it says."""
    with path.open("rb") as file:
        head = file.read(512).removeprefix(codecs.BOM_UTF8).lstrip()
    for start, what in _OTHER_STARTS.items():
        if head.startswith(start):
            return what
    is_json = re.match(rb'[\[{]\s*["{]', head) is not None
    if _READERS[path.suffix.lower()] is _read_csv:
        return "JSON: rename it, so that its name ends in .jsonl or .json" if is_json else None
    is_table = re.match(rb'"?[A-Za-z_][\w "]*[,;\t]', head) is not None
    return "a table: rename it, so that its name ends in .csv" if is_table else None


_OTHER_STARTS = {
    b"PK\x03\x04": "a spreadsheet or another zip archive: export it as CSV",
    b"\x1f\x8b": "packed by gzip: unpack it with gunzip",
    b"PAR1": "a parquet file: rename it, so that its name ends in .parquet",
    b"version https://git-lfs": "a Git LFS pointer: run git lfs pull in its repository",
    b"<": "a web page or XML: download the file itself",
}
"""What begins with these bytes."""


def questions_file(folder: Path) -> Path:
    """The file questions.jsonl, .json, .csv or .parquet of a folder; raises QuestionError unless there is just one."""
    found = [path for ending in _READERS if (path := folder / f"questions{ending}").is_file()]
    if len(found) != 1:
        what = f"both {found[0].name} and {found[1].name}" if found else "no file of questions"
        raise QuestionError(f"{folder} has {what}; it needs one questions{' or '.join(_READERS)}")
    return found[0]


def _warn_of_unknown(path: Path, names: Iterable[str], known: Sequence[str]) -> None:
    """Log the columns of a file that are ignored, each with the known one that it may have meant."""
    unknown = [name for name in names if name not in known and name.strip()]
    meant = {name: column_meant(name, [each for each in known if each not in names]) for name in unknown}
    if unknown:
        in_words = (name + (f" (did you mean {meant[name]}?)" if meant[name] else "") for name in unknown)
        _log.warning("%s: ignoring unknown columns: %s", path, listed(in_words))


def column_meant(name: str, missing: Sequence[str]) -> str:
    """The one of the missing columns that a column of this name likely is, by its meaning or spelling; else empty."""
    plain = _plain_name(name)
    by_meaning = [ours for ours, others in MEANT.items() if plain in others.split() and ours in missing]
    return next(iter([*by_meaning, *get_close_matches(plain, missing, n=1)]), "")


def _plain_name(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _with_our_names(row: Row, known: Sequence[str]) -> Row:
    """The row under our column names, which match whatever the case, blanks and hyphens.

    The columns A, B, ... become `options`, if there are no others.
    """
    free = {_plain_name(name): name for name in known if name not in row}
    named = {
        name if name in known or not isinstance(name, str) else free.pop(_plain_name(name), name): value
        for name, value in row.items()
    }
    if "options" in known and not named.get("options") and {"A", "B"} <= named.keys():
        given = {name: named[name] for name in OPTION_COLUMNS if name in named and named[name] not in (None, "")}
        named = {name: value for name, value in named.items() if name not in OPTION_COLUMNS} | {"options": given}
    return named


def _read_jsonl(path: Path, columns: Sequence[str]) -> Iterator[NumberedRow]:
    with path.open(encoding=_encoding(path)) as lines:
        begins_list = lines.read(1) == "["
        lines.seek(0)
        if begins_list and isinstance(rows := _json_in(lines.read()), list) and rows:
            yield from _numbered(rows, path)
            return
        lines.seek(0)
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _json_row(line, f"{path}, row {number}")


def _read_json(path: Path, columns: Sequence[str]) -> Iterator[NumberedRow]:
    text = path.read_text(encoding=_encoding(path))
    lines = text.splitlines()
    if len(lines) > 1 and isinstance(_json_in(lines[0]), dict):  # one object per line
        yield from ((number, _json_row(line, f"{path}, row {number}")) for number, line in enumerate(lines, 1) if line)
        return
    rows = _rows_in(_parse_json(text, str(path)) if text.strip() else [])
    if rows is None:
        raise QuestionError(f"{path} is not a JSON list; write [{{...}}, {{...}}], or one object per line as .jsonl")
    yield from _numbered(rows, path)


def _numbered(rows: Iterable[Any], path: Path) -> Iterator[NumberedRow]:
    return ((number, _as_row(row, f"{path}, row {number}")) for number, row in enumerate(rows, start=1))


def _json_in(text: str) -> object:
    """The JSON value of a text; None for anything else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _rows_in(content: object) -> list[Any] | None:
    """The rows of a list, of an object with one list such as {"questions": [...]} or with a row per id, or one row."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        return None
    if any(_plain_name(name) == "question" for name in content):
        return [content]
    lists = [each for each in content.values() if isinstance(each, list) and all(isinstance(row, dict) for row in each)]
    if len(lists) == 1:
        return lists[0]
    if content and all(isinstance(each, dict) for each in content.values()):
        return [{"id": id, **row} for id, row in content.items()]
    return None


def read_json_file(path: Path) -> object:
    """The content of a .json file; raises OSError, UnicodeDecodeError or QuestionError."""
    return _parse_json(path.read_text(encoding=_encoding(path)), str(path))


def _json_row(line: str, place: str) -> Row | QuestionError:
    try:
        return _as_row(_parse_json(line, place), place)
    except QuestionError as error:
        return error


def _parse_json(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"{place}: invalid JSON ({error})") from error


def _as_row(value: object, place: str) -> Row:
    if not isinstance(value, dict):
        raise QuestionError(f"{place}: expected a JSON object, got {str(value)[:40]!r}")
    return value


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[NumberedRow]:
    """Uses the standard library, which keeps values such as '007' as text."""
    number = 0
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    with path.open(encoding=_encoding(path), newline="") as lines:
        blank, header = 0, lines.readline()
        while header.isspace():
            blank, header = blank + 1, lines.readline()
        told = re.fullmatch(r"sep=(.)\s*", header)  # as Excel writes and reads it
        lines.seek(0)
        for _ in range(blank + bool(told)):
            lines.readline()
        reader = csv.DictReader(lines, strict=True, delimiter=told[1] if told else _delimiter(header, columns))
        try:
            names = [name for name in reader.fieldnames or () if name.strip()]
            if len({*names}) < len(names):
                raise QuestionError(f"{path}: the header repeats a column name; name each column once")
            for number, row in enumerate(reader, start=1):
                cells: dict[str | None, Any] = {**row}
                beyond = cells.pop(None, [])
                if not any(cell and cell.strip() for cell in (*cells.values(), *beyond)):  # as spreadsheets end with
                    continue
                if any(beyond) or None in cells.values():
                    raise QuestionError(f"{path}, row {number}: wrong number of cells; check its quotes")
                yield number, {name: cell for name, cell in row.items() if name is not None}
        except csv.Error as error:
            raise QuestionError(f"{path}, row {number + 1}: invalid CSV ({error}); check its quotes") from error


def _encoding(path: Path) -> str:
    """UTF-8, or the UTF-16 of spreadsheets, which begins with a byte order mark."""
    with path.open("rb") as file:
        return "utf-16" if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def _delimiter(header: str, columns: Sequence[str]) -> str:
    """What separates the cells: of comma, semicolon, tab and |, that which gives the most of our columns."""
    ours = {*map(_plain_name, columns), *(name for names in MEANT.values() for name in names.split())}

    def found(delimiter: str) -> int:
        return sum(_plain_name(name.strip('"')) in ours for name in header.split(delimiter))

    return max(",;\t|", key=found)


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[NumberedRow]:
    require(f"the Parquet file {path}", "pyarrow", error=QuestionError)
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.stat().st_size == 0:
        return
    try:
        names = pq.read_schema(path).names
        ours = {*columns, *map(_plain_name, columns), *OPTION_COLUMNS}
        read = [name for name in names if name in columns or _plain_name(name) in ours or name in OPTION_COLUMNS]
        _warn_of_unknown(path, [name for name in names if name not in read], columns)
        table = pq.read_table(path, columns=read)
    except pa.ArrowException as error:
        raise QuestionError(f"{path} is not a complete parquet file ({_first_line(error)})") from error
    yield from enumerate(table.to_pylist(), start=1)


_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[NumberedRow]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
QUESTION_FILES = tuple(_READERS)
"""How the names of question files end."""


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def listed(values: Iterable[str], at_most: int = 20) -> str:
    """The first `at_most` values, `escaped` and joined for a message, and the number of others."""
    values = list(values)
    more = f" and {len(values) - at_most} more" if len(values) > at_most else ""
    return ", ".join(map(escaped, values[:at_most])) + more
