"""Two tasks of verifiers' taskset with a scripted model behind a server on this machine.

sh scripts/install_faces.sh verifiers
PYTHONPATH=. .venv-faces/verifiers/bin/python docs/examples/verifiers_rooms.py
"""

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import verifiers.v1 as vf

from roomscout.rooms import write_rooms
from roomscout.training.faces.verifiers import RoomEnvConfig, RoomInteraction, RoomTaskset

__all__ = ["RoomInteraction", "RoomTaskset"]  # what verifiers looks for in a module that is named as a taskset
LOOK = 'I look. {"rotation_angle_degrees": 90, "answer": null, "done": false}'
DONE = 'There are two. {"answer": "2", "done": true}'


class Model(BaseHTTPRequestHandler):
    """Looks once, then answers 2; the answer is streamed in one piece."""

    def do_POST(self) -> None:
        """One reply."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = LOOK if len(asked["messages"]) < 4 else DONE
        events = [({"role": "assistant", "content": text}, None), ({}, "stop")]
        about = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
        choices = [[{"index": 0, "delta": delta, "finish_reason": reason}] for delta, reason in events]
        lines = [*(json.dumps({**about, "choices": each}) for each in choices), "[DONE]"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {line}\n\n" for line in lines).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


async def _evaluate(port: int) -> None:
    rooms = {"questions": "rooms/questions.jsonl", "scan_root": "rooms", "model": "embedded", "renderer": "raycast"}
    env = RoomInteraction(RoomEnvConfig(taskset={"id": "verifiers_rooms", "settings": rooms}))
    model = vf.ModelContext("scripted", vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="HOME"))
    async with env.serving():
        for task in env.taskset.take(2):
            episode = await env.run_episode(task, model)
            print(f"question {task.data.question}: ok {episode.ok}, score {episode.traces[0].reward}", episode.errors)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    write_rooms(Path("rooms"), rooms=1, seed=1)
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asyncio.run(_evaluate(server.server_port))
        server.shutdown()
