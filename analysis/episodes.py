"""One answer to one question as a run folder recorded it, found by number, folder or id."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from roomscout.data.questions import Question, QuestionError
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, ResultRow, Turn

SHOWN_IDS = 3


@dataclass(frozen=True, eq=False)
class Episode:
    """The finished turns of an answer, in order. `row` is its result, None while it is unfinished.

    `messages` is the conversation as sent (see `RunReader.messages`), empty without a model.
    """

    id: EpisodeId
    question: Question
    row: ResultRow | None
    turns: tuple[Turn, ...]
    messages: tuple[dict[str, str], ...]


def open_run(folder: Path) -> RunReader:
    """The reader of a run folder; raises RunError if it is not one, or is of a version that cannot be read."""
    reader = RunReader(folder.expanduser().absolute())
    _ = reader.facts
    return reader


def questions_of(reader: RunReader) -> list[Question]:
    """All questions of a run by number; raises RunError if they cannot be read."""
    try:
        return reader.questions
    except QuestionError as error:
        raise RunError(
            f"{reader.folder} has no questions.jsonl, since an earlier version began it: restore the file that it read "
            f"its questions from ({error})"
        ) from None


def finished_episodes(reader: RunReader) -> Iterator[Episode]:
    """The episodes with a result, in their order; raises RunError."""
    questions = {question.id: question for question in questions_of(reader)}
    for row in reader.rows:
        if row.id not in questions:
            raise RunError(
                f"{reader.folder / 'results.jsonl'} has question {row.id}, which the run's questions lack: restore them"
            )
        yield _episode(reader, row.episode, questions[row.id], row)


def find_episode(reader: RunReader, name: str) -> Episode:
    """The episode of a question's number (12), folder (q012, q012_s2) or id, in this order of precedence.

    Raises RunError if there is none or it has no finished turn.
    """
    questions = questions_of(reader)
    id = _number(name, questions) or _number_of_id(name, questions)
    samples = reader.facts.samples
    if not 1 <= id.number <= len(questions) or not 1 <= id.sample <= samples:
        of_samples = f", and q001_s2 to q001_s{samples} for further answers" if samples > 1 else ""
        raise RunError(f"{reader.folder} has no {id}: its questions are 1 to {len(questions)}{of_samples}")
    row = next((row for row in reader.rows if row.episode == id), None)
    found = _episode(reader, id, questions[id.number - 1], row)
    if not found.turns:
        if row is not None:
            raise RunError(f"{id} has no turns to show: it failed ({row.error})")
        begun = ", ".join(map(str, reader.begun[:SHOWN_IDS])) or "none"
        raise RunError(f"{id} has not begun: resume {reader.folder}, or choose one that has (the first: {begun})")
    return found


def _episode(reader: RunReader, id: EpisodeId, question: Question, row: ResultRow | None) -> Episode:
    return Episode(id, question, row, tuple(reader.turns(id)), tuple(reader.messages(id)))


def _number(name: str, questions: list[Question]) -> EpisodeId | None:
    """The episode of a number or a folder; None for another name, and for a number beyond the last that is an id."""
    if (episode := EpisodeId.parse(name)) is not None:
        return episode
    if not (name.isascii() and name.isdigit()):
        return None
    beyond = not 1 <= int(name) <= len(questions)
    return None if beyond and any(question.id == name for question in questions) else EpisodeId(int(name))


def _number_of_id(name: str, questions: list[Question]) -> EpisodeId:
    ids = [question.id for question in questions]
    if name in ids:
        return EpisodeId(ids.index(name) + 1)
    near = get_close_matches(name, ids, n=SHOWN_IDS)
    raise RunError(
        f"no question {name}: give a number from 1 to {len(ids)}, a folder such as q001, or an id such as "
        + " or ".join(near or ids[:SHOWN_IDS])
    )


def require_outside(run: Path, out: Path) -> None:
    """Raise RunError if a file to be written is in the run folder, which nothing here may change."""
    if out.absolute().resolve().is_relative_to(run.resolve()):
        raise RunError(f"--out {out} is in the run folder, which stays as it is: choose a file outside it")
