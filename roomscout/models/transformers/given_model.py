"""Checks that a loaded model and a processor can be used together; every failure is a one-sentence ModelError."""

from typing import Any

from transformers import PreTrainedModel

from roomscout.models import ModelError
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.families.family import HEAD


def require_model(model: Any) -> None:
    """Raise ModelError unless this is a supported family's model with a language-model head, loaded on one device."""
    kind = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        raise ModelError(
            f"{kind} is not a model of transformers: pass the model that AutoModelForImageTextToText loads, without "
            "wrappers (of a PEFT model, its get_base_model())"
        )
    try:
        family_of(model.config)
        model.get_submodule(HEAD)
    except AttributeError as error:
        raise ModelError(
            f"{kind} has no language-model head: load the checkpoint with AutoModelForImageTextToText"
        ) from error
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) > 1:
        raise ModelError(f"{kind} is split across {', '.join(sorted(devices))}: load it on one device")
    if "meta" in devices:
        raise ModelError(f"{kind} has no weights yet, since it is on the device 'meta': load its checkpoint")


def require_processor(processor: Any, model: PreTrainedModel) -> None:
    """Raise ModelError unless the processor's images, placeholders and vocabulary are this model's."""
    kind, config = type(processor).__name__, model.config
    if not hasattr(processor, "tokenizer") or not hasattr(processor, "image_processor"):
        raise ModelError(f"{kind} does not process both text and images: pass what AutoProcessor loads for the model")
    tokens, outputs = len(processor.tokenizer), config.get_text_config().vocab_size
    patches = (
        getattr(processor.image_processor, "patch_size", None),
        getattr(processor.image_processor, "merge_size", None),
    )
    wanted = (
        getattr(config.vision_config, "patch_size", None),
        getattr(config.vision_config, "spatial_merge_size", None),
    )
    if tokens > outputs:
        differs = f"its tokenizer has {tokens} tokens, the model {outputs}"
    elif processor.image_token_id != config.image_token_id:
        differs = f"its image token is {processor.image_token_id}, the model's {config.image_token_id}"
    elif None not in patches and patches != wanted:
        differs = f"its patches and merges are {patches}, the model's {wanted}"
    else:
        return
    raise ModelError(f"{kind} is the processor of another model ({differs}): load both from the same checkpoint")
