"""The error of a run that cannot begin as it was asked for."""


class ConfigError(ValueError):
    """A setting, or several together, with which no run can begin. The message names it and says what is valid."""
