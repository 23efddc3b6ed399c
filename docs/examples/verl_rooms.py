"""An episode in verl's agent loop, with the included explorer's processor and scripted replies instead of a server.

sh scripts/install_faces.sh verl
PYTHONPATH=. .venv-faces/verl/bin/python docs/examples/verl_rooms.py
"""

import asyncio
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from transformers import AutoProcessor
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from roomscout.models import EXPLORER
from roomscout.rooms import write_rooms
from roomscout.training.faces.verl import RoomAgentLoop

REPLIES = [
    'I look. {"rotation_angle_degrees": 90, "answer": null, "done": false}<|im_end|>',
    'There are two. {"answer": "2", "done": true}<|im_end|>',
]
PROCESSOR = AutoProcessor.from_pretrained(EXPLORER)


class Scripted:
    """Generates the replies in turn, as verl's client of its servers would."""

    def __init__(self) -> None:
        self.left = [PROCESSOR.tokenizer.encode(reply, add_special_tokens=False) for reply in REPLIES]

    async def generate(self, **request: Any) -> TokenOutput:
        """The next reply, each token with the same log-probability."""
        tokens = self.left.pop(0)
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens))


async def play() -> None:
    """One episode."""
    write_rooms(Path("rooms"), rooms=1, seed=1)
    rooms = {"questions": "rooms/questions.jsonl", "scan_root": "rooms", "model": "embedded", "renderer": "raycast"}
    lengths = {"prompt_length": 4096, "response_length": 4096}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": lengths}, "data": {}})
    wrapped, tokenizer = (DictConfigWrap(config), DictConfigWrap(config.data)), PROCESSOR.tokenizer
    loop = RoomAgentLoop(wrapped[0], Scripted(), tokenizer, PROCESSOR, object, wrapped[1], "qwen3_vl", settings=rooms)
    output = await loop.run({"logprobs": True}, extra_info={"question": "0"})
    trained = sum(output.response_mask)
    print(f"{len(output.response_ids)} tokens, {trained} of the model; {len(output.multi_modal_data['images'])} views")
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    print({name: tuple(value.shape) for name, value in output.as_dict().items() if hasattr(value, "shape")})
    print("score", output.reward_score)


asyncio.run(play())
