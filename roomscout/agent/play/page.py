"""The page on which a person sees what a model would see and makes a reply, and what it asks of its server."""

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from roomscout.agent.actions.points import SeenPlace, direction_of
from roomscout.agent.actions.space import Key
from roomscout.agent.play.facts import facts_of
from roomscout.agent.play.texts import Texts
from roomscout.agent.state import QuestionState
from roomscout.base.shots import Shot
from roomscout.base.web import PNG, Page, Site
from roomscout.envs.actions import ALL_LIMITS
from roomscout.models import Reply
from roomscout.rendering.renderers import RenderError

if TYPE_CHECKING:
    from roomscout.agent.play.policy import Asked, HumanPolicy

STYLES = ("analysis/report/assets/palette.css", "agent/play/assets/play.css")
SCRIPTS = ("words.js", "preview.js", "compose.js", "turn.js", "play.js")

ANGLE_STEP_DEG, LENGTH_STEP_M = 15.0, 0.25  # what one press of a key adds to a number
PROBE = 0.25  # a number within the range of any key, from which follows what the key does
WAYS = {
    "rotation_angle_degrees": ("ArrowLeft", "ArrowRight"),
    "forward_meters": ("ArrowUp", "ArrowDown"),
    "left_meters": ("Shift+ArrowLeft", "Shift+ArrowRight"),
    "z_delta_meters": ("Shift+ArrowUp", "Shift+ArrowDown"),
    "pitch_angle_degrees": ("PageUp", "PageDown"),
}
"""The keys of a keyboard that make a number of a move larger and smaller."""


def turn_shown(state: QuestionState) -> tuple[dict[str, Any], list[Shot]]:
    """A turn as JSON values, and the images of its conversation, which `messages` has by their number. Has what a
    model can know, and no more: neither the ground truth nor which scan the question is about."""
    shots = list[Shot]()
    messages = []
    for message in state.messages().messages:
        images = [
            {"name": shot.name, "number": number, "ratio": shot.image.shape[1] / shot.image.shape[0]}
            for number, shot in enumerate(message.shots, len(shots))
        ]
        shots += message.shots
        if message.role == "user":
            messages.append({"images": images})
    return facts_of(state) | {"messages": messages}, shots


def can_practise(state: QuestionState) -> bool:
    """Whether episodes like this one need nothing that a made room lacks."""
    return state.rules.mover is None and not state.rules.boxes and state.env is not None


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
            key = WAYS[name][amount < 0]
            free = all(other["key"] != key for other in shortcuts)
            does = {"way": name, "side": "plus" if amount > 0 else "minus", "amount": abs(amount)}
            shortcuts.append(shortcut | {"key": key if free else ""} | does)
    return {"fields": fields, "shortcuts": shortcuts}


def aimed(state: QuestionState, controls: Mapping[str, Any], x: float, y: float) -> dict[str, float]:
    """The numbers that turn the camera towards a pixel of the view, by their fields; none if no number turns it."""
    left, above = direction_of((x, y), SeenPlace(state.observation, state.environment.sight))
    angles = {"ArrowLeft": left, "PageUp": above - state.observation.pose.pitch_deg}
    turns = [shortcut for shortcut in controls["shortcuts"] if "add" in shortcut and shortcut["key"] in angles]
    return {turn["field"]: round(angles[turn["key"]] / turn["per_unit"], 1) for turn in turns}


def _field(name: str, key: Key) -> dict[str, Any]:
    """A key of the space: its value that does not move the camera, and what its schema allows."""
    field: dict[str, Any] = {"name": name, "still": key.still, "example": key.example}
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


def page_in(words: Mapping[str, Any], is_cut: bool = False) -> bytes:
    """The page in these words, which holds its styles and its scripts; `is_cut`: that of a link that is not whole."""
    from jinja2 import Template

    package = resources.files("roomscout")
    assets = package / "agent/play/assets"
    template = Template((assets / "play.html").read_text("utf-8"), autoescape=True)
    values = {
        "words": words,
        "words_json": json.dumps(words).replace("<", "\\u003c"),
        "styles": "".join((package / name).read_text("utf-8") for name in STYLES),
        "scripts": "\n".join((assets / name).read_text("utf-8") for name in SCRIPTS),
        "is_cut": is_cut,
    }
    return template.render(values).encode()


class PlaySite(Site):
    """The page of the people who answer, and their turns. No response depends on the ground truth of a question of the
    run. With the parameter `practice`, requests are about the practice question."""

    takes_posts = True
    errors = (RenderError,)  # of a practice question

    def __init__(self, policy: "HumanPolicy", texts: Texts):
        self._policy = policy
        self._texts = texts
        self._page = Page(page_in(texts.words))
        self._refusal = Page(page_in(texts.words, is_cut=True), status=403)

    def refusal(self) -> Page:
        """The page that says whom to ask for a whole link."""
        return self._refusal

    def page(self, path: list[str], query: dict[str, str]) -> Page | None:
        """See `Site`. The time of a person runs while the page asks for its state and says that it is in use."""
        if path == [""]:
            return self._page
        if (name := self._policy.person(query.get("token", ""))) is None:
            return None
        if path == ["welcome.json"]:
            return Page.of_json({"instructions": self._texts.instructions, "name": name})
        asked, left = self._asked(name, query)
        if path == ["state.json"]:
            return Page.of_json(self._state(name, query, asked, left))
        if asked is None or query.get("key") != asked.turn["key"]:
            return None
        if path == ["aim.json"] and all(re.fullmatch("[0-9]{1,5}", query.get(each, "")) for each in "xy"):
            return Page.of_json(aimed(asked.state, asked.turn, float(query["x"]), float(query["y"])))
        number = path[1] if path[0] == "images" and len(path) == 2 else ""
        if re.fullmatch("[0-9]{1,4}", number) and int(number) < len(asked.shots):
            return Page(asked.shots[int(number)].png, PNG)
        return None

    def _state(self, name: str, query: Mapping[str, str], asked: "Asked | None", left: int | None) -> dict[str, Any]:
        """What is asked of a person and how many questions are left, without the turn that the page says it `has`."""
        progress: dict[str, Any] = {"left": left}
        if left:
            number, of = self._policy.place(name)
            progress |= {"number": number, "of": of}
        if asked is None:
            return progress | self._ending(name, left)
        asked.see(query.get("in_use") == "1")
        progress["can_practise"] = can_practise(asked.state)
        key = asked.turn["key"]
        return progress | ({"key": key} if query.get("has") == key else asked.turn)

    def _ending(self, name: str, left: int | None) -> dict[str, str]:
        """What the researcher says to a person who has answered everything."""
        return {"thanks": self._texts.thanks_to(name)} if left == 0 and self._texts.thanks else {}

    def post(self, path: list[str], query: dict[str, str], body: Any) -> Page | None:
        """Take a reply, and count what is left: 422 if it is unreadable; 409 and the state if its turn is over. With
        `check` in the body, only say how it is read."""
        name = self._policy.person(query.get("token", ""))
        if path != ["reply.json"] or name is None or not isinstance(body, dict):
            return None
        asked, left = self._asked(name, query)
        is_check = bool(body.get("check"))  # which is no error: the page may have gone on meanwhile
        if asked is None or left is None or body.get("key") != asked.turn["key"]:
            status = 200 if is_check else 409
            return self._behind(left, asked, status)
        values = body.get("values")
        answer = body.get("answer")
        if is_check:
            return Page.of_json(self._policy.check(asked, values, answer))
        why = self._policy.reply(asked, values, answer, body.get("comment", ""))
        if why is None:
            return self._behind(left, asked)
        if why:
            return Page.of_json({"error": why}, 422)
        if "practice" not in query:
            left -= answer is not None
            return Page.of_json({"left": left} | self._ending(name, left))
        self._policy.practise_turn(name, asked)
        question = asked.state.question
        over = {"right": question.ground_truth, "object": question.question_type} if asked.state.is_final else {}
        return Page.of_json({"left": left} | over)

    def _behind(self, left: int | None, asked: "Asked | None", status: int = 409) -> Page:
        """That the turn of a reply is over."""
        error = self._texts.say("errors.over")
        return Page.of_json({"error": error, "left": left, "key": asked.turn["key"] if asked else None}, status)

    def _asked(self, name: str, query: Mapping[str, str]) -> "tuple[Asked | None, int | None]":
        turn, left = self._policy.current(name)
        if "practice" in query:
            turn = self._policy.practice(name, query["practice"] == "begin")
        return turn, left
