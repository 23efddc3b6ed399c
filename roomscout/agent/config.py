"""The configuration of a run: all settings of runs/settings.py, from flags, YAML files, run.json or Python."""

import json
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from annotated_types import Ge, Gt, Lt
from pydantic import TypeAdapter, ValidationError

from roomscout.agent.conflicts import conflict_in
from roomscout.base.text import argument_text, did_you_mean
from roomscout.base.wording import flag, named
from roomscout.data.benchmarks import benchmark_names, find_benchmark
from roomscout.data.video_protocol import VideoProtocol
from roomscout.models.views import ViewSettings, view_settings_of
from roomscout.runs.setting_types import NOTHING, TELL_NAMES
from roomscout.runs.settings import (
    HINTS,
    SECTION_OF,
    SECTION_TYPES,
    SECTIONS,
    ClusterSettings,
    ControlSettings,
    JudgeSettings,
    ModelSettings,
    OutputSettings,
    PlaySettings,
    QuestionSettings,
    RenderSettings,
    ScheduleSettings,
    ServerSettings,
    VllmSettings,
    WhatToRun,
)


class ConfigError(ValueError):
    """An invalid flag, YAML key or combination of them. The message names it and says what is valid."""


@dataclass(frozen=True)
class RunConfig:
    """Let a vision-language model explore 3D scans of rooms and answer spatial questions.

    Choose what to run: --batch (many questions), --ply with --question (one question about one scan), --demo (generated
    rooms and the included small model), or --continue (an earlier run).
    """

    what_to_run: WhatToRun = field(default_factory=WhatToRun)
    questions: QuestionSettings = field(default_factory=QuestionSettings)
    views: RenderSettings = field(default_factory=RenderSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    controls: ControlSettings = field(default_factory=ControlSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    vllm: VllmSettings = field(default_factory=VllmSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    play: PlaySettings = field(default_factory=PlaySettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """The configuration with these settings, by name; raises ConfigError with the flag of each invalid one."""
        return cls(**_validated(settings))

    def having(self, **changes: Any) -> Self:
        """This configuration with these settings, by name, changed; raises ConfigError as `of` does."""
        return self.of(**self.settings | changes)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name."""
        return {name: getattr(getattr(self, section), name) for section, names in SECTIONS.items() for name in names}

    @property
    def as_json(self) -> dict[str, Any]:
        """All settings as JSON values by name, which `config_from_dict` reads back."""
        return json.loads(json.dumps(self.settings, default=argument_text))

    def having_view(self, view: ViewSettings) -> Self:
        """This configuration with these settings of views, replies and prompts instead of "auto"."""
        if self.controls.on_video:  # no camera, and nothing is told
            size, longest = view.image_size, view.max_new_tokens
            return self.having(image_size=size, max_new_tokens=longest, frames=self.frames)
        return self.having(**asdict(view) | {"tell": view.tell or NOTHING})

    @property
    def video(self) -> VideoProtocol | None:
        """The protocol of the benchmark on frames of a video, None without --present video.

        Raises ConfigError if the benchmark has none, QuestionError if it is not known.
        """
        if not self.controls.on_video:
            return None
        benchmark = find_benchmark(self.questions.benchmark)
        if benchmark.video is None:
            having = [name for name in benchmark_names() if find_benchmark(name).video]
            raise ConfigError(
                f"{named(present='video')}: {benchmark.title} has no protocol on videos; those that have one are "
                f"{', '.join(having)}, and a Benchmark record of yours whose field video is set"
            )
        return benchmark.video

    @property
    def frames(self) -> int:
        """How many frames of a video are shown; only with --present video, and raises what `video` raises."""
        assert self.video is not None, "only runs on video have frames"
        return self.video.frames if self.controls.frames == "auto" else self.controls.frames

    def checked(self) -> Self:
        """This configuration; raises ConfigError if settings conflict. Call it once all of them are known."""
        if why := conflict_in(self.settings):
            raise ConfigError(why)
        return self

    @property
    def most_images(self) -> int:
        """The most images of a conversation."""
        return (self.most_moves + 1) * self.images_a_turn

    @property
    def images_a_turn(self) -> int:
        """The images of each turn."""
        return self.frames if self.controls.on_video else len(self.views.see)

    @property
    def most_shown(self) -> int:
        """The most images that a conversation shows at a time."""
        kept = self.controls.keep_views
        return self.most_images if kept is None else min(self.most_images, (kept + 1) * self.images_a_turn)

    @property
    def most_moves(self) -> int:
        """The maximum number of moves per question: --steps, or 0 if nobody moves the camera or there is none."""
        return 0 if self.controls.moves == "none" or self.controls.on_video else self.schedule.steps

    @property
    def view(self) -> ViewSettings:
        """The settings of views, replies and prompts, with the model's own in place of "auto".

        Raises ModelError if the checkpoint's views.json is damaged.
        """
        own, views, longest = view_settings_of(self.model.model), self.views, self.model.max_new_tokens
        if self.video is not None and longest == "auto":
            longest = self.video.max_new_tokens
        tell = self.controls.tell
        return ViewSettings(
            own.image_size if views.image_size == "auto" else views.image_size,
            own.focal if views.focal == "auto" else views.focal,
            own.max_new_tokens if longest == "auto" else longest,
            own.tell if tell == "auto" else tuple(name for name in TELL_NAMES if name in tell),
        )


def config_from_dict(values: dict[str, Any], source: str = "") -> RunConfig:
    """A RunConfig from plain values by the names of settings (YAML, JSON or keyword arguments).

    Raises ConfigError naming each invalid key, and `source`, if given.
    """
    try:
        return RunConfig(**_validated(values))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from None


def _validated(values: dict[str, Any]) -> dict[str, Any]:
    """The sections with these values, converted to the types of their settings; raises ConfigError."""
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name in values.keys() & SECTION_OF.keys():
        value = values[name]
        is_one = isinstance(value, str | Path) and any(get_origin(each) is tuple for each in alternatives(HINTS[name]))
        keeps = name == "tell" or value == "auto"
        sections[SECTION_OF[name]][name] = (str(value),) if is_one and not keeps else value
    first: dict[str, Any] = {}  # a union has one problem per member
    valid = {}
    for section, given in sections.items():
        try:
            valid[section] = _adapter(section).validate_python(given)
        except ValidationError as error:
            for problem in error.errors():
                first.setdefault(str(problem["loc"][0]), problem)
    problems = [_in_words(problem, name, values[name]) for name, problem in first.items()]
    problems += [_unknown(name) for name in values if name not in SECTION_OF]
    if problems:
        raise ConfigError("; ".join(problems))
    return valid


@cache
def _adapter(section: str) -> TypeAdapter[Any]:
    return TypeAdapter(SECTION_TYPES[section])


def _in_words(problem: Any, name: str, value: Any) -> str:
    """What is wrong with a setting."""
    if problem["type"] == "value_error":  # raised by a function of runs/setting_types.py
        return f"{named(name)} {problem['msg'].removeprefix('Value error, ')}"
    takes = "a finite number" if problem["type"] == "finite_number" else accepted(HINTS[name])
    got = " ".join(map(str, value)) if isinstance(value, tuple) else value
    return f"{named(name)} takes {takes}, got {got}"


def _unknown(name: str) -> str:
    """Says that there is no such setting, and names what is likely meant."""
    fix = did_you_mean(flag(name), map(flag, SECTION_OF), "--help lists all of them")
    return f"there is no setting {flag(name)}; {fix}"


def accepted(hint: Any) -> str:
    """The values of a setting's type in words, such as "a whole number of at least 1 or auto"."""
    words = _alternatives(hint, ())
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def alternatives(hint: Any) -> list[Any]:
    """The types of a setting's values: the members of a union, or the type alone, without what annotates them."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [each for member in get_args(hint) for each in alternatives(member)]
    return [hint]


def _alternatives(hint: Any, bounds: tuple[Any, ...]) -> list[str]:
    """The members of a union in words. `bounds` are those of the union."""
    if get_origin(hint) is Annotated:
        hint, *rules = get_args(hint)
        bounds += tuple(rule for rule in rules if isinstance(rule, Ge | Gt | Lt))
    if get_origin(hint) in (Union, UnionType):
        return [words for member in get_args(hint) for words in _alternatives(member, bounds)]
    if get_origin(hint) is Literal:
        return list(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return (
            ["a list of texts"] if get_args(hint)[-1] is ... else ["two whole numbers of at least 1 (width and height)"]
        )
    if hint is NoneType:  # the default, which means that the setting is not given
        return []
    kind = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}[hint]
    return [" ".join(filter(None, [kind, " and ".join(map(_bound_in_words, bounds))]))]


def _bound_in_words(rule: Any) -> str:
    match rule:
        case Ge(ge=bound):
            return f"of at least {bound}"
        case Gt(gt=bound):
            return f"above {bound}"
        case _:
            return f"below {rule.lt}"
