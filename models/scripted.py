"""Replies made by a function instead of a model, for tests that need malformed text."""

import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence

from models import Reply, ReplyFormat
from models.conversation import Conversation

Script = Callable[[Conversation], str]
"""A reply's text from what a conversation says, never from the order of calls."""


class ScriptedBackend:
    """A backend whose replies come from `script`."""

    concurrent = False

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self.name = name
        self._script = script

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order, with token counts of 0; the script alone decides what they look
        like."""
        started = time.perf_counter()
        texts = [self._script(conversation) for conversation in conversations]
        seconds = time.perf_counter() - started
        return [Reply(text, seconds=seconds) for text in texts]

    def release(self, conversation: Conversation) -> None:
        """Nothing is kept, so there is nothing to free."""

    def peak_memory_bytes(self) -> int:
        """No device, no memory."""
        return 0

    def close(self) -> None:
        """Nothing runs once a call has returned."""


def random_policy(seed: int = 0) -> Script:
    """Moves, early answers and replies that cannot be read, drawn at random from `seed` and the conversation's content.

    Equal conversations get equal replies, whatever their ids and images; about one reply in five is an answer
    and one in six is malformed.
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
"""What models really say when they should act: nothing, prose, cut-off objects, no numbers, answers that are none."""


def content_hash(conversation: Conversation) -> str:
    """A hash of the roles and texts of all messages, as hexadecimal digits."""
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
