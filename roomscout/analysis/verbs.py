"""What the verbs that read a run share: the argument RUN, which of its answers, and where and how they may write."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from roomscout.base.files import replacing
from roomscout.base.tables import Table, latex_text
from roomscout.base.text import escaped, in_markdown, listed
from roomscout.base.verbs import Parser
from roomscout.runs import LOG_ROOT, RunError
from roomscout.runs.reader import load_code_of, named_run, newest_run, run_folders
from roomscout.runs.records import ResultRow

TABLE_SUFFIXES = (".md", ".csv", ".tex")


def add_run(parser: argparse.ArgumentParser, what: str = "a run folder, also of a run in progress") -> None:
    """Add RUN as `run`, which may be left out, --log-root as `log_root`, and --allow-code."""
    parser.add_argument(
        "run", metavar="RUN", type=Path, nargs="?",
        help=f"{what}, or the name of a run below --log-root; by default the newest run there",
    )  # fmt: skip
    add_log_root(parser)
    add_allow_code(parser)


def add_log_root(parser: argparse.ArgumentParser) -> None:
    """Add --log-root as `log_root`."""
    parser.add_argument(
        "--log-root", metavar="DIR", type=Path, default=LOG_ROOT, help="the folder of the runs (%(default)s)"
    )


def add_allow_code(parser: argparse.ArgumentParser) -> None:
    """Add --allow-code as `allow_code`."""
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="execute the Python file or module that a run names as its benchmark: to compute what run.json does not "
        "describe, such as scores of your own kind of answer; only for runs of people you trust",
    )


def chosen_run(given: argparse.Namespace) -> Path:
    """The folder that RUN names, or the newest run below --log-root, which is printed to stderr; raises RunError if
    there is none. --allow-code executes the code that it, or each run in it, names as its benchmark."""
    log_root = given.log_root.expanduser()
    if given.run is not None:
        folder = named_run(given.run, log_root)
    else:
        folder = newest_run(log_root)
        sys.stderr.write(escaped(f"The newest run: {folder}") + "\n")
    if given.allow_code:
        runs = [folder] if (folder / "run.json").exists() else run_folders(folder)
        load_code_of(runs)
    return folder


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add RUN and --log-root (see `add_run`), and --type and --scene as `types` and `scenes`."""
    add_run(parser)
    parser.add_argument("--type", dest="types", nargs="+", default=(), metavar="TYPE", help="only these question types")
    parser.add_argument("--scene", dest="scenes", nargs="+", default=(), metavar="SCENE", help="only these scenes")


def chosen_rows(rows: Sequence[ResultRow], types: Sequence[str], scenes: Sequence[str]) -> list[ResultRow]:
    """The rows of these types and scenes, all if none are given; raises RunError naming the flag if none has one."""
    _require_present("--type", types, [row.question_type for row in rows])
    _require_present("--scene", scenes, [row.scene_name for row in rows])
    return [
        row for row in rows if (not types or row.question_type in types) and (not scenes or row.scene_name in scenes)
    ]


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _require_present(flag: str, wanted: Sequence[str], present: Sequence[str]) -> None:
    if absent := [name for name in wanted if name not in present]:
        known = listed(sorted(set(present))) or "no finished question"
        raise RunError(f"{flag}: no finished question of the run has {listed(absent)}; it has {known}")


def require_outside_runs(out: Path, prefix: str | None = None) -> None:
    """Raise RunError if `out` is a folder, or is in a run folder, whose files stay as they are. A file directly in a
    run folder is allowed if its name begins with `prefix`, the name of what the verb writes there."""
    if out.is_dir():
        raise RunError(f"--out {out} is a folder: name a file in it")
    require_own_place(out, prefix)


def require_own_place(out: Path, prefix: str | None = None, named_by: str = "--out") -> None:
    """Raise RunError as `require_outside_runs` does, also for a folder; `named_by` is the flag that names it."""
    place = out.parent.resolve()
    for folder in (out.resolve(), place, *place.parents):
        if (folder / "run.json").exists() and not (prefix and folder == place and out.name.startswith(prefix)):
            raise RunError(f"{named_by} {out} is in the run folder, which stays as it is: choose a place outside it")


def require_writable(outs: Iterable[Path], suffixes: Sequence[str], prefix: str | None = None) -> None:
    """Raise RunError unless all files end in one of the suffixes, and as `require_outside_runs` does."""
    for out in outs:
        if out.suffix.lower() not in suffixes:
            raise RunError(f"--out {out}: name a file that ends in {', '.join(suffixes)}")
        require_outside_runs(out.expanduser(), prefix)


def require_free(out: Path, force: bool) -> None:
    """Raise RunError if `out` is in a run folder, is a folder itself, or exists and `force` is not given."""
    require_outside_runs(out)
    if out.exists() and not force:
        raise RunError(f"{out} exists: choose another --out, or replace it with --force")


@contextmanager
def writing(out: Path) -> Iterator[Path]:
    """Yield a draft that then takes the place of a file; raises RunError if it cannot be written."""
    try:
        with replacing(out) as draft:
            yield draft
    except OSError as error:
        raise RunError(f"{error.filename or out} cannot be written ({error.strerror or error})") from None


def write_text(path: Path, text: str) -> None:
    """Write a file completely, or not at all, and its folder; raises RunError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path.parent} cannot be made ({error.strerror or error})") from None
    with writing(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")


def markdown_text(lines: Iterable[str]) -> str:
    """Lines of Markdown as the text of a file, in which outside text cannot be markup."""
    return "".join(f"{in_markdown(line)}\n" for line in lines)


def table_text(table: Table, suffix: str, caption: str) -> str:
    """A table as the text of a file with one of TABLE_SUFFIXES; the caption is for LaTeX."""
    if suffix == ".csv":
        return table.csv()
    if suffix == ".md":
        return markdown_text(table.markdown())
    return latex_text({caption: table})


def comparing_parser(verb: str, runs: str, even_if: str, out: str) -> Parser:
    """A parser for RUN as `runs`, --log-root, --even-if, --out and --allow-code, with what the help says of these."""
    parser = Parser(prog=f"roomscout {verb}")
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN", help=runs)
    add_log_root(parser)
    parser.add_argument("--even-if", nargs="+", default=(), metavar="NAME", help=even_if)
    parser.add_argument("--out", type=Path, nargs="+", default=(), metavar="FILE", help=out)
    add_allow_code(parser)
    return parser


def write_files(outs: Iterable[Path], text_of: Callable[[Path], str]) -> None:
    """Write the text of each file of --out; raises RunError."""
    for out in (path.expanduser() for path in outs):
        write_text(out, text_of(out))
