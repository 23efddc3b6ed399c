"""What a run is called where people read it: its name, or what answered, on which benchmark, with which score."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from roomscout.base.text import escaped
from roomscout.data.benchmark import Benchmark
from roomscout.runs.movers import MOVERS
from roomscout.runs.records import RunFacts


def answering(facts: RunFacts) -> str:
    """What answered: the model, by the last part of its name, its revision, quantization and adapter, or a policy, or
    people."""
    policy = None if facts.by_people else facts.setting("policy")
    named = [policy or facts.setting("model"), facts.setting("adapter")]
    model, *adapter = (str(each).rstrip("/").rsplit("/", 1)[-1] for each in named if each)
    model += f"@{facts.setting('revision')}" if facts.setting("revision") else ""
    return " + ".join(filter(None, [model, facts.setting("quantize"), *adapter]))


def controls_of(facts: RunFacts) -> tuple[str, ...]:
    """What a run with controls does otherwise than its model alone would, such as "blind" and "spin"."""
    setting = facts.setting
    moves, moves_of, at_once = setting("moves"), setting("moves_of"), setting("present") == "once"
    found = [
        "blind" if facts.is_blind else "",
        "moves of another run" if moves_of else MOVERS[moves].title if moves in MOVERS else "",
        f"given {' and '.join(setting('given'))}" if setting("given") else "",
        "all views at once" if at_once else "",
        ""
        if facts.frames is None
        else f"video protocol, {facts.frames} frames" + " as one video" * (setting("video_input") == "native"),
        f"last {setting('keep_views')} views" if setting("keep_views") else "",
        "" if setting("actions") == "metric" else f"{setting('actions').rpartition('/')[2]} actions",
        "" if setting("translation") else "turning only",
        f"no answer before turn {setting('min_turns')}" if setting("min_turns") else "",
    ]
    return tuple(filter(None, found))


def short_title(facts: RunFacts) -> str:
    """The name of a run, or what answered and under which controls; not escaped."""
    controls = controls_of(facts)
    return facts.name or answering(facts) + (f" ({', '.join(controls)})" if controls else "")


def title_of(facts: RunFacts, benchmark: Benchmark | None, summary: Mapping[str, Any]) -> str:
    """The name of a run, or what answered, the benchmark and the overall; escaped for display."""
    if facts.name:
        return escaped(facts.name)
    asked = summary.get("asked", {})
    label = asked.get("overall_label")
    score = f"{asked[label]:.1f} %" if label else ""
    about = "" if facts.setting("ply") else asked_in_words(facts, benchmark)
    return escaped(" · ".join(filter(None, [short_title(facts), about, score])))


def asked_in_words(facts: RunFacts, benchmark: Benchmark | None) -> str:
    """The benchmark of a run, or the file of its questions: its folder, if the file is called questions.

    For a question about one scan, the file of the scan.
    """
    if facts.setting("ply"):
        return PurePosixPath(facts.setting("ply")).name
    if benchmark is None:
        return str(facts.setting("benchmark"))
    path = PurePosixPath(benchmark.title)
    return (
        str(path.parent) if benchmark.scored_as and path.stem == "questions" and path.parent.name else benchmark.title
    )
