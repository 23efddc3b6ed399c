"""PEFT adapters: their base model, and their weights merged into those of a loaded model."""

import warnings
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.base.extras import require
from roomscout.base.text import first_line, json_in
from roomscout.models import ModelError
from roomscout.models.transformers.source import ADAPTER_FILE, id_and_revision

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def require_adapter(adapter: Path, model: str) -> str | None:
    """The base model that a folder's adapter names; raises ModelError unless it is this checkpoint, hub id or folder.
    Names are compared without owners and parent folders, because a checkpoint may be downloaded anywhere."""
    try:
        base: str | None = json_in((adapter / ADAPTER_FILE).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"{adapter} has no {ADAPTER_FILE}: name a folder that PEFT saved", setting="adapter") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{adapter / ADAPTER_FILE} cannot be read ({error}): save the adapter again") from None
    if not any((adapter / name).is_file() for name in WEIGHTS):
        raise ModelError(f"{adapter} has no {WEIGHTS[0]}: copy or save the adapter again", setting="adapter")
    if base and Path(base).name.lower() != Path(id_and_revision(model)[0]).name.lower():
        raise ModelError(
            f"the adapter {adapter} was trained on {base}, not on {model}: use {base}, or, if both are the same "
            f"checkpoint, correct base_model_name_or_path in its {ADAPTER_FILE}",
            setting="model",
        )
    require("an adapter", "peft", error=partial(ModelError, setting="adapter"))
    return base


def adapter_sha256(adapter: Path) -> str:
    """The hash of an adapter's configuration and weights."""
    digest = sha256((adapter / ADAPTER_FILE).read_bytes())
    for name in WEIGHTS:
        if (adapter / name).is_file():
            digest.update((adapter / name).read_bytes())
    return digest.hexdigest()


def with_adapter(model: "PreTrainedModel", adapter: Path, name: str) -> "PreTrainedModel":
    """A loaded model with an adapter's weights merged into its own, so that all else is as exact as without; `name` is
    the checkpoint's. Raises ModelError if there is no such adapter or it does not fit."""
    base = require_adapter(adapter, name)
    from peft import PeftModel, get_peft_model_state_dict, load_peft_weights

    from roomscout.models.transformers.loading import LOADING_ERRORS

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Found missing adapter keys")
            tuned = PeftModel.from_pretrained(model, str(adapter))
            left_out = set(load_peft_weights(str(adapter), device="cpu")) - set(get_peft_model_state_dict(tuned))
            if left_out:
                raise ValueError(f"it has no place for {len(left_out)} of the weights, such as {min(left_out)}")
        merged: PreTrainedModel = tuned.merge_and_unload()
    except (*LOADING_ERRORS, UserWarning) as why:
        raise ModelError(
            f"the adapter {adapter}, trained on {base}, does not fit {name} ({first_line(why)}): name the checkpoint "
            "that it was trained on",
            setting="model",
        ) from why
    return merged.eval()


def write_merged(model: str, adapter: Path, dtype: str, folder: Path) -> None:
    """Write a checkpoint with an adapter merged into its weights, in `dtype` ("float32", ...); raises ModelError."""
    import torch

    from roomscout.models.transformers.devices import resolve_dtype
    from roomscout.models.transformers.weights import load_checkpoint

    device = torch.device("cpu")
    loaded, processor = load_checkpoint(model, resolve_dtype(dtype, device), device)
    with_adapter(loaded, adapter, model).save_pretrained(folder)
    processor.save_pretrained(folder)
