"""Maps model names to checkpoints and engines."""

from pathlib import Path

from roomscout.models import EMBEDDED, EXPLORER, Backend, ModelError, ModelOptions, ServerOptions
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.source import id_and_revision
from roomscout.models.vllm import VllmOptions


def checkpoint_of(model: str, revision: str | None = None) -> str:
    """The hub id or folder for a value of `--model`; with a value of `--revision`, the hub id as `id@revision`.

    Raises ModelError for a revision of a folder.
    """
    if revision is None:
        if id_and_revision(model)[1] is not None:
            raise ModelError(f"there is no checkpoint folder {model}: a hub checkpoint takes --revision")
        return str(EXPLORER) if model == EMBEDDED else model
    if model == EMBEDDED or Path(model).expanduser().is_dir():
        raise ModelError(
            f"--revision {revision} selects a version on huggingface.co, and {model} is a folder: leave it out, "
            f"or give --model a hub id"
        )
    return f"{model}@{revision}"


def make_backend(
    model: str,
    options: ModelOptions | None = None,
    server: ServerOptions | None = None,
    vllm: VllmOptions | None = None,
) -> Backend:
    """A ready backend for `model`: behind `server`'s URLs, in its own `vllm` server, or loaded in this process.

    "embedded" is the included explorer; anything else is a checkpoint's hub id or folder, or the name under which a
    server serves it. Raises ModelError if it cannot be loaded or reached.
    """
    if server is not None:
        from roomscout.models.openai.backend import OpenAIBackend  # imports the client, which takes a second

        return OpenAIBackend(checkpoint_of(model), options or ModelOptions(), server)
    options = options or ModelOptions()
    checkpoint = checkpoint_of(model, options.revision)
    if vllm is not None:
        from roomscout.models.vllm.backend import VllmBackend

        return VllmBackend(checkpoint, options, vllm)
    return TransformersBackend.from_checkpoint(checkpoint, options)
