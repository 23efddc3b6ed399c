"""Trains a small Qwen3-VL on the teacher's conversations by a plan; can be resumed."""

import csv
import io
import logging
import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor

from explorer.batches import IGNORED, Batch, Row, RowMaker, collate, jittered
from explorer.curriculum import HELD_OUT_ROOMS, CannotTrain, Leg, Plan
from explorer.model import SIZES, use_fast_layers, write_untrained
from explorer.notes import PLACE_WORD, VIEWS, VIEWS_AROUND, notes_in
from explorer.store import StoredEpisode, read_shard
from roomscout.base.files import replace_text
from roomscout.models import EXPLORER, PROMPTS_FILE
from roomscout.models.checkpoint_files import VIEWS_FILE, write_record
from roomscout.models.transformers.shapes import ModelSizes
from roomscout.rooms.furniture import CATEGORIES

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

BATCHES_A_POOL = 8
"""Rows are drawn for this many batches together and sorted by length, which reduces padding."""
CORPUS_ROOMS = 40
CROWD, CROWDS_MORE = 3, 3
"""Views with at least CROWD objects of one category, where the explorer overlooks most, are added CROWDS_MORE times."""
PATCH_WEIGHT = 1.0
FINISHED, RESUMABLE, CURVE = "checkpoint", "state.pt", "curve.csv"
DRAFT = "checkpoint.tmp"
"""The checkpoint is written here, then renamed, so that a killed run can resume."""
SHARES = ("patches", "categories", "bearings", "places", "answers")
COLUMNS = ("step", "stage", "loss", "learning_rate", "seconds", "held_out_loss", *SHARES)
Source = tuple[int, int, bool]
"""The source of a row: index of the demonstration, turn (0 if not a single view), whether the view is mirrored."""


def sources_of(episodes: Sequence[StoredEpisode]) -> dict[str, list[Source]]:
    """The sources of all non-synthetic rows, by kind."""
    seeing = [(number, episode) for number, episode in enumerate(episodes) if not episode.blind]
    whole = [(number, turn) for number, episode in seeing for turn in _whole_views(episode)]
    views = [(number, turn, mirrored) for number, turn in whole for mirrored in (False, True)]
    crowds = [view for view in views if _is_crowd(episodes[view[0]].replies[view[1]])]
    return {
        "episodes": [(number, 0, False) for number in range(len(episodes))],
        # the last reasoning of these follows from all notes at once; a count instead continues from the previous turn
        "drills": [(number, 0, False) for number, episode in seeing if episode.question_type != "object_counting"],
        "views": views + crowds * CROWDS_MORE,
        "second looks": views,
    }


class Rows:
    """The demonstrations as training rows, by kind; rows are encoded on first use."""

    def __init__(self, episodes: Sequence[StoredEpisode], maker: RowMaker) -> None:
        self._maker = maker
        self._episodes = episodes
        self._sources = sources_of(episodes)
        self._cache: dict[tuple[str, Source], Row] = {}
        self.synthetic = {"practice": maker.practice, "counting": maker.counting}
        self._pools: dict[str, tuple[tuple[int, ...], list[Row]]] = {}

    def draw(self, plan: Plan, step: int) -> list[Row]:
        """The rows of a step; deterministic given the plan, the step and the demonstrations."""
        kind, count, before = plan.rows(step)
        pool, place = divmod(before, BATCHES_A_POOL)
        stage = plan.span(step).number
        rng = np.random.default_rng([plan.seed, stage, pool, *kind.encode()])
        part = int(rng.permutation(BATCHES_A_POOL)[place])
        if kind in self.synthetic:
            rows = self._synthetic_pool(kind, (plan.seed, stage, pool), BATCHES_A_POOL * count)
            return rows[part * count : (part + 1) * count]
        sources = self._sources[kind]
        drawn = rng.integers(len(sources), size=BATCHES_A_POOL * count)
        by_length = sorted(drawn, key=lambda place: self._length(kind, sources[place]))
        return [self._row(kind, sources[place]) for place in by_length[part * count : (part + 1) * count]]

    def _synthetic_pool(self, kind: str, key: tuple[int, ...], count: int) -> list[Row]:
        """The synthetic rows of a pool, shortest first; caches the last pool of each kind."""
        if kind not in self._pools or self._pools[kind][0] != key:
            rows = [self.synthetic[kind](np.random.default_rng([*key, number])) for number in range(count)]
            self._pools[kind] = key, sorted(rows, key=lambda row: len(row.ids))
        return self._pools[kind][1]

    def _length(self, kind: str, source: Source) -> int:
        episode = self._episodes[source[0]]
        turn = source[1]
        if kind == "drills":
            return sum(map(len, episode.replies))
        return len(episode.replies[turn]) if kind in ("views", "second looks") else len(episode.views)

    def _row(self, kind: str, source: Source) -> Row:
        if (kind, source) not in self._cache:
            number, turn, mirrored = source
            episode = self._episodes[number]
            if kind == "drills":
                row = self._maker.drill(episode)
            elif kind == "views":
                row = self._maker.view(episode, turn, mirrored)
            elif kind == "second looks":
                row = self._maker.second_look(episode, turn, mirrored)
            else:
                row = self._maker.episode(episode)
            self._cache[kind, source] = row
        return self._cache[kind, source]


class Batches(Dataset[Batch]):
    """The batches of a plan, indexed by step."""

    def __init__(self, rows: Rows, plan: Plan, pad_id: int) -> None:
        self._rows = rows
        self._plan = plan
        self._pad_id = pad_id

    def __len__(self) -> int:
        return self._plan.steps

    def __getitem__(self, step: int) -> Batch:
        batch = collate(self._rows.draw(self._plan, step), self._pad_id)
        return replace(batch, images=jittered(batch.images, torch.Generator().manual_seed(step)))


class PatchCategories(torch.nn.Module):
    """An auxiliary head that predicts the category of each patch from the image tokens.

    It trains the image encoder long before the model's text depends on the image. Not part of the checkpoint.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        super().__init__()
        vision = model.config.vision_config
        self._merge = vision.spatial_merge_size
        self.head = torch.nn.Linear(vision.out_hidden_size, self._merge**2 * (1 + len(CATEGORIES)))
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self._tokens = torch.empty(0)
        model.model.visual.merger.register_forward_hook(self._remember)

    def _remember(self, module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self._tokens = output

    def loss(self, categories: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean loss on the images of the last forward pass, and (patches with an object,) bool: whether each is
        classified correctly. `categories` (N, H / 16, W / 16) are their `categories_by_patch`."""
        count, rows, columns = categories.shape
        merge = self._merge
        true = categories.reshape(count, rows // merge, merge, columns // merge, merge).transpose(2, 3).reshape(-1)
        scores = self.head(self._tokens.float()).reshape(len(true), -1)
        return cross_entropy(scores, true.long()), (scores.argmax(-1) == true)[true > 0]


class Trainer:
    """One training run. Its folder contains everything needed to resume it."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        demonstrations: Callable[[Sequence[int]], Sequence[Path]],
        device: torch.device,
        sizes: ModelSizes = SIZES,
        workers: int = 0,
        compiled: bool = False,
    ) -> None:
        """`demonstrations` gives the files of rooms and makes those that are missing. Raises CannotTrain if the folder
        contains a run with another plan or other model sizes."""
        self.folder = folder
        self.plan = plan
        self.device = device
        self.workers = workers
        self._demonstrations = demonstrations
        self.in_bfloat16 = computes_in_bfloat16(device)
        self.begun_with = asdict(plan) | {"sizes": asdict(sizes)}
        state = self._saved_state()
        if not (folder / FINISHED).is_dir():
            corpus_rooms = demonstrations(plan.rooms(plan.legs[0])[:CORPUS_ROOMS])
            write_untrained(folder / DRAFT, _texts(corpus_rooms), plan.seed, sizes)
            (folder / DRAFT).rename(folder / FINISHED)
        self.model = AutoModelForImageTextToText.from_pretrained(folder / FINISHED, dtype=torch.float32)
        self.processor = AutoProcessor.from_pretrained(folder / FINISHED)
        use_fast_layers(self.model, compiled)
        self.patches = PatchCategories(self.model)
        self.model.to(device).train()
        self.patches.to(device)
        with torch.device("meta"):  # spares worker processes the weights, which rows do not need
            self.maker = RowMaker(type(self.model)(self.model.config), self.processor)
        self.shares = _shares_of_ids(self.processor.tokenizer)
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.patches.parameters()], betas=(0.9, 0.98), weight_decay=plan.weight_decay
        )
        self.step = 0
        self.seconds = 0.0
        self.curve: list[list[str]] = []
        if state:
            self.model.load_state_dict(state["model"])
            self.patches.load_state_dict(state["patches"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
            self.seconds = state["seconds"]
            self.curve = state["curve"]

    def batches(self, leg: Leg) -> Batches:
        """The batches of a leg's steps."""
        rows = Rows(_episodes(self._demonstrations(self.plan.rooms(leg))), self.maker)
        return Batches(rows, self.plan, self.processor.tokenizer.pad_token_id)

    @cached_property
    def held_out(self) -> list[Row]:
        """The held-out rooms: their views, then their conversations."""
        rooms = _episodes(self._demonstrations(HELD_OUT_ROOMS))
        chosen = [episode for episode in rooms[::2] if not episode.blind]
        views = [self.maker.view(episode, turn) for episode in chosen for turn in _whole_views(episode)]
        return views + [self.maker.episode(episode) for episode in chosen]

    def run(self, until: int | None = None) -> None:
        """Run the remaining steps, or those up to `until`.

        A killed run resumes from the last save and reaches the same weights: rows and augmentation are drawn from the
        seed and the step, and nothing else is random.
        """
        last = self.plan.steps if until is None else until
        started = time.monotonic() - self.seconds
        losses = []
        while self.step < last:
            span = self.plan.span(self.step)
            steps = range(self.step, min(last, span.leg_end))
            for batch in DataLoader(self.batches(span.leg), batch_size=None, sampler=steps, num_workers=self.workers):
                losses.append(self._train_step(batch))
                self.step += 1
                if self.plan.saves_after(self.step) or self.step == last:
                    self.seconds = time.monotonic() - started
                    self._report(float(np.mean(losses)))
                    self.save()
                    losses = []

    def save(self) -> None:
        """Save the state for resuming, and the current checkpoint."""
        state = {
            "model": self.model.state_dict(), "patches": self.patches.state_dict(),
            "optimizer": self.optimizer.state_dict(), "step": self.step,
            "seconds": self.seconds, "curve": self.curve, "begun_with": self.begun_with,
        }  # fmt: skip
        draft = self.folder / (RESUMABLE + ".tmp")
        torch.save(state, draft)
        draft.rename(self.folder / RESUMABLE)
        finished = type(self.model)(self.model.config)
        finished.load_state_dict(self.model.state_dict())
        checkpoint = self.folder / DRAFT
        finished.to(torch.bfloat16).save_pretrained(checkpoint)
        write_record(checkpoint, VIEWS_FILE, VIEWS)
        shutil.copyfile(EXPLORER / PROMPTS_FILE, checkpoint / PROMPTS_FILE)
        for path in checkpoint.iterdir():
            path.replace(self.folder / FINISHED / path.name)
        checkpoint.rmdir()
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([COLUMNS, *self.curve])
        replace_text(self.folder / CURVE, lines.getvalue())

    def _saved_state(self) -> dict[str, Any] | None:
        path = self.folder / RESUMABLE
        if not path.exists():
            return None
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if "curve" not in state:
            raise CannotTrain(f"{path} was written by another version: use another folder")
        if changed := [name for name, value in self.begun_with.items() if state["begun_with"].get(name) != value]:
            raise CannotTrain(
                f"{path} was started with another {', '.join(changed)}: pass the same values, or use another folder"
            )
        return state

    def _train_step(self, batch: Batch) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate(self.step)
        batch = batch.to(self.device)
        loss = self._loss(batch)[0]
        total = loss + PATCH_WEIGHT * self.patches.loss(batch.shown)[0] if len(batch.images) else loss
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The weighted mean loss of the labelled tokens, and (labelled tokens,) bool: whether each prediction is
        correct."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.in_bfloat16):
            hidden = self.model.model(**batch.inputs(self.model.config), use_cache=False).last_hidden_state
            labelled = batch.labels[:, 1:] != IGNORED
            logits = self.model.lm_head(hidden[:, :-1][labelled])
        labels = batch.labels[:, 1:][labelled]
        weights = batch.weights[:, 1:][labelled]
        losses = cross_entropy(logits.float(), labels, reduction="none")
        return (losses * weights).sum() / weights.sum(), logits.argmax(-1) == labels

    @torch.no_grad()
    def _held_out(self) -> tuple[float, dict[str, float]]:
        """Evaluate the held-out rooms with teacher forcing: the loss, and the accuracy for each of SHARES, NaN if there
        are no such tokens."""
        self.model.eval()
        losses: list[float] = []
        correct: dict[str, list[bool]] = {name: [] for name in SHARES}
        size = self.plan.episode_rows
        for rows in (self.held_out[start : start + size] for start in range(0, len(self.held_out), size)):
            batch = collate(rows, self.processor.tokenizer.pad_token_id).to(self.device)
            loss, hits = self._loss(batch)
            losses.append(float(loss))
            correct["patches"] += self.patches.loss(batch.shown)[1].tolist()
            labels = batch.labels[:, 1:]
            shares = self.shares[labels[labels != IGNORED].cpu().numpy()]
            for name in SHARES[1:-1]:
                correct[name] += hits.cpu().numpy()[shares == name].tolist()
            grid = torch.zeros(batch.labels.shape, dtype=torch.bool)
            grid[:, 1:][(labels != IGNORED).cpu()] = hits.cpu()
            correct["answers"] += [bool(grid[row, at]) for row, at in enumerate(batch.answers.tolist()) if at >= 0]
        self.model.train()
        return float(np.mean(losses)), {
            name: float(np.mean(values)) if values else math.nan for name, values in correct.items()
        }

    def _report(self, loss: float) -> None:
        held_out, shares = self._held_out()
        stage = self.plan.span(self.step - 1).stage
        numbers = [loss, self.plan.rate(self.step - 1), self.seconds, held_out, *shares.values()]
        self.curve.append([str(self.step), stage, *(f"{number:.6g}" for number in numbers)])
        log.info(
            "step %d of %d (%s): loss %.3f, held-out loss %.3f, accuracy: %s, %.0f s, about %.1f h left",
            self.step, self.plan.steps, stage, loss, held_out,
            ", ".join(f"{name} {share:.3f}" for name, share in shares.items()), self.seconds,
            self.seconds / self.step * (self.plan.steps - self.step) / 3600,
        )  # fmt: skip


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16. Other CPUs emulate it, several times slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    return device.type != "cpu" or any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def plot_curve(folder: Path, plan: Plan) -> None:
    """Draw `curve.csv` as `curve.png`, with a line between any two legs of the plan."""
    from matplotlib.figure import Figure

    with (folder / CURVE).open(encoding="utf-8") as file:
        points = list(csv.DictReader(file))
    steps = [int(point["step"]) for point in points]
    leg_ends = sorted({span.leg_end for span in plan.spans if span.leg_end < steps[-1]})
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, names in ((left, ("loss", "held_out_loss")), (right, SHARES)):
        for name in names:
            axes.plot(steps, [float(point[name]) for point in points], label=name.replace("_", " "))
        for end in leg_ends:
            axes.axvline(end, color="0.8", zorder=0)
        label = "step (grey: the next leg begins)" if leg_ends else "step"
        axes.set_xlabel(label)
        axes.legend()
    figure.savefig(folder / "curve.png", dpi=120)


def _is_crowd(reply: str) -> bool:
    """Whether a view shows many objects of one category."""
    kinds = Counter(note.category for note in notes_in(reply))
    return max(kinds.values(), default=0) >= CROWD


def _whole_views(episode: StoredEpisode) -> range:
    """The turns of the first rotation, or none if the teacher may have overlooked an object on purpose: such an object
    is in the question, so it is still missing when the rotation ends."""
    missing = episode.missing[:VIEWS_AROUND]
    return range(0) if missing[-1] else range(len(missing))


def _shares_of_ids(tokenizer: Any) -> np.ndarray:
    """(ids,) str: the entry of SHARES that each token id belongs to, "" for none."""
    tokens = tokenizer.batch_decode([[id] for id in range(len(tokenizer))])
    shares = [
        "categories" if token.strip() in CATEGORIES
        else "bearings" if re.fullmatch(r" [+-]\d+", token)
        else "places" if PLACE_WORD.fullmatch(token)
        else ""
        for token in tokens
    ]  # fmt: skip
    return np.array(shares)


def _episodes(paths: Iterable[Path]) -> list[StoredEpisode]:
    return [episode for path in paths for episode in read_shard(path)]


def _texts(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        for episode in read_shard(path):
            yield from (episode.system, *episode.user, *episode.replies)
