"""How messages name a setting, by its flag, and its value."""


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
