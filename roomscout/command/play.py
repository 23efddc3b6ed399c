"""The verb `play`: people answer in place of a model."""

from collections.abc import Sequence

from roomscout.command import eval as evaluation


def main(arguments: Sequence[str]) -> int:
    """Answer questions in a browser; returns the exit status."""
    return evaluation.main([*arguments, "--policy", "human"], "play")
