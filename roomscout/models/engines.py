"""Maps model names to checkpoints and engines."""

from roomscout.models import EMBEDDED, EXPLORER, Backend, ModelOptions, ServerOptions
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.vllm import VllmOptions


def checkpoint_of(model: str) -> str:
    """The hub id or folder for a value of `--model`."""
    return str(EXPLORER) if model == EMBEDDED else model


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
    if vllm is not None:
        from roomscout.models.vllm.backend import VllmBackend

        return VllmBackend(checkpoint_of(model), options or ModelOptions(), vllm)
    return TransformersBackend.from_checkpoint(checkpoint_of(model), options or ModelOptions())
