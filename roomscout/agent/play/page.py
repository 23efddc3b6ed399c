"""The page on which a person sees what a model would see, and what it asks of its server."""

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from roomscout.agent.play.controls import aimed
from roomscout.agent.state import QuestionState
from roomscout.base.shots import Shot
from roomscout.base.text import escaped_text
from roomscout.base.web import PNG, Page, Site
from roomscout.data.answers import Number, YesNo

if TYPE_CHECKING:
    from roomscout.agent.play.policy import HumanPolicy

REPORT = "analysis/report/assets"
ASSETS = {
    "styles": [f"{REPORT}/palette.css", f"{REPORT}/report.css", "agent/play/assets/play.css"],
    "script": ["agent/play/assets/play.js"],
}


def turn_shown(state: QuestionState) -> tuple[dict[str, Any], list[Shot]]:
    """The conversation of a turn as JSON values, and its images, which the messages name by their number.

    Has what a model reads, and no more: neither the ground truth nor which scan the question is about.
    """
    question, shots, messages = state.question, list[Shot](), []
    for message in state.messages().messages:
        images = [{"name": shot.name, "number": number} for number, shot in enumerate(message.shots, len(shots))]
        messages.append({"role": message.role, "text": escaped_text(message.text), "images": images})
        shots += message.shots
    with question.kind_code("form"):
        answer: dict[str, Any] = {"form": question.kind.form(question.letters), "unit": question.kind.unit}
    yes_no = ["yes", "no"] if isinstance(question.kind, YesNo) else []
    options = [(each, f"{each}. {escaped_text(question.text_of(each))}") for each in question.letters]
    turn = {"key": f"{state.episode}-{state.turn}", "turn": state.turn, "last": state.is_last_turn}
    turn |= {"question": escaped_text(question.question), "messages": messages}
    answer |= {"options": options or [(each, each) for each in yes_no], "number": isinstance(question.kind, Number)}
    return turn | {"answer": answer}, shots


@cache
def page() -> bytes:
    """The page, which holds its styles and its script."""
    package = resources.files("roomscout")
    text = (package / "agent/play/assets/play.html").read_bytes()
    for place, names in ASSETS.items():
        text = text.replace(f"/* {place} */".encode(), b"\n".join((package / name).read_bytes() for name in names))
    return text


class PlaySite(Site):
    """The page of the people who answer, and their turns. No response depends on a ground truth."""

    takes_posts = True

    def __init__(self, policy: "HumanPolicy"):
        self._policy = policy

    def page(self, path: list[str], query: dict[str, list[str]]) -> Page | None:
        """See `Site`. The time of a person runs while the page asks for its state and says that it is in use."""
        given = {name: values[0] for name, values in query.items()}
        if path == [""]:
            return Page(page())
        if (name := given.get("annotator", "")) not in self._policy.annotators:
            return Page.of_json({"annotators": self._policy.annotators}) if path == ["state.json"] else None
        asked, left = self._policy.current(name)
        if path == ["state.json"]:
            if asked is None:
                return Page.of_json({"left": left})
            if given.get("in_use") == "1":
                asked.see()
            known = given.get("has") == asked.turn["key"]
            return Page.of_json({"left": left, **({"key": asked.turn["key"]} if known else asked.turn)})
        if asked is None or given.get("key") != asked.turn["key"]:
            return None
        if path == ["aim.json"] and all(re.fullmatch("[0-9]{1,5}", given.get(each, "")) for each in "xy"):
            return Page.of_json(aimed(asked.state, asked.turn, float(given["x"]), float(given["y"])))
        number = path[1] if path[0] == "images" and len(path) == 2 else ""
        if re.fullmatch("[0-9]{1,4}", number) and int(number) < len(asked.shots):
            return Page(asked.shots[int(number)].png, PNG)
        return None

    def post(self, path: list[str], query: dict[str, list[str]], body: Any) -> Page | None:
        """Take a reply, and say how many questions are left: 422 if it cannot be read, 409 if it is to another turn."""
        name = query.get("annotator", [""])[0]
        if path != ["reply.json"] or name not in self._policy.annotators or not isinstance(body, dict):
            return None
        asked, left = self._policy.current(name)
        if asked is None or left is None or body.get("key") != asked.turn["key"]:
            return Page.of_json({"error": "this turn is not waiting for a reply: try again if it stays"}, 409)
        values, answer = body.get("values"), body.get("answer")
        why = self._policy.reply(asked, values if isinstance(values, dict) else {}, answer)
        return Page.of_json({"error": why}, 422) if why else Page.of_json({"left": left - (answer is not None)})
