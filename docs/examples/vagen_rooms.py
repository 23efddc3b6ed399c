"""An episode through VAGEN's interface, in the order in which its agent loops call it.

sh scripts/install_faces.sh verl
PYTHONPATH=. .venv-faces/verl/bin/python docs/examples/vagen_rooms.py
"""

import asyncio
from pathlib import Path

from roomscout.rooms import write_rooms
from roomscout.training.faces.vagen import RoomImageEnv

REPLIES = [
    'I look. {"rotation_angle_degrees": 90, "answer": null, "done": false}',
    'There are two. {"answer": "2", "done": true}',
]


async def play() -> None:
    """One episode with scripted replies."""
    write_rooms(Path("rooms"), rooms=1, seed=1)
    config = {"questions": "rooms/questions.jsonl", "scan_root": "rooms", "model": "embedded", "renderer": "raycast"}
    env = RoomImageEnv(config)
    observation, info = await env.reset(seed=0)
    system = await env.system_prompt()
    print(f"question {info['question']}, {len(system['obs_str'])} characters of instructions")
    for reply in REPLIES:
        images = observation.get("multi_modal_input", {}).get("<image>", [])
        assert observation["obs_str"].count("<image>") == len(images)
        observation, reward, done, info = await env.step(reply)
        print(f"reward {reward}, done {done}, success {info['success']}")
    await env.close()


asyncio.run(play())
