"""Runs whose parts are answered by workers, on a Ray cluster or on the GPUs of this machine, and merged.

Each part has an ordinary run folder below the run's `parts`. Losing the cluster ends the command with what the parts
have, to be resumed.
"""

import logging
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from roomscout.agent.console import log_to_file
from roomscout.agent.loop import log_failure
from roomscout.agent.progress import Progress
from roomscout.agent.running import Outcome, begin_folder, opened_again, report, require_same_scans
from roomscout.base.interrupts import ignored_interrupts
from roomscout.base.text import RESULT, counted
from roomscout.cluster.processes import DIED, Processes, devices_of
from roomscout.cluster.ray_cluster import NO_NODE_FOR_S, Cluster, ClusterError, ClusterLost, ray_cluster
from roomscout.data.parts import Part, cut
from roomscout.data.scans import missing_scans
from roomscout.edge.dividing import DividedRun, as_asked, values_of_part
from roomscout.edge.settings import flags_of
from roomscout.runs import RunError
from roomscout.runs.journal import pending_samples
from roomscout.runs.merge import FoundPart, kinds_by_id, sessions_of, take_part
from roomscout.runs.provenance import changed_versions, current_versions
from roomscout.runs.reader import PARTS_FOLDER, QUESTIONS_FILE, RunReader, find_part, parts_of_run
from roomscout.runs.records import ResultRow
from roomscout.runs.writer import RunWriter

log = logging.getLogger(__name__)


def answer_in_parts(run: DividedRun, no_node_for_s: float = NO_NODE_FOR_S) -> Outcome:
    """Answer every question of a run on the workers of --ray or --gpus and score it. Status 2 if the cluster had no
    live node for a worker for `no_node_for_s` seconds, after one more try if it was started here, or if a part lost its
    worker too often; the run can then be resumed from its folder. Raises the errors of `plan`, RenderError and
    ModelError of a worker, and ClusterError if there is no run folder yet."""
    with ExitStack() as stack:
        parts = Parts(run, stack)
        if parts.log is not None and not parts.pending:
            log.log(RESULT, "Nothing to do: every question of %s is finished", parts.log.folder)
            return report(parts.log)
        try:
            stopped = _answered(parts, no_node_for_s)
        except KeyboardInterrupt:
            if parts.log is None:
                raise
            with ignored_interrupts():
                return parts.unfinished(130, logging.INFO, "Interrupted; finished turns are on disk. To resume:")
        except ClusterError as error:
            if parts.log is None:
                raise
            return parts.unfinished(2, logging.ERROR, f"{error}; finished turns are on disk. To resume:")
        if stopped:
            why = f"Parts stopped by an unexpected error: {', '.join(map(str, stopped))}"
            return parts.unfinished(3, logging.ERROR, f"{why}; finished turns are on disk. To resume:")
        assert parts.log is not None
        return report(parts.log)


def _answered(parts: "Parts", no_node_for_s: float) -> list[Part]:
    """The parts that an unexpected error stopped, after a second try of all that is left if a cluster is lost."""
    asked, gpus_each = parts.run.settings, parts.run.gpus_each
    root = Path(asked["log_root"])
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = parts.stack.enter_context(tempfile.NamedTemporaryFile(dir=root, prefix=".visible_"))  # noqa: SIM115
    except OSError as error:
        raise RunError(f"--log-root {root}: cannot write there ({error.strerror})") from None
    if not asked["ray"]:
        processes = Processes(devices_of(asked["gpus"], asked["device"], max(1, gpus_each)))
        try:
            return parts.answer_on(processes, Path(probe.name))
        finally:
            processes.close()
    try:
        with ray_cluster(asked["replicas"], gpus_each, no_node_for_s) as cluster:
            return parts.answer_on(cluster, Path(probe.name))
    except ClusterLost as error:
        if os.environ.get("RAY_ADDRESS"):  # it was joined: another one cannot be started in its place
            raise
        log.warning("%s; another cluster will resume the run", error)
    with ray_cluster(asked["replicas"], gpus_each, no_node_for_s) as cluster:
        return parts.answer_on(cluster, Path(probe.name))


class Parts:
    """The parts of a run, and the folder into which they are merged: `log`, None before the run has begun."""

    def __init__(self, run: DividedRun, stack: ExitStack):
        """Opens the folder of a run to resume, which `stack` closes; raises RunError."""
        self.run, self.stack = run, stack
        self.log: RunWriter | None = None
        self.kinds = kinds_by_id(run.questions.here)
        if run.folder is not None:
            self.log = opened_again(run.folder, flags_of(run.changed), run.settings["retry_failed"], stack)
            require_same_scans(self.log, run.questions, run.world)
            self.log.note_resumption(dict(run.changed), None, self.log.facts.price)
            self._log_to_folder(self.log)

    @property
    def pending(self) -> int:
        """The number of answers to come."""
        assert self.log is not None
        samples = self.run.questions.samples
        return sum(len(pending_samples(self.log, each.id, samples)) for each in self.run.questions.here)

    def answer_on(self, workers: Cluster | Processes, probe: Path) -> list[Part]:
        """Let workers answer all pending parts; returns those that an unexpected error stopped."""
        if self.log is None:
            self.log = self._begun(workers, probe)
        divided, run_log, stopped = self._divided(workers.workers), self.log, list[Part]()
        samples = self.run.questions.samples
        left = {
            part: number
            for part, asked in divided.items()
            if (number := sum(len(pending_samples(run_log, each.id, samples)) for each in asked))
        }
        retries, bar = self.run.settings["retry_failed"], self.run.settings["log_level"] != "result"
        rows = [*run_log.rows, *_unmerged(run_log, retries)]
        log.info("%s, %d at a time", counted(len(divided), "part"), min(workers.workers, len(divided)))
        root, questions = run_log.folder / PARTS_FOLDER, run_log.folder / QUESTIONS_FILE
        calls = {part: (values_of_part(self.run, str(part), root, questions), probe) for part in left}
        episodes, benchmark = self.run.questions.episodes, self.run.questions.benchmark
        with Progress(episodes, rows, bar, benchmark=benchmark) as progress:
            watch = Watch(run_log, progress, retries)
            for ended in workers.outcomes("answer", calls):
                watch()
                for part, status in ended.items():
                    del left[part]
                    if isinstance(status, Exception):
                        log.error("The worker of part %s stopped with an error", part)
                        raise status
                    if status > 1:
                        where = find_part(root, part.number, part.of) or run_log.folder
                        log.error("Part %s was stopped by an unexpected error: see run.log in %s", part, where)
                        stopped.append(part)
                    else:
                        self._take(part)
                        log.info("Part %s is finished; parts left: %d", part, len(left))
        return stopped

    def _begun(self, workers: Cluster | Processes, probe: Path) -> RunWriter:
        """The new folder of the run. This machine may have no GPU, and this process must not use one, so a worker
        resolves each "auto"."""
        calls = workers.outcomes("resolve", {None: ({**self.run.settings, **self.run.of_worker}, probe)})
        (found,) = (each for ended in calls for each in ended.values())
        if isinstance(found, Exception):
            raise found
        if found == DIED:
            raise ClusterError("no worker can be started")
        record, renderer = found
        run_log = begin_folder(as_asked(self.run, record), self.run.questions, renderer)
        self.stack.callback(run_log.close)
        self._log_to_folder(run_log)
        return run_log

    def _log_to_folder(self, run_log: RunWriter) -> None:
        self.stack.enter_context(log_to_file(run_log.folder / "run.log"))
        log.info("Run folder: %s", run_log.folder)

    def _divided(self, workers: int) -> dict[Part, Any]:
        """The questions of each part: as many parts as the run was begun with, else one for each worker."""
        assert self.log is not None
        (self.log.folder / PARTS_FOLDER).mkdir(exist_ok=True)
        begun = (RunReader(folder).facts.part for folder in parts_of_run(self.log.folder))
        here = self.run.questions.here
        scenes = len({question.scene for question in here})
        of = next((part.of for part in begun if part), 0) or min(scenes, workers)
        if of < workers:
            log.warning("%s: %d of %d workers have a part to answer", counted(scenes, "scene"), of, workers)
        return {Part(number, of): asked for number, asked in enumerate(cut(here, of), 1)}

    def _take(self, part: Part) -> None:
        """Merge a finished part into the run; logs a warning if its worker lacked scans that are on this machine."""
        assert self.log is not None
        folder = find_part(self.log.folder / PARTS_FOLDER, part.number, part.of)
        assert folder is not None
        found = FoundPart.read(folder)
        take_part(self.log, found, self.kinds)
        self.log.add_sessions(sessions_of(folder))
        lacking = {row.id for row in found.rows.values() if row.failed_part == "scan"}
        questions = [each for each in self.run.questions.here if each.id in lacking]
        missing = missing_scans(questions, self.run.world.scan_root, self.run.world.layouts)
        if unseen := sum(each.scene not in missing for each in questions):
            log.warning(
                "Part %s: %s lacks scans that this machine has (questions: %d): make --scan-root the same folder on "
                "all machines, then resume with --retry-failed",
                part, found.facts.last_host, unseen,
            )  # fmt: skip

    def unfinished(self, status: int, level: int, why: str) -> Outcome:
        """Merge what unfinished parts have, and log why they are unfinished and the command that resumes the run."""
        assert self.log is not None
        done = {(row.id, row.sample) for row in self.log.rows}
        for folder in parts_of_run(self.log.folder):
            found = FoundPart.read(folder)
            if found.unfinished or not done.issuperset(found.rows):
                take_part(self.log, found, self.kinds)
        self.log.export(None)
        log.log(max(level, RESULT), "%s", why)
        log.log(RESULT, "%s", self.log.resume_command)
        return Outcome(status, self.log.rows, self.log.folder)


def _unmerged(run_log: RunWriter, retries: bool) -> list[ResultRow]:
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
        self._others, self._seen = set[tuple[str, str]](), {row.episode for row in _unmerged(run_log, retries)}
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
