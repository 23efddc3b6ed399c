"""Where a checkpoint is, as far as this machine knows. Imports neither torch nor transformers."""

import json
import sys
from difflib import get_close_matches
from pathlib import Path

from roomscout.base.extras import require
from roomscout.base.wording import named
from roomscout.models import EMBEDDED, EXPLORER, ModelError
from roomscout.models.transformers.families import FAMILIES

LIBRARIES = ("torch", "torchvision", "transformers", "accelerate", "qwen_vl_utils")
"""What loading a checkpoint and encoding views imports."""


def id_and_revision(checkpoint: str) -> tuple[str, str | None]:
    """The hub id and the revision of `id@revision`; any other checkpoint, such as a folder with an @, and None."""
    model, at, revision = checkpoint.partition("@")
    is_id = model.count("/") == 1 and not model.startswith(("/", ".", "~")) and not Path(checkpoint).is_dir()
    return (model, revision) if at and revision and is_id else (checkpoint, None)


def existing_source(checkpoint: str) -> str:
    """A folder's expanded path, or a hub id, also `id@revision`, unchanged, which may not exist.

    Raises ModelError for a folder without a checkpoint, for a name that is neither a folder nor a hub id, and without
    the libraries that load checkpoints.
    """
    if sys.flags.optimize > 1:
        raise ModelError(
            "transformers needs docstrings, which Python leaves out with PYTHONOPTIMIZE=2 or -OO: set "
            "PYTHONOPTIMIZE to 1 or less"
        )
    model, _ = id_and_revision(checkpoint)
    require_libraries(model)
    path = EXPLORER if model == EMBEDDED else Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{model} {_why_no_checkpoint(path)}")
        return str(path)
    if path.exists():
        file = f"a file: {named('model')} takes the checkpoint's folder"
        raise ModelError(f"{model} is {_gguf() if path.suffix == '.gguf' else file}")
    if model.count("/") != 1 or model.startswith(("/", ".", "~")):
        if Path(model).name == EXPLORER.name or get_close_matches(model, [EMBEDDED]):
            raise ModelError(f"there is no checkpoint folder {model}: did you mean {named(model=EMBEDDED)}?")
        if "/" not in model:
            raise ModelError(
                f"there is no checkpoint folder {model}, and a hub id has an owner, as in {FAMILIES[0].example}; if "
                f"{model} is a model behind a server, add {named(engine='openai', base_url='URL')}"
            )
        names = ", ".join(family.name for family in FAMILIES)
        raise ModelError(
            f"there is no checkpoint folder {model}: {named('model')} takes a checkpoint of {names}, as a folder or a "
            f"hub id such as {FAMILIES[0].example}, or {EMBEDDED}"
        )
    if Path(model).name == EXPLORER.name and model == f"{EXPLORER.parent.name}/{EXPLORER.name}":
        raise ModelError(f"there is no checkpoint folder {model} here: did you mean {named(model=EMBEDDED)}?")
    return checkpoint


def require_libraries(model: str) -> None:
    """Raise ModelError if a library is missing that loads checkpoints."""
    name = EMBEDDED if model == str(EXPLORER) else model
    require(named(model=name), *LIBRARIES, error=ModelError)


def hub_revision(checkpoint: str) -> str | None:
    """The commit of a checkpoint in the hub's cache, of a hub id or of a folder there; None if it is not known."""
    model, revision = id_and_revision(checkpoint)
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if model.count("/") != 1:
            return None
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json", revision=revision)
        if not isinstance(found, str):
            return None
        folder = Path(found).parent
    folder = folder.resolve()
    return folder.name if folder.parent.name == "snapshots" else None


def _why_no_checkpoint(folder: Path) -> str:
    """What a folder without config.json is instead, and what to do about it."""
    adapter = folder / "adapter_config.json"
    if adapter.is_file():
        try:
            base = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
        except (OSError, ValueError, KeyError, TypeError):
            base = "its base model"
        return f"is an adapter of {base}: name that as {named('model')} and add {named(adapter=folder)}"
    if any(folder.glob("*.gguf")):
        return f"is {_gguf()}"
    return f"has no config.json: {named('model')} takes a folder written by save_pretrained"


def _gguf() -> str:
    served = named(engine="openai", base_url="URL")
    return f"in llama.cpp's format: serve it with llama.cpp or Ollama, then add {served}"
