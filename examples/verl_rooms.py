"""verl: `RoomAgentLoop`, registered as "roomscout", which generates the replies of an episode and rewards it.

With this folder on the path, in a YAML file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names,
with settings as for `RoomEnv`:

    - name: roomscout
      _target_: verl_rooms.RoomAgentLoop
      settings: {questions: train.jsonl, scan_root: rooms, model: Qwen/Qwen3-VL-4B-Instruct}

Rows of the data set have "agent_name": "roomscout", and in "extra_info" the "question" (id or position) or the "seed".

sh scripts/install_faces.sh verl
PYTHONPATH=. .venv-faces/verl/bin/python examples/verl_rooms.py
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from PIL import Image
from shared_rooms import DONE, LOOK, ROOMS, shared_env
from transformers import AutoProcessor
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, DictConfigWrap, register
from verl.utils.profiler import simple_timer
from verl.workers.rollout.replica import TokenOutput

from roomscout import RoomEnv
from roomscout.models import EXPLORER
from roomscout.rooms import write_rooms
from roomscout.training.environment import Message


@register("roomscout")
class RoomAgentLoop(AgentLoopBase):
    """An episode for each row; loops of the same settings share scans and renderer in a process."""

    def __init__(self, *arguments: Any, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.settings = dict(settings or {})

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Take turns until the episode ends or the response is as long as `rollout.response_length`."""
        chosen = {name: row["extra_info"][name] for name in ("question", "seed") if name in row.get("extra_info", {})}
        env = await asyncio.to_thread(shared_env, self.settings)
        try:
            return await self._episode(env, await asyncio.to_thread(env.reset, **chosen), sampling_params)
        finally:
            env.close()

    async def _episode(self, env: RoomEnv, messages: list[Message], sampling: dict[str, Any]) -> AgentLoopOutput:
        """Tokens, images and reward of an episode that begins with these messages."""
        chat = _chat(messages)
        images = _images(messages)
        self._assert_mm_supported(bool(images))
        ids = await self.ct_build_initial_tokens(chat, images=images)
        mask: list[int] = []
        logprobs: list[float] | None = [] if sampling.get("logprobs") else None
        metrics: dict[str, Any] = {}
        request = uuid4().hex
        longest = self.rollout_config.response_length
        rewards = []
        while True:
            with simple_timer("generate_sequences", metrics):
                output = await self.server_manager.generate(
                    request_id=request, prompt_ids=ids, sampling_params=sampling, image_data=images or None
                )
            tokens = output.token_ids or [self.tokenizer.eos_token_id]  # verl cannot train on a response of no tokens
            scored = None if logprobs is None else output.log_probs or [0.0] * len(tokens)
            merged, mask, logprobs = await self.ct_merge_assistant_token(ids, tokens, mask, logprobs, scored)
            ids = merged.token_ids
            reply = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            with simple_timer("tool_calls", metrics):
                step = await asyncio.to_thread(env.step, reply)
            rewards.append(step.reward)
            if step.ended or len(mask) >= longest:
                break
            before = [*chat, {"role": "assistant", "content": reply}]
            chat = [*before, *_chat(step.messages)]
            merged, longer, scored = await self.ct_merge_context_msg(before, chat, ids, mask, logprobs)
            if len(longer) >= longest:
                break
            ids = merged.token_ids
            mask = longer
            logprobs = scored
            images = [*images, *_images(step.messages)]
        return AgentLoopOutput(
            prompt_ids=ids[: len(ids) - len(mask)],
            response_ids=ids[-len(mask) :][:longest],
            response_mask=mask[:longest],
            response_logprobs=logprobs[:longest] if logprobs else None,
            multi_modal_data={"images": images} if images else {},
            reward_score=sum(rewards),
            num_turns=2 * len(rewards) + 1,
            metrics=metrics,
            extra_fields={"turn_scores": rewards, "tool_rewards": [], "score": step.info["score"] or 0.0},
        )


def _chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _images(messages: Sequence[Message]) -> list[Image.Image]:
    return [image for message in messages for image in message.images]


class Scripted:
    """Generates the replies in turn, as verl's client of its servers would."""

    def __init__(self, tokenizer: Any) -> None:
        self.left = [tokenizer.encode(f"{reply}<|im_end|>", add_special_tokens=False) for reply in (LOOK, DONE)]

    async def generate(self, **request: Any) -> TokenOutput:
        """The next reply, each token with the same log-probability."""
        tokens = self.left.pop(0)
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens))


async def play() -> None:
    """One episode with the included explorer's processor, and scripted replies instead of a server."""
    write_rooms(Path("rooms"), rooms=1, seed=1)
    processor = AutoProcessor.from_pretrained(EXPLORER)
    lengths = {"prompt_length": 4096, "response_length": 4096}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": lengths}, "data": {}})
    loop = RoomAgentLoop(
        DictConfigWrap(config), Scripted(processor.tokenizer), processor.tokenizer, processor, object,
        DictConfigWrap(config.data), "qwen3_vl", settings=ROOMS,
    )  # fmt: skip
    output = await loop.run({"logprobs": True}, extra_info={"question": "0"})
    trained = sum(output.response_mask)
    print(f"{len(output.response_ids)} tokens, {trained} of the model; {len(output.multi_modal_data['images'])} views")
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    print({name: tuple(value.shape) for name, value in output.as_dict().items() if hasattr(value, "shape")})
    print("score", output.reward_score)


if __name__ == "__main__":
    asyncio.run(play())
