"""The verb `roomscout cite`: a paragraph on the methods of a run, and BibTeX of what it used."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence

from roomscout.analysis.run_argument import add_run, chosen_run
from roomscout.analysis.tables import counted, interval_in_words
from roomscout.base.files import bibtex_beside
from roomscout.base.text import escaped, replace_unencodable
from roomscout.base.verbs import parser_of, refusing
from roomscout.data.benchmarks import Benchmark, true_dataset
from roomscout.data.questions import Question, QuestionError
from roomscout.runs import RunError
from roomscout.runs.hashes import hashes_of, known_by
from roomscout.runs.prices import name_of_model
from roomscout.runs.reader import RunReader
from roomscout.runs.records import ResultRow, RunFacts
from roomscout.scoring.summary import failed_in_words, overall_in_words

OWN = """@software{{roomscout,
  title = {{{{RoomScout}}}},
  author = {{{{RoomScout contributors}}}},
  version = {{{version}}},
  year = {{{year}}},
  license = {{Apache-2.0}}
}}
"""
"""As in CITATION.cff, with the version of the run."""
BENCHMARKS = "roomscout.data.benchmarks"
"""The package with the BibTeX of benchmarks, and of the datasets of scans."""

FindCitation = Callable[[str, str], str]
"""The BibTeX of a model and its engine; empty if none is known."""


@refusing(RunError)
def main(arguments: Sequence[str], model_citation: FindCitation) -> int:
    """Run the verb with what finds the citation of a model; returns 0, or 2 after an error."""
    parser = parser_of(
        "cite", "Print a paragraph on the methods of a run for a paper, and BibTeX of what it used, to be checked."
    )
    add_run(parser)
    reader = RunReader(chosen_run(parser.parse_intermixed_args(arguments)))
    replace_unencodable(sys.stdout)
    sys.stdout.write(f"{escaped(methods(reader))}\n\n{bibliography(reader, model_citation)}")
    return 0


def methods(reader: RunReader) -> str:
    """What was run, how it was scored and with which result, in sentences; raises RunError."""
    facts, benchmark = reader.facts, reader.benchmark
    scenes = Counter(
        true_dataset(*scene) or "generated" for scene in {(row.dataset, row.scene_name) for row in reader.rows}
    )
    datasets = ", ".join(f"{name} {number}" for name, number in sorted(scenes.items()))
    times = f", each answered {facts.samples} times" if facts.samples > 1 else ""
    scans = (scan.sha256 for episode in reader.begun if (scan := reader.scan(episode)) is not None)
    known = known_by(hashes_of(facts, scans))
    part = f" It is {facts.part} of a run, and no result of the benchmark." if facts.part else ""
    return (
        f"{_answering(facts)} answered {counted(facts.questions, 'question')} of {benchmark.title}{times}; those "
        f"finished are about {counted(scenes.total(), 'scene')} ({datasets or 'none yet'}).{part} "
        f"Conditions: {facts.protocol}. {_conditions(facts)}{_scoring(reader, benchmark)}The run is "
        f"identified by: {known}; the questions have the SHA-256 {facts.questions_sha256[:12]}."
    )


def _answering(facts: RunFacts) -> str:
    """Who answered, with which code."""
    setting, versions = facts.setting, facts.last_versions
    commit = versions["git_revision"]
    code = f"RoomScout {versions['packages'].get('roomscout') or ''}".strip() + (f" at {commit[:12]}" if commit else "")
    if facts.by_people:
        people = len(facts.setting("annotator")) or 1
        return f"With {code}, {'a person' if people == 1 else f'{people} people'} in place of a model"
    if not facts.asks_model:
        policy = name_of_model(str(setting("policy") or setting("model")))
        return f"With {code}, the policy {policy}, without a model,"
    revision = f" (revision {found[:12]})" if (found := versions.get("model_revision")) else ""
    engines = {"openai": "behind an OpenAI-compatible server", "vllm": f"served by vLLM in {setting('dtype')}"}
    packages = versions["packages"].get("transformers") or ""
    engine = engines.get(setting("engine"), f"run by transformers {packages}".strip() + f" in {setting('dtype')}")
    return f"With {code}, the model {name_of_model(str(facts.setting('model')))}{revision}, {engine},"


def _conditions(facts: RunFacts) -> str:
    """What the protocol does not say: what draws the views, and the seed of what is drawn at random."""
    renderer, temperature, seed = (facts.setting(name) for name in ("renderer", "temperature", "seed"))
    drawn = (
        ""
        if facts.is_blind or facts.frames is not None
        else f"The renderer {renderer} draws {' and '.join(facts.setting('see'))}. "
    )
    at = f"Replies are sampled at temperature {temperature:g}" if facts.asks_model else "The policy draws at random"
    return drawn + (f"{at} with seed {seed}. " if (temperature or not facts.asks_model) and not facts.by_people else "")


def _scoring(reader: RunReader, benchmark: Benchmark) -> str:
    """The overall with its interval and what it covers; that there is none yet for a run without scores."""
    summary = reader.summary or {}
    asked = summary.get("asked", {})
    if not (label := asked.get("overall_label")):
        return "It has no overall score yet. "
    intervals = summary.get("intervals", {})
    interval = intervals.get("percent", {}).get("overall")
    words = (
        f" ({intervals['level']} % interval {interval_in_words(interval)}, {intervals['method']})" if interval else ""
    )
    judge = f" Answers in free text are marked by {summary['judge']['model']}." if "judge" in summary else ""
    failed = f" {words_of_failed}." if (words_of_failed := failed_in_words(summary)) else ""
    what = overall_in_words(label, asked["tasks"], benchmark, asked.get("some"))
    return f"The score, {what.replace('_', ' ')}, is {asked[label]:.1f} %{words}.{judge}{failed} "


def bibliography(reader: RunReader, model_citation: FindCitation) -> str:
    """BibTeX of RoomScout, the benchmark, its scans' datasets, the model and its engine; a comment where none is known.

    Raises RunError.
    """
    facts = reader.facts
    version = facts.last_versions["packages"].get("roomscout") or "unknown"
    entries = [OWN.format(version=version, year=facts.started[:4])]
    name, shipped = str(facts.setting("benchmark")), facts.benchmark is None
    if name != "rooms":  # part of RoomScout
        own = f"% The benchmark {reader.benchmark.title} brings no citation: add the one that its authors ask for.\n"
        entries.append((bibtex_beside(BENCHMARKS, name) if shipped else "") or own)
        try:
            asked: Sequence[Question | ResultRow] = reader.questions
        except QuestionError:  # of an earlier version, whose file is gone
            asked = reader.rows
        datasets = filter(None, dict.fromkeys(true_dataset(each.dataset, each.scene_name) for each in asked))
        unknown = "% No citation is known of the scans called {}: add the one that their owners ask for.\n"
        entries += [bibtex_beside(BENCHMARKS, each) or unknown.format(each) for each in datasets]
    model = name_of_model(str(facts.setting("model")))
    if facts.asks_model and model != "embedded":  # the included one is part of RoomScout
        unknown = f"% No citation is known of the model {model}: add the one that its authors ask for.\n"
        entries.append(model_citation(model, facts.setting("engine")) or unknown)
    return "\n".join(entries)
