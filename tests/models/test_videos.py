"""A video as one input, on tiny checkpoints of the real classes."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
from transformers.video_utils import VideoMetadata
from untrained_checkpoints import write_untrained_family

from roomscout.base.shots import FRAME, Shot
from roomscout.models import ModelError, ModelOptions, ReplyFormat
from roomscout.models.conversation import Clip, Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.encoding import ConversationEncoder

pytestmark = pytest.mark.usefixtures("one_thread")
NATIVE = ["qwen3_vl", "qwen2_5_vl", "qwen2_vl", "qwen3_5"]
QUESTION = "These are frames of a video.\nHow many chairs?"


@pytest.fixture(scope="module", params=NATIVE)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained_family(tmp_path_factory.mktemp("models") / request.param, request.param)


def conversation_of(number: int, frames: int = 5, size: tuple[int, int] = (84, 112)) -> Conversation:
    draw = np.random.default_rng(number)
    shots = tuple(Shot(FRAME, draw.integers(0, 256, (*size, 3), dtype=np.uint8)) for _ in range(frames))
    indices = tuple(map(int, np.linspace(0, 99, frames, dtype=int)))
    conversation = Conversation(f"q{number}")
    conversation.append(Message("user", QUESTION + " again" * number, shots, clip=Clip(100, indices, 29.97)))
    return conversation


def rendered(processor: Any, message: Message) -> str:
    chat = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": message.text}]}]
    options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}  # of Qwen3.5
    return processor.apply_chat_template(chat, **options)


@pytest.mark.parametrize("frames", [2, 5])
def test_ids_pixels_and_positions_are_those_of_the_library(checkpoint: Path, frames: int):
    processor, config = AutoProcessor.from_pretrained(checkpoint), AutoConfig.from_pretrained(checkpoint)
    conversation = conversation_of(0, frames)
    (message,) = conversation.messages
    assert message.clip is not None
    theirs = processor(
        text=[rendered(processor, message)],
        videos=[[shot.image for shot in message.shots]],
        video_metadata=[VideoMetadata(total_num_frames=100, fps=29.97, frames_indices=list(message.clip.indices))],
        do_sample_frames=False,
        return_tensors="pt",
    )
    encoder = ConversationEncoder(processor, config)
    encoded = encoder.encode(conversation)
    assert encoded.ids == theirs["input_ids"][0].tolist()
    (turn,) = encoded.turns
    inputs = encoder.image_inputs(turn)
    assert torch.equal(inputs["pixel_values_videos"], theirs["pixel_values_videos"])
    assert torch.equal(inputs["video_grid_thw"], theirs["video_grid_thw"])
    turn.inputs.clear()
    assert torch.equal(encoder.image_inputs(turn)["pixel_values_videos"], theirs["pixel_values_videos"])
    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    times = {"second_per_grid_ts": theirs["second_per_grid_ts"]} if "qwen2_5" in config.model_type else {}
    if "int(next(second_per_grid_ts))" in inspect.getsource(type(model.model)):
        pytest.skip(f"transformers {transformers.__version__} takes whole seconds as the distance of frames")
    positions, _ = model.model.get_rope_index(
        theirs["input_ids"], theirs["mm_token_type_ids"], video_grid_thw=theirs["video_grid_thw"], **times
    )
    assert torch.equal(encoded.positions, positions[:, 0])
    text = processor.tokenizer.decode(encoded.ids)
    assert ("seconds>" in text) == (config.model_type in ("qwen3_vl", "qwen3_5"))


@pytest.mark.parametrize("kv_reuse", [True, False])
def test_a_batch_replies_as_the_model_does_alone(checkpoint: Path, kv_reuse: bool):
    options = ModelOptions(device="cpu", max_new_tokens=6, kv_reuse=kv_reuse)
    backend = TransformersBackend.from_checkpoint(str(checkpoint), options)
    asked = [conversation_of(number, frames) for number, frames in enumerate((5, 2, 8))]
    replies = backend.generate(asked, ReplyFormat())
    processor, model = (
        AutoProcessor.from_pretrained(checkpoint),
        AutoModelForImageTextToText.from_pretrained(checkpoint),
    )
    for conversation, reply in zip(asked, replies, strict=True):
        (message,) = conversation.messages
        assert message.clip is not None
        metadata = VideoMetadata(total_num_frames=100, fps=29.97, frames_indices=list(message.clip.indices))
        inputs = processor(
            text=[rendered(processor, message)],
            videos=[[shot.image for shot in message.shots]],
            video_metadata=[metadata],
            do_sample_frames=False,
            return_tensors="pt",
        )
        with torch.inference_mode():
            logits = model(**inputs).logits[0, -1]
        allowed = logits[: len(processor.tokenizer)].clone()  # a reply has no token that the tokenizer lacks
        allowed[list(processor.tokenizer.get_added_vocab().values())] = -torch.inf
        assert reply.tokens[0] == int(allowed.argmax()) and reply.images_encoded == 1
        assert reply.prompt_tokens == inputs["input_ids"].shape[1]


def test_a_checkpoint_whose_template_has_no_videos_says_so(tmp_path: Path):
    checkpoint = write_untrained_family(tmp_path / "qwen", "qwen2_5_vl")
    processor, config = AutoProcessor.from_pretrained(checkpoint), AutoConfig.from_pretrained(checkpoint)
    with pytest.raises(ModelError, match=r"the checkpoint's processor does not take the video \(absolute aspect ratio"):
        ConversationEncoder(processor, config).encode(conversation_of(0, size=(28, 28 * 201)))
    processor.chat_template = processor.chat_template.replace("<|video_pad|>", "")
    assert not ConversationEncoder(processor, config).chat.sees_videos
    with pytest.raises(ModelError, match=r"Qwen2\.5-VL with this chat template sees images, but no videos"):
        ConversationEncoder(processor, config).encode(conversation_of(0))
