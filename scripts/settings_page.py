"""Writes docs/settings.md, the table of all settings, from their declarations: python scripts/settings_page.py."""

from pathlib import Path

from roomscout.base.wording import flag
from roomscout.runs.settings import SECTION_TYPES, SETTINGS, Role, default_of

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
    for section in SECTION_TYPES.values():
        lines += ["", f"## {section.title[0].upper()}{section.title[1:]}", ""]
        lines += ["| flag | default | role | meaning |", "|---|---|---|---|"]
        for name, meaning in section.helps().items():
            cells = [f"`{flag(name)}`", _shown(default_of(name)), SETTINGS[name].role.name, meaning]
            lines.append(f"| {' | '.join(map(_escaped, cells))} |")
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    text = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return "" if text in ("", "None") else {"True": "on", "False": "off"}.get(text, f"`{text}`")


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(settings_page())
