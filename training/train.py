"""The command `python -m training.train`: teach a small Qwen3-VL the teacher's conversations, resumably."""

import argparse
import csv
import json
import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor

from agent.backends.embedded import ModelSizes
from training.batches import IGNORED, Batch, Row, RowMaker, collate, jittered
from training.model import SIZES, use_linear_patches, write_untrained
from training.store import StoredEpisode, read_shard

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

log = logging.getLogger(__name__)

BATCHES_A_POOL = 8
"""Rows are drawn for this many batches at once and sorted by length, so that a batch needs little padding."""
HELD_OUT_ROOMS = 4
"""The last rooms of the demonstrations are kept back for the curve, which looks at every second question there."""
CORPUS_ROOMS = 40
FINISHED, RESUMABLE, CURVE = "checkpoint", "state.pt", "curve.csv"
COLUMNS = ("step", "stage", "loss", "learning_rate", "seconds", "held_out_loss", "held_out_tokens", "held_out_answers")


@dataclass(frozen=True)
class Plan:
    """How long and how fast to learn: first single views, then whole conversations.

    Steps and rows a step of both stages; `learning_rate` is the highest, reached after `warmup` steps, then falls as a
    cosine to a twentieth. `save_every` steps the state is saved and the held-out rooms are looked at.
    """

    view_steps: int = 1200
    view_rows: int = 64
    episode_steps: int = 6000
    episode_rows: int = 32
    learning_rate: float = 1.5e-3
    warmup: int = 100
    weight_decay: float = 0.05
    save_every: int = 200
    seed: int = 0

    @property
    def steps(self) -> int:
        """All steps."""
        return self.view_steps + self.episode_steps

    def stage(self, step: int) -> tuple[str, int]:
        """The name of a step's stage, "views" or "episodes", and its rows a step."""
        return ("views", self.view_rows) if step < self.view_steps else ("episodes", self.episode_rows)

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * (0.05 + 0.95 * (1 + math.cos(math.pi * share)) / 2)


SMOKE = Plan(view_steps=20, view_rows=8, episode_steps=20, episode_rows=4, warmup=5, save_every=20)
"""Shows in minutes on a CPU that everything works."""


class Rows:
    """The demonstrations as training rows, by stage; each is encoded when it is first drawn."""

    def __init__(self, episodes: Sequence[StoredEpisode], maker: RowMaker) -> None:
        self._maker = maker
        self._episodes = episodes
        self._sources: dict[str, list[tuple[int, int]]] = {
            "episodes": [(number, -1) for number in range(len(episodes))],
            "views": [(number, turn) for number, each in enumerate(episodes) for turn in range(len(each.views) - 1)],
        }
        self._known: dict[tuple[int, int], Row] = {}

    def draw(self, plan: Plan, step: int) -> list[Row]:
        """The rows of a step: the same for the same plan, step and demonstrations."""
        stage, count = plan.stage(step)
        sources = self._sources[stage]
        rng = np.random.default_rng([plan.seed, step // BATCHES_A_POOL, len(stage)])
        drawn = rng.integers(len(sources), size=BATCHES_A_POOL * count)
        by_length = sorted(drawn, key=lambda place: self._length(sources[place]))
        part = int(rng.permutation(BATCHES_A_POOL)[step % BATCHES_A_POOL])
        return [self._row(sources[place]) for place in by_length[part * count : (part + 1) * count]]

    def _length(self, source: tuple[int, int]) -> int:
        episode, turn = self._episodes[source[0]], source[1]
        return len(episode.views) if turn < 0 else len(episode.replies[turn])

    def _row(self, source: tuple[int, int]) -> Row:
        if source not in self._known:
            episode, turn = self._episodes[source[0]], source[1]
            self._known[source] = self._maker.episode(episode) if turn < 0 else self._maker.view(episode, turn)
        return self._known[source]


class Batches(Dataset[Batch]):
    """The batch of every step of a plan."""

    def __init__(self, rows: Rows, plan: Plan, pad_id: int) -> None:
        self._rows, self._plan, self._pad_id = rows, plan, pad_id

    def __len__(self) -> int:
        return self._plan.steps

    def __getitem__(self, step: int) -> Batch:
        batch = collate(self._rows.draw(self._plan, step), self._pad_id)
        return replace(batch, images=jittered(batch.images, torch.Generator().manual_seed(step)))


class Trainer:
    """One training run in one folder, which holds all that a later call needs to go on."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        demonstrations: Sequence[Path],
        device: torch.device,
        sizes: ModelSizes = SIZES["small"],
        workers: int = 0,
    ) -> None:
        self.folder, self.plan, self.device, self.workers = folder, plan, device, workers
        episodes = [episode for path in demonstrations[:-HELD_OUT_ROOMS] for episode in read_shard(path)]
        held_out = [episode for path in demonstrations[-HELD_OUT_ROOMS:] for episode in read_shard(path)]
        source = folder / FINISHED
        if not source.is_dir():
            corpus = (text for path in demonstrations[:CORPUS_ROOMS] for text in _texts(read_shard(path)))
            write_untrained(source, corpus, plan.seed, sizes)
        self.processor: ProcessorMixin = AutoProcessor.from_pretrained(source)
        self.model: PreTrainedModel = AutoModelForImageTextToText.from_pretrained(source, dtype=torch.float32)
        use_linear_patches(self.model)
        self.model.to(device).train()
        with torch.device("meta"):  # worker processes get a model without weights, which is all that rows need
            maker = RowMaker(type(self.model)(self.model.config), self.processor)
        self.batches = Batches(Rows(episodes, maker), plan, self.processor.tokenizer.pad_token_id)
        self.held_out = [maker.episode(episode) for episode in held_out[::2] if not episode.blind]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=plan.weight_decay
        )
        self.step = self._resumed_step()

    def run(self, until: int | None = None) -> None:
        """Take the steps that are left, or those up to `until`; what is saved on the way lets a killed run go on to
        the same weights."""
        last = self.plan.steps if until is None else until
        started, losses = time.monotonic(), []
        coming = DataLoader(
            self.batches,
            batch_size=None,
            sampler=range(self.step, last),
            num_workers=self.workers,
        )
        for batch in coming:
            losses.append(self._learn(batch))
            self.step += 1
            if self.step % self.plan.save_every == 0 or self.step == last:
                self._report(float(np.mean(losses)), time.monotonic() - started)
                self.save()
                losses = []

    def save(self) -> None:
        """Write the state to go on from and the checkpoint as it is now."""
        state = {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
            "plan": asdict(self.plan),
        }  # fmt: skip
        draft = self.folder / (RESUMABLE + ".tmp")
        torch.save(state, draft)
        draft.rename(self.folder / RESUMABLE)
        deepcopy(self.model).to(torch.bfloat16).save_pretrained(self.folder / FINISHED)

    def _resumed_step(self) -> int:
        path = self.folder / RESUMABLE
        if not path.exists():
            return 0
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def _learn(self, batch: Batch) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate(self.step)
        loss = self._loss(batch.to(self.device))[0]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean loss of what is to be said, and for each of those ids whether it is the likeliest, (ids,) bool."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            hidden = self.model.model(**batch.inputs(self.model.config)).last_hidden_state
            said = batch.labels[:, 1:] != IGNORED
            scores = self.model.lm_head(hidden[:, :-1][said])
        wanted = batch.labels[:, 1:][said]
        return cross_entropy(scores.float(), wanted), scores.argmax(-1) == wanted

    @torch.no_grad()
    def _held_out(self) -> tuple[float, float, float]:
        """On rooms that are not learned from, with the teacher's words before each id: the loss, the share of ids and
        of answers that are right."""
        self.model.eval()
        losses, tokens, answers = [], [], []
        for rows in _parts(self.held_out, self.plan.episode_rows):
            batch = collate(rows, self.processor.tokenizer.pad_token_id)
            loss, right = self._loss(batch.to(self.device))
            grid = torch.zeros(batch.labels.shape, dtype=torch.bool)
            grid[:, 1:][batch.labels[:, 1:] != IGNORED] = right.cpu()
            losses.append(float(loss))
            tokens.append(float(right.float().mean()))
            answers += [bool(grid[row, at]) for row, at in enumerate(batch.answers.tolist()) if at >= 0]
        self.model.train()
        return float(np.mean(losses)), float(np.mean(tokens)), float(np.mean(answers))

    def _report(self, loss: float, seconds: float) -> None:
        held_out = self._held_out()
        stage = self.plan.stage(self.step - 1)[0]
        numbers = [loss, self.plan.rate(self.step - 1), seconds, *held_out]
        path = self.folder / CURVE
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(COLUMNS)
            writer.writerow([self.step, stage, *(f"{number:.6g}" for number in numbers)])
        log.info(
            "step %d of %d (%s): loss %.3f, held out %.3f, ids right %.3f, answers right %.3f, %.0f s",
            self.step, self.plan.steps, stage, loss, *held_out, seconds,
        )  # fmt: skip


def plot_curve(folder: Path) -> None:
    """Draw `curve.csv` as `curve.png`."""
    from matplotlib.figure import Figure

    with (folder / CURVE).open() as file:
        points = list(csv.DictReader(file))
    steps = [int(point["step"]) for point in points]
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, names in ((left, ("loss", "held_out_loss")), (right, ("held_out_tokens", "held_out_answers"))):
        for name in names:
            axes.plot(steps, [float(point[name]) for point in points], label=name.replace("_", " "))
        axes.set_xlabel("step")
        axes.legend()
    figure.savefig(folder / "curve.png", dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    given = {name: value for name, value in vars(options).items() if name in Plan.__annotations__ and value is not None}
    plan = Plan(**(asdict(SMOKE if options.smoke else Plan()) | given))
    if options.smoke:
        from training.demonstrate import TRAINING_SEED, make_shards

        make_shards(options.demos, TRAINING_SEED, range(HELD_OUT_ROOMS + 4), workers=2)
    demonstrations = sorted(options.demos.rglob("room_*.npz"), key=lambda path: path.name)
    if len(demonstrations) <= HELD_OUT_ROOMS:
        sys.stderr.write(f"{options.demos} holds too few demonstrations: run python -m training.demonstrate first\n")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "plan.json").write_text(json.dumps(asdict(plan) | {"rooms": len(demonstrations)}, indent=1) + "\n")
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    trainer = Trainer(options.out, plan, demonstrations, device, SIZES[options.sizes], options.workers)
    log.info("%d rooms, step %d of %d, on %s", len(demonstrations), trainer.step, plan.steps, device)
    trainer.run()
    plot_curve(options.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    parser.add_argument("demos", type=Path, help="folder that python -m training.demonstrate wrote")
    parser.add_argument("out", type=Path, help="folder of the run; an unfinished run in it goes on")
    parser.add_argument("--smoke", action="store_true", help="a few rooms and steps, made on the spot")
    parser.add_argument("--sizes", choices=SIZES, default="small", help="of a new run's model (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare batches (%(default)s)")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where it is)")
    for name, value in asdict(Plan()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), help=f"default {value}")
    return parser


def _texts(episodes: Sequence[StoredEpisode]) -> Iterator[str]:
    for episode in episodes:
        yield from (episode.system, *episode.user, *episode.replies)


def _parts(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


if __name__ == "__main__":
    sys.exit(main())
