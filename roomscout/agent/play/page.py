"""The page on which a person sees what a model would see and makes a reply, and what it asks of its server."""

import json
import re
from collections.abc import Container, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from roomscout.agent.actions.points import SeenPlace, direction_of
from roomscout.agent.actions.space import Key
from roomscout.agent.state import QuestionState
from roomscout.base.shots import Shot
from roomscout.base.text import escaped_text
from roomscout.base.web import PNG, Page, Site
from roomscout.data.answers import Number, YesNo
from roomscout.envs.actions import ALL_LIMITS
from roomscout.models import Reply

if TYPE_CHECKING:
    from roomscout.agent.play.policy import Asked, HumanPolicy

REPORT = "analysis/report/assets"
ASSETS = {
    "styles": [f"{REPORT}/palette.css", f"{REPORT}/report.css", "agent/play/assets/play.css"],
    "script": ["agent/play/assets/play.js"],
}

ANGLE_STEP_DEG, LENGTH_STEP_M = 15.0, 0.25  # what one press of a key adds to a number
PROBE = 0.25  # a number within the range of any key, from which follows what the key does
WAYS = {
    "rotation_angle_degrees": (("ArrowLeft", "Turn left"), ("ArrowRight", "Turn right")),
    "forward_meters": (("ArrowUp", "Step forward"), ("ArrowDown", "Step back")),
    "left_meters": (("Shift+ArrowLeft", "Step left"), ("Shift+ArrowRight", "Step right")),
    "z_delta_meters": (("Shift+ArrowUp", "Move up"), ("Shift+ArrowDown", "Move down")),
    "pitch_angle_degrees": (("PageUp", "Look up"), ("PageDown", "Look down")),
}
"""The keys of a keyboard that make a number of a move larger and smaller, each with what such a number does."""
FORM_OF_REPLIES = re.compile(r"[^.!?\n]*\bJSON\b[^.!?\n]*[.!?:]?|^.*\{\s*[\"}].*$", re.MULTILINE)
"""What prompts say of the form of a reply, which the page makes for people."""


def turn_shown(state: QuestionState) -> tuple[dict[str, Any], list[Shot]]:
    """The conversation of a turn as JSON values, and its images, which the messages name by their number. Has what a
    model reads but the form of replies, and no more: neither the ground truth nor which scan the question is about."""
    question = state.question
    shots = list[Shot]()
    messages = []
    keys = {*state.rules.space.keys, "answer", "done"}
    for message in state.messages().messages:
        images = [{"name": shot.name, "number": number} for number, shot in enumerate(message.shots, len(shots))]
        shots += message.shots
        if message.role != "assistant":  # a person's own replies are what the page wrote
            messages.append({"role": message.role, "text": _for_people(message.text, keys), "images": images})
    with question.kind_code("form"):
        form = question.kind.form(question.letters)
    options = [(letter, f"{letter}. {escaped_text(question.text_of(letter))}") for letter in question.letters]
    if not options and isinstance(question.kind, YesNo):
        options = [("yes", "yes"), ("no", "no")]
    if question.kind.judges_camera:
        options = [("here", "This is the place, and I look the right way")]
    is_number = isinstance(question.kind, Number)
    return {
        "key": f"{state.episode}-{state.turn}",
        "turn": state.turn,
        "last": state.is_last_turn,
        "moves_left": state.steps - state.turn,
        "question": escaped_text(question.question),
        "messages": messages,
        "answer": {"form": form, "unit": question.kind.unit, "options": options, "number": is_number},
    }, shots


def can_practise(state: QuestionState) -> bool:
    """Whether episodes like this one need nothing that a made room lacks."""
    return state.rules.mover is None and not state.rules.boxes and state.env is not None


def _for_people(text: str, keys: Container[str]) -> str:
    """A message without sentences about JSON, JSON, and the list of its keys."""
    lines = FORM_OF_REPLIES.sub("", text).split("\n")
    kept = [line.strip() for line in lines if not line.startswith("- ") or line[2:].partition(":")[0] not in keys]
    return escaped_text(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip())


def controls_of(state: QuestionState) -> dict[str, Any]:
    """The fields of a reply as JSON values, and the `shortcuts`, which change a field by a button or a key. The space
    reads the reply of each; unreadable ones, or of several numbers, are left out. Raises ActionSpaceError."""
    space = state.rules.space if state.rules.translation else state.rules.space.at_place
    fields = [_field(name, key) for name, key in space.keys.items()]
    shortcuts: list[dict[str, Any]] = []
    for field in fields:
        probes = [PROBE, -PROBE] if field.get("number") else [*field.get("choices", ()), *field.get("words", ())]
        for probe in probes:
            decision = state.read(Reply(json.dumps({field["name"]: probe})), last_turn=False)
            moved = {name: amount for name in ALL_LIMITS if (amount := getattr(decision.action, name))}
            if decision.error is not None or len(moved) != 1 or decision.action.then:
                continue
            ((name, amount),) = moved.items()
            shortcut = {"field": field["name"], "append" if "words" in field else "set": probe}
            if field.get("number"):
                step = ANGLE_STEP_DEG if "degrees" in name else LENGTH_STEP_M
                per_unit = amount / probe
                amount = step if amount > 0 else -step
                shortcut = {"field": field["name"], "add": amount / per_unit, "per_unit": per_unit}
            key, words = WAYS[name][amount < 0]
            free = all(other["key"] != key for other in shortcuts)
            label = f"{words} {abs(amount):g} {'degrees' if 'degrees' in name else 'm'}"
            shortcuts.append(shortcut | {"key": key if free else "", "label": label})
    return {"fields": fields, "shortcuts": shortcuts}


def aimed(state: QuestionState, controls: Mapping[str, Any], x: float, y: float) -> dict[str, float]:
    """The numbers that turn the camera towards a pixel of the view, by their fields; none if no number turns it."""
    left, above = direction_of((x, y), SeenPlace(state.observation, state.environment.sight))
    angles = {"ArrowLeft": left, "PageUp": above - state.observation.pose.pitch_deg}
    turns = [shortcut for shortcut in controls["shortcuts"] if "add" in shortcut and shortcut["key"] in angles]
    return {turn["field"]: round(angles[turn["key"]] / turn["per_unit"], 1) for turn in turns}


def _field(name: str, key: Key) -> dict[str, Any]:
    """A key of the space: its value that does not move the camera, and what its schema allows."""
    label = name.replace("_", " ").capitalize()
    if name in WAYS:
        (_, larger), (_, smaller) = WAYS[name]
        label = f"{larger}, {'degrees' if 'degrees' in name else 'm'} (- {smaller.split()[-1]})"
    field: dict[str, Any] = {"name": name, "label": label, "still": key.still, "example": key.example}
    lists = [form for form in key.schema.get("anyOf", [key.schema]) if form.get("type") == "array"]
    if lists:
        field["points"] = 1 if lists[0]["items"].get("type") == "number" else lists[0].get("maxItems", 1)
    elif "enum" in key.schema:
        field["choices"] = [choice for choice in key.schema["enum"] if choice is not None]
    elif "pattern" in key.schema:
        field["words"] = list(dict.fromkeys(re.findall(r"[A-Za-z]\w*", key.schema["pattern"])))
        field["between"] = "".join(re.findall(r"\W+", str(key.example))[:1])
    else:
        field["number"] = key.schema.get("type") == "number"
    return field


@cache
def page() -> bytes:
    """The page, which holds its styles and its script."""
    package = resources.files("roomscout")
    text = (package / "agent/play/assets/play.html").read_bytes()
    for place, names in ASSETS.items():
        text = text.replace(f"/* {place} */".encode(), b"\n".join((package / name).read_bytes() for name in names))
    return text


class PlaySite(Site):
    """The page of the people who answer, and their turns. No response depends on the ground truth of a question of the
    run. With the parameter `practice`, requests are about the practice question."""

    takes_posts = True

    def __init__(self, policy: "HumanPolicy", instructions: str = ""):
        self._policy = policy
        self._instructions = instructions

    def page(self, path: list[str], query: dict[str, str]) -> Page | None:
        """See `Site`. The time of a person runs while the page asks for its state and says that it is in use."""
        if path == [""]:
            return Page(page())
        if (name := self._policy.person(query.get("token", ""))) is None:
            return None
        if path == ["welcome.json"]:
            return Page.of_json({"instructions": self._instructions, "name": name})
        asked, left = self._asked(name, query)
        if path == ["state.json"]:
            if asked is None:
                return Page.of_json({"left": left})
            if query.get("in_use") == "1":
                asked.see()
            place, of = self._policy.place(name)
            progress = {"left": left, "number": place, "of": of, "can_practise": can_practise(asked.state)}
            key = asked.turn["key"]
            turn = {"key": key} if query.get("has") == key else asked.turn
            return Page.of_json(progress | turn)
        if asked is None or query.get("key") != asked.turn["key"]:
            return None
        if path == ["aim.json"] and all(re.fullmatch("[0-9]{1,5}", query.get(each, "")) for each in "xy"):
            return Page.of_json(aimed(asked.state, asked.turn, float(query["x"]), float(query["y"])))
        number = path[1] if path[0] == "images" and len(path) == 2 else ""
        if re.fullmatch("[0-9]{1,4}", number) and int(number) < len(asked.shots):
            return Page(asked.shots[int(number)].png, PNG)
        return None

    def post(self, path: list[str], query: dict[str, str], body: Any) -> Page | None:
        """Take a reply, and count what is left: 422 if it is unreadable; 409 and the state if its turn is over."""
        name = self._policy.person(query.get("token", ""))
        if path != ["reply.json"] or name is None or not isinstance(body, dict):
            return None
        asked, left = self._asked(name, query)
        values = body.get("values")
        answer = body.get("answer")
        why: str | None = None
        if asked is not None and left is not None and body.get("key") == asked.turn["key"]:
            if "practice" in query:
                why = self._policy.reply_to_practice(name, asked, values, answer)
                if not why and asked.state.is_final:
                    return Page.of_json({"left": left, "right": asked.state.question.ground_truth})
            else:
                why = self._policy.reply(asked, values, answer)
        if why is None or asked is None or left is None:
            again = {"error": "this turn is not waiting for a reply: try again if it stays"}
            return Page.of_json({**again, "left": left, "key": asked.turn["key"] if asked else None}, 409)
        if why:
            return Page.of_json({"error": why}, 422)
        return Page.of_json({"left": left - (answer is not None and "practice" not in query)})

    def _asked(self, name: str, query: Mapping[str, str]) -> "tuple[Asked | None, int | None]":
        turn, left = self._policy.current(name)
        if "practice" in query:
            turn = self._policy.practice(name, query["practice"] == "begin")
        return turn, left
