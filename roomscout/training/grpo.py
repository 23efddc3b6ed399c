"""`roomscout train grpo`: reinforcement learning on rooms with TRL's GRPOTrainer, in the episodes of evaluation."""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import yaml

from roomscout.base.verbs import Parser
from roomscout.models.checkpoint_files import view_settings_of
from roomscout.training.environment import RoomEnv
from roomscout.training.tuning import TuningError, add_tuning, load_parts, require_ready, train, trainer_arguments

if TYPE_CHECKING:
    from roomscout.training.room_trainer import RoomTrainer


def environment_of(options: argparse.Namespace) -> tuple[RoomEnv, int]:
    """The environment that the flags describe, and how many questions it has; raises what RoomEnv raises."""
    texts = dict(setting.partition("=")[::2] for setting in options.env)
    settings = {name: yaml.safe_load(value) for name, value in texts.items()}
    endless = not {"questions", "benchmark"} & set(settings)
    env = RoomEnv(endless=endless, model=options.model, **settings)
    return env, options.rooms if endless else len(env.questions)


def make_trainer(options: argparse.Namespace, env: RoomEnv, questions: int) -> "RoomTrainer":
    """The trainer that the flags describe; raises TuningError or ModelError."""
    from datasets import Dataset
    from trl import GRPOConfig

    from roomscout.models.transformers.families import family_of
    from roomscout.training.room_trainer import RoomTrainer

    processes = int(os.environ.get("WORLD_SIZE", "1"))
    group = options.generations * options.questions_per_step
    batches, rest = divmod(group, options.batch_size * processes)
    if rest or not batches:
        raise TuningError(
            f"--generations {options.generations} times --questions-per-step {options.questions_per_step} must be a "
            f"multiple of --batch-size {options.batch_size} times {processes} processes"
        )
    model, processor, lora = load_parts(options)
    family = family_of(model.config)
    if not family.name.startswith("Qwen"):
        raise TuningError(f"train grpo takes Qwen's families, not {family.name}: TRL prepares the views of no others")
    longest = options.max_new_tokens or view_settings_of(options.model).max_new_tokens
    settings = GRPOConfig(
        **trainer_arguments(options, model.device.type == "cpu", batches),
        per_device_train_batch_size=options.batch_size,
        num_generations=options.generations,
        temperature=options.temperature,
        beta=options.beta,
    )
    prompts = [[{"role": "user", "content": str(number)}] for number in range(questions)]
    rows = Dataset.from_dict({"prompt": prompts})
    return RoomTrainer(
        env, longest, model=model, args=settings, train_dataset=rows, processing_class=processor, peft_config=lora
    )


def main(arguments: Sequence[str]) -> int:
    """Run the training; returns 0."""
    options = _parser().parse_args(arguments)
    require_ready(options)
    env, questions = environment_of(options)
    with env:
        curves = ("reward", "score", "entropy", "completions/mean_length")
        train(make_trainer(options, env, questions), options, curves)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="roomscout train grpo",
        description="Train a model by the score of its own episodes, in endless rooms by default.",
    )
    parser.add_argument(
        "--env", nargs="+", default=(), metavar="NAME=VALUE",
        help="settings of the episodes as RoomEnv takes them, with values as in YAML: questions=FILE "
        "scan_root=FOLDER, benchmark=NAME, steps=4, datasets=[simple], rewards={unreadable_cost: 0.1}",
    )  # fmt: skip
    parser.add_argument("--rooms", type=int, default=1000, metavar="N", help="number of endless rooms (%(default)s)")
    parser.add_argument("--generations", type=int, default=8, metavar="G", help="episodes per question (%(default)s)")
    parser.add_argument("--questions-per-step", type=int, default=1, metavar="N", help="of the optimizer (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=1, metavar="N", help="episodes per backward (%(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, metavar="FLOAT", help="of sampling (%(default)s)")
    parser.add_argument(
        "--beta", type=float, default=0.0, metavar="FLOAT", help="weight of the KL to the initial model (%(default)s)"
    )
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="longest reply (the checkpoint's, else 512)")
    add_tuning(parser, learning_rate=1e-5)
    return parser
