"""The command line: flags derived from RunConfig, and the YAML file of --config."""

import ast
import inspect
from dataclasses import dataclass, fields, make_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from agent.config import FILTERS, ConfigError, RunConfig, as_begun, config_from_dict, config_to_dict, flag
from data.plain_yaml import read_yaml
from data.text import argument_text

SECTIONS = {
    "what_to_run": (
        "batch", "demo", "continue_from", "retry_failed", "check_data", "plan", "plan_device",
        "ply", "question", "options", "question_type", "ground_truth",
    ),
    "questions": ("benchmark", "questions", "datasets", "question_types", "scenes", "ids", "num_questions"),
    "scans_and_camera": (
        "scan_root", "renderer", "first_view", "up_axis", "image_size", "focal", "camera_height", "camera_pitch",
        "scene_cache_gib",
    ),
    "model": (
        "model", "prompts", "policy", "dtype", "device", "attention", "max_new_tokens", "temperature", "seed",
        "constrained", "compile", "tiles_per_view", "kv_reuse",
    ),
    "schedule": ("steps", "max_batched_turns", "batch_size", "refill", "concurrency"),
    "engine": (
        "engine", "base_url", "api_key_env", "request_timeout", "vllm_python", "tensor_parallel_size",
        "gpu_memory_utilization", "max_model_len",
    ),
    "output": ("log_root",),
    "parts": ("shard", "ray", "ray_address", "replicas"),
}  # fmt: skip
"""How --help groups the flags."""


@dataclass(frozen=True)
class Given:
    """A parsed command line: the values of its --config file, by RunConfig field, and its other flags."""

    flags: list[str]
    values: dict[str, Any]
    source: str

    def names(self, setting: str) -> bool:
        """Whether the file or a flag sets this RunConfig field."""
        return setting in self.values or any(each.partition("=")[0] == flag(setting) for each in self.flags)

    def over(self, base: RunConfig) -> RunConfig:
        """`base` overridden by the file's values, then by the flags.

        Raises ConfigError for an invalid file. Invalid flags end the process with status 2, as usual for command-line
        tools.
        """
        return apply_flags(config_from_dict(config_to_dict(base) | self.values, self.source), self.flags)


def parse_command_line(argv: list[str]) -> Given:
    """Parse the arguments, and the YAML file of --config if given.

    Raises ConfigError if the file cannot be read or a filter of questions has no value.
    """
    config_file, flags = _split_config_file(argv)
    for given, following in pairwise([*flags, "--"]):
        if given.replace("_", "-") in map(flag, FILTERS) and following.startswith("--"):
            raise ConfigError(f"{given} is given without a value: leave it out to ask all questions")
    return Given(flags, _read_yaml(config_file) if config_file else {}, str(config_file))


def apply_flags(default: RunConfig, flags: list[str]) -> RunConfig:
    """`default` overridden by the flags. Each switch has a `--no-` form that turns it off."""
    about = inspect.cleandoc(RunConfig.__doc__ or "")
    sections = _sections()
    grouped: Any = make_dataclass("Flags", zip(SECTIONS, sections, strict=True))
    defaults = [section(*(getattr(default, each.name) for each in fields(section))) for section in sections]
    given = tyro.cli(
        grouped,
        default=grouped(*defaults),
        args=flags,
        prog="render_point_cloud_qwen_angle_batched.py",
        description=f"{about}\n\n--config FILE.yaml takes the same names; flags override it.",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    parts = (getattr(given, part.name) for part in fields(given))
    return RunConfig(**{each.name: _decoded(getattr(part, each.name)) for part in parts for each in fields(part)})


def _decoded(value: Any) -> Any:
    """The value of a flag, texts decoded as UTF-8 whatever the locale."""
    if isinstance(value, tuple):
        return tuple(map(_decoded, value))
    return argument_text(value) if isinstance(value, str) else value


def _sections() -> list[Any]:
    """A dataclass per section of SECTIONS, with its RunConfig fields."""
    hints, helps = get_type_hints(RunConfig, include_extras=True), _field_docs()
    sections = []
    for title, names in SECTIONS.items():
        members = [(name, Annotated[hints[name], tyro.conf.arg(help=helps[name])]) for name in names]
        section = make_dataclass(title, members)
        section.__doc__ = ""  # else tyro prints the generated signature
        sections.append(section)
    return sections


def _field_docs() -> dict[str, str]:
    """The docstring of each field of RunConfig."""
    (declared,) = ast.parse(inspect.getsource(RunConfig)).body
    assert isinstance(declared, ast.ClassDef)
    docs = {}
    for line, following in pairwise(declared.body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(following, ast.Expr):
            docs[line.target.id] = " ".join(ast.literal_eval(following.value).split())
    return docs


def resumed(saved: RunConfig, given: Given) -> RunConfig:
    """The configuration of a resumed run: the saved one, overridden by what is given now.

    Ignores --batch and --demo. "auto" keeps the value that it was resolved to when the run began. Raises ConfigError
    naming the flags that would change answers.
    """
    flags = [flag for flag in given.flags if flag not in ("--batch", "--demo")]
    values = {name: value for name, value in given.values.items() if name not in ("batch", "demo")}
    return as_begun(saved, replace(given, flags=flags, values=values).over(saved)).checked()


def _split_config_file(argv: list[str]) -> tuple[Path | None, list[str]]:
    """Separate `--config FILE` (or `--config=FILE`) from the other arguments."""
    rest, path, waiting = [], None, False
    for argument in argv:
        if argument.startswith("--config") and (waiting or path):
            raise ConfigError("--config is given twice: put all settings in one YAML file")
        if waiting:
            path, waiting = Path(argument), False
        elif argument == "--config":
            waiting = True
        elif argument.startswith("--config="):
            path = Path(argument.partition("=")[2])
        else:
            rest.append(argument)
    if waiting:
        raise ConfigError("--config takes a YAML file")
    return path, rest


def _read_yaml(path: Path) -> dict[str, Any]:
    """The YAML file with keys as RunConfig fields. Values stay text, to be converted by each field's type."""
    try:
        values = read_yaml(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--config {path}: cannot be read as YAML: {error}") from None
    values = {} if values is None else values  # an empty file, or one of comments
    if not isinstance(values, dict):
        raise ConfigError(f"--config {path}: expected a mapping of names to values, such as `batch_size: 8`")
    names = {str(key).replace("-", "_"): value for key, value in values.items()}
    if "continue" in names:
        names["continue_from"] = names.pop("continue")
    return names
