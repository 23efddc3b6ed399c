"""Where a checkpoint is, as far as this machine knows. Imports neither torch nor transformers."""

from functools import partial
from pathlib import Path

from roomscout.base.extras import require
from roomscout.models import EMBEDDED, EXPLORER, ModelError
from roomscout.models.transformers.families import FAMILIES

ADAPTER_FILE = "adapter_config.json"  # of PEFT
LIBRARIES = ("torch", "torchvision", "transformers", "accelerate")  # imported to load and to encode


def id_and_revision(checkpoint: str) -> tuple[str, str | None]:
    """The hub id and the revision of `id@revision`; any other checkpoint, such as a folder with an @, and None."""
    model, at, revision = checkpoint.partition("@")
    is_id = model.count("/") == 1 and not model.startswith(("/", ".", "~")) and not Path(checkpoint).is_dir()
    return (model, revision) if at and revision and is_id else (checkpoint, None)


def existing_source(checkpoint: str) -> str:
    """A folder's expanded path, or a hub id (`id@revision`) as it is, which may not exist. Raises ModelError for a
    folder without a checkpoint, another name, and without the libraries that load checkpoints."""
    model, _ = id_and_revision(checkpoint)
    require_libraries(model)
    path = EXPLORER if model == EMBEDDED else Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            if (path / ADAPTER_FILE).is_file():
                raise ModelError(
                    f"{model} is an adapter ({ADAPTER_FILE}), not a checkpoint: name its base model, and this folder "
                    "as the adapter",
                    setting="model",
                )
            raise ModelError(
                f"{model} has no config.json: name a folder written by save_pretrained (an adapter's folder is another "
                "setting); files in llama.cpp's format need an OpenAI-compatible server",
                setting="model",
            )
        return str(path)
    explorer = f"{EXPLORER.parent.name}/{EXPLORER.name}"
    if path.exists() or model.count("/") != 1 or model.startswith(("/", ".", "~")) or model == explorer:
        names = ", ".join(family.name for family in FAMILIES)
        raise ModelError(
            f"there is no checkpoint folder {model}: name a folder or a hub id such as {FAMILIES[0].example} of "
            f"{names}, or {EMBEDDED}; a model behind a server needs the engine openai and the server's URL",
            setting="model",
        )
    return checkpoint


def checkpoint_of(model: str, revision: str | None = None) -> str:
    """The hub id, with a revision as `id@revision`, or folder; raises ModelError for a folder's revision."""
    if revision is None:
        if id_and_revision(model)[1] is not None:
            why = f"there is no checkpoint folder {model}: name the revision of a hub checkpoint apart from its id"
            raise ModelError(why, setting="revision")
        return str(EXPLORER) if model == EMBEDDED else model
    if model == EMBEDDED or Path(model).expanduser().is_dir():
        raise ModelError(
            f"{revision} would be a version on huggingface.co, and {model} is a folder: leave it out, or name a hub id",
            setting="revision",
        )
    return f"{model}@{revision}"


def require_libraries(model: str) -> None:
    """Raise ModelError if a library is missing that loads checkpoints."""
    name = EMBEDDED if model == str(EXPLORER) else model
    require(f"the model {name}", *LIBRARIES, error=partial(ModelError, setting="model"))


def file_here(checkpoint: str, name: str) -> Path | None:
    """A checkpoint's file in its folder or in the local hub cache; None if it is not there."""
    folder = Path(checkpoint).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    model, revision = id_and_revision(checkpoint)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, name, revision=revision)
    return Path(found) if isinstance(found, str) else None


def hub_revision(checkpoint: str) -> str | None:
    """The commit of a checkpoint in the hub's cache, of a hub id or of a folder there; None if it is not known."""
    is_known = Path(checkpoint).expanduser().is_dir() or id_and_revision(checkpoint)[0].count("/") == 1
    config = file_here(checkpoint, "config.json") if is_known else None
    folder = Path() if config is None else config.parent.resolve()
    return folder.name if folder.parent.name == "snapshots" else None
