"""Repeats the camera moves of an earlier run (`--moves-of`)."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from roomscout.agent.policies.movers import Move, Mover, environment
from roomscout.agent.state import QuestionState
from roomscout.base.errors import ConfigError
from roomscout.base.wording import flag
from roomscout.data.questions import Question
from roomscout.rendering.scene import SceneError
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, ResultRow, Turn

log = logging.getLogger(__name__)


class RecordedMoves(Mover):
    """Takes each question along the poses that it had in the run of a folder, as recorded there.

    A question that answered early has fewer moves. Sample k of a question repeats sample k, or the last one that the
    run has.
    """

    def __init__(self, folder: Path, numbers: Mapping[str, int], rows: Iterable[ResultRow], samples: int) -> None:
        self._folder, self._numbers, self._samples = folder, numbers, samples
        self._rows = {row.episode: row for row in rows}
        self._turns: dict[tuple[str, int], list[Turn]] = {}

    @classmethod
    def of(
        cls, folder: Path, views: Mapping[str, Any], questions: Sequence[Question], samples: int, steps: int
    ) -> Self:
        """The moves of the run in `folder` for `questions`, as many times as `samples`, at most `steps` of each.

        `views` are the settings of the new run that decide its views, as JSON values. Raises RunError if the
        folder cannot be read.

        Raises ConfigError if it is not a run, has drawn other views or has not finished one of the questions.
        """
        if not (folder / "run.json").is_file():
            raise ConfigError(f"--moves-of {folder}: this is not a run folder, it has no run.json")
        reader = RunReader(folder)
        facts = reader.facts
        if other := {name: facts.setting(name) for name, value in views.items() if value != facts.setting(name)}:
            texts = {name: " ".join(map(str, each)) if isinstance(each, list) else each for name, each in other.items()}
            theirs = " ".join(flag(name, each) for name, each in texts.items())
            raise ConfigError(f"--moves-of {folder} has drawn its views with other settings: add {theirs}")
        known = {question.id: number for number, question in enumerate(reader.questions, start=1)}
        moves = cls(folder, known, reader.rows, facts.samples)
        moves._require(questions, {question.id: question for question in reader.questions}, samples, steps)
        return moves

    def _require(
        self, questions: Sequence[Question], recorded: Mapping[str, Question], samples: int, steps: int
    ) -> None:
        """Raise ConfigError unless the run has finished all of these questions; log how many moves it made too many."""
        for question in questions:
            there = recorded.get(question.id)
            if there is None or (there.scene, there.question) != (question.scene, question.question):
                raise ConfigError(f"--moves-of {self._folder} has not asked question {question.id}: ask its questions")
            rows = [self._rows.get(self._episode(question, sample)) for sample in range(1, samples + 1)]
            if not all(row and not row.failed for row in rows):
                raise ConfigError(
                    f"--moves-of {self._folder} has not answered question {question.id}: resume it with "
                    f"--continue {self._folder} --retry-failed, or leave the question out"
                )
        most = max((self._made(self._episode(each, 1)) for each in questions), default=0)
        if most > steps:
            repeats = f"--steps {steps}"
            log.info("%s repeats only the first %d of up to %d moves of %s", repeats, steps, most, self._folder)

    def _episode(self, question: Question, sample: int) -> EpisodeId:
        return EpisodeId(self._numbers[question.id], min(sample, self._samples))

    def _made(self, episode: EpisodeId) -> int:
        return self._rows[episode].turns - 1

    def moves(self, question: Question, sample: int, most: int) -> int:
        """The number of moves that the episode made, at most `most`."""
        return min(most, self._made(self._episode(question, sample)))

    def begin(self, state: QuestionState) -> None:
        """Read the question's turns; raises SceneError if it was asked in another scan or began at another pose."""
        turns = RunReader(self._folder).turns(self._episode(state.question, state.sample))
        scan, file = turns[0].scan, environment(state).library.scan_file(state.question)
        other_scan = scan is not None and file is not None and scan.sha256 != file.sha256
        if other_scan or turns[0].pose != state.observations[0].pose:
            raise SceneError(
                f"--moves-of {self._folder} has seen {state.question.scene_name} in another scan than "
                f"{file.path if file else 'this one'}: use the scan {scan.file if scan else 'of that run'}"
            )
        self._turns[state.question.id, state.sample] = turns

    def next_move(self, state: QuestionState) -> Move:
        """The recorded move of this turn, to the recorded pose."""
        turn = self._turns[state.question.id, state.sample][state.turn]
        return Move(turn.action.unanswered, turn.move)

    def forget(self, state: QuestionState) -> None:
        """Release the question's turns."""
        self._turns.pop((state.question.id, state.sample), None)
