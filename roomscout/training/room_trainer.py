"""TRL's GRPOTrainer with episodes of RoomEnv as completions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image
from trl import GRPOTrainer

from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelOptions
from roomscout.models.conversation import Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.training.environment import RoomEnv
from roomscout.training.spoken import encoded_episode, learning_encoder


@dataclass
class Episode:
    """The episode that an environment is in."""

    env: RoomEnv
    reward: float = 0.0  # the sum so far
    truncated: tuple[int, ...] = ()  # the turns whose replies are
    failed: bool = False


def play(episodes: Sequence[Episode], backend: TransformersBackend) -> None:
    """Play begun episodes to their ends, all turns in batches."""
    going = list(episodes)
    while going:
        replies = backend.generate([episode.env.state.conversation for episode in going], action_format())
        for episode, reply in zip(tuple(going), replies, strict=True):
            conversation = episode.env.state.conversation
            if reply.finish_reason == "length":
                episode.truncated += (episode.env.state.turn,)
            step = episode.env.step(reply)
            episode.reward += step.reward
            if step.ended:
                episode.failed = step.info["failed"] is not None
                backend.release(conversation)
                going.remove(episode)


class RoomTrainer(GRPOTrainer):
    """GRPO whose completions are episodes of RoomEnv: plain replies and new views in turn, as in evaluation. TRL's own
    loop takes views from tools alone and ends without a signal, so `_generate` replaces it. A completion is all after
    the first message; only what the model said is learned. Episodes whose view cannot be drawn do not count."""

    def __init__(self, env: RoomEnv, max_new_tokens: int, **more: Any) -> None:
        super().__init__(reward_funcs=episode_reward, **more)
        self._envs = [env]
        self._longest_reply = max_new_tokens
        # with tools, TRL takes the images of a completion from `tool_images`; these tools are never called
        self._standalone_tools: list[Any] = []
        self.tools = [play]

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """Play one episode for each prompt, whose text is the number of its question."""
        while len(self._envs) < len(prompts):
            self._envs.append(self._envs[0].another())
        episodes = [Episode(env) for env in self._envs[: len(prompts)]]
        for place, (episode, prompt) in enumerate(zip(episodes, prompts, strict=True)):
            episode.env.reset(int(prompt[-1]["content"]))
            name = f" {self.state.global_step} {self.accelerator.process_index} {place}"
            episode.env.state.conversation.id += name  # which seeds what is sampled
        model = self.accelerator.unwrap_model(self.model)
        if hasattr(model, "get_base_model"):
            model = model.get_base_model()
        encoder = learning_encoder(self.processing_class, model.config)
        options = ModelOptions(
            max_new_tokens=self._longest_reply, temperature=self.temperature, seed=self.args.seed, logprobs=True
        )
        play(episodes, TransformersBackend(model, self.processing_class, options))
        rows = []
        for episode in episodes:
            conversation = episode.env.state.conversation
            if conversation.messages[-1].role == "user":  # a view could not be drawn: the reply has no turn
                conversation.append(Message("assistant", ""))
            rows.append(encoded_episode(encoder, conversation, self._tokenizer.eos_token_id, episode.truncated))
        views = [[Image.fromarray(turn.views[0]) for turn in row.turns] for row in rows]
        replies = ["\n".join(turn.reply.text for turn in episode.env.state.turns) for episode in episodes]
        texts = [[{"role": "assistant", "content": reply}] for reply in replies]
        fields = {
            "room_reward": [None if episode.failed else episode.reward for episode in episodes],
            "room_score": [episode.env.state.score() or 0.0 for episode in episodes],
        }
        prompt_ids = [row.ids[: row.first].tolist() for row in rows]
        ids = [row.ids[row.first :].tolist() for row in rows]
        masks = [row.spoken[row.first :].long().tolist() for row in rows]
        return prompt_ids, ids, masks, texts, None, fields, views, views


def episode_reward(
    room_reward: list[float | None], room_score: list[float], log_metric: Any, **_: Any
) -> list[float | None]:
    """The reward of each episode, None for one that failed; TRL logs it by the name of this function."""
    log_metric("score", sum(room_score) / len(room_score))
    return room_reward
