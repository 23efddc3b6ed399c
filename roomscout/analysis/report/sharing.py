"""What must not leave with a page: paths, host and user names, keys, and URLs of servers."""

import html
import json
import os
import re
import socket
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

from roomscout.runs.reader import RunReader

BLOB = re.compile(r"([A-Za-z0-9+/=]{200,})")  # images and meshes in base64, which hold pixels and places alone
KEY = re.compile(
    r"\b(?:sk|xai|nvapi|pplx)-[\w-]{8,}|\b(?:hf|gsk|gh[opsu]|github_pat)_\w{16,}|\bA(?:Iza[\w-]{30,}|KIA\w{16})"
    r"|\bBearer [\w.+/=-]{12,}|(?<=://)[^/\s@\"'<>]+(?=@)"
)
HOMES = re.compile(r"(?:file://)?/(?:home|Users)/[^/\s\"'<>\\]+")
LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
SHORTEST_KEY = 8


class Sharing:
    """Takes out of texts what tells of the machines that made a run, as far as it is known or looks like it."""

    def __init__(self, reader: RunReader):
        facts = reader.facts
        texts = list(_texts_in(reader.facts.config))
        paths = {str(reader.folder.absolute()), str(reader.folder.resolve())}
        paths |= {text for text in texts if PurePath(text).is_absolute()}
        paths |= {scan.file for scan in map(reader.scan, reader.begun) if scan is not None}
        paths |= {str(parent) for path in paths for parent in PurePath(path).parents if len(parent.parts) > 2}
        self._names: dict[str, str] = {}
        for path in paths:
            place = PurePath(path)
            name = place.name
            if place == Path.home() or str(place.parent) in ("/home", "/Users"):
                name = "~"  # else it is that of a user
            forms = {path, json.dumps(path)[1:-1], html.escape(path), html.escape(path, quote=False)}
            self._names |= dict.fromkeys(forms, name)
        self._known = re.compile(_any_of(self._names) + r"(?![\w-])")
        tops = {PurePath(path).parts[1] for path in paths} | {entry.name for entry in os.scandir("/") if entry.is_dir()}
        self._path = re.compile(rf"(?<![\w./+=-])(?:file://)?/{_any_of(tops)}(?:/[\w.@%+~-]+)+")
        keys = {os.environ.get(str(value), "") for name, value in facts.config.items() if name.endswith("key_env")}
        self._keys = {key for key in keys if len(key) >= SHORTEST_KEY}
        hosts = {socket.gethostname(), facts.host, str(facts.setting("address")).rpartition(":")[0]}
        hosts |= {resumption.host for resumption in facts.resumed} | {part.host for part in facts.merged}
        hosts |= {urlsplit(text).hostname or "" for text in texts if "://" in text and _is_private(text)}
        self._hosts = {host for host in hosts if host and host not in LOCAL}

    def text(self, text: str) -> str:
        """The text of a page or a file, without them. Data in base64 stays as it is."""
        parts = BLOB.split(str(text))  # no Markup of a template, which would escape what is added to it
        return "".join(part if place % 2 else self._words(part) for place, part in enumerate(parts))

    def _words(self, text: str) -> str:
        for key in self._keys:
            text = text.replace(key, "[key]")
        text = self._known.sub(lambda match: self._names[match[0]], KEY.sub("[key]", text))
        text = self._path.sub(lambda match: match[0].rsplit("/", 1)[1], HOMES.sub("~", text))
        for host in self._hosts:
            where = r"\b" if re.search(r"[\d.-]", host) else r"(?:(?<=//)|(?<= on )|(?<=@))"  # a plain word may mean it
            text = re.sub(rf"{where}{re.escape(host)}\b", "host", text)
        return text


def _is_private(url: str) -> bool:
    """Whether a server is one of a network of its own, and not a service that everybody knows."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    public = parts.scheme == "https" and parts.port is None and "." in host and not host.rpartition(".")[2].isdigit()
    return not public or host.endswith((".local", ".internal", ".lan"))


def _any_of(texts: Collection[str]) -> str:
    return f"({'|'.join(map(re.escape, sorted(texts, key=len, reverse=True)))})"


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)
    elif isinstance(value, str):
        yield value
