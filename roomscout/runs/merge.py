"""Merges parts into one run: checks that they belong together, and recomputes all scores."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from roomscout.data.answers import AnswerKind
from roomscout.runs import RunError
from roomscout.runs.conditions import hash_of
from roomscout.runs.provenance import changed_versions
from roomscout.runs.reader import MARKS_FILE, RunReader
from roomscout.runs.records import VERSIONS, EpisodeId, MergedPart, PartRecord, ResultRow, RunFacts
from roomscout.runs.summary import Summary
from roomscout.runs.writer import RunWriter
from roomscout.scoring.baselines import Guesses
from roomscout.scoring.scores import Mark

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundPart:
    """The run folder of a part."""

    reader: RunReader  # of its folder
    facts: RunFacts  # its run.json
    part: PartRecord  # which part it is
    rows: dict[EpisodeId, ResultRow]  # the results so far, as recorded
    begun: frozenset[EpisodeId]  # all episodes with a turn or a result

    @classmethod
    def read(cls, folder: Path) -> "FoundPart":
        """Read the part in a run folder; raises RunError if it is not a part."""
        reader = RunReader(folder)
        facts = reader.facts
        if facts.part is None:
            raise RunError(f"{folder} is not a part: it was begun as a whole run")
        rows = {row.episode: row for row in reader.recorded_rows}
        return cls(reader, facts, facts.part, rows, frozenset(rows) | frozenset(reader.begun))

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.reader.folder

    @property
    def unfinished(self) -> int:
        """Answers without a result."""
        return self.facts.episodes - len(self.rows)


def merge(out: Path, folders: Sequence[Path], partial: bool = False) -> Summary:
    """Merge parts into the new run folder `out`, atomically, and return its summary. `partial` allows missing parts and
    unfinished questions, labelled so, to be resumed. Raises RunError for parts of several runs, or if `out` exists."""
    parts = [FoundPart.read(folder) for folder in folders]
    require_one_whole(parts)
    for place, part in enumerate(parts):
        for other in parts[:place]:
            if other.part.number == part.part.number:
                raise RunError(f"{other.folder} and {part.folder} are both {part.part}: leave one out")
    if lacking := what_is_missing(parts):
        if not partial:
            raise RunError(f"{lacking}: finish and name all parts, or merge what is finished with --partial")
        log.warning("Merging an unfinished run: %s", lacking)
    if out.exists():
        raise RunError(f"{out} exists: choose a name for a new folder")
    for part in parts:
        if out.resolve().is_relative_to(part.folder.resolve()):
            raise RunError(f"{out} is inside the part {part.folder}: choose a folder outside the parts")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as draft:
            summary = write_merged(Path(draft) / out.name, parts)
            (Path(draft) / out.name).rename(out)
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror or error})") from None
    return summary


def write_merged(folder: Path, parts: Sequence[FoundPart]) -> Summary:
    """Write the merged run to a new folder; returns its summary."""
    folder.mkdir()
    with closing(RunWriter(folder, "the same command")) as run:
        questions = parts[0].reader.questions  # line n is question n, in every part
        kinds = {question.id: question.kind for question in questions}
        run.begin(merged_facts(parts), questions, merged_guesses(parts))
        if marks := merged_marks(parts):
            run.save(MARKS_FILE, marks)
        linked = []
        for part in parts:
            linked.append(take_part(run, part, kinds))
            run.add_sessions(part.reader.sessions)
            for samples in part.reader.gpu_samples:
                run.sample(samples.to_json())
        images = "hard links to those of the parts" if all(linked) else "copies, on another file system"
        log.info("Images: %s", images)
        return run.export(None)


def merged_guesses(parts: Sequence[FoundPart]) -> Guesses | None:
    """The guesses of all parts together; None if a part has none."""
    guesses = [of_part for part in parts if (of_part := part.reader.guesses) is not None]
    if len(guesses) < len(parts):
        return None
    sources = dict.fromkeys(of_part.source for of_part in guesses)
    answers = {id: answer for of_part in guesses for id, answer in of_part.answers.items()}
    return Guesses(" and ".join(sources), answers, guesses[0].what)


def merged_marks(parts: Sequence[FoundPart]) -> list[Mark]:
    """The marks of all parts; none, with a warning, if different judges gave them."""
    marks = [of_part for part in parts if (of_part := part.reader.marks) is not None]
    if len({(of_part.judge, of_part.prompts_sha256) for of_part in marks}) > 1:
        log.warning("The parts are marked by different judges: judge the merged run, with roomscout rescore")
        return []
    return [line for of_part in marks for line in of_part.lines]


def take_part(run: RunWriter, part: FoundPart, kinds: Mapping[str, AnswerKind]) -> bool:
    """Copy a part's episodes that are pending in `run`, results last; returns whether all images are hard links."""
    done = {episode for episode, row in part.rows.items() if run.is_done(row.id, row.sample)}
    pending = part.begun - done
    linked = [run.adopt(episode, part.folder) for episode in sorted(pending)]
    run.results([rescored(part.rows[episode], kinds, part.folder) for episode in sorted(pending & part.rows.keys())])
    return all(linked)


def rescored(row: ResultRow, kinds: Mapping[str, AnswerKind], folder: Path) -> ResultRow:
    """The row with its scores recomputed from its answer; logs a change."""
    kind = kinds.get(row.id)
    if kind is None or row.ground_truth is None or kind.needs_judge:
        return row
    score = kind.score(row.answer, row.ground_truth)
    if score != row.score:
        log.warning("%s: %s scores %s, not %s as saved", folder, row.episode, score, row.score)
    return replace(row, score=score, scores=kind.more_scores(row.answer, row.ground_truth))


def merged_facts(parts: Sequence[FoundPart]) -> RunFacts:
    """The merged run.json: that of the part begun first, with the origin of each; warns of unlike versions."""
    first = min(parts, key=lambda part: part.facts.started)
    price = first.facts.price
    if any(part.facts.price != price for part in parts):
        log.warning("The parts have different prices: price the merged run, with roomscout rescore")
        price = None
    for part in parts:
        if others := changed_versions(first.facts.last_versions, part.facts.last_versions):
            differing = f"{part.folder} was answered, unlike {first.folder}, with {', '.join(others)}"
            log.warning("%s: the merged answers come from both versions", differing)
    return replace(
        first.facts,
        config=first.facts.config | {"shard": None},
        questions=first.part.questions,
        questions_sha256=first.part.questions_sha256,
        resumed=(),
        price=price,
        part=None,
        merged=tuple(
            MergedPart(
                part=part.part.number,
                of=part.part.of,
                folder=part.folder.name,
                started=part.facts.started,
                host=part.facts.host,
                **{name: getattr(part.facts.last_versions, name) for name in VERSIONS},
            )
            for part in sorted(parts, key=lambda part: part.part.number)
        ),
    )


def require_one_whole(parts: Sequence[FoundPart]) -> None:
    """Raise RunError naming the first difference if parts differ in division, questions, settings or conditions."""
    first = parts[0]
    for other in parts[1:]:
        names = dict.fromkeys((*first.part.settings, *other.part.settings))
        for what, one, another in (
            ("number of parts", first.part.of, other.part.of),
            ("whole question list", first.part.questions_sha256, other.part.questions_sha256),
            *((f"setting {name}", first.facts.setting(name), other.facts.setting(name)) for name in names),
            ("conditions", hash_of(first.facts.conditions), hash_of(other.facts.conditions)),
            ("scoring", hash_of(first.facts.scoring), hash_of(other.facts.scoring)),
        ):
            if one != another:
                raise RunError(
                    f"{first.folder} and {other.folder} differ in their {what} ({one} and {another}), so they are "
                    "not parts of one run"
                )


def what_is_missing(parts: Sequence[FoundPart]) -> str:
    """The missing parts and unfinished questions in words; empty if there are none."""
    of = parts[0].part.of
    absent = [str(number) for number in sorted(set(range(1, of + 1)) - {part.part.number for part in parts})]
    words = [f"part{'s' * (len(absent) > 1)} {', '.join(absent)} of {of} missing"] if absent else []
    words += [
        f"{part.folder} ({part.part}) has {part.unfinished} unfinished questions" for part in parts if part.unfinished
    ]
    return "; ".join(words)
