"""A command line of flags alone, as render_point_cloud_qwen_angle_batched.py takes it: which verb it stands for."""

from collections.abc import Mapping, Sequence
from typing import Any

from roomscout.base.errors import UsageError
from roomscout.base.verbs import Parser
from roomscout.base.wording import flag
from roomscout.command.words import WORDS, add_words
from roomscout.edge.flags import read_words, with_axes

CONFLICTS = (
    *(("batch", "ply"), ("batch", "demo"), ("demo", "ply"), ("plan", "continue_from"), ("ply", "continue_from")),
    *(("check_data", "plan"), ("check_data", "ply")),
)
NEEDS = {"retry_failed": "continue_from", "question": "ply", "options": "question", "ground_truth": "question"}


def in_verbs(argv: Sequence[str]) -> list[str]:
    """The same command line with a verb. Raises UsageError if it does not say what to do, or two things."""
    parser = Parser(add_help=False, allow_abbrev=False)
    add_words(parser, tuple(WORDS))
    typed, rest = parser.parse_known_args(with_axes(argv))
    given = {**read_words(rest), **{name: value for name, value in vars(typed).items() if value is not None}}
    for one, other in CONFLICTS:
        if given.get(one) and given.get(other):
            raise UsageError(f"{_shown(one, given)} conflicts with {_shown(other, given)}: leave one of them out")
    for name, needed in NEEDS.items():
        if given.get(name) and not given.get(needed):
            raise UsageError(f"{_shown(name, given)} needs {flag(needed)}")
    scan = given.get("ply")
    about = [word for name in ("question", "options", "ground_truth") for word in _flags(name, given)]
    batch = _flags("batch", given)
    if given.get("continue_from"):
        return ["resume", given["continue_from"], *batch, *_flags("retry_failed", given), *rest]
    if given.get("plan"):
        return ["plan", *_flags("demo", given), *_flags("ply", given), *about, *rest]
    if given.get("check_data"):
        return ["check", *_flags("demo", given), *rest]
    if given.get("demo"):
        return ["demo", *rest]
    if scan is not None:
        return ["ask", str(scan), *about, *rest]
    if batch:
        return ["eval", *rest]
    raise UsageError(
        "nothing to do: give a verb such as ask or eval, or --batch, --ply with --question, --demo or --continue; "
        "roomscout help has examples"
    )


def _shown(name: str, given: Mapping[str, Any]) -> str:
    value = given[name]
    text = " ".join(value) if isinstance(value, list) else value
    return flag(name, text)


def _flags(name: str, given: Mapping[str, Any]) -> list[str]:
    """The flag of a word with its value; nothing if it is not given."""
    value = given.get(name)
    if value is None or value is False or value == []:
        return []
    values = value if isinstance(value, list) else [value]
    return [flag(name)] if value is True else [flag(name), *map(str, values)]
