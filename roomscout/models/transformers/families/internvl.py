"""InternVL3 and InternVL3.5 in transformers' format: square tiles, ordinary positions."""

from typing import TYPE_CHECKING

from roomscout.models.transformers.families.family import Family, ImageInputs, Views, plain_positions

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, ProcessorMixin


class _Tiles(Views):
    """Views of any size, each in the grid of square tiles of the closest aspect ratio, and if several one of it all."""

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """A fixed number per tile, plus the start and end tokens of an image."""
        from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas

        columns, rows = get_optimal_tiled_canvas((height, width), tuple(config.vision_config.image_size), 1, tiles)
        count = columns * rows
        return config.image_seq_length * (count + (count > 1)) + 2


def _process(
    processor: "ProcessorMixin", image: "Image.Image", tiles: int, device: "torch.device | None"
) -> ImageInputs:
    processed = processor.image_processor(
        images=[image], crop_to_patches=tiles > 1, max_patches=tiles, return_tensors="pt", device=device
    )
    return {"pixel_values": processed["pixel_values"]}


def _placeholders(processor: "ProcessorMixin", config: "PreTrainedConfig", inputs: ImageInputs) -> list[int]:
    count = len(inputs["pixel_values"]) * config.image_seq_length
    return [processor.start_image_token_id, *[config.image_token_id] * count, processor.end_image_token_id]


INTERNVL = Family(
    name="InternVL3.5",
    example="OpenGVLab/InternVL3_5-8B-HF",
    model_types=("internvl",),  # also of InternVL3; the language model is Qwen2 or Qwen3
    process=_process,
    placeholders=_placeholders,
    positions=plain_positions,
    views=_Tiles(),  # 448x448 pixels and 256 tokens per tile: patch 14, four patches per token
    tiled=True,
)
