"""Measurements of speed and memory in a checkout, run as `python -m benchmarks.NAME`."""

import argparse
import os
from pathlib import Path


def new_file(text: str) -> Path:
    """The argument of a flag for a file to write at the end; raises argparse.ArgumentTypeError if it cannot be."""
    path = Path(text)
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: name a file in a folder that exists")
    return path
