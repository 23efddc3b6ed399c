"""What a new process of this package needs."""

import os

from roomscout import IMPORTED_FROM


def environment() -> dict[str, str]:
    """This process's environment, with the package and without the current folder, which may have a json.py."""
    search_path = os.pathsep.join(filter(None, [str(IMPORTED_FROM), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": search_path, "PYTHONSAFEPATH": "1"}
