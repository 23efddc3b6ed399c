"""The command `python -m explorer`: train the included explorer from scratch, in one run that can be resumed."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from explorer.curriculum import CannotTrain, Plan
from roomscout.base.extras import require
from roomscout.base.text import escaped, log_to_stream

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 2 after printing why it cannot train."""
    try:
        train(arguments)
    except CannotTrain as error:
        sys.stderr.write(escaped(f"error: {error}") + "\n")
        return 2
    return 0


def train(arguments: Sequence[str]) -> None:
    """Train with these arguments; raises CannotTrain."""
    parser = argparse.ArgumentParser(
        prog="python -m explorer", description="Train the explorer from scratch, or resume a run that was interrupted."
    )
    parser.add_argument("out", type=Path, help="run folder; the same command resumes an unfinished run")
    parser.add_argument("--scale", type=float, default=1.0, help="share of steps and rooms, such as 0.1 (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and the order of rows (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare batches (%(default)s)")
    parser.add_argument(
        "--compile", action="store_true", help="compile the layers; a third faster, but needs a C++ compiler"
    )
    parser.add_argument("--device", help="cpu or cuda (default: cuda if available)")
    options = parser.parse_args(arguments)
    if not 0 < options.scale <= 1:
        raise CannotTrain(f"--scale is {options.scale:g}: it must be above 0 and at most 1")
    require("python -m explorer", "torch", "transformers", "matplotlib", error=CannotTrain)
    log_to_stream(sys.stdout, line="%(asctime)s %(message)s")

    import torch

    from explorer.demonstrate import demonstrations_in
    from explorer.splits import SPLITS
    from explorer.train import Trainer, plot_curve

    options.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(scale=options.scale, seed=options.seed)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    rooms = partial(demonstrations_in, options.out / "demonstrations", SPLITS["training"], os.cpu_count() or 1)
    trainer = Trainer(options.out, plan, rooms, device, workers=options.workers, compiled=options.compile)
    log.info("step %d of %d, on %s", trainer.step, plan.steps, device)
    trainer.run()
    plot_curve(options.out, plan)
    log.info("done: roomscout eval --model %s evaluates it", options.out / "checkpoint")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
