"""The arguments that `roomscout compare` and `roomscout leaderboard` share, and the files that both write."""

from collections.abc import Callable, Iterable
from pathlib import Path

from roomscout.analysis.outputs import write_text
from roomscout.analysis.run_argument import add_log_root
from roomscout.base.verbs import Parser, parser_of
from roomscout.runs.allow_code import add_allow_code


def comparing_parser(verb: str, description: str, runs: str, even_if: str, out: str) -> Parser:
    """A parser for RUN as `runs`, --log-root, --even-if, --out and --allow-code, with what the help says of these."""
    parser = parser_of(verb, description)
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
