"""How messages name a setting: by its flag."""

from collections.abc import Mapping

_OTHERWISE = {
    "scan": "--ply",
    "ask": "--ply",
    "resume": "--continue",
    "retry": "resume with --continue and --retry-failed",
    "slower": "ask fewer questions at a time with --concurrency, and ",
}


def flag(name: str, value: object = None) -> str:
    """The flag of a setting, and its value."""
    name = "continue" if name == "continue_from" else name.replace("_", "-")
    if value is None or isinstance(value, bool):
        return f"--no-{name}" if value is False else f"--{name}"
    return f"--{name} {f'{value:g}' if isinstance(value, float) else value}"


def named(*names: str, **values: object) -> str:
    """The flags of settings, and of settings with a value."""
    return " ".join([*(_word(name) for name in names), *(_word(*each) for each in values.items())])


def _word(name: str, value: object = None) -> str:
    if name in _OTHERWISE:
        return " ".join(filter(None, [_OTHERWISE[name], "" if value is None else str(value)]))
    return flag(name, value)


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
