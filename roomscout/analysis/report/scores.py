"""The head of a report: what was run, its scores, and what they must not be compared with."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.pages import hfov_deg
from roomscout.analysis.titles import answering, asked_in_words, title_of
from roomscout.base.text import escaped
from roomscout.runs.closing import money_lines
from roomscout.runs.costs import Cost
from roomscout.runs.hardware import Hardware
from roomscout.runs.prices import Price, in_money
from roomscout.runs.settings import ControlSettings
from roomscout.runs.summary import Summary
from roomscout.scoring.summary import failed_in_words, no_interval_lines, part_lines, reference_lines

Interval = tuple[float, float]


@dataclass(frozen=True)
class ScoreRow:
    """A row of the table of scores: a task or the overall, in percent. None where a figure is unknown."""

    name: str
    percent: float
    with_scan: float | None
    interval: Interval | None
    baselines: tuple[float | None, ...]


@dataclass(frozen=True)
class Scores:
    """The table of scores. `baselines` are the names and sources of its columns for baselines."""

    label: str
    overall: ScoreRow
    tasks: tuple[ScoreRow, ...]
    baselines: tuple[tuple[str, str], ...]
    scored: int

    @property
    def rows(self) -> tuple[ScoreRow, ...]:
        """The tasks, then the overall."""
        return (*self.tasks, self.overall)

    @property
    def has_intervals(self) -> bool:
        """Whether any row has an interval."""
        return any(row.interval for row in self.rows)

    @property
    def lacks_scans(self) -> bool:
        """Whether the scores without the questions that lack a scan differ."""
        return any(row.with_scan is not None for row in self.rows)


@dataclass(frozen=True)
class DatasetScores:
    """The scores of one dataset, in percent; `tasks` are in the order of the table of scores, None where unknown."""

    name: str
    scored: int
    overall: float | None
    interval: Interval | None
    tasks: tuple[float | None, ...]


def datasets_of(summary: Summary) -> tuple[DatasetScores, ...]:
    """The scores of each dataset of a summary; empty unless it has several."""
    tasks = summary.asked.tasks
    return tuple(
        DatasetScores(
            escaped(name),
            each.scored,
            each.overall,
            each.interval,
            tuple(each.tasks.get(task) for task in tasks),
        )
        for name, each in summary.datasets.items()
    )


BASELINES = {"blind": "Blind", "most_frequent": "Most frequent answer"}


def scores_of(summary: Mapping[str, Any]) -> Scores | None:
    """The scores of a summary; None if nothing is scored."""
    asked, with_scan = summary.get("asked", {}), summary.get("with_scan", {})
    label = asked.get("overall_label")
    if not label:
        return None
    known = {key: summary["baselines"][key] for key in BASELINES if key in summary.get("baselines", {})}
    columns = [(percent_by_baseline(summary, key), baseline.get("overall")) for key, baseline in known.items()]
    differs = asked["questions"] != with_scan.get("questions", asked["questions"])
    tasks = tuple(
        ScoreRow(
            escaped(name),
            percent,
            with_scan.get("tasks", {}).get(name) if differs else None,
            interval_of(summary, name),
            tuple(percents.get(name) for percents, _ in columns),
        )
        for name, percent in asked["tasks"].items()
    )
    overall = ScoreRow(
        label,
        asked[label],
        with_scan.get(with_scan.get("overall_label")) if differs else None,
        interval_of(summary, "overall"),
        tuple(of_all for _, of_all in columns),
    )
    sources = tuple((BASELINES[key], escaped(str(baseline.get("source", "")))) for key, baseline in known.items())
    return Scores(label, overall, tasks, sources, asked["scored"] - asked.get("scored_own", 0))


def interval_of(summary: Mapping[str, Any], name: str) -> Interval | None:
    """The interval of a task's, a type's or the "overall" score in percent, low and high; None if it has none."""
    found = summary.get("intervals", {}).get("percent", {}).get(name)
    return (float(found[0]), float(found[1])) if found else None


def percent_by_baseline(summary: Mapping[str, Any], key: str) -> dict[str, float]:
    """Percent per task of a baseline; empty if the summary does not have it."""
    return dict(summary.get("baselines", {}).get(key, {}).get("tasks", {}))


@dataclass(frozen=True)
class Lead:
    """How good a run is, before all tables: the overall, what it is, and `verdicts` on it, a sentence each.

    `beside` has the names and the overalls of the baselines. `verdicts` say that it is not above one of them, and that
    questions failed.
    """

    percent: float
    interval: Interval | None
    label: str
    scored: int
    beside: tuple[tuple[str, float], ...]
    verdicts: tuple[str, ...]


def lead_of(run: RunContents, scores: Scores) -> Lead:
    """What a reader wants to know first; escaped for display."""
    asked, overall = run.summary.asked, scores.overall
    label = scores.label
    if run.benchmark is not None and asked.label is not None:
        label = asked.label.in_words([*asked.tasks], run.benchmark)
    label += f" ({asked.shown})" if asked.shown else ""
    beside = tuple(
        (name, percent)
        for (name, _), percent in zip(scores.baselines, overall.baselines, strict=True)
        if percent is not None
    )
    verdicts = [_against(overall, name, percent) for name, percent in beside]
    if words := failed_in_words(run.summary):
        verdicts.append(f"{words}.")
    if asked.own_percent is not None:
        verdicts.append(f"{asked.own_percent:.1f} % over {asked.scored_own:,} answers in types of your own.")
    return Lead(
        overall.percent,
        overall.interval,
        escaped(label),
        scores.scored,
        beside,
        tuple(map(escaped, filter(None, verdicts))),
    )


def _against(overall: ScoreRow, name: str, percent: float) -> str:
    """Says that an overall is not above a baseline, or that its interval does not tell; else empty."""
    if overall.percent <= percent:
        return f"Not better than this baseline: {name.lower()}, {percent:.1f} %."
    if overall.interval and overall.interval[0] <= percent:
        return f"The interval includes a baseline: {name.lower()}, {percent:.1f} %."
    return ""


def hardware_in_words(found: Hardware | None) -> list[tuple[str, str]]:
    """What `hardware_of` says, as pairs of a name and a text; escaped for display."""
    if not found:
        return []
    turn, gpus, batch = found["turn_seconds"], found.get("gpus", {}), found["mean_batch"]
    full = f", {100 * found['batch_fill']:.0f} % of the batch size" if "batch_fill" in found else ""
    shown = {
        "utilisation_percent": "busy {mean:.0f} % of the time",
        "memory_mib": "at most {max:,.0f} MiB of memory",
        "power_w": "{mean:.0f} W on average, at most {max:.0f} W",
    }
    facts = [
        ("Time", found.get("bottleneck", "")),
        ("A turn", f"median {turn['median']:.2f} s, 95 % within {turn['p95']:.2f} s"),
        ("Batches", f"{batch:.1f} questions a call on average{full}" if batch > 1 else ""),
        ("Tokens", f"{found['tokens_per_second']:,.0f} generated per second" if "tokens_per_second" in found else ""),
        (", ".join(filter(None, gpus.get("names", ()))) or "GPU",
         "; ".join(words.format(**gpus[name]) for name, words in shown.items() if name in gpus)),
    ]  # fmt: skip
    return [(escaped(name), escaped(text)) for name, text in facts if text]


def title_in_words(run: RunContents) -> str:
    """The title of a run's page; escaped for display."""
    return title_of(run.facts, run.benchmark, run.summary)


def about_in_words(run: RunContents) -> str:
    """A run in a line: what its title lacks of model, benchmark, number of questions, folder and start."""
    facts = run.facts
    asked = f"{facts.questions:,} question{'' if facts.questions == 1 else 's'}"
    named = [answering(facts), asked_in_words(facts, run.benchmark)] if facts.name else []
    folder = [] if run.folder.name == facts.name else [run.folder.name]
    return escaped(" · ".join([*named, asked, facts.started[:16].replace("T", " "), *folder]))


def facts_in_words(run: RunContents) -> list[tuple[str, str]]:
    """What was run, as pairs of a name and a text."""
    facts = run.facts
    setting = facts.setting
    source = setting("questions") or (setting("ply") and "--question") or _source_of_benchmark(run)
    filters = [
        f"{name.replace('_', ' ')}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name in ("datasets", "question_types", "scenes", "ids", "num_questions")
        if (value := setting(name))
    ]
    versions = facts.last_versions
    packages = [f"{name} {version}" for name, version in versions.packages.items() if version]
    samples = f", {facts.samples} answers each" if facts.samples > 1 else ""
    sampling = setting("temperature")
    decoding = "greedy" if not sampling else f"temperature {sampling:g}, seed {setting('seed')}"
    found = [
        ("Model", str(setting("model"))),
        ("Checkpoint", f"revision {commit}" if (commit := versions.model_revision) else ""),
        ("Engine", _engine(run)),
        ("Benchmark", run.benchmark.title if run.benchmark else str(setting("benchmark"))),
        ("Questions", f"{facts.questions:,} from {source}{samples}"),
        ("Filters", "; ".join(filters)),
        *_seen(run),
        ("Judge", _judge(run.summary)),
        ("Decoding", "" if facts.by_people else decoding),
        ("Cost", cost_in_words(run.summary.cost, len(run.rows), facts.price)),
        ("Protocol", facts.protocol),
        ("Prompts", f"{facts.prompts.sha256[:12]} (SHA-256)" if facts.prompts else ""),
        ("Started", facts.started[:19].replace("T", " ") + f" on {facts.host}"),
        ("Resumed", "; ".join(each.at[:19].replace("T", " ") for each in facts.resumed)),
        ("Revision", versions.git_revision or "not recorded"),
        ("Versions", ", ".join([f"Python {versions.python}", *packages])),
        ("Identified by", str(run.summary.provenance or "")),
        ("Fingerprint", f"{facts.questions_sha256[:12]} (SHA-256 of the questions)"),
        ("Folder", str(run.folder)),
    ]
    return [(name, escaped(text)) for name, text in found if text]


def _seen(run: RunContents) -> list[tuple[str, str]]:
    """What the model was shown: where the views come from, and who moved the camera how often, or frames of videos."""
    facts, setting, camera = run.facts, run.facts.setting, run.facts.intrinsics
    if facts.frames is not None:
        return [("Frames", f"{facts.frames} of each video of {setting('videos') or setting('frames_of')}")]
    size = f"{camera.width} × {camera.height} px, focal {camera.focal_px:g} px" if camera else "not recorded"
    return [
        ("Scans", _scans(run)),
        ("View", f"{size} ({hfov_deg(facts):g}° wide)" if camera else size),
        ("Renderer", "blind: every view is grey" if facts.is_blind else str(setting("renderer"))),
        ("Images", " and ".join(setting("see")) if len(setting("see")) > 1 else ""),
        ("Views shown", f"the first and the last {setting('keep_views')}" if setting("keep_views") else ""),
        ("Moves", f"at most {setting('steps')} per question{_actions(setting('actions'))}"),
    ]


def cost_in_words(cost: Cost | None, answers: int, price: Price | None) -> str:
    """What a run cost by task; empty if its tokens have no price."""
    if cost is None:
        return ""
    tasks = [f"{name} {in_money(each.money)}" for name, each in cost.tasks.items() if each.money is not None]
    lines = [line.removeprefix("Cost: ") for line in money_lines(cost, answers, price)]
    return "; ".join([*lines, *([f"by task: {', '.join(tasks)}"] if tasks else [])])


def _actions(name: str) -> str:
    """The action space, unless it is the default one."""
    return "" if name == ControlSettings.actions else f", by {name.rpartition('/')[2]} actions"


def _scans(run: RunContents) -> str:
    """The scan, or the folder of the scans; empty if the benchmark brings them."""
    setting = run.facts.setting
    brings = run.benchmark is not None and run.benchmark.folder is not None and setting("questions") is None
    return str(setting("ply") or ("" if brings else setting("scan_root")))


def _source_of_benchmark(run: RunContents) -> str:
    if run.facts.benchmark is not None and run.facts.benchmark.brings_questions:
        return run.facts.benchmark.name
    if run.benchmark is None or not (run.benchmark.source or run.benchmark.folder):
        return "Python"
    return run.benchmark.source.repository if run.benchmark.source else run.benchmark.name


def _judge(summary: Mapping[str, Any]) -> str:
    found = summary.get("judge")
    return f"{found['model']} (prompts {found['prompts_sha256']})" if found else ""


def judge_command(run: RunContents) -> str:
    """The command that has a judge mark the answers in free text of a run that await it; empty if none does."""
    if not run.summary.get("asked", {}).get("awaiting_judge"):
        return ""
    return f"roomscout rescore {shlex.quote(str(run.folder))} --judge MODEL"


def _engine(run: RunContents) -> str:
    setting = run.facts.setting
    if run.facts.by_people:
        return "none: people decide"
    if setting("policy") or str(setting("model")).startswith("scripted:"):
        return "none: a policy of code decides"
    if setting("engine") == "openai":
        return "openai: " + ", ".join(setting("base_url") or [])
    return f"{setting('engine')}, {setting('dtype')}"


def cautions(run: RunContents, scores: Scores | None) -> list[str]:
    """What the scores must not be compared with, a sentence each."""
    facts, found = run.facts, []
    if run.facts.is_blind:
        found.append("The model saw grey views only: this run is a baseline, and no result of a model that sees.")
    if facts.part:
        found.append(
            f"This is {facts.part} of a run: its questions are not those of the benchmark. Merge all parts first."
        )
    if run.pending:
        found.append(
            f"{run.pending:,} of {facts.episodes:,} answers are pending: the scores cover only what is finished, and "
            "questions that finish early may be easier."
        )
    if command := judge_command(run):
        awaiting = run.summary["asked"]["awaiting_judge"]
        found.append(f"{awaiting:,} answers in free text are not scored yet: a judge scores them, with {command}")
    if failed_in_words(run.summary):
        found.append(
            "An error of the scan, the renderer or the server ended the failed questions: it says nothing of the model."
        )
    if scores is not None:
        found.append(_label_in_words(scores.label, bool(run.summary["asked"].get("some"))))
    if run.benchmark is not None and run.benchmark.scored_as:
        found.append(
            f"The questions are those of {run.benchmark.title}. They are scored by the rules of "
            f"{run.benchmark.scored_as}, and are not a result of it."
        )
    found.append(
        "Compare only with runs of the same questions (fingerprint) and of the same protocol; both are under Setup."
    )
    found += intervals_in_words(run.summary)
    if scores is not None and scores.lacks_scans:
        found.append("Questions without a scan score 0. The column “with scan” leaves them out.")
    if scores is not None and any(source for _, source in scores.baselines):
        found.append(
            "Baselines: " + "; ".join(f"{name}: {source}" for name, source in scores.baselines if source) + "."
        )
    if facts.samples > 1:
        found.append(f"Each question was answered {facts.samples} times, and each answer counts like a question.")
    if facts.resumed:
        found.append("The run was resumed; the revision and the versions shown are those that ran last.")
    if run.benchmark is not None and run.summary.get("asked"):
        lines = [
            *part_lines(facts.setting, run.summary, run.benchmark),
            *reference_lines(run.summary, run.benchmark, facts.frames),
        ]
        found += [f"{line[0].upper()}{line[1:]}." for line in lines]
    return [escaped(sentence) for sentence in found]


def intervals_in_words(summary: Summary) -> list[str]:
    """What the intervals of a summary are, and why others are missing, a sentence each; none without the key."""
    if (intervals := summary.intervals) is None:
        return []
    method = f"Intervals have a level of {intervals.level} % ({intervals.method})."
    why_not = [f"{line[0].upper()}{line[1:]}." for line in no_interval_lines(summary)]
    return [method, *why_not] if intervals.percent else why_not


def _label_in_words(label: str, some_questions: bool) -> str:
    sentence = f"The overall is {label}: it is comparable only with overalls of that name."
    if "partial_" in label:
        lacks = "questions" if some_questions else "tasks"
        sentence += f" It does not cover all {lacks} of the benchmark, so it is not a benchmark result."
    return sentence
