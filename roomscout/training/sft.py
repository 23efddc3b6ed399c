"""`roomscout train sft`: supervised training of a model on conversations of finished runs, with TRL's SFTTrainer."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from roomscout.analysis.verbs import add_allow_code, add_log_root
from roomscout.base.text import counted
from roomscout.base.verbs import Parser
from roomscout.models.conversation import Conversation, Message
from roomscout.runs.reader import named_run
from roomscout.runs.records import image_files
from roomscout.runs.trajectories import Trajectory, load_trajectories
from roomscout.training.spoken import encoded_episode, learning_encoder
from roomscout.training.tuning import TuningError, add_tuning, load_parts, require_ready, train, trainer_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, ProcessorMixin

IGNORED = -100  # label of tokens without loss


def chosen(trajectories: Sequence[Trajectory], min_score: float, best_of: int) -> list[Trajectory]:
    """The conversations to learn from: answered by a model, scored from `min_score` (0: also unscored), the `best_of`
    best samples of each question, 0 for all; equal scores keep the earlier one."""
    kept: dict[tuple[str, str], list[Trajectory]] = {}
    for answer in trajectories:
        if answer.status == "answered" and (answer.score or 0) >= min_score and answer.recorded():
            kept.setdefault((answer.question.scene_name, answer.question.id), []).append(answer)
    best = [sorted(samples, key=lambda answer: -(answer.score or 0)) for samples in kept.values()]
    return [answer for samples in best for answer in samples[: best_of or None]]


class Collator:
    """Makes batches of conversations with the ids, positions and pixels of evaluation; learns the replies alone."""

    def __init__(self, answers: Sequence[Trajectory], processor: "ProcessorMixin", config: "PreTrainedConfig") -> None:
        self._answers = answers
        self._encoder = learning_encoder(processor, config)
        self._end = processor.tokenizer.eos_token_id
        self._pad = processor.tokenizer.pad_token_id

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """The model's inputs and labels (rows, columns) for rows that name their conversation, padded on the right."""
        encoded = [self._encoded(self._answers[row["conversation"]]) for row in rows]
        columns = max(len(row["input_ids"]) for row in encoded)
        fills = {"input_ids": self._pad, "labels": IGNORED, "attention_mask": 0}
        batch = {
            name: torch.stack([pad(row[name], (0, columns - len(row[name])), value=fill) for row in encoded])
            for name, fill in fills.items()
        }
        places = [pad(row["position_ids"], (0, columns - row["position_ids"].shape[1])) for row in encoded]
        batch["position_ids"] = torch.stack(places, dim=1) if len(places[0]) > 1 else torch.cat(places)
        images = set(encoded[0]) - {*fills, "position_ids"}
        return batch | {name: torch.cat([row[name] for row in encoded]) for name in images}

    def _encoded(self, trajectory: Trajectory) -> dict[str, torch.Tensor]:
        conversation = Conversation(trajectory.question.id)
        for row in trajectory.messages:
            images = row["images"]
            message = Message.of_views(row["text"], *images) if images else Message(row["role"], row["text"])
            conversation.append(message)
        episode = encoded_episode(self._encoder, conversation, self._end)
        views = [self._encoder.image_inputs(turn) for turn in episode.turns]
        return {
            "input_ids": episode.ids,
            "labels": episode.ids.masked_fill(~episode.spoken, IGNORED),
            "attention_mask": episode.spoken.new_ones(len(episode.ids)).long(),
            "position_ids": episode.positions,
            **{name: torch.cat([view[name] for view in views]) for name in views[0]},
        }


def main(arguments: Sequence[str]) -> int:
    """Run the training; returns 0."""
    options = _parser().parse_args(arguments)
    require_ready(options)
    folders = [named_run(run, options.log_root.expanduser()) for run in options.runs]
    answers = [answer for folder in folders for answer in load_trajectories(folder, options.allow_code)]
    conversations = chosen(answers, options.min_score, options.best_of_n)
    if not conversations:
        raise TuningError(
            f"none of {counted(len(answers), 'answer')} has a conversation with a score of {options.min_score:g} or "
            "more: lower --min-score, or name other runs"
        )
    for conversation in conversations:
        if any(message["role"] == "user" and not image_files(message) for message in conversation.recorded()):
            raise TuningError(
                f"the conversation of question {conversation.question.id} shows only some of the views that its "
                "replies were about (--keep-views), so that no row can have them all: name other runs"
            )
    print(f"{counted(len(conversations), 'conversation')} of {len(answers)}, from {counted(len(folders), 'run')}")
    model, processor, lora = load_parts(options)  # before seconds of imports
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = {"conversation": list(range(len(conversations))), "images": [[""]] * len(conversations)}
    settings = trainer_arguments(options, model.device.type == "cpu", options.accumulate)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**settings, per_device_train_batch_size=options.batch_size, max_length=None),
        train_dataset=Dataset.from_dict(rows),
        data_collator=Collator(conversations, processor, model.config),
        processing_class=processor,
        peft_config=lora,
    )
    train(trainer, options, ("loss", "mean_token_accuracy"))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="roomscout train sft",
        description="Train a model on the conversations of finished runs; it learns its replies alone.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, or names below --log-root")
    parser.add_argument("--min-score", type=float, default=1.0, metavar="0-1", help="of an answer (%(default)s)")
    parser.add_argument(
        "--best-of-n", type=int, default=1, metavar="N",
        help="keep the N best samples of each question, 0 for all (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--batch-size", type=int, default=1, metavar="N", help="conversations per batch (%(default)s)")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="batches per step (%(default)s)")
    add_tuning(parser, learning_rate=1e-4)
    add_log_root(parser)
    add_allow_code(parser)
    return parser
