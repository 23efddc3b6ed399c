"""The Python API: questions in, trajectories out, with or without a run folder."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from roomscout.agent.builders import asked_of, model_options, server_options, with_policy
from roomscout.agent.config import (
    SECTION_OF,
    SECTIONS,
    ConfigError,
    ModelSettings,
    RunConfig,
    config_from_dict,
)
from roomscout.agent.evaluation import answer_in_memory, main_vsi_bench_loop
from roomscout.agent.planning import Plan
from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.named import make_policy
from roomscout.agent.policies.prompts import model_prompts
from roomscout.agent.policies.replies import action_format
from roomscout.agent.resuming import with_absolute_paths
from roomscout.base.wording import named
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.options import option_texts
from roomscout.data.questions import Question, QuestionError, Selection, normalized
from roomscout.data.scans import SCAN_SUFFIXES
from roomscout.models.callables import backend_from, is_torch_module
from roomscout.models.engines import make_backend
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.runs.settings import DISPLAY_SETTINGS, FILTERS
from roomscout.runs.trajectories import Trajectory, load_trajectories, trajectories

MODEL_SETTINGS = tuple(name for name in SECTIONS["model"] if name not in ("policy", "engine"))
"""Settings that `load_policy` accepts."""


def ask(
    scan: str | Path,
    question: str,
    *,
    options: Sequence[str] | Mapping[str, str] | str | None = (),
    question_type: str | None = None,
    ground_truth: str | None = None,
    policy: Policy | type[Policy] | str | None = None,
    log_root: str | Path | None = None,
    **settings: Any,
) -> Trajectory:
    """Ask one question about one scan file.

    `policy` is the result of `load_policy`, your own policy, its class, or its name "module:Class". By default, the
    model named by the setting `model` decides. Writes a run folder below `log_root`, or nothing if that is None.
    `settings` are other settings of a run, such as `model` or `steps`.

    A failed question returns a trajectory with status "failed". For several answers to one question, see `explore`.
    Raises ConfigError, QuestionError, RenderError, ModelError or RunError if the question cannot be asked, PolicyError
    if a policy raises an error.
    """
    if not isinstance(scan, str | Path):
        raise ConfigError(f"scan takes the path of a scan file, got {scan!r}")
    if not isinstance(question, str):
        raise ConfigError(f"question takes a text, got {question!r}")
    if Path(question).suffix.lower() in SCAN_SUFFIXES and Path(scan).suffix.lower() not in SCAN_SUFFIXES:
        raise ConfigError(f"ask takes the scan before the question: ask({question!r}, {str(scan)!r})")
    try:
        choices = tuple(option_texts(options))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if settings.get("samples", 1) != 1:
        raise ConfigError("ask returns one trajectory: for several answers, call explore with samples")
    about = {"options": choices, "question_type": question_type, "ground_truth": ground_truth}
    config = _config({"ply": scan, "question": question, **about}, policy, log_root, settings)
    return _trajectories(config, asked_of(config.what_to_run, config.questions), policy, log_root is not None)[0]


def explore(
    questions: str | Path | Iterable[Question],
    *,
    policy: Policy | type[Policy] | str | None = None,
    log_root: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> list[Trajectory]:
    """Ask many questions in lockstep, from a question file or as Question objects; returns trajectories in their order.

    Question objects follow the rules of a question file, and are validated before anything starts: ids may be whole
    numbers, and lose blanks around them, as ground truths do. `trajectory.question` is the question after that. Unlike
    the rows of a file, they may have a `ground_truth` of None: they are asked but not scored. All of them are asked,
    also types that the benchmark excludes. Raises QuestionError listing the bad ones by position, from 1, and id.

    With `samples` K, each question is answered K times, and has K neighbouring trajectories. Giving every question K
    times in a list means the same, and returns the trajectories in the list's order.

    On a terminal, a bar counts the turns, unless `progress` is False.

    With `log_root`, the run folder there holds them, so that the run can be resumed; the trajectories are the same.

    Other arguments and errors are as for `ask`. The setting `scan_root` is the folder of the scans; raises ScanNotFound
    if it does not exist.
    """
    if isinstance(questions, str | Path):
        config = _config({"batch": True, "questions": questions}, policy, log_root, settings)
        asked = asked_of(config.what_to_run, config.questions)
        return _trajectories(config, asked, policy, log_root is not None, progress)
    if given := [name for name in FILTERS if name in settings]:
        raise ConfigError(f"{', '.join(given)} only filters a question file: filter the list before passing it")
    if not isinstance(questions, Iterable):
        raise QuestionError(f"explore takes a question file or a list of Question objects, got {questions!r}")
    listed: list[Any] = list(questions)
    places = _first_places(listed)
    distinct = sorted(set(places))
    times = _times_given(listed, places)
    repeated = {"samples": times} if times > 1 else {}
    config = _config({"batch": True, **repeated}, policy, log_root, settings)
    benchmark = find_benchmark(config.questions.benchmark)
    asked = Selection.all_of(normalized([listed[place] for place in distinct], benchmark))
    found = _trajectories(config, asked, policy, log_root is not None, progress)
    if not repeated:
        return found
    answers = {place: iter(found[times * index : times * (index + 1)]) for index, place in enumerate(distinct)}
    return [next(answers[place]) for place in places]


def _first_places(given: Sequence[Any]) -> list[int]:
    """For each question, the position at which the list has it first."""
    first: dict[str, int] = {}
    places = []
    for place, question in enumerate(given):
        known = first.setdefault(str(question.id), place) if isinstance(question, Question) else place
        places.append(known if given[known] == question else place)  # other questions with its id are refused later
    return places


def _times_given(given: Sequence[Any], places: Sequence[int]) -> int:
    """How often each question is in the list; raises QuestionError unless all are in it equally often."""
    times = Counter(places)
    fewest, most = (min(times.values()), max(times.values())) if times else (1, 1)
    if fewest != most:
        often, seldom = (next(given[place].id for place in times if times[place] == count) for count in (most, fewest))
        raise QuestionError(
            f"the list has question {often} {most} times and question {seldom} {fewest} times: give every question "
            "equally often"
        )
    return most


def load_policy(model: Any = ModelSettings.model, processor: Any = None, **settings: Any) -> Policy:
    """Load a model once for several calls of `ask` and `explore`, or use one that is loaded, or any function.

    `model` is one of

    - a hub id or folder, "embedded" or "scripted:random"; with `engine="openai"` and `base_url`, a server's name for a
      model;
    - with its `processor`, a model of transformers, as `TransformersBackend` takes it: its weights may change between
      calls. In run.json it is named by its name_or_path, else its class; if that is a folder with a views.json, views
      have the size set there;
    - a function that takes the messages so far, as `roomscout.models.callables.as_dicts` describes them, and returns
      the text of the reply;
    - a `roomscout.models.Backend`.

    `settings` are RunConfig's model settings, such as `dtype` or `temperature`, and those of servers; functions and
    backends take `prompts` only. With `logprobs`, `turn.reply.logprobs` has those of its tokens. Raises ConfigError or
    ModelError.
    """
    servers = SECTIONS["server"] if settings.get("engine") == "openai" else ()
    if settings.get("engine", "openai") not in ("openai", "transformers"):
        raise ConfigError(
            f"{named(engine=settings['engine'])} starts with a run: pass engine and model to ask or explore"
        )
    taken = {*MODEL_SETTINGS, *servers, "engine"}
    if wrong := [name for name in settings if name in _names() and name not in taken]:
        fix = 'add engine="openai"' if set(wrong) <= {*SECTIONS["server"]} else "pass it to ask or explore"
        raise ConfigError(f"load_policy does not take {', '.join(wrong)}: {fix}")
    if isinstance(model, str | Path) or processor is not None or is_torch_module(model):
        return _policy_of_model(model, processor, settings)
    if unused := [name for name in settings if name != "prompts"]:
        raise ConfigError(
            f"{', '.join(unused)} would have no effect on {_shown(model)}: leave it out, or set it in your own code"
        )
    backend = backend_from(model)
    policy = ModelPolicy(backend, action_format(False), model_prompts(_config({}, None, None, settings).model))
    policy.name = backend.name
    return policy


def _policy_of_model(model: Any, processor: Any, settings: Mapping[str, Any]) -> Policy:
    """A policy that asks a named model, or a loaded one of transformers; raises ConfigError or ModelError."""
    plan = Plan(1, "memory is planned per run")
    is_named = isinstance(model, str | Path)
    if is_named and processor is not None:
        raise ConfigError(f"load_policy loads the processor of {model} itself: leave out processor")
    if not is_named and processor is None:
        raise ConfigError(f"load_policy needs the processor of {_shown(model)}: pass it as processor")
    name = str(model) if is_named else getattr(model, "name_or_path", "") or _shown(model)
    given, config = with_policy(None, _config({"model": name}, None, None, settings).checked())
    options = model_options(config.model, config.view.max_new_tokens, plan)
    if given is None:
        if is_named:
            server = None
            if config.model.engine == "openai":
                images = config.most_shown, len(config.views.see)
                server = server_options(config.server, config.model.constrained, *images)
            backend = make_backend(config.model.model, options, server)
        else:
            backend = TransformersBackend(model, processor, options, name=name)
        given = ModelPolicy(backend, action_format(config.model.constrained), model_prompts(config.model))
    given.name = config.model.model
    names = {*MODEL_SETTINGS, "engine", *(SECTIONS["server"] if config.model.engine == "openai" else ())} - {"model"}
    given.settings = {name: value for name, value in config.settings.items() if name in names} | {
        "max_new_tokens": config.view.max_new_tokens
    }
    return given


def _shown(model: object) -> str:
    return str(getattr(model, "__qualname__", type(model).__name__))


def _trajectories(
    config: RunConfig,
    asked: Selection,
    policy: Policy | type[Policy] | str | None,
    on_disk: bool,
    show_progress: bool = False,
) -> list[Trajectory]:
    """The trajectories of these questions."""
    made = make_policy(policy, config.model.seed) if isinstance(policy, type) else policy
    decides = None if isinstance(made, str) else made  # a name is in the configuration
    if decides is not None and Policy not in type(decides).__mro__:
        raise ConfigError(
            f"{decides!r} is not a policy: subclass roomscout.Policy and implement `decide`, or, for a model or a "
            "function that replies, pass load_policy(...) of it"
        )
    questions = asked.questions
    if not on_disk:
        journal = answer_in_memory(config, asked, decides, show_progress)
        return trajectories(questions, journal.rows, journal.turns_of, journal.conversation_of)
    outcome = main_vsi_bench_loop(config, policy=decides, asked=asked, show_progress=show_progress)
    if outcome.error is not None:
        raise outcome.error
    if outcome.status == 130:
        raise KeyboardInterrupt
    assert outcome.folder is not None, "a run that answers questions has a folder"
    return load_trajectories(outcome.folder)


def _config(
    values: Mapping[str, Any],
    policy: Policy | type[Policy] | str | None,
    log_root: str | Path | None,
    settings: Mapping[str, Any],
) -> RunConfig:
    """A RunConfig from `values`, a function's own arguments, and `settings`; raises ConfigError if any is invalid."""
    if policy is not None:
        takes_seed = isinstance(policy, str | type)
        for_model = [name for name in settings if name in MODEL_SETTINGS and not (takes_seed and name == "seed")]
        if for_model:
            raise ConfigError(
                f"a policy is given, so {', '.join(for_model)} would have no effect: leave it out, or pass it to "
                "load_policy"
            )
    if log_root is None and settings.get("name") is not None:
        raise ConfigError("name names a run folder: add log_root, the folder in which to create it")
    if log_root is None and (settings.get("prices") or settings.get("budget")) is not None:
        raise ConfigError("prices and budget are of a run with a folder: add log_root, where to create it")
    extra = {"policy": policy} if isinstance(policy, str) else {}
    root = {} if log_root is None else {"log_root": log_root}
    return config_in_python({**values, **extra, **root}, settings)


def config_in_python(values: Mapping[str, Any], settings: Mapping[str, Any]) -> RunConfig:
    """A RunConfig from a function's own arguments, `values`, and `settings`; raises ConfigError if any is invalid."""
    names = _names()
    for name in settings:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise ConfigError(f"there is no setting {name}{f'; did you mean {near[0]}?' if near else ''}")
        if name in DISPLAY_SETTINGS:
            raise ConfigError(f"{name} is for the command: in Python, log lines go where your logging sends them")
        if name in SECTIONS["cluster"] and name != "shard":
            raise ConfigError(f"{name} is for the command, which starts processes: run roomscout eval, or leave it out")
        if name in values or name in SECTIONS["what_to_run"]:
            raise ConfigError(f"{name} cannot be set here: the function's arguments select what to ask")
    return with_absolute_paths(config_from_dict({**values, **settings}))


def _names() -> list[str]:
    return [name for name in SECTION_OF if name != "policy"]
