"""`python -m roomscout.training.train`: train a small Qwen3-VL on the teacher's conversations; can be resumed."""

import argparse
import csv
import importlib.util
import json
import logging
import math
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor

from roomscout.base.text import escaped_lines, log_to_stream
from roomscout.models import EXPLORER, PROMPTS_FILE
from roomscout.models.checkpoint_files import write_record
from roomscout.models.trained_questions import TRAINED_QUESTIONS_FILE
from roomscout.models.transformers.untrained import ModelSizes
from roomscout.models.views import VIEWS_FILE
from roomscout.rooms.furniture import CATEGORIES
from roomscout.training.batches import IGNORED, Batch, Row, RowMaker, collate, jittered
from roomscout.training.model import SIZES, use_fast_layers, write_untrained
from roomscout.training.notes import PLACE_WORD, VIEWS, VIEWS_AROUND, notes_in
from roomscout.training.reading import TRAINED_QUESTIONS
from roomscout.training.splits import SPLITS
from roomscout.training.store import StoredEpisode, read_shard, shards_in

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

log = logging.getLogger(__name__)

DEMONSTRATE = "python -m roomscout.training.demonstrate"
BATCHES_A_POOL = 8
"""Rows are drawn for this many batches together and sorted by length, which reduces padding."""
HELD_OUT_ROOMS = 4
"""Number of last rooms held out for the learning curve, which uses every second question there."""
CORPUS_ROOMS = 40
CROWD, CROWDS_MORE = 3, 3
"""Views with at least CROWD objects of one category, where the explorer overlooks most, are added CROWDS_MORE times."""
STAGES = {
    "words": ("practice", "drills", "practice", "counting"),
    "views": ("views", "drills", "views", "second looks", "views", "practice", "views", "counting"),
    "episodes": ("episodes", "drills", "episodes", "second looks", "episodes", "practice", "episodes", "counting"),
    "lessons": ("lessons", "drills", "episodes", "second looks", "lessons", "practice", "episodes", "counting"),
}
"""The kinds of rows that the steps of each stage cycle through."""
HELD_OUT_PRACTICE = 64
PATCH_WEIGHT = 1.0
FINISHED, RESUMABLE, CURVE = "checkpoint", "state.pt", "curve.csv"
DRAFT = "checkpoint.tmp"
"""The checkpoint is written here, then renamed, so that a killed run can resume."""
SHARES = ("patches", "categories", "bearings", "places", "answers")
COLUMNS = ("step", "stage", "loss", "learning_rate", "seconds", "held_out_loss", *SHARES)


@dataclass(frozen=True)
class Plan:
    """The training schedule: text only, then single views, whole conversations, and conversations corrected by the
    teacher.

    A batch has `episode_rows` rows of conversations with views, or `view_rows` of any other kind. The learning rate
    rises to `learning_rate` over `warmup` steps, stays there, and decays linearly to a twentieth over the last fraction
    `cooldown` of the steps; a cosine schedule would leave too little for the conversations, which come last. Every
    `save_every` steps, the state is saved and the held-out rooms are evaluated.
    """

    word_steps: int = 600
    view_steps: int = 2600
    view_rows: int = 32
    episode_steps: int = 1200
    episode_rows: int = 16
    lesson_steps: int = 0
    learning_rate: float = 1.5e-3
    warmup: int = 100
    cooldown: float = 0.25
    weight_decay: float = 0.05
    save_every: int = 200
    seed: int = 0

    @property
    def steps(self) -> int:
        """The total number of steps."""
        return self.word_steps + self.view_steps + self.episode_steps + self.lesson_steps

    def stage(self, step: int) -> str:
        """The stage that a step belongs to, one of STAGES."""
        lengths = (self.word_steps, self.view_steps, self.episode_steps, self.lesson_steps)
        return next(name for name, end in zip(STAGES, accumulate(lengths), strict=True) if step < end)

    def rows(self, step: int) -> tuple[str, int, int]:
        """The kind and number of rows in a step, and the number of earlier steps with this kind, as if the stage had
        started at step 0."""
        kinds = STAGES[self.stage(step)]
        rounds, place = divmod(step, len(kinds))
        kind = kinds[place]
        before = rounds * kinds.count(kind) + kinds[:place].count(kind)
        return kind, self.episode_rows if kind in ("episodes", "lessons") else self.view_rows, before

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = (self.steps - step) / max(1.0, self.cooldown * self.steps)
        return self.learning_rate * (0.05 + 0.95 * min(1.0, left))


SMOKE = Plan(word_steps=20, view_steps=20, view_rows=8, episode_steps=20, episode_rows=4, warmup=5, save_every=20)
"""A smoke test of the whole pipeline; takes minutes on a CPU."""


Source = tuple[int, int, bool]
"""The source of a row: index of the demonstration, turn (0 if not a single view), whether the view is mirrored."""


def sources_of(episodes: Sequence[StoredEpisode]) -> dict[str, list[Source]]:
    """The sources of all non-synthetic rows, by kind."""
    seeing = [(number, each) for number, each in enumerate(episodes) if not (each.blind or each.by_pupil)]
    views = [
        (number, turn, mirrored) for number, each in seeing for turn in _whole_views(each) for mirrored in (False, True)
    ]
    crowds = [view for view in views if _is_crowd(episodes[view[0]].replies[view[1]])]
    return {
        "episodes": [(number, 0, False) for number, each in enumerate(episodes) if not each.by_pupil],
        "lessons": [(number, 0, False) for number, each in enumerate(episodes) if each.by_pupil],
        "drills": [(number, 0, False) for number, each in seeing if _can_be_drilled(each)],
        "views": views + crowds * CROWDS_MORE,
        "second looks": views,
    }


class Rows:
    """The demonstrations as training rows, by kind; rows are encoded on first use."""

    def __init__(
        self, episodes: Sequence[StoredEpisode], sources: Mapping[str, Sequence[Source]], maker: RowMaker
    ) -> None:
        self._maker = maker
        self._episodes = episodes
        self._sources = sources
        self._cache: dict[tuple[str, Source], Row] = {}
        self.synthetic = {"practice": maker.practice, "counting": maker.counting}
        self._pools: dict[str, tuple[tuple[int, ...], list[Row]]] = {}

    def draw(self, plan: Plan, step: int) -> list[Row]:
        """The rows of a step; deterministic given the plan, the step and the demonstrations."""
        kind, count, before = plan.rows(step)
        pool, place = divmod(before, BATCHES_A_POOL)
        rng = np.random.default_rng([plan.seed, pool, *plan.stage(step).encode(), *kind.encode()])
        part = int(rng.permutation(BATCHES_A_POOL)[place])
        if kind in self.synthetic:
            rows = self._synthetic_pool(kind, plan.seed, pool, BATCHES_A_POOL * count)
            return rows[part * count : (part + 1) * count]
        sources = self._sources[kind]
        drawn = rng.integers(len(sources), size=BATCHES_A_POOL * count)
        by_length = sorted(drawn, key=lambda place: self._length(kind, sources[place]))
        return [self._row(kind, sources[place]) for place in by_length[part * count : (part + 1) * count]]

    def _synthetic_pool(self, kind: str, seed: int, pool: int, count: int) -> list[Row]:
        """The synthetic rows of a pool, shortest first; caches the last pool of each kind."""
        key = seed, pool, count
        if kind not in self._pools or self._pools[kind][0] != key:
            rows = [self.synthetic[kind](np.random.default_rng([seed, 1, pool, number])) for number in range(count)]
            self._pools[kind] = key, sorted(rows, key=lambda row: len(row.ids))
        return self._pools[kind][1]

    def _length(self, kind: str, source: Source) -> int:
        episode, turn = self._episodes[source[0]], source[1]
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
        self._rows, self._plan, self._pad_id = rows, plan, pad_id

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

    def loss(self, shown: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean loss on the images of the last forward pass, and (patches with an object,) bool: whether each is
        classified correctly. `shown` (N, H / 16, W / 16) are their `categories_by_patch`."""
        count, rows, columns = shown.shape
        merge = self._merge
        true = shown.reshape(count, rows // merge, merge, columns // merge, merge).transpose(2, 3).reshape(-1)
        scores = self.head(self._tokens.float()).reshape(len(true), -1)
        return cross_entropy(scores, true.long()), (scores.argmax(-1) == true)[true > 0]


class CannotTrain(Exception):
    """A run cannot be started or resumed; the message gives the reason."""


def _loaded(checkpoint: Path, sizes: ModelSizes) -> "tuple[ProcessorMixin, PreTrainedModel]":
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    text = model.config.text_config
    if (text.hidden_size, text.num_hidden_layers) != (sizes.hidden, sizes.layers):
        raise CannotTrain(f"{checkpoint} contains a model of another size: pass its --sizes, or use another folder")
    return AutoProcessor.from_pretrained(checkpoint), model


def _held_out_rows(episodes: Sequence[StoredEpisode], rows: Rows, maker: RowMaker, seed: int) -> dict[str, list[Row]]:
    """The rows of held-out rooms, and synthetic ones that are never trained on, by kind."""
    chosen = [episode for episode in episodes[::2] if not episode.blind]
    synthetic = {
        kind: [make(np.random.default_rng([seed, 0, number])) for number in range(HELD_OUT_PRACTICE)]
        for kind, make in rows.synthetic.items()
    }
    return synthetic | {
        "views": [maker.view(each, turn) for each in chosen for turn in _whole_views(each)],
        "second looks": [maker.second_look(each, turn) for each in chosen for turn in _whole_views(each)[:1]],
        "drills": [maker.drill(episode) for episode in chosen if _can_be_drilled(episode)],
        "episodes": [maker.episode(episode) for episode in chosen],
    }


class Trainer:
    """One training run. Its folder contains everything needed to resume it."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        demonstrations: Sequence[Path],
        device: torch.device,
        sizes: ModelSizes = SIZES["small"],
        lessons: Sequence[Path] = (),
        workers: int = 0,
        compiled: bool = False,
    ) -> None:
        """Ignores `lessons` about held-out rooms. Raises CannotTrain if a stage has no training data, or if the folder
        contains a run with another plan, other demonstrations or other model sizes."""
        self.folder, self.plan, self.device, self.workers = folder, plan, device, workers
        self.in_bfloat16 = computes_in_bfloat16(device)
        held_out_rooms = demonstrations[-HELD_OUT_ROOMS:]
        excluded = {path.name for path in held_out_rooms}
        learned_from = [*demonstrations[:-HELD_OUT_ROOMS], *(path for path in lessons if path.name not in excluded)]
        self.begun_with = asdict(plan) | {
            "sizes": asdict(sizes),
            "learned_from": [path.name for path in learned_from],
            "held_out": [path.name for path in held_out_rooms],
        }
        episodes = [episode for path in learned_from for episode in read_shard(path)]
        held_out = [episode for path in held_out_rooms for episode in read_shard(path)]
        sources = sources_of(episodes)
        if missing := sorted(
            {plan.rows(step)[0] for step in range(plan.steps)} & {kind for kind in sources if not sources[kind]}
        ):
            raise CannotTrain(f"the demonstrations contain no {', '.join(missing)} to train on")
        if not (folder / FINISHED).is_dir():
            corpus = (text for path in demonstrations[:CORPUS_ROOMS] for text in _texts(read_shard(path)))
            write_untrained(folder / DRAFT, corpus, plan.seed, sizes)
            (folder / DRAFT).rename(folder / FINISHED)
        self.processor, self.model = _loaded(folder / FINISHED, sizes)
        use_fast_layers(self.model, compiled)
        self.patches = PatchCategories(self.model)
        self.model.to(device).train()
        self.patches.to(device)
        with torch.device("meta"):  # spares worker processes the weights, which rows do not need
            maker = RowMaker(type(self.model)(self.model.config), self.processor)
        rows = Rows(episodes, sources, maker)
        self.batches = Batches(rows, plan, self.processor.tokenizer.pad_token_id)
        self.held_out = _held_out_rows(held_out, rows, maker, plan.seed)
        self.shares = _shares_of_ids(self.processor.tokenizer)
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.patches.parameters()],
            lr=plan.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=plan.weight_decay,
        )
        self.seconds = 0.0
        self.step = self._resumed_step()

    def run(self, until: int | None = None) -> None:
        """Run the remaining steps, or those up to `until`. A killed run resumes from the last save and reaches the same
        weights."""
        last = self.plan.steps if until is None else until
        started, losses = time.monotonic() - self.seconds, []
        loader = DataLoader(self.batches, batch_size=None, sampler=range(self.step, last), num_workers=self.workers)
        for batch in loader:
            losses.append(self._train_step(batch))
            self.step += 1
            if self.step % self.plan.save_every == 0 or self.step == last:
                self.seconds = time.monotonic() - started
                self.save()
                self._report(float(np.mean(losses)))
                losses = []

    def save(self) -> None:
        """Save the state for resuming, and the current checkpoint."""
        state = {
            "model": self.model.state_dict(), "patches": self.patches.state_dict(),
            "optimizer": self.optimizer.state_dict(), "step": self.step,
            "seconds": self.seconds, "begun_with": self.begun_with,
        }  # fmt: skip
        draft = self.folder / (RESUMABLE + ".tmp")
        torch.save(state, draft)
        draft.rename(self.folder / RESUMABLE)
        finished = type(self.model)(self.model.config)
        finished.load_state_dict(self.model.state_dict())
        checkpoint = self.folder / DRAFT
        finished.to(torch.bfloat16).save_pretrained(checkpoint)
        write_record(checkpoint, VIEWS_FILE, VIEWS)
        write_record(checkpoint, TRAINED_QUESTIONS_FILE, TRAINED_QUESTIONS)
        shutil.copyfile(EXPLORER / PROMPTS_FILE, checkpoint / PROMPTS_FILE)
        for path in checkpoint.iterdir():
            path.replace(self.folder / FINISHED / path.name)

    def _resumed_step(self) -> int:
        path = self.folder / RESUMABLE
        if not path.exists():
            return 0
        state = torch.load(path, map_location="cpu", weights_only=True)
        if "begun_with" not in state:
            raise CannotTrain(f"{path} was written by another version: use another folder")
        if changed := [name for name, value in self.begun_with.items() if state["begun_with"].get(name) != value]:
            raise CannotTrain(
                f"{path} was started with another {', '.join(changed)}: pass the same values, or use another folder"
            )
        self.model.load_state_dict(state["model"])
        self.patches.load_state_dict(state["patches"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.seconds = float(state["seconds"])
        return int(state["step"])

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
        """Evaluate the held-out rooms with teacher forcing: the loss, and the accuracy for each of SHARES, NaN if the
        stage has no such tokens."""
        self.model.eval()
        kinds = dict.fromkeys(STAGES[self.plan.stage(self.step - 1)])
        losses: list[float] = []
        correct: dict[str, list[bool]] = {name: [] for name in SHARES}
        for kind in kinds:
            held_out, size = self.held_out.get(kind, []), self.plan.episode_rows
            for rows in (held_out[start : start + size] for start in range(0, len(held_out), size)):
                batch = collate(rows, self.processor.tokenizer.pad_token_id).to(self.device)
                loss, hits = self._loss(batch)
                losses.append(float(loss))
                if len(batch.images):
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
        stage = self.plan.stage(self.step - 1)
        numbers = [loss, self.plan.rate(self.step - 1), self.seconds, held_out, *shares.values()]
        path = self.folder / CURVE
        new = not path.exists()
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(COLUMNS)
            writer.writerow([self.step, stage, *(f"{number:.6g}" for number in numbers)])
        log.info(
            "step %d of %d (%s): loss %.3f, held-out loss %.3f, accuracy: %s, %.0f s",
            self.step, self.plan.steps, stage, loss, held_out,
            ", ".join(f"{name} {share:.3f}" for name, share in shares.items()), self.seconds,
        )  # fmt: skip


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16. Other CPUs emulate it, several times slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    return device.type != "cpu" or any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def plot_curve(folder: Path) -> None:
    """Draw `curve.csv` as `curve.png`."""
    from matplotlib.figure import Figure

    with (folder / CURVE).open(encoding="utf-8") as file:
        points = list(csv.DictReader(file))
    steps = [int(point["step"]) for point in points]
    stage_ends = [int(point["step"]) for point, later in pairwise(points) if point["stage"] != later["stage"]]
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, names in ((left, ("loss", "held_out_loss")), (right, SHARES)):
        for name in names:
            axes.plot(steps, [float(point[name]) for point in points], label=name.replace("_", " "))
        for end in stage_ends:
            axes.axvline(end, color="0.8", zorder=0)
        axes.set_xlabel("step (grey: the next stage begins)" if stage_ends else "step")
        axes.legend()
    figure.savefig(folder / "curve.png", dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)
    log_to_stream(sys.stdout, line="%(asctime)s %(message)s")
    given = {name: value for name, value in vars(options).items() if name in Plan.__annotations__ and value is not None}
    plan = Plan(**(asdict(SMOKE if options.smoke else Plan()) | given))
    if options.smoke:
        from roomscout.training.demonstrate import make_shards

        make_shards(options.demos, SPLITS["training"], range(HELD_OUT_ROOMS + 4), workers=2)
    demonstrations = shards_in(options.demos)
    lessons = shards_in(options.lessons) if options.lessons else []
    if len(demonstrations) <= HELD_OUT_ROOMS:
        sys.stderr.write(
            f"{options.demos} contains too few demonstrations: run python -m roomscout.training.demonstrate first\n"
        )
        return 2
    if plan.lesson_steps and not lessons:
        sys.stderr.write(f"--lesson-steps needs --lessons, a folder that {DEMONSTRATE} --pupil wrote\n")
        return 2
    if lessons and not plan.lesson_steps:
        sys.stderr.write("--lessons need a training stage: set its length with --lesson-steps\n")
        return 2
    if importlib.util.find_spec("matplotlib") is None:
        sys.stderr.write("plotting the curve needs matplotlib: pip install matplotlib\n")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        trainer = Trainer(
            options.out, plan, demonstrations, device, SIZES[options.sizes], lessons, options.workers, options.compile
        )
    except CannotTrain as error:
        sys.stderr.write(escaped_lines(str(error)) + "\n")
        return 2
    (options.out / "plan.json").write_text(json.dumps(trainer.begun_with, indent=1) + "\n", encoding="utf-8")
    log.info("%d rooms, step %d of %d, on %s", len(demonstrations), trainer.step, plan.steps, device)
    trainer.run()
    plot_curve(options.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="roomscout train explorer", description=__doc__)
    parser.add_argument("demos", type=Path, help=f"folder that {DEMONSTRATE} wrote")
    parser.add_argument("out", type=Path, help="run folder; resumes an unfinished run")
    parser.add_argument("--lessons", type=Path, help=f"folder that {DEMONSTRATE} --pupil wrote")
    parser.add_argument("--smoke", action="store_true", help="short test run; generates a few rooms itself")
    parser.add_argument("--sizes", choices=SIZES, default="small", help="model size (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare batches (%(default)s)")
    parser.add_argument(
        "--compile", action="store_true", help="compile the layers; a third faster, but needs a C++ compiler"
    )
    parser.add_argument("--device", help="cpu or cuda (default: cuda if available)")
    for name, value in asdict(Plan()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), help=f"default {value}")
    return parser


def _is_crowd(reply: str) -> bool:
    """Whether a view shows many objects of one category."""
    kinds = Counter(note.category for note in notes_in(reply))
    return max(kinds.values(), default=0) >= CROWD


def _whole_views(episode: StoredEpisode) -> range:
    """The turns of the first rotation, or none if the teacher may have overlooked an object on purpose: such an object
    is in the question, so it is still missing when the rotation ends."""
    missing = episode.missing[:VIEWS_AROUND]
    return range(0 if missing[-1] else len(missing))


def _can_be_drilled(episode: StoredEpisode) -> bool:
    """Whether the last reasoning follows from all notes at once; a count instead continues from the previous turn."""
    return episode.question_type != "object_counting"


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


def _texts(episodes: Sequence[StoredEpisode]) -> Iterator[str]:
    for episode in episodes:
        yield from (episode.system, *episode.user, *episode.replies)


if __name__ == "__main__":
    sys.exit(main())
