"""What a run is called where people read it: its name, or what answered, on which benchmark, with which score."""

from pathlib import PurePosixPath

from roomscout.data.benchmark import Benchmark
from roomscout.runs.movers import MOVERS
from roomscout.runs.records import RunFacts
from roomscout.scoring.headline import Headline


def answering(facts: RunFacts) -> str:
    """What answered: a model by the last part of its name, revision, quantization and adapter, a policy, or people."""
    policy = None if facts.by_people else facts.setting("policy")
    named = [policy or facts.setting("model"), facts.setting("adapter")]
    model, *adapter = (str(each).rstrip("/").rsplit("/", 1)[-1] for each in named if each)
    model += f"@{facts.setting('revision')}" if facts.setting("revision") else ""
    return " + ".join(filter(None, [model, facts.setting("quantize"), *adapter]))


def controls_of(facts: RunFacts) -> tuple[str, ...]:
    """What a run with controls does otherwise than its model alone would, such as "blind" and "spin"."""
    setting = facts.setting
    moves = facts.setting("moves")
    as_one = " as one video" if facts.conditions.get("video_input") == "native" else ""
    found = {
        "blind": facts.is_blind,
        "moves of another run": setting("moves_of"),
        MOVERS[moves].title if moves in MOVERS else "": not setting("moves_of"),
        f"given {' and '.join(setting('given'))}": setting("given"),
        "all views at once": setting("present") == "once",
        f"video protocol, {facts.frames} frames{as_one}": facts.frames is not None,
        f"last {setting('keep_views')} views": setting("keep_views"),
        f"{setting('actions').rpartition('/')[2]} actions": setting("actions") != "metric",
        "turning only": not setting("translation"),
        f"no answer before turn {setting('min_turns')}": setting("min_turns"),
    }
    return tuple(words for words, holds in found.items() if words and holds)


def short_title(facts: RunFacts) -> str:
    """The name of a run, or what answered and under which controls; not escaped."""
    controls = controls_of(facts)
    return facts.name or answering(facts) + (f" ({', '.join(controls)})" if controls else "")


def title_of(facts: RunFacts, benchmark: Benchmark, headline: Headline | None) -> str:
    """The name of a run, or what answered, the benchmark and the overall in percent, and what that leaves out."""
    if facts.name:
        return facts.name
    score = f"{headline.percent:.1f} %{headline.without}" if headline else ""
    about = "" if facts.setting("ply") else asked_in_words(facts, benchmark)
    return " · ".join(filter(None, [short_title(facts), about, score]))


def asked_in_words(facts: RunFacts, benchmark: Benchmark) -> str:
    """The benchmark of a run, the file of its questions (its folder, if called questions), or the one scan."""
    if facts.setting("ply"):
        return PurePosixPath(facts.setting("ply")).name
    path = PurePosixPath(benchmark.title)
    in_folder = benchmark.scored_as and path.stem == "questions" and path.parent.name
    return str(path.parent) if in_folder else benchmark.title
