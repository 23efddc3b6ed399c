"""A command line of flags alone, as render_point_cloud_qwen_angle_batched.py takes it: which verb it stands for."""

from collections.abc import Mapping, Sequence
from typing import Any

from roomscout.base.errors import UsageError, flag
from roomscout.base.verbs import Parser
from roomscout.command.words import WORDS, add_words
from roomscout.edge.flags import read_words, with_axes
from roomscout.edge.settings import VERB_WORDS, flags_giving

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
    given = VERB_WORDS | read_words(rest) | {name: value for name, value in vars(typed).items() if value is not None}
    for one, other in CONFLICTS:
        if given[one] and given[other]:
            raise UsageError(f"{_shown(one, given)} conflicts with {_shown(other, given)}: leave one of them out")
    for name, needed in NEEDS.items():
        if given[name] and not given[needed]:
            raise UsageError(f"{_shown(name, given)} needs {flag(needed)}")

    def flags(*names: str) -> list[str]:
        return flags_giving({name: given[name] for name in names})

    about = flags("question", "options", "ground_truth")
    if given["continue_from"]:
        return ["resume", given["continue_from"], *flags("batch", "retry_failed"), *rest]
    if given["plan"]:
        return ["plan", *flags("demo", "ply"), *about, *rest]
    if given["check_data"]:
        return ["check", *flags("demo"), *rest]
    if given["demo"]:
        return ["demo", *rest]
    if given["ply"] is not None:
        return ["ask", str(given["ply"]), *about, *rest]
    if given["batch"]:
        return ["eval", *rest]
    raise UsageError(
        "nothing to do: give a verb such as ask or eval, or --batch, --ply with --question, --demo or --continue; "
        "roomscout help has examples"
    )


def _shown(name: str, given: Mapping[str, Any]) -> str:
    value = given[name]
    text = " ".join(value) if isinstance(value, list) else value
    return flag(name, text)
