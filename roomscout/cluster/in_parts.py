"""Runs on a Ray cluster or on the GPUs of this machine: workers answer the parts of a run, which are merged into its
folder.

A worker runs the unmodified loop on one part after another, each with an ordinary run folder below the run's `parts`,
and keeps the model that it loaded for the first one. Losing a worker therefore costs only its current turn: Ray calls
another one, which resumes the part's folder, and with --gpus the next start of the run does. Losing the cluster ends
the command with what the parts have, to be resumed.
"""

import atexit
import logging
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from roomscout.agent.builders import layouts_of
from roomscout.agent.config import ClusterSettings, ConfigError, RunConfig
from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.evaluation import (
    Outcome,
    begin_or_resume,
    finished_outcome,
    interrupted,
    is_finished,
    main_vsi_bench_loop,
    open_or_name,
    report,
)
from roomscout.agent.loop import log_failure
from roomscout.agent.policies.prompts import run_prompts
from roomscout.agent.prepared import Prepared, prepared
from roomscout.agent.progress import Progress
from roomscout.agent.run_folder import saved_prompts
from roomscout.agent.startup import Started, resolve, start, start_part
from roomscout.base.extras import require
from roomscout.base.interrupts import ignored_interrupts
from roomscout.base.text import RESULT, counted
from roomscout.base.wording import named
from roomscout.cluster.gpus import DIED, GpuWorkers, gpu_workers
from roomscout.cluster.ray_cluster import (
    NO_NODE_FOR_S,
    POLL_S,
    Cluster,
    ClusterError,
    ClusterLost,
    cluster_of,
    gpus_of_replica,
)
from roomscout.data.parts import Part, cut
from roomscout.data.questions import Question
from roomscout.data.scans import missing_scans
from roomscout.runs import RunError, RunInUse
from roomscout.runs.journal import pending_samples
from roomscout.runs.merge import FoundPart, kinds_by_id, sessions_of, take_part
from roomscout.runs.provenance import changed_versions, current_versions
from roomscout.runs.reader import PARTS_FOLDER, QUESTIONS_FILE, RunReader, find_part, parts_of_run
from roomscout.runs.records import ResultRow
from roomscout.runs.settings import FILTERS, MAX_BATCH_SIZE
from roomscout.runs.writer import RunWriter

log = logging.getLogger(__name__)

MOST_ROUNDS = 4
"""The most parts per replica. With several, the last part of a slow replica is a small share of the run."""
VISIBLE_WITHIN_S = 10.0
"""How long a network file system may take to show a new file on another machine."""
UNLOCKED_WITHIN_S = 180.0
"""How long a part may stay locked by a lost worker. NFS releases the locks of a dead machine after some 90 seconds."""


def answer_in_parts(config: RunConfig, folder: Path | None = None, no_node_for_s: float = NO_NODE_FOR_S) -> Outcome:
    """Answer every question of a run on the workers of --ray or --gpus and score it, as `main_vsi_bench_loop` does.

    `folder` is the run to resume, None for a new one. Status 2 if the cluster had no live node for a worker for
    `no_node_for_s` seconds, after one more try if it was started here, or if a part lost its worker too often; the run
    can then be resumed from its folder. Raises the errors of `main_vsi_bench_loop`, here or on a worker, and
    ClusterError if there is no run folder yet.
    """
    asking = prepared(config, folder=folder)
    if config.cluster.ray:
        require(named("ray"), "ray", error=ConfigError)
    with ExitStack() as stack:
        stack.enter_context(lines_kept_for_log())
        if asking.makes_scans:  # the workers share them
            asking.make_scans()
            asking.report_scans()
        run = RunInParts(asking, stack)
        if run.log is not None and is_finished(asking, run.log):
            return finished_outcome(run.log)
        try:
            stopped = run.answer(no_node_for_s)
        except KeyboardInterrupt:
            if run.log is None:
                raise
            with ignored_interrupts():
                run.save_unfinished()
                return interrupted(run.log, None, stack)
        except ClusterError as error:
            if run.log is None:
                raise
            return run.unfinished(2, f"{error}; finished turns are on disk. To resume:")
        if stopped:
            parts = ", ".join(map(str, stopped))
            return run.unfinished(
                3, f"Parts stopped by an unexpected error: {parts}", "Finished turns are on disk. To resume:"
            )
        assert run.log is not None
        return report(run.log)


class RunInParts:
    """A run that one cluster after another may answer; `log` is its folder, None before it has begun."""

    def __init__(self, asking: Prepared, stack: ExitStack):
        """Opens the folder of a run to resume; `stack` closes the run folder. Raises RunError."""
        self._config, self._asking, self._stack = asking.config, asking, stack
        self.log = open_or_name(asking, stack)
        self._parts: Parts | None = None

    def answer(self, no_node_for_s: float) -> list[Part]:
        """Answer what is left on a cluster; if it was started here and is lost, once more on another.

        Returns the parts that an unexpected error stopped.
        """
        log_root = self._config.output.log_root
        try:
            log_root.mkdir(parents=True, exist_ok=True)
            probe = self._stack.enter_context(tempfile.NamedTemporaryFile(dir=log_root, prefix=".visible_"))  # noqa: SIM115
        except OSError as error:
            raise RunError(f"{named(log_root=log_root)}: cannot write there ({error.strerror})") from None
        settings, gpus_each = self._config.cluster, gpus_of_replica(self._config.model, self._config.vllm)
        if not settings.ray:
            with gpu_workers(settings.gpus, self._config.model.device, max(1, gpus_each)) as workers:
                return self._answer_on(workers, Path(probe.name))
        try:
            with cluster_of(settings, gpus_each, no_node_for_s) as cluster:
                return self._answer_on(cluster, Path(probe.name))
        except ClusterLost as error:
            if settings.ray_address is not None:
                raise
            log.warning("%s; another cluster will resume the run", error)
        with cluster_of(settings, gpus_each, no_node_for_s) as cluster:
            return self._answer_on(cluster, Path(probe.name))

    def unfinished(self, status: int, why: str, *more: str) -> Outcome:
        """Save what unfinished parts have, and log why they are unfinished and the command that resumes the run."""
        self.save_unfinished()
        assert self.log is not None
        log.error("%s", why)
        for line in (*more, self.log.resume_command):
            log.log(RESULT, "%s", line)
        return Outcome(status, self.log.rows, self.log.folder)

    def save_unfinished(self) -> None:
        """Merge what unfinished parts have into the run, and export it."""
        assert self.log is not None
        if (parts := self._parts) is not None:
            for folder in filter(None, map(parts.folder, parts.pending)):
                take_part(self.log, FoundPart.read(folder), parts.kinds)
        self.log.export(None)

    def _answer_on(self, cluster: Cluster | GpuWorkers, probe: Path) -> list[Part]:
        """Let the workers of a cluster answer all pending parts; returns those that an unexpected error stopped.

        Raises errors by which a worker refuses to run, such as ModelError, since the others would refuse, too.
        """
        if self._parts is None:
            self._parts = self._begin(cluster, probe)
        assert self.log is not None
        parts, stopped = self._parts, list[Part]()
        left = parts.pending
        count, shown = len(parts.questions), not self._config.output.quiet
        retries = self._config.what_to_run.retry_failed
        rows = [*self.log.rows, *unmerged(self.log, retries)]
        log.info("%s, %d at a time", counted(count, "part"), min(cluster.replicas.count, count))
        with Progress(self._asking.episodes, rows, shown, benchmark=self._asking.benchmark) as progress:
            watch = Watch(self.log, progress, retries)
            for ended in cluster.outcomes(PartWorker, "answer", {part: (parts.config(part), probe) for part in left}):
                watch()
                for part, status in ended.items():
                    left.remove(part)
                    if isinstance(status, Exception):
                        log.error("The worker of part %s stopped with an error", part)
                        raise status
                    if status > 1:
                        where = parts.folder(part) or self.log.folder
                        log.error("Part %s was stopped by an unexpected error: see run.log in %s", part, where)
                        stopped.append(part)
                    else:
                        parts.take(part)
                        log.info("Part %s is finished; parts left: %d", part, len(left))
        return stopped

    def _begin(self, cluster: Cluster | GpuWorkers, probe: Path) -> "Parts":
        """Begin or resume the run folder, and cut the run into parts."""
        prompts, questions = None, self._asking.questions
        if self.log is None:
            # This machine may have no GPU, and this process must not use one, so a worker resolves each "auto".
            asked = self._config.model
            calls = cluster.outcomes(PartWorker, "resolved", {None: (for_worker(self._config), probe)})
            (found,) = (each for ended in calls for each in ended.values())
            if isinstance(found, Exception):
                raise found
            if found == DIED:
                raise ClusterError(f"{named(gpus=','.join(self._config.cluster.gpus))}: no worker can be started")
            self._config = found.having(device=asked.device, memory_fraction=asked.memory_fraction)
            prompts = run_prompts(self._config) if self._config.model.asks_model else None
        self.log = begin_or_resume(self._asking, self.log, self._config, prompts, self._stack)
        parts = Parts(self.log, self._config, questions, cluster.replicas.count)
        if len(parts.questions) < cluster.replicas.count:
            scenes = counted(len({question.scene for question in questions}), "scene")
            log.warning(
                "%s: %d of %d workers have a part to answer", scenes, len(parts.questions), cluster.replicas.count
            )
        parts.require_same_prompts()
        return parts


class Parts:
    """The parts below a run's folder: their questions, kinds of answers, settings and folders."""

    def __init__(self, run_log: RunWriter, config: RunConfig, questions: Sequence[Question], replicas: int):
        self.run_log, self._config, self._root = run_log, config, run_log.folder / PARTS_FOLDER
        self._root.mkdir(exist_ok=True)
        begun = (RunReader(folder).facts.part for folder in parts_of_run(run_log.folder))
        scenes = len({question.scene for question in questions})
        # As many as the run was begun with, whatever the replicas now.
        of = next((part.of for part in begun if part), 0) or number_of_parts(len(questions), scenes, replicas)
        self.kinds = kinds_by_id(questions)
        self.questions = {Part(number, of): asked for number, asked in enumerate(cut(questions, of), 1)}

    @property
    def pending(self) -> list[Part]:
        """The parts with questions that have no result in the run, those with the most first."""
        run, samples = self.run_log, self._config.questions.samples
        left = {
            part: sum(len(pending_samples(run, each.id, samples)) for each in asked)
            for part, asked in self.questions.items()
        }
        return sorted(filter(left.__getitem__, left), key=left.__getitem__, reverse=True)

    def folder(self, part: Part) -> Path | None:
        """The run folder of a part; None before it has begun."""
        return find_part(self._root, part.number, part.of)

    def config(self, part: Part) -> RunConfig:
        """The settings for a part."""
        what = self._config.what_to_run
        changes: dict[str, Any] = {"log_root": self._root, "name": None, "shard": str(part), "prices": None}
        changes |= {"ray": False, "ray_address": None, "replicas": "auto", "gpus": ClusterSettings.gpus}
        changes |= {"continue_from": what.continue_from if what.retry_failed else None}
        changes |= {**dict.fromkeys(FILTERS, ()), "num_questions": None}  # workers need no other file, and no filter
        changes |= {"questions": self.run_log.folder / QUESTIONS_FILE}
        return for_worker(self._config).having(**changes)

    def require_same_prompts(self) -> None:
        """Raise RunError if parts that have not begun would read other prompts than the run has recorded."""
        if not self._config.model.asks_model or self._config.controls.on_video or all(map(self.folder, self.pending)):
            return
        folder = self.run_log.folder
        if run_prompts(self._config).sha256 != saved_prompts(folder).sha256:
            raise RunError(
                f"{folder} was begun with other prompts, which its parts that have not begun would not read: resume it "
                f"with the version of RoomScout and the file of {named('prompts')} with which it began, or start a new "
                "run"
            )

    def take(self, part: Part) -> None:
        """Merge a finished part into the run; logs a warning if its worker lacked scans that are on this machine."""
        folder = self.folder(part)
        assert folder is not None
        found = FoundPart.read(folder)
        take_part(self.run_log, found, self.kinds)
        self.run_log.add_sessions(sessions_of(folder))
        lacking = {row.id for row in found.rows.values() if row.failed_part == "scan"}
        questions = [each for each in self.questions[part] if each.id in lacking]
        missing = missing_scans(questions, self._config.views.scan_root, layouts_of(self._config.questions.benchmark))
        if unseen := sum(each.scene not in missing for each in questions):
            log.warning(
                "Part %s: %s lacks scans that this machine has (questions: %d): make %s the same folder "
                "on all machines, then resume with %s",
                part,
                found.facts.last_host,
                unseen,
                named("scan_root"),
                named("retry_failed"),
            )


def for_worker(config: RunConfig) -> RunConfig:
    """The settings of a worker. With --gpus it uses its GPU, or fails instead of using the CPU unasked; workers on a
    CPU share its memory.
    """
    model, cluster = config.model, config.cluster
    if cluster.on_gpus and model.device == "auto":
        return config.having(device="cuda")
    if cluster.on_gpus and model.device == "cpu" and model.loads_weights:
        return config.having(memory_fraction=model.memory_fraction / len(cluster.gpus))
    return config


def number_of_parts(questions: int, scenes: int, replicas: int) -> int:
    """A multiple of the replicas, so that all stay busy to the end.

    As many parts as still fill a batch each, at most MOST_ROUNDS per replica, and at most one per scene.
    """
    rounds = max(1, min(MOST_ROUNDS, questions // (MAX_BATCH_SIZE * replicas)))
    return min(scenes, rounds * replicas)


def unmerged(run_log: RunWriter, retries: bool) -> list[ResultRow]:
    """What the parts of a run that was killed had finished, without failures that are to be retried."""
    rows = (row for folder in parts_of_run(run_log.folder) for row in RunReader(folder).rows)
    return [row for row in rows if not run_log.is_done(row.id, row.sample) and not (retries and row.failed)]


class Watch:
    """Follows the workers through their run folders: updates the progress bar, and logs failures, lost workers and
    versions. A run that `retries` failed questions requeues those of a part when a worker resumes it.
    """

    def __init__(self, run_log: RunWriter, progress: Progress, retries: bool):
        self._retries = retries
        self.run_log, self._progress, self._versions = run_log, progress, current_versions()
        self._others, self._seen = set[tuple[str, str]](), {row.episode for row in unmerged(run_log, retries)}
        self._sizes: dict[Path, tuple[int, ...]] = {}
        readers = map(RunReader, parts_of_run(run_log.folder))
        self._resumed = {reader.folder: 1 + len(reader.facts.resumed) for reader in readers}

    def __call__(self) -> None:
        """Count the newly finished questions of all parts."""
        for reader in map(RunReader, parts_of_run(self.run_log.folder)):
            if self._sizes.get(reader.folder) == (sizes := reader.sizes):
                continue
            self._sizes[reader.folder], facts = sizes, reader.facts
            if len(facts.resumed) > self._resumed.setdefault(reader.folder, 0):
                log.warning("The worker of %s was lost; another one has resumed it", facts.part)
                self._resumed[reader.folder] = len(facts.resumed)
            others = facts.last_host, ", ".join(changed_versions(self._versions, facts.last_versions))
            if others[1] and others not in self._others:
                log.warning("Workers on %s run with %s: the answers come from both versions", *others)
                self._others.add(others)
            to_retry = self._retries and len(facts.resumed) < self._resumed[reader.folder]
            for row in reader.rows:
                if row.failed and to_retry:
                    continue
                if row.episode not in self._seen and not self.run_log.is_done(row.id, row.sample):
                    self._progress.finished(row)
                    if row.failed:
                        log_failure(row)
                self._seen.add(row.episode)
        self._progress.tell()


def require_visible(probe: Path, within_s: float = VISIBLE_WITHIN_S) -> None:
    """Raise RunError if this machine does not see a new file below --log-root within `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not probe.exists():
        if time.monotonic() > deadline:
            raise RunError(
                f"{named(log_root=probe.parent)} is not the same folder on {socket.gethostname()}, where a worker runs"
                ": use a file system that all machines of the cluster share"
            )
        time.sleep(POLL_S)


class PartWorker:
    """Answers parts of a run, on whichever machine of the cluster it runs. Loads the model with its first part."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._stack = ExitStack()
        atexit.register(self._stack.close)

    def resolved(self, config: RunConfig, probe: Path) -> RunConfig:
        """`config` with each "auto" resolved on this machine; raises the errors of `main_vsi_bench_loop`."""
        require_visible(probe)
        with ExitStack() as stack:
            return resolve(prepared(config), run_prompts(config), stack).config

    def answer(self, config: RunConfig, probe: Path) -> int:
        """Begin or resume the part that `config` names; returns the status and raises the errors of
        `main_vsi_bench_loop`.

        Waits while a lost worker still holds the lock of the part's folder.
        """
        require_visible(probe)
        part = Part.parse(str(config.cluster.shard))
        deadline = time.monotonic() + UNLOCKED_WITHIN_S
        while True:
            try:
                folder = find_part(config.output.log_root, part.number, part.of)
                return main_vsi_bench_loop(config, folder, begin=self._begin).status
            except RunInUse as error:
                if time.monotonic() > deadline:
                    raise
                log.info("Waiting: %s", error)
                time.sleep(POLL_S)

    def _begin(self, asking: Prepared, stack: ExitStack) -> Started:
        """What a part needs; what the first one has loaded is kept for later ones."""
        if self._started is None:
            self._started = start(asking, self._stack)
            return self._started
        return start_part(self._started, asking)
