"""Memory of a run over many scans, which must stop growing once the scene cache is full.

python -m roomscout.speed.memory --scans 50 --cache-gib 0.2
"""

import argparse
import tempfile
import threading
from pathlib import Path

import psutil

from roomscout.agent.config import RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.rooms import write_rooms
from roomscout.runs.reader import RunReader, run_folders

SAMPLE_EVERY_S = 0.1


def main() -> None:
    """Generate rooms, run a scripted policy on all of them, and print memory by number of finished scans."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scans", type=int, default=50)
    parser.add_argument("--cache-gib", type=float, default=0.2, help="--scene-cache-gib of the run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_rooms(root, options.scans, seed=0, per_type={"object_counting": 1, "object_abs_distance": 1})
        config = RunConfig.of(
            batch=True,
            questions=root / "questions.jsonl",
            scan_root=root,
            log_root=root / "logs",
            model="scripted:random",
            renderer="raycast",
            batch_size=4,
            scene_cache_gib=options.cache_gib,
        )
        samples = run_and_sample(config)
    print(f"{'scans finished':>14}  {'resident MiB':>12}")
    for scans in sorted(samples):
        if scans % max(1, options.scans // 10) == 0:
            print(f"{scans:>14}  {samples[scans] / 2**20:>12.0f}")


def run_and_sample(config: RunConfig) -> dict[int, int]:
    """Run and return the peak resident memory in bytes by number of finished scans."""
    samples: dict[int, int] = {}
    ended = threading.Event()

    def sample() -> None:
        process = psutil.Process()
        last = False
        while not last:
            last = ended.wait(SAMPLE_EVERY_S)  # samples once more after the run has ended
            scans = scans_finished(config.output.log_root)
            samples[scans] = max(samples.get(scans, 0), process.memory_info().rss)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        main_vsi_bench_loop(config)
    finally:
        ended.set()
        sampler.join()
    return samples


def scans_finished(log_root: Path) -> int:
    """The number of scans with at least one result on disk."""
    return len({row.scene_name for folder in run_folders(log_root) for row in RunReader(folder).rows})


if __name__ == "__main__":
    main()
