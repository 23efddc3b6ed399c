"""Reads YAML files in which every value is text: a scene called 0042 or an option called yes stays as it is."""

from pathlib import Path
from typing import Any, ClassVar

import yaml

_TAG = "tag:yaml.org,2002:"


class _TextLoader(yaml.SafeLoader):
    """Reads all but null as text; refuses tags, repeated keys, and aliases of collections, which can take gigabytes."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in (f"{_TAG}null", f"{_TAG}merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors: ClassVar = {
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(_TAG) in ("null", "merge", "str", "seq", "map")
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        alias = self.peek_event() if self.check_event(yaml.AliasEvent) else None
        node = super().compose_node(parent, index)
        if alias is not None and isinstance(node, yaml.CollectionNode):
            problem = f"*{alias.anchor} stands for a list or a mapping: write it there again"
            raise yaml.composer.ComposerError(None, None, problem, alias.start_mark)
        if isinstance(node, yaml.MappingNode):
            seen = set[str]()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    problem = f"{key.value} is there twice: leave one out"
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                seen.add(str(key.value))
        return node


def read_yaml(path: Path) -> Any:
    """The texts, None, lists and dictionaries of a YAML file; raises OSError, or ValueError for any other YAML."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_TextLoader)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
