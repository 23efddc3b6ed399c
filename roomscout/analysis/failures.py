"""roomscout failures RUN: which wrong answers never saw an object that their question needs, and which did."""

import logging
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from roomscout.analysis.seeing import Seen, knows_boxes, save, see
from roomscout.analysis.verbs import add_choices, chosen_rows, chosen_run, print_lines
from roomscout.base.tables import Table, decimal
from roomscout.base.text import RESULT, counted, escaped, log_to_stream, replace_unencodable
from roomscout.base.verbs import Parser
from roomscout.data.benchmark import Benchmark, BenchmarkError
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, ResultRow
from roomscout.runs.sights import SIGHTS, Sight, SightSplit, sight_table, split
from roomscout.scoring.pairs import below_full, counted_once

log = logging.getLogger(__name__)

HEADINGS = {name: name.replace("_", " ") for name in SIGHTS}
MANY_ANSWERS = 200


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0. Raises RunError."""
    parser = Parser(prog="roomscout failures")
    add_choices(parser)
    parser.add_argument("--no-save", action="store_true", help="change nothing in the run folder")
    options = parser.parse_intermixed_args(arguments)
    replace_unencodable(sys.stdout)
    log_to_stream(sys.stderr)
    reader = RunReader(chosen_run(options))
    seen = see(reader)
    lines = failure_lines(reader.rows, seen, reader.benchmark, options.types, options.scenes)
    if seen.computed and not options.no_save:
        try:
            save(reader.folder, seen)
        except (RunError, BenchmarkError) as error:  # as while the run is in progress
            log.warning("Not saved in the run folder: %s", error)
    print_lines(lines)
    return 0


def log_split(folder: Path) -> None:
    """Save what was in view in the answers of a finished run, and log how it splits the errors; raises RunError."""
    reader = RunReader(folder)
    if reader.facts.is_blind or not knows_boxes(reader):
        return
    rows = reader.rows
    if len(rows) > MANY_ANSWERS:
        log.info("Working out what was in view in %d answers; Ctrl-C skips it", len(rows))
    seen = see(reader)
    if seen.computed:
        save(folder, seen)
    for sentence in seen.missing:
        log.warning("What was in view is not known: %s", sentence)
    by_sight = split(counted_once(rows, reader.benchmark), seen.sights)
    if by_sight is not None and by_sight.types:
        log.log(RESULT, "%s; to list them: roomscout failures %s", error_line(by_sight), shlex.quote(str(folder)))


def failure_lines(
    rows: Sequence[ResultRow],
    seen: Seen,
    benchmark: Benchmark,
    types: Sequence[str] = (),
    scenes: Sequence[str] = (),
) -> list[str]:
    """The table and the answers below full score as lines, those that never saw an object first. A pair counts once,
    with its worse answer. Empty `types` and `scenes` mean all. Raises RunError if a type or a scene is not in the
    run."""
    chosen = chosen_rows(rows, types, scenes)
    by_sight = split(counted_once(chosen, benchmark), seen.sights)
    missing = [f"Not known: {escaped(sentence)}" for sentence in seen.missing]
    if by_sight is None:
        return [*missing, "It is not known what was in view in these answers."]
    surface = f"Surface seen: {by_sight.surface_percent:.1f} % of the scan in the views of an answer, on average"
    if not by_sight.types:
        return [*missing, surface, "No boxes of the objects are known: see docs/data.md."]
    lines = [*sight_lines(by_sight), "", error_line(by_sight), surface]
    return [*missing, *lines, *_listed(below_full(chosen, benchmark)[0], seen.sights)]


def sight_lines(by_sight: SightSplit) -> list[str]:
    """The split as a table, and what its columns mean."""
    verdicts = [name for name in SIGHTS if name in by_sight.types["all"]]
    explained = "; ".join(f"{HEADINGS[name]}: {SIGHTS[name]}" for name in verdicts)
    pixels = f"; a few are less than {by_sight.enough_pixels}" if "saw_little" in verdicts else ""
    note = f"{explained}{pixels}. below: answers that score less than 1, then the mean of all"
    return [*sight_table(by_sight).lines(), "", note]


def error_line(by_sight: SightSplit) -> str:
    """How many of the answers below full score never saw an object, saw little of one, or saw all, as a sentence."""
    groups = by_sight.types["all"]
    enough = by_sight.enough_pixels
    below = {name: groups[name].below_full for name in SIGHTS if name in groups and groups[name].below_full}
    words = {
        "never_saw": "never saw a needed object",
        "saw_little": f"saw a needed object at fewer than {enough} pixels",
        "saw": "saw all needed objects",
        "no_object": "needed none",
    }
    if not below:
        return "No answer is below full score"
    groups_in_words = ", ".join(f"{number} {words[name]}" for name, number in below.items())
    return f"Of {counted(sum(below.values()), 'answer')} below full score: {groups_in_words}"


def _listed(below: Iterable[Sequence[ResultRow]], sights: Mapping[EpisodeId, Sight]) -> list[str]:
    """The answers by what was in view, each with what its twin scores."""
    seen = [(row, twins, sights[row.episode]) for row, *twins in below if row.episode in sights]
    listed = [(row, twins, sight, sight.verdict) for row, twins, sight in seen if sight.verdict]
    if not listed:
        return []
    order = list(SIGHTS)
    listed.sort(key=lambda answer: order.index(answer[3]))
    rows = [
        {
            "folder": str(row.episode),
            "score": decimal(row.score, "g"),
            "sight": HEADINGS[verdict],
            "since turn": decimal(sight.first_turn, "d"),
            "surface": "-" if sight.surface_seen is None else f"{100 * sight.surface_seen:.0f} %",
            "type": row.question_type,
        }
        for row, _, sight, verdict in listed
    ]
    details = (
        [row.question, sight.in_words, *(f"twin {twin.episode}: score {twin.score:g}" for twin in twins)]
        for row, twins, sight, _ in listed
    )
    return ["", *Table.of(rows, left=range(6)).lines_with(details)]
