"""What `train sft` and `train grpo` share: flags, the model with its adapter, resuming, and the plot at the end."""

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roomscout.base.errors import Refusal
from roomscout.base.extras import require
from roomscout.base.text import counted
from roomscout.models import PROMPTS_FILE
from roomscout.models.checkpoint_files import VIEWS_FILE, checkpoint_folder
from roomscout.models.transformers.source import checkpoint_of

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, ProcessorMixin, Trainer

LANGUAGE_LAYERS = r".*language_model\..*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""What LoRA changes: the linear layers of the language model, by their names in every family."""
CURVE = "curve.png"


class TuningError(Refusal, ValueError):
    """Training cannot begin; the message gives the reason and the fix."""


def add_tuning(parser: argparse.ArgumentParser, learning_rate: float) -> None:
    """Add the flags that both trainings take."""
    parser.add_argument(
        "--model", required=True, metavar="NAME|PATH", help="the checkpoint to train: a hub id, a folder or embedded"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="of the adapter or checkpoint")
    parser.add_argument("--lora-rank", type=int, default=16, metavar="R", help="0 trains all weights (%(default)s)")
    parser.add_argument("--epochs", type=float, default=1.0, metavar="N", help="passes over the data (%(default)s)")
    parser.add_argument("--steps", type=int, default=-1, metavar="N", help="optimizer steps, instead of --epochs")
    parser.add_argument("--learning-rate", type=float, default=learning_rate, metavar="FLOAT", help="(%(default)s)")
    parser.add_argument("--save-steps", type=int, default=50, metavar="N", help="steps between saves (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of training (%(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --output")
    parser.add_argument(
        "--report-to", choices=("none", "tensorboard"), default="none", help="also log to TensorBoard (%(default)s)"
    )


def require_ready(options: argparse.Namespace) -> None:
    """Raise TuningError if a package is missing, or if --output does not go with --resume."""
    if options.report_to == "tensorboard":
        require("--report-to tensorboard", "tensorboard", error=TuningError)
    if options.lora_rank < 0:
        raise TuningError(f"--lora-rank {options.lora_rank}: it takes 0 (all weights) or more")
    begun = options.output.is_dir() and any(options.output.iterdir())
    if begun and not options.resume:
        raise TuningError(f"--output {options.output} is not empty: add --resume, or name another folder")
    if options.resume and not any(options.output.glob("checkpoint-*")):
        raise TuningError(f"--resume: {options.output} has no checkpoint yet; leave it out, in an empty folder")


def load_parts(options: argparse.Namespace) -> "tuple[PreTrainedModel, ProcessorMixin, LoraConfig | None]":
    """The model on this process's device, in bfloat16 on CUDA, else float32, its processor and adapter; ModelError."""
    import torch
    from peft import LoraConfig

    from roomscout.models.transformers.devices import resolve_device, resolve_dtype
    from roomscout.models.transformers.weights import load_checkpoint

    local = os.environ.get("LOCAL_RANK", "0")  # of torchrun and accelerate: one process per GPU
    name = f"cuda:{local}" if torch.cuda.is_available() else "cpu"
    device = resolve_device(name)
    model, processor = load_checkpoint(checkpoint_of(options.model), resolve_dtype("auto", device), device)
    lora = None
    if options.lora_rank:
        lora = LoraConfig(r=options.lora_rank, lora_alpha=2 * options.lora_rank, target_modules=LANGUAGE_LAYERS)
    return model.train(), processor, lora


def trainer_arguments(options: argparse.Namespace, on_cpu: bool, batches: int) -> dict[str, Any]:
    """The arguments of TRL's configurations that follow from the flags, for this many batches per optimizer step."""
    if options.report_to == "tensorboard":
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(options.output / "tensorboard")
    return {
        "output_dir": str(options.output),
        "num_train_epochs": options.epochs,
        "max_steps": options.steps,
        "learning_rate": options.learning_rate,
        "gradient_accumulation_steps": batches,
        "save_steps": options.save_steps,
        "save_total_limit": 2,
        "seed": options.seed,
        "report_to": options.report_to,
        "logging_steps": 1,
        "bf16": not on_cpu,
        "use_cpu": on_cpu,
        "gradient_checkpointing": not on_cpu,
        "remove_unused_columns": False,
    }


def train(trainer: "Trainer", options: argparse.Namespace, curves: Sequence[str]) -> None:
    """Train, write the adapter or the checkpoint to --output, and plot these logged values over steps."""
    trainer.train(resume_from_checkpoint=options.resume or None)
    trainer.save_model(str(options.output))
    if not trainer.is_world_process_zero():
        return
    if not options.lora_rank:
        for name in (VIEWS_FILE, PROMPTS_FILE):
            if (checkpoint_folder(options.model) / name).is_file():
                shutil.copy(checkpoint_folder(options.model) / name, options.output)
    plot(trainer.state.log_history, curves, options.output / CURVE)
    flag = "--model" if not options.lora_rank else f"--model {options.model} --adapter"
    print(f"Trained {counted(trainer.state.global_step, 'step')}: use it with {flag} {options.output}")


def plot(history: Sequence[Mapping[str, float]], curves: Sequence[str], file: Path) -> None:
    """Plot logged values over steps, one panel each; a value that was never logged has none."""
    from matplotlib.figure import Figure

    logged = [name for name in curves if any(name in step for step in history)]
    figure = Figure(figsize=(5 * len(logged), 4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(logged), squeeze=False)[0], logged, strict=True):
        points = [(step["step"], step[name]) for step in history if name in step]
        axes.plot(*zip(*points, strict=True), marker=".")
        axes.set_xlabel("step")
        axes.set_ylabel(name)
    figure.savefig(file, dpi=120)
