"""What the pages of a report show, as JSON values: the table's rows and the page of each question."""

import json
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roomscout.analysis.report.contents import OUTCOMES, Entry, QuestionContents, RunContents
from roomscout.analysis.report.maps import FloorPlans, map_of
from roomscout.base.text import escaped, escaped_text
from roomscout.data.boxes import BoxError, ObjectBox, needed_for
from roomscout.rendering.scene import SceneError
from roomscout.runs.costs import TOKENS, of_answer
from roomscout.runs.prices import in_money
from roomscout.runs.records import ForcedAnswer, RunFacts, Turn, image_files
from roomscout.runs.sights import SIGHTS, Sight

Link = Callable[[Path], str | None]
"""The address of an image in a page; None if it cannot be shown."""


def script(function: str, *values: Any) -> str:
    """JavaScript that calls a function of report.js with JSON values, safe within a page and in a file of its own."""
    return f"roomscout.{function}({', '.join(map(script_json, values))});\n"


def script_json(value: Any) -> str:
    """A value as compact JSON in ASCII that cannot end a script element or begin a comment in one."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def index_of(entries: Sequence[Entry]) -> dict[str, Any]:
    """The rows of the table; types, scenes, outcomes and sights are positions in lists."""
    types = list(dict.fromkeys(entry.question_type for entry in entries))
    scenes = list(dict.fromkeys(entry.scene for entry in entries))
    outcomes = list(OUTCOMES)
    type_at, scene_at = ({name: place for place, name in enumerate(names)} for names in (types, scenes))
    return {
        "types": list(map(escaped, types)),
        "scenes": list(map(escaped, scenes)),
        "outcomes": outcomes,
        "sights": list(SIGHTS),
        "rows": [
            [
                entry.name,
                type_at[entry.question_type],
                scene_at[entry.scene],
                escaped(" ".join(entry.question.split())),
                outcomes.index(entry.outcome),
                None if entry.score is None else round(entry.score, 4),
                escaped(entry.answer),
                escaped(entry.truth),
                entry.turns,
                round(entry.distance_m, 2),
                None if entry.sight is None else list(SIGHTS).index(entry.sight),
            ]
            for entry in entries
        ],
    }


def page_of(question: QuestionContents, run: RunContents, plans: FloorPlans, link: Link) -> dict[str, Any]:
    """The page of a question. `link` gives the address of an image file; texts are escaped for display.

    "replay" is for the address of its replay, if there is one.
    """
    missing: list[str] = []
    plan, drawn, named = _map(question, run.facts, plans, missing)
    unseen = unseen_of(question, named)
    turns = [
        turn_values(turn, question, run, link, missing) | _in_view(turn, question.sight) for turn in question.turns
    ]
    if question.row is not None and not question.turns and question.row.status != "failed":
        missing.append("The folder has no turns of this question.")
    return {
        **answer_values(question),
        "cost": _cost(question, run.facts),
        "folder": str(run.folder_of(question.episode)),
        "replay": None,
        "replay_command": escaped(_replay_command(question, run)),
        "map": drawn
        and {
            **drawn,
            "image": link(plan) if plan else None,
            "boxes": [[*box, named[place] in unseen] for place, box in enumerate(drawn["boxes"])],
            "about": counted_names(named),
            "unseen": counted_names(unseen),
        },
        "sight": _sight_in_words(question.sight),
        "turns": turns,
        "missing": missing,
    }


def replay_file(run: Path, name: str) -> Path:
    """Where `roomscout replay` writes the replay of an answer by default, from the name of its folder."""
    return run / f"replay_{name}.html"


def _replay_command(question: QuestionContents, run: RunContents) -> str:
    """The command that writes the replay of an answer; empty if it has no turns."""
    in_scan = question.turns and run.facts.frames is None
    return shlex.join(["roomscout", "replay", str(run.folder), str(question.episode)]) if in_scan else ""


def _cost(question: QuestionContents, facts: RunFacts) -> str:
    """The tokens of an answer, and what they cost; empty without a model."""
    found = of_answer(question.turns, facts.price)
    computed, cached, written = (found[name] for name in TOKENS)
    if not computed + cached + written:
        return ""
    money = f"{in_money(found['money'])}: " if "money" in found else ""
    return f"{money}{computed + cached:,} tokens read ({cached:,} cached), {written:,} written"


def answer_values(question: QuestionContents) -> dict[str, Any]:
    """What was asked and how it ended, without the turns; texts are escaped for display."""
    row, entry = question.row, question.entry
    return {
        "id": escaped(question.id),
        "type": escaped(question.question_type),
        "dataset": escaped(question.dataset),
        "scene": escaped(question.scene),
        "question": escaped_text(question.question),
        "options": [
            [escaped(option), _is_option(row.answer if row else None, option), _is_option(question.truth, option)]
            for option in question.options
        ],
        "answer": escaped(entry.answer),
        "truth": escaped(entry.truth),
        "score": entry.score,
        "scores": {name: round(value, 4) for name, value in row.scores.items()} if row else {},
        "status": row.status if row else question.outcome,
        "outcome": question.outcome,
        "error": escaped_text(row.error) if row and row.error else "",
        "failed": row.failed_part if row and row.failed_part else "",
        "distance": round(entry.distance_m, 2),
        "seconds": round(entry.cost.worked_seconds, 2),
        "system": _system(question),
    }


def _is_option(letter: str | None, option: str) -> bool:
    return letter is not None and option.lstrip(" (")[:1] == letter.upper()


def _system(question: QuestionContents) -> str:
    return "\n\n".join(escaped_text(each["text"]) for each in question.messages if each.get("role") == "system")


def _map(
    question: QuestionContents, facts: RunFacts, plans: FloorPlans, missing: list[str]
) -> tuple[Path | None, dict[str, Any] | None, list[ObjectBox]]:
    """The file of the floor plan if there is one, the map, and the objects on it."""
    if any(turn.frames for turn in question.turns):
        return None, None, []
    scan = question.turns[0].scan if question.turns else None
    path = place = None
    named: list[ObjectBox] = []
    if scan is not None:
        try:
            path, place = plans.draw(scan)
        except SceneError as error:
            missing.append(f"The map has no floor plan: {escaped(str(error))}.")
        try:
            named = question.named(plans.boxes(scan, question.scene))
        except BoxError as error:
            missing.append(escaped(f"{error}."))
    elif question.turns:
        missing.append("The map has no floor plan: the run does not record which scan it used.")
    return path, map_of(question.turns, place, named, hfov_deg(facts)), named


def unseen_of(question: QuestionContents, named: Sequence[ObjectBox]) -> list[ObjectBox]:
    """Those of the `named` boxes whose objects no view showed; none if that is not known, or of other boxes."""
    if question.sight is None:
        return []
    found = []
    for needed, seen in zip(
        needed_for(question.question, question.options, named), question.sight.objects, strict=False
    ):
        if needed.category != seen.category or len(needed.boxes) != len(seen.pixels):
            return []
        found += [box for box, pixels in zip(needed.boxes, seen.pixels, strict=True) if not any(pixels)]
    return found


def counted_names(boxes: Sequence[ObjectBox]) -> str:
    """The categories of boxes with how many there are of each, such as "4 × towel, bed"; escaped for display."""
    counts: dict[str, int] = {}
    for box in boxes:
        counts[box.category] = counts.get(box.category, 0) + 1
    return ", ".join(f"{number} × {escaped(name)}" if number > 1 else escaped(name) for name, number in counts.items())


def hfov_deg(facts: RunFacts) -> float | None:
    """The horizontal field of view of a run's cameras in degrees; None if it is not recorded."""
    if (camera := facts.intrinsics) is None:
        return None
    return round(2 * math.degrees(math.atan(camera.width / 2 / camera.focal_px)), 1)


def turn_values(
    turn: Turn, question: QuestionContents, run: RunContents, link: Link, missing: list[str]
) -> dict[str, Any]:
    """What was seen, said and done in a turn; texts are escaped for display. A missing image is added to `missing`."""
    missing += [f"The view {shot.path.name} is missing." for shot in turn.shots if shot.file is None]
    view, *more = [link(file) if (file := shot.file) else None for shot in turn.shots]
    pose, reply, seconds = turn.pose, turn.reply, turn.seconds
    return {
        "turn": turn.turn,
        "view": view,
        **({"more": list(zip(turn.see, more, strict=True))} if more else {}),
        "pose": escaped(turn.frames.in_words)
        if turn.frames
        else f"x {pose.x_m:.2f}, y {pose.y_m:.2f}, z {pose.z_m:.2f} m, heading {pose.heading_deg:.0f}°, "
        f"pitch {pose.pitch_deg:.0f}°",
        "action": escaped(turn.action.in_words),
        "requested": escaped(turn.requested.in_words) if turn.requested else "",
        "answers": turn.action.done,
        "camera": "; ".join(filter(None, [escaped(turn.uses_in_words), turn.camera_in_words])),
        "stopped": turn.stopped,
        "reply": escaped_text(reply.text),
        "read": _read_in(turn, question),
        "error": escaped_text(turn.parse_error) if turn.parse_error else "",
        "clamped": list(map(escaped, turn.clamped)),
        "truncated": reply.finish_reason == "length",
        "tokens": [reply.prompt_tokens, reply.reused_tokens, reply.generated_tokens],
        "retries": reply.retries,
        "batch": len(turn.batch),
        "seconds": [round(value, 2) for value in (seconds.preprocess, seconds.prefill, seconds.decode, seconds.render)],
        **_forced(turn, question),
    }


def _forced(turn: Turn, question: QuestionContents) -> dict[str, Any]:
    """What the model answered as if a turn were the last, and its reply; empty without --anytime."""
    if turn.forced is None:
        return {}
    return {"forced": [forced_in_words(turn.forced, question), escaped_text(turn.forced.reply.text)]}


def forced_in_words(forced: ForcedAnswer, question: QuestionContents) -> str:
    """A forced answer with its score, such as "A. chair, score 1.00"; escaped for display."""
    option = next((each for each in question.options if _is_option(forced.answer, each)), None)
    answer = option or question.in_words(forced.answer, "") or "no answer"
    score = "" if forced.score is None else f", score {forced.score:.2f}"
    return escaped(answer) + score


def _in_view(turn: Turn, sight: Sight | None) -> dict[str, Any]:
    """The objects that the question needs with their pixels in a turn's view, and the percent of surface seen so far.

    Each object has whether its pixels are enough to see it well.
    """
    if sight is None:
        return {"objects": [], "surface": None}
    pixels = [(each.category, each.at(turn.turn), each.objects_at(turn.turn)) for each in sight.objects]
    return {
        "objects": [
            [escaped(f"{count} × {name}" if count > 1 else name), number, number >= sight.enough]
            for name, number, count in pixels
        ],
        "surface": round(100 * sight.surface[turn.turn]),
    }


def _sight_in_words(sight: Sight | None) -> str:
    """What was in view of the objects that the question needs, such as "never saw: 2 of 7 picture never in view"."""
    if sight is None or sight.verdict is None:
        return ""
    words = sight.verdict.replace("_", " ")
    return escaped(f"{words}: {sight.in_words}" if sight.objects else words)


def _read_in(turn: Turn, question: QuestionContents) -> str:
    """The text that the model read with a turn's images; with all views at once, that of the last ones."""
    last, users = turn.shots[-1].path.name, [each for each in question.messages if each.get("role") == "user"]
    if turn.turn < len(users) and "text_in_its_turn" in users[turn.turn]:  # it shows its images no longer
        return escaped_text(users[turn.turn]["text_in_its_turn"])
    of_user = [each for each in users if last in (*image_files(each)[-1:], each.get("frames"))]
    return escaped_text(of_user[0]["text"]) if of_user else ""
