"""What answers to twins owe to looking, and what can be prior: python -m scripts.twins_prior RUN.

Of each task the mean of single answers, the score of pairs and the difference, with its 95 % interval over rooms.
"""

import sys
from dataclasses import replace
from pathlib import Path

from roomscout.base.tables import Table, interval_in_words
from roomscout.runs.reader import RunReader
from roomscout.scoring.intervals import differences
from roomscout.scoring.pairs import in_pairs


def prior_table(run: Path) -> Table:
    """The table of a finished run about a benchmark with pairs."""
    reader = RunReader(run)
    pairs = in_pairs(reader.rows, reader.benchmark)
    counted = {row.episode for row in pairs}
    single = [row for row in reader.rows if row.episode in counted]
    rows = [
        [each.name, f"{each.second:.1f}", f"{each.first:.1f}", f"{each.percent:.1f}", interval_in_words(each.interval)]
        for each in differences(pairs, single, replace(reader.benchmark, pairs=""))  # which have their scores
    ]
    return Table(["percent", "single answers", "pairs", "prior", "95 % interval"], rows)


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in prior_table(Path(sys.argv[1])).lines()))
