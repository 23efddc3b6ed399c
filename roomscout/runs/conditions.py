"""The conditions under which a run answers, derived from its settings: one hash, what differs, and a sentence."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roomscout.base.wording import flag
from roomscout.data.benchmarks import DEFAULT, benchmark_names, find_benchmark
from roomscout.rendering.camera import Intrinsics
from roomscout.runs.movers import GIVEN_PATH, MOVERS, who_moves

if TYPE_CHECKING:
    from roomscout.runs.records import RunFacts

IN_WORDS = frozenset((
    "renderer", "up_axis", "scale", "image_size", "focal", "camera_height", "camera_pitch", "see", "prompts",
    "max_new_tokens", "temperature", "generation", "constrained", "steps", "moves", "moves_of", "present", "frames",
    "keep_views", "given", "min_turns", "actions", "translation", "tell", "extra_body", "words", "video_input",
))  # fmt: skip
"""The conditions that the sentence has words of its own for."""


def hash_of(conditions: Mapping[str, Any]) -> str:
    """The SHA-256 of conditions: of their names and values, sorted by name."""
    text = json.dumps(conditions, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_blind_run_of(facts: "RunFacts", other: "RunFacts") -> bool:
    """Whether `other` is the run of `facts` with grey views: equal questions, answerer and other conditions."""
    return (
        other.is_blind
        and other.questions_sha256 == facts.questions_sha256
        and other.conditions | {"renderer": facts.setting("renderer")} == facts.conditions
        and other.answerer == facts.answerer
        and other.scoring == facts.scoring
    )


def protocol_of(facts: "RunFacts") -> str:
    """The conditions in a sentence for people; nothing compares it."""
    setting = facts.setting
    conditions = facts.conditions
    official = "official " if setting("benchmark") == DEFAULT and (facts.source is None or facts.source.own) else ""
    scoring = f"{official}{_title(facts)} scoring"
    width, height = setting("image_size")
    if facts.frames is not None:
        frames = f"{facts.frames} frame{'' if facts.frames == 1 else 's'} of at most {width * height} pixels"
        words = f"words {conditions['words'][:12]}{_replies(facts)}"
        shown = "as one video" if conditions["video_input"] == "native" else "in one message"
        asked = f"{frames} {shown}, {words}, official prompt and reading"
        return f"video protocol, {asked}, {scoring}{_others(facts)}"
    camera = Intrinsics(width, height, setting("focal"))
    in_view = f" ({camera.horizontal_fov_deg:.0f} x {camera.vertical_fov_deg:.0f} degrees in view)"
    more = "".join(f"with {name}, " for name in setting("see")[1:])
    up = "" if setting("up_axis") == "auto" else f", {setting('up_axis')} up"
    up += "" if setting("scale") == 1 else f", scans scaled by {setting('scale'):g}"
    boxes = next((name for name in setting("given") if name != "path"), "")
    given = {"": "", "boxes": ", boxes of all objects given as text"}.get(
        boxes, ", boxes of the objects in view given as text"
    )
    told, reading = "", ""
    replies = "" if setting("temperature") == 0 else f", {_decoding(facts)}"
    if prompts := conditions["prompts"]:
        told = f", {_told(setting('tell'))} told"
        reading = ' of answers read from the last JSON action ("(B)" as B, "2m" as 2)'
        replies = f"{'' if facts.by_people else _replies(facts)}, prompts {prompts[:12]}"
    actions = setting("actions").rpartition("/")[2]
    return (
        f"{'BLIND, every view grey: ' if facts.is_blind else ''}{_camera(facts)}"
        f"{'' if actions == 'metric' else f' by {actions} actions'}{told}{given}, "
        f"{0 if setting('moves') == 'none' else setting('steps')} moves, "
        f"{_counted(facts)}{width}x{height} px, {more}focal {setting('focal'):g} px{in_view}, "
        f"eye {setting('camera_height'):g} m (lower in low rooms), pitch {setting('camera_pitch'):g} degrees, "
        f"first view by visibility{up}{replies}, "
        f"{scoring}{reading}{_drawn(facts)}{_others(facts)}"
    )


def _title(facts: "RunFacts") -> str:
    """The title of the benchmark; the name of code that the run does not describe, since reading executes none."""
    name = facts.setting("benchmark")
    if facts.benchmark is not None:
        return facts.benchmark.title
    return find_benchmark(name).title if name in benchmark_names() else str(name)


def _decoding(facts: "RunFacts") -> str:
    temperature = facts.setting("temperature")
    greedy = "greedy" if facts.setting("engine") != "openai" else "temperature 0 unless the server refuses it"
    decoding = greedy if temperature == 0 else f"temperature {temperature:g}"
    return ", ".join([decoding, *(each.replace("=", " ") for each in facts.config.get("generation", ()))])


def _replies(facts: "RunFacts") -> str:
    setting = facts.setting
    by_server = facts.setting("engine") == "openai"
    engine = "" if setting("engine") == "transformers" else f"engine {setting('engine')}"
    where = ", ".join(filter(None, [engine, "" if by_server else setting("dtype"), setting("quantize")]))
    constrained = ", constrained to a JSON schema" if by_server else ", constrained"
    asked = f", further parameters {setting('extra_body')}" if setting("extra_body") else ""
    revision = f", revision {setting('revision')}" if setting("revision") else ""
    weights = facts.answerer.get("adapter_sha256")
    adapter = f", adapter {setting('adapter').rpartition('/')[2]} {weights[:12]}" if weights else ""
    return (
        f", {where}{revision}{adapter}, {_decoding(facts)}, replies of {setting('max_new_tokens')} tokens at most"
        f"{constrained if setting('constrained') else ''}{asked}"
    )


def _camera(facts: "RunFacts") -> str:
    moves_of = facts.setting("moves_of")
    who = who_moves(facts.setting("moves"), moves_of, facts.setting("given"))
    if who == "recorded":
        return f"camera moved in the scan as in run {moves_of.rpartition('/')[2]}"
    moved = GIVEN_PATH if who == "given path" else MOVERS.get(who)
    words = moved.words if moved else "free camera{turning} in the scan"
    return words.format(turning="" if facts.setting("translation") else " that only turns")


def _told(tell: Sequence[str]) -> str:
    """What the prompts reveal; without a word of the turns if they do, as usual."""
    words = {"pose": "its pose", "extent": "the room's extent"}
    told = " and ".join(words[name] for name in tell if name in words) or "no pose"
    return told if "turns" in tell else f"{told} and no turns"


def _counted(facts: "RunFacts") -> str:
    """How views are presented and which answers count; empty as usual."""
    setting = facts.setting
    parts = ["all views in one message"] if setting("present") == "once" else []
    parts += [f"the first view and the last {setting('keep_views')} shown"] if setting("keep_views") else []
    parts += [f"no answer before turn {setting('min_turns')}"] if setting("min_turns") else []
    return "".join(f"{part}, " for part in parts)


def _drawn(facts: "RunFacts") -> str:
    """The renderer; empty for grey views, with which the sentence begins."""
    renderer = facts.setting("renderer")
    return "" if facts.is_blind or renderer is None else f", drawn by {renderer}"


def _others(facts: "RunFacts") -> str:
    """The conditions without words of their own, those that differ from their defaults, which `flags` has."""
    return "".join(
        f", {name}={' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in facts.conditions.items()
        if name not in IN_WORDS and not {flag(name), flag(name, False)}.isdisjoint(facts.flags)
    )
