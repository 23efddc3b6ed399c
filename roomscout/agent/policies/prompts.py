"""Every word that a model reads, as a value: `Prompts` holds templates, which `messages` fills in.

A checkpoint may bring its own in prompts.yaml, and the setting `prompts` names others. Templates use Python's format syntax.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from itertools import chain
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, get_args

from roomscout.agent.actions import find_space
from roomscout.agent.actions.metric import METRIC
from roomscout.agent.actions.space import ActionSpace
from roomscout.base.errors import SettingError
from roomscout.base.shots import VIEW
from roomscout.data.benchmark import ADVICE_NEEDS, Benchmark, wrong_needs
from roomscout.models import EMBEDDED, EXPLORER, PROMPTS_FILE
from roomscout.models.checkpoint_files import TellName
from roomscout.rendering.modalities import find_modality

ANY_TYPE = "default"  # the key of the advice for question types that have none

_LENS = """\
The camera's field of view is {horizontal_fov} degrees wide and {vertical_fov} degrees high. {pitch_rule}"""
_WHITE = "Holes in the scan are white."
_REPLY = "Reply with a sentence or two about what you see and conclude, then exactly one JSON object"
_GIVES_ANSWER = f"""\
{_REPLY} that gives your answer:
{{action}}

{{actions}}
- answer: {{answer_form}}.
- done: true, together with your answer.

{_LENS} {_WHITE} {{advice}}"""

_WOULD_MOVE = (
    "What follows says how you would move the camera if you controlled it. It is recorded and not carried out:"
)
_EXPLORES = f"""\
{{action}}

{{actions}}
- answer: null while you are exploring; at the end, {{answer_form}}.
- done: true only together with your final answer, which ends the exploration.

{_LENS}"""

_FORMS = {
    "system": f"""\
You are inside a 3D scan of a room and see it through a camera that you control. You have to answer one question about \
the room. Each turn shows you the current view. {_REPLY} that either moves the camera or gives your answer:
{_EXPLORES} The camera stays inside the room and cannot pass through walls or furniture; the next message says when a move \
was blocked. {_WHITE} {{advice}}""",
    "watching": f"""\
You see a 3D scan of a room through a moving camera, which you do not control. You have to answer one question about \
the room. Each turn shows you the current view. {_REPLY}:
{{action}}

{{actions}}
- answer: null until the last view; then {{answer_form}}.
- done: true only together with your final answer, in the last turn.

{_LENS} {_WHITE} {{advice}}""",
    "one_view": "You see one view of a 3D scan of a room. You have to answer one question about the room from this view "
    f"alone. {_GIVES_ANSWER}",
    "at_once": "You see views of a 3D scan of a room, in the order in which a camera took them. You have to answer one "
    f"question about the room. {_GIVES_ANSWER}",
    "turning": f"""\
You are inside a 3D scan of a room and see it through a camera that you can turn in place. You have to answer one \
question about the room. Each turn shows you the current view. {_REPLY} that either turns the camera or gives your \
answer:
{_EXPLORES} The camera stays where it is. {_WHITE} {{advice}}""",
}
"""The system templates for every action space, by the field of Prompts or Variants that has each for the default one."""
_SCALE = "(0 is level, negative looks down)"


def _in_space(name: str, form: str, space: ActionSpace) -> str:
    """The system template of one of _FORMS, in the words of an action space; raises SettingError if it has no such."""
    used = space.at_place if name == "turning" else space
    watching = used.watching or f"{_WOULD_MOVE}\n{used.lines}"
    lines = {"watching": watching, "one_view": used.while_still, "at_once": used.while_still}
    composed = form.replace("{actions}", lines.get(name, used.lines))
    if used is not METRIC and "{actions}" in form:  # its example is filled in with the rest
        example = used.example(still=name in ("one_view", "at_once"))
        composed = composed.replace("{action}", example.replace("{", "{{").replace("}", "}}"))
    rule = f"Its pitch is always {{pitch}} degrees {_SCALE}."
    if space.pitches and name != "one_view":
        rule = f"Its pitch is {{pitch}} degrees at the start {_SCALE}; the next messages say when it changes."
    return composed.replace("{pitch_rule}", rule)


_SYSTEMS = {name: _in_space(name, form, METRIC) for name, form in _FORMS.items()}
_PICTURE = "Image {number} of this message is a picture that belongs to the question, not a view of the camera."
_BOXES = """\
each with the centre of its box as x, y and height above the floor, its length, width and height in metres, and the \
heading of its length in degrees:
{objects}
The camera started at x {start_x:z.2f}, y {start_y:z.2f}, heading {start_heading} degrees (0 faces +x, 90 faces +y)."""
MAP_PROBE = """\
Before you go on, a question beside the task: neither move nor answer now. List the objects that you have seen so far, \
each with its place in metres from where you started: forward and to the left of the direction in which you looked at \
the start; what is behind or to the right of that is negative. Reply with a JSON list only, with an entry for each object:
[{"object": "chair", "forward_m": 1.5, "left_m": -0.5}]"""
"""What asks for a map, below the message of the turn; no template."""
LOOKS = "Looks {degrees:g} degrees {side}."
MEASURED = "Measured {result}."


@dataclass(frozen=True)
class Variants:
    """Templates that stand in for others in a run with controls (`Controls`), so that all that a model reads is true.
    `_stand_ins` says when; the parts `count` and `rule` together stand in for `remaining_turns`."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    watching: str = _SYSTEMS["watching"]  # the system template if the model does not move the camera,
    one_view: str = _SYSTEMS["one_view"]  # if it sees the first view only,
    at_once: str = _SYSTEMS["at_once"]  # if it sees all views in one message,
    turning: str = _SYSTEMS["turning"]  # and if it moves the camera, which only turns
    count: str = "Turn {turn}: {moves} left."  # left out if the prompts do not tell the turns
    count_watching: str = "Turn {turn}, views to come: {left}."  # if the model does not move the camera
    count_turning: str = "Turn {turn}, turns of the camera left: {left}."  # if the camera only turns
    rule: str = "Answer as soon as you are sure."  # when to answer
    rule_watching: str = "Answer when you see the last view."  # if the model does not move the camera
    rule_early: str = "Answer as soon as you are sure, but not before turn {first}."  # if no earlier answer counts
    last_watching: str = 'This is the last view. Give your best answer now, with "done": true.'  # as `watching`
    last_one_view: str = 'This is the only view. Give your best answer now, with "done": true.'  # as `one_view`
    last_at_once: str = 'These are all views. Give your best answer now, with "done": true.'  # as `at_once`
    last_turning: str = 'This is the last turn: you cannot turn the camera again. Give your best answer now, with "done": true.'  # as `turning`
    unreadable: str = "Your reply could not be used: {error}."  # the outcome of a reply that did not turn the camera
    not_counted: str = "Your answer was recorded, but only the answer to the last view counts."
    """The outcome of an answer before the last view."""
    not_counted_early: str = "Your answer was recorded, but no answer before turn {first} counts."
    """The outcome of an answer before the first turn whose answer counts."""
    view: str = "View {number}:"  # precedes the outcome and the position of each view, if all are in one message
    boxes: str = f"All objects in the room, {_BOXES}"  # all boxes, in turn 0
    boxes_seen: str = f"Objects that have come into view, {_BOXES}"  # the new ones of a turn, if boxes in view are told
    no_boxes: str = "No new object has come into view."  # in place of `boxes_seen`
    box: str = (
        "- {name}: centre {x:z.2f}, {y:z.2f}, {height:z.2f}; size {length:.2f} x {width:.2f} x {tall:.2f}; "
        "heading {heading}"
    )  # a line of `objects`
    kept: str = (
        "The conversation shows the images of the first turn and of the last {turns}; each turn between them is "
        "replaced by a note without its images."
    )  # what the system prompt adds if not all views are kept
    hidden: str = "Turn {number}, whose images are no longer shown:"  # the note in place of the images of a turn
    advice_untold: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {"moves": {ANY_TYPE: "Pay attention to everything that the question needs."}}
    )
    """Advice by what a run lacks of ADVICE_NEEDS, such as "pose" or "pose moves". Of those that apply, the one that
    names the most counts, else the last in that order."""


@dataclass(frozen=True)
class OutcomePrompts:
    """What the model reads about its last reply and move: the sentences that apply, in this order."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    unreadable: str = "Your reply could not be used: {error}. The camera turned a little instead."  # with why
    truncated: str = "it was truncated after {tokens} tokens, so think less and end with the JSON object"
    """Appended to the error of a reply that reached the token limit."""
    clamped: str = "Limited to the allowed range: {values}."  # for numbers outside their range
    turned: str = "Turned {degrees:g} degrees {side}."  # left or right
    not_turned: str = "Did not turn."  # in place of `turned`
    moved: str = "Moved {moved_m:.2f} m."  # as far as asked for
    blocked: str = "Moved {moved_m:.2f} of {requested_m:.2f} m, then blocked by a surface."  # in place of `moved`
    clipped: str = "Moved {moved_m:.2f} of {requested_m:.2f} m, to the edge of the scan."  # in place of `moved`
    not_moved: str = "Did not move."  # in place of `moved`, where no move was asked for
    not_counted: str = ""  # comes first, after an answer that did not count
    measured: str = ""  # precedes `turned`, where the model can measure
    looks: str = ""  # follows `turned`, where the model can change the pitch


@dataclass(frozen=True)
class Controls:
    """The settings of a run on which its prompts depend."""

    moves: str = "model"  # who moves the camera, as `who_moves` says
    at_once: bool = False
    """Whether a policy that does not move sees all views in the last turn, instead of each as it comes."""
    min_turns: int = 0  # the first turn whose answer counts, if the model moves the camera
    translation: bool = True  # whether the camera may leave its place; else it only turns, whoever moves it
    actions: str = METRIC.name  # the action space
    boxes: str = ""  # which boxes are told: "boxes" of all objects, "boxes-seen" of those in view so far, or none
    keep_views: int | None = None
    """With the images of the first turn, how many turns keep theirs, the last ones; None for all."""
    tell: tuple[str, ...] = ("pose", "turns")  # what the prompts reveal
    see: tuple[str, ...] = (VIEW,)  # the images of a turn

    @property
    def model_moves(self) -> bool:
        """Whether the model moves the camera."""
        return self.moves == "model"


@dataclass(frozen=True)
class Prompts:
    """The templates of all prompts; raises ValueError, naming the field, for a template that cannot be filled in.

    Placeholders that begin with `start_` count from where the camera starts (x 0, y 0, heading 0), whatever the scan's
    coordinates are. Those without are in the scan's coordinates, which often give away the room's size, since many scans
    have a corner at 0, 0. Questions whose answers are places in the scan read its coordinates in both.
    An empty template leaves out what it would say.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    system: str = _SYSTEMS["system"]  # the actions, the reply format, the form of the answer and the advice
    opening: str = "Question: {question}"  # the first part of turn 0
    options: str = "Options:\n{options}"  # follows `opening`, if the question has options
    outcome: OutcomePrompts = OutcomePrompts()  # the first part of later turns
    extent: str = "The room spans x {start_x0:z.1f} to {start_x1:z.1f} m and y {start_y0:z.1f} to {start_y1:z.1f} m."
    """The room's size."""
    position: str = (
        "The camera is at x {start_x:z.1f} m, y {start_y:z.1f} m, {height:z.1f} m above the floor{floor}, heading "
        "{start_heading} degrees (0 faces +x, 90 faces +y)."
    )
    """Where the camera is; `floor`, else empty, says where the floor is for answers in the scan's coordinates."""
    remaining_turns: str = "Turn {turn}: {moves} left. Answer as soon as you are sure."  # the last part of a turn
    last_turn: str = 'This is the last turn: you cannot move again. Give your best answer now, with "done": true.'
    """In place of `remaining_turns`."""
    advice: Mapping[str, str] = field(
        default_factory=lambda: {ANY_TYPE: "Look around until you have seen everything that the question needs."}
    )
    """By question type, instead of the benchmark's; "default" is for types without any."""
    view: str = ""  # this and the next five: see Variants
    boxes: str = ""  # in turn 0
    boxes_seen: str = ""  # in every turn, or in its place `no_boxes`
    no_boxes: str = ""  # if a turn has no new box
    box: str = ""  # a line of `boxes` or `boxes_seen`
    hidden: str = ""  # in place of the images of an earlier turn
    picture: str = _PICTURE  # begins turn 0 with each picture of the question, by the `number` of its image
    variants: Variants = field(default=Variants(), compare=False, repr=False)  # not part of the hash; see `under`

    def __post_init__(self) -> None:
        for prefix, record in (("", self), ("outcome.", self.outcome), ("variants.", self.variants)):
            _check(record, prefix)
        for lacking in self.variants.advice_untold:
            if why := wrong_needs(lacking):
                raise ValueError(f"variants.advice_untold {why}")
        for kind, text in chain(
            self.advice.items(), *(texts.items() for texts in self.variants.advice_untold.values())
        ):
            if re.search("[\ud800-\udfff]", kind + text):
                raise ValueError(f"advice for {kind!r} contains an unpaired surrogate: write it as UTF-8")

    @property
    def sha256(self) -> str:
        """A hash of all templates but the variants, 64 hex digits."""
        return sha256_of(self.templates)

    @property
    def templates(self) -> dict[str, Any]:
        """The templates as JSON values, without variants, and without defaults that earlier versions lack."""
        values = asdict(self)
        del values["variants"]
        for kind, record in ((Prompts, values), (OutcomePrompts, values["outcome"])):
            for part in fields(kind):
                if part.default in ("", _PICTURE) and record[part.name] == part.default:
                    del record[part.name]
        return values

    @property
    def in_scan_coordinates(self) -> bool:
        """Whether the camera's position, or without it the extent, is told in the scan's coordinates."""
        return re.search(r"\{[xy][01]?[:}]", self.position or self.extent) is not None

    def under(self, controls: Controls) -> "Prompts":
        """What a model reads under these controls; SettingError if prompts or action space have no words for them."""
        variants = self.variants
        stand_ins = _stand_ins(controls)
        texts = {name: getattr(variants, variant, "") for name, variant in stand_ins.items()}
        for name, variant in stand_ins.items():
            if variant in ("rule_early", "not_counted_early"):
                texts[name] = texts[name].replace("{first}", str(controls.min_turns))
        remaining_turns = self.remaining_turns
        tells_turns = "turns" in controls.tell
        if "count" in texts or "rule" in texts or not tells_turns:
            count = texts.get("count", variants.count)
            rule = texts.get("rule", variants.rule)
            remaining_turns = f"{count} {rule}" if tells_turns else rule
        space = find_space(controls.actions)
        outcome = {name: text for name, text in texts.items() if hasattr(self.outcome, name)}
        if space.pitches:
            outcome["looks"] = LOOKS
        if space.measures:
            outcome["measured"] = MEASURED
        system = self._system(stand_ins.get("system", "system"), controls, space)
        boxes = {"boxes": ("boxes", "box"), "boxes-seen": ("boxes_seen", "no_boxes", "box"), "": ()}[controls.boxes]
        return replace(
            self,
            system=" ".join([system, *self._more(controls, space)]),
            outcome=replace(self.outcome, **outcome),
            extent=self.extent if "extent" in controls.tell else "",
            position=self.position if "pose" in controls.tell else "",
            remaining_turns=remaining_turns,
            last_turn=texts.get("last_turn", self.last_turn),
            advice=self._advice(controls),
            view=texts.get("view", self.view),
            hidden="" if controls.keep_views is None else variants.hidden,
            **{name: getattr(variants, name) for name in boxes},
        )

    def _system(self, name: str, controls: Controls, space: ActionSpace) -> str:
        """The system template of this name, in the words of an action space."""
        if space.measures and not controls.model_moves:
            why = f"the action space {space.name} needs a model that moves the camera"
            raise SettingError(why, setting="actions")
        text = self.system if name == "system" else getattr(self.variants, name)
        form = _FORMS[name] if text == _SYSTEMS[name] else text
        if space is not METRIC and "{actions}" not in form:
            raise SettingError(
                f"the prompts describe the actions of {METRIC.name}, not of {space.name}, in their template {name}: "
                f"write {{actions}} there instead, or take the actions of {METRIC.name}",
                setting="actions",
            )
        return _in_space(name, form, space)

    def _more(self, controls: Controls, space: ActionSpace) -> list[str]:
        """What the system prompt adds on the images."""
        names = [name for name in controls.see if name != VIEW]
        more = [find_modality(name).sentence.replace("{", "{{").replace("}", "}}") for name in names]
        if "marks" in controls.see and space.marked and controls.moves != "none" and not controls.at_once:
            more.append(space.marked)
        turns = controls.keep_views
        if turns is not None:
            words = "turn" if turns == 1 else f"{turns} turns"
            more.append(self.variants.kept.replace("{turns}", words))
        return more

    def _advice(self, controls: Controls) -> dict[str, str]:
        """The advice by type that needs nothing that the run lacks."""
        has = {name: name in controls.tell for name in get_args(TellName)}
        has |= {"translation": controls.model_moves and controls.translation, "moves": controls.model_moves}
        lacking = {name for name in ADVICE_NEEDS if not has[name]}
        advice = dict(self.advice)
        untold = {tuple(names.split()): texts for names, texts in self.variants.advice_untold.items()}
        for needs in sorted(untold, key=lambda needs: (len(needs), sorted(map(ADVICE_NEEDS.index, needs)))):
            if lacking.issuperset(needs):
                advice |= untold[needs]
        return advice

    def with_advice_of(self, benchmark: Benchmark) -> "Prompts":
        """These prompts with the benchmark's advice for the types that they have none for."""
        types = (*benchmark.types, *benchmark.apart.values())
        advice = {kind.name: kind.advice for kind in types if kind.advice}
        untold: dict[str, dict[str, str]] = {}
        for kind in types:
            if kind.name in self.advice:
                continue
            for lacking, text in kind.advice_untold.items():
                untold.setdefault(lacking, {})[kind.name] = text
        for lacking, texts in self.variants.advice_untold.items():
            untold.setdefault(lacking, {}).update(texts)
        variants = replace(self.variants, advice_untold=untold)
        return replace(self, advice={**advice, **self.advice}, variants=variants)


def sha256_of(templates: Mapping[str, Any]) -> str:
    """A hash of templates by name, 64 hex digits."""
    return hashlib.sha256(json.dumps(templates, sort_keys=True).encode()).hexdigest()


def _stand_ins(controls: Controls) -> dict[str, str]:
    """The one table of variants: by a field of Prompts or OutcomePrompts, or a part of `remaining_turns`, the field of
    Variants that stands in for it; empty for no text."""
    if controls.model_moves:
        turning = {"system": "turning", "last_turn": "last_turning", "count": "count_turning"}
        early = {"rule": "rule_early", "not_counted": "not_counted_early"}
        return ({} if controls.translation else turning) | (early if controls.min_turns > 0 else {})
    stand_ins = {"system": "watching", "last_turn": "last_watching", "count": "count_watching", "rule": "rule_watching"}
    stand_ins |= {"unreadable": "unreadable", "not_counted": "not_counted", "clamped": "", "view": ""}
    if controls.moves == "none":
        stand_ins |= {"system": "one_view", "last_turn": "last_one_view"}
    if controls.at_once:
        stand_ins |= {"system": "at_once", "last_turn": "last_at_once", "view": "view"}
    return stand_ins


_SAME_PLACEHOLDERS = {
    **dict.fromkeys(("watching", "one_view", "at_once", "turning"), "system"),
    **dict.fromkeys(("count", "count_watching", "count_turning"), "remaining_turns"),
}
_MORE_PLACEHOLDERS = {
    "system": "{action} {actions} {view_width} {view_height}",
    "extent": "{x0:f} {x1:f} {y0:f} {y1:f}",
    "position": "{x:f} {y:f} {heading}",
    "remaining_turns": "{left}",
    "looks": LOOKS,
    "measured": MEASURED,
}
"""Those that a template may have, and its default lacks."""
_INTEGERS = ("heading", "start_heading", "turn", "left", "number", "first", "tokens")


@cache
def _placeholders(template: str) -> dict[str, Any]:
    """The placeholders of a template of this name with example values: those of its default and _MORE_PLACEHOLDERS."""
    name = _SAME_PLACEHOLDERS.get(template, template)
    defaults = [getattr(record, name, "") for record in (Prompts, OutcomePrompts, Variants)]
    parsed = Formatter().parse("".join([*defaults, _MORE_PLACEHOLDERS.get(name, "")]))
    return {key: 0 if key in _INTEGERS else 0.0 if form else "" for _, key, form, _ in parsed if key}


def _check(record: Prompts | OutcomePrompts | Variants, prefix: str) -> None:
    """Raise ValueError, naming the field, for a template that cannot be filled in. A checkpoint of others may bring
    templates: they must neither look into objects nor ask for gigabytes of padding."""
    for place in fields(record):
        template = getattr(record, place.name)
        if not isinstance(template, str):
            continue
        placeholders = _placeholders(place.name)
        try:
            template.encode()  # an unpaired surrogate is a ValueError
            for _, name, form, conversion in Formatter().parse(template):
                if name is not None and name not in placeholders:
                    raise KeyError(name)
                if conversion or "{" in (form or "") or re.search(r"\d{3}", form or ""):
                    raise ValueError("a placeholder takes a format of at most two digits, and no conversion")
            template.format(**placeholders)
        except (KeyError, IndexError, ValueError) as error:
            takes = ", ".join(f"{{{key}}}" for key in placeholders) or "no placeholders"
            why = f"({type(error).__name__}: {error}): it takes {takes}; write {{{{ for a brace"
            raise ValueError(f"{prefix}{place.name} cannot be filled in {why}") from None


def model_prompts(file: Path | None, model: str) -> Prompts:
    """The prompts in a file, else of the checkpoint, else the default; raises SettingError for an unusable file."""
    try:
        return load_prompts(file) if file else checkpoint_prompts(model)
    except ValueError as error:
        raise SettingError(str(error), setting="prompts" if file else None) from None


def checkpoint_prompts(model: str) -> Prompts:
    """The prompts in a model's checkpoint folder, or the default ones; raises ValueError for a file that is damaged."""
    folder = EXPLORER if model == EMBEDDED else Path(model).expanduser()
    path = folder / PROMPTS_FILE
    # A dangling link, as in a half-copied checkpoint, is an error instead of other prompts than the model was trained on.
    return load_prompts(path) if os.path.lexists(path) else Prompts()


def load_prompts(path: Path) -> Prompts:
    """The prompts in a YAML file; a field that is left out keeps its default. Raises ValueError naming the file."""
    from roomscout.base.plain_yaml import read_yaml

    try:
        return validated_prompts(read_yaml(path))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def validated_prompts(values: object) -> Prompts:
    """Parsed YAML or JSON as Prompts; raises ValueError with the fields that are wrong."""
    from pydantic import ValidationError

    from roomscout.base.record import adapter_of, reasons

    if not isinstance(values, dict) or not values:
        names = ", ".join(template.name for template in fields(Prompts))
        raise ValueError(f"no prompts: it takes texts by name, which are {names}")
    try:
        prompts: Prompts = adapter_of(Prompts).validate_python(values)
        return prompts
    except ValidationError as error:
        raise ValueError(reasons(error)) from None
