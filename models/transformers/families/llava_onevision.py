"""LLaVA-OneVision: one padded square for each view, ordinary positions."""

from typing import TYPE_CHECKING

from models.transformers.families.family import Family, ImageInputs, attends_to_all, plain_positions

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, ProcessorMixin


class _PaddedSquares:
    """Views of any size: the processor pads a view to a square and resizes that."""

    def why_not(self, width: int, height: int) -> str | None:
        """None: the processor resizes all views."""
        return None

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """One for each patch of the square, and one that ends it."""
        return (config.vision_config.image_size // config.vision_config.patch_size) ** 2 + 1


def _process(processor: "ProcessorMixin", image: "Image.Image", tiles: int) -> "dict[str, torch.Tensor]":
    """The inputs of an image that is one of several.

    Model and processor cut only an image that is alone in its prompt into tiles. A conversation has several, so the
    first view is encoded like all others: the image is processed beside itself, and `batch_num_images` stays 2.
    """
    processed = processor.image_processor(images=[[image, image]], return_tensors="pt")
    first = {name: processed[name][:1] for name in ("pixel_values", "image_sizes")}
    return {**first, "batch_num_images": processed["batch_num_images"]}


def _square_and_its_end(processor: "ProcessorMixin", config: "PreTrainedConfig", inputs: ImageInputs) -> list[int]:
    return [config.image_token_id] * _PaddedSquares().tokens(config, 0, 0, 1)


LLAVA_ONEVISION = Family(
    name="LLaVA-OneVision",
    example="llava-hf/llava-onevision-qwen2-7b-ov-hf",
    model_types=("llava_onevision",),
    process=_process,
    placeholders=_square_and_its_end,
    position_axes=1,
    positions=plain_positions,
    views=_PaddedSquares(),
    patches_per_token=1,
    can_keep=attends_to_all,
    language_model="model.language_model",
    image_encoder="model.vision_tower",
    image_layers="model.vision_tower.encoder.layers",
    mergers=("model.multi_modal_projector",),
    lookups=("model.language_model.embed_tokens", "model.vision_tower.embeddings.position_embedding"),
)
"""SigLIP at 384x384 pixels with patch 14: 729 tokens a view and one more. The language model is a Qwen2."""
