"""Replies from a function instead of a model."""

import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence

from roomscout.models import Reply, ReplyFormat
from roomscout.models.conversation import Conversation

Script = Callable[[Conversation], str]
"""Computes a reply from the conversation's content; it must not depend on the order of calls."""


class ScriptedBackend:
    """A backend whose replies come from `script`."""

    concurrent = False

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self.name = name
        self._script = script

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order, with token counts of 0; ignores `reply_format`."""
        started = time.perf_counter()
        texts = [self._script(conversation) for conversation in conversations]
        seconds = time.perf_counter() - started
        return [Reply(text, seconds=seconds) for text in texts]

    def release(self, conversation: Conversation) -> None:
        """Does nothing: nothing is cached."""

    def peak_memory_bytes(self) -> int:
        """0: no device is used."""
        return 0

    def close(self) -> None:
        """Does nothing: no work outlives a call."""


def random_policy(seed: int = 0) -> Script:
    """Random moves, early answers and malformed replies, seeded by `seed` and the conversation's texts.

    Conversations with equal texts get equal replies, whatever their ids and images. About one reply in five is an
    answer, one in six is malformed.
    """

    def reply(conversation: Conversation) -> str:
        draw = random.Random(f"{seed} {content_hash(conversation)}")
        kind = draw.random()
        if kind < 0.17:
            return draw.choice(MALFORMED_REPLIES)
        if kind < 0.37:
            return _object(answer=draw.choice(("A", "B", "C", "D", "3", "1.5", 2)), done=True)
        return "I look further.\n" + _object(
            rotation_angle_degrees=draw.randrange(-180, 181, 15),
            forward_meters=round(draw.uniform(-1.0, 3.0), 2),
            left_meters=round(draw.uniform(-1.0, 1.0), 2),
            z_delta_meters=round(draw.uniform(-0.5, 0.5), 2),
        )

    return reply


MALFORMED_REPLIES = (
    "",
    "I cannot see anything useful from here.",
    "房间里有三把椅子。",
    "{" * 50,
    '{"rotation_angle_degrees": 30, "forward_meters": 0.5, "left',
    '{"rotation_angle_degrees": NaN, "forward_meters": Infinity, "answer": null, "done": false}',
    '{"rotation_angle_degrees": "a little", "answer": null, "done": false}',
    '{"rotation_angle_degrees": 0, "answer": "AB", "done": true}',
    '{"rotation_angle_degrees": 0, "answer": null, "done": true}',
)
"""Observed failures of real models: empty replies, prose, truncated objects, non-numbers, invalid answers."""


def content_hash(conversation: Conversation) -> str:
    """A hexadecimal hash of the roles and texts of all messages."""
    content = json.dumps([(message.role, message.text) for message in conversation.messages])
    return hashlib.sha256(content.encode()).hexdigest()


def _object(**values: object) -> str:
    action: dict[str, object] = {
        "rotation_angle_degrees": 0.0,
        "forward_meters": 0.0,
        "left_meters": 0.0,
        "z_delta_meters": 0.0,
        "answer": None,
        "done": False,
    }
    return json.dumps(action | values)
