"""What a model reads in a run, how its replies are read, and who moves the camera."""

from dataclasses import replace

from roomscout.agent.actions import find_space
from roomscout.agent.policies.movers import RecordedMoves, named_mover
from roomscout.agent.policies.prompts import MAP_PROBE, model_prompts
from roomscout.agent.policies.replies import action_format
from roomscout.agent.spec import WorldSpec
from roomscout.agent.state import Rules
from roomscout.edge.basis import Basis
from roomscout.edge.resuming import saved_prompts
from roomscout.edge.sections import RenderSettings
from roomscout.edge.settings import ANSWER_SETTINGS, names_in
from roomscout.edge.types import TELL_NAMES
from roomscout.models import ReplyFormat

VIEW_SETTINGS = (*(name for name in names_in(RenderSettings) if name in ANSWER_SETTINGS), "actions")
"""Settings that must be those of the run whose moves are repeated, so that equal poses give equal views."""


def rules_of(basis: Basis, world: WorldSpec) -> Rules:
    """The rules of the questions; raises ConfigError, SettingError, or RunError for a damaged run of moves."""
    settings = basis.settings
    if basis.video is not None:
        return Rules(video=basis.video, native=_is_native(basis, world))
    rules = Rules(
        moves=settings.who_moves,
        at_once=settings.present == "once",
        min_turns=settings.min_turns,
        translation=settings.translation,
        actions=settings.actions,
        boxes=settings.boxes,
        keep_views=settings.keep_views,
        tell=tuple(name for name in TELL_NAMES if name in settings.tell),
        see=settings.see,
        probe=_probe_of(basis),
    )
    if basis.model is None and basis.request.run is not None:
        prompts = saved_prompts(basis.request.run)
    else:
        own = model_prompts(settings.prompts, settings.model) if basis.model is None else basis.model.prompts
        prompts = own.with_advice_of(basis.questions.benchmark).under(rules)
    space = find_space(settings.actions)
    form = ReplyFormat()
    constrained = settings.constrained if basis.policy is None else basis.policy.settings.get("constrained")
    if constrained:
        allowed = space if settings.translation else space.at_place
        form = action_format(True, allowed)
    mover = named_mover(settings.who_moves, settings.seed)
    if settings.moves_of is not None:
        views = {name: value for name, value in settings.as_json.items() if name in VIEW_SETTINGS and value != "auto"}
        mover = RecordedMoves(settings.moves_of, views, basis.questions.here, basis.questions.samples, settings.steps)
    return replace(rules, prompts=prompts, form=form, mover=mover)


def _probe_of(basis: Basis) -> str:
    """What asks for maps, as the run began; empty without."""
    if basis.settings.probe == "none":
        return ""
    recorded = None if basis.facts is None else basis.facts.probe
    return MAP_PROBE if recorded is None else str(recorded.templates["map"])


def _is_native(basis: Basis, world: WorldSpec) -> bool:
    """Whether frames are shown as one video, as they are to a model of transformers that takes videos; raises
    ModelError. An input of one frame is no video, and the rate of images in a folder is not known."""
    films = world.films
    assert films is not None, "a run on videos has films"
    if basis.facts is not None:
        return bool(basis.facts.conditions["video_input"] == "native")
    if not films.form or films.frames == 1:
        return False
    if basis.model is not None:
        return getattr(basis.model.backend, "sees_videos", False)
    if basis.checkpoint is None or basis.settings.engine != "transformers":
        return False
    return basis.checkpoint.sees_videos
