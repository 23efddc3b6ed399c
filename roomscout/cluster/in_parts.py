"""Runs whose parts are answered by workers, on a Ray cluster or on the GPUs of this machine, and merged. Each part has
an ordinary run folder below the run's `parts`. Losing the cluster ends the command with what the parts have."""

import logging
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from roomscout.agent.console import log_to_file
from roomscout.agent.loop import log_failure
from roomscout.agent.progress import Progress
from roomscout.agent.session import Outcome, begin_folder, opened_again, report, require_same_scans, resume_command
from roomscout.base.errors import in_words
from roomscout.base.interrupts import ignored_interrupts, interrupts_first, raise_if_interrupted
from roomscout.base.text import RESULT, counted
from roomscout.cluster.parts import QUEUE_FOLDER, ChunkQueue, chunks_of
from roomscout.cluster.processes import DIED, Processes, devices_of
from roomscout.cluster.ray_cluster import NO_NODE_FOR_S, Cluster, ClusterError, ClusterLost, ray_cluster
from roomscout.data.parts import Part
from roomscout.data.scans import missing_scans
from roomscout.edge.dividing import DividedRun, as_asked, values_of_part
from roomscout.edge.record import resume_words
from roomscout.edge.settings import flags_of
from roomscout.runs import RunError
from roomscout.runs.journal import pending_samples
from roomscout.runs.merge import FoundPart, take_part
from roomscout.runs.provenance import changed_versions, current_versions
from roomscout.runs.reader import PARTS_FOLDER, QUESTIONS_FILE, RunReader, find_part, parts_of_run
from roomscout.runs.records import ResultRow
from roomscout.runs.writer import RunWriter

log = logging.getLogger(__name__)


class Workers:
    """The workers of --ray or --gpus, which stay until they are closed for the next run that asks for the same."""

    def __init__(self) -> None:
        self._kind: tuple[Any, ...] = ()
        self._stack = ExitStack()
        self._workers: Cluster | Processes | None = None

    def of(self, run: DividedRun, no_node_for_s: float) -> Cluster | Processes:
        """The workers that a run asks for; raises RunError."""
        settings = run.settings
        kind = (run.gpus_each, *(settings[name] for name in ("ray", "gpus", "device", "replicas")))
        if self._workers is None or kind != self._kind:
            self.close()
            if settings["ray"]:
                cluster = ray_cluster(settings["replicas"], run.gpus_each, no_node_for_s)
                self._workers = self._stack.enter_context(cluster)
            else:
                self._workers = Processes(devices_of(settings["gpus"], settings["device"], max(1, run.gpus_each)))
                self._stack.callback(self._workers.close)
            self._kind = kind
        return self._workers

    def close(self) -> None:
        """End the workers, if there are any."""
        self._workers = None
        self._stack.close()


def answer_in_parts(run: DividedRun, no_node_for_s: float = NO_NODE_FOR_S, workers: Workers | None = None) -> Outcome:
    """Answer every question of a run on the workers of --ray or --gpus, those that are given or others that end with
    it, and score it. Status 2 if the cluster had no live node for a worker for `no_node_for_s` seconds, after one more
    try if it was started here, or if a part lost its worker too often; the run can then be resumed from its folder.
    Raises the errors of `plan`, those of a worker, and ClusterError if there is no run folder yet."""
    with ExitStack() as stack:
        parts = Parts(run, stack)
        if parts.log is not None and not parts.pending:
            log.log(RESULT, "Nothing to do: every question of %s is finished", parts.log.folder)
            return report(parts.log)
        crew = workers or Workers()
        try:
            with interrupts_first():
                stopped = _answered(parts, no_node_for_s, crew)
                assert parts.log is not None
                if not stopped and not parts.pending:
                    return report(parts.log)
        except KeyboardInterrupt:
            with ignored_interrupts():
                crew.close()
                if parts.log is None:
                    raise
                return parts.unfinished(130, logging.INFO, "Interrupted")
        except ClusterError as error:
            crew.close()
            if parts.log is None:
                raise
            return parts.unfinished(2, logging.ERROR, in_words(error))
        finally:
            if workers is None:
                crew.close()
        names = ", ".join(map(str, stopped)) or "unknown"
        return parts.unfinished(3, logging.ERROR, f"Parts stopped before their end: {names}")


def _answered(parts: "Parts", no_node_for_s: float, workers: Workers) -> list[Part]:
    root = Path(parts.run.settings["log_root"])
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = parts.stack.enter_context(tempfile.NamedTemporaryFile(dir=root, prefix=".visible_"))  # noqa: SIM115
    except OSError as error:
        raise RunError(f"cannot write to {root} ({error.strerror})", setting="log_root") from None
    try:
        return parts.answer_on(workers.of(parts.run, no_node_for_s), Path(probe.name))
    except ClusterLost as error:
        if os.environ.get("RAY_ADDRESS"):  # it was joined: another one cannot be started in its place
            raise
        workers.close()
        log.warning("%s; another cluster will resume the run", error)
    return parts.answer_on(workers.of(parts.run, no_node_for_s), Path(probe.name))


class Parts:
    """The parts of a run, and the folder into which they are merged: `log`, None before the run has begun."""

    def __init__(self, run: DividedRun, stack: ExitStack):
        """Opens the folder of a run to resume, which `stack` closes; raises RunError."""
        self.run = run
        self.stack = stack
        self.log: RunWriter | None = None
        self.kinds = {question.id: question.kind for question in run.questions.here}
        if run.folder is not None:
            command = resume_command(resume_words(), run.folder, flags_of(run.changed))
            self.log = opened_again(run.folder, command, run.retry_failed, stack)
            require_same_scans(self.log, run.questions, run.world)
            self.log.note_resumption(dict(run.changed), None, self.log.reader.facts.price)
            self._log_to_folder(self.log)

    @property
    def pending(self) -> int:
        """The number of answers to come."""
        assert self.log is not None
        return self.run.questions.pending(self.log)

    def answer_on(self, workers: Cluster | Processes, probe: Path) -> list[Part]:
        """Let workers answer all pending parts; returns those that an unexpected error or a lost engine stopped."""
        if self.log is None:
            self.log = self._begun(workers, probe)
        run_log = self.log
        stopped = list[Part]()
        left = self._divided(run_log, workers.workers)
        retries = self.run.retry_failed
        bar = self.run.settings["log_level"] != "result"
        rows = [*run_log.rows, *_unmerged(run_log, retries)]
        log.info("%s, %d at a time", counted(len(left), "part"), min(workers.workers, len(left)))
        root = run_log.folder / PARTS_FOLDER
        file = run_log.folder / QUESTIONS_FILE
        calls = {part: (values_of_part(self.run, str(part), root, file), probe, retries) for part in left}
        questions = self.run.questions
        with Progress(questions.episodes, rows, bar, benchmark=questions.benchmark) as progress:
            progress.begun()
            watch = Watch(run_log, progress, retries)
            for ended in workers.outcomes("answer", calls):
                raise_if_interrupted()
                watch()
                for part, status in ended.items():
                    left.remove(part)
                    if isinstance(status, Exception):
                        log.error("The worker of part %s stopped with an error", part)
                        raise status
                    if status > 1:
                        where = find_part(root, *part) or run_log.folder
                        log.error("Part %s stopped before its end: see the end of run.log in %s", part, where)
                        stopped.append(part)
                    else:
                        self._take(run_log, part)
                        log.info("Part %s is finished; parts left: %d", part, len(left))
        return stopped

    def _begun(self, workers: Cluster | Processes, probe: Path) -> RunWriter:
        """The new folder of the run. A worker resolves each "auto": this process has no GPU, or must not use it."""
        calls = workers.outcomes("resolve", {None: ({**self.run.settings, **self.run.of_worker}, probe)})
        (resolved,) = (value for ended in calls for value in ended.values())
        if isinstance(resolved, Exception):
            raise resolved
        if resolved == DIED:
            raise ClusterError("no worker can be started")
        run_log = begin_folder(as_asked(self.run, resolved), self.run.questions)
        self.stack.callback(run_log.close)
        self._log_to_folder(run_log)
        return run_log

    def _log_to_folder(self, run_log: RunWriter) -> None:
        self.stack.enter_context(log_to_file(run_log.folder / "run.log"))
        log.info("Run folder: %s", run_log.folder)

    def _divided(self, run_log: RunWriter, workers: int) -> list[Part]:
        """As many parts as the run was begun with, else one for each worker; what is answered leaves their queue."""
        folder = run_log.folder / PARTS_FOLDER
        questions = self.run.questions
        folder.mkdir(exist_ok=True)
        chunks = chunks_of(questions.here)
        readers = [RunReader(part) for part in parts_of_run(run_log.folder)]
        if any(reader.facts.config["shard"] for reader in readers):
            raise RunError(f"{run_log.folder} has parts of fixed scenes: resume it with --gpus none --no-ray")
        begun = (reader.facts.part for reader in readers)
        of = next((part.of for part in begun if part), 0) or min(len(chunks), workers)
        taken = (int(file.name) for file in (folder / QUEUE_FOLDER).glob("[0-9]*/*"))  # perhaps before it had a folder
        of = max(of, *taken, 0)
        if of < workers:
            few = counted(len(questions.here), "question")
            log.warning("%s: %d of %d workers have something to answer", few, of, workers)
        queue = ChunkQueue(folder / QUEUE_FOLDER, questions.here, of)
        queue.give_back(0)
        for number, chunk in enumerate(chunks):
            if not any(pending_samples(run_log, question.id, questions.samples) for question in chunk):
                queue.claim(number, 0)
        return [Part(number, of) for number in range(1, of + 1)]

    def _take(self, run_log: RunWriter, part: Part) -> None:
        """Merge a finished part into the run, unless nothing was left for it; warn of scans that its worker lacks."""
        folder = find_part(run_log.folder / PARTS_FOLDER, *part)
        if folder is None:
            return
        finished = FoundPart.read(folder)
        take_part(run_log, finished, self.kinds)
        run_log.add_sessions(finished.reader.sessions)
        lacking = {row.id for row in finished.rows.values() if row.failed_part == "scan"}
        questions = [question for question in self.run.questions.here if question.id in lacking]
        missing = missing_scans(questions, self.run.world.scan_root, self.run.world.layouts)
        if unseen := sum(question.scene not in missing for question in questions):
            log.warning(
                "Part %s: %s lacks scans that this machine has (questions: %d): make --scan-root the same folder on "
                "all machines, then resume with --retry-failed",
                part, finished.facts.last_host, unseen,
            )  # fmt: skip

    def unfinished(self, status: int, level: int, why: str) -> Outcome:
        """Merge what unfinished parts have, and log why they are unfinished and the command that resumes the run."""
        assert self.log is not None
        for folder in parts_of_run(self.log.folder):
            take_part(self.log, FoundPart.read(folder), self.kinds)
        self.log.export(None)
        log.log(max(level, RESULT), "%s; finished turns are on disk. To resume:", why)
        log.log(RESULT, "%s", self.log.resume_command)
        return Outcome(status, self.log.rows, self.log.folder)


def _unmerged(run_log: RunWriter, retries: bool) -> list[ResultRow]:
    """What the parts of a run that was killed had finished, without failures that are to be retried."""
    rows = (row for folder in parts_of_run(run_log.folder) for row in RunReader(folder).rows)
    return [row for row in rows if not run_log.is_done(row.id, row.sample) and not (retries and row.failed)]


class Watch:
    """Follows the workers through their run folders: updates the progress bar, and logs failures, lost workers and
    versions. A run that `retries` failed questions requeues those of a part when a worker resumes it."""

    def __init__(self, run_log: RunWriter, progress: Progress, retries: bool):
        self._retries = retries
        self.run_log = run_log
        self._progress = progress
        self._versions = current_versions()
        self._others = set[tuple[str, str]]()
        self._seen = {row.episode for row in _unmerged(run_log, retries)}
        self._sizes: dict[Path, tuple[int, ...]] = {}
        readers = map(RunReader, parts_of_run(run_log.folder))
        self._resumed = {reader.folder: 1 + len(reader.facts.resumed) for reader in readers}

    def __call__(self) -> None:
        """Count the newly finished questions of all parts."""
        for reader in map(RunReader, parts_of_run(self.run_log.folder)):
            sizes = reader.sizes
            if self._sizes.get(reader.folder) == sizes:
                continue
            self._sizes[reader.folder] = sizes
            facts = reader.facts
            if len(facts.resumed) > self._resumed.setdefault(reader.folder, 0):
                log.warning("The worker of %s was lost; another one has resumed it", facts.part)
                self._resumed[reader.folder] = len(facts.resumed)
            versions = ", ".join(changed_versions(self._versions, facts.last_versions))
            if versions and (facts.last_host, versions) not in self._others:
                log.warning("Workers on %s run with %s: the answers come from both versions", facts.last_host, versions)
                self._others.add((facts.last_host, versions))
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
