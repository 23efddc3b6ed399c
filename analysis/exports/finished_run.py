"""What the exports of a run are made of: its finished episodes, and their conversations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout.analysis.episodes import Episode, finished_episodes
from roomscout.data.benchmarks import DEFAULT, Benchmark, find_benchmark
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.records import RunFacts


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The finished episodes of a run, each with its result; `pending` answers are not finished.

    `seconds` is the wall time of all processes that worked on it, 0 before its first export.
    """

    folder: Path
    facts: RunFacts
    benchmark: Benchmark
    episodes: Sequence[Episode]
    pending: int
    seconds: float

    @classmethod
    def read(cls, reader: RunReader) -> "FinishedRun":
        """Read a run; raises RunError, also if nothing is finished."""
        facts, episodes = reader.facts, list(finished_episodes(reader))
        if not episodes:
            raise RunError(f"{reader.folder} has no finished question to export: resume it")
        seconds = sum(session["seconds"] for session in (reader.summary or {}).get("sessions", ()))
        return cls(reader.folder, facts, reader.benchmark, episodes, facts.episodes - len(episodes), seconds)

    @property
    def model(self) -> str:
        """The name of the model or the policy."""
        return str(self.facts.setting("policy") or self.facts.setting("model"))


@dataclass(frozen=True)
class Utterance:
    """A message of a conversation: `role` is "system", "user" or "assistant"; `view` is the file of its image."""

    role: str
    text: str
    view: Path | None = None


def conversation(run: FinishedRun, episode: Episode) -> list[Utterance]:
    """The conversation as sent and replied; empty for a policy without a model."""
    folder = run.folder / str(episode.id)
    return [
        Utterance(message["role"], message["text"], folder / message["image"] if "image" in message else None)
        for message in episode.messages
    ]


def vsi_bench_episodes(run: FinishedRun) -> tuple[list[Episode], list[Episode]]:
    """The scored episodes of VSI-Bench's question types, and all others, which its tasks elsewhere do not know."""
    types = find_benchmark(DEFAULT).by_name
    known, others = [], []
    for episode in run.episodes:
        fits = episode.question.question_type in types and episode.question.ground_truth is not None
        (known if fits else others).append(episode)
    if not known:
        raise RunError(f"{run.folder} has no finished question of a type of VSI-Bench with a ground truth")
    return known, others


def plain_id(id: str) -> int | str:
    """VSI-Bench's own ids are numbers."""
    return int(id) if id.isascii() and id.isdigit() else id


def facts_of_turns(episode: Episode) -> list[dict[str, Any]]:
    """Where the camera was in each turn, and what it did, as JSON values."""
    return [
        {key: turn.to_json()[key] for key in ("turn", "pose", "action", "clamped", "parse_error", "move")}
        for turn in episode.turns
    ]
