"""The head of a report: what was run, its scores, and what they must not be compared with."""

import shlex
from collections.abc import Iterable
from typing import Any

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.titles import answering, asked_in_words
from roomscout.base.tables import Table, decimal, interval_in_words
from roomscout.base.text import capitalized, counted
from roomscout.runs.export import money_lines
from roomscout.runs.hardware import Hardware
from roomscout.runs.prices import in_money
from roomscout.runs.summary import Summary
from roomscout.scoring.headline import scores_in_words
from roomscout.scoring.intervals import INTERVAL
from roomscout.scoring.scores import Baseline, Percentages
from roomscout.scoring.summary import failed_in_words, no_interval_lines, part_lines, reference_lines

BASELINES = {"blind": "Blind", "most_frequent": "Most frequent answer"}


def score_table(run: RunContents) -> Table | None:
    """The scores by task, last the overall and what it leaves out, and the baselines; None if nothing is scored."""
    if run.headline is None:
        return None
    summary = run.summary
    tasks = list(summary.asked.tasks)
    columns = {"Task": [*tasks, f"Overall{run.headline.without}"], "Score (%)": _percents(summary.asked, tasks)}
    intervals = [summary.interval(name) for name in (*tasks, "overall")]
    if any(intervals):
        columns[INTERVAL] = [interval_in_words(interval) if interval else "" for interval in intervals]
    if lacks_scans(summary):
        columns["With scan"] = _percents(summary.with_scan, tasks)
    for name, baseline in _baselines(summary).items():
        columns[name] = _percents(baseline, tasks)
    return Table(list(columns), list(zip(*columns.values(), strict=True)), overall=True)


def _percents(scores: Percentages | Baseline, tasks: Iterable[str]) -> list[str]:
    """Cells with the score of each task and the overall, empty for those that are not known."""
    percents = [*map(scores.tasks.get, tasks), scores.overall]
    return ["" if percent is None else f"{percent:.1f}" for percent in percents]


def _baselines(summary: Summary) -> dict[str, Baseline]:
    """The known baselines, by their names in words."""
    return {name: summary.baselines[key] for key, name in BASELINES.items() if key in summary.baselines}


def lacks_scans(summary: Summary) -> bool:
    """Whether questions lack their scan, so that the scores without these differ."""
    return summary.asked.questions != summary.with_scan.questions


def lead_of(run: RunContents) -> dict[str, Any] | None:
    """How good a run is, before all tables: the overall, what it is, the baselines beside it, and `verdicts` on it."""
    headline = run.headline
    if headline is None:
        return None
    interval = run.summary.interval("overall")
    overalls = {name: baseline.overall for name, baseline in _baselines(run.summary).items()}
    beside = [(name, percent) for name, percent in overalls.items() if percent is not None]
    verdicts = []
    for name, percent in beside:
        baseline = f"{name.lower()}, {percent:.1f} %"
        if headline.percent <= percent:
            verdicts.append(f"Not better than this baseline: {baseline}.")
        elif interval and interval[0] <= percent:
            verdicts.append(f"The interval includes a baseline: {baseline}.")
    if words := failed_in_words(run.summary):
        verdicts.append(f"{words}.")
    return {
        "percent": f"{headline.percent:.1f} %",
        "interval": interval_in_words(interval) if interval else "",
        "label": headline.label,
        "scored": headline.answers,
        "without": headline.without,
        "beside": [(name, f"{percent:.1f}") for name, percent in beside],
        "verdicts": verdicts,
    }


def further_tables(run: RunContents) -> dict[str, Table]:
    """What each type scores that is not in the overall, or is no type of the benchmark's overall and has further
    scores: by its name."""
    tables = {}
    for name, counts in run.summary.types.items():
        means = scores_in_words(counts.scores)
        is_left_out = name in run.left_out
        if is_left_out or (means and name not in run.benchmark.by_name):
            answers = counted(counts.scored or counts.questions, "answer")
            facts = {"score": f"{decimal(counts.percent)} %", **means}
            heads = [f"{answers}, not in the overall" if is_left_out else answers, "mean"]
            tables[name] = Table(heads, [*facts.items()])
    return tables


def hardware_in_words(hardware: Hardware | None) -> list[tuple[str, str]]:
    """What the hardware did, as pairs of a name and a text."""
    if hardware is None:
        return []
    batch = hardware.mean_batch or 0
    gpus = hardware.gpus
    full = f", {100 * hardware.batch_fill:.0f} % of the batch size" if hardware.batch_fill else ""
    on_gpu = []
    if gpus and gpus.utilisation_percent:
        on_gpu.append(f"busy {gpus.utilisation_percent.mean:.0f} % of the time")
    if gpus and gpus.memory_mib:
        on_gpu.append(f"at most {gpus.memory_mib.max:,.0f} MiB of memory")
    if gpus and gpus.power_w:
        on_gpu.append(f"{gpus.power_w.mean:.0f} W on average, at most {gpus.power_w.max:.0f} W")
    facts = [
        ("Time", hardware.bottleneck),
        ("A turn", f"median {hardware.turn_seconds.median:.2f} s, 95 % within {hardware.turn_seconds.p95:.2f} s"),
        ("Batches", f"{batch:.1f} questions a call on average{full}" if batch > 1 else ""),
        ("Tokens", f"{hardware.tokens_per_second:,.0f} generated per second" if hardware.tokens_per_second else ""),
        ((gpus and ", ".join(filter(None, gpus.names))) or "GPU", "; ".join(on_gpu)),
    ]
    return [(name, text) for name, text in facts if text]


def about_in_words(run: RunContents) -> str:
    """A run in a line: what its title lacks of model, benchmark, number of questions, folder, start and cost."""
    facts = run.facts
    cost = run.summary.cost
    named = [answering(facts), asked_in_words(facts, run.benchmark)] if facts.name else []
    judge = run.summary.judge
    parts = [*named, counted(facts.questions, "question"), facts.started[:16].replace("T", " ")]
    if run.folder.name != facts.name:
        parts.append(run.folder.name)
    if cost is not None and cost.money is not None:
        parts.append(f"cost {in_money(cost.money)}")
    if judge is not None and judge.money is not None:
        parts.append(f"judge {in_money(judge.money)}")
    return " · ".join(parts)


def facts_in_words(run: RunContents) -> list[tuple[str, str]]:
    """What was run, as pairs of a name and a text."""
    facts = run.facts
    summary = run.summary
    setting = facts.setting
    versions = facts.last_versions
    source = setting("questions") or (setting("ply") and "--question") or _source_of_benchmark(run)
    filters = [
        f"{name.replace('_', ' ')}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name in ("datasets", "question_types", "scenes", "ids", "num_questions")
        if (value := setting(name))
    ]
    packages = [f"{name} {version}" for name, version in versions.packages.items() if version]
    samples = f", {facts.samples} answers each" if facts.samples > 1 else ""
    sampling = setting("temperature")
    decoding = f"temperature {sampling:g}, seed {setting('seed')}" if sampling else "greedy"
    decoding = ", ".join([decoding, *facts.config.get("generation", ())])
    judge = summary.judge
    facts_of_run = [
        ("Model", str(setting("model"))),
        ("Checkpoint", f"revision {versions.model_revision}" if versions.model_revision else ""),
        ("Engine", _engine(run)),
        ("Benchmark", run.benchmark.title),
        ("Questions", f"{facts.questions:,} from {source}{samples}"),
        ("Filters", "; ".join(filters)),
        *_seen(run),
        ("Judge", f"{judge.model} (prompts {judge.prompts_sha256})" if judge else ""),
        ("Decoding", "" if facts.by_people else decoding),
        ("Cost", _cost_in_words(run)),
        ("Protocol", facts.protocol),
        ("Prompts", f"{facts.prompts.sha256[:12]} (SHA-256)" if facts.prompts else ""),
        ("Started", facts.started[:19].replace("T", " ") + f" on {facts.host}"),
        ("Resumed", "; ".join(resumption.at[:19].replace("T", " ") for resumption in facts.resumed)),
        ("Revision", versions.git_revision or "not recorded"),
        ("Versions", ", ".join([f"Python {versions.python}", *packages])),
        ("Identified by", str(summary.provenance or "")),
        ("Fingerprint", f"{facts.questions_sha256[:12]} (SHA-256 of the questions)"),
        ("Folder", str(run.folder)),
    ]
    return [(name, text) for name, text in facts_of_run if text]


def _seen(run: RunContents) -> list[tuple[str, str]]:
    """What the model was shown: where the views come from, and who moved the camera how often, or frames of videos."""
    facts = run.facts
    setting = run.facts.setting
    if facts.frames is not None:
        return [("Frames", f"{facts.frames} of each video of {setting('videos')}")]
    camera = facts.intrinsics
    size = f"{camera.width} × {camera.height} px, focal {camera.focal_px:g} px"
    brings_scans = run.benchmark.folder is not None and setting("questions") is None
    actions = setting("actions")
    by = "" if actions == "metric" else f", by {actions.rpartition('/')[2]} actions"
    return [
        ("Scans", str(setting("ply") or ("" if brings_scans else setting("scan_root")))),
        ("View", f"{size} ({camera.horizontal_fov_deg:.4g}° wide)"),
        ("Renderer", "blind: every view is grey" if facts.is_blind else str(setting("renderer"))),
        ("Images", " and ".join(setting("see")) if len(setting("see")) > 1 else ""),
        ("Views shown", f"the first and the last {setting('keep_views')}" if setting("keep_views") else ""),
        ("Moves", f"at most {setting('steps')} per question{by}"),
    ]


def _cost_in_words(run: RunContents) -> str:
    cost = run.summary.cost
    if cost is None:
        return ""
    parts = [line.removeprefix("Cost: ") for line in money_lines(run.summary, len(run.rows), run.facts.price)]
    tasks = [f"{name} {in_money(of_task.money)}" for name, of_task in cost.tasks.items() if of_task.money is not None]
    if tasks:
        parts.append(f"by task: {', '.join(tasks)}")
    return "; ".join(parts)


def _source_of_benchmark(run: RunContents) -> str:
    if run.facts.benchmark is not None and run.facts.benchmark.brings_questions:
        return run.facts.benchmark.name
    if run.benchmark.source:
        return run.benchmark.source.repository
    return run.benchmark.name if run.benchmark.folder else "Python"


def _engine(run: RunContents) -> str:
    setting = run.facts.setting
    if run.facts.by_people:
        return "none: people decide"
    if not run.facts.asks_model:
        return "none: a policy of code decides"
    if setting("engine") == "openai":
        return "openai: " + ", ".join(setting("base_url") or [])
    return f"{setting('engine')}, {setting('dtype')}"


def judge_command(run: RunContents) -> str:
    """The command that has a judge mark the answers in free text of a run that await it; empty if none does."""
    if not run.summary.asked.awaiting_judge:
        return ""
    return f"roomscout rescore {shlex.quote(str(run.folder))} --judge MODEL"


def cautions(run: RunContents) -> list[str]:
    """What the scores must not be compared with, a sentence each."""
    facts = run.facts
    summary = run.summary
    asked = run.summary.asked
    benchmark = run.benchmark
    sentences = list[str]()
    if facts.is_blind:
        sentences.append("The model saw grey views only: this run is a baseline, and no result of a model that sees.")
    if facts.part:
        sentences.append(
            f"This is {facts.part} of a run: its questions are not those of the benchmark. Merge all parts first."
        )
    if run.pending:
        sentences.append(
            f"{run.pending:,} of {facts.episodes:,} answers are pending: the scores cover only what is finished, and "
            "questions that finish early may be easier."
        )
    if command := judge_command(run):
        awaiting = f"{asked.awaiting_judge:,} answers in free text are not scored yet"
        sentences.append(f"{awaiting}: a judge scores them, with {command}")
    if failed_in_words(summary):
        sentences.append(
            "An error of the scan, the renderer or the server ended the failed questions: it says nothing of the model."
        )
    if asked.label is not None:
        sentences.append(f"The overall is {asked.label}: it is comparable only with overalls of that name.")
        if asked.label.partial:
            lacks = "questions" if asked.label.some else "tasks"
            sentences[-1] += f" It does not cover all {lacks} of the benchmark, so it is not a benchmark result."
    if benchmark.scored_as:
        sentences.append(
            f"The questions are those of {benchmark.title}. They are scored by the rules of {benchmark.scored_as}, and "
            "are not a result of it."
        )
    sentences.append(
        "Compare only with runs of the same questions (fingerprint) and of the same protocol; both are under Setup."
    )
    if (intervals := summary.intervals) is not None:
        if intervals.percent:
            sentences.append(f"Intervals have a level of {intervals.level} % ({intervals.method}).")
        sentences += [f"{capitalized(line)}." for line in no_interval_lines(summary)]
    if asked.label is not None and lacks_scans(summary):
        sentences.append("Questions without a scan score 0. The column “With scan” leaves them out.")
    if sources := [f"{name}: {baseline.source}" for name, baseline in _baselines(summary).items()]:
        sentences.append(f"Baselines: {'; '.join(sources)}.")
    if facts.samples > 1:
        sentences.append(f"Each question was answered {facts.samples} times, and each answer counts like a question.")
    if facts.resumed:
        sentences.append("The run was resumed; the revision and the versions shown are those that ran last.")
    lines = part_lines(facts.setting, summary, benchmark) + reference_lines(summary, benchmark, facts.frames)
    return [*sentences, *(f"{capitalized(line)}." for line in lines)]
