"""Qwen's vision-language models: one token per square of pixels, M-RoPE positions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from roomscout.models.conversation import Clip
from roomscout.models.transformers.families.family import PRESERVE_THOUGHTS, EncodedVideo, Family, ImageInputs, Squares

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, ProcessorMixin


def _process(
    processor: "ProcessorMixin", image: "Image.Image", tiles: int, device: "torch.device | None"
) -> ImageInputs:
    processed = processor.image_processor(images=[image], do_resize=False, return_tensors="pt", device=device)
    return {name: processed[name] for name in ("pixel_values", "image_grid_thw")}


def _merged_grid(config: "PreTrainedConfig", inputs: ImageInputs) -> tuple[int, int]:
    """Rows and columns of an image's tokens."""
    _, rows, columns = inputs["image_grid_thw"][0].tolist()
    side = config.vision_config.spatial_merge_size
    return rows // side, columns // side


def _placeholders(processor: "ProcessorMixin", config: "PreTrainedConfig", inputs: ImageInputs) -> list[int]:
    rows, columns = _merged_grid(config, inputs)
    return [config.image_token_id] * (rows * columns)


def _mrope_positions(config: "PreTrainedConfig", ids: Sequence[int], inputs: ImageInputs) -> "torch.Tensor":
    """Positions (3, len(ids)) of text with an image, equal to the models' get_rope_index."""
    return _text_and_grids(ids, config.image_token_id, *_merged_grid(config, inputs))


def _text_and_grids(ids: Sequence[int], token: int, rows: int, columns: int, interval: float = 1) -> "torch.Tensor":
    """Positions (3, len(ids)) of text and of grids of `token`, which may follow each other in time. Text counts up on
    all axes. A grid's tokens share a time, which grows by `interval`; height and width add row and column; text follows
    past the longer side."""
    import torch

    start = 0
    parts = list[torch.Tensor]()
    for is_grid, group in groupby(id == token for id in ids):
        place = torch.arange(len(list(group)))
        if is_grid:
            time = (place // (rows * columns) * interval).long()
            within = place % (rows * columns)
            parts.append(start + torch.stack([time, within // columns, within % columns]))
            start += max(rows, columns)
        else:
            parts.append(start + place.expand(3, -1))
            start += len(place)
    return torch.cat(parts, dim=1)


def _video(
    processor: "ProcessorMixin", config: "PreTrainedConfig", text: str, frames: Sequence["np.ndarray"], clip: Clip
) -> EncodedVideo:
    """Ids and pixels by the processor, and positions equal to the models' get_rope_index. Qwen3-VL writes a time before
    each pair of frames, with an image's positions. In Qwen2.5-VL time grows by tokens_per_second, in Qwen2-VL by 1."""
    from transformers.video_utils import VideoMetadata

    metadata = VideoMetadata(total_num_frames=clip.total, fps=clip.fps, frames_indices=list(clip.indices))
    made = processor(
        text=[text], videos=[list(frames)], video_metadata=[metadata], do_sample_frames=False, return_tensors="pt"
    )
    ids = made["input_ids"][0].tolist()
    side = config.vision_config.spatial_merge_size
    _, rows, columns = made["video_grid_thw"][0].tolist()
    rate = getattr(config.vision_config, "tokens_per_second", None)
    interval = rate * float(made["second_per_grid_ts"][0]) if rate and "second_per_grid_ts" in made else 1
    positions = _text_and_grids(ids, config.video_token_id, rows // side, columns // side, interval)
    return ids, positions, {name: made[name] for name in ("pixel_values_videos", "video_grid_thw")}


QWEN3_VL = Family(
    name="Qwen3-VL",
    example="Qwen/Qwen3-VL-8B-Instruct",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    process=_process,
    placeholders=_placeholders,
    positions=_mrope_positions,
    views=Squares(32, squares=(4, 16384), max_aspect_ratio=200),  # patch 16, merge 2; limits as in qwen-vl-utils
    keeps_sizes=True,
    video=_video,
)

QWEN2_5_VL = replace(
    QWEN3_VL,
    name="Qwen2.5-VL",
    example="Qwen/Qwen2.5-VL-7B-Instruct",
    model_types=("qwen2_5_vl", "qwen2_vl"),  # which have the same inputs and positions
    views=Squares(28, squares=(4, 16384), max_aspect_ratio=200),  # patch 14, merge 2
    default_view=(644, 476),
)

QWEN3_5 = replace(
    QWEN3_VL,
    name="Qwen3.5",
    example="Qwen/Qwen3.5-9B",
    model_types=("qwen3_5", "qwen3_5_moe"),  # also of Qwen3.6 and Qwen3.8; most layers use linear attention
    chat_options={"enable_thinking": False, **PRESERVE_THOUGHTS},
    reply_opening="<think>\n\n</think>\n\n",
)
"""Thinking is disabled. Qwen3.5's template drops the empty thought of earlier replies; here it stays, because turns are
only appended. Those of Qwen3.6 and Qwen3.8 leave it if asked to."""
