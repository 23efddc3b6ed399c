"""A server of OpenEnv with rooms, and a client that answers a question; the two usually run on two machines.

sh scripts/install_faces.sh openenv
PYTHONPATH=. .venv-faces/openenv/bin/python docs/examples/openenv_rooms.py
"""

import socket
import threading
import time
from pathlib import Path

import uvicorn

from roomscout.rooms import write_rooms
from roomscout.training.faces.openenv import RoomAction, RoomClient, create_room_app

write_rooms(Path("rooms"), rooms=1, seed=1)
app = create_room_app(questions="rooms/questions.jsonl", scan_root="rooms", model="embedded", renderer="raycast")
listening = socket.create_server(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
serving.start()
while not server.started:
    time.sleep(0.1)

with RoomClient(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}").sync() as client:
    result = client.reset(question="0")
    print(result.observation.messages[-1]["text"].splitlines()[0])
    look = 'I look. {"rotation_angle_degrees": 90, "answer": null, "done": false}'
    result = client.step(RoomAction(reply=look))
    print(len(result.observation.messages[0]["images"]), "new view")
    result = client.step(RoomAction(reply='There are two. {"answer": "2", "done": true}'))
    print("done", result.done, "score", result.reward)
server.should_exit = True
serving.join()
