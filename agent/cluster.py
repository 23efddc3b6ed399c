"""Runs on a Ray cluster: workers, by default one per GPU, answer the parts of a run, which are merged into its folder.

A worker runs the unmodified loop on a part, in its own process, with an ordinary run folder below the run's `parts`.
Losing a worker therefore costs only its current turn: the next worker resumes the part's folder.
"""

import logging
import os
import signal
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from agent.builders import cuda_device_of, layouts_of, questions_of, server_of, with_policy
from agent.config import ConfigError, RunConfig
from agent.console import Progress, log_to_file
from agent.evaluation import (
    Outcome,
    finished_outcome,
    interrupted,
    main_vsi_bench_loop,
    open_run,
    report,
    report_scans,
    resolved,
)
from agent.parts import Part, cut
from agent.planning import LARGEST_BATCH, plan_run, suited
from agent.policies.prompts import prompts_of
from agent.run_folder import begin_folder, note_resumption
from data.questions import Question, fingerprint
from data.scans import ScanNotFound, find_scan
from rendering.interrupts import deferred_interrupts, ignored_interrupts
from rendering.renderers import make_renderer
from runs import RunError, RunInUse
from runs.merge import FoundPart, sessions_of, take_part
from runs.provenance import changed_versions, current_versions
from runs.reader import RunReader, find_part, run_folders
from runs.records import ResultRow, RunFacts
from runs.writer import RunWriter

log = logging.getLogger(__name__)

MOST_ROUNDS = 4
"""The most parts per replica. With several, the last part of a slow replica is a small share of the run."""
MOST_LOSSES = 3
"""How often a part may lose its worker before the run stops; a part that kills its workers would never end."""
POLL_S = 0.5
"""The interval at which workers' progress is read from their run folders."""
CONNECT_WITHIN_S = 10.0
VISIBLE_WITHIN_S = 10.0
"""How long a network file system may take to show a new file on another machine."""
UNLOCKED_WITHIN_S = 180.0
"""How long a part may stay locked by a lost worker. NFS releases the locks of a dead machine after some 90 seconds."""
OBJECT_STORE_BYTES = 100_000_000
"""Ray's shared memory on this machine. It carries only settings and exit statuses."""


class Token(NamedTuple):
    """A file that every worker must see, and its content."""

    path: Path
    content: str

    def require_visible(self, within_s: float = VISIBLE_WITHIN_S) -> None:
        """Raise RunError if this machine does not see the file within `within_s` seconds."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                if self.path.read_text(encoding="utf-8") == self.content:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        raise RunError(
            f"--log-root {self.path.parent} is not the same folder on {socket.gethostname()}, where a worker runs: "
            "use a file system that all machines of the cluster share"
        )


class Worker:
    """The actor. Its process takes one call and then ends, which frees all its memory."""

    def resolve(self, config: RunConfig, token: Token) -> RunConfig:
        """`config` with each "auto" resolved on this machine; raises the errors of `main_vsi_bench_loop`."""
        token.require_visible()
        server_of(config)  # refuses a missing API key before the run folder is made
        config = suited(config)
        plan = plan_run(config, questions_of(config), prompts_of(config))
        renderer = make_renderer(config.renderer, cuda_device_of(config.device))
        renderer.close()
        return resolved(config, renderer, plan)

    def answer(self, config: RunConfig, token: Token) -> int:
        """Begin or resume the part that `config` names; returns the status and raises the errors of
        `main_vsi_bench_loop`.

        Waits while a lost worker still holds the lock of the part's folder.
        """
        token.require_visible()
        assert config.shard is not None
        part = Part.parse(config.shard)
        deadline = time.monotonic() + UNLOCKED_WITHIN_S
        while True:
            try:
                return main_vsi_bench_loop(config, find_part(config.log_root, part.number, part.of)).status
            except RunInUse as error:
                if time.monotonic() > deadline:
                    raise
                log.info("Waiting: %s", error)
                time.sleep(POLL_S)


@dataclass(frozen=True)
class Replicas:
    """The number of concurrent workers, and the resources that Ray reserves for each."""

    count: int
    gpus: int
    cpus: int


def answer_on_ray(config: RunConfig, folder: Path | None = None) -> Outcome:
    """Answer every question of a run on a Ray cluster and score it, as `main_vsi_bench_loop` does in one process.

    `folder` is the run to resume, None for a new one. Raises the errors of `main_vsi_bench_loop`, here or on a worker,
    and RunError if a part lost its worker too often.
    """
    if config.plan or config.check_data:
        return main_vsi_bench_loop(config, folder)
    ray = import_ray()
    _, config = with_policy(None, config.checked())
    questions = questions_of(config)
    report_scans(questions, config)
    with ExitStack() as stack:
        run_log = None
        if folder is not None:
            run_log = open_run(folder, questions, config, questions)
            stack.callback(run_log.close)
            if finished := finished_outcome(run_log, questions, config):
                return finished
        parts = None
        try:
            with connected(ray, config), visible_token(config.log_root) as token:
                replicas = replicas_of(ray.nodes(), config)
                if run_log is None:
                    config = resolved_on_worker(ray, config, replicas, token)
                    prompts = prompts_of(config) if config.asks_model else None
                    run_log = begin_folder(config, fingerprint(questions), len(questions), prompts=prompts)
                    stack.callback(run_log.close)
                else:
                    note_resumption(run_log, config)
                stack.enter_context(log_to_file(run_log.folder / "run.log"))
                parts = Parts(run_log, config, questions, replicas.count)
                log.info("Run folder: %s", run_log.folder)
                log.info("RAY: %d parts, %d at a time", parts.of, replicas.count)
                with Progress(len(questions), run_log.rows) as progress:
                    stopped = answer_parts(ray, parts, replicas, token, progress)
        except KeyboardInterrupt:
            if run_log is None:
                raise
            with ignored_interrupts():
                if parts is not None:
                    parts.take_all()
                run_log.export(None)
                return interrupted(run_log, stack)
        if not stopped:
            return report(run_log, config)
        parts.take_all()
        run_log.export(None)
        log.error("Parts stopped by an unexpected error: %s", ", ".join(map(str, stopped)))
        log.info("Finished turns are on disk. To resume:")
        log.info("%s", run_log.resume_command)
        return Outcome(3, run_log.rows)


class Parts:
    """The parts below a run's folder: their settings, folders and progress."""

    def __init__(self, run_log: RunWriter, config: RunConfig, questions: Sequence[Question], replicas: int):
        self._run_log = run_log
        self._root = run_log.folder / "parts"
        self._root.mkdir(exist_ok=True)
        self._config = replace(
            config,
            log_root=self._root,
            ray=False,
            ray_address=None,
            replicas="auto",
            continue_from=config.continue_from if config.retry_failed else None,
        )
        scenes = len({question.scene for question in questions})
        self.of = self._begun_with() or number_of_parts(len(questions), scenes, replicas)
        self._questions = {Part(number, self.of): asked for number, asked in enumerate(cut(questions, self.of), 1)}

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""
        return self._run_log.resume_command

    def is_done(self, question_id: str) -> bool:
        """Whether a question has a result in the run."""
        return self._run_log.is_done(question_id)

    @property
    def pending(self) -> list[Part]:
        """The parts with questions that have no result in the run."""
        return [part for part, asked in self._questions.items() if not all(self.is_done(each.id) for each in asked)]

    def config(self, part: Part) -> RunConfig:
        """The settings for a part."""
        return replace(self._config, shard=str(part))

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
            find_scan(self._config.scan_root, row.dataset, row.scene_name, layouts_of(self._config))
        except ScanNotFound:
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


def answer_parts(ray: Any, parts: Parts, replicas: Replicas, token: Token, progress: Progress) -> list[Part]:
    """Let workers answer all pending parts; returns the parts that an unexpected error stopped.

    Reassigns the part of a lost worker at most MOST_LOSSES times, then raises RunError. Re-raises errors by which a
    worker refuses to run, such as ModelError, since the other workers would refuse, too.
    """
    waiting, losses, stopped = deque(parts.pending), Counter[Part](), list[Part]()
    busy: dict[Any, tuple[Part, Any]] = {}
    watch = Watch(parts, progress)
    while waiting or busy:
        while waiting and len(busy) < replicas.count:
            part, worker = waiting.popleft(), new_worker(ray, replicas)
            busy[worker.answer.remote(parts.config(part), token)] = part, worker
        done, _ = ray.wait(list(busy), timeout=POLL_S)
        watch([part for part, _ in busy.values()])
        for call in done:
            part, worker = busy.pop(call)
            status = status_of(ray, call, part)
            ray.kill(worker)
            if status is None:
                losses[part] += 1
                if losses[part] > MOST_LOSSES:
                    raise RunError(
                        f"part {part} lost its worker {losses[part]} times; to resume: {parts.resume_command}"
                    )
                waiting.append(part)
            elif status > 1:
                log.error("Part %s was stopped by an unexpected error: see run.log in %s", part, parts.folder(part))
                stopped.append(part)
            else:
                parts.take(part)
                log.info("Part %s is finished; parts left: %d", part, len(waiting) + len(busy))
    return stopped


def status_of(ray: Any, call: Any, part: Part) -> int | None:
    """The exit status of a part; None if its worker was lost. Raises the error by which a worker refused to run."""
    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        log.error("The worker of part %s stopped with an error", part)
        raise error.cause from None
    except ray.exceptions.RayError as error:
        log.warning("The worker of part %s was lost; another one will resume it (%s)", part, one_line(error))
        return None


def one_line(error: Exception) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split())


class Watch:
    """Follows the workers through their run folders: updates the progress bar, and compares versions."""

    def __init__(self, parts: Parts, progress: Progress):
        self._parts, self._progress = parts, progress
        self._versions = current_versions()
        self._others: set[tuple[str, str]] = set()
        self._folders: dict[Part, Path] = {}
        self._seen: set[str] = set()

    def __call__(self, busy: Sequence[Part]) -> None:
        """Count the newly finished questions of these parts."""
        for part in busy:
            if part not in self._folders:
                folder = self._parts.folder(part)
                if folder is None:
                    continue
                self._folders[part] = folder
                self._compare_versions(RunReader(folder).facts)
            for row in RunReader(self._folders[part]).rows:
                if row.id not in self._seen and not self._parts.is_done(row.id):
                    self._progress.finished(row)
                self._seen.add(row.id)

    def _compare_versions(self, facts: RunFacts) -> None:
        others = facts.last_host, ", ".join(changed_versions(self._versions, facts.last_versions))
        if others[1] and others not in self._others:
            log.warning("Workers on %s run with %s: the answers come from both versions", *others)
            self._others.add(others)


def resolved_on_worker(ray: Any, config: RunConfig, replicas: Replicas, token: Token) -> RunConfig:
    """`config` as resolved by a worker, since this machine may have no GPU."""
    worker = new_worker(ray, replicas)
    try:
        resolved_config = ray.get(worker.resolve.remote(replace(config, ray=False), token))
        return replace(resolved_config, ray=True)  # so that the run resumes on Ray
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise RunError(f"the first worker was lost before it began ({one_line(error)})") from None
    finally:
        ray.kill(worker)


def new_worker(ray: Any, replicas: Replicas) -> Any:
    """A new actor, which starts when the cluster has free resources."""
    return ray.remote(Worker).options(num_gpus=replicas.gpus, num_cpus=replicas.cpus, max_restarts=0).remote()


def replicas_of(nodes: Sequence[Mapping[str, Any]], config: RunConfig) -> Replicas:
    """By default as many replicas as the cluster's GPUs allow, or one per machine if no GPU is needed or available.

    A replica has one GPU, or --tensor-parallel-size GPUs of one machine. Raises ConfigError if the cluster has too few
    resources.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    cpus = [int(each.get("CPU", 0)) for each in resources]
    gpus = [int(each.get("GPU", 0)) for each in resources]
    wanted = None if config.replicas == "auto" else config.replicas
    needs_gpu = config.engine != "openai" and config.asks_model
    if any(gpus) and config.device != "cpu" and needs_gpu:
        size = config.tensor_parallel_size
        fitting = [each // size for each in gpus]
        count = wanted or sum(fitting)
        if not 0 < count <= sum(fitting):
            needs = "one" if size == 1 else f"{size} on the same machine (--tensor-parallel-size)"
            machines = " + ".join(str(each) for each in gpus if each)
            raise ConfigError(
                f"--replicas {config.replicas}: the cluster has {machines} GPUs, and each replica needs {needs}"
            )
        return Replicas(count, size, max(1, min(c // f for c, f in zip(cpus, fitting, strict=True) if f)))
    count = wanted or sum(each > 0 for each in cpus)
    shares = [share for share in range(1, max(cpus) + 1) if sum(each // share for each in cpus) >= count]
    if not shares:
        raise ConfigError(
            f"--replicas {count}: the cluster has {sum(cpus)} CPU cores, and each replica needs at least one"
        )
    return Replicas(count, 0, max(shares))


def import_ray() -> ModuleType:
    """The package ray; raises ConfigError with the command that installs it."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(f"--ray needs the package ray ({error}): pip install -r requirements-ray.txt") from None
    return ray


@contextmanager
def connected(ray: Any, config: RunConfig) -> Iterator[None]:
    """Connect to the cluster at --ray-address, or start one on this machine, for the duration of this block.

    Workers end with the connection.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        try:
            if config.ray_address is None:
                start_cluster(ray, 1 if config.replicas == "auto" else config.replicas)
            else:
                join_cluster(ray, config.ray_address)
        except SystemExit:  # raised by Ray's handler of SIGTERM until it is replaced below
            raise KeyboardInterrupt from None
        signal.signal(signal.SIGTERM, before)
        yield
    finally:
        with ignored_interrupts():
            ray.shutdown()


def start_cluster(ray: Any, replicas: int) -> None:
    """Start a cluster on this machine with a CPU core for each replica at least."""
    log.info("RAY: starting a cluster on this machine; Ctrl-C takes effect once it has started")
    # Inside ray.init() an interrupt would leave Ray's processes behind, or be lost in a fork.
    with deferred_interrupts():
        ray.init(
            address="local",
            num_cpus=max(os.cpu_count() or 1, replicas),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )


def join_cluster(ray: Any, address: str) -> None:
    """Connect to the cluster at HOST:PORT, or "auto"; raises ConfigError."""
    require_listening(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, ray.exceptions.AuthenticationError) as error:
        raise ConfigError(
            f"--ray-address {address}: cannot join a Ray cluster there ({one_line(error)}); check that Ray and Python "
            "have the cluster's versions, and if it uses token authentication, export RAY_AUTH_MODE=token and copy its "
            "~/.ray/auth_token to this machine"
        ) from None


def require_listening(address: str) -> None:
    """Raise ConfigError unless a server listens at HOST:PORT; Ray would wait many minutes. Does not check "auto"."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_WITHIN_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--ray-address {address}: no Ray cluster can be reached there ({error}): start one with ray start --head, "
            "and give its HOST:PORT"
        ) from None


@contextmanager
def visible_token(log_root: Path) -> Iterator[Token]:
    """A file below `log_root` that exists inside this block; raises RunError if it cannot be written."""
    content = uuid.uuid4().hex
    token = Token(log_root / f".visible_{content}", content)
    try:
        log_root.mkdir(parents=True, exist_ok=True)
        token.path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise RunError(f"--log-root {log_root}: cannot write there ({error.strerror})") from None
    try:
        yield token
    finally:
        token.path.unlink(missing_ok=True)
