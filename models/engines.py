"""Which name is which model, and the engine that runs it."""

from models import EMBEDDED, EXPLORER, Backend, ModelOptions, ServerOptions
from models.transformers.backend import TransformersBackend
from models.vllm import VllmOptions


def checkpoint_of(model: str) -> str:
    """The hub id or folder that a model's name stands for."""
    return str(EXPLORER) if model == EMBEDDED else model


def make_backend(
    model: str,
    options: ModelOptions | None = None,
    server: ServerOptions | None = None,
    vllm: VllmOptions | None = None,
) -> Backend:
    """The backend that `model` names: behind `server`'s URLs, in a `vllm` server of its own, else loaded here; ready.

    "embedded" is the explorer that ships with the package; anything else is a checkpoint's hub id or folder, or the
    name under which a server has it. Raises ModelError when it cannot be loaded or asked.
    """
    if server is not None:
        from models.openai import OpenAIBackend  # imports the client, which takes a second

        return OpenAIBackend(checkpoint_of(model), options or ModelOptions(), server)
    if vllm is not None:
        from models.vllm.backend import VllmBackend

        return VllmBackend(checkpoint_of(model), options or ModelOptions(), vllm)
    return TransformersBackend(checkpoint_of(model), options or ModelOptions())
