"""Measures whether a long run stays as it began: memory, open files and time per question; then resuming and merging.

    python -m roomscout.speed.soak [--questions 20000] [--json FILE]

The loop of real runs with its run folder, five turns a question, tiny views of one procedural room, and replies without
a model. The last tenth is left for a second start, which resumes the run and writes its report. The finished run is
then divided into 64 parts, whose files are hard links, and merged again.
"""

import argparse
import json
import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from roomscout.agent.config import RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.run_folder import part_record
from roomscout.agent.state import QuestionState
from roomscout.analysis.report.writer import write_report
from roomscout.base.extras import importing
from roomscout.base.files import new_file
from roomscout.data.parts import cut
from roomscout.data.questions import fingerprint, load_questions, saved
from roomscout.rooms import QUESTIONS_FILE, write_rooms
from roomscout.runs.merge import merge
from roomscout.runs.reader import RunReader
from roomscout.runs.writer import RunWriter
from roomscout.speed.report import TURNS, WordyBackend

with importing("psutil", "this measurement", SystemExit):
    import psutil

SAMPLES, SCENES, PARTS = 10, 288, 64


class Samples:
    """What this process holds each time a tenth more of the questions have begun, and what other steps take."""

    def __init__(self, questions: int):
        self.rows: list[dict[str, float]] = []
        self.steps: dict[str, dict[str, float]] = {}
        self._every, self._begun, self._process = questions // SAMPLES, 0, psutil.Process()
        self.since = now()

    def __call__(self, state: QuestionState, view: Path) -> None:
        """Count a question that takes its first turn; interrupts the run before its last tenth."""
        if len(self.rows) == SAMPLES - 1 and not self.steps:
            self._note("resume")
        self._begun += state.turn == 0
        if state.turn or self._begun % self._every or len(self.rows) == SAMPLES:
            return
        rss, files = self._process.memory_info().rss / 2**20, self._process.num_fds()
        took = {name: 1e3 * seconds / self._every for name, seconds in self._taken().items()}
        self.rows.append({"questions": self._begun, "rss_mib": rss, "open_files": files, **took})
        print(f"{self._begun:9} {rss:8.1f} {files:11} {took['wall']:16.2f} {took['cpu']:10.2f}", flush=True)
        if len(self.rows) == SAMPLES - 1:
            raise KeyboardInterrupt

    def step(self, what: str, step: Callable[[], object]) -> None:
        """Take a step."""
        self.since = now()
        step()
        self._note(what)

    def _note(self, what: str) -> None:
        self.steps[what] = self._taken()
        print(f"{what}: {self.steps[what]['wall']:.1f} s, of CPU {self.steps[what]['cpu']:.1f} s", flush=True)

    def _taken(self) -> dict[str, float]:
        """Seconds since the last call."""
        before, self.since = self.since, now()
        return {name: self.since[name] - before[name] for name in before}


def now() -> dict[str, float]:
    """Seconds of this process."""
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def soak(folder: Path, count: int) -> Samples:
    """Answer so many questions below a folder, with one interruption, and merge them again from parts."""
    write_rooms(folder, rooms=1, seed=0)
    some = load_questions(folder / QUESTIONS_FILE)
    scan = str(next(folder.glob("scannet/scans/*/*.ply")))
    questions = [
        replace(some[n % len(some)], id=str(n), scene_name=f"scene{n * SCENES // count:04d}_00", scan=scan)
        for n in range(count)
    ]
    (folder / "all.jsonl").write_text(saved(questions), encoding="utf-8")
    config = RunConfig.of(
        batch=True, questions=folder / "all.jsonl", scan_root=folder, log_root=folder / "runs", renderer="raycast",
        image_size=(32, 24), focal=15.0, batch_size=64, steps=TURNS - 1,
    )  # fmt: skip
    samples, policy = Samples(count), ModelPolicy(WordyBackend())
    run = main_vsi_bench_loop(config, policy=policy, show_progress=False, show_view=samples).folder
    assert run is not None
    samples.since = now()
    main_vsi_bench_loop(config, run, policy, show_progress=False, show_view=samples)
    with closing(RunWriter(run)) as writer:
        samples.step("export", lambda: writer.export(None))
    samples.step("report", lambda: write_report(run))
    parts = in_parts(run, folder / "parts", min(PARTS, count))
    samples.step("merge", lambda: merge(folder / "merged", parts))
    assert len(RunReader(run).rows) == count and RunReader(folder / "merged").rows == RunReader(run).rows
    return samples


def in_parts(run: Path, folder: Path, of: int) -> list[Path]:
    """A finished run divided into parts; their files are hard links."""
    reader, parts = RunReader(run), []
    facts, whole, rows = reader.facts, reader.questions, {row.id: row for row in reader.rows}
    for number, asked in enumerate(cut(whole, of), 1):
        part, shard = folder / f"soak_shard{number}of{of}", f"{number}/{of}"
        part.mkdir(parents=True)
        own = replace(facts, questions=len(asked), questions_sha256=fingerprint(asked), part=part_record(shard, whole))
        with closing(RunWriter(part)) as writer:
            writer.save_questions(whole)
            writer.describe(replace(own, config=facts.config | {"shard": shard}))
            writer.results([rows[question.id] for question in asked])
        for row in (rows[question.id] for question in asked):
            (part / row.folder).mkdir()
            for file in (run / row.folder).iterdir():
                (part / row.folder / file.name).hardlink_to(file)
        parts.append(part)
    return parts


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=20_000, help="%(default)s")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="also write the figures into this file")
    options = parser.parse_args()
    logging.getLogger("roomscout").setLevel(logging.ERROR)
    print("questions  RSS, MiB  open files  ms per question  of CPU, ms")
    with TemporaryDirectory() as folder:
        samples = soak(Path(folder), options.questions)
    if options.json:
        options.json.write_text(json.dumps({"rows": samples.rows, "steps": samples.steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
