"""The family of last resort: any image-text-to-text model of transformers, by its own processor and chat template."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any

from roomscout.models import ModelError
from roomscout.models.transformers.families.family import PRESERVE_THOUGHTS, Family, Views

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedConfig, ProcessorMixin

PROBED = (640, 480)  # the size of the view that shows what a processor makes of views


@dataclass(frozen=True)
class OwnEncoding:
    """What a processor makes of one text with images."""

    ids: list[int]  # token ids
    of_tokens: dict[str, "torch.Tensor"]  # the model's other inputs for each of them (1, len(ids)), by name
    inputs: dict[str, Any]  # its inputs for the images, by name


@dataclass(frozen=True)
class ProcessedViews(Views):
    """Views of any size, of which the checkpoint's processor makes what the model takes."""

    processor: "ProcessorMixin | None" = field(compare=False)

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """Tokens of a view of this size, with those around it."""
        assert self.processor is not None, "the views of a checkpoint are those of its processor"
        return len(_black(self.processor, (width, height)).ids)

    def default(self) -> tuple[int, int]:
        """The size that the processor makes of 640x480 pixels if it then leaves that alone, else 640x480."""
        size = self._processed(PROBED)
        return size if size is not None and self._processed(size) == size else PROBED

    def _processed(self, size: tuple[int, int]) -> tuple[int, int] | None:
        """(width, height) of what a view becomes; None if it becomes several images, or if that is not known."""
        if self.processor is None:
            return None
        inputs = _black(self.processor, size).inputs
        if "image_grid_thw" in inputs:
            _, rows, columns = inputs["image_grid_thw"][0].tolist()
            side = self.processor.image_processor.patch_size
            return columns * side, rows * side
        shape = tuple(getattr(inputs.get("pixel_values"), "shape", ()))
        return (shape[-1], shape[-2]) if len(shape) >= 4 and set(shape[:-3]) == {1} and shape[-3] == 3 else None


def last_resort(config: "PreTrainedConfig", processor: "ProcessorMixin | None" = None) -> Family | None:
    """The family of a model without its own, with its processor's views; None for one that takes no images and text."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    if config.model_type not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES or config.is_encoder_decoder:
        return None
    views = ProcessedViews(processor)
    return Family(
        name=config.model_type,
        example=config.name_or_path,
        model_types=(config.model_type,),
        views=views,
        default_view=views.default(),
        by_processor=True,
        chat_options=PRESERVE_THOUGHTS,
    )


def encode_batch(
    processor: "ProcessorMixin", texts: Sequence[str], images: "Sequence[Sequence[np.ndarray]]"
) -> dict[str, "torch.Tensor"]:
    """The model's inputs for texts with images, (H, W, 3) uint8 RGB, padded on the left; raises ModelError."""
    import numpy as np
    import torch
    from PIL import Image

    pictures = [[Image.fromarray(np.ascontiguousarray(image)) for image in of_text] for of_text in images]
    padding = {"padding": True, "padding_side": "left"} if len(texts) > 1 else {}
    try:
        made = processor(text=[*texts], images=pictures, return_tensors="pt", add_special_tokens=False, **padding)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise ModelError(f"the checkpoint's processor does not take this conversation ({error})") from error
    lists = [name for name, value in made.items() if "pixel" in name and not isinstance(value, torch.Tensor)]
    if lists:
        raise ModelError(
            f"the checkpoint's processor makes {lists[0]} of images, which is no tensor: it is not supported"
        )
    return {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}


def encode(processor: "ProcessorMixin", text: str, images: "Sequence[np.ndarray]") -> OwnEncoding:
    """What the processor makes of a text with these images, in their order; raises ModelError."""
    made = encode_batch(processor, [text], [images])
    ids = made.pop("input_ids")
    made.pop("attention_mask", None)
    of_tokens = {name: value for name, value in made.items() if value.shape == ids.shape}
    inputs = {name: value for name, value in made.items() if name not in of_tokens}
    return OwnEncoding(ids[0].tolist(), of_tokens, inputs)


def _black(processor: "ProcessorMixin", size: tuple[int, int]) -> OwnEncoding:
    """A black view alone: what stands for an image in the text of the checkpoint's chat template, encoded."""
    import numpy as np

    texts = [
        processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
        for content in ([{"type": "image"}, {"type": "text", "text": "text"}], [{"type": "text", "text": "text"}])
    ]
    before, behind = texts[1].rsplit("text", 1)
    text = texts[0].removeprefix(before).removesuffix(f"text{behind}")
    return encode(processor, text, [np.zeros((size[1], size[0], 3), np.uint8)])


def image_ids(processor: "ProcessorMixin", config: "PreTrainedConfig") -> set[int]:
    """The ids that stand for parts of an image: those of the configuration, or else of the processor."""
    named = [getattr(config, name, None) for name in ("image_token_id", "image_token_index")]
    of_config = {id for id in named if isinstance(id, int)}
    return of_config or {id for id in [getattr(processor, "image_token_id", None)] if isinstance(id, int)}


def own_positions(config: "PreTrainedConfig") -> "Callable[[OwnEncoding], torch.Tensor] | None":
    """What gives an encoding its positions (axes, len(ids)) from 0, as the model itself does, or where text and image
    tokens count alike; None for M-RoPE without a function of the model."""
    import torch
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    rope = getattr(getattr(model, "model", model), "get_rope_index", None)
    if rope is None:
        mrope = "mrope_section" in str(config.get_text_config().to_dict())
        return None if mrope else lambda made: torch.arange(len(made.ids))[None]
    takes = signature(rope).parameters

    def positions(made: OwnEncoding) -> torch.Tensor:
        inputs = {"input_ids": torch.tensor([made.ids]), **made.of_tokens, **made.inputs}
        return rope(**{name: inputs[name] for name in takes if name in inputs})[0][:, 0]

    return positions
