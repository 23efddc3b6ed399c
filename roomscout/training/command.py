"""`roomscout train WHAT`: hands the arguments to the training that is named."""

from collections.abc import Sequence
from importlib import import_module

from roomscout.base.errors import UsageError
from roomscout.base.extras import require
from roomscout.base.text import did_you_mean
from roomscout.base.verbs import Parser
from roomscout.training.tuning import TuningError

TRAININGS = {
    "sft": "a vision-language model on the conversations of finished runs",
    "grpo": "a vision-language model by the score of its own episodes",
}
"""What can be trained, each by the module of this name, and a phrase."""
LIBRARIES = ("torch", "torchvision", "transformers", "accelerate", "trl", "peft", "matplotlib")


def main(arguments: Sequence[str]) -> int:
    """Run a training; returns its exit status."""
    name, *others = arguments or ["--help"]
    if name in ("-h", "--help"):
        parser = Parser(
            prog="roomscout train", description="Train a model; `roomscout train WHAT --help` has the flags of each."
        )
        parser.usage = "roomscout train WHAT [FLAGS]"
        parser.epilog = "what: " + "; ".join(f"{what}, {phrase}" for what, phrase in TRAININGS.items())
        parser.print_help()
        return 0 if arguments else 2
    if name not in TRAININGS:
        advice = did_you_mean(name.lower(), TRAININGS, f"use {' or '.join(TRAININGS)}")
        raise UsageError(f"there is no training {name}; {advice}")
    require(f"roomscout train {name}", *LIBRARIES, error=TuningError)
    return int(import_module(f"roomscout.training.{name}").main(others))
