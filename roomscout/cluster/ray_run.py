"""Runs on a Ray cluster: workers, by default one per GPU, answer the parts of a run, which are merged into its folder.

A worker runs the unmodified loop on a part, in its own process, with an ordinary run folder below the run's `parts`.
Losing a worker therefore costs only its current turn: the next worker resumes the part's folder. Losing the cluster
ends the command with what the parts have, to be resumed.
"""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from roomscout.agent.builders import (
    layouts_of,
)
from roomscout.agent.config import RunConfig
from roomscout.agent.console import Progress, lines_kept_for_log
from roomscout.agent.evaluation import (
    Outcome,
    begin_or_resume,
    finished_outcome,
    interrupted,
    is_finished,
    open_or_name,
    report,
)
from roomscout.agent.planning import LARGEST_BATCH
from roomscout.agent.policies.prompts import run_prompts
from roomscout.agent.prepared import Prepared, prepared
from roomscout.agent.run_folder import saved_prompts
from roomscout.agent.unfamiliar import log_unfamiliar, unfamiliar_questions
from roomscout.base.interrupts import ignored_interrupts
from roomscout.cluster.ray_cluster import NO_NODE_FOR_S, Cluster, ClusterError, ClusterLost, require_ray
from roomscout.cluster.ray_worker import Result, SharedFolderProbe, shared_folder_probe
from roomscout.data.parts import Part, cut
from roomscout.data.questions import Question
from roomscout.data.scans import ScanNotFound, scan_of
from roomscout.runs import RunError
from roomscout.runs.journal import pending_samples
from roomscout.runs.merge import FoundPart, sessions_of, take_part
from roomscout.runs.provenance import changed_versions, current_versions
from roomscout.runs.reader import PARTS_FOLDER, QUESTIONS_FILE, RunReader, find_part, run_folders
from roomscout.runs.records import EpisodeId, ResultRow, RunFacts
from roomscout.runs.settings import FILTERS
from roomscout.runs.writer import RunWriter

log = logging.getLogger(__name__)

MOST_ROUNDS = 4
"""The most parts per replica. With several, the last part of a slow replica is a small share of the run."""
MOST_LOSSES = 3
"""How often a part may lose its worker before the run stops; a part that kills its workers would never end."""


def answer_on_ray(config: RunConfig, folder: Path | None = None, no_node_for_s: float = NO_NODE_FOR_S) -> Outcome:
    """Answer every question of a run on a Ray cluster and score it, as `main_vsi_bench_loop` does in one process.

    `folder` is the run to resume, None for a new one. Status 2 if the cluster had no live node for a worker for
    `no_node_for_s` seconds, after one more try if it was started here, or if a part lost its worker too often; the run
    can then be resumed from its folder. Raises the errors of `main_vsi_bench_loop`, here or on a worker, and
    ClusterError if there is no run folder yet.
    """
    require_ray()
    asking = prepared(config, folder=folder)
    config = asking.config
    with ExitStack() as stack:
        stack.enter_context(lines_kept_for_log())
        if asking.makes_scans:  # the workers share them
            asking.make_scans()
            asking.report_scans()
        run = RayRun(asking, stack)
        if run.log is not None and is_finished(asking, run.log):
            return finished_outcome(run.log)
        try:
            with shared_folder_probe(config.output.log_root) as probe:
                stopped = answer_and_restart(run, config, probe, no_node_for_s)
        except KeyboardInterrupt:
            if run.log is None:
                raise
            with ignored_interrupts():
                run.save_unfinished()
                return interrupted(run.log, None, stack)
        except ClusterError as error:
            if run.log is None:
                raise
            run.save_unfinished()
            log.error("%s; finished turns are on disk. To resume:", error)
            log.info("%s", run.log.resume_command)
            return Outcome(2, run.log.rows, run.log.folder)
        assert run.log is not None
        if not stopped:
            return report(run.log)
        run.save_unfinished()
        log.error("Parts stopped by an unexpected error: %s", ", ".join(map(str, stopped)))
        log.info("Finished turns are on disk. To resume:")
        log.info("%s", run.log.resume_command)
        return Outcome(3, run.log.rows, run.log.folder)


def answer_and_restart(
    run: "RayRun", config: RunConfig, probe: SharedFolderProbe, no_node_for_s: float
) -> Sequence[Part]:
    """Answer a run on a cluster; if the cluster was started here and is lost, once more on another.

    Returns the parts that an unexpected error stopped.
    """
    try:
        with Cluster(config, no_node_for_s) as cluster:
            return run.answer(cluster, probe)
    except ClusterLost as error:
        if config.cluster.ray_address is not None:
            raise
        log.warning("%s; another cluster will resume the run", error)
    with Cluster(config, no_node_for_s) as cluster:
        return run.answer(cluster, probe)


class RayRun:
    """A run that one cluster after another may answer; `log` is its folder, None before it has begun."""

    def __init__(self, asking: Prepared, stack: ExitStack):
        """Opens the folder of a run to resume; `stack` closes the run folder. Raises RunError."""
        self.config, self._asking, self._stack = asking.config, asking, stack
        self.log: RunWriter | None = open_or_name(asking, stack)
        self._parts: Parts | None = None

    def answer(self, cluster: Cluster, probe: SharedFolderProbe) -> list[Part]:
        """Let the workers of a cluster answer what is left; see `answer_parts`."""
        if self._parts is None:
            self._parts = self._begin(cluster, probe)
        assert self.log is not None
        log.info("RAY: %d parts, %d at a time", self._parts.of, cluster.replicas.count)
        with Progress(self._asking.episodes, self.log.rows, benchmark=self._asking.benchmark) as progress:
            return answer_parts(cluster, self._parts, probe, progress)

    def save_unfinished(self) -> None:
        """Merge what unfinished parts have into the run, and export it."""
        assert self.log is not None
        if self._parts is not None:
            self._parts.take_all()
        self.log.export(None)

    def _begin(self, cluster: Cluster, probe: SharedFolderProbe) -> "Parts":
        prompts, questions = None, self._asking.questions
        if self.log is None:
            self.config = resolved_on_worker(cluster, self.config, probe)
            prompts = run_prompts(self.config) if self.config.model.asks_model else None
        self.log = begin_or_resume(self._asking, self.log, self.config, prompts, self._stack)
        log_unfamiliar(unfamiliar_questions(None, self.config.model, questions))
        parts = Parts(self.log, self.config, questions, cluster.replicas.count)
        parts.require_same_prompts()
        return parts


class Parts:
    """The parts below a run's folder: their settings, folders and progress."""

    def __init__(self, run_log: RunWriter, config: RunConfig, questions: Sequence[Question], replicas: int):
        self._run_log = run_log
        self._root = run_log.folder / PARTS_FOLDER
        self._root.mkdir(exist_ok=True)
        what = config.what_to_run
        self._config = config.having(
            log_root=self._root,
            name=None,
            ray=False,
            ray_address=None,
            replicas="auto",
            continue_from=what.continue_from if what.retry_failed else None,
        )
        if RunReader(run_log.folder).has_questions:  # workers need no other file, and no filter
            filters: dict[str, Any] = {**dict.fromkeys(FILTERS, ()), "num_questions": None}
            self._config = self._config.having(questions=run_log.folder / QUESTIONS_FILE, **filters)
        self._asked = {question.id: question for question in questions}
        scenes = len({question.scene for question in questions})
        self.of = self._begun_with() or number_of_parts(len(questions), scenes, replicas)
        self._questions = {Part(number, self.of): asked for number, asked in enumerate(cut(questions, self.of), 1)}

    def require_same_prompts(self) -> None:
        """Raise RunError if parts that have not begun would read other prompts than the run has recorded."""
        if not self._config.model.asks_model or all(self.folder(part) for part in self.pending):
            return
        folder = self._run_log.folder
        if run_prompts(self._config).sha256 != saved_prompts(folder).sha256:
            raise RunError(
                f"{folder} was begun with other prompts, which its parts that have not begun would not read: resume it "
                "with the version of RoomScout and the file of --prompts with which it began, or start a new run"
            )

    def is_done(self, row: ResultRow) -> bool:
        """Whether the run has a part's result."""
        return self._run_log.is_done(row.id, row.sample)

    @property
    def pending(self) -> list[Part]:
        """The parts with questions that have no result in the run."""
        samples = self._config.questions.samples
        return [
            part
            for part, asked in self._questions.items()
            if any(pending_samples(self._run_log, each.id, samples) for each in asked)
        ]

    def config(self, part: Part) -> RunConfig:
        """The settings for a part."""
        return self._config.having(shard=str(part))

    def folder(self, part: Part) -> Path | None:
        """The run folder of a part; None before it has begun."""
        return find_part(self._root, part.number, part.of)

    def take(self, part: Part) -> None:
        """Merge a finished part into the run; logs a warning if its worker lacked scans that are on this machine."""
        if folder := self.folder(part):
            found = FoundPart.read(folder)
            take_part(self._run_log, found)
            self._run_log.add_sessions(sessions_of(folder))
            if unseen := sum(row.failed_part == "scan" and self._has_scan(row) for row in found.rows.values()):
                log.warning(
                    "Part %s: %s lacks scans that this machine has (questions: %d): make --scan-root the same folder "
                    "on all machines, then resume with --retry-failed",
                    part,
                    found.facts.last_host,
                    unseen,
                )

    def take_all(self) -> None:
        """Merge the current contents of unfinished parts into the run."""
        for part in self.pending:
            if folder := self.folder(part):
                take_part(self._run_log, FoundPart.read(folder))

    def _has_scan(self, row: ResultRow) -> bool:
        try:
            layouts = layouts_of(self._config.questions.benchmark)
            scan_of(self._asked[row.id], self._config.views.scan_root, layouts)
        except (KeyError, ScanNotFound):
            return False
        return True

    def _begun_with(self) -> int | None:
        """The number of parts that the run was begun with, whatever the replicas now; None for a new run."""
        found = (RunReader(folder).facts.part for folder in run_folders(self._root))
        return next((part.of for part in found if part), None)


def number_of_parts(questions: int, scenes: int, replicas: int) -> int:
    """A multiple of the replicas, so that all stay busy to the end.

    As many parts as still fill a batch each, at most MOST_ROUNDS per replica, and at most one per scene.
    """
    rounds = max(1, min(MOST_ROUNDS, questions // (LARGEST_BATCH * replicas)))
    return min(scenes, rounds * replicas)


def answer_parts(cluster: Cluster, parts: Parts, probe: SharedFolderProbe, progress: Progress) -> list[Part]:
    """Let workers answer all pending parts; returns the parts that an unexpected error stopped.

    Reassigns the part of a lost worker at most MOST_LOSSES times, then raises ClusterError. Re-raises errors by which a
    worker refuses to run, such as ModelError, since the other workers would refuse, too.
    """
    waiting, losses, stopped = deque(parts.pending), Counter[Part](), list[Part]()
    busy: dict[int, Part] = {}
    watch = Watch(parts, progress)
    while waiting or busy:
        while waiting and len(busy) < cluster.replicas.count:
            part = waiting.popleft()
            busy[cluster.start("answer", parts.config(part), probe)] = part
        results = cluster.results()
        watch(busy.values())
        for result in results:
            part = busy.pop(result.call)
            if result.lost is not None:
                losses[part] += 1
                if losses[part] > MOST_LOSSES:
                    raise ClusterError(f"part {part} lost its worker {losses[part]} times ({result.lost})")
                log.warning("The worker of part %s was lost; another one will resume it (%s)", part, result.lost)
                waiting.append(part)
            elif status_of(result, part) > 1:
                log.error("Part %s was stopped by an unexpected error: see run.log in %s", part, parts.folder(part))
                stopped.append(part)
            else:
                parts.take(part)
                log.info("Part %s is finished; parts left: %d", part, len(waiting) + len(busy))
    return stopped


def status_of(result: Result, part: Part) -> int:
    """The exit status of a part; raises the error by which its worker refused to run."""
    if result.error is not None:
        log.error("The worker of part %s stopped with an error", part)
        raise result.error
    return result.value


class Watch:
    """Follows the workers through their run folders: updates the progress bar, and compares versions."""

    def __init__(self, parts: Parts, progress: Progress):
        self._parts, self._progress = parts, progress
        self._versions = current_versions()
        self._others: set[tuple[str, str]] = set()
        self._folders: dict[Part, Path] = {}
        self._seen: set[EpisodeId] = set()

    def __call__(self, busy: Iterable[Part]) -> None:
        """Count the newly finished questions of these parts."""
        for part in busy:
            if part not in self._folders:
                folder = self._parts.folder(part)
                if folder is None:
                    continue
                self._folders[part] = folder
                self._compare_versions(RunReader(folder).facts)
            for row in RunReader(self._folders[part]).rows:
                if row.episode not in self._seen and not self._parts.is_done(row):
                    self._progress.finished(row)
                self._seen.add(row.episode)

    def _compare_versions(self, facts: RunFacts) -> None:
        others = facts.last_host, ", ".join(changed_versions(self._versions, facts.last_versions))
        if others[1] and others not in self._others:
            log.warning("Workers on %s run with %s: the answers come from both versions", *others)
            self._others.add(others)


def resolved_on_worker(cluster: Cluster, config: RunConfig, probe: SharedFolderProbe) -> RunConfig:
    """`config` as resolved by a worker, since this machine may have no GPU."""
    for _ in range(1 + MOST_LOSSES):
        result = cluster.result(cluster.start("resolve", config.having(ray=False), probe))
        if result.lost is None:
            break
        log.warning("The first worker was lost; another one will replace it (%s)", result.lost)
    else:
        raise ClusterError(f"the first worker was lost {1 + MOST_LOSSES} times before it began ({result.lost})")
    if result.error is not None:
        raise result.error
    return result.value.having(ray=True)  # so that the run resumes on Ray
