"""Which name is which model, and the engine that runs it."""

from models import EMBEDDED, EXPLORER, Backend, ModelOptions
from models.transformers.backend import TransformersBackend


def checkpoint_of(model: str) -> str:
    """The hub id or folder that a model's name stands for."""
    return str(EXPLORER) if model == EMBEDDED else model


def make_backend(model: str, options: ModelOptions | None = None) -> Backend:
    """The backend that `model` names, loaded and ready.

    "embedded" is the explorer that ships with the package; anything else is a checkpoint's hub id or folder. Raises
    ModelError when it cannot be loaded.
    """
    return TransformersBackend(checkpoint_of(model), options or ModelOptions())
