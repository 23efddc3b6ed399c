"""The errors of a run that cannot begin or go on as it was asked for: what happened, and which setting is at fault."""


class Refusal(Exception):
    """Says what happened and what to do, without the name of a flag. Where a setting is at fault, `setting` is its
    name, and a command puts the flag before the sentence: see `roomscout.base.wording.in_words`. A `value` is shown
    beside the flag."""

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
