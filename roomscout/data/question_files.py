"""Reads question rows from the hub or from a .jsonl, .json, .csv, .tsv or .parquet file, without validating them."""

import csv
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout.base.errors import Refusal
from roomscout.base.extras import require
from roomscout.base.files import folder_of, is_file, not_fetched
from roomscout.base.text import first_line, json_in, listed, on_disk
from roomscout.data.scan_frames import is_empty, scan_path

MAX_CELL_CHARACTERS = 10_000_000  # limit of a CSV cell; the standard library's default is 131,072
OPTIONAL_COLUMNS = ("id", "options")
COLUMNS = ("id", "dataset", "scene_name", "question_type", "question", "options", "ground_truth")
"""The columns of questions, which are VSI-Bench's; a file may omit OPTIONAL_COLUMNS."""
OPTION_COLUMNS = tuple("ABCDEFGH")  # columns with one option each, instead of `options`
AS_GIVEN = "as_given"  # of files of `saved`: if true, a row skips mapping and exclusions; ground_truth may be null
OWN_COLUMNS = (
    "scan", "answer_kind", "unit", "start", "scale", "up_axis", "extra_answers", "images", "canary", AS_GIVEN
)  # fmt: skip
"""Columns that a row may have whatever its benchmark's are: the path of its scan, instead of dataset and scene; the
kind of its answer, for a type that no benchmark defines; the start of the camera; the unit and the up axis of its scan;
further right answers, for a judge; its pictures, as a list of files; and a mark of test data, which nothing reads."""

_NOT_MISSED = ("images", "start", "options", "scale", "up_axis", "answer_kind", "unit", "extra_answers")
"""Columns without which a row may be whole, so that only their names tell that one was meant."""
_SHARD = re.compile(r"(.+)-[0-9]{5}-of-([0-9]{5})\.parquet")
_log = logging.getLogger(__name__)
QuestionRow = Mapping[str, object]
JsonReader = Callable[[object, Path], list[Any]]  # the rows of a .json file from its content and path; QuestionError


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the Hugging Face hub. A question that comes twice is refused."""

    repository: str  # owner/name
    split: str  # such as "test"
    file: str  # that a person can download
    config: str | None = None  # whose rows it has, if no files are named; its pattern may match others
    files: tuple[str, ...] = ()  # whose rows it has


class QuestionError(Refusal):
    """Questions cannot be used. The message names the file, the row and how to fix it."""


NumberedRow = tuple[int, QuestionRow | QuestionError]


def hub_rows(dataset: HubDataset, columns: Iterable[str] = COLUMNS) -> Iterator[NumberedRow]:
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
            f"cannot load {name} from the Hugging Face hub ({first_line(error)}); on a machine with access, run `hf "
            f"download {name} {dataset.file} --repo-type dataset --local-dir .`, then name the file here",
            setting="questions",
        ) from error
    yield from enumerate(table.select_columns([name for name in columns if name in table.column_names]), start=1)


@contextmanager
def _asking_hub_only_if_reachable(dataset: HubDataset) -> Iterator[None]:
    """If the hub cannot be reached, let its libraries look into their caches only; they would retry for 30 s."""
    from datasets import config
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    before = (constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE)
    # The base of the errors of huggingface_hub's HTTP client: httpx before version 2, httpx2 since.
    no_answer: type[BaseException] = HfHubHTTPError.__mro__[1]
    try:
        get_hf_file_metadata(hf_hub_url(dataset.repository, dataset.file, repo_type="dataset"))
    except HfHubHTTPError:
        pass  # it answers, and load_dataset says what is wrong
    except (no_answer, OfflineModeIsEnabled, OSError):
        constants.HF_HUB_OFFLINE = True
        config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before


def file_rows(path: Path, columns: Iterable[str] = COLUMNS, reader: JsonReader | None = None) -> Iterator[NumberedRow]:
    """(number, row) of a question file. Numbers count from 1: lines in a .jsonl file, rows of the sheet in a .csv or
    .tsv file, else records. Reads `columns`, OWN_COLUMNS and OPTION_COLUMNS, and logs a warning that names all other
    columns. `reader` makes the rows of a .json file that is not a list of them. `path` may be a folder with the
    Parquet shards of a split. For a malformed line of a .jsonl file, yields a QuestionError in place of the row, so
    that later rows are read too. Raises QuestionError for a file that cannot be read as its extension says."""
    suffix = "" if path.is_dir() else path.suffix.lower()
    if suffix not in QUESTION_FILES and not path.is_dir():
        raise QuestionError(f"{path}: a question file is one of {listed(QUESTION_FILES)}")
    names: dict[str, None] = {}
    filled = set[str]()
    try:
        if suffix:
            with path.open("rb") as file:
                if why := not_fetched(file.read(200)):
                    raise QuestionError(f"{path} {why}")
        if suffix == ".json" and reader is not None:
            rows = _objects(reader(read_json_file(path), path), path)
        else:
            rows = _READERS[suffix](path) if suffix else _read_shards(path)
        for number, row in rows:
            if not isinstance(row, QuestionError):
                names.update(dict.fromkeys(row))
                row = {**row, **_options_of_columns(row), **_scan_beside(row, path)}
                filled.update(name for name, cell in row.items() if not is_empty(cell))
            yield number, row
    except UnicodeDecodeError as error:
        raise QuestionError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it again as UTF-8, which Excel "
            'calls "CSV UTF-8"'
        ) from error
    except OSError as error:
        raise QuestionError(f"cannot read {path}: {error.strerror or error}") from error
    read = {"", *columns, *OWN_COLUMNS, *OPTION_COLUMNS}
    if unknown := [name for name in names if name not in read]:
        for name in filter(filled.__contains__, unknown):
            if (meant := _meant(name)) and meant not in filled:
                raise QuestionError(f"{path}: column {name!r} is not read: did you mean {meant}? Rename or remove it")
        _log.warning("%s: ignoring unknown columns: %s", path, listed(unknown))


def _meant(name: str) -> str | None:
    """The optional column that a column which nothing reads is probably meant as: `image_path` as `images`."""
    stem = re.sub(r"_?(path|file|name|url)s?$", "", name.lower())
    stem = re.sub(r"^(img|picture|photo)", "image", stem)
    return next((column for column in _NOT_MISSED if _bare(stem) == _bare(column)), None)


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name).removesuffix("s")


def _options_of_columns(row: QuestionRow) -> QuestionRow:
    if row.get("options") or not {"A", "B"} <= row.keys():
        return {}
    return {"options": {name: row[name] for name in OPTION_COLUMNS if row.get(name) not in (None, "")}}


def _scan_beside(row: QuestionRow, file: Path) -> QuestionRow:
    """The absolute path of a scan that is relative to the file's folder, and the scene's name, by default the path."""
    try:
        scan = scan_path(row.get("scan"))
    except ValueError:  # it is refused with its row
        return {}
    beside = folder_of(file).absolute() / scan
    if not scan or not is_file(on_disk(beside)):
        return {}
    return {"scene_name": row.get("scene_name") or str(Path(scan).with_suffix("")), "scan": str(beside)}


def questions_file(folder: Path) -> Path:
    """The file questions.jsonl, .json, .csv, .tsv or .parquet of a folder; raises QuestionError unless there is one."""
    paths = [folder / f"questions{ending}" for ending in QUESTION_FILES]
    files = [path for path in paths if path.is_file()]
    if len(files) != 1:
        raise QuestionError(f"{folder} needs one file questions{' or '.join(QUESTION_FILES)}, and has {len(files)}")
    return files[0]


def _read_jsonl(path: Path) -> Iterator[NumberedRow]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                place = f"{path}, row {number}"
                try:
                    yield number, _object(_parse_json(line, place), place)
                except QuestionError as error:
                    yield number, error


def _read_json(path: Path) -> Iterator[NumberedRow]:
    content = read_json_file(path)
    if not isinstance(content, list):
        fix = ""
        if isinstance(content, dict) and content and all(isinstance(column, dict) for column in content.values()):
            fix = ': this is a table by columns, which pandas writes by rows with to_json(path, orient="records")'
        raise QuestionError(f"{path} must be a JSON list of objects, [{{...}}, {{...}}]{fix}")
    return _objects(content, path)


def _objects(rows: Iterable[object], path: Path) -> Iterator[NumberedRow]:
    return ((number, _object(row, f"{path}, row {number}")) for number, row in enumerate(rows, start=1))


def _object(value: object, place: str) -> QuestionRow:
    if not isinstance(value, dict):
        raise QuestionError(f"{place}: expected a JSON object, got {str(value)[:40]!r}")
    return value


def read_json_file(path: Path) -> object:
    """The content of a .json file; raises OSError, UnicodeDecodeError or QuestionError."""
    return _parse_json(path.read_text(encoding="utf-8-sig"), str(path))


def _parse_json(text: str, place: str) -> object:
    try:
        return json_in(text)
    except ValueError as error:
        raise QuestionError(f"{place}: invalid JSON ({error})") from error


def _read_csv(path: Path) -> Iterator[NumberedRow]:
    """Rows of a table with commas, semicolons or tabs, as text: '007' stays so. Rows are numbered as in a spreadsheet,
    where the header is row 1; without a column `id`, questions are numbered from 1."""
    place = 1
    number = 0
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        delimiter = max(",;\t", key=lines.readline().count)
        lines.seek(0)
        reader = csv.reader(lines, strict=True, delimiter=delimiter)
        try:
            names = next(reader, [])
            if len(set(names)) < len(names):
                raise QuestionError(f"{path}: the header repeats a column name")
            for place, cells in enumerate(reader, start=2):
                if not any(cells):  # spreadsheets end with rows of empty cells
                    continue
                if len(cells) != len(names):
                    raise QuestionError(
                        f"{path}, row {place}: {len(cells)} cells below a header of {len(names)}; check its quotes"
                    )
                number += 1
                yield place, {"id": number, **dict(zip(names, cells, strict=True))}
        except csv.Error as error:
            raise QuestionError(f"{path}, row {place + 1}: invalid CSV ({error}); check its quotes") from error


def _read_parquet(path: Path) -> Iterator[NumberedRow]:
    require(f"the Parquet file {path}", "pyarrow", error=QuestionError)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            yield from enumerate(pq.read_table(file).to_pylist(), start=1)
    except pa.ArrowException as error:
        raise QuestionError(f"{path} is not a complete parquet file ({first_line(error)})") from error


def _read_shards(folder: Path) -> Iterator[NumberedRow]:
    """The rows of a split in several Parquet files, as the hub has them: test-00000-of-00002.parquet and so on."""
    shards = [path for path in sorted(folder.iterdir()) if _SHARD.fullmatch(path.name)]
    match = _SHARD.fullmatch(shards[0].name) if shards else None
    expected = [f"{match[1]}-{place:05d}-of-{match[2]}.parquet" for place in range(int(match[2]))] if match else []
    if not shards or [path.name for path in shards] != expected:
        raise QuestionError(
            f"{folder} is a folder: give the question file in it, or a folder with all shards of one split, such as "
            "test-00000-of-00002.parquet and test-00001-of-00002.parquet"
        )
    rows = (row for path in shards for _, row in _read_parquet(path))
    return enumerate(rows, start=1)


_READERS: dict[str, Callable[[Path], Iterator[NumberedRow]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
QUESTION_FILES = tuple(_READERS)  # how the names of question files end
