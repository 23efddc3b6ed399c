"""A run while it is planned: its settings, who answers and what, and the parts that follow from these."""

import logging
import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self

from roomscout.agent.actions import find_space
from roomscout.agent.play.policy import HUMAN, HumanPolicy
from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.movers import Mover, RecordedMoves
from roomscout.agent.policies.named import named_policy, policy_name
from roomscout.agent.policies.prompts import Controls, Prompts, model_prompts
from roomscout.agent.policies.replies import action_format
from roomscout.agent.spec import EngineSpec, QuestionSpec, RecordSpec, ScheduleSpec, WorldSpec
from roomscout.agent.state import Rules
from roomscout.base.errors import ConfigError
from roomscout.base.extras import require
from roomscout.base.text import counted
from roomscout.base.wording import flag
from roomscout.data.benchmarks import benchmark_names, find_benchmark
from roomscout.data.questions import Question, Selection, fingerprint
from roomscout.data.video_protocol import VideoProtocol
from roomscout.edge.conditions import answerer_of, conditions_of, scoring_of
from roomscout.edge.conflicts import require_no_conflict
from roomscout.edge.declaring import Role
from roomscout.edge.memory import MemoryPlan, Planner, at_once, batch_words, frame_size, suited_to_model
from roomscout.edge.parts import asked_by, cuda_device_of, layouts_of, model_options, renderer_of, server_options
from roomscout.edge.reading import changed, located
from roomscout.edge.resuming import as_begun, changed_since, part_of, questions_to_resume, saved_prompts, saved_settings
from roomscout.edge.sections import RenderSettings
from roomscout.edge.settings import ANSWER_SETTINGS, DEFAULTS, Settings, flags_giving, flags_of, names_in, names_of
from roomscout.edge.types import CHECKPOINT, TELL_NAMES
from roomscout.envs.films import FilmSettings
from roomscout.envs.library import CameraSettings
from roomscout.models import ReplyFormat
from roomscout.models.checkpoint_files import own_view_settings, view_settings_of
from roomscout.models.transformers.source import checkpoint_of, existing_source, hub_revision
from roomscout.models.vllm import VllmOptions
from roomscout.rendering.readers import reader_of
from roomscout.rendering.scene import SceneError
from roomscout.runs.movers import GIVEN_PATH, MOVERS
from roomscout.runs.prices import Price, read_price
from roomscout.runs.reader import RunReader
from roomscout.runs.records import PartRecord
from roomscout.runs.writer import named_folder

log = logging.getLogger(__name__)

VIEW_SETTINGS = (*(name for name in names_in(RenderSettings) if name in ANSWER_SETTINGS), "actions")
"""Settings that must be those of the run of --moves-of, so that equal poses give equal views."""
TOKENS_FOR_THOUGHTS = 8192
"""Room for a thought and a reply."""
NAMES_OF_REASONERS = re.compile(r"(?<!non)(?<!non[-_])think|reason|q[wv]q|\br1\b|\bo[134]\b|gpt-5", re.IGNORECASE)
OF_PART = tuple(name for name in (*ANSWER_SETTINGS, *names_of(Role.RECORD)) if name != "shard")
"""Settings that the parts of a run have in common."""


def of_one(question: Question) -> dict[str, Any]:
    """The settings that ask one question about a scan file."""
    return {"question": question.question, "options": list(question.options), "ground_truth": question.ground_truth}


@dataclass(frozen=True)
class Draft:
    """A run while it is planned. `policy` is None for the model that the settings name; `folder` is that of a run to
    resume. Once it is `resolved`, the settings have no "auto" but that of the renderer."""

    settings: Settings
    policy: Policy | None
    questions: QuestionSpec
    folder: Path | None = None

    @classmethod
    def of(
        cls,
        settings: Settings,
        policy: Policy | None = None,
        asked: Selection | None = None,
        folder: Path | None = None,
    ) -> Self:
        """The draft of the run that these settings ask for, checked; see `plan`."""
        require_no_conflict(settings)
        settings = located(settings)
        if policy is None and settings.policy is not None:
            host, _, port = settings.address.rpartition(":")
            if settings.policy == HUMAN:
                policy = HumanPolicy(settings.annotator, host, int(port), settings.samples, settings.instructions)
            else:
                policy = named_policy(settings.policy, settings.seed)
            if settings.model not in (DEFAULTS["model"], policy_name(policy)):
                raise ConfigError(f"--policy {settings.policy} replaces the model: leave out --model {settings.model}")
        if policy is not None:
            settings = changed(settings, model=policy_name(policy), **policy.settings)
        benchmark = find_benchmark(settings.benchmark)
        if folder is not None:
            settings = as_begun(saved_settings(folder), settings)
            asked = Selection.all_of(questions_to_resume(folder, settings.questions, settings.shard, benchmark))
        if settings.ply is not None:
            try:
                reader_of(settings.ply)
            except SceneError as error:
                raise ConfigError(f"--ply {error}") from None
        asked = asked or asked_by(vars(settings))
        if isinstance(policy, HumanPolicy):
            policy.deal([each.scene for each in asked.questions])
        here = part_of(asked.questions, settings.shard)
        questions = QuestionSpec(asked, here, settings.samples, benchmark, settings.ply is not None)
        draft = cls(settings, policy, questions, folder)
        draft.require_answers()
        if folder is None:
            draft._require_new()
        return draft

    def resolved(self, loads: bool = True) -> Self:
        """The draft with settings that suit the checkpoint, if it `loads` one; raises ConfigError or ModelError."""
        settings = self.settings
        checkpoint = self.checkpoint if loads else None
        if loads and self.policy is None:
            chosen = settings.max_new_tokens != "auto" or own_view_settings(settings.model) is not None
            if not chosen and NAMES_OF_REASONERS.search(Path(settings.model).name):
                log.warning(
                    "%s seems to reason before it replies: add --max-new-tokens %d, or its thoughts leave no room for "
                    "a reply",
                    settings.model, TOKENS_FOR_THOUGHTS,
                )  # fmt: skip
        if checkpoint is not None:  # a wrong name is refused before seconds of imports
            existing_source(checkpoint)
        more = " and ".join([*settings.see[1:], *(["boxes of objects"] if settings.boxes else [])])
        if more and (self.policy is None or self._model is not None) and own_view_settings(settings.model) is not None:
            log.warning("%s was trained on views alone, without %s: do not rely on its answers", settings.model, more)
        found = replace(self, settings=changed(settings, **suited_to_model(settings, self.video, checkpoint)))
        if settings.generation == CHECKPOINT:
            found.require_answers()
        return found

    @property
    def _model(self) -> ModelPolicy | None:
        return self.policy if isinstance(self.policy, ModelPolicy) else None

    @cached_property
    def video(self) -> VideoProtocol | None:
        """The protocol of the benchmark on frames of a video, None without --present video; raises ConfigError."""
        benchmark = self.questions.benchmark
        if self.settings.on_video and benchmark.video is None:
            known = ", ".join(name for name in benchmark_names() if find_benchmark(name).video)
            raise ConfigError(f"--present video: {benchmark.title} has no field video; those that have one are {known}")
        return benchmark.video if self.settings.on_video else None

    @cached_property
    def checkpoint(self) -> str | None:
        """The checkpoint that the run loads on this machine, if any."""
        settings = self.settings
        loads = self.policy is None and settings.loads_weights
        return checkpoint_of(settings.model, settings.revision) if loads else None

    @cached_property
    def world(self) -> WorldSpec:
        """Where the scans are, and how views are drawn."""
        settings = self.settings
        questions = self.questions
        layouts = layouts_of(settings.benchmark)
        return WorldSpec(
            scan_root=settings.scan_root,
            ply=settings.ply,
            layouts=layouts,
            up_axis=settings.up_axis,
            scale=settings.scale,
            camera=CameraSettings(
                settings.view_size,
                view_settings_of(settings.model).focal_at(settings.view_size[0])
                if settings.focal == "auto"
                else settings.focal,
                settings.camera_height,
                settings.camera_pitch,
                see=settings.see,
            ),
            renderer=renderer_of(
                settings.renderer, questions.asked.questions, settings.scan_root, settings.ply, layouts
            ),
            cuda_device=cuda_device_of(settings.device),
            films=None if self.video is None else self._films(self.video),
            makes_scans=settings.ply is None and self.video is None and questions.benchmark.make_scans is not None,
        )

    def _films(self, video: VideoProtocol) -> FilmSettings:
        """Which frames a run on videos shows; raises ConfigError without the package that reads videos."""
        settings = self.settings
        root = self.settings.videos
        assert root is not None, "a run on videos has a folder of them"
        backend = self._model.backend if self._model is not None else None
        size = frame_size(settings.view_size, self.checkpoint, backend)
        if any((root / dataset / scene).is_dir() for dataset, scene in {each.scene for each in self.questions.here}):
            return FilmSettings(root, "", settings.images_a_turn, size)
        require("--videos", "av", error=ConfigError)
        return FilmSettings(root, video.file, settings.images_a_turn, size)

    @cached_property
    def rules(self) -> Rules:
        """The rules of the questions; raises ConfigError, or RunError for --moves-of."""
        settings = self.settings
        if self.video is not None:
            return Rules(video=self.video, native=self.native)
        space = find_space(settings.actions)
        form = self._model.reply_format if self._model is not None else ReplyFormat()
        if form.grammar is not None or (self.policy is None and settings.constrained):
            form = action_format(True, space if settings.translation else space.at_place)
        return Rules(
            prompts=self._prompts,
            form=form,
            mover=self._mover,
            at_once=settings.present == "once",
            min_turns=settings.min_turns,
            translation=settings.translation,
            space=space,
            boxes=settings.boxes,
            keep_views=settings.keep_views,
        )

    @cached_property
    def native(self) -> bool:
        """Whether frames are shown as one video, as they are to a model of transformers that takes videos; raises
        ModelError. An input of one frame is no video, and the rate of images in a folder is not known."""
        films = self.world.films
        if films is None:
            return False
        if self.folder is not None:
            return bool(RunReader(self.folder).facts.conditions["video_input"] == "native")
        if not films.form or films.frames == 1:
            return False
        if self._model is not None:
            return getattr(self._model.backend, "sees_videos", False)
        if self.checkpoint is None or self.settings.engine != "transformers":
            return False
        from roomscout.models.transformers.footprint import sees_videos

        return sees_videos(self.checkpoint)

    @property
    def _mover(self) -> Mover | None:
        """Who moves the camera instead of the policy, if anybody does; raises ConfigError or RunError."""
        settings = self.settings
        questions = self.questions
        if settings.moves_of is not None:
            views = {name: value for name, value in settings.as_json.items() if name in VIEW_SETTINGS}
            views = {name: value for name, value in views.items() if value != "auto"}  # the renderer is found later
            return RecordedMoves(settings.moves_of, views, questions.here, questions.samples, settings.steps)
        entry = GIVEN_PATH if "path" in settings.given else MOVERS.get(settings.moves)
        if entry is None:
            return None
        kind: type[Mover] = resolve_name(entry.target)
        return kind(settings.seed, self.world.camera.intrinsics, settings.translation)

    @property
    def _prompts(self) -> Prompts:
        """What the model reads: those of a given model, or of the run that resumes, or of the settings."""
        settings = self.settings
        if self._model is not None:
            prompts = self._model.prompts
        elif self.folder is not None:
            return saved_prompts(self.folder)
        else:
            prompts = model_prompts(settings.prompts, settings.model)
        moves = "given path" if "path" in settings.given else settings.moves
        controls = Controls(
            moves="recorded" if settings.moves_of is not None else moves,
            at_once=settings.present == "once",
            min_turns=settings.min_turns,
            translation=settings.translation,
            actions=settings.actions,
            boxes=settings.boxes,
            keep_views=settings.keep_views,
            tell=tuple(name for name in TELL_NAMES if name in settings.tell),
            see=settings.see,
        )
        return prompts.with_advice_of(self.questions.benchmark).under(controls)

    @cached_property
    def memory(self) -> MemoryPlan:
        """The batch size and memory of the run; raises ModelError."""
        settings = self.settings
        questions = self.questions
        if self.folder is not None and not settings.retry_failed:
            done = {(row.id, row.sample) for row in RunReader(self.folder).rows}
            if done.issuperset(product((each.id for each in questions.here), range(1, settings.samples + 1))):
                return MemoryPlan(1, "every question is finished")
        if self.policy is not None:
            few = min(settings.max_batch_size, questions.episodes)
            size = few if settings.batch_size == "auto" else settings.batch_size
            why = f"{batch_words(size, questions.episodes)}{settings.model} needs no memory for keys and values"
            return MemoryPlan(size, why)
        if self.checkpoint is None:
            asked = at_once(settings.concurrency, questions)
            where = " ".join(settings.base_url)
            return MemoryPlan(asked, f"{counted(asked, 'question')} at a time at {where}, which forms the batches")
        return Planner(settings, self.checkpoint, questions, self.rules.prompts, self.video, self.native).plan()

    @property
    def engine(self) -> EngineSpec:
        """What decides, with the options of its engine; raises ConfigError if the key of a server is missing."""
        settings = self.settings
        memory = self.memory
        server = None
        vllm = None
        shown = settings.most_shown + self.questions.pictures
        if self.policy is not None:
            return EngineSpec(settings.model, self.policy)
        if settings.engine == "openai":
            server = server_options(settings, settings.constrained, shown)
        elif settings.engine == "vllm":
            vllm = VllmOptions(images=shown, tensor_parallel_size=memory.tensor_parallel)
        options = model_options(settings, memory)
        return EngineSpec(settings.model, None, options, server, vllm, settings.constrained)

    @property
    def schedule(self) -> ScheduleSpec:
        """Turns per question, and which questions take theirs together."""
        settings = self.settings
        memory = self.memory
        few = None if settings.concurrency == "auto" else settings.concurrency
        if few is None and memory.model is not None and memory.model.device.startswith("cpu"):
            few = memory.batch_size  # on a CPU, fewer calls are not worth the padding of batches of different turns
        steps = settings.most_moves if settings.on_video else settings.steps
        most = settings.last_batched_turn + 1
        refill = settings.refill
        return ScheduleSpec(steps, memory.batch_size, most, refill, few, settings.anytime)

    @property
    def record(self) -> RecordSpec:
        """What run.json says of the run."""
        reads = (self.policy is None or self.policy.reads_prompts) and self.video is None
        prompts = self.rules.prompts if reads else None
        settings, revision = self.settings, None
        if (prompts or self.video) and settings.engine != "openai":
            revision = hub_revision(self.checkpoint or checkpoint_of(settings.model, settings.revision))
        values = settings.as_json | (of_one(self.questions.here[0]) if self.questions.is_one else {})
        facts = RunReader(self.folder).facts if self.folder is not None else None
        changes = {} if facts is None else changed_since(facts.config, values)
        part = settings.part
        whole = self.questions.asked.questions
        return RecordSpec(
            folder=self.folder,
            log_root=settings.log_root,
            name=settings.name,
            settings=values,
            flags=flags_giving(values),
            conditions=conditions_of(values, prompts, self.video, self.native),
            answerer=answerer_of(values),
            scoring=scoring_of(values),
            changed=changes,
            resume_flags=flags_of(changes),
            part=PartRecord(part.number, part.of, len(whole), fingerprint(whole), OF_PART) if part else None,
            prompts=prompts,
            revision=revision,
            price=self._price(facts.price if facts is not None else None),
            budget=settings.budget,
            retry_failed=settings.retry_failed,
        )

    def _price(self, recorded: Price | None) -> Price | None:
        """The price of the model by --prices, whose file may be gone when a run resumes; raises ConfigError."""
        path = self.settings.prices
        if path is None or (recorded is not None and not path.exists()):
            return recorded
        try:
            return read_price(path, self.settings.model)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def require_answers(self) -> None:
        """Raise ConfigError if the policy cannot answer as asked, or a judge has nothing to mark."""
        settings = self.settings
        policy = self.policy
        if settings.on_video and policy is not None and self._model is None:
            raise ConfigError(f"--present video shows frames to a model, and {policy_name(policy)} is not one")
        # A policy without a temperature among its settings is trusted to draw at random.
        temperature = settings.temperature if policy is None else policy.settings.get("temperature")
        if settings.samples > 1 and temperature in (0, "auto") and settings.generation != CHECKPOINT:
            raise ConfigError(
                f"--samples {settings.samples} would repeat one answer {settings.samples} times, since replies at "
                "--temperature 0 are always the same: add --temperature, such as 0.7"
            )
        if settings.anytime and policy is not None and policy.answer_now([]) is None:
            raise ConfigError(
                f"--anytime asks a model for an answer after each turn, and {policy_name(policy)} cannot be asked: "
                "leave out --anytime, or give the policy a method answer_now"
            )
        if settings.judge is not None and not any(each.kind.needs_judge for each in self.questions.asked.questions):
            raise ConfigError("--judge marks answers in free text, and no question has one: leave it out")
        if settings.on_video and self.questions.pictures:
            raise ConfigError("--present video shows frames alone, and questions have pictures: leave it out")
        if any(each.kind.judges_camera for each in self.questions.asked.questions):
            others = {"present": settings.on_video, "moves": settings.moves != "model", "moves_of": settings.moves_of}
            others |= {"translation": not settings.translation, "steps": not settings.steps}
            if given := next((name for name, is_given in others.items() if is_given), None):
                shown = flag(given, vars(settings)[given])
                raise ConfigError(f"{shown}: a pose is scored where the model itself moves the camera: leave it out")

    def _require_new(self) -> None:
        """Raise ConfigError for other scans than a benchmark's own, RunError if the name of the run is taken."""
        settings = self.settings
        benchmark = self.settings.benchmark
        root = self.settings.scan_root
        own_scans = self.questions.benchmark.folder is not None and not Path(benchmark).is_dir()
        if own_scans and settings.questions is None and root != DEFAULTS["scan_root"].absolute():
            raise ConfigError(f"--benchmark {benchmark} has its own scans: leave out --scan-root {root}")
        if settings.name is not None:
            part = settings.part
            named_folder(settings.log_root, settings.name, (part.number, part.of) if part else None)
