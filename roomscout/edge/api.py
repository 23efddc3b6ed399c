"""The Python API: questions in, trajectories out, with or without a run folder.

What a call needs is imported with the first call, so that `from roomscout import ask` takes little time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roomscout.agent.policies import Policy, make_policy
from roomscout.base.errors import ConfigError, flag
from roomscout.edge.declaring import Role
from roomscout.edge.request import Request
from roomscout.edge.resolve import absolute, changed, resolve
from roomscout.edge.sections import FILTERS, ClusterSettings, ModelSettings, ServerSettings
from roomscout.edge.settings import SETTINGS, VERB_WORDS, Settings, names_in

if TYPE_CHECKING:
    from roomscout.data.questions import Question
    from roomscout.runs.trajectories import Trajectory

MODEL_SETTINGS = tuple(name for name in names_in(ModelSettings) if name not in ("policy", "engine"))
"""Settings that `load_policy` accepts."""
OF_COMMAND = {
    *(name for name, each in SETTINGS.items() if each.role is Role.DISPLAY),
    *(name for name in names_in(ClusterSettings) if name != "shard"),
    *VERB_WORDS,
    "policy",
}
"""Settings of the command alone: what to ask is said by the arguments of a function."""


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
) -> "Trajectory":
    """Ask one question about one scan file.

    `policy` is the result of `load_policy`, your own policy, its class, or its name "module:Class". By default, the
    model named by the setting `model` decides. Writes a run folder below `log_root`, or nothing if that is None.
    `settings` are other settings of a run, such as `model` or `steps`.

    A failed question returns a trajectory with status "failed". For several answers to one question, see `explore`.
    Raises ConfigError, QuestionError, RenderError, ModelError or RunError if the question cannot be asked, PolicyError
    if a policy raises an error.
    """
    from roomscout.data.benchmarks import find_benchmark
    from roomscout.data.questions import Selection, ask_one

    if settings.get("samples", 1) != 1:
        raise ConfigError("ask returns one trajectory: for several answers, call explore with samples")
    resolved = settings_in_python({}, settings, policy, log_root, one_scan=True)
    benchmark = find_benchmark(resolved.benchmark)
    asked = ask_one(question, Path(scan).stem, options or (), question_type, ground_truth, benchmark)  # type: ignore[arg-type]
    request = Request(Selection.all_of([asked]), ply=absolute(Path(scan)))
    return _trajectories(resolved, request, policy, log_root is not None)[0]


def explore(
    questions: "str | Path | Iterable[Question]",
    *,
    policy: Policy | type[Policy] | str | None = None,
    log_root: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> "list[Trajectory]":
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
    from roomscout.data.benchmarks import find_benchmark
    from roomscout.data.questions import QuestionError, Selection, normalized

    on_disk = log_root is not None
    if isinstance(questions, str | Path):
        resolved = settings_in_python({"questions": questions}, settings, policy, log_root)
        return _trajectories(resolved, Request(), policy, on_disk, progress)
    filters = [name for name in FILTERS if name in settings]
    if filters:
        raise ConfigError(f"{flag(filters[0])} only filters a question file: filter the list before passing it")
    if not isinstance(questions, Iterable):
        raise QuestionError(f"explore takes a question file or a list of Question objects, got {questions!r}")
    listed: list[Any] = list(questions)
    places = _first_places(listed)
    distinct = sorted(set(places))
    times = _times_given(listed, places)
    repeated = {"samples": times} if times > 1 else {}
    resolved = settings_in_python(repeated, settings, policy, log_root)
    asked = Selection.all_of(normalized([listed[place] for place in distinct], find_benchmark(resolved.benchmark)))
    trajectories = _trajectories(resolved, Request(asked), policy, on_disk, progress)
    if not repeated:
        return trajectories
    answers = {place: iter(trajectories[times * index : times * (index + 1)]) for index, place in enumerate(distinct)}
    return [next(answers[place]) for place in places]


def _first_places(given: Sequence[Any]) -> list[int]:
    """For each question, the position at which the list has it first."""
    from roomscout.data.questions import Question

    first: dict[str, int] = {}
    places = []
    for place, question in enumerate(given):
        known = first.setdefault(str(question.id), place) if isinstance(question, Question) else place
        is_same = given[known] == question  # other questions with its id are refused later
        place_of_first = known if is_same else place
        places.append(place_of_first)
    return places


def _times_given(given: Sequence[Any], places: Sequence[int]) -> int:
    """How often each question is in the list; raises QuestionError unless all are in it equally often."""
    times = Counter(places)
    fewest, most = (min(times.values()), max(times.values())) if times else (1, 1)
    if fewest != most:
        from roomscout.data.questions import QuestionError

        often, seldom = (next(given[place].id for place in times if times[place] == count) for count in (most, fewest))
        raise QuestionError(
            f"the list has question {often} {most} times and question {seldom} {fewest} times: give every question "
            "equally often"
        )
    return most


def load_policy(model: Any = ModelSettings.model, processor: Any = None, **settings: Any) -> Policy:
    """Load a model once for several calls of `ask` and `explore`, or use one that is loaded, or any function.

    `model` is one of

    - a hub id or folder, or "embedded"; with `engine="openai"` and `base_url`, a server's name for a model;
    - with its `processor`, a model of transformers, as `TransformersBackend` takes it: its weights may change between
      calls. In run.json it is named by its name_or_path, else its class; if that is a folder with a views.json, views
      have the size set there;
    - a function that takes the messages so far, as `roomscout.models.engines.as_dicts` describes them, and returns
      the text of the reply;
    - a `roomscout.models.Backend`.

    `settings` are those of the model, such as `dtype` or `temperature`, and those of servers; functions and backends
    take `prompts` only. With `logprobs`, `turn.reply.logprobs` has those of its tokens. Raises ConfigError or
    ModelError.
    """
    from roomscout.agent.policies.model import ModelPolicy
    from roomscout.agent.policies.prompts import model_prompts
    from roomscout.edge.engine import model_options, server_options
    from roomscout.edge.memory import MemoryPlan, suited_to_model
    from roomscout.edge.plan import config_errors
    from roomscout.models.checkpoint_files import own_view_settings
    from roomscout.models.engines import is_torch_module, make_backend
    from roomscout.models.transformers.backend import TransformersBackend
    from roomscout.models.transformers.source import checkpoint_of

    taken = {*MODEL_SETTINGS, *names_in(ServerSettings), "engine"}
    if settings.get("engine") == "vllm":
        raise ConfigError("--engine vllm starts with a run: pass engine and model to ask or explore")
    untaken = [name for name in settings if name in SETTINGS and name not in taken]
    if untaken:
        raise ConfigError(f"load_policy does not take {flag(untaken[0])}: pass it to ask or explore")
    is_named = isinstance(model, str | Path)
    if not is_named and processor is None and not is_torch_module(model):
        return _policy_of_object(model, settings)
    if is_named == (processor is not None):
        raise ConfigError("load_policy takes the processor of a loaded model, and of no other")
    name = str(model) if is_named else getattr(model, "name_or_path", "") or _shown(model)
    chosen = settings_in_python({"model": name}, settings)
    source = checkpoint_of(chosen.model, chosen.revision) if is_named else model
    own_views = own_view_settings(chosen.model)
    chosen = changed(chosen, suited_to_model(chosen, own_views, None, None, source))
    options = model_options(chosen, MemoryPlan(1, "memory is planned per run"))
    on_server = chosen.engine == "openai"
    with config_errors():
        prompts = model_prompts(chosen.prompts, chosen.model)
    if is_named:
        server = server_options(chosen, chosen.constrained, chosen.most_shown) if on_server else None
        backend = make_backend(chosen.model, options, server)
    else:
        backend = TransformersBackend(model, processor, options, name=name)
    policy = ModelPolicy(backend, prompts)
    policy.name = chosen.model
    names = {*MODEL_SETTINGS, "engine", *(names_in(ServerSettings) if on_server else ())} - {"model"}
    policy.settings = {name: getattr(chosen, name) for name in names}
    return policy


def _policy_of_object(model: Any, settings: Mapping[str, Any]) -> Policy:
    """The policy that asks a function or a backend; raises ConfigError or ModelError."""
    from roomscout.agent.policies.model import ModelPolicy
    from roomscout.agent.policies.prompts import model_prompts
    from roomscout.edge.plan import config_errors
    from roomscout.models.engines import backend_from

    unused = [name for name in settings if name != "prompts"]
    if unused:
        raise ConfigError(f"{flag(unused[0])} would have no effect on {_shown(model)}: set it in your own code")
    chosen = settings_in_python({}, settings)
    with config_errors():
        prompts = model_prompts(chosen.prompts, chosen.model)
    return ModelPolicy(backend_from(model), prompts)


def _shown(model: object) -> str:
    return str(getattr(model, "__qualname__", type(model).__name__))


def _trajectories(
    settings: Settings,
    request: Request,
    policy: Policy | type[Policy] | str | None,
    on_disk: bool,
    show_progress: bool = False,
) -> "list[Trajectory]":
    from roomscout.agent.console import lines_kept_for_log
    from roomscout.agent.loop import main_vsi_bench_loop
    from roomscout.edge.plan import config_errors, plan
    from roomscout.runs.journal import MemoryJournal
    from roomscout.runs.trajectories import load_trajectories, trajectories

    decides = None if isinstance(policy, str) else policy  # a name is in the settings
    if isinstance(decides, type):
        with config_errors():
            decides = make_policy(decides, settings.seed)
    if decides is not None and Policy not in type(decides).__mro__:
        raise ConfigError(
            f"{decides!r} is not a policy: subclass roomscout.Policy and implement `decide`, or, for a model or a "
            "function that replies, pass load_policy(...) of it"
        )
    if not on_disk:
        spec = plan(settings, decides, request)
        journal = MemoryJournal()
        main_vsi_bench_loop(spec, show_progress, journal=journal)
        return trajectories(spec.questions.asked.questions, journal.rows, journal.turns_of, journal.conversation_of)
    with lines_kept_for_log():
        outcome = main_vsi_bench_loop(plan(settings, decides, request), show_progress)
    if outcome.error is not None:
        raise outcome.error
    if outcome.status == 130:
        raise KeyboardInterrupt
    assert outcome.folder is not None, "a run that answers questions has a folder"
    return load_trajectories(outcome.folder)


def settings_in_python(
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    policy: Policy | type[Policy] | str | None = None,
    log_root: str | Path | None = None,
    one_scan: bool = False,
) -> Settings:
    """The settings of a function's own arguments, `values`, and others; ConfigError if one is invalid or unused."""
    takes_seed = isinstance(policy, str | type)
    for name in settings:
        if name in OF_COMMAND or name in values:
            raise ConfigError(f"{flag(name)} cannot be set here: the function's arguments say what to ask")
        if policy is not None and name in MODEL_SETTINGS and not (takes_seed and name == "seed"):
            raise ConfigError(f"{flag(name)} would have no effect on a given policy: pass it to load_policy")
        if log_root is None and name in ("name", "prices", "budget") and settings[name] is not None:
            raise ConfigError(f"{flag(name)} is of a run with a folder: add log_root, where to create it")
    named = {"policy": policy} if isinstance(policy, str) else {}
    root = {} if log_root is None else {"log_root": log_root}
    return resolve({**values, **named, **root, **settings}, one_scan=one_scan)
