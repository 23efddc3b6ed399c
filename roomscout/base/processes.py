"""What a new process of this package needs."""

import os

from roomscout import IMPORTED_FROM


def environment() -> dict[str, str]:
    """This process's environment, with the package on the Python path, and without what Python would add to that: the
    current folder, which may be a stranger's and have a json.py."""
    search_path = os.pathsep.join(filter(None, [str(IMPORTED_FROM), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": search_path, "PYTHONSAFEPATH": "1"}
