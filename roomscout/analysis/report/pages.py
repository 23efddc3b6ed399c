"""What the pages of a report show, as JSON values: the table's rows and the page of each question."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roomscout.analysis.report.contents import OUTCOMES, AnswerContents, Entry, RunContents
from roomscout.analysis.report.maps import FloorPlans, map_of
from roomscout.base.shots import PICTURE
from roomscout.base.text import escaped, escaped_text
from roomscout.data.boxes import BoxError, ObjectBox, needed_for
from roomscout.rendering.scene import SceneError
from roomscout.runs.prices import Price, in_money
from roomscout.runs.records import ForcedAnswer, RunFacts, Turn, image_files
from roomscout.runs.sights import SIGHTS, Sight
from roomscout.scoring.headline import scores_in_words

Link = Callable[[Path], str | None]  # the address of an image in a page; None if it cannot be shown


def script(function: str, *values: Any) -> str:
    """JavaScript that calls a function of report.js with JSON values, safe within a page and in a file of its own."""
    return f"roomscout.{function}({', '.join(map(script_json, values))});\n"


def script_json(value: Any) -> str:
    """A value as compact ASCII JSON that ends no script element and begins no comment in one, with texts `escaped`."""
    return json.dumps(_escaped(value), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {escaped(name): _escaped(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(part) for part in value]
    return escaped_text(value) if isinstance(value, str) else value


def index_of(entries: Sequence[Entry], run: RunContents) -> dict[str, Any]:
    """The rows of the table, of answers of a run; types, scenes, outcomes, sights and people are positions in lists.
    `left_out` are the types that the overall of the run leaves out; each row ends with the other answer of its pair."""
    types = list(dict.fromkeys(entry.question.question_type for entry in entries))
    scenes = list(dict.fromkeys(entry.question.scene_name for entry in entries))
    outcomes = list(OUTCOMES)
    sights = list(SIGHTS)
    type_at = {name: place for place, name in enumerate(types)}
    scene_at = {name: place for place, name in enumerate(scenes)}
    people = sorted({entry.person for entry in entries} - {""})
    return {
        "types": types,
        "left_out": run.left_out,
        "scenes": scenes,
        "people": people,
        "outcomes": outcomes,
        "sights": sights,
        "rows": [
            [
                entry.name,
                type_at[entry.question.question_type],
                scene_at[entry.question.scene_name],
                " ".join(entry.question.question.split()),
                outcomes.index(entry.outcome),
                None if entry.score is None else round(entry.score, 4),
                entry.answer,
                entry.truth,
                entry.turns,
                round(entry.distance_m, 2),
                None if entry.sight is None else sights.index(entry.sight),
                people.index(entry.person) if entry.person else None,
                run.twin_of(entry.name),
            ]
            for entry in entries
        ],
    }


def page_of(answer: AnswerContents, run: RunContents, plans: FloorPlans, link: Link) -> dict[str, Any]:
    """The page of an answer. `link` gives the address of an image file. "replay" is for the address of its replay."""
    missing: list[str] = []
    sight = answer.sight
    drawn = _map(answer, run.facts, plans, link, missing)
    turns = [turn_values(turn, answer, link, missing) | _in_view(turn, sight) for turn in answer.turns]
    in_view = ""
    if sight is not None and sight.verdict is not None:
        in_view = sight.verdict.replace("_", " ") + (f": {sight.in_words}" if sight.objects else "")
    replay = ["roomscout", "replay", str(run.folder), str(answer.episode)]
    folder = run.folder_of(answer.episode).relative_to(run.folder.parent)
    in_scan = answer.turns and run.facts.frames is None
    return {
        **answer_values(answer),
        "cost": _cost(answer, run.facts.price),
        "folder": str(folder),
        "replay": None,
        "replay_command": shlex.join(replay) if in_scan else "",
        "map": drawn,
        "twins": _twins(answer, run, link),
        "sight": in_view,
        "turns": turns,
        "missing": missing,
    }


def _twins(answer: AnswerContents, run: RunContents, link: Link) -> list[dict[str, Any]]:
    """Of both answers of a pair the name, the answer, the truth and a view; empty without a pair."""
    other = run.twins.get(answer.episode.number)
    if other is None:
        return []
    both = [answer, run.answer(answer.episode._replace(number=other))]
    return [
        {
            "name": str(each.episode),
            "answer": each.entry.answer or ("no answer" if each.row else OUTCOMES[each.outcome]),
            "truth": each.entry.truth,
            "view": link(each.clearest_view) if each.clearest_view else None,
        }
        for each in both
    ]


def replay_file(run: Path, name: str) -> Path:
    """Where `roomscout replay` writes the replay of an answer by default, from the name of its folder."""
    return run / f"replay_{name}.html"


def _cost(answer: AnswerContents, price: Price | None) -> str:
    """The tokens of an answer, and what they cost; empty without a model."""
    computed, cached, written = answer.entry.cost.tokens
    if not computed + cached + written:
        return ""
    money = "" if price is None else f"{in_money(round(price.of(computed, cached, written), 9))}: "
    return f"{money}{computed + cached:,} tokens read ({cached:,} cached), {written:,} written"


def answer_values(answer: AnswerContents) -> dict[str, Any]:
    """What was asked and how it ended, without the turns."""
    row = answer.row
    entry = answer.entry
    question = answer.question
    chosen = row.answer if row else None
    return {
        "id": question.id,
        "type": question.question_type,
        "dataset": question.dataset,
        "scene": question.scene_name,
        "question": question.question,
        "options": [
            [option, _is_option(chosen, option), _is_option(question.ground_truth, option)]
            for option in question.options
        ],
        "answer": entry.answer,
        "truth": entry.truth,
        "score": entry.score,
        "scores": scores_in_words(row.scores) if row else {},
        "status": row.status if row else answer.outcome,
        "outcome": answer.outcome,
        "error": (row and row.error) or "",
        "failed": (row and row.failed_part) or "",
        "person": answer.person,
        "distance": round(entry.distance_m, 2),
        "seconds": round(entry.cost.worked_seconds, 2),
        "system": "\n\n".join(message["text"] for message in answer.messages if message["role"] == "system"),
    }


def _is_option(letter: str | None, option: str) -> bool:
    return letter is not None and option.lstrip(" (")[:1] == letter.upper()


def _map(
    answer: AnswerContents, facts: RunFacts, plans: FloorPlans, link: Link, missing: list[str]
) -> dict[str, Any] | None:
    """The map with its floor plan and the objects on it, as far as these are known; None without turns in a scan."""
    if not answer.turns or any(turn.frames for turn in answer.turns):
        return None
    image = None
    place = None
    named: list[ObjectBox] = []
    scan = answer.turns[0].scan
    if scan is None:
        missing.append("The map has no floor plan: the run does not record which scan it used.")
    else:
        try:
            path, place = plans.draw(scan, answer.turns[0].pose.z_m)
            image = link(path)
        except SceneError as error:
            missing.append(f"The map has no floor plan: {error}.")
        try:
            named = answer.named(plans.boxes.of(Path(scan.file), answer.question.scene_name))
        except BoxError as error:
            missing.append(f"{error}.")
    unseen = unseen_of(answer, named)
    drawn = map_of(answer.turns, place, named, facts.intrinsics.horizontal_fov_deg, answer.places)
    return {
        **drawn,
        "image": image,
        "boxes": [[*box, named[place] in unseen] for place, box in enumerate(drawn["boxes"])],
        "about": counted_names(named),
        "unseen": counted_names(unseen),
    }


def unseen_of(answer: AnswerContents, named: Sequence[ObjectBox]) -> list[ObjectBox]:
    """Those of the `named` boxes whose objects no view showed; none if that is not known, or of other boxes."""
    if answer.sight is None:
        return []
    unseen = []
    needs = needed_for(answer.question.question, answer.question.options, named)
    for needed, seen in zip(needs, answer.sight.objects, strict=False):
        if needed.category != seen.category or len(needed.boxes) != len(seen.pixels):
            return []
        unseen += [box for box, pixels in zip(needed.boxes, seen.pixels, strict=True) if not any(pixels)]
    return unseen


def counted_names(boxes: Sequence[ObjectBox]) -> str:
    """The categories of boxes with how many there are of each, such as "4 × towel, bed"."""
    counts = Counter(box.category for box in boxes)
    return ", ".join(f"{number} × {name}" if number > 1 else name for name, number in counts.items())


def turn_values(turn: Turn, answer: AnswerContents, link: Link, missing: list[str]) -> dict[str, Any]:
    """What was seen, said and done in a turn. A missing image is added to `missing`."""
    missing += [f"The view {shot.path.name} is missing." for shot in turn.shots if shot.file is None]
    files = [shot.file for shot in turn.shots]
    view, *more = [link(file) if file else None for file in files]
    pose = turn.pose
    reply = turn.reply
    seconds = turn.seconds
    where = f"{pose.place}, heading {pose.heading_deg:.0f}°, pitch {pose.pitch_deg:.0f}°"
    return {
        "turn": turn.turn,
        "view": view,
        **({"more": list(zip(map(caption_of, turn.see), more, strict=True))} if more else {}),
        "pose": turn.frames.in_words if turn.frames else where,
        "action": turn.action.in_words,
        "requested": turn.requested.in_words if turn.requested else "",
        "answers": turn.action.done,
        "camera": "; ".join(filter(None, [turn.uses_in_words, turn.camera_in_words])),
        "stopped": turn.stopped,
        "reply": "" if answer.by_person else reply.text,
        "comment": _comment_in(reply.text) if answer.by_person else "",
        "read": _read_in(turn, answer),
        "error": turn.parse_error or "",
        "clamped": turn.clamped,
        "truncated": reply.finish_reason == "length",
        "tokens": [reply.prompt_tokens, reply.reused_tokens, reply.generated_tokens],
        "retries": reply.retries,
        "batch": len(turn.batch),
        "seconds": [round(value, 2) for value in (seconds.preprocess, seconds.prefill, seconds.decode, seconds.render)],
        **({"forced": [forced_in_words(turn.forced, answer), turn.forced.reply.text]} if turn.forced else {}),
        **({"belief": [turn.belief.in_words, turn.belief.reply.text]} if turn.belief else {}),
    }


def _comment_in(reply: str) -> str:
    """What a person wrote beside an answer, in the JSON of the reply that the page made."""
    try:
        return str(json.loads(reply).get("comment", ""))
    except (AttributeError, ValueError):  # a reply that somebody changed
        return ""


def caption_of(image: str) -> str:
    """What an image beside the view is called below it: pictures of the question by their number, others by name."""
    number = image.removeprefix(PICTURE)
    if number == image:
        return image
    return "the photo in question" if number == "1" else f"photo {number} in question"


def forced_in_words(forced: ForcedAnswer, answer: AnswerContents) -> str:
    """A forced answer with its score, such as "A. chair, score 1.00"."""
    score = "" if forced.score is None else f", score {forced.score:.2f}"
    return (answer.question.in_words(forced.answer) or "no answer") + score


def _in_view(turn: Turn, sight: Sight | None) -> dict[str, Any]:
    """The needed objects in a turn's view with their pixels, if those are enough, and the percent of surface seen."""
    if sight is None:
        return {"objects": [], "surface": None}
    objects = []
    for seen in sight.objects:
        pixels = seen.at(turn.turn)
        name = f"{len(pixels)} × {seen.category}" if len(pixels) > 1 else seen.category
        objects.append([name, sum(pixels), sum(pixels) >= sight.enough])
    return {"objects": objects, "surface": round(100 * sight.surface[turn.turn])}


def _read_in(turn: Turn, answer: AnswerContents) -> str:
    """The text that the model read with a turn's images; with all views at once, that of the last ones."""
    last = next(shot.path.name for shot in reversed(turn.shots) if not shot.name.startswith(PICTURE))
    users = [message for message in answer.messages if message["role"] == "user"]
    if turn.turn < len(users) and "text_in_its_turn" in users[turn.turn]:  # it shows its images no longer
        return str(users[turn.turn]["text_in_its_turn"])
    return next((user["text"] for user in users if last in (*image_files(user)[-1:], user.get("frames"))), "")
