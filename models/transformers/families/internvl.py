"""InternVL3 and InternVL3.5 in transformers' own format: square tiles, ordinary positions."""

from typing import TYPE_CHECKING

from models.transformers.families.family import Family, ImageInputs, attends_to_all, plain_positions

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, ProcessorMixin


class _Tiles:
    """Views of any size: the processor resizes a view to a grid of tiles.

    With one tile that is a square, whatever the view's own shape. With more it is the grid whose shape is nearest to
    the view's, and one more tile for the whole view where the grid has several.
    """

    def why_not(self, width: int, height: int) -> str | None:
        """None: the processor resizes all views."""
        return None

    def tokens(self, config: "PreTrainedConfig", width: int, height: int, tiles: int) -> int:
        """As many for each tile as the model expects, one in front of the view and one behind it."""
        from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas

        columns, rows = get_optimal_tiled_canvas((height, width), tuple(config.vision_config.image_size), 1, tiles)
        cut = columns * rows
        return config.image_seq_length * (cut + (cut > 1)) + 2


def _process(processor: "ProcessorMixin", image: "Image.Image", tiles: int) -> "dict[str, torch.Tensor]":
    """`pixel_values` (tiles, 3, side, side)."""
    processed = processor.image_processor(
        images=[image], crop_to_patches=tiles > 1, max_patches=tiles, return_tensors="pt"
    )
    return {"pixel_values": processed["pixel_values"]}


def _tiles_between_marks(processor: "ProcessorMixin", config: "PreTrainedConfig", inputs: ImageInputs) -> list[int]:
    count = len(inputs["pixel_values"]) * config.image_seq_length
    return [processor.start_image_token_id, *[config.image_token_id] * count, processor.end_image_token_id]


INTERNVL = Family(
    name="InternVL3.5",
    example="OpenGVLab/InternVL3_5-8B-HF",
    model_types=("internvl",),
    process=_process,
    placeholders=_tiles_between_marks,
    position_axes=1,
    positions=plain_positions,
    views=_Tiles(),
    patches_per_token=4,
    can_keep=attends_to_all,
    language_model="model.language_model",
    image_encoder="model.vision_tower",
    image_layers="model.vision_tower.encoder.layer",
    mergers=("model.multi_modal_projector",),
    lookups=("model.language_model.embed_tokens", "model.vision_tower.embeddings.position_embeddings"),
    tiled=True,
)
"""Tiles of 448x448 pixels, 256 tokens each: patch 14, of which four become a token. The language model is a Qwen2 or a
Qwen3. InternVL3 has the same classes."""
