"""What a run asks and who answers, checked before anything is written or loaded."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roomscout.agent.budget import price_of
from roomscout.agent.builders import asked_of, films_of, layouts_of, part_of, with_policy
from roomscout.agent.config import ConfigError, ModelSettings, QuestionSettings, RenderSettings, RunConfig
from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.named import policy_name
from roomscout.agent.run_folder import config_to_resume, questions_to_resume
from roomscout.base.text import counted, listed
from roomscout.base.wording import named
from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.boxes import BoxError, KnownBoxes
from roomscout.data.questions import Question, Selection
from roomscout.data.scans import ScanNotFound, format_scan_table, missing_scans, scan_of, scan_table
from roomscout.data.video_frames import FrameSize, VideoNotFound
from roomscout.envs.films import FilmSettings
from roomscout.envs.object_boxes import known_boxes
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.runs.prices import Price

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A run that may begin: its settings, its policy (None for the model that they name), and what it asks.

    `questions` are those of `asked`, with --shard those of its part. `folder` is that of a run to resume, `price`
    that of the model's tokens, if it is known.
    """

    config: RunConfig
    policy: Policy | None
    asked: Selection
    questions: Sequence[Question]
    folder: Path | None
    price: Price | None = None

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark of the questions."""
        return find_benchmark(self.config.questions.benchmark)

    @property
    def episodes(self) -> int:
        """The number of answers."""
        return len(self.questions) * self.config.questions.samples

    @property
    def makes_scans(self) -> bool:
        """Whether the benchmark makes the scans of its questions."""
        shows_scans = self.config.what_to_run.ply is None and not self.config.controls.on_video
        return shows_scans and self.benchmark.make_scans is not None

    def make_scans(self) -> None:
        """Make the scans that are not there; only for a benchmark that `makes_scans`. Raises QuestionError."""
        assert self.benchmark.make_scans is not None
        self.benchmark.make_scans({question.scene for question in self.questions})

    def report_scans(self) -> None:
        """Log how many scenes have a scan, or a video; for a new run, raises ScanNotFound if none has.

        Also raises ConfigError if boxes are --given and no scan of a new run has any.
        """
        asked, root, ply = self.config.questions, self.config.views.scan_root, self.config.what_to_run.ply
        if (video := self.config.video) is not None:
            report_films(self.questions, films_of(self.config, video, FrameSize(1)), required=self.folder is None)
        elif ply is None:
            report_scans(self.questions, root, asked.benchmark, required=self.folder is None, brief=True)
        if self.config.controls.given and self.folder is None:
            layouts = layouts_of(asked.benchmark)
            require_boxes(self.questions, lambda question: ply or scan_of(question, root, layouts))


def prepared(
    config: RunConfig, policy: Policy | None = None, asked: Selection | None = None, folder: Path | None = None
) -> Prepared:
    """Check a run before it begins, or resumes from its `folder`.

    `policy` replaces the model that `config` names, `asked` the questions that it names for a new run. Raises
    ConfigError, QuestionError, ModelError or RunError if the run cannot begin.
    """
    policy, config = with_policy(policy, config.checked())
    if config.video is not None and policy is not None and not isinstance(policy, ModelPolicy):
        raise ConfigError(f"{named(present='video')} shows frames to a model, and {policy_name(policy)} is none")
    backend = policy.backend if isinstance(policy, ModelPolicy) else None
    if config.controls.video_input == "native" and not isinstance(backend, TransformersBackend | None):
        raise ConfigError(f"{named(video_input='native')} is for models of transformers: leave it out")
    require_sampling(policy, config.model, config.questions.samples)
    require_answers(policy, config.controls.anytime)
    if folder is not None:
        config = config_to_resume(folder, config)
        asked = Selection.all_of(
            questions_to_resume(folder, config.what_to_run, config.questions, config.cluster.shard)
        )
    elif asked is None:
        asked = asked_of(config.what_to_run, config.questions)
    require_judged(asked.questions, config.judge.judge)
    if folder is None:
        require_scan_root_used(config.questions, config.views.scan_root)
    questions = part_of(asked.questions, config.cluster.shard)
    return Prepared(config, policy, asked, questions, folder, price_of(config, folder))


def require_sampling(policy: Policy | None, model: ModelSettings, samples: int) -> None:
    """Raise ConfigError if several samples of a question would all be equal, since a model decides at temperature 0.

    Trusts a policy without a temperature among its settings to draw at random.
    """
    temperature = model.temperature if policy is None else policy.settings.get("temperature")
    if samples > 1 and temperature == 0:
        raise ConfigError(
            f"{named(samples=samples)} would repeat one answer {samples} times, since replies at "
            f"{named(temperature=0)} are always the same: add {named('temperature')}, such as 0.7"
        )


def require_answers(policy: Policy | None, anytime: bool) -> None:
    """Raise ConfigError if --anytime asks for answers that a policy cannot give; any model can, also `policy` None."""
    if anytime and policy is not None and policy.answer_now([]) is None:
        raise ConfigError(
            f"{named('anytime')} asks a model for an answer after each turn, and {policy_name(policy)} cannot be "
            f"asked: leave out {named('anytime')}, or give the policy a method answer_now"
        )


def require_judged(questions: Sequence[Question], judge: str | None) -> None:
    """Raise ConfigError if --judge is given and no question has an answer that a judge could mark."""
    if judge is not None and not any(each.kind.needs_judge for each in questions):
        raise ConfigError(f"{named('judge')} marks answers in free text, and no question has one: leave it out")


def require_scan_root_used(asked: QuestionSettings, scan_root: Path) -> None:
    """Raise ConfigError if --scan-root is given with a benchmark that makes its scans itself."""
    record = find_benchmark(asked.benchmark)
    makes_them = record.folder is not None and not Path(asked.benchmark).is_dir()
    if makes_them and asked.questions is None and scan_root.absolute() != RenderSettings.scan_root.absolute():
        raise ConfigError(
            f"{named(benchmark=asked.benchmark)} has its own scans: leave out {named(scan_root=scan_root)}"
        )


def report_films(questions: Sequence[Question], films: FilmSettings, required: bool) -> None:
    """Log how many scenes have frames of a video, and which have none; `required` raises VideoNotFound for none."""
    scenes, missing = {question.scene for question in questions}, films.missing(questions)
    if required and len(missing) == len(scenes):
        raise VideoNotFound(next(iter(missing.values())))
    number, found = counted(len(questions), "question"), len(scenes) - len(missing)
    log.info("%s about %s, %d with a video", number, counted(len(scenes), "scene"), found)
    if missing:
        log.warning("no video, so their questions fail: %s", listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))


def require_boxes(questions: Sequence[Question], scan_of: Callable[[Question], Path]) -> None:
    """Raise ConfigError, which names the first scan, if no scan of these questions has known boxes of its objects.

    Questions about one without them fail, as do those without a scan.
    """
    known = KnownBoxes()
    first: BoxError | None = None
    for question in {question.scene: question for question in questions}.values():
        try:
            known_boxes(known, scan_of(question), question.scene_name)
            return
        except BoxError as error:
            first = first or error
        except ScanNotFound:
            continue
    if first is not None:
        raise ConfigError(str(first))


def report_scans(
    questions: Sequence[Question], scan_root: Path, benchmark: str, required: bool = False, brief: bool = False
) -> bool:
    """Print the table of scans per dataset and the scenes without one; returns whether every scene has a scan.

    With `required`, raises ScanNotFound if no scene has one: the scan root is then likely the wrong folder. With
    `brief`, prints one line instead of the table if every scene has a scan.
    """
    missing = missing_scans(questions, scan_root, layouts_of(benchmark))
    table = scan_table(questions, missing)
    if required and not any(row.scenes_with_scan for row in table):
        raise ScanNotFound(
            f"{scan_root} has no scan of {counted(len(missing), 'scene')} asked about: {named('scan_root')} takes the "
            f"folder with the scans. {next(iter(missing.values()))}"
        )
    if brief and not missing:
        scenes = sum(row.scenes for row in table)
        log.info("%s about %s, all with a scan", counted(len(questions), "question"), counted(scenes, "scene"))
        return True
    for line in format_scan_table(table):
        log.info("%s", line)
    if missing:
        log.warning("no scan, so their questions fail: %s", listed(map(" ".join, missing)))
        log.warning("%s", next(iter(missing.values())))
    return not missing
