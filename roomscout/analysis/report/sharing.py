"""The texts of a report for a reader elsewhere: without the paths and the name of the machine that made it."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from roomscout.analysis.report.contents import RunContents
from roomscout.base.text import escaped


class Sharing:
    """Shortens each folder and file that a run names to its own name, and leaves out the name of its host.

    run.json keeps both. A path below one of them stays readable from there: "rooms/scannet/scans/a.ply".
    """

    def __init__(self, run: RunContents):
        facts = run.facts
        known = {run.folder, run.folder.resolve(), run.folder.parent, *map(Path, _paths_in(facts.config))}
        scans = (run.reader_of(episode).scan(episode) for episode in run.begun)
        known |= {Path(scan.file).parent for scan in scans if scan is not None}
        names = {escaped(str(path)): escaped(path.name) for path in known if path.name}
        names[escaped(str(Path.home()))] = "~"
        longest_first = sorted(names, key=len, reverse=True)
        self._names = names
        self._paths = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?![\w-])")
        host = re.escape(escaped(facts.host))
        self._host = re.compile(rf" on {host}$|(?<=//){host}(?=[:/]|$)") if facts.host else None

    def of(self, value: Any) -> Any:
        """A JSON value, or a tuple in one, with its texts shortened; anything else as it is."""
        if isinstance(value, dict):
            return {name: self.of(each) for name, each in value.items()}
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(self.of(each) for each in value)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = self._paths.sub(lambda found: self._names[found[1]], text)
        return self._host.sub(lambda found: "" if found[0].startswith(" on") else "host", text) if self._host else text


def _paths_in(value: Any) -> Iterator[str]:
    """The absolute paths among the settings of a run."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _paths_in(each)
    elif isinstance(value, str) and PurePath(value).is_absolute():
        yield value
