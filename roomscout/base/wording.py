"""How messages name settings: as flags of the command, arguments of Python or keys of a YAML file.

A lower layer says which setting fixes a problem, and with which value: `f"add {named(scale=0.001)}"`. Who asked, the
edge, selects the words with `words_of`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True)
class Words:
    """One way to name settings.

    `form` words a setting with a value, None for none; `apart` is between several. `own` has all other words: for
    settings that are called otherwise, and for what users do: "ask" about a "scan", "resume" a run, "retry" what
    failed, or ask a server "slower". A value follows them after a blank.
    """

    form: Callable[[str, object], str]
    apart: str
    own: Mapping[str, str] = field(default_factory=dict)

    def named(self, name: str, value: object = None) -> str:
        """A setting, and the value to give it, if any."""
        if name not in self.own:
            return self.form(name, value)
        return " ".join(filter(None, [self.own[name], "" if value is None else str(value)]))


def flag(name: str, value: object = None) -> str:
    """The command-line flag of a setting, and its value."""
    name = "continue" if name == "continue_from" else name.replace("_", "-")
    if value is None or isinstance(value, bool):
        return f"--no-{name}" if value is False else f"--{name}"
    return f"--{name} {_text(value)}"


def key(name: str, value: object = None) -> str:
    """A setting as a key of a YAML file, and its value."""
    name = "continue" if name == "continue_from" else name
    return name if value is None else f"{name}: {_text(value)}"


def argument(name: str, value: object = None) -> str:
    """A setting as an argument in Python, and its value; a text in capitals stands for a value."""
    if value is None:
        return name
    quoted = isinstance(value, str | Path) and not str(value).isupper()
    return f'{name}="{value}"' if quoted else f"{name}={value if isinstance(value, bool) else _text(value)}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


COMMAND = Words(
    flag,
    " ",
    {
        "scan": "--ply",
        "ask": "--ply",
        "ask_or_demo": "--ply and --demo",
        "resume": "--continue",
        "retry": "resume with --continue and --retry-failed",
        "slower": "ask fewer questions at a time with --concurrency, and ",
    },
)
YAML = Words(key, ", ", COMMAND.own)
PYTHON = Words(
    argument,
    ", ",
    {
        "ply": "scan",
        "scan": "scan",
        "batch": "explore",
        "ask_or_demo": "ask",
        "demo": "`roomscout --demo`",
        "continue_from": "`roomscout resume`",
        "resume": "`roomscout resume`",
        "retry": "resume with `roomscout resume --retry-failed`",
        "slower": "ask fewer questions at a time with concurrency, and ",
        "retry_failed": "`--retry-failed`",
        "gpus": "gpus of `roomscout eval`",
        "check_data": "`roomscout check`",
        "plan": "`roomscout plan`",
    },
)
OF_VERB = {"ask": {"scan": "", "ask": "ask"}, "resume": {"resume": "resume"}}
"""What the users of a verb typed instead of flags."""
OF_JUDGE = {
    "base_url": flag("judge_url"),
    "api_key_env": flag("judge_key_env"),
    "model": flag("judge"),
    "slower": "",
    "retry": "ask for the missing marks again",
}
"""What is said of the server of a judge."""

_spoken = [COMMAND]  # innermost last; for all threads, since a run's errors are raised in several


def spoken() -> Words:
    """The words in which messages are now."""
    return _spoken[-1]


@contextmanager
def words_of(words: Words) -> Iterator[None]:
    """Have messages name settings in these words."""
    _spoken.append(words)
    try:
        yield
    finally:
        _spoken.remove(words)


def words_of_verb(argv: Sequence[str]) -> Words:
    """The command's words for the users of a command line, which may begin with a verb."""
    return replace(COMMAND, own={**COMMAND.own, **OF_VERB.get("".join(argv[:1]), {})})


class Worded(dict[str, object]):
    """The fields of a template: facts by name. All other fields name settings, as in {steps} and {steps=0}.

    {steps=} is the setting with its value in `settings`.
    """

    def __init__(self, facts: Mapping[str, object], settings: Mapping[str, object] | None = None) -> None:
        super().__init__(facts)
        self._settings = settings or {}

    def __missing__(self, field: str) -> str:
        name, has_value, text = field.partition("=")
        if not has_value:
            return named(name)
        value: object = text if text else self._settings[name]
        return named(**{name: {"0": 0, "False": False}.get(text, value)})


def words_of_judge() -> Words:
    """The words that are spoken, with a judge's settings for those of a model's server."""
    return replace(spoken(), own={**spoken().own, **OF_JUDGE})


def named(*names: str, **values: object) -> str:
    """Settings by name, and settings with the value that each needs, in the words of who asked."""
    words = spoken()
    return words.apart.join([*(words.named(each) for each in names), *(words.named(*each) for each in values.items())])
