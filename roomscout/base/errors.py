"""The errors of a run that cannot begin or go on as it was asked for, and how they name the setting at fault."""


class Refusal(Exception):
    """Says what happened and what to do, without the name of a flag. Where a setting is at fault, `setting` is its
    name, and a command puts the flag before the sentence: see `in_words`. A `value` is shown beside the flag."""

    setting: str | None = None
    value: object = None

    def __init__(self, *sentence: object, setting: str | None = None, value: object = None):
        super().__init__(*sentence)
        self.setting = setting or self.setting
        self.value = value


class SettingError(Refusal, ValueError):
    """A setting has a value that the part which reads it cannot use. The edge raises it again as ConfigError."""


class ConfigError(ValueError):
    """Settings with which no run can begin: names the flag and what is valid. Raised by `roomscout.edge` alone."""


class UsageError(Exception):
    """A command line that does not say what to do, or that says what its verb does not do."""


def as_words(value: object) -> str:
    """A value of a setting as text: several by spaces, a number without zeros at its end."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def flag(name: str, value: object = None) -> str:
    """The flag of a setting, and its value."""
    name = "continue" if name == "continue_from" else name.replace("_", "-")
    if value is None or isinstance(value, bool):
        return f"--no-{name}" if value is False else f"--{name}"
    return f"--{name} {as_words(value)}"


def in_words(error: BaseException) -> str:
    """An error as a command prints it: after the flag of the setting at fault, if the error names one."""
    setting = getattr(error, "setting", None)
    return str(error) if setting is None else f"{flag(setting, getattr(error, 'value', None))}: {error}"
