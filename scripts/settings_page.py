"""Writes docs/settings.md, the table of all settings, from their declarations: python scripts/settings_page.py."""

from pathlib import Path

from roomscout.base.errors import flag
from roomscout.base.text import either
from roomscout.edge.declaring import Role
from roomscout.edge.settings import DEFAULTS, SECTIONS, SETTINGS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
INTRODUCTION = """\
# Settings

Every setting of a run, as declared; `scripts/settings_page.py` writes this page. A setting has one name: a flag with
dashes (`--batch-size 8`), a key of the YAML file of `--config` with underscores (`batch_size: 8`), and an argument of
`ask` and `explore` in Python. `--no-` turns a switch off. `roomscout eval --help` shows the values that each takes.

The role says what a setting decides:
"""
ROLES = {
    "CALL, DISPLAY, SPEED, PLACE, OUTPUT": "may change when a run is resumed",
    "ANSWER": "is a condition: runs that differ in it are compared only with `--even-if`",
}


def settings_page() -> str:
    """The text of the page."""
    lines = [INTRODUCTION, "| role | decides |", "|---|---|"]
    lines += [f"| {role.name} | {role.value} |" for role in Role]
    lines += ["", *(f"- {names}: {meaning}." for names, meaning in ROLES.items())]
    for section in SECTIONS:
        title = section.title.capitalize() if section.title.islower() else section.title
        lines += ["", f"## {title}", ""]
        lines += ["| flag | default | role | meaning |", "|---|---|---|---|"]
        for name, meaning in section.helps().items():
            declared = SETTINGS[name]
            if declared.choices is not None:
                meaning = meaning.replace("{choices}", either([*declared.choices()]))
            cells = [f"`{flag(name)}`", _shown(DEFAULTS[name]), declared.role.name, meaning]
            lines.append(f"| {' | '.join(map(_escaped, cells))} |")
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    text = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return "" if text in ("", "None") else {"True": "on", "False": "off"}.get(text, f"`{text}`")


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(settings_page())
