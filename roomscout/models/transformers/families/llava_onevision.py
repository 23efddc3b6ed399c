"""LLaVA-OneVision: one padded square per view, ordinary positions."""

from typing import TYPE_CHECKING

from roomscout.models.transformers.families.family import Family, ImageInputs, Views, plain_positions

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, ProcessorMixin


class _PaddedSquares(Views):
    """Views of any size: the processor pads each to a square, then resizes it."""

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """One for each patch of the square, plus a newline token."""
        return (config.vision_config.image_size // config.vision_config.patch_size) ** 2 + 1


def _process(
    processor: "ProcessorMixin", image: "Image.Image", tiles: int, device: "torch.device | None"
) -> ImageInputs:
    """Process the image as one of two, with `batch_num_images` 2: an image alone would be split into tiles, which the
    first view of a conversation with several must not be."""
    processed = processor.image_processor(images=[[image, image]], return_tensors="pt", device=device)
    first = {name: processed[name][:1] for name in ("pixel_values", "image_sizes")}
    return {**first, "batch_num_images": processed["batch_num_images"]}


def _placeholders(processor: "ProcessorMixin", config: "PreTrainedConfig", inputs: ImageInputs) -> list[int]:
    return [config.image_token_id] * _PaddedSquares().tokens(config, 0, 0, 1)


LLAVA_ONEVISION = Family(
    name="LLaVA-OneVision",
    example="llava-hf/llava-onevision-qwen2-7b-ov-hf",
    model_types=("llava_onevision",),  # the language model is Qwen2
    process=_process,
    placeholders=_placeholders,
    positions=plain_positions,
    views=_PaddedSquares(),  # SigLIP at 384x384 pixels with patch 14: 729 tokens, plus one for a new line
)
