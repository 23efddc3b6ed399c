"""Where a checkpoint is, as far as this machine knows. Imports neither torch nor transformers."""

from difflib import get_close_matches
from pathlib import Path

from roomscout.models import EMBEDDED, EXPLORER, ModelError
from roomscout.models.transformers.families import FAMILIES


def existing_source(model: str) -> str:
    """A folder's expanded path, or a hub id unchanged, which may not exist.

    Raises ModelError for a folder without a checkpoint, and for a name that is neither a folder nor a hub id.
    """
    path = EXPLORER if model == EMBEDDED else Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{model} has no config.json: --model takes a folder written by save_pretrained")
        return str(path)
    if path.exists():
        raise ModelError(f"{model} is a file: --model takes the checkpoint's folder")
    if model.count("/") != 1 or model.startswith(("/", ".", "~")):
        if Path(model).name == EXPLORER.name or get_close_matches(model, [EMBEDDED]):
            raise ModelError(f"there is no checkpoint folder {model}: did you mean --model {EMBEDDED}?")
        if "/" not in model:
            raise ModelError(
                f"there is no checkpoint folder {model}, and a hub id has an owner, as in {FAMILIES[0].example}; if "
                f"{model} is a model behind a server, add --engine openai --base-url URL"
            )
        names = ", ".join(family.name for family in FAMILIES)
        raise ModelError(
            f"there is no checkpoint folder {model}: --model takes a checkpoint of {names}, as a folder or a hub id "
            f"such as {FAMILIES[0].example}, or {EMBEDDED}"
        )
    return model
